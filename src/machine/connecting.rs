//! Connections: opening the manager, what each change of a connection starts, and sending again.

use super::Machine;
use super::context::in_order;
use super::interface::Outcome;
use super::request::Finished;
use super::servers::Servers;
use super::timers::Owner;
use crate::protocol::{
    Denied, Failure, LockKeys, Mono, NodeId, OpId, Refusal, Risk, Routes, ServerProbe,
};
use std::time::Duration;

impl Machine {
    /// How long a server may leave a request unanswered. A quorum has no limit: ballots end by themselves, and one that
    /// a suspended process ends late is no sign of dead servers.
    pub(super) fn patience(&self) -> Option<Duration> {
        (!self.context.config.quorum).then_some(self.context.config.command_timeout)
    }

    pub(super) fn open(&mut self, op: OpId) {
        self.lifecycle.begin(&self.context, op);
        let servers = &mut self.servers;
        if self.context.config.cluster {
            servers.discovery.ask(&mut self.context);
        } else {
            servers.want(&mut self.context, NodeId::default());
        }
    }

    pub(super) fn connected(
        &mut self,
        node: NodeId,
        probe: ServerProbe,
        risks: Vec<Risk>,
        denied: Denied,
    ) {
        self.replaced(node);
        self.servers.connected(&mut self.context, node, probe, risks, denied);
        self.opened_if_decided();
        self.resume(node);
        self.track_anew(node);
    }

    pub(super) fn probed(&mut self, node: NodeId, probe: ServerProbe, sent: Mono) {
        self.servers.at(node).data.compare_clocks(self.context.now, sent, probe.time);
        if self.servers.learn(node, probe) {
            self.resume_leases(node);
        }
    }

    /// No message comes from a server, so its waiters poll.
    pub(super) fn pubsub_denied(&mut self, node: NodeId, why: String) {
        self.channels.forget_node(&mut self.context, node);
        self.servers.set_pubsub_denied(&mut self.context, node, Some(why));
        self.resume(node);
    }

    /// The manager is open once each of its first servers is connected or has failed.
    fn opened_if_decided(&mut self) {
        if self.servers.are_decided() {
            self.lifecycle.opened(&mut self.context, Ok(()));
        }
    }

    pub(super) fn connect_failed(&mut self, node: NodeId, failure: Failure) {
        let (context, servers) = (&mut self.context, &mut self.servers);
        let is_refused = matches!(failure, Failure::Refused(_));
        let decides = !context.config.cluster || is_refused || servers.is_last(node);
        if !self.lifecycle.is_opening() || !decides {
            servers.connect_failed(context, node, &failure, self.leases.pressure(context.now));
            self.opened_if_decided();
            if let Failure::Refused(refusal) = failure
                && refusal.is_about_login()
                && !self.servers.get(node).connection.is_up()
            {
                self.refuse_all(node, &refusal);
            }
        } else if self.lifecycle.may_open_later(context, &failure) {
            servers.at(node).connection.back_off(context, node, None);
        } else {
            self.lifecycle.opened(context, Err(failure));
        }
    }

    /// The server refuses the login: whoever waits for a connection to it learns that at once. Leases and releases wait on,
    /// since the login may be allowed again.
    fn refuse_all(&mut self, node: NodeId, refusal: &Refusal) {
        let outcome = || Outcome::Server { refusal: refusal.clone(), key: None };
        for op in self.queues.ops() {
            let keys = self.queues.get(op).map(|request| &request.keys);
            if keys.is_some_and(|keys| self.servers.node(keys) == node) {
                self.end_acquire(op, outcome());
            }
        }
        for op in in_order(&self.one_shots) {
            let keys = self.one_shots.get(&op).map(|shot| shot.call.keys());
            if keys.is_some_and(|keys| self.servers.node(keys) == node) {
                self.end_one_shot(op, outcome());
            }
        }
    }

    pub(super) fn discovered(&mut self, routes: Result<Routes, Failure>) {
        let (context, servers) = (&mut self.context, &mut self.servers);
        servers.discovery.answered(routes.is_ok());
        match routes {
            Ok(routes) => {
                let connected = servers.discovered(context, routes);
                // Their unanswered requests go where the locks are now.
                for node in self.servers.deserted() {
                    self.disconnected(
                        node,
                        "its slots are on other servers now, and it does not answer",
                    );
                }
                for node in connected {
                    self.resume(node);
                }
            }
            Err(failure) if self.lifecycle.is_opening() => {
                self.lifecycle.opened(context, Err(failure));
            }
            Err(_) => servers.discovery.ask_soon(context),
        }
    }

    /// Sends every request that waits for a server, releases first: abandoned entries must not block new requests.
    pub(super) fn resume(&mut self, node: NodeId) {
        let is_here = |servers: &Servers, keys: Option<&LockKeys>| {
            keys.is_some_and(|keys| servers.node(keys) == node)
        };
        for id in in_order(&self.releases) {
            if is_here(&self.servers, self.releases.get(&id).map(|release| &release.keys)) {
                self.send_release(id);
            }
        }
        self.resume_leases(node);
        for op in in_order(&self.one_shots) {
            // Includes those sent elsewhere while their slot moved to a server without a connection.
            self.send_one_shot(op);
        }
        for id in self.entries.keys_in_order() {
            if is_here(&self.servers, self.entries.get(&id).map(|entry| &entry.keys)) {
                self.send_entry(id);
            }
        }
    }

    pub(super) fn disconnected(&mut self, node: NodeId, detail: &str) {
        let within = self.leases.pressure(self.context.now);
        if let Some(lost) = self.servers.disconnected(&mut self.context, node, detail, within) {
            self.lost(node, lost);
        }
    }

    /// A new connection is there: if the one before was still waited for, its requests are lost. They may be executed all
    /// the same, as those of any connection that is given up.
    fn replaced(&mut self, node: NodeId) {
        let silent = self.servers.at(node).connection.oldest();
        let silent = silent.map_or(Duration::ZERO, |sent| self.context.now.since(sent));
        let detail =
            format!("no answer within {} ms, and a new connection has one", silent.as_millis());
        if let Some(lost) = self.servers.lost(&mut self.context, node, &detail) {
            self.lost(node, lost);
        }
    }

    /// A connection has ended, and with it the requests `lost`.
    fn lost(&mut self, node: NodeId, lost: Vec<Finished>) {
        self.channels.forget_node(&mut self.context, node);
        for id in self.entries.keys_in_order() {
            if let Some(entry) = self.entries.get_mut(&id)
                && entry.confirming.take_if(|confirming| confirming.0 == node).is_some()
            {
                // It owns the lock, so its end must release it. Its slot may have moved to another server meanwhile, whose
                // connection has not resumed it.
                entry.uncertain = true;
                self.servers.retry(&mut self.context, Owner::Entry(id));
            }
        }
        for finished in lost {
            self.finished(finished);
        }
    }
}
