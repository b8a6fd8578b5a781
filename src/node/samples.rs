//! Both halves of the boundary side by side, for the test that compares them. Not in a published addon.

#![expect(unreachable_pub, reason = "napi exports nothing that is not `pub`")]

use super::outbox::Record;
use super::records::{Operation, heartbeat, loss, notice, outcome, read_operations};
use super::texts::OutcomeText;
use crate::machine::{LeaseId, LossReason, Notice, OpId, Outcome, Risk};
use crate::protocol::Refusal;
use crate::protocol::query::{Holding, Page, Waiting};
use crate::protocol::survey::{Answer, Survey};
use napi_derive::napi;
use std::sync::Arc;
use std::time::Duration;

/// One record of each kind.
#[napi(object)]
pub struct Sample {
    /// The content of the record, as Rust prints it.
    pub meaning: String,
    /// The numbers of the record.
    pub record: Vec<f64>,
    /// The text of an outcome.
    pub text: Option<OutcomeText>,
    /// The text of a notice.
    pub notice: Option<String>,
}

/// The operations that `submit` would start, as Rust prints them.
#[napi]
pub fn describe_operations(
    count: u32,
    numbers: &[f64],
    strings: &[u8],
    length: u32,
) -> Vec<String> {
    let mut label = Arc::default();
    let strings = strings.get(..length as usize).unwrap_or_default();
    let operations = read_operations(count, numbers, strings, &mut label);
    let lines = operations.map(|(OpId(entry), operation)| match operation {
        Operation::Cancel => format!("{entry} Cancel"),
        Operation::Command(command) => format!("{entry} {command:?}"),
        Operation::Query(question) => format!("{entry} {question:?}"),
        Operation::Malformed => format!("{entry} Malformed"),
    });
    lines.collect()
}

/// A record of every outcome, loss and notice, and of a heartbeat.
#[napi]
pub fn sample_records() -> Vec<Sample> {
    let mut samples = vec![sample("Heartbeat".to_owned(), heartbeat())];
    samples.extend(outcomes().into_iter().map(|each| {
        let meaning = format!("{each:?}");
        let (record, text) = outcome(OpId(7), each);
        Sample { text, ..sample(meaning, record) }
    }));
    samples
        .extend(LOSSES.map(|reason| sample(format!("{reason:?}"), loss(3, LeaseId(160), reason))));
    samples.extend(notices().into_iter().map(|each| {
        let meaning = format!("{each:?}");
        let (record, text) = notice(3, each);
        Sample { notice: Some(text), ..sample(meaning, record) }
    }));
    samples
}

fn sample(meaning: String, record: Record) -> Sample {
    Sample { meaning, record: record.to_vec(), text: None, notice: None }
}

const LOSSES: [LossReason; 6] = [
    LossReason::Adopted,
    LossReason::Ended,
    LossReason::Expired,
    LossReason::MaxHold,
    LossReason::Stalled,
    LossReason::Stolen,
];

fn notices() -> Vec<Notice> {
    let text = || "text".to_owned();
    vec![
        Notice::PubsubDenied(text()),
        Notice::PlainCommandsDenied(text()),
        Notice::ClockDenied(text()),
        Notice::Disconnected(text()),
        Notice::LoginRefused(text(), Refusal { code: "CODE".to_owned(), detail: text() }),
        Notice::LoginNotRenewed(text()),
        Notice::Reconnected,
        Notice::SameServer(text()),
        Notice::Risk(Risk::ActiveReplica(text())),
        Notice::Risk(Risk::Eviction(text())),
        Notice::Risk(Risk::Forgets(text())),
        Notice::Risk(Risk::Replica(text())),
    ]
}

fn outcomes() -> Vec<Outcome> {
    let text = || "text".to_owned();
    let lease = LeaseId(160);
    let refusal = Refusal { code: "CODE".to_owned(), detail: text() };
    let waited = Duration::from_secs(2);
    vec![
        Outcome::Acquired { lease, fence: 42, label: None },
        Outcome::Acquired { lease, fence: 42, label: Some(text()) },
        Outcome::AcquiredAll { lease, fences: vec![42, 43] },
        Outcome::OneByOne,
        Outcome::Cancelled,
        Outcome::Closed,
        Outcome::Connection(text()),
        Outcome::Done,
        Outcome::Held,
        Outcome::Internal,
        Outcome::Lost,
        Outcome::Page(page()),
        Outcome::Quorum(vec![text(), String::new()]),
        Outcome::Server { refusal, key: Some("key".to_owned()) },
        Outcome::Surveyed(vec![survey()]),
        Outcome::TimedOut {
            waited,
            holder: "holder".to_owned(),
            holders: 2,
            remaining: Some(Duration::from_secs(3)),
            position: Some(4),
        },
        Outcome::TimedOut {
            waited,
            holder: String::new(),
            holders: 0,
            remaining: None,
            position: None,
        },
    ]
}

fn page() -> Page {
    let (key, token) = ("key".to_owned(), "token".to_owned());
    let held =
        Holding { key, shared: true, token, fence: Some(42), remaining_ms: -1, idle_ms: Some(5) };
    let pending = Waiting {
        key: held.key.clone(),
        shared: false,
        token: held.token.clone(),
        position: 2,
        waited_ms: 7,
    };
    Page { cursor: "cursor".to_owned(), held: vec![held], pending: vec![pending] }
}

fn survey() -> Survey {
    Survey {
        server: "server".to_owned(),
        failure: None,
        round_trips: vec![5],
        ahead: -6,
        answers: vec![Answer { text: "text".to_owned(), refused: true }],
    }
}
