//! The records that cross the boundary, and the only code of this side that writes or reads one.
//!
//! An operation is [`OPERATION_LENGTH`] numbers on the way in, by their index, with times in ms:
//!
//! | 0: kind | 1 | 2: `a` | 3: `b` | 4: `share` | 5: `permits` | 6 …: `hold` |
//! |---|---|---|---|---|---|---|
//! | `Acquire` | entry | ttl | wait | share | permits | hold |
//! | `AcquireAll` | entry | ttl | number of names | | | hold |
//! | `Adopt` | entry | ttl | `LabelKind` | share | | hold |
//! | `Cancel`, `Close` | entry | | | | | |
//! | `Downgrade`, `StopRenewing` | entry | lease | | | | |
//! | `Extend`, `ExpireIn` | entry | lease | ttl | | | |
//! | `KeepForeign` | entry | ttl | age | | | hold |
//! | `ForceRelease` | entry | 1 if other code's value is deleted, too | number of owners | | | |
//! | `Query` | entry | number of keys that a page examines | 1 if the text is a whole key | | | |
//! | `Release` | entry | lease | 1 if the token was read | | | |
//!
//! A hold is what [`HoldTerms::read`] takes: its flags as one number, and its times. An entry is JavaScript's number for an
//! operation under way. The strings of all operations come in one text, each with its length in UTF-16 units before it:
//! `4:item0:`. The label of an acquire is `=` if it is that of the acquire before. An outcome, a loss or a notice is
//! [`RECORD_LENGTH`] numbers on the way out. JavaScript takes the codes, lengths and sentinels from the addon; the order of the numbers is defined here
//! and in `js/native/records.ts`, and a test compares the two.

#![expect(unreachable_pub, reason = "napi exports nothing that is not `pub`")]

use super::numbers::{LEASE_ENDLESS, millis, ms, number, whole};
use super::outbox::{self, Record};
use super::texts::{OutcomeText, ServerSurvey};
use crate::machine::{Command, HoldTerms, LeaseId, LossReason, Notice, OpId, Outcome, Risk, Wait};
use crate::protocol::query::Question;
use crate::protocol::{Label, Mode, Mono};
use napi_derive::napi;
use std::sync::Arc;
use std::time::Duration;

/// The length of an operation.
#[napi]
#[expect(clippy::cast_possible_truncation, reason = "a hold has few times")]
pub const OPERATION_LENGTH: u32 = 7 + HoldTerms::TIMES as u32;
/// The length of an outcome, a loss or a notice.
#[napi]
pub const RECORD_LENGTH: u32 = 4;
const _: () = assert!(RECORD_LENGTH as usize == outbox::RECORD_LENGTH, "the outbox agrees on it");

/// A `wait`: the caller does not wait.
#[napi]
pub const WAIT_NEVER: f64 = -1.0;
/// A `wait`: the caller takes the lock from its holder.
#[napi]
pub const WAIT_STEAL: f64 = -2.0;
/// A share: the whole lock.
#[napi]
pub const SHARE_EXCLUSIVE: f64 = -1.0;
/// A share: one of any number. A larger share is the number of permits that may be held.
#[napi]
pub const SHARE_UNLIMITED: f64 = 0.0;
/// The `ttl` of an extension: the lease's last one.
#[napi]
pub const TTL_UNCHANGED: f64 = -1.0;
/// The number of `replicas` that stands for a majority.
#[napi]
pub const REPLICAS_MAJORITY: u32 = 0;

/// The meaning of the label of an `Adopt`.
#[napi]
#[derive(Clone, Copy, Debug)]
pub enum LabelKind {
    /// The text at the end of the token; empty for that of the owner's.
    Text = 0,
    /// The whole token, which the caller has chosen.
    Chosen = 1,
    /// The whole token, made for this hold.
    Made = 2,
}

/// The kind of an operation, and its strings. `src/node/records.rs` begins with a table of its numbers.
#[napi]
pub enum OpKind {
    /// Name, label.
    Acquire = 0,
    /// None. The entry is that of the acquire to cancel.
    Cancel = 1,
    /// None.
    Close = 2,
    /// None.
    Extend = 3,
    /// None.
    Release = 4,
    /// None.
    Downgrade = 5,
    /// Name, token, label.
    Adopt = 6,
    /// Name, owners.
    ForceRelease = 7,
    /// Cursor, the prefix of the keys or the key.
    Query = 8,
    /// Label, names.
    AcquireAll = 9,
    /// None: the lock is renewed no more, and expires at the end of its lease.
    StopRenewing = 10,
    /// None: the lock expires after the ttl, and is not the manager's any more.
    ExpireIn = 11,
    /// Key, value.
    KeepForeign = 12,
}

/// The kind of a record that is no outcome, in place of an entry.
#[napi]
#[derive(Clone, Copy)]
pub enum RecordKind {
    /// No content. Reading the record is the heartbeat that the core asks for.
    Heartbeat = -1,
    /// A lock was lost: manager, lease, `LossCode`.
    Loss = -2,
    /// A notice of a manager: manager, `NoticeCode`; `takeNotice` has the text.
    Notice = -3,
}

/// The subject of a notice, and the meaning of its text.
#[napi]
#[derive(Clone, Copy)]
pub enum NoticeCode {
    /// The connection is gone: the cause.
    Disconnected = 0,
    /// The connection is restored.
    Reconnected = 1,
    /// The server denies messages: its answer.
    PubsubDenied = 2,
    /// Two servers of a quorum are the same one: their names.
    SameServer = 3,
    /// The server may evict locks: its policy.
    Eviction = 4,
    /// The server is a replica: its name.
    Replica = 5,
    /// A server of a quorum may forget locks when it restarts: its name, and the reason.
    Forgets = 6,
    /// The server denies plain commands or the fence counter: its answer.
    PlainCommandsDenied = 7,
    /// The server denies its scripts the clock: its answer.
    ClockDenied = 8,
    /// The lost connection is not made again, since the server refuses the login: the server of a quorum, a line break, and
    /// the answer.
    LoginRefused = 9,
    /// The login of a connection is about to end, and could not be renewed yet: why.
    LoginNotRenewed = 10,
    /// The server is one of several that take writes: its name.
    ActiveReplica = 11,
}

/// The reason of a loss.
#[napi]
#[derive(Clone, Copy)]
pub enum LossCode {
    /// Its lease ended, or another client owns the lock.
    Expired = 0,
    /// It was held for `maxHold`.
    MaxHold = 1,
    /// JavaScript sent no heartbeat.
    Stalled = 2,
    /// Another client stole the lock, or released it by force.
    Stolen = 3,
    /// Another process adopted the lock.
    Adopted = 4,
    /// Its lease ended, as its caller asked.
    Ended = 5,
}

/// The result of an operation, with its two numbers and its text.
#[napi]
#[derive(Clone, Copy)]
pub enum OutcomeCode {
    /// The caller holds the lock: lease, fence.
    Acquired = 0,
    /// The caller cancelled the operation.
    Cancelled = 1,
    /// The manager was closed.
    Closed = 2,
    /// No reply came in time; text: the cause.
    Connection = 3,
    /// The operation succeeded.
    Done = 4,
    /// Another client holds the lock, and the caller does not wait.
    Held = 5,
    /// A defect of holdfast.
    Internal = 6,
    /// The lease had already ended.
    Lost = 7,
    /// The server refused; text: its error.
    Server = 8,
    /// Another client held the lock until the wait ended: ms waited, remaining ms of its lease or
    /// `LEASE_ENDLESS`; text: holder and position.
    TimedOut = 9,
    /// As `Acquired`, with another caller's label in the token; text: the label.
    AcquiredAs = 10,
    /// No majority of the servers was reachable; text: a line for each server, the cause or empty.
    Quorum = 11,
    /// The query succeeded; text: a page.
    Page = 12,
    /// The caller holds several locks: the first one's lease; text: the fences, separated by commas.
    AcquiredAll = 13,
    /// The locks cannot be acquired by one call, only one by one.
    OneByOne = 14,
    /// The survey succeeded; text: each server's answers.
    Surveyed = 15,
}

/// A decoded operation.
pub(super) enum Operation {
    Cancel,
    Command(Command),
    Query(Question),
    /// Numbers or strings that TypeScript never writes: a defect.
    Malformed,
}

/// Reads the first `count` operations of `numbers`, with their strings. `label`: that of the last acquire, which most
/// acquires of a manager share.
pub(super) fn read_operations(
    count: u32,
    numbers: &[f64],
    strings: &[u8],
    label: &mut Arc<str>,
) -> impl Iterator<Item = (OpId, Operation)> {
    // JavaScript writes nothing else than UTF-8.
    let mut strings = Strings { unread: str::from_utf8(strings).unwrap_or_default(), label };
    let operations = numbers.chunks_exact(OPERATION_LENGTH as usize).take(count as usize);
    operations.filter_map(move |operation| read_operation(operation, &mut strings))
}

/// The strings of a batch.
struct Strings<'text, 'label> {
    unread: &'text str,
    /// The label of the last acquire.
    label: &'label mut Arc<str>,
}

impl Strings<'_, '_> {
    /// The label of an acquire.
    fn label(&mut self) -> Option<Arc<str>> {
        if let Some(rest) = self.unread.strip_prefix('=') {
            self.unread = rest;
        } else {
            let label = self.next()?;
            if !is_same(self.label, &label) {
                *self.label = label.into();
            }
        }
        Some(Arc::clone(self.label))
    }
}

/// The label of an adopt. `kind`: a [`LabelKind`].
fn read_label(kind: f64, strings: &mut Strings<'_, '_>) -> Option<Label> {
    const CHOSEN: u64 = LabelKind::Chosen as u64;
    const MADE: u64 = LabelKind::Made as u64;
    let text = strings.next()?.into();
    Some(match whole(kind) {
        CHOSEN => Label::Chosen(text),
        MADE => Label::Made(text),
        _ => Label::Text(text),
    })
}

/// Whether two labels are the same. Many are empty, and comparing the bytes of an empty text is slow: it has no memory,
/// and reading from its address under a mask, as the C library does, takes a processor a hundred cycles.
fn is_same(one: &str, other: &str) -> bool {
    one.len() == other.len() && (one.is_empty() || one == other)
}

impl Iterator for Strings<'_, '_> {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        // Faster than `split_once`, which is made for texts of any length.
        let digits = self.unread.bytes().take_while(u8::is_ascii_digit).count();
        let (units, rest) = self.unread.split_at(digits);
        let (mut left, rest) = (units.parse::<usize>().ok()?, rest.strip_prefix(':')?);
        let mut letters = rest.chars();
        // A letter of ASCII is a unit and a byte.
        if rest.as_bytes().get(..left).is_some_and(<[u8]>::is_ascii) {
            letters = rest[left..].chars();
            left = 0;
        }
        while left > 0 {
            left = left.checked_sub(letters.next()?.len_utf16())?;
        }
        self.unread = letters.as_str();
        Some(rest[..rest.len() - self.unread.len()].to_owned())
    }
}

fn read_operation(operation: &[f64], strings: &mut Strings<'_, '_>) -> Option<(OpId, Operation)> {
    let &[kind, entry, ref numbers @ ..] = operation else { return None };
    let op = OpId(u32::try_from(whole(entry)).unwrap_or(u32::MAX));
    let kind = whole(kind);
    let operation = if kind == OpKind::Cancel as u64 {
        Some(Operation::Cancel)
    } else if kind == OpKind::Query as u64 {
        read_question(numbers, strings).map(Operation::Query)
    } else {
        read_command(kind, numbers, strings).map(Operation::Command)
    };
    Some((op, operation.unwrap_or(Operation::Malformed)))
}

fn read_command(kind: u64, numbers: &[f64], strings: &mut Strings<'_, '_>) -> Option<Command> {
    const ACQUIRE: u64 = OpKind::Acquire as u64;
    const ACQUIRE_ALL: u64 = OpKind::AcquireAll as u64;
    const ADOPT: u64 = OpKind::Adopt as u64;
    const CLOSE: u64 = OpKind::Close as u64;
    const DOWNGRADE: u64 = OpKind::Downgrade as u64;
    const EXTEND: u64 = OpKind::Extend as u64;
    const FORCE_RELEASE: u64 = OpKind::ForceRelease as u64;
    const STOP_RENEWING: u64 = OpKind::StopRenewing as u64;
    const KEEP_FOREIGN: u64 = OpKind::KeepForeign as u64;
    const EXPIRE_IN: u64 = OpKind::ExpireIn as u64;
    const RELEASE: u64 = OpKind::Release as u64;
    let &[a, b, share, permits, ref hold @ ..] = numbers else { return None };
    Some(match kind {
        ACQUIRE => Command::Acquire {
            name: strings.next()?,
            label: strings.label()?,
            ttl: millis(a),
            wait: read_wait(b),
            hold: read_hold(hold)?,
            mode: read_mode(share, permits),
        },
        ACQUIRE_ALL => Command::AcquireAll {
            ttl: millis(a),
            label: strings.next()?.into(),
            names: strings.take(usize::try_from(whole(b)).unwrap_or(0)).collect(),
            hold: read_hold(hold)?,
        },
        ADOPT => Command::Adopt {
            name: strings.next()?,
            owner: strings.next()?,
            label: read_label(b, strings)?,
            ttl: millis(a),
            hold: read_hold(hold)?,
            mode: read_mode(share, 1.0),
        },
        CLOSE => Command::Close,
        DOWNGRADE => Command::Downgrade { lease: LeaseId(whole(a)) },
        EXTEND => Command::Extend {
            lease: LeaseId(whole(a)),
            ttl: (b > TTL_UNCHANGED).then(|| millis(b)),
        },
        FORCE_RELEASE => Command::Force {
            name: strings.next()?,
            foreign: a > 0.0,
            owners: strings.take(usize::try_from(whole(b)).unwrap_or(0)).collect(),
        },
        KEEP_FOREIGN => Command::KeepForeign {
            key: strings.next()?,
            value: strings.next()?.into(),
            ttl: millis(a),
            age: millis(b),
            stall_timeout: read_hold(hold)?.stall_timeout,
        },
        STOP_RENEWING => Command::StopRenewing { lease: LeaseId(whole(a)) },
        EXPIRE_IN => Command::ExpireIn { lease: LeaseId(whole(a)), ttl: millis(b) },
        RELEASE => Command::Release { lease: LeaseId(whole(a)), exported: b > 0.0 },
        _ => return None,
    })
}

fn read_question(numbers: &[f64], strings: &mut Strings<'_, '_>) -> Option<Question> {
    let (cursor, starts_with) = (strings.next()?, strings.next()?);
    let (&count, &whole_key) = (numbers.first()?, numbers.get(1)?);
    let count = u32::try_from(whole(count)).unwrap_or(u32::MAX);
    Some(Question { cursor, starts_with, whole_key: whole_key > 0.0, count })
}

fn read_hold(numbers: &[f64]) -> Option<HoldTerms> {
    let (&flags, times) = numbers.split_first()?;
    let times: [f64; HoldTerms::TIMES] = times.try_into().ok()?;
    Some(HoldTerms::read(whole(flags), times.map(finite)))
}

fn read_wait(ms: f64) -> Wait {
    if ms <= WAIT_STEAL {
        Wait::Steal
    } else if ms <= WAIT_NEVER {
        Wait::Never
    } else {
        finite(ms).map_or(Wait::Forever, Wait::UpTo)
    }
}

fn read_mode(share: f64, permits: f64) -> Mode {
    if share <= SHARE_EXCLUSIVE {
        return Mode::Exclusive;
    }
    if share <= SHARE_UNLIMITED {
        return Mode::SHARED;
    }
    Mode::permits(whole(permits), whole(share))
}

fn finite(ms: f64) -> Option<Duration> {
    ms.is_finite().then(|| millis(ms))
}

/// A lease's number in JavaScript.
pub(super) const fn read_lease(lease: f64) -> LeaseId {
    LeaseId(whole(lease))
}

/// A moment of a manager's clock, in µs.
pub(super) const fn read_time(us: f64) -> Mono {
    Mono::from_micros(whole(us))
}

/// The record of a heartbeat.
pub(super) fn heartbeat() -> Record {
    [f64::from(RecordKind::Heartbeat as i32), 0.0, 0.0, 0.0]
}

/// The record of a loss.
pub(super) fn loss(manager: u32, lease: LeaseId, reason: LossReason) -> Record {
    let code = match reason {
        LossReason::Adopted => LossCode::Adopted,
        LossReason::Ended => LossCode::Ended,
        LossReason::Expired => LossCode::Expired,
        LossReason::MaxHold => LossCode::MaxHold,
        LossReason::Stalled => LossCode::Stalled,
        LossReason::Stolen => LossCode::Stolen,
    };
    let kind = f64::from(RecordKind::Loss as i32);
    [kind, f64::from(manager), number(lease.0), f64::from(code as i32)]
}

/// The record of a notice, and its text.
pub(super) fn notice(manager: u32, notices: Notice) -> (Record, String) {
    let (code, text) = match notices {
        Notice::PubsubDenied(answer) => (NoticeCode::PubsubDenied, answer),
        Notice::PlainCommandsDenied(answer) => (NoticeCode::PlainCommandsDenied, answer),
        Notice::ClockDenied(answer) => (NoticeCode::ClockDenied, answer),
        Notice::Disconnected(cause) => (NoticeCode::Disconnected, cause),
        Notice::LoginRefused(name, refusal) => {
            (NoticeCode::LoginRefused, format!("{name}\n{refusal}"))
        }
        Notice::LoginNotRenewed(why) => (NoticeCode::LoginNotRenewed, why),
        Notice::Reconnected => (NoticeCode::Reconnected, String::new()),
        Notice::SameServer(names) => (NoticeCode::SameServer, names),
        Notice::Risk(Risk::ActiveReplica(name)) => (NoticeCode::ActiveReplica, name),
        Notice::Risk(Risk::Eviction(policy)) => (NoticeCode::Eviction, policy),
        Notice::Risk(Risk::Forgets(cause)) => (NoticeCode::Forgets, cause),
        Notice::Risk(Risk::Replica(name)) => (NoticeCode::Replica, name),
    };
    let kind = f64::from(RecordKind::Notice as i32);
    ([kind, f64::from(manager), f64::from(code as i32), 0.0], text)
}

/// The record of an outcome, and its text if it has one.
pub(super) fn outcome(op: OpId, outcome: Outcome) -> (Record, Option<OutcomeText>) {
    let (code, a, b) = outcome_numbers(&outcome);
    let OpId(entry) = op;
    ([f64::from(entry), f64::from(code as i32), a, b], outcome_text(outcome))
}

fn outcome_numbers(outcome: &Outcome) -> (OutcomeCode, f64, f64) {
    let plain = |code| (code, 0.0, 0.0);
    match outcome {
        Outcome::Acquired { lease, fence, label: None } => {
            (OutcomeCode::Acquired, number(lease.0), number(*fence))
        }
        Outcome::Acquired { lease, fence, label: Some(_) } => {
            (OutcomeCode::AcquiredAs, number(lease.0), number(*fence))
        }
        Outcome::AcquiredAll { lease, .. } => (OutcomeCode::AcquiredAll, number(lease.0), 0.0),
        Outcome::OneByOne => plain(OutcomeCode::OneByOne),
        Outcome::Cancelled => plain(OutcomeCode::Cancelled),
        Outcome::Closed => plain(OutcomeCode::Closed),
        Outcome::Connection(_) => plain(OutcomeCode::Connection),
        Outcome::Done => plain(OutcomeCode::Done),
        Outcome::Held => plain(OutcomeCode::Held),
        Outcome::Internal => plain(OutcomeCode::Internal),
        Outcome::Lost => plain(OutcomeCode::Lost),
        Outcome::Page(_) => plain(OutcomeCode::Page),
        Outcome::Quorum(_) => plain(OutcomeCode::Quorum),
        Outcome::Server { .. } => plain(OutcomeCode::Server),
        Outcome::Surveyed(_) => plain(OutcomeCode::Surveyed),
        Outcome::TimedOut { waited, remaining, .. } => {
            (OutcomeCode::TimedOut, ms(*waited), remaining.map_or(LEASE_ENDLESS, ms))
        }
    }
}

fn outcome_text(outcome: Outcome) -> Option<OutcomeText> {
    Some(match outcome {
        Outcome::Acquired { label, .. } => OutcomeText::new(label?),
        Outcome::AcquiredAll { fences, .. } => {
            let fences: Vec<_> = fences.iter().map(u64::to_string).collect();
            OutcomeText::new(fences.join(","))
        }
        Outcome::Connection(message) => OutcomeText::new(message),
        Outcome::Page(page) => {
            OutcomeText { page: Some(page.into()), ..OutcomeText::new(String::new()) }
        }
        Outcome::Quorum(causes) => {
            let lines: Vec<_> = causes.iter().map(|cause| cause.replace('\n', " ")).collect();
            OutcomeText::new(lines.join("\n"))
        }
        Outcome::Server { refusal, key } => {
            OutcomeText { server_code: Some(refusal.code), key, ..OutcomeText::new(refusal.detail) }
        }
        Outcome::Surveyed(surveys) => OutcomeText {
            surveys: Some(surveys.into_iter().map(ServerSurvey::from).collect()),
            ..OutcomeText::new(String::new())
        },
        Outcome::TimedOut { holder, holders, position, .. } => OutcomeText {
            holder: Some(holder),
            holders: Some(holders),
            position,
            ..OutcomeText::new(String::new())
        },
        Outcome::OneByOne
        | Outcome::Cancelled
        | Outcome::Closed
        | Outcome::Done
        | Outcome::Held
        | Outcome::Internal
        | Outcome::Lost => return None,
    })
}
