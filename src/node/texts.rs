//! The objects that accompany a record: texts, pages of a query, answers of servers.

use super::numbers::{LEASE_ENDLESS, number};
use crate::protocol::query::{Holding, Page, Waiting};
use crate::protocol::survey::{Answer, Survey};
use napi_derive::napi;

/// The text of an outcome.
#[napi(object)]
pub struct OutcomeText {
    /// The message.
    pub message: String,
    /// The first word of the server's error.
    pub server_code: Option<String>,
    /// The key that the server's error is about.
    pub key: Option<String>,
    /// The owner token of the held lock, or of one of those who share it.
    pub holder: Option<String>,
    /// How many share it; 0 if it is not shared.
    pub holders: Option<u32>,
    /// The caller's position in the wait queue, 1 for the next.
    pub position: Option<u32>,
    /// The page of a query.
    pub page: Option<QueryPage>,
    /// The answers of a survey.
    pub surveys: Option<Vec<ServerSurvey>>,
}

impl OutcomeText {
    pub(super) const fn new(message: String) -> Self {
        Self {
            message,
            server_code: None,
            key: None,
            holder: None,
            holders: None,
            position: None,
            page: None,
            surveys: None,
        }
    }
}

/// The answers of one server.
#[napi(object)]
pub struct ServerSurvey {
    /// The server, without login.
    pub server: String,
    /// Why the server could not be asked; the rest is empty then.
    pub failure: Option<String>,
    /// The durations of a few round trips, in µs.
    pub round_trips: Vec<f64>,
    /// How far the server's clock is ahead of this machine's, in µs.
    pub ahead: f64,
    /// The server's answers, in the order of the questions.
    pub answers: Vec<ServerAnswer>,
}

/// An answer to one question.
#[napi(object)]
pub struct ServerAnswer {
    /// The answer, an item per line.
    pub text: String,
    /// Whether the server refused to answer.
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

/// One page of a query.
#[napi(object)]
pub struct QueryPage {
    /// The cursor of the next page; empty at the end.
    pub cursor: String,
    /// The holders of locks.
    pub held: Vec<QueryHolder>,
    /// The waiters for locks.
    pub pending: Vec<QueryWaiter>,
}

/// One holder of a lock.
#[napi(object)]
pub struct QueryHolder {
    /// The lock's key.
    pub key: String,
    /// Whether the holder shares the lock.
    pub shared: bool,
    /// The owner token.
    pub token: String,
    /// The fence of a share.
    pub fence: Option<f64>,
    /// The remaining time of the lease in ms, or `LEASE_ENDLESS`.
    pub ttl: f64,
    /// For how long it has been idle, in ms, if its manager keeps it for its next caller.
    pub idle: Option<f64>,
}

/// One waiter for a lock.
#[napi(object)]
pub struct QueryWaiter {
    /// The lock's key.
    pub key: String,
    /// Whether the waiter wants to share the lock.
    pub shared: bool,
    /// The waiter's token.
    pub token: String,
    /// The position in the wait queue, 1 for the next.
    pub position: u32,
    /// How long it has waited, in ms.
    pub waited: f64,
}

impl From<Page> for QueryPage {
    fn from(Page { cursor, held, pending }: Page) -> Self {
        let holder = |Holding { key, shared, token, fence, remaining_ms, idle_ms }| QueryHolder {
            key,
            shared,
            token,
            fence: fence.map(number),
            ttl: u64::try_from(remaining_ms).map_or(LEASE_ENDLESS, number),
            idle: idle_ms.map(number),
        };
        let waiter = |Waiting { key, shared, token, position, waited_ms }| QueryWaiter {
            key,
            shared,
            token,
            position,
            waited: number(waited_ms),
        };
        Self {
            cursor,
            held: held.into_iter().map(holder).collect(),
            pending: pending.into_iter().map(waiter).collect(),
        }
    }
}
