//! A connection on which one thing is asked after the other, on the runtime. It speaks RESP3, or RESP2 with a server that
//! says so or has no RESP3.

use super::descriptors::explained;
use super::frames::Frames;
use super::stream::{Parts, Stream};
use super::tls::NO_TLS_HINT;
use super::{values, wire};
use crate::protocol::Failure;
use crate::server::{Address, Endpoint, Login, Resp};
use redis::{Cmd, Pipeline, PushKind, Value};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::rustls::ClientConnection;

/// A connection that is logged in. Dropping it closes it.
pub(super) struct Dialogue {
    stream: Stream,
    /// The login that it has.
    login: Arc<Login>,
    frames: Frames,
    resp: Resp,
    /// Whether it has subscribed. In RESP2 nothing else may be asked from then on.
    subscribes: bool,
    /// Whether pushes have come as arrays, as RESP2 has them.
    pushes_arrays: bool,
    /// The pushes that came before an answer, as values.
    pushes: VecDeque<Value>,
    /// Whether the server has said anything.
    has_spoken: bool,
}

impl Dialogue {
    /// Connects and logs in.
    pub(super) async fn open(endpoint: &Endpoint) -> Result<Self, Failure> {
        let socket = Parts::open(endpoint).await.map_err(|error| lost(&explained(error)))?;
        // Only now: nobody is asked for the login of a server that is not there.
        let patience = endpoint.connect_timeout;
        let login = endpoint.login_source.login(patience).await?;
        let tls = endpoint.tls.as_ref().map(|tls| login.tls.as_ref().unwrap_or(tls));
        let stream = Stream::over(socket, endpoint, tls.map(|tls| &**tls)).await;
        let mut dialogue = Self {
            stream: stream.map_err(|error| lost(&explained(error)))?,
            login,
            frames: Frames::new(),
            resp: Resp::Three,
            subscribes: false,
            pushes_arrays: false,
            pushes: VecDeque::new(),
            has_spoken: false,
        };
        let Err(refused) = dialogue.introduce(endpoint).await else { return Ok(dialogue) };
        if !wire::is_login(&refused) {
            return Err(refused);
        }
        // It may have changed since it was asked for.
        match endpoint.login_source.instead_of(&dialogue.login, patience).await? {
            Some(login) => dialogue.login = login,
            None => return Err(refused),
        }
        dialogue.introduce(endpoint).await?;
        Ok(dialogue)
    }

    /// A connection to the database of a server.
    pub(super) async fn open_database(server: &Endpoint) -> Result<Self, Failure> {
        let mut dialogue = Self::open(server).await?;
        if server.db != 0 {
            dialogue.ask_one(redis::cmd("SELECT").arg(server.db)).await?;
        }
        Ok(dialogue)
    }

    async fn introduce(&mut self, endpoint: &Endpoint) -> Result<(), Failure> {
        match self.log_in(endpoint).await {
            Err(refused) if wire::is_without_resp3(&refused) => {
                self.resp = Resp::Two;
                self.log_in(endpoint).await
            }
            other => other,
        }
    }

    /// The login that it has.
    pub(super) fn login(&self) -> Arc<Login> {
        Arc::clone(&self.login)
    }

    /// Logs in again, where it has not subscribed.
    pub(super) async fn log_in_again(&mut self, login: &Arc<Login>) -> Result<(), Failure> {
        if let Some(auth) = wire::auth(login) {
            self.ask_one(&auth).await?;
        }
        self.login = Arc::clone(login);
        Ok(())
    }

    pub(super) const fn resp(&self) -> Resp {
        self.resp
    }

    async fn log_in(&mut self, endpoint: &Endpoint) -> Result<(), Failure> {
        let answers = match self.ask(&wire::login(&self.login, self.resp)).await {
            Ok(answers) => answers,
            // A server that expects TLS hangs up on plain text, without an answer that tells more.
            Err(Failure::Lost(why))
                if matches!(endpoint.address, Address::Tcp { .. })
                    && endpoint.tls.is_none()
                    && !self.has_spoken =>
            {
                let why = format!("{why}; if the server expects TLS, use rediss://");
                return Err(Failure::Lost(why));
            }
            Err(other) => return Err(other),
        };
        // Servers may not know the last commands of a login, which only name the client.
        let decisive = answers.len() - wire::NAMING_COMMANDS;
        let answers = answers.into_iter().take(decisive).map(Value::extract_error);
        let answers: Vec<_> =
            answers.collect::<Result<_, _>>().map_err(|error| wire::failure(&error))?;
        if let (Resp::Three, Some(hello)) = (self.resp, answers.first()) {
            self.resp = wire::spoken(hello);
        }
        Ok(())
    }

    /// The replies to `pipeline`. If the server ends the connection, its last words are the error: a server that has too
    /// many clients, or is in protected mode, says so ahead of the end, whatever it was asked.
    pub(super) async fn ask(&mut self, pipeline: &Pipeline) -> Result<Vec<Value>, Failure> {
        // A failed write does not tell why the connection ended; the bytes that are left to read do.
        let written = self.write(&pipeline.get_packed_pipeline()).await;
        let mut answers = Vec::with_capacity(pipeline.len());
        while answers.len() < pipeline.len() {
            match self.receive().await {
                Ok(push @ Value::Push { .. }) => self.pushes.push_back(push),
                Ok(answer) => answers.push(answer),
                Err(ended) => {
                    let last_words = answers.pop().and_then(|answer| answer.extract_error().err());
                    let silence = || written.err().unwrap_or(ended);
                    return Err(last_words.as_ref().map_or_else(silence, wire::failure));
                }
            }
        }
        Ok(answers)
    }

    /// The reply to `command`, which is no error.
    pub(super) async fn ask_one(&mut self, command: &Cmd) -> Result<Value, Failure> {
        let mut pipeline = Pipeline::with_capacity(1);
        pipeline.add_command(command.clone());
        let answer = self.ask(&pipeline).await?.pop().unwrap_or(Value::Nil);
        answer.extract_error().map_err(|error| wire::failure(&error))
    }

    /// Subscribes to `channels`. Returns the server's error if it refuses them.
    pub(super) async fn subscribe(
        &mut self,
        channels: &[Arc<str>],
    ) -> Result<Option<Failure>, Failure> {
        self.send(&wire::subscription("SUBSCRIBE", channels)).await?;
        self.confirmed(&PushKind::Subscribe, channels.len()).await
    }

    /// Ends these subscriptions, which are all that it has. A server that refuses it leaves them.
    pub(super) async fn unsubscribe(&mut self, channels: &[Arc<str>]) -> Result<(), Failure> {
        self.send(&wire::subscription("UNSUBSCRIBE", channels)).await?;
        if self.confirmed(&PushKind::Unsubscribe, channels.len()).await?.is_none() {
            self.subscribes = false;
        }
        Ok(())
    }

    /// Waits until the server has confirmed so many changes of subscriptions; its error refuses all of them.
    async fn confirmed(
        &mut self,
        change: &PushKind,
        mut count: usize,
    ) -> Result<Option<Failure>, Failure> {
        while count > 0 {
            match self.receive().await? {
                Value::Push { kind, .. } if kind == *change => count -= 1,
                push @ Value::Push { .. } => self.pushes.push_back(push),
                answer => return Ok(answer.extract_error().err().as_ref().map(wire::failure)),
            }
        }
        Ok(None)
    }

    /// Whether messages come as arrays, which nobody can tell from answers: then it may ask for nothing else.
    pub(super) const fn pushes_arrays(&self) -> bool {
        self.pushes_arrays
    }

    /// Sends a command that changes subscriptions; [`Self::read`] gets the answer.
    pub(super) async fn send(&mut self, subscription: &Cmd) -> Result<(), Failure> {
        self.subscribes = true;
        self.write(&subscription.get_packed_command()).await
    }

    /// The next push, or answer to [`Self::send`]. Bytes that were read are not lost if this is dropped.
    pub(super) async fn read(&mut self) -> Result<Value, Failure> {
        match self.pushes.pop_front() {
            Some(push) => Ok(push),
            None => self.receive().await,
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.stream.write_all(bytes).await.map_err(|error| lost(&error))?;
        self.stream.flush().await.map_err(|error| lost(&error))
    }

    /// The next value.
    async fn receive(&mut self) -> Result<Value, Failure> {
        loop {
            let frame = match self.frames.next() {
                Ok(frame) => frame.map(wire::value),
                Err(_) => return Err(Failure::Lost(wire::stranger(self.frames.rest()))),
            };
            if let Some(value) = frame {
                let value = value?;
                if !self.subscribes {
                    return Ok(value);
                }
                let is_array = matches!(value, Value::Array(_));
                let value = values::push(value);
                self.pushes_arrays |= is_array && matches!(value, Value::Push { .. });
                return Ok(value);
            }
            let count = self.stream.read(self.frames.room()).await.map_err(|error| lost(&error))?;
            if count == 0 {
                return Err(Failure::Lost("the server closed the connection".to_owned()));
            }
            self.has_spoken = true;
            self.frames.fill(count);
        }
    }

    /// Its parts, for another reader: the socket and its TLS, the unread bytes, and the pushes.
    pub(super) fn into_parts(
        self,
    ) -> (Parts, Option<Box<ClientConnection>>, Frames, VecDeque<Value>) {
        let (socket, tls) = self.stream.into_parts();
        (socket, tls, self.frames, self.pushes)
    }
}

fn lost(error: &std::io::Error) -> Failure {
    Failure::Lost(error.to_string())
}

const UNANSWERED: &str = ": the function that gives the login has not answered";

/// Applies the connect timeout.
pub(super) async fn in_time<T>(
    endpoint: &Endpoint,
    connecting: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let limit = endpoint.connect_timeout;
    tokio::time::timeout(limit, connecting).await.unwrap_or_else(|_| {
        let hint = match &endpoint.tls {
            _ if endpoint.login_source.is_asking() => UNANSWERED,
            // A server without TLS reads the handshake as the beginning of a line, and waits for its end.
            Some(_) => NO_TLS_HINT,
            None => "",
        };
        Err(Failure::Lost(format!("no connection within {} ms{hint}", limit.as_millis())))
    })
}

/// Waits for a reply up to a timeout: the server may have stopped.
pub(super) async fn answer_in<T>(
    patience: Duration,
    reply: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let silence = |_| Failure::Lost(format!("no answer within {} ms", patience.as_millis()));
    tokio::time::timeout(patience, reply).await.map_err(silence)?
}
