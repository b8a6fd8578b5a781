//! One call for one caller, repeated until the server has answered it, to extend, downgrade, adopt, force, or acquire
//! several locks at once.
//!
//! A repeat changes nothing more than the call itself, so curable failures are retried until the caller's patience
//! ends. Only a forced release that may have been executed is not repeated: that could free the lock of a later owner.

use super::context::Context;
use super::interface::{HoldTerms, Outcome};
use super::lease::Leases;
use super::request::{CallError, Fallback, Finished};
use super::servers::Servers;
use super::timers::Owner;
use super::waiting_room::Rank;
use crate::protocol::{
    Call, Label, LeaseId, LockKeys, Mode, OpId, Refusal, Reply, ServerTime, Take, TokenId,
    WRONG_TYPE,
};
use std::sync::Arc;
use std::time::Duration;

#[cfg(all(test, feature = "core"))]
mod tests;

/// The most locks that one script takes: 3 ms of the server's time, or 9 if their names have full length. More are
/// acquired one after the other.
const ACQUIRE_ALL_MAX: usize = 256;

#[derive(Debug)]
pub(super) struct OneShot {
    pub(super) call: Call,
    pub(super) purpose: Purpose,
    /// Its outcome if the deadline passes now.
    last_error: Option<Outcome>,
    /// An answer was lost: the call may have been executed, or may yet be.
    pub(super) uncertain: bool,
}

/// The effect of a successful answer.
#[derive(Clone, Debug)]
pub(super) enum Purpose {
    /// Begin a lease of this number.
    Adopt {
        id: TokenId,
        label: Label,
        hold: HoldTerms,
    },
    Downgrade(LeaseId),
    Extend(LeaseId),
    /// Leave the lock to expire.
    ExpireIn(LeaseId),
    Force,
    /// Begin new leases, all or none: for the locks of the call.
    AcquireAll {
        label: Arc<str>,
        hold: HoldTerms,
    },
}

/// The call that acquires several locks at once, if one call can.
pub(super) fn acquire_all(
    context: &mut Context,
    servers: &Servers,
    keys: Vec<LockKeys>,
    label: &str,
    ttl: Duration,
) -> Option<Call> {
    if keys.len() > ACQUIRE_ALL_MAX || context.config.quorum || context.config.confirm {
        return None;
    }
    let slot = |keys: &LockKeys| context.config.cluster.then(|| keys.slot());
    if keys.windows(2).any(|pair| slot(&pair[0]) != slot(&pair[1])) {
        return None;
    }
    let mut locks = keys.into_iter().map(|keys| {
        let id = context.next_token_id();
        (keys, context.token(id, Mode::Exclusive, label))
    });
    let (first, others) = (locks.next()?, locks.collect());
    if servers.data_of(&first.0).has_fast_path_for_several() {
        return Some(Call::TakeAll { first, others, ttl });
    }
    Some(Call::AcquireAll { first, others, ttl, epoch: ServerTime::default() })
}

impl OneShot {
    pub(super) const fn new(call: Call, purpose: Purpose) -> Self {
        Self { call, purpose, last_error: None, uncertain: false }
    }

    /// Sends its call in its turn, unless it has an open request.
    pub(super) fn send(
        &mut self,
        context: &mut Context,
        servers: &mut Servers,
        leases: &Leases,
        op: OpId,
    ) {
        let owner = Owner::OneShot(op);
        if servers.is_open(owner) {
            return;
        }
        if let Some(held) = self.extends().and_then(|lease| leases.hold_of(lease)) {
            // The lease may have been claimed or downgraded since.
            let mut ttl = self.call.ttl();
            if let Purpose::Extend(_) = self.purpose {
                ttl = held.within_hold(context.now, ttl);
            }
            self.call = Leases::extension(context, held, ttl);
        }
        // A lease depends on the others.
        let can_wait = matches!(
            self.purpose,
            Purpose::AcquireAll { .. } | Purpose::Adopt { .. } | Purpose::Force
        );
        if can_wait && !servers.has_room(self.call.keys()) {
            let rank = if self.uncertain { Rank::Known } else { Rank::New };
            return servers.wait(owner, self.call.keys(), rank);
        }
        // Also of a lease that was released meanwhile.
        let fallback = Fallback::of_extension(&self.call);
        servers.send(context, owner, self.call.clone(), fallback);
    }

    /// Whether the server is asked to free what it has got, or may yet get, for a caller that does not learn of it.
    pub(super) fn is_given_back(&self) -> bool {
        match (&self.purpose, &self.call) {
            // Only the server ends a lock that is left to expire, or one under a value that another process may have.
            (Purpose::Adopt { hold, label, .. }, _) => !hold.leave_to_expire && !label.is_chosen(),
            (Purpose::AcquireAll { .. }, _) => true,
            _ => false,
        }
    }

    pub(super) const fn extends(&self) -> Option<LeaseId> {
        match self.purpose {
            Purpose::Extend(lease) | Purpose::ExpireIn(lease) => Some(lease),
            _ => None,
        }
    }

    /// A request was answered, or never will be. Returns the reply or the outcome that ends it; none if it is retried.
    pub(super) fn answered(
        &mut self,
        context: &mut Context,
        servers: &mut Servers,
        op: OpId,
        finished: Finished,
    ) -> Option<Result<Reply, Outcome>> {
        let owner = Owner::OneShot(op);
        if let Call::TakeAll { .. } = self.call {
            return self.take_answered(context, servers, op, &finished);
        }
        match finished.reply {
            // From now on the call frees the lock only from these owners, however late it arrives.
            Ok(Reply::Seen { owners: present }) => {
                if let Call::Force { seen, owners, .. } = &mut self.call {
                    if !owners.is_empty() {
                        // Others hold it than those from whom it may be taken.
                        return Some(Ok(Reply::Owner(false)));
                    }
                    *seen = Some(present);
                }
                servers.send(context, owner, self.call.clone(), Fallback::None);
                return None;
            }
            // A reply without all fences is retried.
            Ok(Reply::All(fences)) if fences.len() != self.call.locks() => self.uncertain = true,
            Ok(reply) => return Some(Ok(reply)),
            Err(CallError::Lost(why) | CallError::Halfway(why)) if self.may_have_freed() => {
                return Some(Err(Outcome::Connection(format!("{why}; it may have been freed"))));
            }
            Err(CallError::Lost(_) | CallError::Halfway(_)) => self.uncertain = true,
            Err(CallError::Unsent) => {}
            Err(CallError::NoQuorum(causes)) => self.last_error = Some(Outcome::Quorum(causes)),
            Err(CallError::Refused(refusal))
                if refusal.code == WRONG_TYPE
                    && matches!(self.call, Call::Extend { .. } | Call::ExtendShare { .. }) =>
            {
                // Other code wrote over the key, where no lock and no share can be any more.
                return Some(Ok(Reply::Owner(false)));
            }
            Err(CallError::Refused(refusal)) => {
                // An extension needs only that the server keeps the lock.
                let is_extension = self.extends().is_some();
                let is_curable = refusal.is_transient() || (is_extension && refusal.is_shortage());
                let outcome = self.refused(refusal);
                if !is_curable {
                    return Some(Err(outcome));
                }
                self.last_error = Some(outcome);
            }
        }
        servers.retry(context, owner);
        None
    }

    /// The plain commands were answered, or never will be. The script decides wherever they do not.
    fn take_answered(
        &mut self,
        context: &mut Context,
        servers: &mut Servers,
        op: OpId,
        finished: &Finished,
    ) -> Option<Result<Reply, Outcome>> {
        let owner = Owner::OneShot(op);
        // The token may have the locks: it gives them back if the script does not complete that.
        self.uncertain |= !matches!(
            finished.reply,
            Ok(Reply::Take(Take::Held | Take::Unseen)) | Err(CallError::Unsent)
        );
        match &finished.reply {
            Ok(Reply::Take(Take::Taken { last })) => {
                let last = *last;
                let before = last.saturating_sub(self.call.locks() as u64);
                if servers.data_of(self.call.keys()).may_follow(context.now, before) {
                    self.uncertain = false;
                    return Some(Ok(Reply::All((before + 1..=last).collect())));
                }
            }
            // A release serves the waiters whom it has overtaken.
            Ok(Reply::Take(Take::Held | Take::Overtaken)) => return Some(Ok(Reply::Owner(false))),
            Ok(_) => {}
            // Executed late, they may overtake those who wait: then no script may complete them.
            Err(CallError::Lost(_) | CallError::Halfway(_)) => return Some(Err(Outcome::OneByOne)),
            Err(_) => {
                self.become_script();
                servers.retry(context, owner);
                return None;
            }
        }
        self.become_script();
        servers.send(context, owner, self.call.clone(), Fallback::None);
        None
    }

    fn become_script(&mut self) {
        if let Call::TakeAll { first, others, ttl } = &self.call {
            let (first, others, ttl) = (first.clone(), others.clone(), *ttl);
            self.call = Call::AcquireAll { first, others, ttl, epoch: ServerTime::default() };
        }
    }

    /// Whether it is a forced release that was sent with its owners: a repeat could not tell what the first has done.
    fn may_have_freed(&self) -> bool {
        matches!(&self.call, Call::Force { seen, owners, .. } if seen.is_some() || !owners.is_empty())
    }

    /// Its outcome without a final answer in time.
    pub(super) fn overdue(&self, context: &Context, servers: &Servers, op: OpId) -> Outcome {
        let patience = context.config.command_timeout;
        let unanswered = || servers.no_answer(Owner::OneShot(op), self.call.keys(), patience);
        self.last_error.clone().unwrap_or_else(unanswered)
    }

    fn refused(&self, refusal: Refusal) -> Outcome {
        let keys = self.call.keys();
        let mut locks = self.call.clone().into_locks();
        let blamed = locks.find_map(|(keys, _)| keys.named_by(&refusal.detail));
        let key = Some(blamed.unwrap_or_else(|| keys.lock().to_owned()));
        Outcome::Server { refusal, key }
    }
}
