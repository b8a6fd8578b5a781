//! Closing the manager: operations end, leases are released, and the end waits for the confirmations.

use super::Machine;
use super::context::in_order;
use super::interface::{Effect, Outcome};
use super::lease::{Leases, Origin};
use super::release::Release;
use super::shard_channels::ShardChannels;
use crate::protocol::OpId;

impl Machine {
    /// Fails open operations, releases all leases but those to keep, and ends when that is confirmed or takes too long.
    pub(super) fn close(&mut self, op: OpId) {
        self.lifecycle.begin_close(&mut self.context, op);
        self.servers.begin_close();
        for op in in_order(&self.one_shots) {
            self.end_one_shot(op, Outcome::Closed);
        }
        for id in in_order(&self.undecided) {
            // Closing ends all handoffs.
            if let Some(caller) = self.undecided.remove(&id) {
                self.release_at_server(id, Some(caller), None);
            }
        }
        for op in self.queues.ops() {
            self.end_acquire(op, Outcome::Closed);
        }
        for id in self.leases.ids() {
            let Some(held) = self.remove_lease(id) else {
                continue;
            };
            let chosen = held.origin == Origin::ChosenToken;
            if held.leave_to_expire || (chosen && held.until <= self.context.now) {
                self.left_to_expire.insert(id);
            } else {
                let token = Leases::token_of(&self.context, &held);
                let mut release = Release::new(held.keys, token, held.until, held.uncertain);
                release.chosen = chosen;
                self.begin_release(id, release);
            }
        }
        for id in in_order(&self.releases) {
            self.send_release(id);
        }
        self.finish_close_if_done();
    }

    pub(super) fn finish_close_if_done(&mut self) {
        if self.lifecycle.closing().is_some() && self.releases.values().all(Release::is_confirmed) {
            self.finish_close();
        }
    }

    pub(super) fn finish_close(&mut self) {
        // Several requests may be lost with one connection, and the first of them may be the last that it waits for.
        let Some(op) = self.lifecycle.end() else { return };
        for release in std::mem::take(&mut self.releases).into_values() {
            if let Some(op) = release.op {
                let error = self.servers.of(&release.keys).connection.last_error.clone();
                self.context.complete(op, Outcome::Connection(error));
            }
        }
        self.context.timers.clear_all();
        self.channels = ShardChannels::default();
        self.context.complete(op, Outcome::Done);
        self.servers.end(&mut self.context);
        self.context.push(Effect::Stop);
    }
}
