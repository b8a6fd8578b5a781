//! A server that answers as the test says.

use crate::protocol::ServerTime;
use crate::server::memory::Store;
use crate::server::redis::frames::Frames;
use crate::server::{Address, Deliver, Endpoint, Incoming, LoginSource, Tls, TlsOptions};
use redis::Value;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, crypto::ring};

/// No test takes that long: who waits for more waits in vain.
pub(crate) const HANG: Duration = Duration::from_secs(20);

/// The time on the server's clock, in s: it stands in 2023.
const NOW_S: u64 = 1_700_000_000;

/// The answer to a command, in RESP; none ends the connection.
pub(super) type Answer = Option<String>;

/// Its tasks end with it.
pub(crate) struct Scripted {
    port: u16,
    has_tls: bool,
    asked: Arc<Mutex<Vec<String>>>,
    listening: AbortHandle,
    connections: Arc<Mutex<Vec<AbortHandle>>>,
}

impl Scripted {
    /// Starts one on a free loopback port. `answer` gets the words of each command.
    pub(super) async fn start(answer: impl Fn(&[&str]) -> Answer + Send + Sync + 'static) -> Self {
        Self::listen(answer, None).await
    }

    /// The same with TLS.
    pub(super) async fn with_tls(
        answer: impl Fn(&[&str]) -> Answer + Send + Sync + 'static,
    ) -> Self {
        Self::listen(answer, Some(acceptor())).await
    }

    async fn listen(
        answer: impl Fn(&[&str]) -> Answer + Send + Sync + 'static,
        tls: Option<TlsAcceptor>,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (answer, asked) = (Arc::new(answer), Arc::<Mutex<Vec<String>>>::default());
        let connections = Arc::<Mutex<Vec<AbortHandle>>>::default();
        let (log, open, has_tls) = (Arc::clone(&asked), Arc::clone(&connections), tls.is_some());
        let listening = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (answer, log, tls) = (Arc::clone(&answer), Arc::clone(&log), tls.clone());
                let task = tokio::spawn(async move {
                    match tls {
                        None => serve(stream, answer, log).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, answer, log).await;
                            }
                        }
                    }
                });
                open.lock().unwrap().push(task.abort_handle());
            }
        });
        Self { port, has_tls, asked, listening: listening.abort_handle(), connections }
    }

    /// Starts one that keeps locks, whose keys begin with `lock:`, at a time that does not pass.
    pub(crate) async fn with_locks() -> Self {
        let store = Mutex::new(Store::new());
        Self::start(move |words| Some(stored(&mut store.lock().unwrap(), words))).await
    }

    /// Starts one that answers some commands as `other` says, and the others as a server in order does.
    pub(super) async fn but(
        other: impl Fn(&[&str]) -> Option<&'static str> + Send + Sync + 'static,
    ) -> Self {
        Self::start(move |words| Some(other(words).map_or_else(|| calm(words), str::to_owned)))
            .await
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        Endpoint {
            address: Address::Tcp { host: "127.0.0.1".to_owned(), port: self.port },
            tls: self.has_tls.then(trusting),
            login_source: LoginSource::fixed(None, None),
            db: 0,
            client_name: "scripted".to_owned(),
            channels: vec!["holdfast:inbox:a".into()],
            connect_timeout: HANG,
            replicas: None,
        }
    }

    pub(super) const fn port(&self) -> u16 {
        self.port
    }

    /// The commands so far that begin with `word`.
    pub(crate) fn asked(&self, word: &str) -> Vec<String> {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|command| command.starts_with(word)).cloned().collect()
    }

    /// Ends the connections that are open.
    pub(crate) fn hang_up(&self) {
        self.connections.lock().unwrap().drain(..).for_each(|task| task.abort());
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.listening.abort();
        self.hang_up();
    }
}

/// The TLS of a client that trusts anyone.
pub(super) fn trusting() -> Arc<Tls> {
    let nothing = TlsOptions { ca: None, cert: None, key: None, server_name: None, verify: false };
    Arc::new(Tls::new(nothing).unwrap())
}

/// A certificate that signs itself, and its key, which protect nothing.
const CERTIFICATE: &str = include_str!("localhost.pem");

fn acceptor() -> TlsAcceptor {
    let certificate = CertificateDer::from_pem_slice(CERTIFICATE.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(CERTIFICATE.as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key);
    Arc::new(config.unwrap()).into()
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    answer: Arc<impl Fn(&[&str]) -> Answer>,
    asked: Arc<Mutex<Vec<String>>>,
) {
    let mut frames = Frames::new();
    while let Ok(count @ 1..) = stream.read(frames.room()).await {
        frames.fill(count);
        while let Some(command) = frames.next().unwrap() {
            let words: Vec<String> =
                redis::from_redis_value(redis::parse_redis_value(command).unwrap()).unwrap();
            asked.lock().unwrap().push(words.join(" "));
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let Some(answer) = answer(&words) else { return };
            if stream.write_all(answer.as_bytes()).await.is_err() || stream.flush().await.is_err() {
                return;
            }
        }
    }
}

/// A receiver of events, and what hands events to it.
pub(super) fn deliveries() -> (Deliver, UnboundedReceiver<Incoming>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    // At the end of a test nobody listens any more.
    (Arc::new(move |incoming| drop(sender.send(incoming))), receiver)
}

pub(super) async fn next(deliveries: &mut UnboundedReceiver<Incoming>) -> Incoming {
    timeout(HANG, deliveries.recv()).await.expect("it comes").unwrap()
}

pub(super) fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

/// A value of the store, as a server sends it.
fn encoded(value: &Value) -> String {
    match value {
        Value::Int(number) => format!(":{number}\r\n"),
        Value::Okay => "+OK\r\n".to_owned(),
        Value::BulkString(text) => bulk(str::from_utf8(text).unwrap()),
        Value::Array(values) => {
            let (count, values) = (values.len(), values.iter().map(encoded).collect::<String>());
            format!("*{count}\r\n{values}")
        }
        Value::Nil => "_\r\n".to_owned(),
        Value::ServerError(error) => {
            format!("-{} {}\r\n", error.code(), error.details().unwrap_or_default())
        }
        other => panic!("{other:?}"),
    }
}

/// The answer of a server that keeps locks.
fn stored(store: &mut Store, words: &[&str]) -> String {
    let now = ServerTime::from_micros(NOW_S * 1_000_000);
    let parts: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    match words {
        ["SCAN", ..] => {
            let keys: Vec<_> = store.keys().iter().map(|key| bulk(key)).collect();
            format!("*2\r\n{}*{}\r\n{}", bulk("0"), keys.len(), keys.concat())
        }
        ["EVAL", source, count, key, ..] if key.starts_with("lock:") => {
            let (keys, args) = parts[3..].split_at(count.parse().unwrap());
            encoded(&store.eval(now, source, keys, args))
        }
        ["SET" | "MGET", key, ..] if key.starts_with("lock:") => {
            encoded(&store.command(now, &parts))
        }
        ["INCRBY", ..] => encoded(&store.command(now, &parts)),
        _ => calm(words),
    }
}

/// The answer of a primary of Redis 7 to a command of a handshake, or of a server that renews locks by one command. Other
/// commands are unknown to it.
pub(super) fn calm(words: &[&str]) -> String {
    match words {
        ["HELLO", ..] => format!("%1\r\n{}:3\r\n", bulk("proto")),
        ["INFO", ..] => bulk(
            "redis_version:7.4.0\r\nuptime_in_seconds:5\r\nrun_id:run\r\nrole:master\r\n\
             connected_slaves:0\r\nmaster_replid:data\r\nmaxmemory_policy:noeviction\r\n",
        ),
        ["TIME"] => format!("*2\r\n{}{}", bulk(&NOW_S.to_string()), bulk("0")),
        ["AUTH" | "CLIENT" | "SELECT", ..] => "+OK\r\n".to_owned(),
        ["SET", key, _, "IFEQ", ..] if key.starts_with("lock:") => "+OK\r\n".to_owned(),
        ["GET", ..] => "_\r\n".to_owned(),
        ["MGET", ..] => "*1\r\n_\r\n".to_owned(),
        ["EVAL", ..] => format!("*3\r\n{0}{0}{0}", bulk("")),
        ["EVALSHA", ..] => "-NOSCRIPT No matching script\r\n".to_owned(),
        ["PUBLISH", ..] => ":1\r\n".to_owned(),
        ["PUBSUB", _, channel] => format!("*2\r\n{}:1\r\n", bulk(channel)),
        [change @ ("SUBSCRIBE" | "SSUBSCRIBE" | "UNSUBSCRIBE" | "SUNSUBSCRIBE"), channels @ ..] => {
            let kind = bulk(&change.to_ascii_lowercase());
            let confirm = |channel: &&str| format!(">3\r\n{kind}{}:1\r\n", bulk(channel));
            channels.iter().map(confirm).collect::<Vec<_>>().concat()
        }
        [name, ..] => format!("-ERR unknown command '{name}'\r\n"),
        [] => unreachable!("a command has a name"),
    }
}
