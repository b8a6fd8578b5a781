//! One lock, two processes of one owner, and a caller without an owner.
//!
//! Requests and answers arrive in any order; answers are lost, and requests are executed once more, late. Left out: the wait
//! queue and leases, see `lock`. So a plain caller that finds the lock held ends, and no lock becomes free by itself.

use super::{assert_breaks, assert_holds};
use stateright::{Model, Property};

/// The processes 0 and 1 are the owner's.
const PLAIN: usize = 2;
const CLIENTS: usize = 3;
/// The most tokens of one process: for each acquire one that asks, and one that takes over.
const TOKENS_MAX: usize = 4;

/// The protocol, or the protocol without one rule: the rule at the variant.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Variant {
    Correct,
    /// A release frees the hold with its token alone.
    ReleaseByOwner,
    /// A take-over replaces the token.
    TokenStays,
    /// A take-over replaces the token that the caller has seen, and no other.
    AnyTokenIsReplaced,
    /// Who takes over gets a later fence.
    FenceStays,
    /// A take-over without an answer is not given back.
    TakeOverIsGivenBack,
}

#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
struct Token {
    client: usize,
    number: usize,
}

impl Token {
    const fn is_owned(self) -> bool {
        self.client != PLAIN
    }
}

#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
enum Call {
    Acquire,
    Adopt {
        from: Token,
    },
    /// `asked`: a caller wants it, and no token is only given back.
    Release {
        asked: bool,
    },
    /// The owner releases what it has, by its name.
    Force {
        seen: Token,
    },
}

#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
enum Answer {
    Granted { fence: u8 },
    Held(Token),
    Done,
    Denied,
}

/// What is on its way.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
enum Parcel {
    Request(Token, Call),
    Answer(Token, Call, Answer),
    /// Tells that a hold was taken over.
    Adopted(Token),
}

/// The state of a token in its process.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
enum HoldTerms {
    #[default]
    NotBegun,
    Asking,
    TakingOver,
    Holding,
    Releasing,
    Ended,
}

/// The events that are left.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Budget {
    acquires: [u8; CLIENTS],
    /// Releases by name and owner.
    forces: u8,
    lost_answers: u8,
    /// Requests that are executed once more.
    repeats: u8,
    /// Callers that wait no longer.
    cancels: u8,
}

struct Protocol {
    variant: Variant,
    budget: Budget,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct State {
    lock: Option<Token>,
    fence: u8,
    /// Sorted, so that states which differ in nothing else are one.
    parcels: Vec<Parcel>,
    holds: [[HoldTerms; TOKENS_MAX]; CLIENTS],
    /// The tokens that have taken something over.
    taken_over: Vec<Token>,
    /// Holds that their owner has ended elsewhere: their handles may not know it yet.
    ended: Vec<Token>,
    left: Budget,
    last_fence: u8,
    fence_fell: bool,
    /// What an owner had is free, and none of its callers has released it.
    freed_unasked: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Action {
    Acquire(usize),
    Release(Token),
    Cancel(Token),
    Force(usize),
    Arrive(usize),
    /// A request arrives, and will once more.
    ArriveTwice(usize),
    Lose(usize),
}

const HOLDERS_OWN: &str = "who believes to hold the lock owns it, unless its owner has ended that";
const FENCES_RISE: &str = "each hold has a greater fence than those before";
const OWNERS_KEEP: &str = "what an owner has is freed by its callers alone";

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            lock: None,
            fence: 0,
            parcels: Vec::new(),
            holds: Default::default(),
            taken_over: Vec::new(),
            ended: Vec::new(),
            left: self.budget,
            last_fence: 0,
            fence_fell: false,
            freed_unasked: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for client in 0..CLIENTS {
            if state.left.acquires[client] > 0 {
                actions.push(Action::Acquire(client));
            }
            if client != PLAIN && state.left.forces > 0 && state.lock.is_some_and(Token::is_owned) {
                actions.push(Action::Force(client));
            }
        }
        for (token, hold) in state.tokens() {
            match hold {
                HoldTerms::Holding => actions.push(Action::Release(token)),
                HoldTerms::Asking | HoldTerms::TakingOver if state.left.cancels > 0 => {
                    actions.push(Action::Cancel(token));
                }
                _ => {}
            }
        }
        for (place, parcel) in state.parcels.iter().enumerate() {
            actions.push(Action::Arrive(place));
            match parcel {
                Parcel::Request(..) if state.left.repeats > 0 => {
                    actions.push(Action::ArriveTwice(place));
                }
                Parcel::Answer(..) if state.left.lost_answers > 0 => {
                    actions.push(Action::Lose(place));
                }
                _ => {}
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Acquire(client) => {
                next.left.acquires[client] -= 1;
                next.ask(client)?;
            }
            Action::Release(token) => next.release(token, true),
            Action::Cancel(token) => {
                next.left.cancels -= 1;
                next.cancel(self.variant, token);
            }
            Action::Force(client) => {
                next.left.forces -= 1;
                let (seen, token) = (next.lock?, Token { client, number: TOKENS_MAX });
                next.send(Parcel::Request(token, Call::Force { seen }));
            }
            Action::Arrive(place) => {
                let parcel = next.parcels.remove(place);
                next.arrive(self.variant, parcel)?;
            }
            Action::ArriveTwice(place) => {
                next.left.repeats -= 1;
                let parcel = next.parcels[place];
                next.arrive(self.variant, parcel)?;
            }
            Action::Lose(place) => {
                next.left.lost_answers -= 1;
                if let Parcel::Answer(token, call, _) = next.parcels.remove(place) {
                    next.repeat(token, call);
                }
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let taken_over = |_: &Self, state: &State| {
            let mut tokens = state.tokens();
            tokens.any(|(token, hold)| hold == HoldTerms::Ended && state.ended.contains(&token))
        };
        vec![
            Property::always(HOLDERS_OWN, |_, state: &State| state.holders_own()),
            Property::always(FENCES_RISE, |_, state: &State| !state.fence_fell),
            Property::always(OWNERS_KEEP, |_, state: &State| !state.freed_unasked),
            Property::sometimes("a hold is taken over", taken_over),
            Property::sometimes("a plain caller gets it behind an owner", |_, state: &State| {
                state.lock.is_some_and(|token| token.client == PLAIN) && state.fence > 1
            }),
        ]
    }
}

impl State {
    fn tokens(&self) -> impl Iterator<Item = (Token, HoldTerms)> {
        (0..CLIENTS).flat_map(move |client| {
            let holds = self.holds[client].iter().enumerate();
            holds.map(move |(number, hold)| (Token { client, number }, *hold))
        })
    }

    fn holders_own(&self) -> bool {
        self.tokens().all(|(token, hold)| {
            let believes = matches!(hold, HoldTerms::Holding);
            !believes || self.lock == Some(token) || self.ended.contains(&token)
        })
    }

    fn hold(&mut self, token: Token) -> Option<&mut HoldTerms> {
        self.holds[token.client].get_mut(token.number)
    }

    fn set(&mut self, token: Token, to: HoldTerms) {
        if let Some(hold) = self.hold(token) {
            *hold = to;
        }
    }

    fn send(&mut self, parcel: Parcel) {
        let place = self.parcels.partition_point(|other| *other < parcel);
        self.parcels.insert(place, parcel);
    }

    fn new_token(&self, client: usize) -> Option<Token> {
        let number = self.holds[client].iter().position(|hold| *hold == HoldTerms::NotBegun)?;
        Some(Token { client, number })
    }

    fn ask(&mut self, client: usize) -> Option<()> {
        let token = self.new_token(client)?;
        self.set(token, HoldTerms::Asking);
        self.send(Parcel::Request(token, Call::Acquire));
        Some(())
    }

    fn release(&mut self, token: Token, asked: bool) {
        self.set(token, HoldTerms::Releasing);
        self.send(Parcel::Request(token, Call::Release { asked }));
    }

    /// A caller waits no longer. What was the owner's before stays so.
    fn cancel(&mut self, variant: Variant, token: Token) {
        let takes_over = self.hold(token).is_some_and(|hold| *hold == HoldTerms::TakingOver);
        if takes_over && variant != Variant::TakeOverIsGivenBack {
            self.set(token, HoldTerms::Ended);
        } else {
            self.release(token, false);
        }
    }

    /// A request without an answer is sent again, as long as somebody waits for it.
    fn repeat(&mut self, token: Token, call: Call) {
        let hold = self.hold(token).map_or(HoldTerms::Ended, |hold| *hold);
        let waits = match call {
            Call::Acquire => hold == HoldTerms::Asking,
            Call::Adopt { .. } => hold == HoldTerms::TakingOver,
            Call::Release { .. } => hold == HoldTerms::Releasing,
            Call::Force { .. } => false,
        };
        if waits {
            self.send(Parcel::Request(token, call));
        }
    }

    fn arrive(&mut self, variant: Variant, parcel: Parcel) -> Option<()> {
        match parcel {
            Parcel::Request(token, call) => {
                let answer = self.execute(variant, token, call);
                self.send(Parcel::Answer(token, call, answer));
            }
            Parcel::Answer(token, call, answer) => self.answered(token, call, answer)?,
            Parcel::Adopted(token) => {
                if matches!(self.hold(token), Some(HoldTerms::Holding)) {
                    self.set(token, HoldTerms::Ended);
                }
            }
        }
        Some(())
    }

    fn answered(&mut self, token: Token, call: Call, answer: Answer) -> Option<()> {
        let hold = self.hold(token).map_or(HoldTerms::Ended, |hold| *hold);
        match (hold, call, answer) {
            (HoldTerms::Asking, Call::Acquire, Answer::Granted { fence })
            | (HoldTerms::TakingOver, Call::Adopt { .. }, Answer::Granted { fence }) => {
                self.set(token, HoldTerms::Holding);
                // Its owner may have taken it over before this answer came.
                if !self.ended.contains(&token) {
                    self.fence_fell |= fence <= self.last_fence;
                    self.last_fence = self.last_fence.max(fence);
                }
            }
            (HoldTerms::Asking, Call::Acquire, Answer::Held(holder)) => {
                self.set(token, HoldTerms::Ended);
                if token.is_owned() && holder.is_owned() {
                    let new = self.new_token(token.client)?;
                    self.set(new, HoldTerms::TakingOver);
                    self.send(Parcel::Request(new, Call::Adopt { from: holder }));
                }
            }
            // That hold has ended meanwhile.
            (HoldTerms::TakingOver, Call::Adopt { .. }, Answer::Denied) => {
                self.set(token, HoldTerms::Ended);
                self.ask(token.client)?;
            }
            (HoldTerms::Releasing, Call::Release { .. }, _) => self.set(token, HoldTerms::Ended),
            _ => {}
        }
        Some(())
    }

    /// The effects of `acquire.lua`, `adopt.lua`, `release.lua` and `force.lua`.
    fn execute(&mut self, variant: Variant, token: Token, call: Call) -> Answer {
        match (call, self.lock) {
            (Call::Acquire, None) => self.grant(token),
            (Call::Acquire, Some(holder)) if holder == token => self.grant(token),
            (Call::Acquire, Some(holder)) => Answer::Held(holder),
            (Call::Adopt { from }, Some(holder))
                if holder == from || holder == token || variant == Variant::AnyTokenIsReplaced =>
            {
                self.take_over(variant, token, holder)
            }
            (Call::Release { asked }, Some(holder)) => {
                let is_meant = match variant {
                    Variant::ReleaseByOwner => holder.is_owned() == token.is_owned(),
                    _ => holder == token,
                };
                if is_meant {
                    self.freed_unasked |= !asked && self.taken_over.contains(&holder);
                    self.lock = None;
                }
                Answer::Done
            }
            (Call::Force { seen }, Some(holder)) if holder == seen => {
                self.ended.push(seen);
                self.lock = None;
                Answer::Done
            }
            _ => Answer::Denied,
        }
    }

    fn grant(&mut self, token: Token) -> Answer {
        self.lock = Some(token);
        self.fence += 1;
        Answer::Granted { fence: self.fence }
    }

    fn take_over(&mut self, variant: Variant, token: Token, holder: Token) -> Answer {
        if holder != token {
            self.taken_over.push(token);
            if holder.is_owned() {
                self.ended.push(holder);
            }
            self.send(Parcel::Adopted(holder));
        }
        if variant != Variant::TokenStays {
            self.lock = Some(token);
        }
        if variant != Variant::FenceStays {
            self.fence += 1;
        }
        Answer::Granted { fence: self.fence }
    }
}

const CALM: Budget =
    Budget { acquires: [1, 1, 1], forces: 0, lost_answers: 0, repeats: 0, cancels: 0 };
const TWICE: Budget = Budget { acquires: [2, 1, 1], ..CALM };
const LATE: Budget = Budget { repeats: 1, ..CALM };
const LOST: Budget = Budget { lost_answers: 1, cancels: 1, ..CALM };
const FORCED: Budget = Budget { forces: 1, ..LATE };

#[test]
fn every_promise_about_owners_is_kept() {
    for (budget, least) in [(CALM, 100), (TWICE, 500), (LATE, 500), (LOST, 500), (FORCED, 500)] {
        let model = Protocol { variant: Variant::Correct, budget };
        assert_holds(&format!("{budget:?}"), model, least);
    }
}

#[test]
fn every_rule_of_owners_is_needed() {
    for (variant, promise, budget) in [
        (Variant::ReleaseByOwner, HOLDERS_OWN, LATE),
        (Variant::TokenStays, HOLDERS_OWN, CALM),
        (Variant::AnyTokenIsReplaced, HOLDERS_OWN, TWICE),
        (Variant::FenceStays, FENCES_RISE, CALM),
        (Variant::TakeOverIsGivenBack, OWNERS_KEEP, LOST),
    ] {
        assert_breaks(&format!("{variant:?}"), Protocol { variant, budget }, promise);
    }
}
