//! The state of a manager, on which its turns work.

use super::alarm::Alarm;
use super::attempts::{Attempts, Generation};
use super::inputs::{Input, Mail, Submission};
use super::queries::Queries;
use super::shared::Shared;
use super::ticket::{Caller, Open, Ticket, outcome_of};
use super::watch::{ReadSocket, Reader, Watch, read_by_keeper};
use crate::faults::{self, OnPanic};
use crate::machine::{
    Command, Config, Effect, Event, Machine, NodeId, Notice, OpId, Outcome, Protocol, Quorum,
};
use crate::protocol::query::Question;
use crate::protocol::{DEFECT, Failure, Mono, ServerTime};
use crate::server::{
    self, Address, Clock, Connection, Deliver, Directory, Endpoint, Incoming, Item, Link, Socket,
    Welcome,
};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::runtime::Handle as Runtime;
use tokio::task::JoinSet;

#[cfg(test)]
mod tests;

/// Timers of the runtime stop during suspend, but leases do not. No sleep is longer than this.
const SLEEP_MAX: Duration = Duration::from_millis(500);
/// How soon the keeper looks whether the event loop still turns: while a reply is expected, and while locks are held
/// or waited for.
const LOOK_AFTER: Duration = Duration::from_millis(25);
const LOOK_IDLE_AFTER: Duration = Duration::from_millis(100);
/// How soon the keeper reads again while it stands in for the event loop.
const STAND_IN_AFTER: Duration = Duration::from_millis(5);
/// How soon the keeper does what the kernel did not take, or what the event loop does not know of yet.
const SOON: Duration = Duration::from_millis(2);

/// The thread that runs a turn.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum Thread {
    Caller,
    Keeper,
}

/// The state of one server.
#[derive(Default)]
struct Peer {
    connection: Option<Connection>,
    /// That of the connection; without one, no event has it.
    generation: Generation,
    last_generation: Generation,
    attempts: Attempts,
    /// The items to send at the end of this turn.
    batch: Vec<Item>,
    /// Whether the reader waits for the socket. Until it says so, the keeper looks after it.
    watched: bool,
}

pub(super) struct State {
    machine: Box<dyn Protocol>,
    endpoint: Arc<Endpoint>,
    directory: Arc<Directory>,
    /// The reply timeout of requests that do not go through the machine.
    command_timeout: Duration,
    reader: Reader,
    runtime: Runtime,
    clock: Arc<Clock>,
    core: Weak<dyn ReadSocket>,
    caller: Arc<dyn Caller>,
    open: Open,
    shared: Arc<Shared>,
    mail: Arc<Mail>,
    /// Indexed by node number.
    peers: Vec<Peer>,
    /// The task that asks for the routes. It ends with this set.
    discovery: JoinSet<()>,
    effects: Vec<Effect>,
    incoming: Vec<Incoming>,
    /// Whether the caller has something to read since it was last asked.
    reported: bool,
    /// Whether the keeper reads because the event loop does not turn.
    stands_in: bool,
    queries: Queries,
    alarm: Alarm,
    stopped: bool,
}

impl State {
    pub(super) fn new(
        (config, endpoint): (Config, Endpoint),
        (reader, runtime, clock): (Reader, Runtime, Arc<Clock>),
        core: Weak<dyn ReadSocket>,
        (caller, shared, mail): (Arc<dyn Caller>, Arc<Shared>, Arc<Mail>),
    ) -> Self {
        Self {
            command_timeout: config.command_timeout,
            machine: protocol_for(config, &endpoint),
            endpoint: Arc::new(endpoint),
            directory: Arc::default(),
            reader,
            runtime,
            clock,
            core,
            open: Open::new(Arc::clone(&caller), Arc::clone(&shared)),
            caller,
            shared,
            mail,
            peers: Vec::new(),
            discovery: JoinSet::new(),
            effects: Vec::new(),
            incoming: Vec::new(),
            reported: false,
            stands_in: false,
            queries: Queries::default(),
            alarm: Alarm::default(),
            stopped: false,
        }
    }

    pub(super) const fn has_stopped(&self) -> bool {
        self.stopped
    }

    pub(super) const fn take_reported(&mut self) -> bool {
        std::mem::replace(&mut self.reported, false)
    }

    pub(super) fn server_time(&self, now: Mono, name: &str) -> Option<ServerTime> {
        self.machine.server_time(now, name)
    }

    /// Starts operations.
    pub(super) fn begin(&mut self, now: Mono, submissions: &mut Vec<Submission>) {
        // First: a panic in this turn then completes all of them.
        self.open.begin(submissions.iter().filter_map(|submission| match submission {
            Submission::Begin(op, _) => Some(*op),
            _ => None,
        }));
        self.take_mail(now);
        for submission in submissions.drain(..) {
            let (op, command) = match submission {
                Submission::Begin(op, command) => (op, command),
                Submission::Query(ticket, question) => {
                    // From here on, earlier requests are on their way.
                    self.settle(now);
                    self.queries.add(ticket, question, &*self.machine);
                    self.start_queries();
                    continue;
                }
                Submission::Cancel(op) => (op, Command::Cancel),
            };
            self.machine.handle_command(now, op, command, &mut self.effects);
        }
    }

    /// No operations are started any more.
    pub(super) fn close(&mut self, now: Mono) {
        self.machine.handle_command(now, OpId::NOBODY, Command::Close, &mut self.effects);
    }

    /// The keeper's part of a turn; `silent`: the event loop does not turn.
    pub(super) fn keep(&mut self, now: Mono, silent: bool) {
        let unwatched = self.peers.iter().any(|peer| !peer.watched && peer.connection.is_some());
        if silent || unwatched {
            let count = self.read_links(now);
            self.stands_in =
                silent && self.reader == Reader::EventLoop && (self.stands_in || count > 0);
        }
        self.take_mail(now);
    }

    /// When the machine has something to do next; none while it waits for input.
    pub(super) fn next_timeout(&mut self) -> Option<Mono> {
        self.machine.next_timeout()
    }

    fn is_due(&mut self, now: Mono) -> bool {
        self.machine.next_timeout().is_some_and(|at| at <= now)
    }

    /// Reads all that is there.
    pub(super) fn read_all(&mut self, now: Mono) {
        self.take_mail(now);
        self.read_links(now);
    }

    fn read_links(&mut self, now: Mono) -> usize {
        (0..self.peers.len()).map(|index| self.read_peer(now, index)).sum()
    }

    /// Reads `socket` if it is still that of `node`. `waits`: whether the reader waits for it from here on.
    pub(super) fn read(&mut self, now: Mono, node: NodeId, socket: &Arc<Socket>, waits: bool) {
        self.take_mail(now);
        let peer = self.peer(node);
        if peer.link().is_some_and(|link| Arc::ptr_eq(link.socket(), socket)) {
            peer.watched = waits;
            self.read_peer(now, usize::from(node.0));
        }
    }

    /// Returns the number of events.
    fn read_peer(&mut self, now: Mono, index: usize) -> usize {
        let Some(link) = self.peers[index].link() else { return 0 };
        let mut incoming = std::mem::take(&mut self.incoming);
        link.read(&mut incoming);
        let count = incoming.len();
        let node = NodeId(u16::try_from(index).unwrap_or(u16::MAX));
        for event in incoming.drain(..) {
            self.handle_incoming(now, node, event);
        }
        self.incoming = incoming;
        count
    }

    fn take_mail(&mut self, now: Mono) {
        for input in self.mail.take() {
            self.handle_input(now, input);
        }
    }

    fn handle_input(&mut self, now: Mono, input: Input) {
        faults::at("input");
        let (node, event) = match input {
            Input::Discovered(routes) => (NodeId::default(), Event::Discovered(routes)),
            Input::Connected(node, generation, result) => {
                if self.peer(node).connection.is_some() {
                    // Its answers may be there: then no other connection is needed.
                    self.read_peer(now, usize::from(node.0));
                    self.settle(now);
                }
                if self.peer(node).attempts.end(generation) {
                    self.attempted(now, node, generation, result);
                }
                return;
            }
            Input::Incoming(node, generation, incoming) => {
                if generation == self.peer(node).generation {
                    self.handle_incoming(now, node, incoming);
                }
                return;
            }
        };
        self.machine.handle_event(now, node, event, &mut self.effects);
    }

    /// An attempt to connect has ended.
    fn attempted(
        &mut self,
        now: Mono,
        node: NodeId,
        generation: Generation,
        result: Result<(Connection, Welcome), Failure>,
    ) {
        let event = match result {
            Ok(connected) => self.connected(node, generation, connected),
            Err(failure) => {
                if let Failure::Refused(refusal) = &failure
                    && refusal.is_about_login()
                {
                    self.shared.set_refused(node, refusal.to_string());
                }
                Event::ConnectFailed(failure)
            }
        };
        self.machine.handle_event(now, node, event, &mut self.effects);
        // The handshake may have read more than its own replies.
        self.read_peer(now, usize::from(node.0));
    }

    /// Puts a new connection in the place of the one before, if there is one.
    fn connected(
        &mut self,
        node: NodeId,
        generation: Generation,
        (mut connection, welcome): (Connection, Welcome),
    ) -> Event {
        let Welcome { probe, risks, denied, abilities } = welcome;
        self.disconnect(node, true);
        self.shared.set_server(node, abilities);
        let socket = connection.link().map(|link| Arc::clone(link.socket()));
        let peer = self.peer(node);
        peer.attempts.end_all();
        peer.generation = generation;
        peer.watched = socket.is_none();
        peer.connection = Some(connection);
        if let (Some(socket), Some(core)) = (socket, self.core.upgrade()) {
            match self.reader {
                Reader::EventLoop => {
                    self.caller.watch(Watch::new(core, node, &socket));
                    self.reported = true;
                }
                Reader::Keeper => {
                    drop(self.runtime.spawn(read_by_keeper(Arc::downgrade(&core), node, socket)));
                }
            }
        }
        Event::Connected { probe, risks, denied }
    }

    /// Only adds effects: the connection stays until they are carried out.
    fn handle_incoming(&mut self, now: Mono, node: NodeId, incoming: Incoming) {
        let event = match incoming {
            Incoming::Confirmed(attempt, verdict) => Event::Confirmed { attempt, verdict },
            Incoming::PubsubDenied(why) => {
                self.shared.set_pubsub_denied(node);
                Event::PubsubDenied(why)
            }
            Incoming::TrackingDenied => {
                self.shared.set_tracking_denied(node);
                Event::TrackingDenied
            }
            Incoming::Disconnected(detail) => Event::Disconnected(detail),
            Incoming::Listening(channel, on) => Event::Listening { channel, on },
            Incoming::Probed(probe, sent) => Event::Probed { probe, sent },
            Incoming::Message(message) => Event::Message(message),
            Incoming::LoginNotRenewed(why) => {
                // The machine need not know: the connection stays.
                self.caller.tell(Notice::LoginNotRenewed(why));
                self.reported = true;
                return;
            }
            Incoming::Login(login, told) => {
                if let Some(connection) = &mut self.peer(node).connection {
                    connection.log_in(&login, told);
                }
                return;
            }
            Incoming::Reply(request, reply) => {
                self.machine.handle_reply(now, node, request, reply, &mut self.effects);
                return;
            }
        };
        self.machine.handle_event(now, node, event, &mut self.effects);
    }

    /// Ends a turn: runs due timeouts, carries out all effects and writes. Returns when the keeper is needed next.
    pub(super) fn finish_turn(&mut self, now: Mono, thread: Thread) -> Option<Mono> {
        match thread {
            Thread::Keeper => faults::at("keeper's turn"),
            Thread::Caller => {
                faults::at("turn");
                self.stands_in = false;
            }
        }
        if self.is_due(now) {
            // A reply that is there in time must not be given up because it is unread.
            self.read_links(now);
            // The test that moves the clock is awake.
            let is_stopped = self.clock.is_stopped();
            let turned = Event::Heartbeat(if is_stopped { now } else { self.caller.last_turn() });
            self.machine.handle_event(now, NodeId::default(), turned, &mut self.effects);
            self.machine.handle_timeout(now, &mut self.effects);
        }
        self.settle(now);
        self.start_queries();
        self.peers.iter_mut().filter_map(Peer::link).for_each(Link::flush);
        self.plan(now, thread)
    }

    /// Carries out all effects, and those that follow from them.
    fn settle(&mut self, now: Mono) {
        // Counted before the outcomes are delivered: a caller that has one must find it counted.
        self.shared.count(self.machine.stats());
        while !self.effects.is_empty() {
            self.carry_out(now);
            self.send_batches(now);
            self.shared.count(self.machine.stats());
        }
    }

    /// When the keeper is needed next. It is woken if it would come later than that.
    fn plan(&mut self, now: Mono, thread: Thread) -> Option<Mono> {
        let timeout = self.machine.next_timeout().map(|at| at.min(now + SLEEP_MAX));
        let look = self.look_after().map(|after| now + after);
        let due = timeout.into_iter().chain(look).min();
        // While a test moves the clock it also does what is due.
        let due = due.filter(|at| *at <= now || !self.clock.is_stopped());
        match thread {
            Thread::Keeper => self.alarm.sleep_until(due),
            Thread::Caller if self.alarm.must_wake(due) => self.mail.wake_keeper(),
            Thread::Caller => {}
        }
        due
    }

    /// How soon the keeper has to look after the sockets, if at all.
    fn look_after(&mut self) -> Option<Duration> {
        let mut expects = false;
        for peer in &mut self.peers {
            let watched = peer.watched;
            let Some(link) = peer.link() else { continue };
            if link.has_backlog() || !watched {
                return Some(SOON);
            }
            expects |= link.expects();
        }
        let stats = self.shared.stats();
        match self.reader {
            Reader::EventLoop if self.stands_in => Some(STAND_IN_AFTER),
            Reader::EventLoop if expects => Some(LOOK_AFTER),
            Reader::EventLoop if stats.held + stats.waiting > 0 => Some(LOOK_IDLE_AFTER),
            Reader::EventLoop | Reader::Keeper => None,
        }
    }

    fn carry_out(&mut self, now: Mono) {
        let mut effects = std::mem::take(&mut self.effects);
        self.open.note_losses(&effects);
        // Before the outcomes are delivered: a caller that has one must find its lease valid.
        self.shared.set_deadlines(&effects);
        faults::at("effects");
        for effect in effects.drain(..) {
            match effect {
                Effect::Complete { op, outcome } => {
                    self.reported |= self.open.complete(op, outcome);
                }
                Effect::Confirm { node, attempt } => {
                    if let Some(connection) = &self.peer(node).connection {
                        connection.confirm(attempt);
                    }
                }
                Effect::Connect { node } => self.connect(now, node),
                Effect::Disconnect { node, abort } => self.disconnect(node, abort),
                Effect::Discover => self.discover(),
                Effect::Listen { node, channel } => self.listen(node, channel, true),
                Effect::Lose { .. } => {
                    self.open.tell_loss();
                    self.reported = true;
                }
                // The test that moves the clock is awake.
                Effect::Ping if self.clock.is_stopped() => {}
                Effect::Ping => {
                    self.caller.ping();
                    self.reported = true;
                }
                Effect::Probe { node, sent } => self.peer(node).batch.push(Item::Probe { sent }),
                Effect::Send { node, request, call, send_mode } => {
                    self.peer(node).batch.push(Item::Call { request, call, send_mode });
                }
                Effect::SetDeadline { .. } => {}
                Effect::Stop => {
                    self.stopped = true;
                    self.peers.iter_mut().for_each(|peer| peer.attempts.end_all());
                }
                Effect::Track { node, keys, token } => {
                    self.peer(node).batch.push(Item::Track { keys, token });
                }
                Effect::StopConnecting { node } => self.peer(node).attempts.end_all(),
                Effect::Notify(notices) => {
                    self.caller.tell(notices);
                    self.reported = true;
                }
                Effect::Unlisten { node, channel } => self.listen(node, channel, false),
            }
        }
        // A store in this process may have added effects meanwhile; the next round carries them out.
        effects.append(&mut self.effects);
        self.effects = effects;
    }

    /// Hands the items of this turn to their connections. A store in this process answers at once.
    fn send_batches(&mut self, now: Mono) {
        for index in 0..self.peers.len() {
            let Peer { connection, batch, .. } = &mut self.peers[index];
            let mut items = std::mem::take(batch);
            let mut incoming = std::mem::take(&mut self.incoming);
            if let Some(connection) = connection
                && !items.is_empty()
            {
                connection.send(&items, &mut incoming);
            }
            items.clear();
            self.peers[index].batch = items;
            let node = NodeId(u16::try_from(index).unwrap_or(u16::MAX));
            for event in incoming.drain(..) {
                self.handle_incoming(now, node, event);
            }
            self.incoming = incoming;
        }
    }

    fn connect(&mut self, now: Mono, node: NodeId) {
        let generation = self.peer(node).next_generation();
        let mail = Arc::clone(&self.mail);
        let deliver: Deliver = {
            let mail = Arc::clone(&mail);
            // A manager that has ended does not need it.
            Arc::new(move |incoming| mail.put(Input::Incoming(node, generation, incoming)))
        };
        if let Some(opened) = server::open_embedded(&self.endpoint, Arc::clone(&deliver)) {
            return self.attempted(now, node, generation, Ok(opened));
        }
        let (endpoint, directory) = (Arc::clone(&self.endpoint), Arc::clone(&self.directory));
        let task = self.runtime.spawn(async move {
            let _failed = OnPanic(|| {
                let failed = Err(Failure::Lost(DEFECT.to_owned()));
                mail.put(Input::Connected(node, generation, failed));
            });
            faults::at("connecting");
            let result = server::connect(&endpoint, &directory, node, deliver).await;
            // If the manager has ended, dropping the connection closes it.
            mail.put(Input::Connected(node, generation, result));
        });
        self.peer(node).attempts.begin(now, generation, task);
    }

    fn disconnect(&mut self, node: NodeId, abort: bool) {
        self.shared.set_server(node, None);
        let peer = self.peer(node);
        // The machine has given up every request of the old connection, including those of this turn.
        peer.batch.clear();
        peer.generation = peer.next_generation();
        match peer.connection.take() {
            Some(connection) if abort => connection.abort(),
            other => drop(other),
        }
    }

    fn discover(&mut self) {
        let (endpoint, directory) = (Arc::clone(&self.endpoint), Arc::clone(&self.directory));
        let mail = Arc::clone(&self.mail);
        let discovery = async move {
            let _failed = OnPanic(|| {
                mail.put(Input::Discovered(Err(Failure::Lost(DEFECT.to_owned()))));
            });
            faults::at("discovering");
            let routes = server::discover(&endpoint, &directory).await;
            mail.put(Input::Discovered(routes));
        };
        // The machine asks again only after an answer.
        self.discovery = JoinSet::new();
        self.discovery.spawn_on(discovery, &self.runtime);
    }

    fn start_queries(&mut self) {
        for (ticket, question) in self.queries.take_ready(&*self.machine, self.stopped) {
            self.query(ticket, question);
        }
    }

    /// Bypasses the machine, which does not track locks of other clients, but knows which of its own are idle.
    fn query(&mut self, ticket: Ticket, question: Question) {
        let idle = self.machine.idle_locks(Mono::now());
        let here = self.peer(NodeId::default()).connection.as_ref();
        if let Some(mut page) = here.and_then(|connection| connection.page(&question)) {
            idle.mark(&mut page.held);
            ticket.complete(Outcome::Page(page));
            self.reported = true;
            return;
        }
        let (endpoint, directory) = (Arc::clone(&self.endpoint), Arc::clone(&self.directory));
        let (caller, patience) = (Arc::clone(&self.caller), self.command_timeout);
        self.runtime.spawn(async move {
            let _woken = OnPanic(|| caller.wake());
            faults::at("querying");
            let mut page = server::page(&endpoint, &directory, &question, patience).await;
            if let Ok(page) = &mut page {
                idle.mark(&mut page.held);
            }
            ticket.complete(page.map_or_else(outcome_of, Outcome::Page));
            caller.wake();
        });
    }

    fn listen(&mut self, node: NodeId, channel: Arc<str>, on: bool) {
        if let Some(connection) = &mut self.peer(node).connection {
            connection.listen(channel, on);
        }
    }

    fn peer(&mut self, node: NodeId) -> &mut Peer {
        let index = usize::from(node.0);
        if self.peers.len() <= index {
            self.peers.resize_with(index + 1, Peer::default);
        }
        &mut self.peers[index]
    }
}

impl Peer {
    /// A generation that nothing has yet.
    const fn next_generation(&mut self) -> Generation {
        self.last_generation += 1;
        self.last_generation
    }

    fn link(&mut self) -> Option<&mut Link> {
        self.connection.as_mut().and_then(Connection::link)
    }
}

/// The protocol for the kind of address.
fn protocol_for(config: Config, endpoint: &Endpoint) -> Box<dyn Protocol> {
    match &endpoint.address {
        Address::Quorum { settings, .. } => {
            Box::new(Quorum::new(config, settings.clone(), jitter_seed()))
        }
        _ => Box::new(Machine::new(config, jitter_seed())),
    }
}

/// A seed for jitter; it need not be secret.
fn jitter_seed() -> u64 {
    let (high, low) = uuid::Uuid::new_v4().as_u64_pair();
    high ^ low
}
