//! The connections to the servers: coming, going, and when there are enough of them.

use super::ballot::majority;
use super::{Quorum, Timer, VIRTUAL, node_id};
use crate::clock::{Mono, ServerTime};
use crate::error::Failure;
use crate::machine::{Effect, Event, Look, News};
use std::time::Duration;

/// The longest pause between two attempts to connect.
const BACKOFF_MS_MAX: u64 = 1_000;

/// The first connections.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Opening {
    /// Nobody has asked for them yet.
    #[default]
    Before,
    /// They are made, and it is not known yet whether there will be enough.
    Awaited,
    /// There are enough; the others have a moment more.
    Enough,
    Done,
}

impl Quorum {
    pub(super) fn connect_all(&mut self, out: &mut Vec<Effect>) {
        self.opening = Opening::Awaited;
        out.extend((0..self.nodes.len()).map(|node| Effect::Connect { node: node_id(node) }));
    }

    pub(super) fn connected(&mut self, now: Mono, node: usize, look: Look, out: &mut Vec<Effect>) {
        let known = self.nodes[node].tried;
        self.nodes[node].connected(now, look);
        if known {
            out.push(Effect::Tell(News::Reconnected));
        }
        self.tell_twins(node, out);
        self.listen_again(node, out);
        let later: Vec<Mono> = self.nodes[node].debts.values().map(|debt| debt.due).collect();
        self.timers.extend(later.into_iter().map(|due| (due.max(now), Timer::Debts(node))));
    }

    /// Two names of one server would give it two votes.
    fn tell_twins(&self, node: usize, out: &mut Vec<Effect>) {
        let Some(history) = &self.nodes[node].history else { return };
        let is_twin =
            |other: &usize| *other != node && self.nodes[*other].history.as_ref() == Some(history);
        for other in (0..self.nodes.len()).filter(is_twin) {
            let [one, two] = [node.min(other), node.max(other)];
            let names = format!("{} and {}", self.name(one), self.name(two));
            out.push(Effect::Tell(News::SameServer(names)));
        }
    }

    pub(super) fn connect_failed(&mut self, now: Mono, node: usize, failure: &Failure) {
        self.nodes[node].tried = true;
        self.nodes[node].trouble = format!("not connected: {failure}");
        self.reconnect_later(now, node);
    }

    fn reconnect_later(&mut self, now: Mono, node: usize) {
        let failures = self.nodes[node].failures;
        self.nodes[node].failures += 1;
        let most_ms = (50_u64 << failures.min(10)).min(BACKOFF_MS_MAX);
        let pause = Duration::from_micros(self.rng.u64(most_ms * 500..most_ms * 1_000));
        self.timers.insert((now + pause, Timer::Reconnect(node)));
    }

    /// The connection is gone, or is given up.
    pub(super) fn disconnected(
        &mut self,
        now: Mono,
        node: usize,
        detail: &str,
        out: &mut Vec<Effect>,
    ) {
        if !self.nodes[node].up {
            return;
        }
        self.nodes[node].up = false;
        detail.clone_into(&mut self.nodes[node].trouble);
        // What is unsent or undelivered may not arrive later: it is given back once connected again.
        out.push(Effect::Disconnect { node: node_id(node), abort: true });
        out.push(Effect::Tell(News::Disconnected(format!("{}: {detail}", self.name(node)))));
        if self.nodes[node].failures == 0 {
            self.nodes[node].failures = 1;
            out.push(Effect::Connect { node: node_id(node) });
        } else {
            self.reconnect_later(now, node);
        }
        for (_, errand) in self.nodes[node].take_requests() {
            self.lost(now, node, &errand, detail, out);
        }
    }

    /// Gives up the connections on which a request has stayed unanswered for too long.
    pub(super) fn give_silent_up(&mut self, now: Mono, out: &mut Vec<Effect>) {
        let patience = self.machine.config.command_timeout;
        for node in 0..self.nodes.len() {
            if self.nodes[node].oldest_request().is_some_and(|sent| sent + patience <= now) {
                let detail = format!("no answer within {} ms", patience.as_millis());
                self.disconnected(now, node, &detail, out);
            }
        }
    }

    /// Tells the machine when it is certain whether a majority can be connected to.
    pub(super) fn open_if_decided(&mut self, now: Mono, effects: &mut Vec<Effect>) {
        if !matches!(self.opening, Opening::Awaited | Opening::Enough) {
            return;
        }
        let up = self.nodes.iter().filter(|node| node.up).count();
        let tried = self.nodes.iter().filter(|node| node.tried).count();
        if up >= majority(self.nodes.len()) {
            if tried == self.nodes.len() {
                self.open_now(now, effects);
            } else if self.opening == Opening::Awaited {
                // With all of them the first locks survive as much as the later ones.
                self.opening = Opening::Enough;
                self.timers.insert((now + self.settings.node_timeout, Timer::Open));
            }
        } else if tried - up > self.nodes.len() - majority(self.nodes.len()) {
            self.opening = Opening::Done;
            self.timers.clear();
            let failed = Event::ConnectFailed(Failure::NoQuorum(self.troubles()));
            self.machine.handle_event(now, VIRTUAL, failed, effects);
        }
    }

    /// There are enough connections. From now on the machine is always connected: which servers are is
    /// the business of each ballot.
    pub(super) fn open_now(&mut self, now: Mono, effects: &mut Vec<Effect>) {
        if !matches!(self.opening, Opening::Awaited | Opening::Enough) {
            return;
        }
        self.opening = Opening::Done;
        self.timers.retain(|(_, timer)| *timer != Timer::Open);
        let look = Look { history: None, time: ServerTime::default(), uptime: None };
        let connected = Event::Connected { look, risks: Vec::new(), deaf: None };
        self.machine.handle_event(now, VIRTUAL, connected, effects);
    }

    /// By server, why it is not connected; empty where it is.
    fn troubles(&self) -> Vec<String> {
        let trouble = |node: &super::Node| match (node.up, node.tried) {
            (false, true) => node.trouble.clone(),
            _ => String::new(),
        };
        self.nodes.iter().map(trouble).collect()
    }

    pub(super) fn name(&self, node: usize) -> &str {
        self.settings.servers.get(node).map_or("", String::as_str)
    }

    /// The machine has nothing more to ask.
    pub(super) fn disconnect_all(&mut self) {
        let goodbyes = (0..self.nodes.len())
            .map(|node| Effect::Disconnect { node: node_id(node), abort: false });
        self.farewell.extend(goodbyes);
    }

    /// The end: a moment is left for withdrawals that are on their way.
    pub(super) fn stop(&mut self, now: Mono) {
        self.farewell.push(Effect::Stop);
        self.timers.clear();
        self.timers.insert((now + self.settings.node_timeout, Timer::Farewell));
    }

    pub(super) fn leave_if_done(&mut self, out: &mut Vec<Effect>) {
        let ended = self.farewell.last() == Some(&Effect::Stop);
        if ended && self.nodes.iter().all(|node| node.oldest_request().is_none()) {
            self.timers.clear();
            out.append(&mut self.farewell);
        }
    }
}
