//! Managers and their server, in virtual time.

use super::defects::{self, Defect};
use super::member::{Destination, Member, ShardSubscriber, calls, node_of};
use super::owned;
use super::server::Server;
use super::snapshot::lone_share;
use crate::machine::one_shot::Purpose;
use crate::machine::timers::Owner;
use crate::machine::{
    Command, Config, Denied, Effect, Event, HoldTerms, LeaseId, LossReason, Machine, Notice, OpId,
    Outcome, Protocol, RequestId, ServerProbe, TokenId, Wait,
};
use crate::protocol::message::{Grant, Message, inbox, notices};
use crate::protocol::{Call, Failure, LockKeys, Mode, Mono, Refusal, Reply, Token};
use crate::server::embedded::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// The most refusals in a row of a lease while keys are moving.
const REFUSED_MAX: u32 = 4;
pub(super) const COMMAND_TIMEOUT: Duration = Duration::from_secs(2);

/// Without renewal: most schedules use one lease.
pub(super) const ONE_LEASE: HoldTerms = HoldTerms {
    renew: false,
    leave_to_expire: false,
    max_hold: None,
    stall_timeout: Duration::from_secs(30),
    linger: Duration::ZERO,
};

pub(super) const RENEWED: HoldTerms = HoldTerms { renew: true, ..ONE_LEASE };

pub(super) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The releases of a value that callers have chosen. Several holds of one manager may have it.
#[derive(Default)]
struct ChosenReleases {
    /// The holds that were released.
    holds: BTreeSet<TokenId>,
    unanswered: BTreeSet<RequestId>,
}

/// A reply in flight.
#[derive(Debug)]
pub(super) enum Answer {
    Probe(ServerProbe, Mono),
    /// The token is missing if the refusals of the call are not limited.
    Reply(RequestId, Option<Token>, Result<Reply, Failure>),
}

/// One manager, its server and the connection between them.
#[expect(clippy::struct_excessive_bools, reason = "facts that are independent")]
pub(super) struct World {
    pub(super) now: Mono,
    pub(super) machine: Machine,
    pub(super) server: Server,
    /// Sent, not executed yet.
    pub(super) wire: VecDeque<(RequestId, Call)>,
    /// The keys that the server is to track, on their way to it, and who may have them.
    pub(super) tracks: VecDeque<(LockKeys, Option<Token>)>,
    /// The replies to the plain commands of the oldest request, as far as they are executed.
    pub(super) taking: Vec<Result<Value, Failure>>,
    /// Executed, not answered yet.
    pub(super) answers: VecDeque<Answer>,
    pub(super) outcomes: BTreeMap<OpId, Outcome>,
    /// The operations with outcomes, in their order.
    pub(super) completed: Vec<OpId>,
    pub(super) deadlines: BTreeMap<LeaseId, Mono>,
    /// The tokens for which it has asked, by their numbers.
    pub(super) tokens: BTreeMap<u64, Token>,
    /// The values that callers have chosen for its leases, also for those that are over, by their numbers.
    pub(super) values: BTreeMap<u64, Token>,
    pub(super) connecting: bool,
    /// Whether there is a connection, as far as the machine knows.
    pub(super) up: bool,
    /// The replication id of the last probe.
    pub(super) shown: Option<String>,
    /// When a server's refusal was last read, by this process's clock.
    pub(super) refused_at: Option<Mono>,
    /// The number of refusals in a row of each lease because its slot moves.
    refused: BTreeMap<Token, u32>,
    /// The grants by messages, and their claims.
    pub(super) told: Vec<Grant>,
    /// The values that its callers have chosen, and their releases.
    chosen: BTreeMap<Token, ChosenReleases>,
    /// Every sent release, in order.
    pub(super) released: Vec<String>,
    pub(super) lost: Vec<(LeaseId, LossReason)>,
    /// Whether JavaScript answers pings.
    pub(super) alive: bool,
    pub(super) probes: usize,
    pub(super) stopped: bool,
    next_op: u32,
    pub(super) last_sent: RequestId,
    /// Operations whose ids may be reused, the latest first, as JavaScript does.
    free_ops: Vec<OpId>,
    /// Lost requests that may still arrive.
    pub(super) late: Vec<Call>,
    pub(super) subscriber: u64,
    /// The server keeps its replication id to itself, and answers probes with the time alone.
    pub(super) blind: bool,
    pub(super) notices: Vec<Notice>,
    /// Probes in flight with the requests before which they were sent, if the test answers them; otherwise
    /// they are only counted.
    pub(super) unanswered_probes: Option<VecDeque<(RequestId, Mono)>>,
    /// The server denies PUBLISH and SUBSCRIBE.
    pub(super) pubsub_denied: bool,
    /// The server denies the plain commands that take a lock.
    pub(super) plain_denied: bool,
    /// The server has no command that takes several locks.
    pub(super) lacks_several: bool,
    /// The server tells it of changed keys.
    pub(super) tells: bool,
    /// Grants that wait for replicas.
    pub(super) confirms: VecDeque<TokenId>,
    /// The shard channels of the server.
    pub(super) shards: ShardSubscriber,
    /// What it has besides in a Cluster.
    pub(super) member: Option<Box<Member>>,
    /// The least and the most of its windows, if it has few requests.
    pub(super) window: Option<(usize, usize)>,
    /// What its servers have executed and answered, for a story.
    pub(super) executed: Option<Vec<String>>,
    /// The requests that carry the source of their script.
    pub(super) with_source: BTreeSet<RequestId>,
    /// The tokens of its leases of which a message has said that they were taken over.
    heard_adopted: BTreeSet<Token>,
    /// The leases that were lost after that.
    pub(super) told_adopted: BTreeSet<LeaseId>,
    /// The tokens under which its owners have tried to take over what they have.
    pub(super) taking_over: BTreeSet<Token>,
    /// The leases that were lost by an answer that the server has them.
    pub(super) unproven: BTreeSet<LeaseId>,
    /// When the leases that are over would have ended.
    pub(super) ended: BTreeMap<LeaseId, Mono>,
}

impl World {
    /// A connected manager.
    pub(super) fn connected() -> Self {
        Self::connected_as("c")
    }

    /// Like `connected`, with another reply timeout.
    pub(super) fn connected_with(command_timeout: Duration) -> Self {
        let mut world = Self::new("c");
        world.machine =
            Machine::new(Config { command_timeout, ..world.machine.context.config.clone() }, 7);
        world.command(Command::Open);
        world.connect();
        world
    }

    pub(super) fn connected_as(client: &str) -> Self {
        Self::connected_to(&Server::new(), client)
    }

    /// A new manager, which shares the server with others.
    pub(super) fn joining(server: &Server, client: &str, now: Mono) -> Self {
        Self::new(client).joins(server, now)
    }

    /// The same of one that may not ask for the history of the data.
    pub(super) fn joining_without_info(server: &Server, client: &str, now: Mono) -> Self {
        let mut world = Self::new(client);
        world.blind = true;
        world.joins(server, now)
    }

    fn joins(self, server: &Server, now: Mono) -> Self {
        let mut world = self;
        world.now = now;
        world.machine.context.config.started = now;
        world.subscriber = server.new_subscriber();
        world.server = server.clone();
        world.command(Command::Open);
        world.connect();
        world
    }

    /// Its process is gone.
    pub(super) fn leave(&mut self) {
        for node in self.nodes() {
            self.face(node);
            self.end_subscriptions();
            self.server.unsubscribe(self.subscriber);
        }
    }

    /// A connected manager whose server tells it of changed keys.
    pub(super) fn told() -> Self {
        let mut world = Self::connected();
        world.tells_from_now_on();
        world
    }

    /// Its server tells it of changed keys.
    pub(super) fn tells_from_now_on(&mut self) {
        self.tells = true;
        self.machine.servers.tell();
    }

    /// The server takes no plain commands that would take a lock.
    pub(super) fn by_scripts(mut self) -> Self {
        self.plain_denied = true;
        self.machine.servers.refuse_plain_commands();
        self
    }

    /// Whether a reply is in flight.
    pub(super) fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Delivers the replies of executed requests, and all messages.
    pub(super) fn answer_what_is_there(&mut self) {
        for node in self.nodes() {
            self.face(node);
            while self.has_answers() {
                self.answer_one();
            }
            while self.receive_one() {}
        }
    }

    /// A connected manager, which shares the server with others.
    pub(super) fn connected_to(server: &Server, client: &str) -> Self {
        let mut world = Self::new(client);
        world.subscriber = server.new_subscriber();
        world.server = server.clone();
        world.command(Command::Open);
        world.connect();
        world
    }

    pub(super) fn new(client: &str) -> Self {
        let config = Config {
            client: client.to_owned(),
            started: Mono::NEVER,
            secret: client.to_owned(),
            prefix: "lock:".to_owned(),
            command_timeout: COMMAND_TIMEOUT,
            open_patience: Duration::ZERO,
            cluster: false,
            confirm: false,
            quorum: false,
            polling: None,
            linger_max: 10_000,
        };
        Self {
            now: Mono::from_micros(1_000_000),
            machine: Machine::new(config, 7),
            server: Server::new(),
            wire: VecDeque::new(),
            tracks: VecDeque::new(),
            taking: Vec::new(),
            answers: VecDeque::new(),
            outcomes: BTreeMap::new(),
            completed: Vec::new(),
            deadlines: BTreeMap::new(),
            tokens: BTreeMap::new(),
            values: BTreeMap::new(),
            connecting: false,
            up: false,
            refused_at: None,
            shown: None,
            refused: BTreeMap::new(),
            told: Vec::new(),
            chosen: BTreeMap::new(),
            released: Vec::new(),
            lost: Vec::new(),
            alive: true,
            probes: 0,
            stopped: false,
            next_op: 0,
            last_sent: RequestId(0),
            free_ops: Vec::new(),
            late: Vec::new(),
            subscriber: 0,
            blind: false,
            notices: Vec::new(),
            unanswered_probes: None,
            pubsub_denied: false,
            plain_denied: false,
            lacks_several: false,
            tells: false,
            confirms: VecDeque::new(),
            shards: ShardSubscriber::default(),
            member: None,
            window: None,
            executed: None,
            with_source: BTreeSet::new(),
            heard_adopted: BTreeSet::new(),
            told_adopted: BTreeSet::new(),
            taking_over: BTreeSet::new(),
            unproven: BTreeSet::new(),
            ended: BTreeMap::new(),
        }
    }

    pub(super) fn keys() -> LockKeys {
        thread_local! {
            static KEYS: LockKeys = LockKeys::new("lock:", "a");
        }
        KEYS.with(LockKeys::clone)
    }

    pub(super) fn acquire(&mut self, ttl_ms: u64, wait: Wait) -> OpId {
        self.acquire_held(ttl_ms, wait, ONE_LEASE)
    }

    pub(super) fn acquire_held(&mut self, ttl_ms: u64, wait: Wait, hold: HoldTerms) -> OpId {
        self.acquire_as(ttl_ms, wait, hold, Mode::Exclusive)
    }

    pub(super) fn acquire_as(
        &mut self,
        ttl_ms: u64,
        wait: Wait,
        hold: HoldTerms,
        mode: Mode,
    ) -> OpId {
        self.acquire_named("a", ttl_ms, wait, hold, mode)
    }

    pub(super) fn acquire_named(
        &mut self,
        name: &str,
        ttl_ms: u64,
        wait: Wait,
        hold: HoldTerms,
        mode: Mode,
    ) -> OpId {
        let (name, label) = (name.to_owned(), Arc::default());
        self.command(Command::Acquire { name, ttl: ms(ttl_ms), wait, label, hold, mode })
    }

    pub(super) fn release(&mut self, lease: LeaseId) -> OpId {
        self.command(Command::Release { lease, exported: false })
    }

    pub(super) fn cancel(&mut self, op: OpId) {
        let mut out = Vec::new();
        self.machine.handle_command(self.now, op, Command::Cancel, &mut out);
        self.perform(out);
    }

    pub(super) fn command(&mut self, command: Command) -> OpId {
        let command = defects::misdirect(&mut self.machine, command);
        let op = self.free_ops.pop().unwrap_or_else(|| {
            self.next_op += 1;
            OpId(self.next_op)
        });
        let mut out = Vec::new();
        self.machine.handle_command(self.now, op, command, &mut out);
        defects::hasten(&mut self.machine, self.now, &mut out);
        self.perform(out);
        op
    }

    pub(super) fn event(&mut self, event: Event) {
        let event = match event {
            Event::Message(Message::Granted(mut grants)) if Defect::ValidFromArrival.is_on() => {
                for grant in &mut grants {
                    grant.time = self.server.time(self.now);
                }
                Event::Message(Message::Granted(grants))
            }
            event => event,
        };
        match &event {
            Event::Connected { probe, .. } | Event::Probed { probe, .. } => {
                self.shown.clone_from(&probe.replication_id);
            }
            _ => {}
        }
        self.up |= matches!(event, Event::Connected { .. });
        let event = match event {
            Event::Message(Message::Granted(grants)) => return self.granted(grants),
            event => event,
        };
        let taken = match &event {
            Event::Message(Message::Taken(taken)) => Some(taken.clone()),
            _ => None,
        };
        let has = |token: &Token| {
            self.machine.leases.all().any(|held| self.machine.token_of(held) == *token)
        };
        if let Some(taken) = taken.as_ref().filter(|taken| taken.adopted && has(&taken.token)) {
            self.heard_adopted.insert(taken.token.clone());
        }
        let changed = match &event {
            Event::Message(Message::Changed(keys)) => self.machine.tracked_leases(Some(keys)),
            Event::Message(Message::AllChanged) => self.machine.tracked_leases(None),
            _ => Vec::new(),
        };
        let unheard = taken.is_some() && Defect::TheftUnheard.is_on()
            || defects::is_overheard(&self.machine, &changed);
        let mut out = Vec::new();
        if !unheard {
            self.machine.handle_event(self.now, self.front(), event, &mut out);
        }
        defects::believe(&mut self.machine, self.now, &changed, &mut out);
        let ends = out.iter().any(|effect| matches!(effect, Effect::Lose { .. }));
        assert!(changed.is_empty() || !ends, "a message that anything can cause has ended a lease");
        let is_asked = |id: &TokenId| {
            let (held, owner) = (self.machine.leases.get(*id), Owner::Renewal(*id));
            let asks = self.machine.servers.is_under_way(owner);
            held.is_none_or(|it| it.notice.is_some() && (asks || !self.up || !it.may_be_asked()))
        };
        assert!(changed.iter().all(is_asked), "a key has changed, and nobody asks about its lock");
        self.perform(out);
        let believes = taken.is_some_and(|taken| {
            self.machine.leases.all().any(|held| {
                let meant = held.keys == taken.keys && self.machine.token_of(held) == taken.token;
                meant && held.notice.is_none()
            })
        });
        assert!(!believes, "a message tells of a loss, and nobody asks the server about it");
    }

    /// A message with grants. Each is valid for its claim, from its arrival at the latest.
    fn granted(&mut self, grants: Vec<Grant>) {
        let (now, node) = (self.now, self.front());
        for grant in grants {
            let (mut out, before) = (Vec::new(), self.completed.len());
            if !defects::take_message(&mut self.machine, now, node, &grant, &mut out) {
                let told = Event::Message(Message::Granted(vec![grant.clone()]));
                self.machine.handle_event(now, node, told, &mut out);
            }
            self.perform(out);
            let ops = self.completed[before..].iter();
            for lease in ops.filter_map(|op| self.outcomes.get(op)?.lease()) {
                let until = self.deadlines.get(&lease).copied().unwrap_or(now);
                assert!(until <= now + grant.claim, "a message is relied on beyond its claim");
            }
            self.told.push(grant);
        }
    }

    pub(super) fn reply(&mut self, request: RequestId, reply: Result<Reply, Failure>) {
        defects::misdate(&mut self.machine, self.now, &reply);
        if matches!(reply, Err(Failure::Refused(_))) {
            self.refused_at = Some(self.now);
        }
        self.chosen.values_mut().for_each(|releases| {
            releases.unanswered.remove(&request);
        });
        let mut out = Vec::new();
        let (front, sent_on) = (self.front(), self.sent_on(request, &reply));
        let elsewhere = if let Err(Failure::Moving(to)) = reply { Some(to) } else { None };
        let epoch = defects::hide_epoch(&mut self.machine, front, &reply);
        let affirms = matches!(reply, Ok(Reply::Owner(true) | Reply::Granted { .. }));
        let confirming = defects::confirming(&self.machine);
        self.machine.handle_reply(self.now, front, request, reply, &mut out);
        defects::go_on_confirming(&mut self.machine, confirming);
        defects::leave_queues(&mut self.machine, self.now, &mut out);
        if let Some(epoch) = epoch {
            self.machine.servers.at(front).data.epoch = epoch;
        }
        if affirms {
            let ended = out.iter().filter_map(|effect| match effect {
                Effect::Lose { lease, .. } => Some(*lease),
                _ => None,
            });
            self.unproven.extend(ended);
        }
        // The answer may let a release go, and what asks behind a release is no repeat.
        let releases = |effect: &Effect| {
            matches!(effect, Effect::Send { call: Call::Release { .. } | Call::Delete { .. }, .. })
        };
        let ahead = &out[..out.iter().position(releases).unwrap_or(out.len())];
        let at_once = sent_on.as_ref().is_some_and(|(script, token)| calls(ahead, *script, token));
        assert!(!at_once, "{sent_on:?} was sent on, and is sent on again without a pause");
        defects::unplan(&mut self.machine, elsewhere);
        defects::untrack(&mut out);
        self.perform(out);
    }

    pub(super) fn connect(&mut self) {
        assert!(std::mem::take(&mut self.connecting), "nobody wants to connect");
        self.replace();
        let probe = self.probe();
        let reason = |denied: bool| denied.then(|| "NOPERM".to_owned());
        let (pubsub, plain_commands) = (reason(self.pubsub_denied), reason(self.plain_denied));
        if !self.pubsub_denied {
            self.listen();
        }
        self.event(Event::Connected {
            probe,
            risks: Vec::new(),
            denied: Denied {
                pubsub,
                plain_commands,
                several: self.lacks_several,
                tracking: !self.tells,
                ..Denied::default()
            },
        });
    }

    /// Another connection takes the place of one that is still there.
    fn replace(&mut self) {
        if self.up {
            // The silent connection before may have delivered some of it.
            let lost = self.disconnect();
            self.add_late(lost);
        }
    }

    /// The connection is gone. Returns what the server has not executed.
    fn disconnect(&mut self) -> Vec<(Destination, Call)> {
        let unsent = self.lose_wire();
        self.end_subscriptions();
        self.forget_refusals();
        self.answers.clear();
        self.tracks.clear();
        self.confirms.clear();
        self.up = false;
        if let Some(probes) = &mut self.unanswered_probes {
            probes.clear();
        }
        self.server.unsubscribe(self.subscriber);
        unsent
    }

    /// What the server shows.
    fn probe(&self) -> ServerProbe {
        let probe = match &self.member {
            Some(member) => member.cluster.probe(self.now, self.front()),
            None => self.server.probe(self.now),
        };
        let replication_id = probe.replication_id.filter(|_| !self.blind);
        ServerProbe { replication_id, ..probe }
    }

    /// Whoever connects next does so to this server.
    pub(super) fn turn_to(&mut self, server: &Server) {
        if !self.server.is(server) {
            self.replace();
            self.subscriber = server.new_subscriber();
            self.server = server.clone();
        }
    }

    /// Subscribes at the server.
    pub(super) fn listen(&self) {
        let Config { client, secret, .. } = &self.machine.context.config;
        for channel in [notices(client), inbox(secret)] {
            self.server.subscribe(self.subscriber, &channel);
        }
    }

    /// Advances the time, timers included.
    pub(super) fn pass(&mut self, duration: Duration) {
        let end = self.now + duration;
        while let Some(at) = self.machine.next_timeout()
            && at <= end
        {
            self.now = self.now.max(at);
            let mut out = Vec::new();
            self.machine.handle_timeout(self.now, &mut out);
            self.perform(out);
        }
        self.now = end;
    }

    /// The server executes and answers all requests on the wire, and its messages arrive.
    pub(super) fn settle(&mut self) {
        loop {
            if let Some((request, call)) = self.wire.pop_front() {
                let reply = self.reach_server(request, &call);
                self.reply(request, reply);
            } else if !self.receive_one() {
                return;
            }
        }
    }

    /// Delivers the oldest message, if there is one.
    pub(super) fn receive_one(&mut self) -> bool {
        if self.track_one() || self.hear_one() {
            return true;
        }
        let message = self.server.next_mail(self.subscriber);
        let any = message.is_some();
        if let Some(message) = message {
            self.event(Event::Message(message));
        }
        any
    }

    /// The server tracks the next key.
    fn track_one(&mut self) -> bool {
        let Some((keys, token)) = self.tracks.pop_front() else { return false };
        if self.server.track(self.now, &keys, token.as_ref(), self.subscriber) {
            self.event(Event::Message(Message::Changed(keys)));
        }
        true
    }

    /// Delivers those of the messages in flight that are `wanted`, and drops the others.
    pub(super) fn receive_only(&mut self, wanted: impl Fn(&Message) -> bool) {
        while let Some(message) = self.server.next_mail(self.subscriber) {
            if wanted(&message) {
                self.event(Event::Message(message));
            }
        }
    }

    /// Drops the messages in flight.
    pub(super) fn lose_messages(&self) {
        self.lose_channel_messages();
        while self.server.next_mail(self.subscriber).is_some() {}
    }

    /// Checks that no hold under a chosen value is released again without an answer: the value may be another process's by
    /// now. Each of several holds of this manager is released by its own caller.
    fn note_chosen(&mut self, request: RequestId, call: &Call) {
        match call {
            Call::Adopt { token, .. } => {
                let mut shots = self.machine.one_shots.values();
                let begins = |purpose: &Purpose| matches!(purpose, Purpose::Adopt { label, .. } if label.is_chosen());
                if shots.any(|shot| shot.call.token() == token && begins(&shot.purpose)) {
                    self.chosen.entry(token.clone()).or_default();
                }
            }
            Call::Delete { token, .. }
            | Call::Free { token, .. }
            | Call::FreeShare { token, .. }
            | Call::HandoffShare { token, .. }
            | Call::Release { token, .. } => {
                let Some(known) = self.chosen.get_mut(token) else { return };
                let releases = &self.machine.releases;
                let of_it = releases.iter().filter(|(_, release)| release.is_of(token));
                known.holds.extend(of_it.map(|(id, _)| *id));
                known.unanswered.insert(request);
                let once = known.unanswered.len() <= known.holds.len();
                assert!(once, "the chosen value {token} is released again");
            }
            _ => {}
        }
    }

    fn note_token(&mut self, token: &Token) {
        let owner = lone_share(token.as_str()).map_or_else(|| token.clone(), Token::from_text);
        if let Some(number) = owner.number(&self.machine.context.config.client) {
            self.tokens.insert(number, owner);
        }
    }

    /// The server executes the oldest request; the reply is in flight.
    pub(super) fn execute_one(&mut self) {
        if let Some((request, call)) = self.wire.pop_front() {
            while let Some(sent) = self.take_probe(request) {
                self.answers.push_back(Answer::Probe(self.probe(), sent));
            }
            let Some(reply) = self.reach_server_step(request, &call) else {
                return self.wire.push_front((request, call));
            };
            // A downgrade is repeated until its caller's patience is over, and the lease does not depend on it.
            let is_limited = !matches!(call, Call::Downgrade { .. });
            let token = is_limited.then(|| call.token().clone());
            self.answers.push_back(Answer::Reply(request, token, reply));
        }
    }

    /// Whether the server did not know the script of the newest executed request.
    pub(super) fn was_unknown(&self) -> bool {
        matches!(self.answers.back(), Some(Answer::Reply(.., Err(Failure::NoScript))))
    }

    /// The oldest probe, if it was sent before a request.
    fn take_probe(&mut self, request: RequestId) -> Option<Mono> {
        let probes = self.unanswered_probes.as_mut()?;
        probes.front().filter(|(ahead_of, _)| *ahead_of <= request)?;
        probes.pop_front().map(|(_, sent)| sent)
    }

    /// Delivers the oldest reply, after executing its request if necessary.
    pub(super) fn answer_one(&mut self) {
        while self.answers.is_empty() && !self.wire.is_empty() {
            self.execute_one();
        }
        while let Some(answer) = self.answers.pop_front() {
            match answer {
                Answer::Probe(probe, sent) => self.event(Event::Probed { probe, sent }),
                Answer::Reply(request, token, reply) => {
                    if let Some(token) = token {
                        self.check_refusal(&token, &reply);
                    }
                    return self.reply(request, reply);
                }
            }
        }
    }

    /// Checks that a lease whose slot moves gets through: refusals in a row are limited.
    fn check_refusal(&mut self, token: &Token, reply: &Result<Reply, Failure>) {
        let held = |world: &Self| {
            world.machine.leases.all().any(|it| world.machine.token_of(it) == *token)
        };
        let again = matches!(reply, Err(Failure::Refused(refusal)) if refusal.code == "TRYAGAIN");
        // Of several servers [`Self::check_way`] asks for more than that.
        if !again || self.member.is_some() || !held(self) {
            self.refused.remove(token);
            return;
        }
        let refused = self.refused.entry(token.clone()).or_insert(0);
        *refused += 1;
        assert!(*refused < REFUSED_MAX, "{token} is refused as long as its slot moves");
    }

    /// The server answers the oldest probe, if no request is before it.
    pub(super) fn answer_probe(&mut self) {
        let next = self.wire.front().map_or(RequestId(u64::MAX), |(request, _)| *request);
        if let Some(sent) = self.answers.is_empty().then(|| self.take_probe(next)).flatten() {
            let probe = self.probe();
            self.event(Event::Probed { probe, sent });
        }
    }

    /// Enough replicas have the oldest waiting grant, or too few.
    pub(super) fn confirm(&mut self, enough: bool) {
        let Some(attempt) = self.confirms.pop_front() else { return };
        let refusal = || Refusal { code: "NOREPLICAS".to_owned(), detail: String::new() };
        let verdict = if enough { Ok(()) } else { Err(refusal()) };
        self.event(Event::Confirmed { attempt, verdict });
    }

    /// Whether nothing is on its way to or from the server in front.
    pub(super) fn is_silent(&self) -> bool {
        !self.is_hearing()
            && self.confirms.is_empty()
            && self.wire.is_empty()
            && self.answers.is_empty()
            && !self.server.has_mail(self.subscriber)
    }

    /// The server executes all requests on the wire, and the connection breaks before the replies.
    pub(super) fn execute_and_lose_replies(&mut self) {
        for (request, call) in std::mem::take(&mut self.wire) {
            // The answer is lost, whatever it was.
            let _lost = self.reach_server(request, &call);
        }
        self.event(Event::Disconnected("cut".to_owned()));
    }

    /// The outcome of `op`, whose id may be reused after that.
    pub(super) fn take_outcome(&mut self, op: OpId) -> Option<Outcome> {
        let outcome = self.outcomes.remove(&op)?;
        self.free_ops.push(op);
        Some(outcome)
    }

    /// The connection breaks; its requests are executed later, if at all.
    pub(super) fn lose_requests(&mut self) {
        let lost = self.lose_wire();
        self.add_late(lost);
        self.event(Event::Disconnected("cut".to_owned()));
    }

    pub(super) fn outcome(&self, op: OpId) -> Option<&Outcome> {
        self.outcomes.get(&op)
    }

    pub(super) fn lease(&self, op: OpId) -> (LeaseId, u64) {
        match self.outcome(op) {
            Some(Outcome::Acquired { lease, fence, .. }) => (*lease, *fence),
            other => panic!("not acquired: {other:?}"),
        }
    }

    fn perform(&mut self, effects: Vec<Effect>) {
        if let Some((least, most)) = self.window {
            self.machine.servers.limit_windows(least, most);
        }
        defects::spoil(&mut self.machine);
        self.spoil_routes();
        for effect in effects {
            assert!(!self.stopped, "an effect after the end: {effect:?}");
            let front = self.front();
            if self.is_stranger(&effect) {
                continue;
            }
            self.face(node_of(&effect).unwrap_or(front));
            self.carry_out(effect);
            self.face(front);
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Complete { op, outcome } => {
                self.completed.push(op);
                if let Some(lease) = outcome.lease() {
                    let until = self.deadlines.get(&lease);
                    let lasts = until.is_some_and(|until| *until > self.now);
                    assert!(lasts, "a lock was given whose lease is over");
                }
                let before = self.outcomes.insert(op, outcome);
                assert_eq!(before, None, "{op:?} completed twice");
            }
            Effect::Confirm { attempt, .. } => self.confirms.push_back(attempt),
            // Whichever of several attempts succeeds, one connection comes of them.
            Effect::Connect { .. } => self.connecting = true,
            Effect::StopConnecting { .. } => self.connecting = false,
            Effect::Disconnect { abort, .. } => {
                let unsent = self.disconnect();
                if !abort {
                    self.add_late(unsent);
                }
            }
            Effect::Probe { sent, .. } => {
                self.probes += 1;
                if let Some(probes) = &mut self.unanswered_probes {
                    probes.push_back((RequestId(self.last_sent.0 + 1), sent));
                } else if self.blind {
                    let probe = self.probe();
                    self.event(Event::Probed { probe, sent });
                }
            }
            Effect::Lose { .. } if Defect::LossNotReported.is_on() => {}
            Effect::Lose { lease, reason } => {
                assert!(self.lost.iter().all(|(lost, _)| *lost != lease), "lost twice");
                self.lost.push((lease, reason));
                let token = self.tokens.get(&lease.token_id().0);
                if token.is_some_and(|token| self.heard_adopted.contains(token)) {
                    self.told_adopted.insert(lease);
                }
            }
            Effect::Ping if self.alive => self.event(Event::Heartbeat(self.now)),
            Effect::Ping => {}
            Effect::Send { request, call, send_mode, .. } => {
                if let Call::HandoffShare { token, .. } | Call::Release { token, .. } = &call {
                    self.released.push(token.to_string());
                }
                self.note_chosen(request, &call);
                self.note_token(call.token());
                if let Call::Adopt { token, .. } = &call
                    && owned::is_owned(token)
                {
                    self.taking_over.insert(token.clone());
                }
                if let Call::HandoffShare { successor, .. } = &call {
                    self.note_token(successor);
                }
                let mut call = defects::distort(call);
                if Defect::EpochOfAnother.is_on() {
                    call.set_epoch(self.machine.servers.data_of(call.keys()).epoch);
                }
                self.note_send_mode(request, send_mode, &call);
                self.last_sent = request;
                self.server.sent(&call);
                if let Some(ahead) = defects::track_ahead(&self.machine, &call) {
                    self.tracks.push_back(ahead);
                    self.track_one();
                }
                self.wire.push_back((request, call));
            }
            Effect::SetDeadline { lease, until: Some(until) } => {
                let before = self.deadlines.insert(lease, until).unwrap_or(until);
                let revived = before <= self.now && before < until;
                assert!(!revived, "a lease that was over is valid again");
                let held = self.machine.hold_of(lease).map(|held| self.machine.token_of(held));
                if let Some(token) = held.filter(|token| self.chosen.contains_key(token)) {
                    self.values.insert(lease.token_id().0, token);
                }
            }
            Effect::SetDeadline { lease, until: None } => {
                if let Some(until) = self.deadlines.remove(&lease) {
                    self.ended.insert(lease, until);
                }
            }
            Effect::Track { keys, token, .. } => self.tracks.push_back((keys, token)),
            Effect::Discover => self.asks_for_routes(),
            Effect::Listen { channel, .. } => self.want_channel(channel, true),
            Effect::Unlisten { channel, .. } => self.want_channel(channel, false),
            Effect::Stop => self.stopped = true,
            Effect::Notify(notice) => self.notices.push(notice),
        }
    }
}

impl Outcome {
    /// The lease of an acquired single lock.
    fn lease(&self) -> Option<LeaseId> {
        if let Self::Acquired { lease, .. } = self { Some(*lease) } else { None }
    }
}
