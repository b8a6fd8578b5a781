//! Redlock: one lock on several servers that know nothing of each other.
//!
//! ```text
//!   core ── Quorum ── Machine       one virtual server, whose answers are the results of ballots
//!               └────── servers     each with a connection, a deadline and withdrawals of its own
//! ```
//!
//! The [`Machine`] inside assumes one server. Each of its requests becomes a [`Ballot`]: a request to all servers at
//! once, decided as soon as the result is certain. So waiting, renewal, loss and closing are those of a single server;
//! only what several servers need is here. Each component owns its state; only [`Quorum`] joins them.
//!
//! A lock is acquired in two rounds. Round one takes the lock on each server and reads its fence counter and its clock.
//! Once a majority has said yes, the fence is above all their counters and not behind their clocks. Round two writes it
//! where the attempt still has the lock and the counter is *strictly* below: of two attempts with the same fence one gets
//! it. A grant takes a majority in both rounds. Round two is never repeated, and a missing answer counts as no. One round
//! is not enough: two attempts that read the same counters on different majorities would have the same fence.
//!
//! Source: <https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/>; the two rounds
//! that issue a fence are those of a replicated register, as ABD and Paxos write one.

mod ballot;
mod candidacy;
mod inner;
mod servers;
#[cfg(all(test, feature = "core"))]
mod test_access;
#[cfg(all(test, feature = "core"))]
mod tests;
mod wake;
mod withdrawal;

use self::ballot::{Ballot, Ballots, Grantee, Question, Vote, majority};
use self::candidacy::{Candidacies, Candidacy, NodeRequest, Reach, without_attempt};
use self::servers::Servers;
use self::wake::Channels;
use self::withdrawal::Withdrawals;
use crate::machine::Machine;
use crate::machine::connection::{self, InFlight};
use crate::machine::context::Context;
use crate::machine::idle_locks::IdleSnapshot;
use crate::machine::interface::{Command, Config, Effect, Event, Outcome, Protocol, UnderWay};
use crate::machine::stats::Stats;
use crate::machine::timers::Timer;
use crate::protocol::quorum::Settings;
use crate::protocol::{
    Call, Failure, HeldBy, Intent, LeaseId, LockKeys, Message, Mono, NodeId, OpId, Reply,
    RequestId, SendMode, ServerTime, Token, WRONG_TYPE,
};
use std::collections::VecDeque;
use std::time::Duration;

/// The protocol of one manager on several servers. The same inputs and outputs as [`Machine`].
#[derive(Debug)]
pub struct Quorum {
    machine: Machine,
    /// The effects of the machine, not carried out yet.
    wanted: VecDeque<Effect>,
    context: Context,
    servers: Servers,
    ballots: Ballots,
    candidacies: Candidacies,
    withdrawals: Withdrawals,
    channels: Channels,
    closing: Option<OpId>,
    /// The effects that end the manager, held back until the last withdrawals are through.
    shutdown_effects: Vec<Effect>,
}

/// Why a vote does not count: its server has the lock, but its clock would decide the fence.
const CLOCK_AHEAD: &str = "its clock is more than a year ahead of those of most servers: set it";

/// The only server that the machine knows.
const VIRTUAL: NodeId = NodeId(0);

impl Protocol for Quorum {
    fn handle_command(&mut self, now: Mono, op: OpId, command: Command, out: &mut Vec<Effect>) {
        self.handle(now, out, |quorum| {
            if command == Command::Close && quorum.closing.is_none() {
                quorum.closing = Some(op);
            }
            quorum.tell(|machine, now, wanted| machine.handle_command(now, op, command, wanted));
        });
    }

    fn handle_reply(
        &mut self,
        now: Mono,
        node: NodeId,
        request: RequestId,
        reply: Result<Reply, Failure>,
        out: &mut Vec<Effect>,
    ) {
        self.handle(now, out, |quorum| quorum.reply(usize::from(node.0), request, reply));
    }

    fn handle_event(&mut self, now: Mono, node: NodeId, event: Event, out: &mut Vec<Effect>) {
        self.handle(now, out, |quorum| {
            quorum.event(usize::from(node.0), event);
            if let Some(opened) = quorum.servers.opened(&mut quorum.context) {
                quorum.tell_event(opened);
            }
        });
    }

    fn handle_timeout(&mut self, now: Mono, out: &mut Vec<Effect>) {
        self.handle(now, out, |quorum| {
            // The servers go first: votes that fail with their connections do not wait for a ballot's deadline.
            let (silent, detail) = quorum.servers.silent(&quorum.context);
            for node in silent {
                quorum.disconnected(node, &detail);
            }
            quorum.timeouts();
            quorum.settle();
            let has_ended = quorum.context.effects.last() == Some(&Effect::Stop);
            if !has_ended {
                quorum.tell(Machine::handle_timeout);
            }
        });
    }

    fn next_timeout(&mut self) -> Option<Mono> {
        let servers = self.servers.next_timeout(&mut self.context);
        [servers, self.machine.next_timeout()].into_iter().flatten().min()
    }

    fn is_idle(&self) -> bool {
        self.machine.is_idle()
            && self.ballots.is_empty()
            && self.candidacies.is_empty()
            && self.withdrawals.is_empty()
            && self.servers.silent_since().is_none()
            && self.context.timers.is_empty()
    }

    /// The requests to all servers count.
    /// Its servers have a clock each.
    fn server_time(&self, _: Mono, _: &str) -> Option<ServerTime> {
        None
    }

    fn under_way(&self) -> Vec<UnderWay> {
        self.machine.under_way()
    }

    fn is_under_way(&self, what: UnderWay) -> bool {
        self.machine.is_under_way(what)
    }

    fn idle_locks(&self, now: Mono) -> IdleSnapshot {
        self.machine.idle_locks(now)
    }

    fn stats(&self) -> Stats {
        Stats { requests: self.context.stats.requests, ..self.machine.stats() }
    }
}

/// The inputs.
impl Quorum {
    /// A manager that has done nothing yet. `seed` decides its jitter.
    #[must_use]
    pub fn new(config: Config, settings: Settings, seed: u64) -> Self {
        let config = Config { quorum: true, ..config };
        Self {
            machine: Machine::new(config.clone(), seed),
            wanted: VecDeque::new(),
            context: Context::new(config, !seed),
            servers: Servers::new(settings),
            ballots: Ballots::default(),
            candidacies: Candidacies::default(),
            withdrawals: Withdrawals::default(),
            channels: Channels::default(),
            closing: None,
            shutdown_effects: Vec::new(),
        }
    }

    /// The machine inside, for tests that corrupt it.
    #[cfg(all(test, feature = "core"))]
    pub(in crate::machine) fn inner(&mut self) -> &mut Machine {
        &mut self.machine
    }

    /// Handles one input and all its consequences.
    fn handle(&mut self, now: Mono, out: &mut Vec<Effect>, input: impl FnOnce(&mut Self)) {
        self.context.now = now;
        std::mem::swap(&mut self.context.effects, out);
        input(self);
        self.settle();
        std::mem::swap(&mut self.context.effects, out);
    }

    fn event(&mut self, node: usize, event: Event) {
        match event {
            Event::Connected { probe, risks, denied } => {
                self.replaced(node);
                self.servers.connected(&mut self.context, node, probe, risks, &denied);
                self.channels.connected(&mut self.context, node);
                self.withdrawals.connected(&mut self.context, node);
                if self.servers.has_majority() {
                    // The next retry may be too late for a lease.
                    self.tell(Machine::resume_renewals);
                }
            }
            Event::ConnectFailed(failure) => {
                let within = self.pressure();
                self.servers.connect_failed(&mut self.context, node, &failure, within);
            }
            Event::PubsubDenied(_) => {
                if self.servers.pubsub_denied(node) {
                    self.tell_event(event);
                }
            }
            Event::TrackingDenied => {
                if self.servers.tracking_denied(node) {
                    self.tell_event(event);
                }
            }
            Event::Disconnected(detail) => self.disconnected(node, &detail),
            Event::Listening { channel, on: true } => {
                // A message may have been missed before.
                if let Some(keys) = self.channels.lock_of(&channel) {
                    self.tell_event(Event::Message(Message::Freed(keys)));
                }
            }
            // One server alone ends no lock, but a majority may have lost it.
            Event::Message(Message::Changed(_) | Message::AllChanged | Message::Freed(_))
            | Event::Heartbeat(_) => self.tell_event(event),
            // A quorum never asks for these.
            Event::Confirmed { .. }
            | Event::Discovered(_)
            | Event::Listening { .. }
            | Event::Probed { .. }
            | Event::Message(_) => {}
        }
    }

    fn timeouts(&mut self) {
        while let Some(timer) = self.context.timers.pop(self.context.now) {
            match timer {
                Timer::Ballot(request) => {
                    self.ballots.deadline(request, self.servers.node_timeout());
                    self.decide(request);
                }
                Timer::CloseDeadline => {
                    self.settle();
                    return self.end();
                }
                Timer::ForgetChannels => {
                    let waits = |keys: &LockKeys| self.machine.waits_for(keys);
                    self.channels.forget_unused(&mut self.context, &self.servers, waits);
                }
                Timer::OpenDeadline => {
                    let opened = self.servers.open_now(&mut self.context);
                    self.tell_event(opened);
                }
                Timer::Reconnect(node) => {
                    let within = self.pressure();
                    connection::attempt(&mut self.context, node, within);
                }
                Timer::Withdrawal(node, attempt) => {
                    let node = usize::from(node.0);
                    if let Some(request) = self.withdrawals.request(node, attempt) {
                        self.servers.send(&mut self.context, node, request.clone());
                    }
                }
                // The machine has timers of its own.
                _ => {}
            }
        }
    }

    fn reply(&mut self, node: usize, request: RequestId, reply: Result<Reply, Failure>) {
        let taken = self.servers.take(&mut self.context, node, request, &reply);
        let Some(InFlight { sent, request: asked, .. }) = taken else { return };
        match reply {
            Err(Failure::Lost(detail)) => {
                self.lost(node, &asked, &detail);
                self.disconnected(node, &detail);
            }
            Err(Failure::NoScript) if self.is_wanted(&asked) => {
                self.servers.send_as(&mut self.context, node, asked, SendMode::WithSource);
            }
            // Other code wrote over the key: there is nothing of the attempt to withdraw, or to extend.
            Err(Failure::Refused(refusal))
                if refusal.code == WRONG_TYPE
                    && matches!(asked.call, Call::Withdraw { .. } | Call::Extend { .. }) =>
            {
                self.answered(node, &asked, sent, &Reply::Owner(false));
            }
            Err(failure) => {
                if let Failure::Refused(refusal) = &failure
                    && let Some(ballot) = self.ballots.get_mut(asked.ballot)
                {
                    ballot.note_refusal(refusal);
                }
                self.failed(node, &asked, &failure.to_string());
            }
            Ok(reply) => self.answered(node, &asked, sent, &reply),
        }
    }
}

/// The machine inside.
impl Quorum {
    /// Gives the machine an input. Its effects are kept until [`Self::settle`].
    fn tell(&mut self, input: impl FnOnce(&mut Machine, Mono, &mut Vec<Effect>)) {
        let mut wanted = Vec::new();
        input(&mut self.machine, self.context.now, &mut wanted);
        self.wanted.extend(wanted);
    }

    fn tell_event(&mut self, event: Event) {
        self.tell(|machine, now, wanted| machine.handle_event(now, VIRTUAL, event, wanted));
    }

    /// Answers a request of the machine.
    fn answer(&mut self, request: RequestId, verdict: Result<Reply, Failure>) {
        self.tell(|machine, now, wanted| {
            machine.handle_reply(now, VIRTUAL, request, verdict, wanted);
        });
    }

    /// Carries out the machine's effects, and those of the answers to its requests, until none is left.
    fn settle(&mut self) {
        while let Some(effect) = self.wanted.pop_front() {
            match effect {
                Effect::Connect { .. } => self.servers.connect_all(&mut self.context),
                Effect::Disconnect { .. } => self.shutdown_effects.extend(self.servers.goodbyes()),
                Effect::Complete { op, .. } if Some(op) == self.closing => {
                    self.shutdown_effects.push(effect);
                }
                // The servers' replication ids do not matter: a majority remembers.
                Effect::Probe { .. } => {}
                Effect::Send { request, call, .. } => self.put_to_vote(request, call),
                Effect::Track { token, .. } => {
                    if let Some(it) = token.and_then(|owner| self.candidacies.get(&owner)) {
                        let servers = &self.servers;
                        servers.push_to_all_that_tell(&mut self.context, |node| it.tracking(node));
                    }
                }
                Effect::Stop => {
                    // Open withdrawals have a moment more.
                    self.shutdown_effects.push(Effect::Stop);
                    let until = self.context.now + self.servers.node_timeout();
                    self.context.timers.clear_all();
                    self.context.timers.set(Timer::CloseDeadline, until);
                }
                Effect::Complete { op, outcome: Outcome::Acquired { lease, fence, .. } } => {
                    let outcome = Outcome::Acquired { lease, fence, label: self.label_of(lease) };
                    self.context.push(Effect::Complete { op, outcome });
                }
                other => self.context.push(other),
            }
        }
        let is_ending = self.shutdown_effects.last() == Some(&Effect::Stop);
        if is_ending && self.servers.silent_since().is_none() {
            self.end();
        }
    }

    /// The label of a granted lock with its attempt, as the lock's value on the servers has them.
    fn label_of(&self, lease: LeaseId) -> Option<String> {
        let (token, label) = self.machine.labelled_token(lease)?;
        let attempt = self.candidacies.get(&token)?.attempt;
        let dot = if label.is_empty() { "" } else { "." };
        Some(format!("{label}{dot}{attempt}"))
    }

    /// Ends the manager. No effect follows.
    fn end(&mut self) {
        self.context.timers.clear_all();
        self.context.effects.append(&mut self.shutdown_effects);
    }

    /// Turns a request of the machine into a ballot.
    fn put_to_vote(&mut self, request: RequestId, call: Call) {
        match call {
            Call::Acquire { keys, token, ttl, block, intent, .. } => {
                let waits = intent != Intent::Try;
                self.servers.note_lease(ttl);
                let first = self.servers.proposal(&self.context);
                let proposed = first.map_or((0, 0), |first| (first, first + u64::from(block) - 1));
                let grantee =
                    Grantee { block, waits, proposed, written: 0, least: 0, refused: None };
                self.elect(request, keys, token, ttl, grantee);
            }
            Call::Extend { keys, token, ttl } => {
                self.servers.note_lease(ttl);
                self.extend(request, keys, token, ttl);
            }
            Call::Release { keys, token, .. } => self.withdraw(request, keys, token),
            _ => debug_assert!(false, "the machine does not ask {call:?}"),
        }
    }
}

/// Elections.
impl Quorum {
    /// Round one.
    fn elect(
        &mut self,
        request: RequestId,
        keys: LockKeys,
        owner: Token,
        ttl: Duration,
        grantee: Grantee,
    ) {
        // An earlier grant of this token came too late.
        self.give_up(&owner, None);
        let patience = self.servers.patience(&self.context, ttl);
        let vote = |node: usize| self.servers.vote_in_election(&self.context, node, patience);
        let votes = self.servers.all().map(vote).collect();
        let (mark, fences) = (grantee.waits, grantee.proposed);
        let question = Question::Lock(grantee);
        let deadline = self.context.now + patience;
        let ballot = Ballot { request, owner, keys, question, votes, deadline };
        if ballot.is_out_of_reach() {
            // An attempt without a chance is not made: it would only delay others.
            return self.answer(request, Err(ballot.failure()));
        }
        let (candidacy, attempt) = self.candidacies.begin(&ballot);
        let token = ballot.owner.clone();
        let vote = |keys, _| Call::Vote { keys, token, attempt, ttl, mark, fences };
        let vote = candidacy.request(Some(request), vote);
        self.begin(ballot, Some(vote));
    }

    /// Begins a ballot: sends its request to every server whose vote is awaited.
    fn begin(&mut self, ballot: Ballot, asked: Option<NodeRequest>) {
        if let Some(asked) = asked {
            for node in ballot.nodes(|vote| *vote == Vote::Awaited) {
                self.servers.send(&mut self.context, node, asked.clone());
            }
        }
        let request = ballot.request;
        self.ballots.begin(&mut self.context, ballot);
        self.decide(request);
    }

    /// Counts a server's vote.
    fn count(&mut self, asked: &NodeRequest, node: usize, vote: Vote) {
        if let Some(ballot) = self.ballots.get_mut(asked.ballot) {
            ballot.votes[node] = vote;
            let request = ballot.request;
            self.decide(request);
        }
    }

    /// Answers the machine if a ballot is decided.
    fn decide(&mut self, request: RequestId) {
        let decided = self.ballots.decide(&mut self.context, request);
        let Some((ballot, is_won)) = decided else { return };
        if !is_won && matches!(ballot.question, Question::Extend { .. }) {
            self.press(&ballot);
        }
        let verdict = match (&ballot.question, is_won) {
            (Question::Lock(grantee), true) if grantee.written >= majority(ballot.votes.len()) => {
                Ok(self.fence_written(&ballot.owner, grantee.proposed))
            }
            (Question::Lock(grantee), true) => {
                let grantee = grantee.clone();
                return self.begin_second_round(ballot, grantee);
            }
            (Question::WriteFence { first, last, .. }, true) => {
                Ok(self.fence_written(&ballot.owner, (*first, *last)))
            }
            (Question::Lock(grantee) | Question::WriteFence { grantee, .. }, false) => {
                self.lose_election(&ballot, grantee)
            }
            (Question::Extend { ttl }, true) => {
                self.extended(&ballot, *ttl);
                Ok(Reply::Owner(true))
            }
            (Question::Withdraw { .. }, true) => Ok(Reply::Owner(true)),
            // That is final only if a majority denies it; else the machine asks again while the lease lasts. A missing
            // answer alone ends no lease.
            (Question::Extend { .. } | Question::Withdraw { .. }, false) if ballot.is_denied() => {
                return self.denied(request, &ballot.owner);
            }
            (Question::Extend { .. } | Question::Withdraw { .. }, false) => Err(ballot.failure()),
        };
        self.answer(request, verdict);
    }

    /// An extension got no majority: its lease waits for the servers that gave no answer.
    fn press(&mut self, ballot: &Ballot) {
        let silent = ballot.nodes(|vote| matches!(vote, Vote::Awaited | Vote::Failed(_)));
        if let Some(within) = self.machine.pressure_of(self.context.now, &ballot.owner) {
            self.servers.press(&mut self.context, &silent, within);
        }
    }

    /// How soon the lease that is nearest its end needs an attempt to connect.
    fn pressure(&self) -> Option<Duration> {
        self.machine.pressure(self.context.now)
    }

    /// A majority denies that the token has the lock. The machine may not wait for that answer any more: its lease ends all
    /// the same, since the withdrawal may let another owner in.
    fn denied(&mut self, request: RequestId, owner: &Token) {
        self.answer(request, Ok(Reply::Owner(false)));
        self.tell(|machine, now, wanted| machine.deny(now, owner, wanted));
        self.give_up(owner, None);
    }

    /// A majority has accepted the fences.
    fn fence_written(&mut self, owner: &Token, (first, last): (u64, u64)) -> Reply {
        if let Some(candidacy) = self.candidacies.get_mut(owner) {
            candidacy.last_fence = Some(last);
        }
        Reply::Granted { fence: first }
    }

    /// Round two: every server that said yes is asked to accept the fence, and any other as soon as it says yes.
    fn begin_second_round(&mut self, mut ballot: Ballot, grantee: Grantee) {
        let first = grantee.least;
        let last = first + u64::from(grantee.block) - 1;
        // Round two has its own patience, since a slow round one may have used up its own.
        ballot.deadline = self.context.now + self.servers.round_patience(&self.context);
        ballot.question = Question::WriteFence { grantee, first, last };
        let yes = ballot.nodes(|vote| *vote == Vote::Yes);
        for node in yes {
            // The connection may be lost since the vote.
            ballot.votes[node] = self.servers.vote_of(node);
            self.write_fence(node, &ballot.owner, (first, last), Some(ballot.request));
        }
        self.begin(ballot, None);
    }

    /// Asks a server that has granted the lock to accept the fence.
    fn write_fence(
        &mut self,
        node: usize,
        owner: &Token,
        (first, last): (u64, u64),
        ballot: Option<RequestId>,
    ) {
        let Some(candidacy) = self.candidacies.get(owner) else { return };
        let write = |keys, token| Call::WriteFence { keys, token, first, last };
        self.servers.send(&mut self.context, node, candidacy.request(ballot, write));
    }

    /// No majority: gives the locks back on all servers, before the next attempt.
    fn lose_election(&mut self, ballot: &Ballot, grantee: &Grantee) -> Result<Reply, Failure> {
        self.give_up(&ballot.owner, None);
        match &grantee.refused {
            Some((servers, refusal)) if *servers >= majority(ballot.votes.len()) => {
                Err(Failure::Refused(refusal.clone()))
            }
            _ if ballot.is_out_of_reach() => Err(ballot.failure()),
            _ => {
                if grantee.waits {
                    self.channels.listen(&mut self.context, &self.servers, &ballot.keys);
                }
                let held = ballot.holder();
                Ok(HeldBy { holder: without_attempt(&held.holder).to_owned(), ..held }.into())
            }
        }
    }
}

/// Keeping a lock that a majority carries, and giving a lock up.
impl Quorum {
    /// Asks all servers to extend the lease, also those that have no vote in elections: what counts here is that they
    /// carry the token.
    fn extend(&mut self, request: RequestId, keys: LockKeys, owner: Token, ttl: Duration) {
        let Some(candidacy) = self.candidacies.get(&owner) else {
            return self.answer(request, Ok(Reply::Owner(false)));
        };
        let extension = |keys, token| Call::Extend { keys, token, ttl };
        let extension = candidacy.request(Some(request), extension);
        let question = Question::Extend { ttl };
        let votes = self.servers.all().map(|node| self.servers.vote_of(node)).collect();
        let deadline = self.context.now + self.servers.patience(&self.context, ttl);
        let ballot = Ballot { request, owner, keys, question, votes, deadline };
        self.begin(ballot, Some(extension));
    }

    /// A majority carries the token: copies the lock to the servers that lack it.
    fn extended(&mut self, ballot: &Ballot, ttl: Duration) {
        if let Some(candidacy) = self.candidacies.get_mut(&ballot.owner) {
            candidacy.carried = Some(ballot.request);
        }
        for node in ballot.nodes(|vote| matches!(vote, Vote::No(_))) {
            self.copy_lock(node, &ballot.owner, ttl);
        }
    }

    /// Gives the lock to a server that lacks it, only in the round in which a majority was seen to carry it: after a
    /// lost majority the lock may be another's, and this would be a vote against it.
    fn copy_lock(&mut self, node: usize, owner: &Token, ttl: Duration) {
        if let Some(candidacy) = self.candidacies.get_mut(owner)
            && let Some(last) = candidacy.last_fence
        {
            let copy =
                candidacy.request(None, |keys, token| Call::CopyLock { keys, token, ttl, last });
            if self.servers.send(&mut self.context, node, copy) {
                candidacy.reached[node] = candidacy.reached[node].max(Reach::Asked);
            }
        }
    }

    /// The machine gives a token up, in whatever state.
    fn withdraw(&mut self, request: RequestId, keys: LockKeys, owner: Token) {
        let Some(Candidacy { election, reached, .. }) = self.candidacies.get(&owner) else {
            return self.answer(request, Ok(Reply::Owner(false)));
        };
        let election = *election;
        let vote = |node: usize| match reached[node] {
            Reach::Not => Vote::No(None),
            Reach::Asked | Reach::Lost => self.servers.vote_of(node),
        };
        let votes = self.servers.all().map(vote).collect();
        if self.ballots.end(&mut self.context, election).is_some() {
            // No component waits for the election any more.
            self.answer(election, Err(Failure::NoQuorum(Vec::new())));
        }
        self.give_up(&owner, Some(request));
        let deadline = self.context.now + self.servers.node_timeout();
        let question = Question::Withdraw { overdue: false };
        self.begin(Ballot { request, owner, keys, question, votes, deadline }, None);
    }

    /// Withdraws an attempt from every server that was asked for it, after all requests to it, even unanswered ones.
    /// Where the connection is lost, or is another than that of a request, the withdrawal is also kept as pending: the
    /// request may be executed late.
    fn give_up(&mut self, owner: &Token, ballot: Option<RequestId>) {
        let Some(candidacy) = self.candidacies.remove(owner) else { return };
        let withdrawal = candidacy.request(ballot, |keys, token| Call::Withdraw { keys, token });
        for node in self.servers.all().filter(|node| candidacy.reached[*node] != Reach::Not) {
            let is_sent = self.servers.send(&mut self.context, node, withdrawal.clone());
            if !is_sent || candidacy.reached[node] == Reach::Lost {
                self.withdrawals.add(node, withdrawal.clone(), self.context.now);
            }
        }
    }
}

/// The servers' answers.
impl Quorum {
    /// Whether an unexecuted request is still needed: not if its attempt was given up, since the withdrawal went ahead
    /// of a repeat.
    fn is_wanted(&mut self, asked: &NodeRequest) -> bool {
        matches!(asked.call, Call::Withdraw { .. }) || self.candidacies.of(asked).is_some()
    }

    fn answered(&mut self, node: usize, asked: &NodeRequest, sent: Mono, reply: &Reply) {
        match (&asked.call, reply) {
            (Call::Vote { .. }, reply) => self.voted(node, asked, sent, reply),
            (Call::Extend { ttl, .. }, Reply::Owner(carries)) => {
                self.confirmed(node, asked, *ttl, *carries);
            }
            (Call::WriteFence { .. } | Call::CopyLock { .. }, Reply::Owner(yes)) => {
                self.count(asked, node, Vote::of(*yes));
            }
            (Call::Withdraw { .. }, Reply::Owner(freed)) => {
                self.withdrawals.answered(&mut self.context, node, asked.attempt, sent);
                self.count(asked, node, Vote::of(*freed));
            }
            _ => debug_assert!(false, "{reply:?} is no answer to {:?}", asked.call),
        }
    }

    /// An answer to round one. If it comes in round two or later, the server is asked to accept the fence, too.
    fn voted(&mut self, node: usize, asked: &NodeRequest, sent: Mono, answer: &Reply) {
        if let Reply::Voted { time, .. } = answer {
            self.servers.note_clock(node, sent, *time);
        }
        let Some(candidacy) = self.candidacies.of(asked) else {
            // Its withdrawal follows on the same connection.
            return;
        };
        let Reply::Voted { counter, time, written } = answer else {
            let holder = if let Reply::Held(holder) = answer { Some(&**holder) } else { None };
            return self.count(asked, node, Vote::No(holder.cloned()));
        };
        match self.ballots.get_mut(asked.ballot).map(|ballot| &mut ballot.question) {
            Some(Question::Lock(_)) if self.servers.is_clock_ahead(&self.context, node) => {
                self.failed(node, asked, CLOCK_AHEAD);
            }
            Some(Question::Lock(grantee)) => {
                grantee.least = grantee.least.max(counter + 1).max(time.as_micros());
                grantee.written += usize::from(*written);
                self.count(asked, node, Vote::Yes);
            }
            Some(Question::WriteFence { first, last, .. }) => {
                let fences = (*first, *last);
                self.write_fence(node, &asked.owner, fences, asked.ballot);
            }
            _ => {
                // The lock was granted meanwhile: this server carries it too, and must know its fence.
                let knows = |last: u64| *written && *counter == last;
                if let Some(last) = candidacy.last_fence.filter(|last| !knows(*last)) {
                    self.write_fence(node, &asked.owner, (last, last), None);
                }
            }
        }
    }

    /// An answer to an extension.
    fn confirmed(&mut self, node: usize, asked: &NodeRequest, ttl: Duration, carries: bool) {
        let won = self.candidacies.get(&asked.owner).and_then(|candidacy| candidacy.carried);
        let is_open = self.ballots.get_mut(asked.ballot).is_some();
        if !is_open && !carries && won.is_some() && won == asked.ballot {
            // The vote is too late, but a majority has won its round.
            return self.copy_lock(node, &asked.owner, ttl);
        }
        self.count(asked, node, Vote::of(carries));
    }

    /// The connection is lost, or is given up.
    fn disconnected(&mut self, node: usize, detail: &str) {
        let within = self.pressure();
        let lost = self.servers.disconnected(&mut self.context, node, detail, within);
        for lost in lost.into_iter().flatten() {
            self.lost(node, &lost.request, detail);
        }
    }

    /// A new connection is there: if the one before was still waited for, its requests are lost.
    fn replaced(&mut self, node: usize) {
        let silent_ms = self.servers.silence(&self.context, node).as_millis();
        let detail = format!("no answer within {silent_ms} ms, and a new connection has one");
        for lost in self.servers.lost(&mut self.context, node, &detail).into_iter().flatten() {
            self.lost(node, &lost.request, &detail);
        }
    }

    /// The connection of a request is lost. The request may have been executed, or may yet be.
    fn lost(&mut self, node: usize, asked: &NodeRequest, why: &str) {
        if let Call::Vote { .. } | Call::CopyLock { .. } = asked.call
            && let Some(candidacy) = self.candidacies.of(asked)
        {
            candidacy.reached[node] = Reach::Lost;
        }
        self.failed(node, asked, why);
    }

    /// A request has no reply of its script.
    fn failed(&mut self, node: usize, asked: &NodeRequest, why: &str) {
        if let Call::Withdraw { .. } = asked.call {
            self.withdrawals.failed(&mut self.context, node, asked);
        }
        self.count(asked, node, Vote::Failed(why.to_owned()));
    }
}
