//! Fences that rise though no server knows all of them: one lock on three independent servers.
//!
//! An attempt takes the lock on a majority and reads the servers' counters there (round one), chooses a fence
//! above them, and writes it to each server with its token and a lower counter (round two). A majority of
//! writes makes a holder. It may propose a fence in round one, which a server writes as it gives the lock, if its
//! counter is lower; then a majority of such writes makes a holder without a second round.
//!
//! Requests are executed in any order, at any later time or never, and each reply arrives at once or never; a
//! late reply is one that the client has stopped waiting for. The servers are interchangeable, so a state
//! keeps them sorted. The assumptions about time and servers are a [`World`].
//!
//! Left out: the renewal of a lease (an attempt lasts until it ends), wake-ups and waiting, more than
//! three servers.

use super::{assert_breaks, assert_holds};
use stateright::{Model, Property};

const SERVERS: usize = 3;
const MAJORITY: usize = 2;
const ATTEMPTS: usize = 2;

/// The clients of the two attempts. Attempts of one client follow each other.
type Clients = [usize; ATTEMPTS];
const ONE_CLIENT: Clients = [0, 0];
const TWO_CLIENTS: Clients = [0, 1];

/// The protocol, or the protocol without one rule: the rule at the variant.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Variant {
    Correct,
    /// There is a round two: the greatest of the counters, raised in round one, is not enough.
    OneRound,
    /// A fence is written only where the counter is less, not where it is the same.
    EqualIsLess,
    /// A fence is above the counters that were read.
    FenceIsNotAbove,
    /// A proposed fence is written only where the counter is less.
    ProposalIsNotAbove,
    /// A majority must have written the proposed fence.
    OneProposalIsEnough,
    /// A proposed fence is written only where the clock is not above it.
    ProposalBehindClock,
    /// A majority must have written the fence.
    OneWriteIsEnough,
    /// Round two is never repeated: a repeat could not tell its own fence from another's.
    WriteIsRepeated,
    /// Only the attempt that has the lock releases it.
    AnyAttemptReleases,
    /// Only a later attempt takes the lock over from one of the same client.
    AnyAttemptReplaces,
    /// The fence is not below the servers' clocks, since counters may be lost.
    ClocksAreIgnored,
    /// A server that has lost its data does not vote before all older leases have ended.
    LoserVotes,
    /// A holder that takes the lock on another server later writes its fence there as well.
    CopyWritesNoFence,
}

/// The assumptions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum World {
    /// None about time, not even that a holder's lease lasts. No server loses its data.
    Asynchronous,
    /// No server lets a lease end before its owner believes so. No server loses its data.
    HonestLeases,
    /// The same, but one server loses its data. The servers' clocks agree: their time is above every fence of
    /// a holder.
    LossWithClocks,
    /// The same, but clocks do not count. Holders take the lock on the servers that they lack, and data is
    /// lost only when a holder knows that its fence is on all servers.
    LossWhenCopied,
}

#[derive(Clone, Copy)]
struct Protocol {
    variant: Variant,
    world: World,
    clients: Clients,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct State {
    servers: [Server; SERVERS],
    attempts: [Attempt; ATTEMPTS],
    /// The fences of all holders, in ascending order.
    fences: Vec<u8>,
    /// A hold began with a fence that was not above the required ones.
    fell: bool,
    may_lose_data: bool,
}

#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
struct Server {
    /// The attempt that has the lock here.
    lock: Option<usize>,
    counter: u8,
    /// The attempt that had the lock when the data was lost.
    lost: Option<usize>,
    /// The messages between each attempt and this server.
    channels: [Channel; ATTEMPTS],
}

#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
struct Channel {
    /// Requests in flight, one flag for each kind.
    requests: [bool; REQUESTS.len()],
    /// The replies that the attempt has from this server.
    heard: Heard,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(usize)]
enum Request {
    Lock,
    Write,
    /// Only in a variant: a repeat of round two.
    WriteAgain,
    /// Lock and write at once.
    CopyLock,
}

const REQUESTS: [Request; 4] =
    [Request::Lock, Request::Write, Request::WriteAgain, Request::CopyLock];

#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
enum Heard {
    #[default]
    Nothing,
    Locked,
    Written,
}

/// The greatest fence that is proposed.
const PROPOSAL_MAX: u8 = 2;

#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
struct Attempt {
    phase: Phase,
    /// The greatest counter that it has read; after its choice, its fence.
    fence: u8,
    /// The fence that it proposes in round one; 0 for none.
    proposal: u8,
    /// The bound of its fence: the fences of all holders before it began.
    floor: u8,
}

#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
enum Phase {
    #[default]
    NotBegun,
    Locking,
    Writing,
    Holding,
    Ended,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Action {
    /// With a proposal.
    Begin(usize, u8),
    Choose(usize),
    Repeat(usize),
    CopyLock(usize),
    /// Gives up, or ends: from now on its leases may end.
    End(usize),
    Execute {
        server: usize,
        attempt: usize,
        request: Request,
        answered: bool,
    },
    Expire {
        server: usize,
    },
    LoseData {
        server: usize,
    },
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            servers: Default::default(),
            attempts: Default::default(),
            fences: Vec::new(),
            fell: false,
            may_lose_data: self.world.loses_data(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for attempt in 0..ATTEMPTS {
            self.steps(state, attempt, actions);
        }
        for (place, server) in state.servers.iter().enumerate() {
            for attempt in 0..ATTEMPTS {
                for request in REQUESTS {
                    if server.channels[attempt].requests[request as usize] {
                        let execute = |answered| Action::Execute {
                            server: place,
                            attempt,
                            request,
                            answered,
                        };
                        actions.extend([true, false].map(execute));
                    }
                }
            }
            if server.lock.is_some_and(|lock| self.may_end(state, lock)) {
                actions.push(Action::Expire { server: place });
            }
            if state.may_lose_data && (!self.world.holders_copy() || state.is_copied()) {
                actions.push(Action::LoseData { server: place });
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Begin(attempt, proposal) => next.begin(attempt, proposal),
            Action::Choose(attempt) => next.choose(self, attempt),
            Action::Repeat(attempt) => next.repeat(attempt),
            Action::CopyLock(attempt) => next.send(attempt, Request::CopyLock),
            Action::End(attempt) => next.end(attempt),
            Action::Execute { server, attempt, request, answered } => {
                next.execute(self, server, attempt, request, answered);
            }
            Action::Expire { server } => next.servers[server].lock = None,
            Action::LoseData { server } => next.lose_data(server),
        }
        next.settle();
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(FENCES_DIFFER, |_, state: &State| {
                state.fences.is_sorted_by(|one, next| one < next)
            }),
            Property::always(FENCES_RISE, |_, state: &State| !state.fell),
            Property::sometimes("every attempt has held the lock", |_, state: &State| {
                state.fences.len() == ATTEMPTS
            }),
        ];
        if self.world.leases_are_honest() {
            properties.push(Property::always(LOCKS_LAST, |_, state: &State| state.locks_last()));
            properties.push(Property::always(ONE_HOLDER, |_, state: &State| state.holders() <= 1));
        } else if self.clients == TWO_CLIENTS {
            properties
                .push(Property::sometimes("two believe to hold the lock", |_, state: &State| {
                    state.holders() == 2
                }));
        }
        if self.world.loses_data() {
            properties.push(Property::sometimes("data of a holder is lost", |_, state: &State| {
                state.holders() == 1 && state.servers.iter().any(|server| server.lost.is_some())
            }));
        }
        properties
    }
}

const FENCES_DIFFER: &str = "no two holds have the same fence";
const FENCES_RISE: &str = "a hold has a greater fence than those before";
const LOCKS_LAST: &str = "a server keeps its lock for an attempt until that ends";
const ONE_HOLDER: &str = "at most one believes to hold the lock";

impl Variant {
    /// How many writes make a holder.
    fn enough(self, lax: Self) -> usize {
        if self == lax { 1 } else { MAJORITY }
    }
}

impl World {
    fn leases_are_honest(self) -> bool {
        self != Self::Asynchronous
    }

    fn loses_data(self) -> bool {
        matches!(self, Self::LossWithClocks | Self::LossWhenCopied)
    }

    fn clocks_agree(self) -> bool {
        self == Self::LossWithClocks
    }

    fn holders_copy(self) -> bool {
        self == Self::LossWhenCopied
    }
}

impl Protocol {
    /// Whether the lock of `attempt` may end on a server, by its lease or by a release.
    fn may_end(&self, state: &State, attempt: usize) -> bool {
        let is_over = |attempt: usize| state.attempts[attempt].phase == Phase::Ended;
        let by_release = |other: usize| match self.variant {
            Variant::AnyAttemptReleases => self.clients[other] == self.clients[attempt],
            _ => other == attempt,
        };
        !self.world.leases_are_honest()
            || (0..ATTEMPTS).any(|other| is_over(other) && by_release(other))
    }

    fn steps(&self, state: &State, attempt: usize, actions: &mut Vec<Action>) {
        match state.attempts[attempt].phase {
            Phase::NotBegun => {
                let is_over = |other: usize| state.attempts[other].phase == Phase::Ended;
                let mut earlier =
                    (0..attempt).filter(|other| self.clients[*other] == self.clients[attempt]);
                if earlier.all(is_over) {
                    actions.extend((0..=PROPOSAL_MAX).map(|it| Action::Begin(attempt, it)));
                }
                return;
            }
            Phase::Locking => {
                if state.heard(attempt, Heard::Locked) >= MAJORITY {
                    actions.push(Action::Choose(attempt));
                }
            }
            Phase::Writing => {
                if self.variant == Variant::WriteIsRepeated {
                    actions.push(Action::Repeat(attempt));
                }
            }
            Phase::Holding if self.world.holders_copy() => actions.push(Action::CopyLock(attempt)),
            Phase::Holding => {}
            Phase::Ended => return,
        }
        actions.push(Action::End(attempt));
    }
}

impl State {
    fn holders(&self) -> usize {
        self.attempts.iter().filter(|attempt| attempt.phase == Phase::Holding).count()
    }

    /// The number of servers with this reply to an attempt.
    fn heard(&self, attempt: usize, what: Heard) -> usize {
        self.servers.iter().filter(|server| server.channels[attempt].heard >= what).count()
    }

    /// Whether each attempt still has the lock where a reply says so, unless the data was lost.
    fn locks_last(&self) -> bool {
        let lasts = |server: &Server, attempt: usize| {
            server.channels[attempt].heard == Heard::Nothing
                || [server.lock, server.lost].contains(&Some(attempt))
        };
        self.servers.iter().all(|server| (0..ATTEMPTS).all(|attempt| lasts(server, attempt)))
    }

    /// Whether a holder knows that its fence is on all servers.
    fn is_copied(&self) -> bool {
        (0..ATTEMPTS).any(|attempt| {
            self.attempts[attempt].phase == Phase::Holding
                && self.heard(attempt, Heard::Written) == SERVERS
        })
    }

    fn send(&mut self, attempt: usize, request: Request) {
        for server in &mut self.servers {
            let channel = &mut server.channels[attempt];
            channel.requests[request as usize] |= channel.heard != Heard::Written;
        }
    }

    /// Repeats a write whose request is gone and whose reply has not arrived.
    fn repeat(&mut self, attempt: usize) {
        for server in &mut self.servers {
            let Channel { requests, heard } = &mut server.channels[attempt];
            requests[Request::WriteAgain as usize] |=
                !requests[Request::Write as usize] && *heard == Heard::Nothing;
        }
    }

    fn highest(&self) -> u8 {
        self.fences.last().copied().unwrap_or_default()
    }

    fn begin(&mut self, attempt: usize, proposal: u8) {
        let floor = self.highest();
        self.attempts[attempt] = Attempt { phase: Phase::Locking, fence: 0, proposal, floor };
        self.send(attempt, Request::Lock);
    }

    fn choose(&mut self, protocol: &Protocol, attempt: usize) {
        for server in &mut self.servers {
            server.channels[attempt].heard = Heard::Nothing;
        }
        let chosen = &mut self.attempts[attempt];
        chosen.phase = Phase::Writing;
        match protocol.variant {
            Variant::OneRound => self.hold(protocol.world, attempt),
            Variant::FenceIsNotAbove => self.send(attempt, Request::Write),
            _ => {
                chosen.fence += 1;
                self.send(attempt, Request::Write);
            }
        }
    }

    fn hold(&mut self, world: World, attempt: usize) {
        let highest = self.highest();
        let holder = &mut self.attempts[attempt];
        holder.phase = Phase::Holding;
        // Without honest leases two holds may overlap, and only an attempt that began after the other's hold
        // comes after it.
        let floor = if world.leases_are_honest() { highest } else { holder.floor };
        self.fell |= holder.fence <= floor;
        holder.floor = 0;
        self.fences.push(holder.fence);
        self.fences.sort_unstable();
    }

    fn end(&mut self, attempt: usize) {
        self.attempts[attempt].phase = Phase::Ended;
        self.attempts[attempt].floor = 0;
        for server in &mut self.servers {
            server.lost = server.lost.filter(|lost| *lost != attempt);
            server.channels[attempt].heard = Heard::Nothing;
        }
    }

    fn execute(
        &mut self,
        protocol: &Protocol,
        server: usize,
        attempt: usize,
        request: Request,
        answered: bool,
    ) {
        let Protocol { variant, world, .. } = *protocol;
        let looks_at_clock = world.clocks_agree() && variant != Variant::ClocksAreIgnored;
        let clock = if looks_at_clock { self.highest() } else { 0 };
        let server = &mut self.servers[server];
        server.channels[attempt].requests[request as usize] = false;
        let Attempt { phase, fence, proposal, .. } = &mut self.attempts[attempt];
        let is_new = server.lock != Some(attempt);
        let done = server.execute(protocol, attempt, *fence, request);
        let above = *proposal > server.counter || variant == Variant::ProposalIsNotAbove;
        let ahead = *proposal > clock || variant == Variant::ProposalBehindClock;
        let writes = request == Request::Lock && done && is_new && *proposal > 0 && above && ahead;
        if writes {
            server.counter = server.counter.max(*proposal);
        }
        let heard = match (request, phase) {
            (Request::Lock, Phase::Locking) => {
                if done && answered {
                    *fence = server.counter.max(clock).max(*fence);
                }
                if writes { Heard::Written } else { Heard::Locked }
            }
            (Request::Write | Request::WriteAgain, Phase::Writing)
            | (Request::CopyLock, Phase::Holding) => Heard::Written,
            _ => Heard::Nothing,
        };
        if !(done && answered) {
            return;
        }
        let channel = &mut server.channels[attempt];
        channel.heard = channel.heard.max(heard);
        let writes = self.heard(attempt, Heard::Written);
        match self.attempts[attempt].phase {
            Phase::Writing if writes >= variant.enough(Variant::OneWriteIsEnough) => {
                self.hold(world, attempt);
            }
            Phase::Locking if writes >= variant.enough(Variant::OneProposalIsEnough) => {
                self.attempts[attempt].fence = self.attempts[attempt].proposal;
                self.hold(world, attempt);
            }
            _ => {}
        }
    }

    /// States are equal if they differ only in the order of the servers, or in parts without any further
    /// effect.
    fn settle(&mut self) {
        for server in &mut self.servers {
            server.forget_what_is_futile();
        }
        self.servers.sort_unstable();
        for (attempt, it) in self.attempts.iter_mut().enumerate() {
            let Attempt { phase, fence, proposal, .. } = it;
            let is_silent = |server: &Server| !server.channels[attempt].requests.contains(&true);
            if *phase == Phase::Ended && self.servers.iter().all(is_silent) {
                (*fence, *proposal) = (0, 0);
            }
        }
    }

    fn lose_data(&mut self, server: usize) {
        self.may_lose_data = false;
        let server = &mut self.servers[server];
        server.lost = server.lock.filter(|lock| self.attempts[*lock].phase != Phase::Ended);
        server.lock = None;
        server.counter = 0;
    }
}

impl Server {
    /// Whether the server did what the request asks.
    fn execute(
        &mut self,
        protocol: &Protocol,
        attempt: usize,
        fence: u8,
        request: Request,
    ) -> bool {
        let variant = protocol.variant;
        let equal_will_do = matches!(variant, Variant::EqualIsLess | Variant::FenceIsNotAbove);
        let is_owner = self.lock == Some(attempt);
        let done = match request {
            Request::Lock => self.may_lock(protocol, attempt),
            Request::Write => {
                is_owner && (self.counter < fence || (equal_will_do && self.counter == fence))
            }
            Request::WriteAgain => is_owner && self.counter <= fence,
            Request::CopyLock => is_owner || self.may_lock(protocol, attempt),
        };
        if done {
            self.lock = Some(attempt);
            self.counter = match request {
                Request::Lock if variant == Variant::OneRound => self.counter + 1,
                Request::Lock => self.counter,
                Request::CopyLock if variant == Variant::CopyWritesNoFence => self.counter,
                Request::Write | Request::WriteAgain | Request::CopyLock => self.counter.max(fence),
            };
        }
        done
    }

    fn may_lock(&self, protocol: &Protocol, attempt: usize) -> bool {
        let Protocol { variant, clients, .. } = *protocol;
        let votes = self.lost.is_none() || variant == Variant::LoserVotes;
        votes
            && self.lock.is_none_or(|lock| {
                let later = lock < attempt || variant == Variant::AnyAttemptReplaces;
                clients[lock] == clients[attempt] && later
            })
    }

    /// A request without any further effect counts as lost.
    fn forget_what_is_futile(&mut self) {
        for (attempt, Channel { requests, .. }) in self.channels.iter_mut().enumerate() {
            let may_own = self.lock == Some(attempt)
                || requests[Request::Lock as usize]
                || requests[Request::CopyLock as usize];
            if !may_own {
                *requests = Default::default();
            }
        }
    }
}

fn assert_keeps_promises(clients: Clients, world: World, least: usize) {
    let what = format!("{clients:?} {world:?}");
    assert_holds(&what, Protocol { variant: Variant::Correct, world, clients }, least);
}

#[test]
fn fences_rise_without_any_assumption_about_time() {
    assert_keeps_promises(TWO_CLIENTS, World::Asynchronous, 80_000);
    assert_keeps_promises(ONE_CLIENT, World::Asynchronous, 1_000);
}

#[test]
fn fences_rise_from_holder_to_holder_if_leases_are_honest() {
    assert_keeps_promises(TWO_CLIENTS, World::HonestLeases, 10_000);
    assert_keeps_promises(ONE_CLIENT, World::HonestLeases, 1_000);
}

#[test]
fn fences_rise_when_a_server_loses_its_data_and_the_clocks_agree() {
    assert_keeps_promises(TWO_CLIENTS, World::LossWithClocks, 40_000);
}

#[test]
fn fences_rise_when_a_server_loses_its_data_and_the_fence_was_on_all() {
    assert_keeps_promises(TWO_CLIENTS, World::LossWhenCopied, 40_000);
}

#[test]
fn every_rule_of_the_fence_is_needed() {
    for (variant, promise, clients, world) in [
        (Variant::OneRound, FENCES_DIFFER, TWO_CLIENTS, World::Asynchronous),
        (Variant::EqualIsLess, FENCES_DIFFER, TWO_CLIENTS, World::Asynchronous),
        (Variant::FenceIsNotAbove, FENCES_DIFFER, TWO_CLIENTS, World::Asynchronous),
        (Variant::ProposalIsNotAbove, FENCES_DIFFER, TWO_CLIENTS, World::Asynchronous),
        (Variant::OneProposalIsEnough, FENCES_DIFFER, TWO_CLIENTS, World::Asynchronous),
        (Variant::ProposalBehindClock, FENCES_RISE, TWO_CLIENTS, World::LossWithClocks),
        (Variant::OneWriteIsEnough, FENCES_DIFFER, TWO_CLIENTS, World::Asynchronous),
        (Variant::WriteIsRepeated, FENCES_DIFFER, TWO_CLIENTS, World::Asynchronous),
        (Variant::AnyAttemptReleases, LOCKS_LAST, ONE_CLIENT, World::HonestLeases),
        (Variant::AnyAttemptReplaces, LOCKS_LAST, ONE_CLIENT, World::HonestLeases),
        (Variant::ClocksAreIgnored, FENCES_RISE, TWO_CLIENTS, World::LossWithClocks),
        (Variant::LoserVotes, ONE_HOLDER, TWO_CLIENTS, World::LossWithClocks),
        (Variant::CopyWritesNoFence, FENCES_RISE, TWO_CLIENTS, World::LossWhenCopied),
    ] {
        assert_breaks(&format!("{variant:?}"), Protocol { variant, world, clients }, promise);
    }
}
