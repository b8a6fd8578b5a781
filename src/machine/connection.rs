//! One connection: connecting, doubting it, losing it, reconnecting, and its unanswered requests.
//!
//! Attempts to connect follow a schedule, whether or not the one before has ended: a server that swallows what is sent to
//! it would otherwise hold up the next attempt, though it answers again. The first that succeeds counts. A lease that
//! waits for the connection shortens the pauses, see [`Connection::press`].

use super::context::Context;
use super::interface::Effect;
use super::timers::Timer;
use super::window::Window;
use crate::protocol::{Failure, Mono, NodeId, Refusal, RequestId};
use std::collections::VecDeque;
use std::time::Duration;

/// The longest pause between two attempts to connect, in ms: after it one starts beside another that has no answer.
const BACKOFF_MS_MAX: u64 = 1_000;
/// The shortest one, however soon a lease ends.
const BACKOFF_MS_MIN: u64 = 10;
/// A connection that answers at this age is steady, and is replaced without a pause when lost. Without this rule a
/// server whose connections answer once and die would be connected to a thousand times a second.
const STEADY_AFTER: Duration = Duration::from_millis(20);

/// `R`: the user's record of a request.
#[derive(Debug)]
pub(super) struct Connection<R> {
    state: State,
    /// Connections, made or attempted, since the last steady one.
    failures: u32,
    made: Mono,
    /// Why there is no connection, for the errors of operations that wait for one.
    pub(super) last_error: String,
    /// The server has refused the login since the connection was lost.
    refused: bool,
    /// The server denies this manager publishing and subscribing.
    pub(super) pubsub_denied: bool,
    /// Requests without an answer, oldest first.
    in_flight: VecDeque<InFlight<R>>,
    window: Window,
    /// When the last answer came.
    heard: Mono,
}

/// A request without an answer.
#[derive(Debug)]
pub(super) struct InFlight<R> {
    pub(super) id: RequestId,
    pub(super) sent: Mono,
    pub(super) request: R,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// The connection is not wanted yet.
    Idle,
    /// The first attempt is under way.
    First,
    /// The connection was lost, and is made anew.
    Down,
    Up,
    /// It is up, but a renewal got no answer for so long that another connection is made beside it. Whichever answers
    /// first is kept.
    Doubted,
}

impl<R> Connection<R> {
    pub(super) const fn new() -> Self {
        Self {
            state: State::Idle,
            failures: 0,
            made: Mono::from_micros(0),
            last_error: String::new(),
            refused: false,
            pubsub_denied: false,
            in_flight: VecDeque::new(),
            window: Window::new(),
            heard: Mono::from_micros(0),
        }
    }

    pub(super) const fn is_up(&self) -> bool {
        matches!(self.state, State::Up | State::Doubted)
    }

    pub(super) const fn is_doubted(&self) -> bool {
        matches!(self.state, State::Doubted)
    }

    /// Whether a connection was lost, and is not made again yet.
    pub(super) const fn was_lost(&self) -> bool {
        matches!(self.state, State::Down)
    }

    /// Whether the connection is wanted.
    pub(super) const fn is_wanted(&self) -> bool {
        !matches!(self.state, State::Idle)
    }

    /// Whether an attempt has succeeded or failed.
    pub(super) const fn was_tried(&self) -> bool {
        self.is_up() || matches!(self.state, State::Down) || self.failures > 0
    }

    /// Whether the last attempt failed, or its connection is not steady yet.
    pub(super) const fn has_failed(&self) -> bool {
        self.failures > 0
    }

    /// Marks the connection as wanted. True if it must be made now.
    pub(super) fn want(&mut self) -> bool {
        let begins = self.state == State::Idle;
        if begins {
            self.state = State::First;
            "not connected yet".clone_into(&mut self.last_error);
        }
        begins
    }

    /// Marks the connection as unwanted.
    pub(super) fn end(&mut self) {
        self.state = State::Idle;
        self.in_flight.clear();
    }

    /// A lease waits for the connection, or for an answer on it, and needs an attempt `within` this time.
    pub(super) fn press(&mut self, context: &mut Context, node: NodeId, within: Duration) {
        match self.state {
            State::Up => {
                self.state = State::Doubted;
                attempt(context, node, Some(within));
            }
            State::First | State::Down => {
                attempt_after(context, node, bounded(BACKOFF_MS_MAX, Some(within)));
            }
            State::Doubted | State::Idle => {}
        }
    }

    /// It is up. True if it is a reconnection.
    pub(super) fn connected(&mut self, context: &mut Context, node: NodeId) -> bool {
        context.timers.clear(Timer::Reconnect(node));
        self.made = context.now;
        self.window.restart();
        self.refused = false;
        std::mem::replace(&mut self.state, State::Up) == State::Down
    }

    /// An attempt failed; the next one follows after a pause that grows. Returns the refusal of the login if a lost connection
    /// cannot be made again because of it, the first time.
    pub(super) fn failed(
        &mut self,
        context: &mut Context,
        node: NodeId,
        failure: &Failure,
        within: Option<Duration>,
    ) -> Option<Refusal> {
        if !self.is_up() {
            self.last_error = format!("not connected: {failure}");
        }
        self.back_off(context, node, within);
        let Failure::Refused(refusal) = failure else { return None };
        if self.refused || !self.was_lost() || !refusal.is_about_login() {
            return None;
        }
        self.refused = true;
        Some(refusal.clone())
    }

    /// Makes a connection anew after a pause.
    pub(super) fn back_off(
        &mut self,
        context: &mut Context,
        node: NodeId,
        within: Option<Duration>,
    ) {
        let most_ms = (50_u64 << self.failures.min(10)).min(BACKOFF_MS_MAX);
        self.failures += 1;
        attempt_after(context, node, bounded(most_ms, within));
    }

    /// Makes a connection anew that is lost or given up. Without a pause, if it was steady: if not, it answered nothing
    /// either, so another at once would hardly do better.
    pub(super) fn reconnect(
        &mut self,
        context: &mut Context,
        node: NodeId,
        within: Option<Duration>,
    ) {
        if self.failures == 0 {
            self.failures = 1;
            attempt(context, node, within);
        } else {
            self.back_off(context, node, within);
        }
    }

    /// The connection is lost, given up or replaced: returns its requests in flight; none if it was not up.
    pub(super) fn lost(&mut self, detail: &str) -> Option<VecDeque<InFlight<R>>> {
        if !self.is_up() {
            return None;
        }
        self.state = State::Down;
        detail.clone_into(&mut self.last_error);
        Some(std::mem::take(&mut self.in_flight))
    }

    /// The server has answered a request.
    pub(super) fn answered(&mut self, context: &mut Context, node: NodeId) {
        if context.now.since(self.made) >= STEADY_AFTER {
            self.failures = 0;
        }
        if self.state == State::Doubted {
            self.state = State::Up;
            stop_attempts(context, node);
        }
    }

    pub(super) fn add(&mut self, id: RequestId, sent: Mono, request: R) {
        self.in_flight.push_back(InFlight { id, sent, request });
    }

    /// A round trip as it takes now.
    pub(super) const fn round_trip(&self) -> Duration {
        self.window.round_trip()
    }

    /// Whether another request may be sent that can wait.
    pub(super) fn has_room(&self) -> bool {
        self.window.has_room(self.in_flight.len())
    }

    /// Takes a request that was answered. Answers come in the order of the requests, so it is the first one, or was
    /// given up before.
    pub(super) fn take(&mut self, id: RequestId, now: Mono) -> Option<InFlight<R>> {
        let count = self.in_flight.len();
        // Without a search through memory that has left the caches.
        let taken = if self.in_flight.front()?.id == id {
            self.in_flight.pop_front()
        } else {
            let index = self.in_flight.binary_search_by_key(&id, |other| other.id).ok()?;
            self.in_flight.remove(index)
        }?;
        self.heard = now;
        self.window.answered(now.since(taken.sent), count);
        Some(taken)
    }

    /// When the oldest request without an answer was sent.
    pub(super) fn oldest(&self) -> Option<Mono> {
        self.in_flight.front().map(|request| request.sent)
    }

    /// Since when the server is silent: since its last answer, or the oldest request after that. None if nothing is asked.
    ///
    /// A server that answers one request after the other lives, however many are still to be answered. Only answers count:
    /// a push shows that the server lives and that its bytes arrive, but not that our requests reach it, and a part of an
    /// answer, which is a few hundred bytes, shows nothing if the rest does not follow.
    pub(super) fn silent_since(&self) -> Option<Mono> {
        self.oldest().map(|oldest| oldest.max(self.heard))
    }

    /// For schedules with few requests.
    #[cfg(all(test, feature = "core"))]
    pub(super) const fn limit(&mut self, least: usize, most: usize) {
        self.window.limit(least, most);
    }

    #[cfg(all(test, feature = "core"))]
    pub(super) const fn forget_answers(&mut self) {
        self.heard = Mono::from_micros(0);
    }

    #[cfg(all(test, feature = "core"))]
    pub(super) fn requests(&mut self) -> impl Iterator<Item = &mut R> {
        self.in_flight.iter_mut().map(|request| &mut request.request)
    }

    /// All that was asked was asked now.
    #[cfg(all(test, feature = "core"))]
    pub(super) fn redate(&mut self, now: Mono) {
        self.in_flight.iter_mut().for_each(|request| request.sent = now);
    }
}

/// Starts an attempt, and plans the next one. `within`: how soon a lease needs that.
pub(super) fn attempt(context: &mut Context, node: NodeId, within: Option<Duration>) {
    context.push(Effect::Connect { node });
    let pause = context.jitter(bounded(BACKOFF_MS_MAX, within));
    context.timers.set(Timer::Reconnect(node), context.now + pause);
}

/// Starts the next attempt after a pause, unless it is planned for earlier.
fn attempt_after(context: &mut Context, node: NodeId, pause: (u64, u64)) {
    let at = context.now + context.jitter(pause);
    let planned = context.timers.at(Timer::Reconnect(node)).unwrap_or(Mono::NEVER);
    context.timers.set(Timer::Reconnect(node), at.min(planned));
}

/// No attempt is needed any more.
pub(super) fn stop_attempts(context: &mut Context, node: NodeId) {
    context.timers.clear(Timer::Reconnect(node));
    context.push(Effect::StopConnecting { node });
}

/// The range of a pause in ms: no longer than a lease allows that waits for the next attempt.
fn bounded(most_ms: u64, within: Option<Duration>) -> (u64, u64) {
    let within_ms = within.map_or(u64::MAX, |it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX));
    let most_ms = most_ms.min(within_ms).max(BACKOFF_MS_MIN * 3 / 2);
    ((most_ms / 2).max(BACKOFF_MS_MIN), most_ms)
}
