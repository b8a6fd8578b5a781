//! One Redis or Valkey server: one connection that carries everything.

use super::{
    Address, Deliver, Directory, Endpoint, Incoming, Item, Welcome, persistence,
    replicas::ReplicaAcker, stream::Stream, tls::NO_TLS_HINT, wire,
};
use crate::faults::{self, OnPanic};
use crate::machine::{RequestId, Risk, SendMode, ServerProbe, TokenId};
use crate::protocol::{DEFECT, Failure, Message, Mono, Script};
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Pipeline, ProtocolVersion, PushKind, RedisConnectionInfo, RedisError,
    Value,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::task::JoinHandle;

/// An open connection. Dropping it closes it.
pub(crate) struct Connection {
    inner: MultiplexedConnection,
    deliver: Deliver,
    abort: Arc<AtomicBool>,
    _pump: Pump,
    acker: Option<ReplicaAcker>,
}

pub(super) async fn connect(
    endpoint: &Endpoint,
    directory: &Arc<Directory>,
    deliver: Deliver,
) -> Result<(Connection, Welcome), Failure> {
    in_time(endpoint, handshake(endpoint, directory, deliver)).await
}

/// Applies the connect timeout.
pub(super) async fn in_time<T>(
    endpoint: &Endpoint,
    connecting: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let limit = endpoint.connect_timeout;
    tokio::time::timeout(limit, connecting).await.unwrap_or_else(|_| {
        // A server without TLS reads the handshake as the beginning of a line, and waits for its end.
        let hint = match &endpoint.tls {
            Some(_) => NO_TLS_HINT,
            None => "",
        };
        Err(Failure::Lost(format!("no connection within {} ms{hint}", limit.as_millis())))
    })
}

async fn handshake(
    endpoint: &Endpoint,
    directory: &Arc<Directory>,
    deliver: Deliver,
) -> Result<(Connection, Welcome), Failure> {
    let pushes = Arc::clone(&deliver);
    let dialled = dial(endpoint, move |push| {
        if let Some(incoming) = pushed(&push) {
            pushes(incoming);
        }
    });
    let Dialled { inner, abort, pump } = dialled.await?;
    let mut connection = Connection { inner, deliver, abort, _pump: pump, acker: None };
    let (probe, risks) = connection.introduce(endpoint).await?;
    let pubsub_denied = match endpoint.channels.first() {
        None => None,
        Some(probed) => connection.listen(probed, &endpoint.channels).await?,
    };
    if let Some(replicas) = endpoint.replicas {
        let deliver = Arc::clone(&connection.deliver);
        let history = probe.history.clone();
        let acker = ReplicaAcker::open(endpoint, replicas, history, directory, deliver);
        connection.acker = Some(acker.await?);
    }
    Ok((connection, Welcome { probe, risks, pubsub_denied }))
}

/// A connection that is logged in. Dropping it closes it.
pub(super) struct Dialled {
    pub(super) inner: MultiplexedConnection,
    /// Set before dropping it: discards what the kernel has not delivered yet.
    pub(super) abort: Arc<AtomicBool>,
    pub(super) pump: Pump,
}

/// The task that carries the bytes of a connection. Dropping it closes the connection at once.
pub(super) struct Pump(JoinHandle<()>);

impl Drop for Pump {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Connects and logs in. `pushes` gets the server's pushes.
pub(super) async fn dial(
    endpoint: &Endpoint,
    pushes: impl Fn(redis::PushInfo) + Send + Sync + 'static,
) -> Result<Dialled, Failure> {
    let pushes = Arc::new(pushes);
    let defect = Arc::clone(&pushes);
    let abort = Arc::new(AtomicBool::new(false));
    let stream = Stream::open(endpoint, Arc::clone(&abort))
        .await
        .map_err(|error| Failure::Lost(error.to_string()))?;
    let config = AsyncConnectionConfig::new()
        // The machine has its own timeouts, which start before a request is sent.
        .set_response_timeout(None)
        .set_connection_timeout(None)
        .set_pipeline_buffer_size(4096)
        .set_push_sender(move |push: redis::PushInfo| {
            faults::at("push");
            pushes(push);
            Ok::<(), redis::aio::SendError>(())
        });
    let (inner, pump) = MultiplexedConnection::new_with_config(&login(endpoint), stream, config)
        .await
        .map_err(|error| login_failure(endpoint, &error))?;
    let pump = async move {
        let _reported =
            OnPanic(|| defect(redis::PushInfo { kind: PushKind::Disconnection, data: vec![] }));
        pump.await;
    };
    Ok(Dialled { inner, abort, pump: Pump(tokio::spawn(pump)) })
}

/// Adds a hint, because a server that expects TLS hangs up on plain text.
fn login_failure(endpoint: &Endpoint, error: &RedisError) -> Failure {
    match (wire::failure(error), &endpoint.address, &endpoint.tls) {
        (Failure::Lost(why), Address::Tcp { .. }, None) => {
            Failure::Lost(format!("{why}; if the server expects TLS, use rediss://"))
        }
        (failure, ..) => failure,
    }
}

/// The event that a push means, if any.
pub(super) fn pushed(push: &redis::PushInfo) -> Option<Incoming> {
    match (&push.kind, push.data.as_slice()) {
        (PushKind::Disconnection, _) => {
            Some(Incoming::Disconnected("the server closed the connection".to_owned()))
        }
        (
            PushKind::Message | PushKind::SMessage,
            [Value::BulkString(channel), Value::BulkString(message)],
        ) => {
            let [channel, message] = [channel, message].map(|text| std::str::from_utf8(text).ok());
            Message::parse(channel?, message?).map(Incoming::Message)
        }
        _ => None,
    }
}

fn login(endpoint: &Endpoint) -> RedisConnectionInfo {
    let mut info = RedisConnectionInfo::default()
        .set_protocol(ProtocolVersion::RESP3)
        .set_lib_name("holdfast", env!("CARGO_PKG_VERSION"));
    if let Some(username) = &endpoint.username {
        info = info.set_username(username);
    }
    if let Some(password) = &endpoint.password {
        info = info.set_password(password);
    }
    info
}

impl Connection {
    async fn introduce(
        &mut self,
        endpoint: &Endpoint,
    ) -> Result<(ServerProbe, Vec<Risk>), Failure> {
        let pipeline = wire::introduction(&endpoint.client_name, endpoint.db);
        let count = pipeline.len();
        let values = self.inner.send_packed_commands(&pipeline, 0, count).await;
        let values = values.map_err(|error| wire::failure(&error))?;
        wire::introduced(&values, &endpoint.address.to_string())
    }

    /// Asks whether a restart may lose data.
    pub(super) async fn ask_persistence(
        &mut self,
        endpoint: &Endpoint,
    ) -> Result<Option<Risk>, Failure> {
        let pipeline = persistence::question();
        let count = pipeline.len();
        let values = self.inner.send_packed_commands(&pipeline, 0, count).await;
        let values = values.map_err(|error| wire::failure(&error))?;
        Ok(persistence::forgets(&values, &endpoint.address.to_string()))
    }

    /// Subscribes to `channels` and checks that messages may be published to `probed`, one of them. Returns
    /// the reason if an ACL forbids it.
    async fn listen(
        &mut self,
        probed: &str,
        channels: &[Arc<str>],
    ) -> Result<Option<String>, Failure> {
        let mut probe = redis::cmd("PUBLISH");
        probe.arg(probed).arg("");
        let mut count = redis::cmd("PUBSUB");
        count.arg("NUMSUB").arg(probed);
        let names: Vec<&str> = channels.iter().map(|channel| &**channel).collect();
        let subscribed = self.inner.subscribe(names).await;
        let published = self.inner.send_packed_command(&probe).await;
        let counted = self.inner.send_packed_command(&count).await;
        let published = published.and_then(Value::extract_error);
        let counted = counted.and_then(Value::extract_error);
        let failed =
            [subscribed.err(), published.err(), counted.err()].into_iter().flatten().next();
        let Some(failed) = failed else { return Ok(None) };
        match wire::failure(&failed) {
            Failure::Refused(refusal) => Ok(Some(refusal.to_string())),
            other => Err(other),
        }
    }

    /// Sends `items` as one pipeline, after all earlier items.
    pub(super) fn send(&self, items: &[Item]) {
        let mut pipeline = Pipeline::with_capacity(items.len());
        let mut expected = Vec::with_capacity(items.len());
        for item in items {
            match item {
                Item::Probe { sent } => {
                    wire::add_look(&mut pipeline);
                    expected.push(Expected::Probe(*sent));
                }
                Item::Call { request, call, send_mode } => {
                    if matches!(send_mode, SendMode::Asking(_)) {
                        pipeline.cmd("ASKING");
                        expected.push(Expected::Asking);
                    }
                    pipeline.add_command(wire::command(call, *send_mode));
                    expected.push(Expected::Reply(*request, call.script()));
                }
            }
        }
        let mut inner = self.inner.clone();
        let deliver = Arc::clone(&self.deliver);
        // Tasks of this runtime start in the order of their spawning, so pipelines keep their order.
        tokio::spawn(async move {
            let _reported = OnPanic(|| deliver(Incoming::Disconnected(DEFECT.to_owned())));
            faults::at("sending");
            let count = pipeline.len();
            let result = inner.send_packed_commands(&pipeline, 0, count).await;
            for answer in answers(expected, result.map_err(|error| wire::brief(error.to_string())))
            {
                deliver(answer);
            }
        });
    }

    /// Reports when enough replicas have a grant whose reply was read before.
    pub(super) fn confirm(&self, grant: TokenId) {
        if let Some(acker) = &self.acker {
            acker.confirm(grant);
        }
    }

    /// Subscribes to a channel, or unsubscribes from it.
    pub(super) fn listen_to(&self, channel: Arc<str>, on: bool) {
        let mut inner = self.inner.clone();
        let deliver = Arc::clone(&self.deliver);
        tokio::spawn(async move {
            let _reported = OnPanic(|| deliver(Incoming::Disconnected(DEFECT.to_owned())));
            faults::at("listening");
            if !on {
                // A lost connection has no subscriptions.
                drop(inner.unsubscribe(&*channel).await);
                return;
            }
            match inner.subscribe(&*channel).await.map_err(|error| wire::failure(&error)) {
                Ok(()) => deliver(Incoming::Listening(channel, true)),
                Err(Failure::Refused(refusal)) => {
                    deliver(Incoming::PubsubDenied(refusal.to_string()));
                }
                // The loss of the connection is reported elsewhere.
                Err(_) => {}
            }
        });
    }

    /// Closes the connection and discards what the kernel has not delivered yet.
    pub(super) fn abort(&self) {
        self.abort.store(true, Ordering::Relaxed);
    }
}

enum Expected {
    /// The reply to ASKING.
    Asking,
    Probe(Mono),
    Reply(RequestId, Script),
}

fn answers(expected: Vec<Expected>, result: Result<Vec<Value>, String>) -> Vec<Incoming> {
    let mut incoming = Vec::new();
    let mut replies = Vec::with_capacity(expected.len());
    let (mut values, last_error) = match result {
        Ok(values) => (values.into_iter(), String::new()),
        Err(last_error) => (Vec::new().into_iter(), last_error),
    };
    for expected in expected {
        match expected {
            Expected::Asking => drop(values.next()),
            Expected::Probe(sent) => {
                let probe: Vec<Value> = values.by_ref().take(wire::PROBE_COMMANDS).collect();
                // A failed probe is repeated with the next request a second later.
                if let Ok(probe) = wire::probe(&probe) {
                    incoming.push(Incoming::Probed(probe, sent));
                }
            }
            Expected::Reply(request, script) => {
                let reply = match values.next() {
                    Some(value) => wire::reply(script, value),
                    None => Err(Failure::Lost(last_error.clone())),
                };
                replies.push((request, reply));
            }
        }
    }
    incoming.push(Incoming::Replies(replies));
    incoming
}
