//! Passing what one caller of this process gives up to the next, ahead of others.
//!
//! A thousand tasks of one process that want one lock would otherwise cost the server a thousand
//! releases, grants and claims. A whole lock goes on without the server; a share by one call, since each
//! has its own fence. Others wait meanwhile, so it ends after a while; then what is given up goes to
//! whoever is first in line at the server.

use super::acquire::BLOCK_MAX;
use super::attempt::{Attempt, Way, Whose};
use super::confirm::Granted;
use super::{AttemptId, Effect, Lease, LeaseId, Machine, Manner, NodeId, OpId, Outcome};
use crate::clock::Mono;
use crate::error::Failure;
use crate::keys::LockKeys;
use crate::script::{Mode, Reply, valid_until};
use crate::token::Token;
use std::time::Duration;

/// How long a process may keep a lock or a share to itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    /// How many more of its callers may have it.
    pub(super) left: u8,
    /// Until when it may be handed on.
    until: Mono,
}

/// Only if the server has confirmed a lock in so short a time, or a sixteenth of its lease, it is handed on: a server
/// that has forgotten the lock meanwhile may have given it to others.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(1);

/// How often a share is passed on: as often as a whole lock at most, which needs a reserved fence each time.
const PASSES_MAX: u8 = BLOCK_MAX - 1;

/// Who gets a share that a release passes on.
#[derive(Debug)]
pub(super) struct Heir {
    pub(super) id: AttemptId,
    pub(super) token: Token,
    label: Box<str>,
    pub(super) ttl: Duration,
    pub(super) mode: Mode,
    turn: Turn,
}

impl Turn {
    /// Of a grant that has reserved `block` fences for a lease of `ttl`. A share without a limit is passed to nobody.
    pub(super) fn new(now: Mono, ttl: Duration, mode: Mode, block: u8) -> Self {
        let left = match mode {
            Mode::Exclusive => block - 1,
            Mode::Shared { limit: Some(_) } => PASSES_MAX,
            Mode::Shared { limit: None } => 0,
        };
        Self { left, until: now + ttl / 2 }
    }

    /// Not to be handed on.
    pub(super) const fn over(now: Mono) -> Self {
        Self { left: 0, until: now }
    }

    fn is_over(&self, now: Mono) -> bool {
        self.left == 0 || self.until <= now
    }

    const fn next(self) -> Self {
        Self { left: self.left - 1, ..self }
    }
}

impl Machine {
    /// Who here may get the whole lock of a caller who gives it up, without the server; none if it must go
    /// through that. For lack of an answer it may only be too early to say, see [`Machine::is_unanswered`].
    pub(super) fn successor(&self, now: Mono, lease: LeaseId) -> Option<OpId> {
        let held = self.hold_of(lease)?;
        let op = self.first_in_line(&held.keys)?;
        let next = self.acquires.get(&op)?;
        let link = self.link_of(&held.keys);
        // Fences that were reserved in another history of the data may be smaller than what others got in this.
        let known = link.is_up() && held.history == link.history && !link.is_outdated(held.fence);
        let whole = !held.mode.is_shared() && !next.mode.is_shared();
        let left = held.until.since(now);
        // The lease goes on as it is: enough of it for the successor, and no more than a crash of his may cost.
        let fits = self.is_unanswered(held) || (next.ttl / 2..=next.ttl).contains(&left);
        (known && whole && fits && next.hold.renew && !held.turn.is_over(now)).then_some(op)
    }

    /// Hands the whole lock of a caller who gives it up to the next in line here. False if it must go
    /// through the server.
    pub(super) fn hand_on(&mut self, now: Mono, lease: LeaseId, out: &mut Vec<Effect>) -> bool {
        let id = lease.attempt();
        let confirmed = |held: &Lease| !self.is_unanswered(held) && held.is_confirmed(now);
        if !self.hold_of(lease).is_some_and(confirmed) {
            return false;
        }
        let Some(op) = self.successor(now, lease) else { return false };
        let Some(next) = self.remove_acquire(op) else { return false };
        self.end_extends_of(lease, out);
        self.change_lease(id, |held| {
            held.id = lease.next();
            held.fence += 1;
            held.turn = held.turn.next();
            held.ttl = next.ttl;
            held.begin_hold(now, next.hold);
        });
        let Some(held) = self.leases.get(&id) else { return false };
        let (lease_now, fence, until) = (held.id, held.fence, held.held_until());
        let label = (held.label != next.label).then(|| held.label.to_string());
        self.stats.acquired += 1;
        self.stats.handed_on += 1;
        out.push(Effect::SetDeadline { lease, until: None });
        out.push(Effect::SetDeadline { lease: lease_now, until: Some(until) });
        out.push(Effect::Complete {
            op,
            outcome: Outcome::Acquired { lease: lease_now, fence, label },
        });
        self.serve_line(now, &next.keys, Some(id), out);
        true
    }

    /// Whether a renewal, a claim or an extension is under way, whose answer may say that another has the lock.
    pub(super) fn is_unanswered(&self, held: &Lease) -> bool {
        held.renewing || self.is_extended(held.id)
    }

    /// Who here gets the share of `held`, which its caller gives up: one who wants the same and is
    /// nobody's heir yet. A share without a limit is waited for only behind somebody who wants the whole
    /// lock, and is not to be kept from that one.
    pub(super) fn heir(&mut self, now: Mono, lease: LeaseId) -> Option<Box<Heir>> {
        let held = self.leases.get(&lease.attempt())?;
        if !matches!(held.mode, Mode::Shared { limit: Some(_) }) || held.turn.is_over(now) {
            return None;
        }
        let line = self.lines.get_mut(&held.keys)?;
        let next = self.acquires.get(&line.behind(line.heirs)?)?;
        if next.mode != held.mode {
            return None;
        }
        line.heirs += 1;
        let (label, ttl, mode, turn) = (next.label.clone(), next.ttl, next.mode, held.turn.next());
        let id = self.next_attempt();
        let token = Token::new(&self.config.client, id.0, &label);
        Some(Box::new(Heir { id, token, label, ttl, mode, turn }))
    }

    /// What the answer to a release says to whoever released, after an heir that it named has been seen
    /// to; none if the release was sent anew without.
    pub(super) fn passed(
        &mut self,
        now: Mono,
        node: NodeId,
        release: AttemptId,
        sent: Mono,
        reply: Result<Reply, Failure>,
        out: &mut Vec<Effect>,
    ) -> Option<Result<Reply, Failure>> {
        let again =
            matches!(reply, Err(Failure::NoScript | Failure::Moved(_) | Failure::Moving(_)));
        let heir = if again { None } else { self.take_heir(release) };
        let Some((keys, heir)) = heir else { return Some(reply) };
        match reply {
            Ok(Reply::Granted { fence }) => {
                self.inherit(now, node, keys, heir, fence, sent, out);
                Some(Ok(Reply::Owner(true)))
            }
            // To give a share up needs less than to pass it on. Where more have one than the heir may be
            // beside, that one waits.
            Ok(Reply::More) | Err(Failure::Refused(_)) => {
                self.send_release(now, release, Manner::Plain, out);
                None
            }
            Ok(_) => Some(reply),
            // Nobody knows whether the heir has it.
            Err(_) => {
                self.abandon(now, heir.id, keys, heir.token, true, out);
                Some(reply)
            }
        }
    }

    /// The heir has the share, asked for at `sent`: whoever is first in line now gets it.
    fn inherit(
        &mut self,
        now: Mono,
        node: NodeId,
        keys: LockKeys,
        heir: Heir,
        fence: u64,
        sent: Mono,
        out: &mut Vec<Effect>,
    ) {
        let Heir { id, token, label, ttl, mode, turn } = heir;
        let until = valid_until(sent, ttl);
        let usable = now < until && !self.links.get(node).is_outdated(fence);
        // Whoever wanted it may have left.
        let first = self.first_in_line(&keys).and_then(|op| self.acquires.get(&op));
        let wanted = first.is_some_and(|first| first.mode == mode);
        let line = self.lines.get_mut(&keys);
        let Some(line) = line.filter(|_| usable && wanted) else {
            return self.abandon(now, id, keys, token, false, out);
        };
        line.attempts.push_front(id);
        let mut attempt = Attempt::new(keys, token, ttl, label, mode, Whose::Line, Way::Wait);
        attempt.turn = Some(turn);
        self.attempts.insert(id, attempt);
        let granted = Granted { fence, until, since: sent, owed: None };
        self.accept(now, node, id, granted, out);
    }

    fn take_heir(&mut self, release: AttemptId) -> Option<(LockKeys, Heir)> {
        let release = self.releases.get_mut(&release)?;
        let heir = release.heir.take()?;
        if let Some(line) = self.lines.get_mut(&release.keys) {
            line.heirs = line.heirs.saturating_sub(1);
        }
        Some((release.keys.clone(), *heir))
    }
}

impl Lease {
    /// Whether the last answer about it is recent.
    fn is_confirmed(&self, now: Mono) -> bool {
        self.owed.is_none() && now.since(self.confirmed) <= CONFIRMED_WITHIN.min(self.ttl / 16)
    }
}
