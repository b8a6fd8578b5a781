//! Releasing at the server, for callers, and of grants that no caller uses.

use super::context::in_order;
use super::lease::{Leases, Origin};
use super::release::{Release, Successor};
use super::request::Finished;
use super::timers::{Owner, Timer};
use super::{Machine, Releasing};
use crate::protocol::{LockKeys, Mono, Reply, Token, TokenId};
use crate::slim::Slim;

/// A lock that is held for longer, in round trips, the grant's own included, is released by the script that serves waiters.
const BRIEF_ROUND_TRIPS: u32 = 4;

impl Machine {
    /// Ends a lease, and releases its lock; `caller` waits for the outcome.
    pub(super) fn release_at_server(
        &mut self,
        id: TokenId,
        caller: Option<Releasing>,
        successor: Option<Successor>,
    ) {
        let Some(held) = self.remove_lease(id) else {
            return;
        };
        let waits_here = self.queues.has(&held.keys);
        // A handoff takes no other manager's turn while none waits.
        if waits_here && (successor.is_none() || !self.queues.is_alone(&held.keys)) {
            self.move_entries_back(&held.keys);
        }
        let chosen = held.origin == Origin::ChosenToken;
        let token = Leases::token_of(&self.context, &held);
        let mut release = Release::new(held.keys, token, held.until, held.uncertain);
        release.chosen = chosen;
        if let Some((op, deadline)) = caller {
            self.context.timers.set(Timer::ReleaseDeadline(id), deadline);
            release.op = Some(op);
        }
        release.shared = held.mode.is_shared();
        release.fast_path = (held.origin == Origin::LoneShare || !release.shared)
            && held.pending_renewal.is_none()
            && !held.uncertain
            // That may need a second request.
            && !chosen
            && !waits_here
            && self.is_likely_free(&release.keys)
            && !self.may_be_awaited(&release.keys, held.confirmed)
            && self.servers.data_of(&release.keys).has_fast_path(held.mode);
        release.successor = successor;
        let asks_behind = (waits_here && !release.shared).then(|| release.keys.clone());
        self.begin_release(id, release);
        if let Some(keys) = asks_behind.filter(|_| self.servers.is_open(Owner::Release(id))) {
            self.ask_behind_release(&keys);
        }
    }

    /// Whether others may have come since a lock was confirmed by a request at `sent`: the fast path would find that out
    /// one round trip later, for which they would wait.
    fn may_be_awaited(&self, keys: &LockKeys, sent: Mono) -> bool {
        let round_trip = self.servers.of(keys).connection.round_trip();
        self.context.now.since(sent) > round_trip.saturating_mul(BRIEF_ROUND_TRIPS)
    }

    /// Lets the entry here that is likely to get a whole lock by its release ask right behind that.
    fn ask_behind_release(&mut self, keys: &LockKeys) {
        if self.context.config.quorum {
            return self.ask_quorum_behind_release(keys);
        }
        if let Some(id) = self.queues.likely_next(keys)
            && let Some(entry) = self.entries.get(&id)
            && !entry.mode.is_shared()
        {
            entry.ask_behind(&mut self.context, &mut self.servers, id);
        }
    }

    /// On a quorum the votes for the next caller follow the release on each connection, while this process has its turn.
    fn ask_quorum_behind_release(&mut self, keys: &LockKeys) {
        let next = self.queues.entries(keys).first().copied();
        if let Some(id) = next
            && self.queues.has_turn(keys, self.context.now)
            && !self.servers.asks(id)
        {
            self.send_entry(id);
        } else {
            self.freed(keys);
        }
    }

    /// Gives back what a token has got or may yet get. No caller waits.
    pub(super) fn give_back(&mut self, keys: LockKeys, token: Token, uncertain: bool) {
        // A token that its caller has chosen has no number.
        let own = self.context.number_of(&token);
        let id = own.unwrap_or_else(|| self.context.next_token_id());
        let release = Release::new(keys, token, self.context.now, uncertain);
        self.begin_release(id, release);
    }

    pub(super) fn begin_release(&mut self, id: TokenId, release: Release) {
        release.send(&mut self.context, &mut self.servers, id);
        self.releases.insert(id, release);
    }

    pub(super) fn send_release(&mut self, id: TokenId) {
        if self.releases.get(&id).is_some_and(|release| release.is_too_late(self.context.now)) {
            return self.end_release(id);
        }
        if let Some(release) = self.releases.get(&id) {
            release.send(&mut self.context, &mut self.servers, id);
        }
    }

    /// The patience of a caller is over. It was told that a value which it has chosen is not released again.
    pub(super) fn release_deadline(&mut self, id: TokenId) {
        let Some(release) = self.releases.get_mut(&id) else { return };
        release.deadline(&mut self.context, &self.servers, id);
        if release.chosen && !self.servers.is_open(Owner::Release(id)) {
            self.end_release(id);
        }
    }

    /// A value that its caller has chosen may wait to be released, for an earlier hold. That would free its next hold, for
    /// which it is adopted now.
    pub(super) fn end_releases_of(&mut self, token: &Token) {
        for id in in_order(&self.releases) {
            if self.releases.get(&id).is_some_and(|each| each.is_of(token)) {
                self.end_release(id);
            }
        }
    }

    /// Nothing is left to release.
    fn end_release(&mut self, id: TokenId) {
        if let Some(mut release) = self.releases.remove(&id) {
            release.give_up(&mut self.context, id);
            self.servers.forget(&mut self.context, Owner::Release(id));
        }
    }

    pub(super) fn release_answered(&mut self, id: TokenId, finished: Finished) {
        let Some(release) = self.releases.get_mut(&id) else { return };
        let freed =
            release.chosen && matches!(finished.reply, Ok(Reply::Owner(true) | Reply::More));
        let value = freed.then(|| (release.keys.clone(), release.token.clone()));
        if release.answered(&mut self.context, &mut self.servers, id, finished) {
            self.servers.forget(&mut self.context, Owner::Release(id));
            self.releases.remove(&id);
            self.releases.slim();
        }
        if let Some((keys, token)) = value {
            self.doubt_holds_under(&keys, &token);
        }
    }
}
