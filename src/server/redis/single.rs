//! Connections to a single server: the manager's own, and those on which the `redis` crate asks for something.

use super::{
    Address, Deliver, Directory, Endpoint, Welcome,
    handshake::{self, Purpose},
    link::Link,
    stream::Stream,
    tls::NO_TLS_HINT,
    wire,
};
use crate::faults::{self, OnPanic};
use crate::protocol::Failure;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ProtocolVersion, PushKind, RedisConnectionInfo, RedisError};
use std::sync::Arc;
use tokio::task::JoinHandle;

/// Connects within the connect timeout, see [`handshake::connect`].
pub(super) async fn connect(
    endpoint: &Endpoint,
    directory: &Arc<Directory>,
    deliver: Deliver,
    purpose: Purpose,
) -> Result<(Link, Welcome), Failure> {
    in_time(endpoint, handshake::connect(endpoint, directory, deliver, purpose)).await
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

/// A connection that is logged in. Dropping it closes it.
pub(super) struct Dialled {
    pub(super) inner: MultiplexedConnection,
    _pump: Pump,
}

/// The task that carries the bytes of a connection. Dropping it closes the connection at once.
struct Pump(JoinHandle<()>);

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
    let stream = Stream::open(endpoint).await.map_err(|error| Failure::Lost(error.to_string()))?;
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
    Ok(Dialled { inner, _pump: Pump(tokio::spawn(pump)) })
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
