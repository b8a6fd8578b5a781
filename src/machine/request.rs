//! One request: the call of an owner on its way to a server, how it ends, and which are on their way.

use super::key_by_key::KeyByKey;
use super::timers::Owner;
use crate::protocol::{Call, Mono, NodeId, Refusal, Reply, RequestId, Script, SendMode};
use crate::slim::Slim;
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

/// A request in flight.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) owner: Owner,
    pub(super) call: Call,
    pub(super) send_mode: SendMode,
    fallback: Fallback,
    /// The calls, one for each key, of which this is one.
    key_by_key: Option<KeyByKey>,
}

/// The call that replaces another while the slot of a lock moves: it names only keys that certainly exist.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Fallback {
    /// Nothing: the owner decides.
    None,
    Extend,
    /// Calls by one key after the other.
    ExtendShare,
    Free,
    FreeShare,
    KeepEntry,
}

impl Fallback {
    /// The fallback of a call that makes a lease last. A claim also deletes the record of its grant, and while the slot of
    /// the lock moves, only the lock's own key is reliable. The record stays then: if this owner lets the lease run out, it
    /// counts as silent.
    pub(super) const fn of_extension(call: &Call) -> Self {
        match call {
            Call::ExtendShare { .. } => Self::ExtendShare,
            Call::Claim { .. } => Self::Extend,
            _ => Self::None,
        }
    }

    fn of(self, call: &Call) -> Option<Call> {
        let (keys, token) = (call.keys().clone(), call.token().clone());
        match self {
            Self::None => None,
            Self::Extend => Some(Call::Extend { keys, token, ttl: call.ttl() }),
            Self::ExtendShare => Some(KeyByKey::Alone.call(call)),
            Self::Free => Some(Call::Free { keys, token }),
            Self::FreeShare => Some(Call::FreeShare { keys, token }),
            Self::KeepEntry => Some(Call::KeepEntry { keys, token }),
        }
    }

    /// The fallback of this fallback: a share that was a whole lock before may still be one.
    const fn next(self) -> Self {
        if let Self::FreeShare = self { Self::Free } else { Self::None }
    }

    const fn key_by_key(self) -> Option<KeyByKey> {
        if let Self::ExtendShare = self { Some(KeyByKey::Alone) } else { None }
    }
}

impl Sent {
    pub(super) const fn new(owner: Owner, call: Call, fallback: Fallback) -> Self {
        Self { owner, call, send_mode: SendMode::Plain, fallback, key_by_key: None }
    }

    /// Replaces the call by its fallback. False if it has none.
    pub(super) fn fall_back(&mut self) -> bool {
        let Some(instead) = self.fallback.of(&self.call) else { return false };
        (self.call, self.send_mode) = (instead, SendMode::Plain);
        self.key_by_key = self.fallback.key_by_key();
        self.fallback = self.fallback.next();
        true
    }

    /// It is about to be sent once more. A plain renewal may then be executed after a longer extension that followed it, and
    /// end the lease too early: the script does not.
    pub(super) fn repeat(&mut self) {
        if let Call::Renew { keys, token, ttl } = &self.call {
            let (keys, token, ttl) = (keys.clone(), token.clone(), *ttl);
            self.call = Call::Extend { keys, token, ttl };
        }
    }

    /// The request ends without an answer. `awaited`: whether its owner still waits for one.
    pub(super) fn ended(&self, node: NodeId, sent: Mono, awaited: bool) -> Finished {
        let sent = self.key_by_key.and_then(KeyByKey::since).unwrap_or(sent);
        let (owner, script, ttl) = (self.owner, self.call.script(), self.call.ttl());
        let renews = matches!(self.call, Call::Renew { .. });
        let reply = Err(CallError::Unsent);
        Finished { owner, awaited, script, renews, ttl, node, sent, reply }
    }

    /// The reply, for its owner; none if another call follows it.
    pub(super) fn decided(&mut self, sent: Mono, reply: Reply) -> Option<Result<Reply, CallError>> {
        let Some(next) = self.key_by_key.and_then(|step| step.next(sent, &reply)) else {
            return Some(Ok(reply));
        };
        (self.call, self.send_mode) = (next.call(&self.call), SendMode::Plain);
        self.key_by_key = Some(next);
        None
    }
}

/// A request that has ended.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) owner: Owner,
    /// Whether its owner still waits for the answer.
    pub(super) awaited: bool,
    /// The script that was called, if it was one, and its lease.
    pub(super) script: Option<Script>,
    /// Whether the plain command that renews was called in its place.
    pub(super) renews: bool,
    pub(super) ttl: Duration,
    pub(super) node: NodeId,
    pub(super) sent: Mono,
    pub(super) reply: Result<Reply, CallError>,
}

/// Why a request has no reply of its script, as far as that matters to its owner: see [`Failure`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum CallError {
    Halfway(String),
    Lost(String),
    NoQuorum(Vec<String>),
    Refused(Refusal),
    /// The request was not executed, and the right server is not connected yet.
    Unsent,
}

/// The open request of each owner, by kinds of owners: for an uncontended lock most kinds have none, and are looked up at
/// no cost.
#[derive(Debug, Default)]
pub(super) struct Open([FxHashMap<u64, RequestId>; Owner::KINDS]);

impl Open {
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(FxHashMap::len).sum()
    }

    pub(super) fn has(&self, owner: Owner) -> bool {
        let (kind, number) = owner.parts();
        self.0[kind].contains_key(&number)
    }

    pub(super) fn insert(&mut self, owner: Owner, id: RequestId) {
        let (kind, number) = owner.parts();
        self.0[kind].insert(number, id);
    }

    /// Returns whether the owner had one.
    pub(super) fn remove(&mut self, owner: Owner) -> bool {
        let (kind, number) = owner.parts();
        let open = &mut self.0[kind];
        !open.is_empty() && open.remove(&number).is_some()
    }

    /// Removes the request `id`. Returns whether it was its owner's open one.
    pub(super) fn end(&mut self, owner: Owner, id: RequestId) -> bool {
        let (kind, number) = owner.parts();
        match self.0[kind].entry(number) {
            Entry::Occupied(open) if *open.get() == id => {
                open.remove();
                self.0[kind].slim();
                true
            }
            _ => false,
        }
    }
}
