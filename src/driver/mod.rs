//! The driver: one task per manager, all on one thread, between the machine and the servers.
//!
//! It feeds commands, replies and timeouts to the machine and carries out its effects. All requests of one
//! turn leave as one pipeline. It makes no decisions.

#[cfg(all(unix, any(test, fuzzing)))]
#[expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a fuzzer learns so that a promise is broken"
)]
#[path = "../fuzzing/conversation.rs"]
pub(crate) mod fuzz;
mod runtime;
mod shared;
mod spin;
#[cfg(test)]
mod tests;
mod ticket;

pub use shared::Shared;
pub use ticket::{Caller, Ticket};

use self::spin::Spin;
use self::ticket::Open;
use crate::faults::{self, OnPanic};
use crate::machine::{
    Command, Config, Effect, Event, Machine, NodeId, OpId, Outcome, Protocol, Quorum, Routes,
};
use crate::protocol::query::Question;
use crate::protocol::{DEFECT, Failure, Mono};
use crate::server::{
    self, Address, Connection, Deliver, Directory, Endpoint, Incoming, Item, Welcome,
};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::time;

/// Timers of the runtime stop during suspend, but leases do not. No sleep is longer than this.
const SLEEP_MAX: Duration = Duration::from_millis(500);
/// Commands of one turn. With more, process and server would work alternately: the server starts on the first
/// part of a burst while the driver still works on the second.
const TURN_MAX: usize = 32;
/// With more open operations than this, spinning saves no time.
const SPIN_OPERATIONS: usize = 4;

/// A manager's handle to its driver. Dropping it releases the held locks as far as possible and ends the
/// driver.
#[derive(Debug)]
pub struct Handle {
    commands: UnboundedSender<Submission>,
    shared: Arc<Shared>,
}

impl Handle {
    /// Starts a manager's driver.
    ///
    /// # Errors
    /// If the thread that carries all managers of the process cannot be started.
    pub fn start(config: Config, endpoint: Endpoint, caller: Arc<dyn Caller>) -> io::Result<Self> {
        let (commands, receiver) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared::default());
        let (incoming_sender, incoming) = mpsc::unbounded_channel();
        let driver = Driver {
            command_timeout: config.command_timeout,
            machine: protocol_for(config, &endpoint),
            endpoint: Arc::new(endpoint),
            open: Open::new(Arc::clone(&caller), Arc::clone(&shared)),
            caller,
            shared: Arc::clone(&shared),
            commands: receiver,
            incoming_sender,
            incoming,
            directory: Arc::default(),
            peers: Vec::new(),
            effects: Vec::new(),
            stopped: false,
        };
        runtime::get()?.spawn(driver.run());
        Ok(Self { commands, shared })
    }

    /// Hands a command to the driver, which always completes the ticket.
    pub fn submit(&self, ticket: Ticket, command: Command) {
        // If the driver has ended, dropping the ticket completes it.
        drop(self.commands.send(Submission::Begin(ticket, command)));
    }

    /// Queries holders and waiters. The driver always completes the ticket.
    pub fn query(&self, ticket: Ticket, question: Question) {
        drop(self.commands.send(Submission::Query(ticket, question)));
    }

    /// Ends the acquire `op`, if it is still open. The outcome goes to that acquire's ticket.
    pub fn cancel(&self, op: OpId) {
        // If the driver has ended, so has the operation.
        drop(self.commands.send(Submission::Cancel(op)));
    }

    /// The state that any thread may read at any time.
    #[must_use]
    pub fn shared(&self) -> &Shared {
        &self.shared
    }
}

/// Asks every server of an address about itself, without a manager. `caller` always gets the outcome of `op`,
/// unless this function fails.
///
/// # Errors
/// If the thread that carries all managers of the process cannot be started.
pub fn survey(
    endpoint: Endpoint,
    questions: Vec<Vec<String>>,
    op: OpId,
    caller: Arc<dyn Caller>,
) -> io::Result<()> {
    let runtime = runtime::get()?;
    // Created late: a caller that gets an error expects no outcome as well.
    let ticket = Ticket::new(op, Arc::clone(&caller));
    runtime.spawn(async move {
        let _woken = OnPanic(|| caller.wake());
        faults::at("surveying");
        let surveys = server::survey(&Arc::new(endpoint), questions).await;
        ticket.complete(surveys.map_or_else(outcome_of, Outcome::Surveyed));
        caller.wake();
    });
    Ok(())
}

fn outcome_of(failure: Failure) -> Outcome {
    match failure {
        Failure::Refused(refusal) => Outcome::Server { refusal, key: None },
        other => Outcome::Connection(other.to_string()),
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

/// Names a connection attempt, so that events of an earlier connection can be ignored.
type Generation = u64;

/// Input from callers.
enum Submission {
    Begin(Ticket, Command),
    Query(Ticket, Question),
    Cancel(OpId),
}

enum Input {
    Connected(NodeId, Generation, Result<(Connection, Welcome), Failure>),
    Discovered(Result<Routes, Failure>),
    Incoming(NodeId, Generation, Incoming),
}

/// The driver's state of one server.
#[derive(Default)]
struct Peer {
    connection: Option<Connection>,
    generation: Generation,
    /// The items to send at the end of this turn.
    batch: Vec<Item>,
}

struct Driver {
    machine: Box<dyn Protocol>,
    endpoint: Arc<Endpoint>,
    caller: Arc<dyn Caller>,
    open: Open,
    shared: Arc<Shared>,
    commands: UnboundedReceiver<Submission>,
    incoming_sender: UnboundedSender<Input>,
    incoming: UnboundedReceiver<Input>,
    directory: Arc<Directory>,
    /// Indexed by node number.
    peers: Vec<Peer>,
    effects: Vec<Effect>,
    /// The reply timeout of requests that do not go through the machine.
    command_timeout: Duration,
    stopped: bool,
}

impl Driver {
    async fn run(mut self) {
        let mut commands = Vec::new();
        let mut detached = false;
        let mut spin = Spin::new(Mono::now());
        // Reused by all turns: a new timer would have to wake the thread that waits for it.
        let mut alarm = pin!(time::sleep(SLEEP_MAX));
        while !self.stopped {
            let now = Mono::now();
            let sleep = self.sleep_time(now);
            if let Some(sleep) = sleep {
                alarm.as_mut().reset(time::Instant::now() + sleep);
            }
            tokio::select! {
                biased;
                count = self.commands.recv_many(&mut commands, TURN_MAX), if !detached => {
                    if count == 0 {
                        detached = true;
                        self.machine.handle_command(
                            Mono::now(), OpId::NOBODY, Command::Close, &mut self.effects,
                        );
                    }
                }
                Some(input) = self.incoming.recv() => self.handle_input(input),
                () = tokio::task::yield_now(), if self.may_spin() && spin.is_on(now) => continue,
                () = alarm.as_mut(), if sleep.is_some() => {}
            }
            spin.end(Mono::now());
            faults::at("turn");
            // All other inputs that have arrived join this turn's pipeline.
            while let Ok(input) = self.incoming.try_recv() {
                self.handle_input(input);
            }
            let now = Mono::now();
            for submission in commands.drain(..) {
                self.handle_submission(now, submission);
            }
            if self.machine.next_timeout().is_some_and(|at| at <= now) {
                let turned = Event::Heartbeat(self.caller.last_turn());
                self.machine.handle_event(now, NodeId::default(), turned, &mut self.effects);
                self.machine.handle_timeout(now, &mut self.effects);
            }
            // Counted before the outcomes are delivered: a caller that has one must find it counted.
            self.shared.count(self.machine.stats());
            self.carry_out();
            // Lets the connection write before the next turn adds more to send.
            tokio::task::yield_now().await;
            spin.begin(now);
        }
    }

    fn may_spin(&self) -> bool {
        self.open.len() <= SPIN_OPERATIONS
    }

    fn sleep_time(&self, now: Mono) -> Option<Duration> {
        let at = self.machine.next_timeout()?;
        Some(at.since(now).min(SLEEP_MAX))
    }

    fn handle_submission(&mut self, now: Mono, submission: Submission) {
        let (op, command) = match submission {
            Submission::Begin(ticket, command) => (self.open.take_over(ticket), command),
            Submission::Query(ticket, question) => return self.query(ticket, question),
            Submission::Cancel(op) => (op, Command::Cancel),
        };
        self.machine.handle_command(now, op, command, &mut self.effects);
    }

    fn handle_input(&mut self, input: Input) {
        faults::at("input");
        let now = Mono::now();
        let (node, event) = match input {
            Input::Discovered(routes) => (NodeId::default(), Event::Discovered(routes)),
            Input::Connected(node, generation, result) => {
                let peer = self.peer(node);
                if generation != peer.generation {
                    return;
                }
                let event = match result {
                    Ok((connection, Welcome { probe, risks, pubsub_denied })) => {
                        peer.connection = Some(connection);
                        Event::Connected { probe, risks, pubsub_denied }
                    }
                    Err(failure) => Event::ConnectFailed(failure),
                };
                (node, event)
            }
            Input::Incoming(node, generation, incoming) => {
                if generation != self.peer(node).generation {
                    return;
                }
                return self.handle_incoming(now, node, incoming);
            }
        };
        self.machine.handle_event(now, node, event, &mut self.effects);
    }

    fn handle_incoming(&mut self, now: Mono, node: NodeId, incoming: Incoming) {
        let event = match incoming {
            Incoming::Confirmed(attempt, verdict) => Event::Confirmed { attempt, verdict },
            Incoming::PubsubDenied(why) => Event::PubsubDenied(why),
            Incoming::Disconnected(detail) => Event::Disconnected(detail),
            Incoming::Listening(channel, on) => Event::Listening { channel, on },
            Incoming::Probed(probe, sent) => Event::Probed { probe, sent },
            Incoming::Message(message) => Event::Message(message),
            Incoming::Replies(replies) => {
                for (request, reply) in replies {
                    self.machine.handle_reply(now, node, request, reply, &mut self.effects);
                }
                return;
            }
        };
        self.machine.handle_event(now, node, event, &mut self.effects);
    }

    fn peer(&mut self, node: NodeId) -> &mut Peer {
        let index = usize::from(node.0);
        if self.peers.len() <= index {
            self.peers.resize_with(index + 1, Peer::default);
        }
        &mut self.peers[index]
    }

    fn carry_out(&mut self) {
        let mut effects = std::mem::take(&mut self.effects);
        let mut to_see = false;
        self.open.note_losses(&effects);
        faults::at("effects");
        for effect in effects.drain(..) {
            match effect {
                Effect::Complete { op, outcome } => {
                    to_see |= self.open.complete(op, outcome);
                }
                Effect::Confirm { node, attempt } => {
                    if let Some(connection) = &self.peer(node).connection {
                        connection.confirm(attempt);
                    }
                }
                Effect::Connect { node } => self.connect(node),
                Effect::Disconnect { node, abort } => self.disconnect(node, abort),
                Effect::Discover => self.discover(),
                Effect::Listen { node, channel } => self.listen(node, channel, true),
                Effect::Lose { .. } => {
                    self.open.tell_loss();
                    to_see = true;
                }
                Effect::Ping => {
                    self.caller.ping();
                    to_see = true;
                }
                Effect::Probe { node, sent } => self.peer(node).batch.push(Item::Probe { sent }),
                Effect::Send { node, request, call, send_mode } => {
                    self.peer(node).batch.push(Item::Call { request, call, send_mode });
                }
                Effect::SetDeadline { lease, until } => self.shared.set_deadline(lease, until),
                Effect::Stop => self.stopped = true,
                Effect::Notify(notices) => {
                    self.caller.tell(notices);
                    to_see = true;
                }
                Effect::Unlisten { node, channel } => self.listen(node, channel, false),
            }
        }
        self.effects = effects;
        if to_see {
            self.caller.wake();
        }
        // Last: an embedded server executes the batch at once, while the caller handles its outcomes.
        self.peers.iter_mut().for_each(Peer::send_batch);
    }

    fn connect(&mut self, node: NodeId) {
        let peer = self.peer(node);
        peer.generation += 1;
        let generation = peer.generation;
        let (endpoint, directory) = (Arc::clone(&self.endpoint), Arc::clone(&self.directory));
        let inputs = self.incoming_sender.clone();
        tokio::spawn(async move {
            let _failed = OnPanic(|| {
                let failed = Err(Failure::Lost(DEFECT.to_owned()));
                drop(inputs.send(Input::Connected(node, generation, failed)));
            });
            faults::at("connecting");
            let deliver: Deliver = {
                let inputs = inputs.clone();
                // If the driver has ended, nobody needs the result.
                Arc::new(move |incoming| {
                    drop(inputs.send(Input::Incoming(node, generation, incoming)));
                })
            };
            let result = server::connect(&endpoint, &directory, node, deliver).await;
            // If the driver has ended, dropping the connection closes it.
            drop(inputs.send(Input::Connected(node, generation, result)));
        });
    }

    fn disconnect(&mut self, node: NodeId, abort: bool) {
        let peer = self.peer(node);
        // The machine has given up every request of the old connection, including those of this turn.
        peer.batch.clear();
        peer.generation += 1;
        match peer.connection.take() {
            Some(connection) if abort => connection.abort(),
            other => drop(other),
        }
    }

    fn discover(&self) {
        let (endpoint, directory) = (Arc::clone(&self.endpoint), Arc::clone(&self.directory));
        let inputs = self.incoming_sender.clone();
        tokio::spawn(async move {
            let _failed = OnPanic(|| {
                drop(inputs.send(Input::Discovered(Err(Failure::Lost(DEFECT.to_owned())))));
            });
            faults::at("discovering");
            let routes = server::discover(&endpoint, &directory).await;
            // If the driver has ended, nobody needs the result.
            drop(inputs.send(Input::Discovered(routes)));
        });
    }

    /// Bypasses the machine, which does not track locks of other clients.
    fn query(&mut self, ticket: Ticket, question: Question) {
        let here = self.peer(NodeId::default()).connection.as_ref();
        if let Some(page) = here.and_then(|connection| connection.page(&question)) {
            ticket.complete(Outcome::Page(page));
            return self.caller.wake();
        }
        let (endpoint, directory) = (Arc::clone(&self.endpoint), Arc::clone(&self.directory));
        let (caller, patience) = (Arc::clone(&self.caller), self.command_timeout);
        tokio::spawn(async move {
            let _woken = OnPanic(|| caller.wake());
            faults::at("querying");
            let page = server::page(&endpoint, &directory, &question, patience).await;
            ticket.complete(page.map_or_else(outcome_of, Outcome::Page));
            caller.wake();
        });
    }

    fn listen(&mut self, node: NodeId, channel: Arc<str>, on: bool) {
        if let Some(connection) = &self.peer(node).connection {
            connection.listen(channel, on);
        }
    }
}

impl Peer {
    fn send_batch(&mut self) {
        if let Some(connection) = &self.connection
            && !self.batch.is_empty()
        {
            connection.send(&self.batch);
        }
        self.batch.clear();
    }
}
