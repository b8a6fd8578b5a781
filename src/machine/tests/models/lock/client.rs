//! A manager: its queue entries, its lease, its releases, and its connection.

use super::server::{Call, Grant, Intent, Reply, Token};
use super::{ATTEMPTS_MAX, CLAIM, LEASE, LONGER, POLL, Ticks, Variant};

/// A manager, reduced to one lock.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Client {
    pub(super) id: usize,
    pub(super) connection: Connection,
    pub(super) attempts: [Attempt; ATTEMPTS_MAX],
    /// Requests in flight, or with a reply in flight; the oldest first.
    pub(super) wire: Vec<Exchange>,
    /// Messages in flight, and their ages.
    pub(super) inbox: Vec<(Grant, Ticks)>,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Connection {
    Up,
    Down,
    /// The process has ended, or hangs forever.
    Dead,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct Exchange {
    pub(super) attempt: usize,
    pub(super) call: Call,
    /// Whether it extends the lease, or claims a grant.
    renews: bool,
    /// Its age.
    age: Ticks,
    /// The server's reply.
    pub(super) reply: Option<Reply>,
}

/// The state of a queue entry.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub(super) enum Attempt {
    #[default]
    NotBegun,
    Waiting(Waiting),
    Holding(Lease),
    Releasing(Release),
    Ended,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct Waiting {
    pub(super) position: QueuePosition,
    /// The ticks until it asks again; 0 if it does not by itself.
    poll: Ticks,
    /// A message granted the lock, but not for how long.
    hinted: bool,
    /// A request of this token was lost and may still be executed.
    pub(super) uncertain: bool,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum QueuePosition {
    Unknown,
    Queued(u8),
    /// The server has lost the entry; it gets its old position again.
    Lost(u8),
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct Lease {
    /// The client's remaining lease; never 0.
    pub(super) valid: Ticks,
    /// It was granted by a message, and the claim is not answered.
    pub(super) unclaimed: bool,
    uncertain: bool,
    renewed_by: RenewedBy,
}

/// As in the machine.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
enum RenewedBy {
    #[default]
    Command,
    Script,
    ScriptAfterLoss,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct Release {
    uncertain: bool,
    /// The server has answered once; only the repeat is left.
    confirmed: bool,
}

impl Client {
    pub(super) fn new(id: usize) -> Self {
        Self {
            id,
            connection: Connection::Up,
            attempts: Default::default(),
            wire: Vec::new(),
            inbox: Vec::new(),
        }
    }

    /// Begins to wait for the lock.
    pub(super) fn acquire(&mut self, variant: Variant) {
        let free = |attempt: &Attempt| match variant {
            Variant::TokenIsUsedAgain => matches!(attempt, Attempt::NotBegun | Attempt::Ended),
            _ => *attempt == Attempt::NotBegun,
        };
        if let Some(attempt) = self.attempts.iter().position(free) {
            let waiting = Waiting {
                position: QueuePosition::Unknown,
                poll: 0,
                hinted: false,
                uncertain: false,
            };
            self.ask(attempt, waiting);
        }
    }

    pub(super) fn extend(&mut self, attempt: usize, lease: Ticks) {
        if let Attempt::Holding(Lease { renewed_by, .. }) = &mut self.attempts[attempt]
            && *renewed_by == RenewedBy::Command
        {
            *renewed_by = RenewedBy::Script;
        }
        self.send(attempt, Call::Extend(lease), true);
    }

    /// Renews by the plain command.
    pub(super) fn renew(&mut self, attempt: usize) {
        self.send(attempt, Call::Renew, true);
    }

    /// Whether the plain command can shorten no lease that the client counts on.
    pub(super) fn may_renew(&self, variant: Variant, attempt: usize) -> bool {
        let Attempt::Holding(lease) = self.attempts[attempt] else { return false };
        let shortens = lease.renewed_by != RenewedBy::Command || lease.valid > LEASE;
        !lease.unclaimed
            && !self.is_extending(attempt)
            && (!shortens || variant == Variant::RenewalShortens)
    }

    /// Whether something of it is in flight or due.
    pub(super) fn is_busy(&self) -> bool {
        !self.wire.is_empty() || !self.inbox.is_empty() || self.connection == Connection::Down
    }

    /// The server sends a message to it.
    pub(super) fn publish(&mut self, grant: Grant) {
        if self.connection == Connection::Up {
            self.inbox.push((grant, 0));
        }
    }

    pub(super) fn is_extending(&self, attempt: usize) -> bool {
        self.wire.iter().any(|exchange| {
            exchange.attempt == attempt && matches!(exchange.call, Call::Extend(_) | Call::Renew)
        })
    }

    /// Gives up its lock or its wait.
    pub(super) fn release(&mut self, attempt: usize) {
        match self.attempts[attempt] {
            Attempt::Waiting(waiting) => {
                let unknown = waiting.uncertain || self.is_asking(attempt);
                if unknown || matches!(waiting.position, QueuePosition::Queued(_)) {
                    self.give_back(attempt, waiting.uncertain);
                } else {
                    self.attempts[attempt] = Attempt::Ended;
                }
            }
            Attempt::Holding(lease) => self.give_back(attempt, lease.uncertain),
            _ => {}
        }
    }

    /// Handles the oldest reply. If a hold begins with it, returns its fence.
    pub(super) fn handle_reply(&mut self, variant: Variant) -> Option<u8> {
        let exchange = self.wire.remove(0);
        let age = if variant == Variant::ValidFromReply { 0 } else { exchange.age };
        let (attempt, reply) = (exchange.attempt, exchange.reply?);
        match self.attempts[attempt] {
            Attempt::Waiting(waiting) if exchange.is_attempt() => {
                return self.attempt_reply(variant, attempt, waiting, age, reply);
            }
            Attempt::Holding(lease) if exchange.renews => {
                self.renewal_reply(variant, attempt, lease, exchange.call, age, reply);
            }
            Attempt::Releasing(release) if exchange.call == Call::Release => {
                let repeat = release.uncertain && !release.confirmed;
                self.attempts[attempt] = if repeat {
                    Attempt::Releasing(Release { confirmed: true, ..release })
                } else {
                    Attempt::Ended
                };
            }
            _ => {}
        }
        None
    }

    fn attempt_reply(
        &mut self,
        variant: Variant,
        attempt: usize,
        waiting: Waiting,
        age: Ticks,
        reply: Reply,
    ) -> Option<u8> {
        let valid = LEASE.saturating_sub(age);
        match reply {
            Reply::Granted { fence } if valid > 0 => {
                self.hold(attempt, waiting, valid, false);
                return Some(fence);
            }
            Reply::Granted { .. } if variant == Variant::LateGrantEndsWaiting => {
                self.attempts[attempt] = Attempt::Waiting(waiting);
            }
            // The granted lease has ended, or nearly so; the waiter asks again.
            Reply::Granted { .. } => self.ask(attempt, Waiting { uncertain: true, ..waiting }),
            Reply::Held(number) => self.held_by_another(variant, attempt, waiting, number),
            Reply::Owner(_) => unreachable!("not a reply of acquire"),
        }
        None
    }

    fn held_by_another(
        &mut self,
        variant: Variant,
        attempt: usize,
        waiting: Waiting,
        number: Option<u8>,
    ) {
        let position = match (waiting.position, number) {
            (_, Some(number)) => QueuePosition::Queued(number),
            (QueuePosition::Queued(number) | QueuePosition::Lost(number), None) => {
                QueuePosition::Lost(number)
            }
            (QueuePosition::Unknown, None) => QueuePosition::Unknown,
        };
        let waiting = Waiting { position, ..waiting };
        if waiting.hinted || matches!(position, QueuePosition::Lost(_)) {
            return self.ask(attempt, waiting);
        }
        let poll = if variant == Variant::NobodyPolls { 0 } else { POLL };
        self.attempts[attempt] = Attempt::Waiting(Waiting { poll, ..waiting });
    }

    fn renewal_reply(
        &mut self,
        variant: Variant,
        attempt: usize,
        lease: Lease,
        call: Call,
        age: Ticks,
        reply: Reply,
    ) {
        let longest = match lease.renewed_by {
            // It may be executed after the longer extension.
            RenewedBy::ScriptAfterLoss if variant != Variant::LostRenewalIsForgotten => LEASE,
            _ => LONGER,
        };
        let asked = if let Call::Extend(asked) = call { asked.min(longest) } else { LEASE };
        match reply {
            // The value may have a mark, which the script takes for the holder's.
            Reply::Owner(false) if call == Call::Renew && variant != Variant::RenewalDecides => {
                self.extend(attempt, LEASE);
            }
            Reply::Granted { .. } | Reply::Owner(true) => {
                let valid = lease.valid.max(asked.saturating_sub(age));
                let unclaimed = lease.unclaimed && matches!(call, Call::Extend(_));
                self.attempts[attempt] = Attempt::Holding(Lease { valid, unclaimed, ..lease });
            }
            Reply::Owner(false) | Reply::Held(None) if !lease.uncertain => {
                self.attempts[attempt] = Attempt::Ended;
            }
            Reply::Owner(false) | Reply::Held(_) => self.give_back(attempt, true),
        }
    }

    /// Handles the oldest message. If a hold begins with it, returns its fence. A message is dated exactly,
    /// which is the latest date that the machine may use.
    pub(super) fn handle_message(&mut self, variant: Variant, dated: bool) -> Option<u8> {
        let (grant, age) = self.inbox.remove(0);
        let age = if variant == Variant::ValidFromArrival { 0 } else { age };
        let attempt = grant.token.attempt;
        match self.attempts[attempt] {
            Attempt::Waiting(waiting) if dated && age < CLAIM => {
                self.hold(attempt, waiting, CLAIM - age, true);
                return Some(grant.fence);
            }
            Attempt::Waiting(waiting) if self.is_asking(attempt) => {
                self.attempts[attempt] = Attempt::Waiting(Waiting { hinted: true, ..waiting });
            }
            Attempt::Waiting(waiting) => self.ask(attempt, waiting),
            Attempt::Releasing(_) => self.send_release(attempt),
            // The token is unknown here, but it owns a lock.
            Attempt::NotBegun | Attempt::Ended => self.give_back(attempt, false),
            Attempt::Holding(_) => {}
        }
        None
    }

    /// The connection is lost. Returns the requests that the server may still execute.
    pub(super) fn disconnect(&mut self, connection: Connection) -> Vec<(Token, Call)> {
        self.connection = connection;
        self.inbox.clear();
        let wire = std::mem::take(&mut self.wire);
        for exchange in &wire {
            match &mut self.attempts[exchange.attempt] {
                Attempt::Waiting(Waiting { uncertain, .. })
                | Attempt::Holding(Lease { uncertain, .. })
                    if exchange.is_attempt() =>
                {
                    *uncertain = true;
                }
                Attempt::Holding(lease) if exchange.call == Call::Renew => {
                    lease.renewed_by = RenewedBy::ScriptAfterLoss;
                }
                Attempt::Releasing(release) if exchange.call == Call::Release => {
                    release.uncertain = true;
                }
                _ => {}
            }
        }
        if connection == Connection::Dead {
            self.attempts = [Attempt::Ended; ATTEMPTS_MAX];
        }
        let unanswered = wire.iter().filter(|exchange| exchange.reply.is_none());
        unanswered.map(|exchange| (self.token(exchange.attempt), exchange.call)).collect()
    }

    /// Reconnected: sends all unanswered requests again, releases first.
    pub(super) fn connect(&mut self) {
        self.connection = Connection::Up;
        for attempt in 0..ATTEMPTS_MAX {
            if matches!(self.attempts[attempt], Attempt::Releasing(_)) {
                self.send_release(attempt);
            }
        }
        for attempt in 0..ATTEMPTS_MAX {
            match self.attempts[attempt] {
                Attempt::Holding(lease) if lease.unclaimed => self.claim(attempt),
                Attempt::Waiting(waiting) => self.ask(attempt, waiting),
                _ => {}
            }
        }
    }

    pub(super) fn tick(&mut self, variant: Variant) {
        for exchange in &mut self.wire {
            exchange.age = LONGER.min(exchange.age + 1);
        }
        for (_, age) in &mut self.inbox {
            *age = CLAIM.min(*age + 1);
        }
        for attempt in 0..ATTEMPTS_MAX {
            match &mut self.attempts[attempt] {
                Attempt::Waiting(waiting) if waiting.poll > 0 => {
                    waiting.poll -= 1;
                    let waiting = *waiting;
                    if waiting.poll == 0 {
                        self.ask(attempt, waiting);
                    }
                }
                Attempt::Holding(lease) => {
                    lease.valid -= 1;
                    if lease.valid == 0 {
                        self.lease_end(variant, attempt);
                    }
                }
                Attempt::Releasing(release) if release.confirmed => self.send_release(attempt),
                _ => {}
            }
        }
    }

    fn lease_end(&mut self, variant: Variant, attempt: usize) {
        if variant == Variant::LossIsNotGivenBack {
            self.attempts[attempt] = Attempt::Ended;
        } else {
            self.release(attempt);
        }
    }

    fn hold(&mut self, attempt: usize, waiting: Waiting, valid: Ticks, unclaimed: bool) {
        let (uncertain, renewed_by) = (waiting.uncertain, RenewedBy::default());
        let lease = Lease { valid, unclaimed, uncertain, renewed_by };
        self.attempts[attempt] = Attempt::Holding(lease);
        if unclaimed {
            self.claim(attempt);
        }
    }

    fn ask(&mut self, attempt: usize, waiting: Waiting) {
        let intent = match waiting.position {
            QueuePosition::Unknown => Intent::Join(None),
            QueuePosition::Queued(_) => Intent::Poll,
            QueuePosition::Lost(number) => Intent::Join(Some(number)),
        };
        self.attempts[attempt] = Attempt::Waiting(Waiting { poll: 0, hinted: false, ..waiting });
        self.send(attempt, Call::Acquire(intent), false);
    }

    fn claim(&mut self, attempt: usize) {
        self.send(attempt, Call::Acquire(Intent::Poll), true);
    }

    fn give_back(&mut self, attempt: usize, uncertain: bool) {
        self.attempts[attempt] = Attempt::Releasing(Release { uncertain, confirmed: false });
        self.send_release(attempt);
    }

    fn send_release(&mut self, attempt: usize) {
        let is_this =
            |exchange: &Exchange| exchange.attempt == attempt && exchange.call == Call::Release;
        if !self.wire.iter().any(is_this) {
            self.send(attempt, Call::Release, false);
        }
    }

    fn send(&mut self, attempt: usize, call: Call, renews: bool) {
        if self.connection == Connection::Up {
            self.wire.push(Exchange { attempt, call, renews, age: 0, reply: None });
        }
    }

    fn is_asking(&self, attempt: usize) -> bool {
        self.wire.iter().any(|exchange| exchange.attempt == attempt && exchange.is_attempt())
    }

    fn token(&self, attempt: usize) -> Token {
        Token { client: self.id, attempt }
    }
}

impl Exchange {
    /// Whether it requests the lock, rather than keeping it or giving it up.
    fn is_attempt(&self) -> bool {
        !self.renews && self.call != Call::Release
    }
}
