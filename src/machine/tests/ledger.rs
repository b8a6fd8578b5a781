//! What callers got of a lock, in their order; and what a server has forgotten of it.

use super::process::Held;
use super::simulator::{Kind, Simulation};
use super::watch::Granted;
use crate::machine::LeaseId;
use crate::protocol::clock::Mono;
use crate::protocol::keys::LockKeys;
use crate::protocol::token::Token;
use std::collections::BTreeSet;
use std::time::Duration;

/// The last answer on which a lock is handed on is not older than that.
const RECENT: Duration = Duration::from_millis(1_010);

/// One lock of a schedule.
pub(super) struct Lock {
    pub(super) name: &'static str,
    pub(super) keys: LockKeys,
    begun: Vec<Begun>,
    /// The fences that were given, and the server that did: two of them at once know nothing of each other.
    fences: BTreeSet<(usize, u64)>,
    /// The last fence of whoever got the whole lock.
    last: u64,
    store: FencedStore,
}

/// Somebody got the lock or a share of it.
struct Begun {
    /// So many calls had been executed when its caller learned of it.
    when: usize,
    fence: u64,
    /// The server that had granted it.
    server: usize,
}

/// Accepts a write only with a fence at least as high as every one before.
#[derive(Default)]
struct FencedStore {
    highest: u64,
}

/// What a server has lost of who had something of a lock.
pub(super) struct Forgotten {
    at: Mono,
    /// So many calls had been executed.
    when: usize,
    /// Until then its caller may believe to have it.
    until: Mono,
    /// The server knows nothing of it any more.
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
    /// A caller got the lock or a share of it: with a fence above those of all who had it before.
    pub(super) fn check_fence(
        &mut self,
        who: usize,
        lock: usize,
        lease: LeaseId,
        fence: u64,
        shared: bool,
    ) {
        let token = self.processes[who].token_of(lease);
        let granted = self.granted(&token);
        self.demand(granted.is_some(), || format!("{token} was given what no server granted"));
        let Some((server, granted)) = granted else { return };
        let fresh = self.locks[lock].fences.insert((server, fence));
        self.demand(fresh, || format!("the fence {fence} was given twice"));
        let handed_on = lease != LeaseId::first(lease.token_id());
        let now = self.server.executed();
        let began = if handed_on { now + 1 } else { granted.number };
        if handed_on {
            self.check_hand_on(who, &token, &granted);
        }
        // Where it was stolen before they have learned of it, others have been there.
        let stolen = self.is_robbed(&token);
        // A process may not know for a moment that its server has forgotten the lock, or ended its lease ahead of time, and
        // that others have it: as long as it hands on without asking, or as a grant of before is on its way.
        let blind = self.is_forgotten(&token);
        if !stolen && !blind {
            let before =
                |it: &&Begun| it.when < began && it.fence >= fence && self.is_ordered(it, server);
            let later = self.locks[lock].begun.iter().find(before).map(|it| it.fence);
            self.demand(later.is_none(), || format!("the fence {fence} after {later:?}"));
        }
        // Where leases end too early callers may learn of their locks in another order than they got them.
        let last = self.locks[lock].last;
        let steady = self.kind == Kind::Steady && !stolen;
        self.demand(!steady || fence > last, || format!("the fence {fence} after {last}"));
        let known = &mut self.locks[lock];
        known.begun.push(Begun { when: now, fence, server });
        // Those who share learn of it in any order.
        if !shared {
            known.last = fence.max(if stolen { last } else { 0 });
        }
    }

    /// Whether an earlier fence stands behind those that `server` issues from now on.
    fn is_ordered(&self, begun: &Begun, server: usize) -> bool {
        begun.server == server || begun.when <= self.promoted_at[server]
    }

    /// What gave a token the last thing that it was given, and the server that did.
    pub(super) fn granted(&self, token: &Token) -> Option<(usize, Granted)> {
        let granted = self.servers.iter().enumerate();
        let granted = granted.filter_map(|(place, it)| Some((place, it.granted(token.as_str())?)));
        granted.max_by_key(|(_, granted)| granted.number)
    }

    /// What its server has forgotten of a token since it granted that something.
    pub(super) fn forgotten(&self, token: &Token) -> Option<&Forgotten> {
        let forgotten = self.forgotten.get(token.as_str())?;
        let granted = self.granted(token).map_or(0, |(_, granted)| granted.number);
        (granted <= forgotten.when).then_some(forgotten)
    }

    /// Whether a server has lost at any time what it knew of a token.
    pub(super) fn is_forgotten(&self, token: &Token) -> bool {
        self.forgotten.contains_key(token.as_str())
    }

    /// Whether a caller may believe to have what its server has forgotten.
    pub(super) fn may_believe(&self, token: &Token) -> bool {
        self.forgotten(token).is_some_and(|forgotten| self.now <= forgotten.until)
    }

    /// Nobody begins with a lock of which the process could know that its server has forgotten it.
    fn check_hand_on(&self, who: usize, token: &Token, granted: &Granted) {
        let Some(forgotten) = self.forgotten(token).filter(|forgotten| forgotten.gone) else {
            return;
        };
        let world = &self.processes[who].world;
        let same = world.shown.as_deref() == Some(&*granted.history);
        self.demand(!world.up || same, || {
            format!("{token} is handed on, and {who} has seen that the data is another's")
        });
        let late = self.now.since(forgotten.at);
        self.demand(world.up, || format!("{token} is handed on without a connection"));
        self.demand(late <= RECENT, || {
            format!("{token} is handed on {late:?} after its server has forgotten it")
        });
    }

    /// Changes what the servers know, or their clock: whoever has something may believe so until its lease ends.
    pub(super) fn forget(&mut self, change: impl FnOnce(&mut Self)) {
        let (at, when) = (self.now, self.server.executed());
        let mut known = Vec::new();
        for server in &self.servers {
            known.extend(server.robbed(at));
            for lock in &self.locks {
                let snapshot = server.snapshot(at, &lock.keys);
                let left = snapshot.holders().map(|(token, ms)| {
                    // A value of a stranger may have no end.
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

    /// Nobody can date what a message says any more, but that its claim began before it arrived.
    pub(super) fn misdated(&mut self, token: &str, claim: Duration) {
        let (at, when) = (self.now, self.server.executed());
        // Whoever had more of it before the clock was set may still believe so.
        let before = self.forgotten.get(token).map_or(at, |before| before.until);
        let forgotten = Forgotten { at, when, until: before.max(at + claim), gone: false };
        self.forgotten.insert(token.to_owned(), forgotten);
    }

    /// Who has a lock or a share of it, on any server.
    pub(super) fn owners_of(&self, lock: usize) -> BTreeSet<Token> {
        let keys = &self.locks[lock].keys;
        self.servers.iter().flat_map(|server| server.owners(self.now, keys)).collect()
    }

    /// Whoever got the lock once may write, also long after: that is what fences are for.
    pub(super) fn write(&mut self, who: usize) {
        let Some(Held { lock, lease, fence, shared: false, passed_on }) =
            self.processes[who].held.last()
        else {
            // Those who share a lock only read.
            return;
        };
        let (lock, lease, fence, passed_on) = (*lock, *lease, *fence, *passed_on);
        let accepted = fence >= self.locks[lock].store.highest;
        let believes = self.processes[who].world.deadlines.contains_key(&lease);
        self.note(who, format_args!("write with {fence}: {accepted}"));
        if !accepted {
            let token = self.processes[who].token_of(lease);
            let excused = self.is_robbed(&token)
                || self.forgotten(&token).is_some()
                || self.kind == Kind::Split;
            self.demand(!believes || passed_on || excused, || {
                "a write of the only holder was refused".to_owned()
            });
        }
        let store = &mut self.locks[lock].store;
        store.highest = store.highest.max(fence);
    }
}
