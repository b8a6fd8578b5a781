//! Outcomes on their way to JavaScript: how they become records.
//!
//! A record has a slot, a code, and two numbers that depend on the code. One that is no outcome has a
//! negative slot, see [`Notice`].

use super::outbox::Outbox;
use crate::clock::Mono;
use crate::driver::Caller;
use crate::faults;
use crate::machine::{LeaseId, LossReason, News, OpId, Outcome, Risk};
use crate::page::{Holding, Page, Waiting};
use crate::survey::{Answer, Survey};
use napi::Status;
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi_derive::napi;
use std::sync::Arc;
use std::time::Duration;

/// Calls the wake function of an environment without keeping its event loop alive.
pub(super) type Wake = ThreadsafeFunction<(), (), (), Status, false, true>;

/// What a record without an operation tells, in place of a slot.
#[napi]
#[derive(Clone, Copy)]
pub enum Notice {
    /// Nothing; that it is read is the sign of life.
    Ping = -1,
    /// A lock was lost: manager, lease, how.
    Loss = -2,
    /// News of a manager: manager, what; text, by `takeNews`.
    News = -3,
}

/// What news is about.
#[napi]
#[derive(Clone, Copy)]
pub enum NewsCode {
    /// The connection is gone: why.
    Disconnected = 0,
    /// There is a connection again.
    Reconnected = 1,
    /// The server allows no messages: what it said.
    Deaf = 2,
    /// Two servers of a quorum are the same one: their names.
    SameServer = 3,
    /// The server may evict locks: its policy.
    Eviction = 4,
    /// The server is a replica: which.
    Replica = 5,
    /// A server of a quorum may forget locks when it restarts: which, and why.
    Forgets = 6,
}

/// How a lock was lost.
#[napi]
#[derive(Clone, Copy)]
pub enum LossCode {
    /// Its lease ended, or another owns it.
    Expired = 0,
    /// It was held for `maxHold`.
    MaxHold = 1,
    /// JavaScript gave no sign of life.
    Stalled = 2,
    /// It was taken away.
    Stolen = 3,
    /// Another process took it over.
    Adopted = 4,
    /// Its lease ended, as its caller wanted it to.
    Ended = 5,
}

/// How an operation ended, as a record carries it.
#[napi]
#[derive(Clone, Copy)]
pub enum OutcomeCode {
    /// The lock is the caller's: lease, fence.
    Acquired = 0,
    /// The caller did not want to wait any longer.
    Cancelled = 1,
    /// The manager was closed.
    Closed = 2,
    /// No answer in time: text.
    Connection = 3,
    /// Done.
    Done = 4,
    /// Somebody else holds the lock, and the caller did not want to wait.
    Held = 5,
    /// A defect of holdfast.
    Internal = 6,
    /// The lease had ended before.
    Lost = 7,
    /// The server refused: text.
    Server = 8,
    /// Somebody else held the lock for too long: ms waited, ms left of its lease or -1; text.
    TimedOut = 9,
    /// As `Acquired`, with another caller's label in the token: text.
    AcquiredAs = 10,
    /// No majority of the servers could be reached: each one's cause on a line of the text, which is
    /// empty where there was none.
    Quorum = 11,
    /// What a query found: text, with a page.
    Page = 12,
    /// Several locks are the caller's: the first one's lease; text, each one's fence.
    AcquiredAll = 13,
    /// These locks cannot be taken at once.
    Apart = 14,
    /// What servers tell about themselves: text, with surveys.
    Surveyed = 15,
}

/// The text of an outcome.
#[napi(object)]
pub struct OutcomeText {
    /// What happened.
    pub message: String,
    /// The first word of the server's error.
    pub server_code: Option<String>,
    /// The key that the server's error is about.
    pub key: Option<String>,
    /// The value of the lock that is held.
    pub holder: Option<String>,
    /// The caller's place in line, 1 for the next.
    pub position: Option<u32>,
    /// What a query found.
    pub page: Option<QueryPage>,
    /// What servers tell about themselves.
    pub surveys: Option<Vec<ServerSurvey>>,
}

/// What one server answered.
#[napi(object)]
pub struct ServerSurvey {
    /// The server, without login.
    pub server: String,
    /// Why it could not be asked. The rest is empty then.
    pub failure: Option<String>,
    /// How long each of a few round trips took, in µs.
    pub round_trips: Vec<f64>,
    /// How far its clock is ahead of this machine's, in µs.
    pub ahead: f64,
    /// Its answers, in the order of the questions.
    pub answers: Vec<ServerAnswer>,
}

/// An answer to one question.
#[napi(object)]
pub struct ServerAnswer {
    /// What it said, an item per line.
    pub text: String,
    /// Whether it refused to answer.
    pub refused: bool,
}

impl From<Survey> for ServerSurvey {
    fn from(Survey { server, failure, round_trips, ahead, answers }: Survey) -> Self {
        let answer = |Answer { text, refused }| ServerAnswer { text, refused };
        let size = number(ahead.unsigned_abs());
        Self {
            server,
            failure,
            round_trips: round_trips.into_iter().map(number).collect(),
            ahead: if ahead < 0 { -size } else { size },
            answers: answers.into_iter().map(answer).collect(),
        }
    }
}

/// A part of what there is.
#[napi(object)]
pub struct QueryPage {
    /// Where to go on; empty at the end.
    pub cursor: String,
    /// Who holds a lock.
    pub held: Vec<QueryHolder>,
    /// Who waits for one.
    pub pending: Vec<QueryWaiter>,
}

/// One holder of a lock.
#[napi(object)]
pub struct QueryHolder {
    /// The lock's key.
    pub key: String,
    /// Whether it is a share.
    pub shared: bool,
    /// The owner token.
    pub token: String,
    /// Of the whole lock the last fence that is reserved for its owner.
    pub fence: f64,
    /// The lease that is left, in ms; negative if it never ends by itself.
    pub ttl: f64,
}

/// One who waits for a lock.
#[napi(object)]
pub struct QueryWaiter {
    /// The lock's key.
    pub key: String,
    /// Whether it wants a share.
    pub shared: bool,
    /// Its token.
    pub token: String,
    /// 1 for who is next.
    pub position: u32,
}

impl From<Page> for QueryPage {
    fn from(Page { cursor, held, pending }: Page) -> Self {
        let holder = |Holding { key, shared, token, fence, remaining_ms }| QueryHolder {
            key,
            shared,
            token,
            fence: number(fence),
            ttl: u64::try_from(remaining_ms).map_or(-1.0, number),
        };
        let waiter =
            |Waiting { key, shared, token, position }| QueryWaiter { key, shared, token, position };
        Self {
            cursor,
            held: held.into_iter().map(holder).collect(),
            pending: pending.into_iter().map(waiter).collect(),
        }
    }
}

/// The outcomes of one environment that JavaScript has not seen yet.
pub(super) struct Completions {
    wake: Wake,
    outbox: Outbox<OutcomeText>,
}

impl Completions {
    pub(super) fn new(wake: Wake) -> Self {
        Self { wake, outbox: Outbox::new() }
    }

    /// Moves records into `into` and returns how many. Zero re-arms the wake function.
    pub(super) fn drain(&self, into: &mut [f64]) -> usize {
        self.outbox.drain(Mono::now(), into)
    }

    /// The text of the outcome in `slot`, once.
    pub(super) fn take_text(&self, slot: u32) -> Option<OutcomeText> {
        self.outbox.take_text(slot)
    }

    /// The text of the oldest news that was not taken yet.
    pub(super) fn take_news(&self) -> Option<String> {
        self.outbox.take_news()
    }
}

/// One manager's way into the completions of its environment.
pub(super) struct ManagerCaller {
    pub(super) completions: Arc<Completions>,
    /// Names the manager within its environment.
    pub(super) manager: u32,
}

impl Caller for ManagerCaller {
    fn complete(&self, op: OpId, outcome: Outcome) {
        faults::at("complete");
        let OpId(slot) = op;
        let (code, a, b, text) = encode(outcome);
        let record = [f64::from(slot), f64::from(code as i32), a, b];
        self.completions.outbox.push(record, text.map(|text| (slot, text)));
    }

    fn lose(&self, lease: LeaseId, reason: LossReason) {
        faults::at("lose");
        let code = match reason {
            LossReason::Adopted => LossCode::Adopted,
            LossReason::Ended => LossCode::Ended,
            LossReason::Expired => LossCode::Expired,
            LossReason::MaxHold => LossCode::MaxHold,
            LossReason::Stalled => LossCode::Stalled,
            LossReason::Stolen => LossCode::Stolen,
        };
        let manager = f64::from(self.manager);
        let record =
            [f64::from(Notice::Loss as i32), manager, number(lease.0), f64::from(code as i32)];
        self.completions.outbox.push(record, None);
    }

    fn tell(&self, news: News) {
        faults::at("tell");
        let (code, text) = match news {
            News::Deaf(why) => (NewsCode::Deaf, why),
            News::Disconnected(why) => (NewsCode::Disconnected, why),
            News::Reconnected => (NewsCode::Reconnected, String::new()),
            News::SameServer(names) => (NewsCode::SameServer, names),
            News::Risk(Risk::Eviction(policy)) => (NewsCode::Eviction, policy),
            News::Risk(Risk::Forgets(why)) => (NewsCode::Forgets, why),
            News::Risk(Risk::Replica(which)) => (NewsCode::Replica, which),
        };
        let manager = f64::from(self.manager);
        let record = [f64::from(Notice::News as i32), manager, f64::from(code as i32), 0.0];
        self.completions.outbox.push_news(record, text);
    }

    fn ping(&self) {
        faults::at("ping");
        let record = [f64::from(Notice::Ping as i32), 0.0, 0.0, 0.0];
        self.completions.outbox.push(record, None);
    }

    fn last_turn(&self) -> Mono {
        faults::at("turned");
        self.completions.outbox.last_turn()
    }

    fn wake(&self) {
        faults::at("wake");
        let completions = &self.completions;
        if completions.outbox.arm() {
            // An environment that is being torn down refuses; then nobody is left to be woken.
            completions.wake.call((), ThreadsafeFunctionCallMode::NonBlocking);
        }
    }
}

fn encode(outcome: Outcome) -> (OutcomeCode, f64, f64, Option<OutcomeText>) {
    let plain = |code| (code, 0.0, 0.0, None);
    match outcome {
        Outcome::Acquired { lease, fence, label: None } => {
            (OutcomeCode::Acquired, number(lease.0), number(fence), None)
        }
        Outcome::Acquired { lease, fence, label: Some(label) } => {
            let text = Some(OutcomeText::new(label));
            (OutcomeCode::AcquiredAs, number(lease.0), number(fence), text)
        }
        Outcome::AcquiredAll { lease, fences } => {
            let fences: Vec<_> = fences.iter().map(u64::to_string).collect();
            let text = Some(OutcomeText::new(fences.join(",")));
            (OutcomeCode::AcquiredAll, number(lease.0), 0.0, text)
        }
        Outcome::Apart => plain(OutcomeCode::Apart),
        Outcome::Cancelled => plain(OutcomeCode::Cancelled),
        Outcome::Closed => plain(OutcomeCode::Closed),
        Outcome::Connection(message) => {
            (OutcomeCode::Connection, 0.0, 0.0, Some(OutcomeText::new(message)))
        }
        Outcome::Done => plain(OutcomeCode::Done),
        Outcome::Held => plain(OutcomeCode::Held),
        Outcome::Internal => plain(OutcomeCode::Internal),
        Outcome::Lost => plain(OutcomeCode::Lost),
        Outcome::Page(page) => {
            let mut text = OutcomeText::new(String::new());
            text.page = Some(page.into());
            (OutcomeCode::Page, 0.0, 0.0, Some(text))
        }
        Outcome::Quorum(causes) => {
            let lines: Vec<_> = causes.iter().map(|cause| cause.replace('\n', " ")).collect();
            (OutcomeCode::Quorum, 0.0, 0.0, Some(OutcomeText::new(lines.join("\n"))))
        }
        Outcome::Server { refusal, key } => {
            let mut text = OutcomeText::new(refusal.detail);
            text.server_code = Some(refusal.code);
            text.key = key;
            (OutcomeCode::Server, 0.0, 0.0, Some(text))
        }
        Outcome::Surveyed(surveys) => {
            let mut text = OutcomeText::new(String::new());
            text.surveys = Some(surveys.into_iter().map(ServerSurvey::from).collect());
            (OutcomeCode::Surveyed, 0.0, 0.0, Some(text))
        }
        Outcome::TimedOut { waited, holder, remaining, position } => {
            let mut text = OutcomeText::new(String::new());
            text.holder = Some(holder);
            text.position = position;
            (OutcomeCode::TimedOut, ms(waited), remaining.map_or(-1.0, ms), Some(text))
        }
    }
}

impl OutcomeText {
    const fn new(message: String) -> Self {
        Self {
            message,
            server_code: None,
            key: None,
            holder: None,
            position: None,
            page: None,
            surveys: None,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "fences, lease numbers and counts stay below 2^53")]
pub(super) const fn number(value: u64) -> f64 {
    value as f64
}

fn ms(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1000.0).round()
}
