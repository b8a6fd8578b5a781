//! A connection to one Redis or Valkey server that carries everything. The thread that runs a turn reads and
//! writes, without ever waiting.

use super::command::Command;
use super::dialect::Dialect;
use super::frames::Frames;
use super::replicas::ReplicaAcker;
use super::slots::Name;
use super::socket::Socket;
use super::subscriber::Subscription;
use super::together::{Apart, Callers, Sending, Together};
use super::{Directory, tls, values, wire};
use crate::faults;
use crate::protocol::{
    Call, Failure, LockKeys, Message, Mono, Refusal, Reply, RequestId, Script, SendMode, Token,
    TokenId, WRONG_TYPE,
};
use crate::server::{Incoming, Item, Login};
use redis::{PushKind, Value};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_rustls::rustls::ClientConnection;

/// The buffers are kept from one turn to the next up to this size, in bytes.
const KEPT: usize = 256 * 1024;
/// `CLIENT CACHING YES`: the key that the next command reads is tracked.
const CACHING: &[u8] = b"*3\r\n$6\r\nCLIENT\r\n$7\r\nCACHING\r\n$3\r\nYES\r\n";

/// An open connection. Dropping it closes it.
pub(crate) struct Link {
    socket: Arc<Socket>,
    tls: Option<Box<ClientConnection>>,
    frames: Frames,
    /// The events that the handshake read before it handed the connection over.
    early: Vec<Incoming>,
    /// The last command that was sent, for the memory.
    command: Command,
    /// The bytes that the kernel has not taken yet, from `written` on.
    out: Vec<u8>,
    written: usize,
    expected: VecDeque<Expected>,
    /// The replies to a probe or to the commands that take a lock, until all are there.
    replies: Vec<Value>,
    acker: Option<ReplicaAcker>,
    dialect: Dialect,
    apart: Apart,
    /// Whether the server has been sent the script that changes several shares.
    knows_changes: bool,
    /// The prefix of the reason of a disconnect.
    name: String,
    /// Subscribes to channels in RESP2, and to shard channels in a Cluster, each on a connection of its own.
    channels: Option<UnboundedSender<Subscription>>,
    origin: Option<Origin>,
    /// The tasks that end with the connection.
    pub(super) tasks: JoinSet<()>,
}

/// Where a server of a Cluster is.
pub(super) struct Origin {
    /// The name of the server, which its redirections may omit.
    pub(super) host: String,
    pub(super) directory: Arc<Directory>,
}

/// A reply that is to come.
enum Expected {
    /// The reply to a command that concerns the next one.
    Aside,
    /// The reply to the command by which the key of the next one is tracked.
    Caching,
    /// The reply to AUTH.
    Login(oneshot::Sender<Result<(), Refusal>>),
    Probe(Mono),
    Reply(RequestId, Script),
    /// The value of a lock whose key is tracked from now on, as in [`Item::Track`].
    Tracked(LockKeys, Option<Token>),
    /// The one reply to several requests.
    Together(Callers),
    /// The replies to the commands that take a lock.
    Take(RequestId, Token),
    /// The same, for several locks.
    TakeAll(RequestId, Box<[Token]>),
    /// The push that confirms a change of subscriptions, or an error.
    Subscription(Arc<str>, bool),
}

impl Link {
    pub(super) fn new(
        socket: Socket,
        tls: Option<Box<ClientConnection>>,
        frames: Frames,
        early: Vec<Incoming>,
        acker: Option<ReplicaAcker>,
        dialect: Dialect,
    ) -> Self {
        Self {
            socket: Arc::new(socket),
            tls,
            frames,
            early,
            command: Command::new(),
            out: Vec::new(),
            written: 0,
            expected: VecDeque::new(),
            replies: Vec::new(),
            acker,
            dialect,
            apart: Apart::default(),
            knows_changes: false,
            name: String::new(),
            channels: None,
            origin: None,
            tasks: JoinSet::new(),
        }
    }

    /// Adds the server's name to the reason of a disconnect.
    pub(super) fn set_name(&mut self, name: &str) {
        self.name = format!("{name}: ");
    }

    /// Subscribes by `channels` from now on.
    pub(super) fn set_channels(&mut self, channels: UnboundedSender<Subscription>) {
        self.channels = Some(channels);
    }

    /// Makes it the connection to a server of a Cluster.
    pub(super) fn set_origin(&mut self, (host, port): Name, origin: Origin) {
        self.set_name(&format!("{host}:{port}"));
        self.origin = Some(origin);
    }

    pub(crate) const fn socket(&self) -> &Arc<Socket> {
        &self.socket
    }

    /// Whether a reply is to come.
    pub(crate) fn expects(&self) -> bool {
        !self.expected.is_empty()
    }

    /// Whether the kernel has not taken everything yet.
    pub(crate) fn has_backlog(&self) -> bool {
        self.written < self.out.len() || self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// The memory for what is to be written, in bytes.
    #[cfg(test)]
    pub(super) const fn reserved(&self) -> usize {
        self.out.capacity()
    }

    /// Adds `items` to what [`Self::flush`] writes.
    pub(in crate::server) fn send(&mut self, items: &[Item]) {
        faults::at("sending");
        // Without the clock there are no shares.
        match self.dialect.clock.then(|| self.apart.arrange(items)).flatten() {
            None => items.iter().for_each(|item| self.send_one(item)),
            Some(arranged) => arranged.into_iter().for_each(|sending| match sending {
                Sending::Alone(item) => self.send_one(item),
                Sending::Together(together) => self.send_together(&together),
            }),
        }
    }

    fn send_one(&mut self, item: &Item) {
        match item {
            Item::Probe { sent } => {
                self.out.extend_from_slice(wire::probe_commands());
                self.expected.push_back(Expected::Probe(*sent));
            }
            Item::Track { keys, token } => {
                self.out.extend_from_slice(CACHING);
                self.expected.push_back(Expected::Caching);
                self.command.clear();
                self.command.arg("GET").arg(keys.lock()).write_to(&mut self.out);
                self.expected.push_back(Expected::Tracked(keys.clone(), token.clone()));
            }
            Item::Call { request, call, send_mode } => {
                if matches!(send_mode, SendMode::Asking(_)) {
                    redis::cmd("ASKING").write_packed_command(&mut self.out);
                    self.expected.push_back(Expected::Aside);
                }
                self.write(call, *send_mode);
                self.expected.push_back(match (call, call.script()) {
                    (_, Some(script)) => Expected::Reply(*request, script),
                    (Call::TakeAll { .. }, None) => {
                        Expected::TakeAll(*request, call.tokens().into())
                    }
                    (_, None) => Expected::Take(*request, call.token().clone()),
                });
            }
        }
    }

    fn send_together(&mut self, together: &Together<'_>) {
        if let Some((call, callers)) = together.call() {
            let knows = std::mem::replace(&mut self.knows_changes, true);
            self.write(&call, if knows { SendMode::Plain } else { SendMode::WithSource });
            self.expected.push_back(Expected::Together(callers));
        }
    }

    fn write(&mut self, call: &Call, send_mode: SendMode) {
        let out = &mut self.out;
        let write = |command: &Command| command.write_to(out);
        wire::write_commands(&mut self.command, call, send_mode, self.dialect, write);
    }

    /// Subscribes to a channel (in a Cluster: a shard channel), or unsubscribes from it.
    pub(in crate::server) fn listen(&mut self, channel: Arc<str>, on: bool) {
        faults::at("listening");
        if let Some(channels) = &self.channels {
            // If the task has ended, so has the connection.
            drop(channels.send((channel, on)));
            return;
        }
        let command = if on { "SUBSCRIBE" } else { "UNSUBSCRIBE" };
        let command = wire::subscription(command, &[Arc::clone(&channel)]);
        command.write_packed_command(&mut self.out);
        self.expected.push_back(Expected::Subscription(channel, on));
    }

    /// Logs in again, between two requests; `told` gets what the server says.
    pub(in crate::server) fn log_in(
        &mut self,
        login: &Login,
        told: oneshot::Sender<Result<(), Refusal>>,
    ) {
        if let Some(auth) = wire::auth(login) {
            auth.write_packed_command(&mut self.out);
            self.expected.push_back(Expected::Login(told));
        } else {
            drop(told.send(Ok(())));
        }
    }

    /// Reports when enough replicas have a grant whose reply was read before.
    pub(in crate::server) fn confirm(&self, grant: TokenId) {
        if let Some(acker) = &self.acker {
            acker.confirm(grant);
        }
    }

    /// Ends the connection and discards what the kernel has not delivered yet.
    pub(in crate::server) fn abort(self) {
        self.socket.close(true);
    }

    /// Writes as much as the kernel takes. The loss of the connection is reported by [`Self::read`].
    pub(crate) fn flush(&mut self) {
        if self.socket.is_over() {
            return;
        }
        let pending = &self.out[self.written..];
        let written = match &mut self.tls {
            None => write_all(&self.socket, pending),
            Some(tls) => encrypt(tls, &self.socket, pending),
        };
        self.written += written;
        if self.written == self.out.len() {
            self.out.clear();
            self.out.shrink_to(KEPT);
            self.written = 0;
        }
    }

    /// Reads what is there.
    pub(crate) fn read(&mut self, into: &mut Vec<Incoming>) {
        into.append(&mut self.early);
        if self.socket.is_over() {
            return;
        }
        if let Err(reason) = self.read_all(into) {
            self.socket.set_over();
            into.push(Incoming::Disconnected(format!("{}{reason}", self.name)));
        }
    }

    fn read_all(&mut self, into: &mut Vec<Incoming>) -> Result<(), String> {
        loop {
            self.parse(into)?;
            let read = match &mut self.tls {
                None => self.frames.read(|room| self.socket.read(room)),
                Some(tls) => self.frames.read(|room| decrypt(tls, &self.socket, room)),
            };
            match read {
                Ok((0, _)) => return Err("the server closed the connection".to_owned()),
                // A socket that gave less than there was room for is empty. TLS gives one record at a time.
                Ok((_, false)) if self.tls.is_none() => return self.parse(into),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(tls::explained(error).to_string()),
            }
        }
    }

    fn parse(&mut self, into: &mut Vec<Incoming>) -> Result<(), String> {
        loop {
            if let Some(Expected::Take(request, token)) = self.expected.front()
                && self.replies.is_empty()
                && let Some(reply) = self.frames.take(|bytes| wire::taken_at_once(bytes, token))
            {
                into.push(Incoming::Reply(*request, Ok(reply)));
                self.expected.pop_front();
                continue;
            }
            let frame = self.frames.next().map_err(|_| wire::NOT_RESP)?;
            let Some(frame) = frame else { return Ok(()) };
            let value = match values::common(frame) {
                Some(value) => value,
                None => wire::value(frame).map_err(|failure| failure.to_string())?,
            };
            self.handle(value, into)?;
        }
    }

    fn handle(&mut self, value: Value, into: &mut Vec<Incoming>) -> Result<(), String> {
        if let Value::Push { kind, .. } = &value {
            faults::at("push");
            let confirms = matches!(kind, PushKind::Subscribe | PushKind::Unsubscribe)
                && matches!(self.expected.front(), Some(Expected::Subscription(..)));
            if !confirms {
                into.extend(wire::pushed(&value).map(Incoming::Message));
                return Ok(());
            }
        }
        match self.expected.pop_front() {
            None => return Err("the server sent an answer without a request".to_owned()),
            Some(Expected::Login(told)) => {
                let refused = value.extract_error().err().as_ref().map(wire::failure);
                let answer = match refused {
                    Some(Failure::Refused(refusal)) => Err(refusal),
                    _ => Ok(()),
                };
                // The task that waited for it may have ended.
                drop(told.send(answer));
            }
            Some(Expected::Probe(sent)) => {
                self.replies.push(value);
                if self.replies.len() < wire::PROBE_COMMANDS {
                    self.expected.push_front(Expected::Probe(sent));
                    return Ok(());
                }
                // A failed probe is repeated with the next request a second later.
                if let Ok(probe) = wire::probe(&self.replies) {
                    into.push(Incoming::Probed(probe, sent));
                }
                self.replies.clear();
            }
            Some(Expected::Reply(request, script)) => {
                into.push(self.reply(request, wire::reply(script, value)));
            }
            Some(Expected::Tracked(keys, token)) => {
                let has_changed = match value {
                    Value::Nil => true,
                    Value::BulkString(value) => {
                        token.is_some_and(|it| !wire::is_token(&value, &it))
                    }
                    Value::ServerError(error) => error.code() == WRONG_TYPE,
                    // Another error says nothing about the lock.
                    _ => false,
                };
                if has_changed {
                    into.push(Incoming::Message(Message::Changed(keys)));
                }
            }
            Some(Expected::Caching) => {
                if let Value::ServerError(error) = value
                    && !matches!(wire::error_reply(&error), Failure::Refused(it) if it.is_transient())
                {
                    into.push(Incoming::TrackingDenied);
                }
            }
            Some(Expected::Together(callers)) => {
                let reply = wire::reply(Script::ChangeShares, value);
                self.knows_changes &= reply != Err(Failure::NoScript);
                let answers = self.apart.answers(callers, reply);
                into.extend(answers.into_iter().map(|(id, answer)| Incoming::Reply(id, answer)));
            }
            Some(Expected::Take(request, token)) => {
                if let Some(reply) = self.taken(value, std::slice::from_ref(&token)) {
                    into.push(self.reply(request, reply));
                } else {
                    self.expected.push_front(Expected::Take(request, token));
                }
            }
            Some(Expected::TakeAll(request, tokens)) => {
                if let Some(reply) = self.taken(value, &tokens) {
                    into.push(self.reply(request, reply));
                } else {
                    self.expected.push_front(Expected::TakeAll(request, tokens));
                }
            }
            Some(Expected::Subscription(channel, true)) => match value.extract_error() {
                Ok(_) => into.push(Incoming::Listening(channel, true)),
                Err(error) => {
                    if let Failure::Refused(refusal) = wire::failure(&error) {
                        into.push(Incoming::PubsubDenied(refusal.to_string()));
                    }
                }
            },
            // A subscription that could not be ended costs an unwanted message.
            Some(Expected::Aside | Expected::Subscription(_, false)) => {}
        }
        Ok(())
    }
}

impl Link {
    /// The reply to the commands that take locks for `tokens`, once `value` is the last of theirs.
    fn taken(&mut self, value: Value, tokens: &[Token]) -> Option<Result<Reply, Failure>> {
        self.replies.push(value);
        if self.replies.len() < wire::Plain::ALL.len() {
            return None;
        }
        let reply = wire::taken(tokens, &self.replies);
        self.replies.clear();
        Some(reply)
    }

    fn reply(&self, request: RequestId, mut reply: Result<Reply, Failure>) -> Incoming {
        if let (Err(failure), Some(origin)) = (&mut reply, &self.origin) {
            origin.directory.redirect(failure, &origin.host);
        }
        Incoming::Reply(request, reply)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.socket.close(false);
    }
}

/// Writes until the kernel takes no more. Returns the number of bytes.
fn write_all(socket: &Socket, bytes: &[u8]) -> usize {
    let mut rest = bytes;
    while !rest.is_empty() {
        match socket.write(rest) {
            Ok(0) | Err(_) => break,
            Ok(count) => rest = &rest[count..],
        }
    }
    bytes.len() - rest.len()
}

/// Encrypts and writes until the kernel takes no more. Returns the number of bytes that were encrypted.
fn encrypt(tls: &mut ClientConnection, socket: &Socket, bytes: &[u8]) -> usize {
    let mut rest = bytes;
    loop {
        // TLS keeps a limited number of bytes that were not written.
        let count = tls.writer().write(rest).unwrap_or_default();
        rest = &rest[count..];
        while tls.wants_write() {
            match tls.write_tls(&mut Plain(socket)) {
                Ok(0) | Err(_) => return bytes.len() - rest.len(),
                Ok(_) => {}
            }
        }
        if count == 0 {
            return bytes.len() - rest.len();
        }
    }
}

/// Reads once what TLS has decrypted, or can decrypt of what is there.
fn decrypt(tls: &mut ClientConnection, socket: &Socket, into: &mut [u8]) -> io::Result<usize> {
    loop {
        match tls.reader().read(into) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            other => return other,
        }
        if tls.read_tls(&mut Plain(socket))? == 0 {
            return Ok(0);
        }
        tls.process_new_packets().map_err(io::Error::other)?;
    }
}

/// The socket under TLS.
struct Plain<'a>(&'a Socket);

impl Read for Plain<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl Write for Plain<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
