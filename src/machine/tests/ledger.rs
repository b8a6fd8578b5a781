//! The grants of a lock in their order, and the data that servers have lost.

use super::process::Held;
use super::simulator::{Kind, Simulation};
use super::watch::Granted;
use crate::machine::LeaseId;
use crate::protocol::{LockKeys, Mono, Token};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::Duration;

/// The greatest age of the confirmation on which a lock is handed off.
const RECENT: Duration = Duration::from_millis(1_010);

/// One lock of a schedule.
pub(super) struct Lock {
    pub(super) name: &'static str,
    pub(super) keys: LockKeys,
    begun: Vec<Begun>,
    /// The issued fences with their servers: two primaries at once may issue the same fence.
    fences: BTreeSet<(usize, u64)>,
    /// The fence of the last whole lock.
    last: u64,
    store: FencedStore,
}

/// The start of a hold, exclusive or shared.
struct Begun {
    /// The number of calls executed when its caller learned of it.
    when: usize,
    fence: u64,
    /// The server that granted it.
    server: usize,
}

/// Accepts a write only if its fence is not below any earlier one.
#[derive(Default)]
struct FencedStore {
    highest: u64,
}

/// The loss of a token's data on a server.
pub(super) struct Forgotten {
    at: Mono,
    /// The number of calls executed by then.
    when: usize,
    /// The time until which its caller may still believe in its hold.
    until: Mono,
    /// Whether the server has lost the hold completely.
    gone: bool,
}

impl Lock {
    pub(super) fn new(name: &'static str) -> Self {
        Self {
            name,
            keys: LockKeys::new("lock:", name),
            begun: Vec::new(),
            fences: BTreeSet::new(),
            last: 0,
            store: FencedStore::default(),
        }
    }
}

impl Simulation {
    /// Checks that the fence of a new hold is above those of all that were granted before it, and of all that had begun when
    /// its caller `asked`.
    pub(super) fn check_fence(
        &mut self,
        who: usize,
        lock: usize,
        lease: LeaseId,
        (fence, asked): (u64, usize),
        shared: bool,
    ) {
        let token = self.processes[who].token_of(lease);
        let granted = self.granted_with(&token, fence);
        self.demand(granted.is_some(), || format!("{token} was given what no server granted"));
        let Some((server, granted)) = granted else { return };
        let fresh = self.locks[lock].fences.insert((server, fence));
        self.demand(fresh, || format!("the fence {fence} was given twice"));
        let handed_off = lease != LeaseId::first(lease.token_id());
        let void = !handed_off && self.servers[server].is_void(token.as_str(), fence);
        self.demand(!void, || format!("{token} was not to use what plain commands took for it"));
        let now = self.server.executed();
        let began = if handed_off { now + 1 } else { granted.number.max(asked) };
        if handed_off {
            self.check_handoff(who, &token);
        }
        // After a theft that it does not know of yet, others have held the lock.
        let stolen = self.is_victim(&token) || self.is_taken_over(&token);
        // A process may not know for a moment that its server lost the lock or ended its lease early, and
        // that others have it: while it hands off without a request, or while an earlier grant is in flight.
        let blind = self.is_forgotten(&token);
        if !stolen && !blind {
            let before =
                |it: &&Begun| it.when < began && it.fence >= fence && self.is_ordered(it, server);
            let later = self.locks[lock].begun.iter().find(before).map(|it| it.fence);
            self.demand(later.is_none(), || format!("the fence {fence} after {later:?}"));
        }
        // If leases end early, callers may learn of their locks in another order.
        let last = self.locks[lock].last;
        let steady = self.kind == Kind::Steady && !stolen;
        self.demand(!steady || fence > last, || format!("the fence {fence} after {last}"));
        let known = &mut self.locks[lock];
        known.begun.push(Begun { when: now, fence, server });
        // Sharers learn of their grants in any order.
        if !shared {
            known.last = fence.max(if stolen { last } else { 0 });
        }
    }

    /// Whether `server` issues only later fences than this one.
    fn is_ordered(&self, begun: &Begun, server: usize) -> bool {
        begun.server == server || begun.when <= self.promoted_at[server]
    }

    /// The latest grant of a token, and the server that made it.
    pub(super) fn granted(&self, token: &Token) -> Option<(usize, Granted)> {
        self.grants(token).max_by_key(|(_, granted)| granted.number)
    }

    /// The grant of a token that reserved `fence`. Another master may have granted the lock to the same token as well, and
    /// later, with greater fences, by a message or a request that was lost; and plain commands that took it in vain there say
    /// nothing about this grant.
    fn granted_with(&self, token: &Token, fence: u64) -> Option<(usize, Granted)> {
        let reserved = |place: usize| self.servers[place].reserved(token.as_str());
        let may = |(place, _): &(usize, Granted)| reserved(*place).is_none_or(|last| fence <= last);
        let granted = self.grants(token).filter(may).min_by_key(|(place, granted)| {
            let is_void = self.servers[*place].is_void(token.as_str(), fence);
            (is_void, reserved(*place).unwrap_or(u64::MAX), Reverse(granted.number))
        });
        // After a loss of the counter, the fences that were reserved are unknown.
        granted.or_else(|| self.granted(token))
    }

    /// The latest grant of a token by each server.
    fn grants(&self, token: &Token) -> impl Iterator<Item = (usize, Granted)> {
        let servers = self.servers.iter().enumerate();
        servers.filter_map(|(place, it)| Some((place, it.granted(token.as_str())?)))
    }

    /// The loss of a token's data since its latest grant.
    pub(super) fn forgotten(&self, token: &Token) -> Option<&Forgotten> {
        let forgotten = self.forgotten.get(token.as_str())?;
        let granted = self.granted(token).map_or(0, |(_, granted)| granted.number);
        (granted <= forgotten.when).then_some(forgotten)
    }

    /// Whether a server has ever lost data of a token.
    pub(super) fn is_forgotten(&self, token: &Token) -> bool {
        self.forgotten.contains_key(token.as_str())
    }

    /// Whether a caller may still believe in a hold that its server has lost: also if a request that is late gets it
    /// anew there, for less time.
    pub(super) fn may_believe(&self, token: &Token) -> bool {
        self.forgotten.get(token.as_str()).is_some_and(|forgotten| self.now <= forgotten.until)
    }

    /// Checks that no lock is handed off if the process could know that its server has lost it.
    fn check_handoff(&self, who: usize, token: &Token) {
        let Some(forgotten) = self.forgotten(token).filter(|forgotten| forgotten.gone) else {
            return;
        };
        let world = &self.processes[who].world;
        // Both of two masters may have granted it, and with the same fences.
        let mut grants = self.grants(token);
        let same = world.blind
            || grants.any(|(_, it)| world.shown.as_deref() == Some(&*it.replication_id));
        self.demand(!world.up || same, || {
            format!("{token} is handed on, and {who} has seen that the data is another's")
        });
        let late = self.now.since(forgotten.at);
        self.demand(world.up, || format!("{token} is handed on without a connection"));
        self.demand(late <= RECENT, || {
            format!("{token} is handed on {late:?} after its server has forgotten it")
        });
    }

    /// Changes the data or clock of servers: callers may believe in their holds until their leases end.
    pub(super) fn forget(&mut self, change: impl FnOnce(&mut Self)) {
        let (at, when) = (self.now, self.server.executed());
        let mut known = Vec::new();
        for server in &self.servers {
            known.extend(server.victims(at));
            for lock in &self.locks {
                let snapshot = server.snapshot(at, &lock.keys);
                let left = snapshot.holders().map(|(token, ms)| {
                    // A stranger's value may have no expiry.
                    (Token::from_text(token), Duration::from_millis(ms.max(0).unsigned_abs()))
                });
                known.extend(left);
            }
        }
        for process in &self.processes {
            let believed = process.believed(at);
            // By its own clock, which may be slower.
            known.extend(believed.map(|(it, left)| (process.token_of(it), left + left / 100)));
        }
        change(self);
        self.forget_jobs();
        let owners: BTreeSet<_> =
            (0..self.locks.len()).flat_map(|lock| self.owners_of(lock)).collect();
        for (token, left) in known {
            let gone = !owners.contains(&token);
            let forgotten = Forgotten { at, when, until: at + left, gone };
            let before = self.forgotten.get(token.as_str());
            let until = before.map_or(at, |before| before.until).max(forgotten.until);
            self.forgotten.insert(token.to_string(), Forgotten { until, ..forgotten });
        }
        self.lengthened.clear();
    }

    /// A message cannot be dated any more: all that is known is that its claim began before it arrived.
    pub(super) fn misdated(&mut self, token: &str, claim: Duration) {
        let (at, when) = (self.now, self.server.executed());
        // A longer lease from before the change may still be believed in.
        let before = self.forgotten.get(token).map_or(at, |before| before.until);
        let forgotten = Forgotten { at, when, until: before.max(at + claim), gone: false };
        self.forgotten.insert(token.to_owned(), forgotten);
    }

    /// The owners of a lock or of a share of it, on any server.
    pub(super) fn owners_of(&self, lock: usize) -> BTreeSet<Token> {
        let keys = &self.locks[lock].keys;
        self.servers.iter().flat_map(|server| server.owners(self.now, keys)).collect()
    }

    /// Writes as a caller that may have lost its lock long ago, which fences must catch.
    pub(super) fn write(&mut self, who: usize) {
        let Some(Held { lock, lease, fence, shared: false, adoptable, .. }) =
            self.processes[who].held.last()
        else {
            // Sharers only read.
            return;
        };
        let (lock, lease, fence, adoptable) = (*lock, *lease, *fence, *adoptable);
        let accepted = fence >= self.locks[lock].store.highest;
        let believes = self.processes[who].world.deadlines.contains_key(&lease);
        self.note(who, format_args!("write with {fence}: {accepted}"));
        if !accepted {
            let token = self.processes[who].token_of(lease);
            let excused = self.is_victim(&token)
                || self.is_taken_over(&token)
                || self.forgotten(&token).is_some()
                || self.kind == Kind::Split;
            self.demand(!believes || adoptable || excused, || {
                "a write of the only holder was refused".to_owned()
            });
        }
        let store = &mut self.locks[lock].store;
        store.highest = store.highest.max(fence);
    }
}
