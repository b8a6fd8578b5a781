//! The effects of `acquire.lua`, `extend.lua`, `release.lua` and `wait_queue.lua`, and their keys.

use super::{CLAIM, CLIENTS_MAX, LEASE, Ticks, Variant};

/// Names a queue entry: its client, and its number there.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct Token {
    pub(super) client: usize,
    pub(super) attempt: usize,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Call {
    Acquire(Intent),
    Extend(Ticks),
    /// Sets the lease to `LEASE`.
    Renew,
    Release,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Intent {
    /// Enqueue, at this number or at the end.
    Join(Option<u8>),
    /// Keep an entry or a lock, and get neither anew.
    Poll,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Reply {
    Granted {
        fence: u8,
    },
    /// The caller does not own the lock; its number in the wait queue.
    Held(Option<u8>),
    Owner(bool),
}

/// Notifies a waiter that it was granted the lock.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct Grant {
    pub(super) token: Token,
    pub(super) fence: u8,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Server {
    pub(super) lock: Option<Lock>,
    /// The last fence issued.
    fence: u8,
    /// The wait queue, by number.
    queue: Vec<Entry>,
    last_number: u8,
    /// The token that was last granted the lock by message and is silent since.
    pub(super) unclaimed: Option<Token>,
    /// The clients that are subscribed to their inboxes.
    pub(super) subscribed: [bool; CLIENTS_MAX],
    /// An outgoing message.
    pub(super) published: Option<Grant>,
    /// How long waiters who cannot be told are still waited for, unless they were heard of since.
    awaits: Ticks,
    /// A later waiter got the lock before an earlier one who could be told, or was waited for.
    pub(super) overtaken: bool,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct Lock {
    pub(super) token: Token,
    /// When its lease ends; none if it never does.
    pub(super) left: Option<Ticks>,
    /// The has-waiters flag: the release must check the wait queue.
    marked: bool,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Entry {
    number: u8,
    token: Token,
    /// The client was heard of since a waiter who cannot be told was last found.
    heard: bool,
}

impl Server {
    pub(super) const fn new() -> Self {
        Self {
            lock: None,
            fence: 0,
            queue: Vec::new(),
            last_number: 0,
            unclaimed: None,
            subscribed: [true; CLIENTS_MAX],
            published: None,
            awaits: 0,
            overtaken: false,
        }
    }

    pub(super) fn execute(&mut self, variant: Variant, token: Token, call: Call) -> Reply {
        match call {
            Call::Acquire(intent) => self.acquire(variant, token, intent),
            Call::Extend(lease) => self.extend(variant, token, lease),
            Call::Renew => self.renew(variant, token),
            Call::Release => self.release(variant, token),
        }
    }

    /// Ends a lease that has expired.
    pub(super) fn tick(&mut self) {
        self.awaits = self.awaits.saturating_sub(1);
        if let Some(Lock { left: Some(left), .. }) = &mut self.lock {
            *left -= 1;
            if *left == 0 {
                self.lock = None;
            }
        }
    }

    fn acquire(&mut self, variant: Variant, token: Token, intent: Intent) -> Reply {
        let may_take = self.queue.is_empty() || variant == Variant::JumpsTheLine;
        if intent != Intent::Poll && may_take && self.lock.is_none() {
            self.pass_by(self.queue.len());
            return self.grant(token);
        }
        self.unclaimed = self.unclaimed.filter(|unclaimed| *unclaimed != token);
        if self.owner() == Some(token) {
            if variant != Variant::OwnerIsNotLengthened {
                self.lengthen(LEASE);
            }
            return Reply::Granted { fence: self.fence };
        }
        let number = self.enqueue(token, intent);
        if self.lock.is_none()
            && let Some(granted) = self.advance(variant, Some(token))
        {
            return granted;
        }
        if let Some(lock) = &mut self.lock
            && variant != Variant::WaitersLeaveNoMark
        {
            lock.marked |= number.is_some();
        }
        Reply::Held(number)
    }

    fn extend(&mut self, variant: Variant, token: Token, lease: Ticks) -> Reply {
        let owned = self.owner() == Some(token);
        match variant {
            Variant::ExtendShortens if owned => self.set(token, lease),
            Variant::ExtendSets => self.set(token, lease),
            _ if owned => self.lengthen(lease),
            _ => {}
        }
        Reply::Owner(owned)
    }

    /// The plain command, which compares the whole value.
    fn renew(&mut self, variant: Variant, token: Token) -> Reply {
        let is_equal = self.lock.is_some_and(|lock| lock.token == token && !lock.marked);
        if is_equal || variant == Variant::RenewalSets {
            self.set(token, LEASE);
        }
        Reply::Owner(is_equal)
    }

    fn release(&mut self, variant: Variant, token: Token) -> Reply {
        let owned = self.owner() == Some(token);
        if owned && self.lock.is_some_and(|lock| !lock.marked) {
            self.lock = None;
            return Reply::Owner(true);
        }
        self.unclaimed = self.unclaimed.filter(|unclaimed| *unclaimed != token);
        if owned || variant == Variant::ReleaseIsUnchecked {
            self.lock = None;
        } else {
            self.queue.retain(|entry| entry.token != token);
        }
        if self.lock.is_none() {
            self.advance(variant, None);
        }
        Reply::Owner(owned)
    }

    fn owner(&self) -> Option<Token> {
        self.lock.map(|lock| lock.token)
    }

    fn set(&mut self, token: Token, lease: Ticks) {
        self.lock = Some(Lock { token, left: Some(lease), marked: !self.queue.is_empty() });
    }

    fn lengthen(&mut self, lease: Ticks) {
        if let Some(Lock { left: Some(left), .. }) = &mut self.lock {
            *left = lease.max(*left);
        }
    }

    fn grant(&mut self, token: Token) -> Reply {
        self.set(token, LEASE);
        self.fence += 1;
        Reply::Granted { fence: self.fence }
    }

    /// Enqueues the caller, or keeps its entry: its number, if it has one now.
    fn enqueue(&mut self, token: Token, intent: Intent) -> Option<u8> {
        let index = self.queue.iter_mut().find(|entry| entry.token == token);
        if index.is_none() && intent == Intent::Poll {
            return None;
        }
        // Shows that its client is alive.
        self.unclaimed = self.unclaimed.filter(|unclaimed| unclaimed.client != token.client);
        if let Some(entry) = index {
            entry.heard = true;
            return Some(entry.number);
        }
        let number = if let Intent::Join(Some(number)) = intent {
            number
        } else {
            self.last_number += 1;
            self.last_number
        };
        self.queue.push(Entry { number, token, heard: true });
        self.queue.sort_unstable_by_key(|entry| entry.number);
        Some(number)
    }

    /// Grants the free lock to the first waiter who can be told or is waited for: the reply, if that is `caller`.
    fn advance(&mut self, variant: Variant, caller: Option<Token>) -> Option<Reply> {
        if let Some(silent) = self.unclaimed.take() {
            // The client let a whole claim pass.
            self.queue.retain(|entry| entry.token.client != silent.client);
        }
        while let Some(&entry) = self.queue.first() {
            let told = self.subscribed[entry.token.client] || caller == Some(entry.token);
            let awaited = !told && self.awaits(&entry);
            if !told && (!awaited || variant == Variant::NobodyIsAwaited) {
                // If the client returns, it has its number.
                self.overtaken |= awaited && self.queue.len() > 1;
                self.queue.remove(0);
                continue;
            }
            self.queue.remove(0);
            if caller == Some(entry.token) {
                return Some(self.grant(entry.token));
            }
            self.offer(variant, entry.token);
            return None;
        }
        None
    }

    /// Whether a waiter who cannot be told is waited for.
    fn awaits(&mut self, entry: &Entry) -> bool {
        if entry.heard {
            self.awaits = CLAIM;
            self.queue.iter_mut().for_each(|entry| entry.heard = false);
        }
        self.awaits > 0
    }

    /// Grants the free lock to a waiter for one claim, and notifies it.
    fn offer(&mut self, variant: Variant, token: Token) {
        self.unclaimed = Some(token);
        let endless = variant == Variant::GrantHasNoEnd;
        self.lock = Some(Lock { token, left: (!endless).then_some(CLAIM), marked: true });
        if variant != Variant::GrantKeepsFence {
            self.fence += 1;
        }
        self.published = Some(Grant { token, fence: self.fence });
    }

    /// The lock goes to a waiter behind the first `ahead` entries.
    fn pass_by(&mut self, ahead: usize) {
        self.overtaken |=
            self.queue[..ahead].iter().any(|entry| self.subscribed[entry.token.client]);
    }
}
