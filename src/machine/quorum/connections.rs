//! The connections to the servers, and when they are enough.

use super::ballot::majority;
use super::{Opening, Quorum, Timer, VIRTUAL, node_id};
use crate::machine::interface::{Effect, Event, Notice, ServerProbe};
use crate::machine::protocol::Protocol;
use crate::protocol::{Failure, Mono, ServerTime};
use std::time::Duration;

impl Quorum {
    pub(super) fn connect_all(&mut self) {
        self.opening = Opening::Awaited;
        for (index, node) in self.nodes.iter_mut().enumerate() {
            if node.connection.want() {
                self.out.push(Effect::Connect { node: node_id(index) });
            }
        }
    }

    pub(super) fn connected(&mut self, node: usize, probe: ServerProbe) {
        let known = self.nodes[node].connection.was_tried();
        self.nodes[node].connected(self.now, probe);
        if known {
            self.out.push(Effect::Notify(Notice::Reconnected));
        }
        self.notify_same_server(node);
        self.listen_again(node);
        let now = self.now;
        let later: Vec<Mono> =
            self.nodes[node].withdrawals.values().map(|withdrawal| withdrawal.due).collect();
        self.timers.extend(later.into_iter().map(|due| (due.max(now), Timer::Withdrawals(node))));
    }

    /// Notifies of one server with two names, which would have two votes.
    fn notify_same_server(&mut self, node: usize) {
        let Some(history) = &self.nodes[node].history else { return };
        let is_same =
            |other: &usize| *other != node && self.nodes[*other].history.as_ref() == Some(history);
        for other in (0..self.nodes.len()).filter(is_same) {
            let [one, two] = [node.min(other), node.max(other)];
            let names = format!("{} and {}", self.name(one), self.name(two));
            self.out.push(Effect::Notify(Notice::SameServer(names)));
        }
    }

    pub(super) fn connect_failed(&mut self, node: usize, failure: &Failure) {
        self.nodes[node].connection.failed(failure);
        self.reconnect_later(node);
    }

    fn reconnect_later(&mut self, node: usize) {
        let (least_ms, most_ms) = self.nodes[node].connection.back_off();
        let pause = Duration::from_micros(self.rng.u64(least_ms * 1_000..most_ms * 1_000));
        self.timers.insert((self.now + pause, Timer::Reconnect(node)));
    }

    /// The connection is lost, or is given up.
    pub(super) fn disconnected(&mut self, node: usize, detail: &str) {
        let connection = &mut self.nodes[node].connection;
        let Some(in_flight) = connection.lost(detail) else { return };
        let at_once = connection.may_retry_at_once();
        // Unsent or undelivered bytes must not arrive later: their locks are withdrawn after reconnecting.
        self.out.push(Effect::Disconnect { node: node_id(node), abort: true });
        self.out
            .push(Effect::Notify(Notice::Disconnected(format!("{}: {detail}", self.name(node)))));
        if at_once {
            self.out.push(Effect::Connect { node: node_id(node) });
        } else {
            self.reconnect_later(node);
        }
        for lost in in_flight {
            self.lost(node, &lost.request, detail);
        }
    }

    /// Gives up the connections with a request unanswered for too long.
    pub(super) fn give_silent_up(&mut self) {
        let patience = self.machine.config().command_timeout;
        for node in 0..self.nodes.len() {
            if self.nodes[node].connection.oldest().is_some_and(|sent| sent + patience <= self.now)
            {
                let detail = format!("no answer within {} ms", patience.as_millis());
                self.disconnected(node, &detail);
            }
        }
    }

    /// Notifies the machine once it is certain whether a majority can be connected.
    pub(super) fn open_if_decided(&mut self) {
        if !matches!(self.opening, Opening::Awaited | Opening::Enough) {
            return;
        }
        let up = self.nodes.iter().filter(|node| node.connection.is_up()).count();
        let tried = self.nodes.iter().filter(|node| node.connection.was_tried()).count();
        if up >= majority(self.nodes.len()) {
            if tried == self.nodes.len() {
                self.open_now();
            } else if self.opening == Opening::Awaited {
                // With all servers the first locks are as safe as the later ones.
                self.opening = Opening::Enough;
                self.timers.insert((self.now + self.settings.node_timeout, Timer::Open));
            }
        } else if tried - up > self.nodes.len() - majority(self.nodes.len()) {
            self.opening = Opening::Done;
            self.timers.clear();
            let failed = Event::ConnectFailed(Failure::NoQuorum(self.last_errors()));
            self.tell(|machine, now, wanted| machine.handle_event(now, VIRTUAL, failed, wanted));
        }
    }

    /// Enough servers are connected. From now on the machine counts as connected: each ballot finds out which servers
    /// are.
    pub(super) fn open_now(&mut self) {
        if !matches!(self.opening, Opening::Awaited | Opening::Enough) {
            return;
        }
        self.opening = Opening::Done;
        self.timers.retain(|(_, timer)| *timer != Timer::Open);
        let probe = ServerProbe { history: None, time: ServerTime::default(), uptime: None };
        let connected = Event::Connected { probe, risks: Vec::new(), pubsub_denied: None };
        self.tell(|machine, now, wanted| machine.handle_event(now, VIRTUAL, connected, wanted));
    }

    /// By server, why it is not connected; empty if it is.
    fn last_errors(&self) -> Vec<String> {
        let error = |node: &super::Node| {
            let is_missing = !node.connection.is_up() && node.connection.was_tried();
            if is_missing { node.connection.last_error.clone() } else { String::new() }
        };
        self.nodes.iter().map(error).collect()
    }

    pub(super) fn name(&self, node: usize) -> &str {
        self.settings.servers.get(node).map_or("", String::as_str)
    }

    /// The machine needs no connection any more.
    pub(super) fn disconnect_all(&mut self) {
        let goodbyes = (0..self.nodes.len())
            .map(|node| Effect::Disconnect { node: node_id(node), abort: false });
        self.shutdown_effects.extend(goodbyes);
    }

    /// Ends the manager, after a moment for open withdrawals.
    pub(super) fn stop(&mut self) {
        self.shutdown_effects.push(Effect::Stop);
        self.timers.clear();
        self.timers.insert((self.now + self.settings.node_timeout, Timer::Shutdown));
    }

    pub(super) fn leave_if_done(&mut self) {
        let is_ended = self.shutdown_effects.last() == Some(&Effect::Stop);
        if is_ended && self.nodes.iter().all(|node| node.connection.oldest().is_none()) {
            self.leave();
        }
    }

    /// No effect follows the end.
    pub(super) fn leave(&mut self) {
        self.timers.clear();
        self.out.append(&mut self.shutdown_effects);
    }

    /// Whether the manager has ended.
    pub(super) fn has_left(&self) -> bool {
        self.out.last() == Some(&Effect::Stop)
    }
}
