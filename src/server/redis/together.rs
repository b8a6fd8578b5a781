//! The requests of a turn about shares of one lock leave as one call: a share costs the server several commands, and most
//! of them are the same for all callers.
//!
//! The script carries all of them out as if each were asked right after the other, or none: then the machine sends each alone.
//! As long as others wait for a lock its requests are sent alone at once.

use crate::protocol::{
    Call, Failure, Intent, LockKeys, Mode, Reply, RequestId, SendMode, ServerTime,
};
use crate::server::Item;
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};
use std::time::Duration;

/// At most so many requests are one call, which bounds the work of a script.
const MOST: usize = 128;
/// So many requests about a lock are sent alone, once its requests could not be carried out together.
const APART: u8 = 32;
/// At most so many locks are remembered whose requests are sent alone.
const APART_LOCKS_MAX: usize = 1_000;

/// A request, or several as one, of a turn.
pub(super) enum Sending<'a> {
    /// A request of its own.
    Alone(&'a Item),
    /// Requests about shares of one lock, at least two.
    Together(Together<'a>),
}

/// Requests about shares of one lock.
pub(super) struct Together<'a> {
    first: &'a Item,
    taking: Vec<(RequestId, &'a Call)>,
    leaving: Vec<(RequestId, &'a Call)>,
}

/// The requests that a call stands for, in the order of its tokens.
#[derive(Debug)]
pub(super) struct Callers {
    keys: LockKeys,
    taking: Vec<RequestId>,
    leaving: Vec<RequestId>,
}

/// The locks whose requests are sent alone.
#[derive(Debug, Default)]
pub(super) struct Apart(FxHashMap<LockKeys, u8>);

impl Apart {
    fn takes(&mut self, keys: &LockKeys) -> bool {
        let Some(left) = self.0.get_mut(keys) else { return false };
        *left -= 1;
        if *left == 0 {
            self.0.remove(keys);
        }
        true
    }

    fn add(&mut self, keys: LockKeys) {
        if self.0.len() < APART_LOCKS_MAX {
            self.0.insert(keys, APART);
        }
    }

    /// The calls that `items` are sent as, in order. None if each is sent alone, as most are.
    pub(super) fn arrange<'a>(&mut self, items: &'a [Item]) -> Option<Vec<Sending<'a>>> {
        if self.0.is_empty() && !have_company(items) {
            return None;
        }
        let mut all: Vec<Sending<'_>> = Vec::with_capacity(items.len());
        // Where the last call about each lock stands, unless another request about the lock came after it.
        let mut open = FxHashMap::default();
        for item in items {
            let Item::Call { request, call, .. } = item else {
                all.push(Sending::Alone(item));
                continue;
            };
            if share(item).is_none() || self.takes(call.keys()) {
                open.remove(call.keys());
                all.push(Sending::Alone(item));
                continue;
            }
            let place = open.get(call.keys()).and_then(|at: &usize| all.get_mut(*at));
            match place {
                Some(Sending::Together(together)) if together.admits(call) => {
                    together.add(*request, call);
                }
                _ => {
                    let mut together = Together::begun_by(item);
                    together.add(*request, call);
                    open.insert(call.keys(), all.len());
                    all.push(Sending::Together(together));
                }
            }
        }
        Some(all.into_iter().map(Sending::settled).collect())
    }

    /// The answers for the callers of a call. An error tells nothing of a single one, but its script changes nothing then.
    pub(super) fn answers(
        &mut self,
        callers: Callers,
        reply: Result<Reply, Failure>,
    ) -> Vec<(RequestId, Result<Reply, Failure>)> {
        let Callers { keys, taking, leaving } = callers;
        if let Ok(Reply::Changed { fence, beside }) = reply {
            let taken = taking.into_iter().zip(fence..).map(|(request, its_fence)| {
                let is_first = !beside && its_fence == fence;
                let joined = Reply::Joined { fence: its_fence };
                (request, if is_first { Reply::Granted { fence } } else { joined })
            });
            let left = leaving.into_iter().map(|request| (request, Reply::Owner(true)));
            return taken.chain(left).map(|(request, reply)| (request, Ok(reply))).collect();
        }
        let failure = match reply {
            Err(failure @ (Failure::Lost(_) | Failure::Halfway)) => failure,
            reply => {
                if reply.is_ok() {
                    self.add(keys);
                }
                Failure::Together
            }
        };
        let all = taking.into_iter().chain(leaving);
        all.map(|request| (request, Err(failure.clone()))).collect()
    }
}

impl Sending<'_> {
    /// One request leaves by itself, if no other has joined it.
    fn settled(self) -> Self {
        match self {
            Self::Together(together) if together.len() == 1 => Self::Alone(together.first),
            other => other,
        }
    }
}

impl<'a> Together<'a> {
    const fn begun_by(first: &'a Item) -> Self {
        Self { first, taking: Vec::new(), leaving: Vec::new() }
    }

    fn len(&self) -> usize {
        self.taking.len() + self.leaving.len()
    }

    /// The terms of all that take a share; none while nobody does.
    fn terms(&self) -> Option<(Duration, ServerTime)> {
        self.taking.first().and_then(|(_, call)| terms(call))
    }

    /// Whether one more request belongs to it.
    fn admits(&self, call: &Call) -> bool {
        let (ours, its) = (self.terms(), terms(call));
        self.len() < MOST && (ours.is_none() || its.is_none() || ours == its)
    }

    fn add(&mut self, request: RequestId, call: &'a Call) {
        let list = match call {
            Call::Acquire { .. } => &mut self.taking,
            _ => &mut self.leaving,
        };
        list.push((request, call));
    }

    /// The call that stands for all of them.
    pub(super) fn call(&self) -> Option<(Call, Callers)> {
        let (_, first) = self.taking.first().or_else(|| self.leaving.first())?;
        let tokens = |list: &[(RequestId, &Call)]| {
            list.iter().map(|(_, call)| call.token().clone()).collect()
        };
        let requests = |list: &[(RequestId, &Call)]| list.iter().map(|(id, _)| *id).collect();
        let (ttl, epoch) = self.terms().unwrap_or_default();
        let call = Call::ChangeShares {
            keys: first.keys().clone(),
            token: first.token().clone(),
            ttl,
            epoch,
            taking: tokens(&self.taking),
            leaving: tokens(&self.leaving),
        };
        let (taking, leaving) = (requests(&self.taking), requests(&self.leaving));
        Some((call, Callers { keys: first.keys().clone(), taking, leaving }))
    }
}

/// Whether two requests are about shares of one lock. Those of a semaphore for each of many things are not.
fn have_company(items: &[Item]) -> bool {
    let mut all = items.iter().filter_map(share).map(Call::keys);
    let (Some(first), Some(second)) = (all.next(), all.next()) else { return false };
    let mut known = FxHashSet::with_capacity_and_hasher(items.len(), FxBuildHasher);
    known.insert(first);
    !known.insert(second) || all.any(|keys| !known.insert(keys))
}

/// The lease and the epoch of a request that takes a share.
const fn terms(call: &Call) -> Option<(Duration, ServerTime)> {
    if let Call::Acquire { ttl, epoch, .. } = call { Some((*ttl, *epoch)) } else { None }
}

/// The call of a request that may be sent together with others: for a share without a limit, which need not wait, or to give
/// a share up.
fn share(item: &Item) -> Option<&Call> {
    let Item::Call { call, send_mode: SendMode::Plain, .. } = item else { return None };
    let is_share = match call {
        Call::Acquire { mode: Mode::Shared { limit: None, .. }, intent, block: 1, .. } => {
            matches!(intent, Intent::Try | Intent::Join(None))
        }
        Call::Release { shared, .. } => *shared,
        _ => false,
    };
    is_share.then_some(call)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Token;

    fn item(request: u64, call: Call) -> Item {
        Item::Call { request: RequestId(request), call, send_mode: SendMode::Plain }
    }

    fn take(request: u64, key: &str, mode: Mode, ttl_ms: u64) -> Item {
        let call = Call::Acquire {
            keys: LockKeys::from_key(key),
            token: Token::from_text(&format!("hf1.c.{request}")),
            ttl: Duration::from_millis(ttl_ms),
            epoch: ServerTime::from_micros(1),
            block: 1,
            inbox: "".into(),
            intent: Intent::Join(None),
            mode,
        };
        item(request, call)
    }

    fn leave(request: u64, key: &str, shared: bool) -> Item {
        let (keys, token) = (LockKeys::from_key(key), Token::from_text("hf1.c.9"));
        item(request, Call::Release { keys, token, epoch: ServerTime::from_micros(1), shared })
    }

    /// The requests of each call that is sent.
    fn arranged(apart: &mut Apart, items: &[Item]) -> Option<Vec<Vec<u64>>> {
        let number = |id: RequestId| id.0;
        let all = apart.arrange(items)?.into_iter().map(|sending| match sending {
            Sending::Alone(Item::Call { request, .. }) => vec![number(*request)],
            Sending::Alone(Item::Probe { .. } | Item::Track { .. }) => Vec::new(),
            Sending::Together(together) => {
                let (_, callers) = together.call().unwrap();
                callers.taking.into_iter().chain(callers.leaving).map(number).collect()
            }
        });
        Some(all.collect())
    }

    const SHARE: Mode = Mode::SHARED;

    #[test]
    fn shares_of_one_lock_are_one_call() {
        let items = [
            leave(1, "a", true),
            take(2, "a", SHARE, 10),
            take(3, "b", SHARE, 10),
            take(4, "a", SHARE, 10),
        ];
        let all = arranged(&mut Apart::default(), &items).unwrap();
        assert_eq!(all, [vec![2, 4, 1], vec![3]]);
    }

    #[test]
    fn what_is_no_request_stays_among_shares() {
        let probe = Item::Probe { sent: crate::protocol::Mono::from_micros(1) };
        let items = [take(1, "a", SHARE, 10), probe, take(2, "a", SHARE, 10)];
        let all = arranged(&mut Apart::default(), &items).unwrap();
        assert_eq!(all, [vec![1, 2], Vec::new()]);
    }

    #[test]
    fn a_turn_with_one_share_is_as_it_was() {
        let items =
            [take(1, "a", SHARE, 10), take(2, "a", Mode::Exclusive, 10), leave(3, "a", false)];
        assert_eq!(arranged(&mut Apart::default(), &items), None);
    }

    #[test]
    fn shares_of_many_locks_are_as_they_were() {
        let mut items = vec![leave(1, "a", true), leave(2, "b", true), take(3, "c", SHARE, 10)];
        assert_eq!(arranged(&mut Apart::default(), &items), None);
        items.push(leave(4, "b", true));
        let all = arranged(&mut Apart::default(), &items).unwrap();
        assert_eq!(all, [vec![1], vec![2, 4], vec![3]]);
        // Those of a lock that is remembered count down, also one by one.
        let mut apart = Apart::default();
        apart.add(LockKeys::from_key("a"));
        let one_each = &items[..3];
        for _ in 0..APART {
            assert_eq!(arranged(&mut apart, one_each), Some(vec![vec![1], vec![2], vec![3]]));
        }
        assert_eq!(arranged(&mut apart, one_each), None);
    }

    #[test]
    fn another_request_about_the_lock_is_not_overtaken() {
        let whole = take(2, "a", Mode::Exclusive, 10);
        let items =
            [take(1, "a", SHARE, 10), whole, take(3, "a", SHARE, 10), take(4, "a", SHARE, 10)];
        let all = arranged(&mut Apart::default(), &items).unwrap();
        assert_eq!(all, [vec![1], vec![2], vec![3, 4]]);
    }

    #[test]
    fn other_leases_and_too_many_are_another_call() {
        let mut items: Vec<_> = (0..200).map(|id| take(id, "a", SHARE, 10)).collect();
        items.push(take(200, "a", SHARE, 20));
        let sizes = arranged(&mut Apart::default(), &items).unwrap();
        assert_eq!(sizes.iter().map(Vec::len).collect::<Vec<_>>(), [MOST, 200 - MOST, 1]);
    }

    #[test]
    fn what_was_sent_alone_before_stays_alone() {
        let mut items = vec![take(1, "a", SHARE, 10), take(2, "a", SHARE, 10)];
        if let Item::Call { send_mode, .. } = &mut items[0] {
            *send_mode = SendMode::Alone;
        }
        assert_eq!(arranged(&mut Apart::default(), &items), None);
    }

    #[test]
    fn what_may_wait_or_is_no_share_is_sent_alone() {
        let call = |change: &dyn Fn(&mut Intent, &mut Mode, &mut u8)| {
            let mut items = [take(1, "a", SHARE, 10), take(2, "a", SHARE, 10)];
            if let Item::Call { call: Call::Acquire { intent, mode, block, .. }, .. } =
                &mut items[0]
            {
                change(intent, mode, block);
            }
            arranged(&mut Apart::default(), &items)
        };
        assert_eq!(call(&|_, _, _| {}), Some(vec![vec![1, 2]]));
        assert_eq!(call(&|intent, _, _| *intent = Intent::Try), Some(vec![vec![1, 2]]));
        assert_eq!(call(&|intent, _, _| *intent = Intent::Poll), None);
        assert_eq!(call(&|intent, _, _| *intent = Intent::Join(Some(7))), None);
        assert_eq!(call(&|_, mode, _| *mode = Mode::Exclusive), None);
        assert_eq!(call(&|_, _, block| *block = 2), None);
        let limited = |_: &mut Intent, mode: &mut Mode, _: &mut u8| {
            if let Mode::Shared { limit, .. } = mode {
                *limit = std::num::NonZeroU64::new(5);
            }
        };
        assert_eq!(call(&limited), None);
        let items = [leave(1, "a", true), leave(2, "a", false)];
        assert_eq!(arranged(&mut Apart::default(), &items), None);
    }

    #[test]
    fn another_epoch_is_another_call() {
        let mut items = [take(1, "a", SHARE, 10), take(2, "a", SHARE, 10), leave(3, "a", true)];
        if let Item::Call { call: Call::Acquire { epoch, .. }, .. } = &mut items[1] {
            *epoch = ServerTime::from_micros(2);
        }
        let all = arranged(&mut Apart::default(), &items).unwrap();
        assert_eq!(all, [vec![1], vec![2, 3]]);
    }

    #[test]
    fn no_more_locks_are_kept_apart_than_there_is_room_for() {
        let mut apart = Apart::default();
        for number in 0..=APART_LOCKS_MAX {
            let keys = LockKeys::from_key(&number.to_string());
            apart.answers(Callers { keys, ..callers() }, Ok(Reply::Owner(false)));
        }
        assert_eq!(apart.0.len(), APART_LOCKS_MAX);
    }

    fn callers() -> Callers {
        let [taking, leaving] = [vec![RequestId(1), RequestId(2)], vec![RequestId(3)]];
        Callers { keys: LockKeys::from_key("a"), taking, leaving }
    }

    #[test]
    fn each_caller_has_its_answer() {
        let mut apart = Apart::default();
        let changed = |beside| Ok(Reply::Changed { fence: 7, beside });
        let joined = |fence| Ok(Reply::Joined { fence });
        let free = [Ok(Reply::Granted { fence: 7 }), joined(8), Ok(Reply::Owner(true))];
        let replies = |answers: Vec<(RequestId, _)>| answers.into_iter().map(|(_, it)| it);
        assert!(
            replies(apart.answers(callers(), changed(false))).eq(free),
            "the lock was free, so the first caller has it"
        );
        let held = [joined(7), joined(8), Ok(Reply::Owner(true))];
        assert!(
            replies(apart.answers(callers(), changed(true))).eq(held),
            "the lock was held, so both takers join it"
        );
    }

    #[test]
    fn a_lock_that_others_wait_for_is_asked_for_alone_for_a_while() {
        let mut apart = Apart::default();
        let answers = apart.answers(callers(), Ok(Reply::Owner(false)));
        assert!(
            answers.iter().all(|(_, answer)| *answer == Err(Failure::Together)),
            "each caller is to ask alone"
        );
        let items = [take(1, "a", SHARE, 10), take(2, "a", SHARE, 10)];
        for _ in 0..APART / 2 {
            assert_eq!(arranged(&mut apart, &items).unwrap(), [vec![1], vec![2]]);
        }
        assert_eq!(arranged(&mut apart, &items).unwrap(), [vec![1, 2]]);
        assert!(apart.0.is_empty(), "nothing is remembered in the end");
    }

    #[test]
    fn only_an_error_that_may_have_changed_something_is_the_callers() {
        let mut apart = Apart::default();
        for (failure, told) in [
            (Failure::NoScript, Failure::Together),
            (Failure::Lost("x".to_owned()), Failure::Lost("x".to_owned())),
            (Failure::Halfway, Failure::Halfway),
        ] {
            let answers = apart.answers(callers(), Err(failure));
            assert_eq!(answers.len(), 3);
            assert!(
                answers.iter().all(|(_, answer)| *answer == Err(told.clone())),
                "each caller is told {told:?}"
            );
        }
        assert!(apart.0.is_empty(), "an error keeps no lock apart");
    }
}
