//! Judges every script call of a simulated server by its effect on the lock: the rules of `docs/protocol.md`,
//! implemented a second time and without the scripts.

use super::snapshot::{
    Reach, SHARED, Share, Snapshot, Waiter, bare, is_foreign, lone_share, permits,
};
use super::theft_rules::Thefts;
use super::world::COMMAND_TIMEOUT;
use crate::protocol::{CLAIM, Call, Grant, Intent, Mode, Reply, Script, ServerTime, Taken, Token};
use crate::server::embedded::{Plain, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// The client id in a token.
fn client(token: &str) -> &str {
    token.split('.').nth(1).unwrap_or("")
}

/// The history of calls that the next one is judged by.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// The highest reserved fence.
    pub(super) highest: u64,
    /// The last fence reserved for each hold.
    pub(super) reserved: BTreeMap<String, u64>,
    /// The numbers of the queue entries of each token.
    numbers: BTreeMap<String, BTreeSet<u64>>,
    /// The last token that was granted the whole lock by message and is silent since.
    pub(super) silent: Option<String>,
    /// The tokens that were granted shares by message and have not claimed them, and when, in ms.
    pub(super) silent_shares: BTreeMap<String, u64>,
    /// The thefts.
    pub(super) thefts: Thefts,
    /// The latest grant of each token.
    pub(super) granted: BTreeMap<String, Granted>,
    /// The token that has taken the lock by a plain command while others waited.
    pub(super) overtaking: Option<String>,
    /// The tokens that have taken the lock by a plain command, until the next plain command fails to, and the first fence
    /// that they reserved with it; 0 if that is unknown.
    by_plain: BTreeMap<String, u64>,
    /// The tokens that have taken the lock by a plain command, though it was another's soon after or others waited, and the
    /// first fence that they are not to use. No script has granted it to them since.
    pub(super) void: BTreeMap<String, u64>,
    /// Whether the fence counter has an expiry.
    pub(super) counters_end: bool,
    /// The latest time that the server's clock has shown, which may have been set back since.
    latest: ServerTime,
    /// The first broken rule.
    pub(super) violation: Option<String>,
}

/// A grant: its call, and the replication id of the data.
#[derive(Clone, Debug)]
pub(super) struct Granted {
    /// The number of the call.
    pub(super) number: usize,
    pub(super) replication_id: Rc<str>,
}

/// One executed call.
pub(super) struct Executed<'a> {
    /// Its number among all calls.
    pub(super) when: usize,
    /// The replication id of the data.
    pub(super) replication_id: &'a Rc<str>,
    pub(super) time: ServerTime,
    pub(super) call: &'a Call,
    /// The token for this lock: each of several locks has its own.
    pub(super) token: &'a Token,
    /// The index of this lock in the call.
    pub(super) number: usize,
    /// Whether a call for several locks may get all of them.
    pub(super) all_free: bool,
    pub(super) before: &'a Snapshot,
    pub(super) after: &'a Snapshot,
    /// None if the server refused.
    pub(super) reply: Option<&'a Reply>,
    /// The published grants, one list for each message.
    pub(super) messages: &'a [Vec<Grant>],
    /// The published losses.
    pub(super) taken: &'a [Taken],
    /// Whether the manager of a token is subscribed.
    pub(super) listens: &'a dyn Fn(&str) -> bool,
}

/// A candidate for the lock.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Candidate<'a> {
    /// Higher numbers come later; the server orders equal ones by token.
    seq: u64,
    token: &'a str,
    limit: Option<usize>,
}

/// The owner that the caller of plain commands is, or its lone share.
fn owner_of(token: &Token) -> &str {
    lone_share(token.as_str()).unwrap_or(token.as_str())
}

impl Executed<'_> {
    pub(super) fn now_ms(&self) -> u64 {
        self.time.as_micros() / 1_000
    }

    pub(super) fn token(&self) -> &str {
        owner_of(self.token)
    }

    /// The share that is a lone one no more, and is now in the set.
    fn collected(&self) -> Option<&Share> {
        let lone = self.before.lone().filter(|_| self.after.lone().is_none())?;
        self.after.shares.iter().find(|share| share.token == lone.token)
    }

    pub(super) fn intent(&self) -> Option<Intent> {
        if let Call::Acquire { intent, .. } = self.call { Some(intent.clone()) } else { None }
    }

    pub(super) fn is_release(&self) -> bool {
        matches!(self.call, Call::Release { .. })
    }

    /// Whether the caller gives up its lock or share, in any case.
    pub(super) fn gives_up(&self) -> bool {
        match self.call {
            Call::Release { .. } | Call::FreeShare { .. } => true,
            Call::Delete { token, .. } => self.before.value.as_deref() == Some(token.as_str()),
            // It knows nothing of a set of shares.
            Call::Free { .. } => {
                self.before.owner() == Some(self.token())
                    || self.before.lone().is_some_and(|share| share.token == self.token())
            }
            _ => false,
        }
    }

    /// Whether the caller's whole lock becomes a share by this call.
    fn is_downgrade(&self) -> bool {
        matches!(self.call, Call::Downgrade { .. }) && self.before.owner() == Some(self.token())
    }

    /// The token whose lock the caller adopts by this call.
    pub(super) fn adopted(&self) -> Option<&str> {
        let Call::Adopt { owner, .. } = self.call else { return None };
        // By the same token it only gets a later fence.
        let owned = self.before.held_ms(owner.as_str()).is_some() && owner != self.token;
        (owned && matches!(self.reply, Some(Reply::Granted { .. }))).then(|| owner.as_str())
    }

    /// The tokens of a share's giver and its successor in this call.
    fn passed(&self) -> Option<(&str, &str)> {
        let Call::HandoffShare { token, successor, .. } = self.call else { return None };
        let shares = self.before.shares.iter().any(|share| share.token == token.as_str());
        (shares && matches!(self.reply, Some(Reply::HandedOff { .. })))
            .then(|| (token.as_str(), successor.as_str()))
    }

    /// Whether this call, apart from its grants, leaves room for waiters; then it checks the wait queue.
    fn opens(&self) -> bool {
        if matches!(self.call, Call::Force { .. }) {
            // While the lock is held, a force without a seen fence only asks.
            return self.is_theft() || self.before.is_free();
        }
        let owner = self.before.owner();
        let freed = (self.is_release() || self.is_downgrade()) && owner == Some(self.token());
        let kept = matches!(
            self.call,
            Call::Adopt { .. }
                | Call::Claim { .. }
                | Call::Delete { .. }
                | Call::Downgrade { .. }
                | Call::Extend { .. }
                | Call::ExtendShare { .. }
                | Call::Free { .. }
                | Call::FreeShare { .. }
                | Call::KeepEntry { .. }
                | Call::KeepForeign { .. }
                | Call::KeepLock { .. }
                | Call::KeepShare { .. }
                | Call::HandoffShare { .. }
                | Call::Renew { .. }
                | Call::Reserve { .. }
        );
        let confirms = self.intent().is_some() && self.before.held_ms(self.token()).is_some();
        self.is_downgrade() || self.is_theft() || (!kept && !confirms && (freed || owner.is_none()))
    }

    /// The number of permits that are held before any grant by this call.
    fn sharing(&self) -> usize {
        let leaving = |it: &Share| self.gives_up() && it.token == self.token();
        let staying = self.before.shares.iter().filter(|it| !leaving(it));
        let held = if self.is_theft() { 0 } else { staying.map(Share::permits).sum() };
        held + usize::from(self.is_downgrade())
    }

    /// The queue entry that the caller requests or has.
    fn own_entry(&self) -> Option<Candidate<'_>> {
        let Call::Acquire { intent, mode, .. } = self.call else { return None };
        let behind = self.before.line.last().map_or(0, |last| last.seq + 1);
        let token = self.token();
        let limit = match mode {
            Mode::Exclusive => None,
            Mode::Shared { limit, .. } => {
                Some(limit.map_or(0, |limit| usize::try_from(limit.get()).unwrap()))
            }
        };
        let seq = match (intent, self.before.waiter(token)) {
            (Intent::Join(Some(seq)), Some(waiter)) => waiter.seq.max(*seq),
            (_, Some(waiter)) => waiter.seq,
            (Intent::Join(Some(seq)), None) => *seq,
            (Intent::Join(None), None) => behind,
            // After all others.
            (Intent::Try, None) => u64::MAX,
            // Before all others.
            (Intent::Steal(_), None) if self.steals() => 0,
            (Intent::Steal(_) | Intent::Poll, None) => return None,
        };
        Some(Candidate { seq, token, limit })
    }
}

/// One of the locks of a call of plain commands.
pub(super) struct OfOne<'a> {
    pub(super) call: &'a Call,
    /// The lock's place among those of the call.
    pub(super) place: usize,
    pub(super) token: &'a Token,
}

impl Watch {
    /// Records the first rule that a call breaks.
    pub(super) fn judge(&mut self, done: &Executed<'_>) {
        self.latest = self.latest.max(done.time);
        let verdict = if done.reply.is_none() { refused(done) } else { self.executed(done) };
        if let (Err(broken), None) = (verdict, &self.violation) {
            let Executed { call, before, after, .. } = done;
            self.violation = Some(format!("{broken}: {call:?}\n  {before:?}\n  {after:?}"));
        }
    }

    fn executed(&mut self, done: &Executed<'_>) -> Result<(), String> {
        let had = |token: &str| done.before.held_ms(token).is_some();
        for (token, _) in done.after.holders().filter(|(token, _)| !had(token)) {
            self.grant(done, token);
        }
        self.ends_are_right(done)?;
        if matches!(done.call, Call::AcquireAll { .. }) {
            return self.together(done);
        }
        self.heard(done);
        let successors = if done.opens() { self.successors(done) } else { Vec::new() };
        // A waiter that plain commands have made the holder gets the lock anew if that is taken from it by force.
        for successor in successors.iter().filter(|successor| had(successor.token)) {
            self.grant(done, successor.token);
        }
        holders_are_right(done, &successors)?;
        leases_are_right(done)?;
        self.fences_are_right(done, &successors)?;
        self.queue_is_right(done)?;
        self.mark_is_right(done)?;
        flag_is_right(done)?;
        messages_are_right(done, &successors)?;
        self.thefts.judge(done)?;
        self.remember_silence(done, &successors);
        records_are_right(done)
    }

    /// Only the fence counter of a single lock has an expiry, which never moves.
    fn ends_are_right(&self, done: &Executed<'_>) -> Result<(), String> {
        let (before, after) = (done.before, done.after.fence_ms);
        let due = match (&before.fence, &done.after.fence) {
            (None, Some(_)) if self.counters_end => FENCE_MS,
            (None, Some(_)) => -1,
            _ => before.fence_ms,
        };
        expect(after == due, &format!("the fences are kept for {after} ms, and {due} are due"))
    }

    fn grant(&mut self, done: &Executed<'_>, token: &str) {
        let (number, replication_id) = (done.when, Rc::clone(done.replication_id));
        self.void.remove(token);
        self.granted.insert(token.to_owned(), Granted { number, replication_id });
    }

    /// One of several locks requested together: all are granted, or none is changed.
    fn together(&mut self, done: &Executed<'_>) -> Result<(), String> {
        let Some(Reply::All(fences)) = done.reply else {
            expect(!done.all_free, "several free locks were not given")?;
            return expect(done.before == done.after, "a set that was not given was touched");
        };
        expect(done.all_free, "several locks were given, and not all of them were free")?;
        expect(done.after.owner() == Some(done.token()), "one of several locks is not given")?;
        let Call::AcquireAll { ttl, .. } = done.call else { return Ok(()) };
        let ttl_ms = i64::try_from(ttl.as_millis()).unwrap();
        let had_ms = done.before.held_ms(done.token());
        let due_ms = had_ms.map_or(ttl_ms, |had_ms| had_ms.max(ttl_ms));
        let given_ms = done.after.remaining_ms;
        expect(given_ms == due_ms, &format!("{due_ms} ms are due, {given_ms} ms given"))?;
        let (fence, highest) = (fences[done.number], self.highest);
        expect(fence > highest, &format!("the fence {fence} after {highest}"))?;
        expect(done.after.counter() >= Some(fence), "the counter is behind a fence given")?;
        self.reserved.insert(done.token().to_owned(), fence);
        self.highest = self.highest.max(done.after.counter().unwrap_or(0));
        self.mark_is_right(done)?;
        messages_are_right(done, &[])?;
        self.thefts.judge(done)
    }

    /// The lock is found with a value: plain commands may have set it, also ahead of waiters.
    pub(super) fn find(&mut self, value: Option<String>) {
        let token = value.as_deref().map(bare);
        let owner = token.map(|token| lone_share(token).unwrap_or(token).to_owned());
        self.by_plain.extend(owner.map(|owner| (owner, 0)));
        self.overtaking = value;
    }

    /// Records the first rule that a plain command breaks.
    pub(super) fn judge_plain(
        &mut self,
        of_one: &OfOne<'_>,
        part: Plain,
        (before, after): (&Snapshot, &Snapshot),
        value: &Value,
        granted: Granted,
    ) {
        let verdict = self.plain(of_one, part, (before, after), value, granted);
        if let (Err(broken), None) = (verdict, &self.violation) {
            let call = of_one.call;
            self.violation =
                Some(format!("{broken}: {part:?} {call:?}\n  {before:?}\n  {after:?}"));
        }
    }

    fn plain(
        &mut self,
        of_one: &OfOne<'_>,
        part: Plain,
        (before, after): (&Snapshot, &Snapshot),
        value: &Value,
        granted: Granted,
    ) -> Result<(), String> {
        let OfOne { call, place, token } = *of_one;
        let (ttl, block, several) = match call {
            Call::Take { ttl, block, .. } => (ttl, u64::from(*block), false),
            Call::TakeAll { ttl, .. } => (ttl, call.locks() as u64, true),
            _ => return Ok(()),
        };
        let is_taken = before.value.is_none() && (!several || *value == Value::Int(1));
        let owner = owner_of(token);
        // Others may have come between the commands, and have gone: their mark stays.
        let keeps = before.value.as_deref().map(bare) == Some(token.as_str());
        let expected = match part {
            Plain::Set if is_taken => {
                self.granted.insert(owner.to_owned(), granted);
                self.thefts.taken(owner);
                self.by_plain.insert(owner.to_owned(), 0);
                if !before.line.is_empty() {
                    self.overtaking = Some(token.to_string());
                }
                let remaining_ms = i64::try_from(ttl.as_millis()).unwrap();
                let value = Some(token.to_string());
                let lone = lone_share(token.as_str());
                let lone = lone.map(|token| Share::lone(token, remaining_ms));
                Snapshot {
                    value,
                    remaining_ms,
                    shares: lone.into_iter().collect(),
                    ..before.clone()
                }
            }
            Plain::Set => {
                self.by_plain.remove(owner);
                before.clone()
            }
            Plain::Incrby if !matches!(value, Value::ServerError(_)) => {
                let last = before.raw_counter().unwrap_or(0) + block;
                if let Some(first) = self.by_plain.get_mut(owner) {
                    *first = last + 1 - block;
                }
                if self.by_plain.contains_key(owner) && keeps {
                    // Each of several locks has one of the fences.
                    let own = if several { last + 1 - block + place as u64 } else { last };
                    self.reserved.insert(owner.to_owned(), own);
                }
                // What other code has raised issues no fence.
                if !before.has_no_fences() {
                    self.highest = self.highest.max(last);
                }
                let (fence, fence_ms) = (Some(last.to_string()), after.fence_ms);
                Snapshot { fence, fence_ms, ..before.clone() }
            }
            Plain::Incrby => before.clone(),
            Plain::Mget => {
                let taken = self.by_plain.get(owner).filter(|_| before.waiting || !keeps);
                if let Some(first) = taken.copied() {
                    let void = self.void.entry(owner.to_owned()).or_insert(first);
                    *void = first.min(*void);
                }
                before.clone()
            }
        };
        expect(*after == expected, "a plain command did something else")
    }

    /// With waiters, the lock has the has-waiters flag, or its release would ignore them. A lock that was taken by a plain
    /// command, ahead of them, has it from the next script on that looks at the queue.
    fn mark_is_right(&mut self, done: &Executed<'_>) -> Result<(), String> {
        let Some(value) = done.after.value.as_deref() else { return Ok(()) };
        if is_foreign(value) {
            let kept = done.before.value.as_deref() == Some(value);
            return expect(kept, "foreign code's value changed");
        }
        self.overtaking.take_if(|token| token != value);
        let confirms = matches!(done.reply, Some(Reply::Granted { .. } | Reply::All(_)));
        let stands = !done.after.line.is_empty() && (confirms || self.overtaking.is_none());
        let marked = value.ends_with('+');
        expect(!stands || marked, "somebody waits, and the lock's value does not say so")
    }

    /// A process that claims its grant, or enqueues again, is not silent.
    fn heard(&mut self, done: &Executed<'_>) {
        if done.is_theft() {
            self.silent = None;
            self.silent_shares.clear();
        }
        let collects = matches!(done.call, Call::Release { .. })
            && done.before.lone().is_some()
            && !done.before.line.is_empty();
        // Plain commands may have taken the whole lock ahead of whoever would have purged the shares before it.
        let of_whole_lock = done.is_downgrade()
            || done.adopted().is_some_and(|owner| done.before.owner() == Some(owner));
        if collects || done.collected().is_some() || of_whole_lock {
            // The set of the shares begins anew, without the records of earlier grants.
            self.silent_shares.clear();
        }
        // Calls with only the lock's key cannot claim a grant by message.
        let alone = matches!(
            done.call,
            Call::Delete { .. }
                | Call::Extend { .. }
                | Call::Free { .. }
                | Call::KeepEntry { .. }
                | Call::KeepForeign { .. }
                | Call::KeepLock { .. }
                | Call::Renew { .. }
                | Call::Reserve { .. }
        );
        // Nor does a caller that waits for an owner: its entry is newer than the grant, unless the clock was set back. Behind
        // other code's value it does: the script reads all keys of such a lock.
        let waits = matches!(done.intent(), Some(Intent::Join(_)))
            && done.before.owner().is_some_and(|it| it != done.token() && !is_foreign(it));
        if !alone && !waits {
            self.silent_shares.remove(done.token());
        }
        let shares = matches!(
            done.call,
            Call::ExtendShare { .. } | Call::FreeShare { .. } | Call::KeepShare { .. }
        );
        let claims = !alone && !shares;
        if let Some(owner) = done.adopted() {
            self.silent_shares.remove(owner);
            self.silent.take_if(|_| done.before.owner() == Some(owner));
        }
        let Some(silent) = &self.silent else { return };
        let joins = matches!(done.intent(), Some(Intent::Join(_)))
            || (done.intent().is_some() && done.before.waiter(done.token()).is_some());
        if (claims && done.token() == silent) || (joins && client(silent) == client(done.token())) {
            self.silent = None;
        }
    }

    /// The tokens that should get the lock or shares of it by this call, in order: the first waiter that is not waited
    /// for in vain, and the next ones that may share with it.
    fn successors<'a>(&self, done: &'a Executed<'_>) -> Vec<Candidate<'a>> {
        if done.before.has_no_fences() {
            // A release frees the lock all the same.
            return Vec::new();
        }
        let lone = done.before.lone();
        let eligible = done.before.line.iter().filter(|waiter| {
            waiter.token != done.token()
                // Plain commands that arrived late have granted the waiter its share.
                && lone.is_none_or(|share| share.token != waiter.token)
                && waiter.deadline_ms >= done.now_ms()
                && !self.is_purged(done, waiter)
        });
        let candidates = eligible.map(|waiter| Candidate {
            seq: waiter.seq,
            token: &waiter.token,
            limit: waiter.limit,
        });
        let mut candidates: Vec<_> = candidates.chain(done.own_entry()).collect();
        candidates.sort_unstable();
        let (mut sharing, mut successors) = (done.sharing(), Vec::new());
        let mut unreached_ms = done.before.unreached_ms;
        for candidate in candidates {
            let waiter = done.before.waiter(candidate.token);
            let gone = waiter.filter(|it| it.reach == Reach::Gone && it.token != done.token());
            if gone.is_some_and(|gone| !gone.is_awaited(&mut unreached_ms, done.now_ms())) {
                continue;
            }
            match candidate.limit {
                None if sharing == 0 => return vec![candidate],
                Some(limit)
                    if limit == 0
                        || sharing == 0
                        || sharing + permits(candidate.token) <= limit =>
                {
                    sharing += permits(candidate.token);
                }
                _ => break,
            }
            successors.push(candidate);
        }
        successors
    }

    /// Whether a silent claim of its process cost this waiter its entry.
    fn is_purged(&self, done: &Executed<'_>, waiter: &Waiter) -> bool {
        let client = client(&waiter.token);
        // Plain commands may have taken the lock since, which know nothing of the record. Scripts then found the lock held, and may
        // have let others share it. So the record stands until a script finds the lock free, or has freed it.
        let is_gone = |owner: &str| done.after.held_ms(owner).is_none();
        let is_freed = done.before.holders().all(|(owner, _)| is_gone(owner));
        let silent = self.silent.as_deref().filter(|_| is_freed);
        let ended = |token: &str| done.before.held_ms(token).is_none();
        let heard_ms = waiter.deadline_ms.saturating_sub(LIVENESS_MS);
        // If the clock was set back, a request may seem to come after now.
        let heard_since = |ms: u64| heard_ms > ms;
        let shares = self.silent_shares.iter().filter(|(token, _)| ended(token));
        silent.is_some_and(|it| self::client(it) == client && !heard_since(done.now_ms()))
            || shares
                .into_iter()
                .any(|(token, at)| self::client(token) == client && !heard_since(*at))
    }

    fn remember_silence(&mut self, done: &Executed<'_>, successors: &[Candidate<'_>]) {
        if !done.opens() {
            return;
        }
        if done.before.is_free() || done.before.owner() == Some(done.token()) {
            self.silent = None;
        }
        // Whoever takes a free lock that nobody waits for leaves the records of its shares.
        let leaves = done.before.is_free() && done.before.line.is_empty();
        if !leaves || done.after.owner().is_none() {
            self.silent_shares.retain(|token, _| done.before.held_ms(token).is_some());
        }
        for successor in successors.iter().filter(|successor| successor.token != done.token()) {
            if successor.limit.is_some() {
                self.silent_shares.insert(successor.token.to_owned(), done.now_ms());
            } else {
                self.silent = Some(successor.token.to_owned());
            }
        }
    }

    /// Every grant's fence is above all earlier ones; a hold keeps its own.
    fn fences_are_right(
        &mut self,
        done: &Executed<'_>,
        successors: &[Candidate<'_>],
    ) -> Result<(), String> {
        let counter = done.after.counter().unwrap_or(0);
        let granted = match done.reply {
            Some(
                Reply::Granted { fence }
                | Reply::Joined { fence }
                | Reply::HandedOff { fence, .. }
                | Reply::Reserved { fence, .. },
            ) => Some(*fence),
            _ => None,
        };
        if granted.is_some() && done.after.shares.iter().any(|share| share.token == done.token()) {
            // Others have joined the lone share of the caller, which got another fence by that.
            self.void.remove(done.token());
            // A replica in place of its primary has only seen that the caller has the share.
            if !self.granted.contains_key(done.token()) {
                self.grant(done, done.token());
            }
        }
        if let Some(share) = done.collected() {
            let (fence, highest) = (share.fence, self.highest);
            expect(fence > highest, &format!("the fence {fence} after {highest}"))?;
            self.reserved.insert(share.token.clone(), fence);
            self.highest = fence;
        }
        for successor in successors {
            let notified = done
                .messages
                .iter()
                .flatten()
                .find(|grant| grant.token.as_str() == successor.token);
            let share = done.after.shares.iter().find(|share| share.token == successor.token);
            let fence =
                share.map(|share| share.fence).or_else(|| notified.map(|grant| grant.fence));
            let fence = fence.or(granted).unwrap_or(counter);
            let highest = self.highest;
            expect(fence > highest, &format!("the fence {fence} after {highest}"))?;
            let epoch = match done.call {
                // In a Cluster it may have waited on another server, with that one's epoch.
                Call::Acquire { epoch, .. } if successor.token == done.token() => epoch.as_micros(),
                _ => done.before.waiter(successor.token).map_or(0, |waiter| waiter.epoch),
            };
            expect(fence >= epoch, "a fence below the epoch of whom it is for")?;
            let last = if share.is_some() { fence } else { counter };
            self.reserved.insert(successor.token.to_owned(), last);
            self.highest = last;
        }
        let owned = granted
            .filter(|_| done.after.owner() == Some(done.token()) && done.adopted().is_none());
        match owned {
            // The fence of an answer that was lost is unknown, so its owner gets a later one.
            Some(fence) => {
                let (first, highest) = (successors.is_empty(), self.highest);
                expect(!first || fence > highest, &format!("the fence {fence} after {highest}"))?;
                self.reserved.insert(done.token().to_owned(), counter);
                self.grant(done, done.token());
            }
            _ if successors.is_empty() && done.passed().is_none() && done.adopted().is_none() => {
                let is_due = done.before.lone().is_some() && done.after.lone().is_none();
                let issued = done.before.fence != done.after.fence;
                expect(!issued || is_due, "a fence without a grant")?;
            }
            _ => {}
        }
        let later = done.passed().map(|(_, successor)| successor);
        if let Some(later) = later.or_else(|| done.adopted().map(|_| done.token())) {
            let (fence, highest) = (granted.unwrap_or(0), self.highest);
            expect(fence > highest, &format!("the fence {fence} after {highest}"))?;
            self.reserved.insert(later.to_owned(), fence);
        }
        if let (true, Call::Downgrade { token, fence, .. }) = (done.is_downgrade(), done.call) {
            self.reserved.insert(token.to_string(), *fence);
        }
        if let Call::ExtendShare { token, fence, .. } = done.call
            && done.before.records_another_fence(token)
        {
            // The owner has told its fence.
            self.reserved.insert(token.to_string(), *fence);
        }
        for share in done.after.shares.iter().filter(|_| done.after.lone().is_none()) {
            let own = self.reserved.get(&share.token).copied().unwrap_or(share.fence);
            expect(
                share.fence == own,
                &format!("the fence {own} of a share became {}", share.fence),
            )?;
        }
        self.highest = self.highest.max(counter);
        Ok(())
    }

    /// Only callers that request it are enqueued, at the end or at an old position, and living clients keep
    /// their entries.
    fn queue_is_right(&mut self, done: &Executed<'_>) -> Result<(), String> {
        for waiter in &done.after.line {
            if let Some(before) = done.before.waiter(&waiter.token) {
                let back = waiter.token == done.token()
                    && done.intent() == Some(Intent::Join(Some(waiter.seq)))
                    && before.seq < waiter.seq;
                expect(back || before.seq == waiter.seq, "a queue entry moved")?;
                if back {
                    self.numbers.entry(waiter.token.clone()).or_default().insert(waiter.seq);
                }
                continue;
            }
            let asked =
                waiter.token == done.token() && matches!(done.intent(), Some(Intent::Join(_)));
            expect(asked, &format!("{} was enqueued without a request", waiter.token))?;
            let last = done.before.line.last().map_or(0, |last| last.seq);
            let numbers = self.numbers.entry(waiter.token.clone()).or_default();
            let fresh = done.intent() == Some(Intent::Join(None));
            expect(!fresh || waiter.seq > last, "a newcomer was enqueued ahead of others")?;
            // Or the position of another caller: the time of its call, by a server's clock that was read once, and
            // seems ahead by as much as that reading was delayed.
            let called = u128::from(waiter.seq)
                <= u128::from(self.latest.as_micros()) + COMMAND_TIMEOUT.as_micros();
            let known = called || numbers.is_empty() || numbers.contains(&waiter.seq);
            expect(fresh || known, "an old position was lost")?;
            numbers.insert(waiter.seq);
        }
        let left = done.is_release();
        let stands = done.after.waiter(done.token()).is_some();
        expect(!(left && stands), "a caller that left is still enqueued")?;
        let has = done.intent().is_some() && done.after.owner() == Some(done.token());
        expect(!(has && stands), "a caller that has the lock is still enqueued")?;
        let freed = matches!(done.call, Call::Delete { .. }) && done.gives_up();
        expect(!freed || done.before.line.is_empty(), "a lock is only deleted, and others wait")?;
        for waiter in &done.before.line {
            let gone = done.after.waiter(&waiter.token).is_none();
            let owns = done.after.held_ms(&waiter.token).is_some();
            let left = left && waiter.token == done.token();
            let in_vain = waiter.reach == Reach::Gone
                && !waiter.is_awaited(&mut done.before.unreached_ms.clone(), done.now_ms());
            let lives =
                waiter.deadline_ms >= done.now_ms() && !in_vain && !self.is_purged(done, waiter);
            expect(!(gone && lives) || owns || left, &format!("{} lost its entry", waiter.token))?;
        }
        Ok(())
    }
}

/// How long a waiter that no message reaches is waited for.
const UNREACHED_MS: u64 = 3_000;

impl Waiter {
    /// Whether a waiter that no message reaches is still waited for, at `now_ms`: since when that is so for those that were
    /// not heard of later is in `since_ms`.
    fn is_awaited(&self, since_ms: &mut Option<u64>, now_ms: u64) -> bool {
        let heard_ms = self.deadline_ms.saturating_sub(LIVENESS_MS);
        let since = since_ms.filter(|since| heard_ms <= *since && *since <= now_ms);
        let since = since.unwrap_or(now_ms);
        *since_ms = Some(since);
        now_ms - since <= UNREACHED_MS
    }
}

/// How long the counter of a single lock is kept.
const FENCE_MS: i64 = 86_400_000;

/// A waiter's liveness: its last contact follows from its deadline.
const LIVENESS_MS: u64 = 6_000;

#[test]
fn the_scripts_have_the_same_liveness() {
    let source = format!("local LIVENESS_MS, KEYS_MS = {LIVENESS_MS}, ");
    assert!(Script::KeepEntry.source().contains(&source), "the script has the machine's liveness");
}

fn refused(done: &Executed<'_>) -> Result<(), String> {
    expect(done.before == done.after, "a refused call changed something")
}

/// Owners keep the lock or their shares; only the successors get it.
fn holders_are_right(done: &Executed<'_>, successors: &[Candidate<'_>]) -> Result<(), String> {
    let left = |token: &str| {
        (done.gives_up() && token == done.token())
            || done.adopted() == Some(token)
            || done.passed().is_some_and(|(from, _)| from == token)
            || done.is_theft()
    };
    let kept = done.before.holders().map(|(token, _)| token).filter(|token| !left(token));
    let adopter = done.adopted().map(|_| done.token());
    let adopter = adopter.or_else(|| done.passed().map(|(_, successor)| successor));
    let successors_of = successors.iter().map(|successor| successor.token);
    let expected: BTreeSet<_> = kept.chain(successors_of).chain(adopter).collect();
    let holders: BTreeSet<_> = done.after.holders().map(|(token, _)| token).collect();
    expect(holders == expected, &format!("{holders:?} hold the lock, and {expected:?} should"))?;
    let whole = done.after.owner().is_none()
        || successors.iter().all(|successor| successor.limit.is_none());
    expect(whole, "a share is the whole lock")?;
    // One key after the other, the lock and its shares are lengthened apart, until a call fits them to each other.
    let apart = matches!(done.call, Call::KeepLock { .. } | Call::KeepShare { .. });
    let fits = apart || ends_with_its_shares(done.after) || !ends_with_its_shares(done.before);
    expect(fits, "the lock does not end with the last share of it")?;
    let empty = done.after.value.as_deref().is_some_and(|value| bare(value) == SHARED);
    // It lasts for the rest of the ms in which its last share ends, and what keeps it or a queue entry frees nothing.
    let keeps = matches!(done.call, Call::KeepEntry { .. } | Call::KeepLock { .. });
    let untouched = done.before == done.after || keeps;
    expect(!empty || !done.after.shares.is_empty() || untouched, "the lock is shared by nobody")
}

fn ends_with_its_shares(lock: &Snapshot) -> bool {
    let (last_ms, lock_ms) =
        (lock.shares.iter().map(|share| share.remaining_ms).max(), lock.remaining_ms);
    // A lone share that others join in its last ms is put into the set for that whole ms.
    last_ms.is_none_or(|last_ms| last_ms == lock_ms || (last_ms, lock_ms) == (1, 0))
}

/// A lease is at least as long as requested, and nothing shortens it.
fn leases_are_right(done: &Executed<'_>) -> Result<(), String> {
    for (token, before) in done.before.holders() {
        let Some(after) = done.after.held_ms(token) else { continue };
        // A victim that waits, too, may get the lock anew. A whole lock may last a fraction of a ms longer than the same as a
        // share. A plain renewal ends what nobody knows of: no hold lasts longer than its lock.
        let renews = matches!(done.call, Call::Renew { .. });
        let is_rounded = done.is_downgrade() && after == before - 1;
        let cut = after < before && !renews && !done.is_theft() && !is_rounded;
        expect(!cut, &format!("a lease was cut from {before} to {after} ms"))?;
    }
    if let (Call::HandoffShare { mode: Mode::Shared { limit: Some(limit), .. }, .. }, Some(_)) =
        (done.call, done.passed())
    {
        let sharing = done.after.permits();
        expect(sharing as u64 <= limit.get(), "a permit was passed on beside more than its limit")?;
    }
    let promised = match (done.call, done.reply) {
        (Call::Acquire { ttl, .. }, Some(Reply::Granted { .. } | Reply::Joined { .. }))
        | (Call::Adopt { ttl, .. }, Some(Reply::Granted { .. }))
        | (Call::ExtendShare { ttl, .. }, Some(Reply::Granted { .. } | Reply::Owner(true)))
        | (Call::KeepShare { ttl, .. }, Some(Reply::Granted { .. }))
        | (Call::Reserve { ttl, .. }, Some(Reply::Reserved { .. }))
        | (
            Call::Claim { ttl, .. } | Call::Extend { ttl, .. } | Call::Renew { ttl, .. },
            Some(Reply::Owner(true)),
        ) => Some(ttl),
        _ => None,
    };
    let (whose, promised) = match (done.call, done.reply) {
        (Call::HandoffShare { successor, ttl, .. }, Some(Reply::HandedOff { .. })) => {
            (successor.as_str(), Some(ttl))
        }
        _ => (done.token(), promised),
    };
    if let Some(ttl) = promised {
        let Some(given_ms) = done.after.held_ms(whose) else {
            return Err("the answer says that the caller has what it does not have".to_owned());
        };
        let ttl_ms = i64::try_from(ttl.as_millis()).unwrap();
        expect(given_ms >= ttl_ms, &format!("{ttl_ms} ms were promised, {given_ms} ms given"))?;
        let owner = done.adopted().or_else(|| done.passed().map(|(from, _)| from));
        let owner = owner.unwrap_or_else(|| done.token());
        let most_ms = done.before.held_ms(owner).map_or(ttl_ms, |had_ms| had_ms.max(ttl_ms));
        expect(given_ms <= most_ms, &format!("{ttl_ms} ms were asked for, {given_ms} ms given"))?;
    }
    Ok(())
}

/// No record of a grant outlives its claim, or another sign of life of its manager. What has a share leaves no records
/// of earlier ones, so the set stays as small as it can be.
fn records_are_right(done: &Executed<'_>) -> Result<(), String> {
    let (before, after, token) = (done.before, done.after, done.token());
    // What is known only by the lock's key claims nothing.
    let reads_records =
        matches!(done.call, Call::Acquire { .. } | Call::Claim { .. } | Call::Release { .. });
    let of_it = |unclaimed: &&String| {
        // Whoever takes a free lock anew, by the same token, has no mark, and leaves the record to its next entry.
        let marked = before.value.as_ref().is_some_and(|value| value.ends_with('+'));
        let unmarked_release = matches!(done.call, Call::Release { .. }) && !marked;
        let owns = before.owner() == Some(token) && unclaimed.as_str() == token;
        let owns = owns && !unmarked_release;
        let joins = matches!(done.intent(), Some(Intent::Join(_))) && after.waiter(token).is_some();
        (owns && reads_records) || (joins && client(unclaimed) == client(token))
    };
    let silent = before.unclaimed.as_ref().filter(of_it);
    let stays = silent.is_some() && after.unclaimed.as_ref() == silent;
    expect(!stays, &format!("{silent:?} is taken for silent, and its manager was heard"))?;
    let names_shares = reads_records
        || matches!(
            done.call,
            Call::ExtendShare { .. } | Call::KeepShare { .. } | Call::FreeShare { .. }
        );
    let stays = names_shares
        && before.held_ms(token).is_some()
        && before.unclaimed_shares.contains(token)
        && after.unclaimed_shares.contains(token);
    expect(!stays, "a share was claimed, and does not count as claimed")?;
    let counted = after.further_permits == after.permits_of_records;
    expect(counted, "the permits of the shares are miscounted")?;
    let shares = after.shares.iter().any(|share| share.token == token);
    let new = shares && before.held_ms(token).is_none() && after.lone().is_none();
    let begins = (new && done.intent().is_some()) || done.collected().is_some();
    let small = !begins || after.stale == 0;
    expect(small, "a share is taken beside the records of shares that are over")
}

/// The flag for plain commands exists as long as the wait queue.
fn flag_is_right(done: &Executed<'_>) -> Result<(), String> {
    let (before, after) = (done.before, done.after);
    let kept = before.line.len() == after.line.len() && !before.waiting;
    expect(
        after.line.is_empty() || after.waiting || kept,
        "plain commands would not see the queue",
    )?;
    let emptied = !before.line.is_empty() && after.line.is_empty();
    expect(!emptied || !after.waiting, "plain commands would see a queue that is empty")
}

/// Each successor that is granted something by another's call gets a message, about no more than its grant,
/// and no other waiter does; one message per process.
fn messages_are_right(done: &Executed<'_>, successors: &[Candidate<'_>]) -> Result<(), String> {
    let notified: BTreeSet<_> =
        done.messages.iter().flatten().map(|it| it.token.as_str()).collect();
    let listens = |token: &str| {
        token != done.token()
            && done.before.waiter(token).is_some_and(|waiter| waiter.reach == Reach::Listens)
    };
    let due: BTreeSet<_> =
        successors.iter().map(|successor| successor.token).filter(|it| listens(it)).collect();
    expect(notified == due, &format!("{due:?} got the lock, and {notified:?} were notified"))?;
    let inboxes: BTreeSet<_> = notified.iter().map(|token| client(token)).collect();
    expect(done.messages.len() == inboxes.len(), "a process was notified twice")?;
    for grant in done.messages.iter().flatten() {
        let given_ms = done.after.held_ms(grant.token.as_str()).unwrap_or(0);
        let claim_ms = i64::try_from(grant.claim.as_millis()).unwrap();
        expect(claim_ms <= given_ms, "a message promises more than was given")?;
        expect(grant.claim <= CLAIM, "a lease that nobody claims lasts too long")?;
        expect(grant.time <= done.time, "a grant is dated too late")?;
    }
    Ok(())
}

pub(super) fn expect(right: bool, otherwise: &str) -> Result<(), String> {
    if right { Ok(()) } else { Err(otherwise.to_owned()) }
}
