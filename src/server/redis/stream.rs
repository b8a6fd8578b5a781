//! Opens a connection to a server, with or without TLS.

use super::descriptors::explained_for_name;
use super::{Tls, race, tls};
use crate::server::{Address, Endpoint};
use socket2::{SockRef, TcpKeepalive};
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::{client::TlsStream, rustls::ClientConnection};

/// The idle time after which the kernel checks whether the peer is still there.
const KEEPALIVE: TcpKeepalive =
    TcpKeepalive::new().with_time(Duration::from_secs(15)).with_interval(Duration::from_secs(5));

/// If an address has not answered within this time, the next one is tried as well.
const NEXT_AFTER: Duration = Duration::from_millis(250);

/// A handshake without an answer for this long may be with a server that has no TLS.
const SILENCE: Duration = Duration::from_millis(500);

/// An open connection, as the runtime reads and writes it.
pub(super) enum Stream {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    #[cfg(unix)]
    Unix(UnixStream),
}

impl Stream {
    /// Speaks on `socket`, with the server of `endpoint`, with `tls` if it is TCP.
    pub(super) async fn over(
        socket: Parts,
        endpoint: &Endpoint,
        tls: Option<&Tls>,
    ) -> io::Result<Self> {
        Ok(match (socket, tls, &endpoint.address) {
            (Parts::Tcp(stream), Some(tls), Address::Tcp { host, .. }) => {
                Self::Tls(Box::new(shake_hands(tls, host, stream).await?))
            }
            (Parts::Tcp(stream), ..) => Self::Tcp(stream),
            #[cfg(unix)]
            (Parts::Unix(stream), ..) => Self::Unix(stream),
        })
    }

    /// The socket, and the state of its TLS.
    pub(super) fn into_parts(self) -> (Parts, Option<Box<ClientConnection>>) {
        match self {
            Self::Tcp(stream) => (Parts::Tcp(stream), None),
            Self::Tls(stream) => {
                let (stream, tls) = stream.into_inner();
                (Parts::Tcp(stream), Some(Box::new(tls)))
            }
            #[cfg(unix)]
            Self::Unix(stream) => (Parts::Unix(stream), None),
        }
    }
}

/// The socket of a [`Stream`], without its TLS.
pub(super) enum Parts {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

impl Parts {
    /// Connects to the server of `endpoint`.
    pub(super) async fn open(endpoint: &Endpoint) -> io::Result<Self> {
        Ok(match &endpoint.address {
            Address::Tcp { host, port } => {
                let addresses = lookup_host((host.as_str(), *port)).await;
                let stream = first_of(addresses.map_err(explained_for_name)?).await?;
                stream.set_nodelay(true)?;
                SockRef::from(&stream).set_tcp_keepalive(&KEEPALIVE)?;
                Self::Tcp(stream)
            }
            #[cfg(unix)]
            Address::Unix { path } => Self::Unix(UnixStream::connect(path).await?),
            #[cfg(not(unix))]
            Address::Unix { .. } => return Err(io::ErrorKind::Unsupported.into()),
            Address::Cluster { .. }
            | Address::Memory { .. }
            | Address::Quorum { .. }
            | Address::Sentinel(_) => {
                return Err(io::ErrorKind::Unsupported.into());
            }
        })
    }
}

/// Shakes hands for TLS. A server without TLS reads the handshake as the beginning of a line, and waits for its end, so
/// one that is silent is asked without TLS as well.
async fn shake_hands(tls: &Tls, host: &str, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
    let peer = stream.peer_addr()?;
    let mut handshake = pin!(tls.connect(host, stream));
    if let Ok(shaken) = timeout(SILENCE, &mut handshake).await {
        return shaken;
    }
    tokio::select! {
        shaken = &mut handshake => shaken,
        why = plain_answer(peer) => Err(why),
    }
}

/// Ends when the server at `peer` answers a command without TLS, with the error for that.
async fn plain_answer(peer: SocketAddr) -> io::Error {
    let mut answer = [0; 4];
    match ask_plainly(peer, &mut answer).await {
        Ok(_) if matches!(&answer, [b'+' | b'-', ..] | b"HTTP") => tls::not_spoken(),
        // Nothing follows from that, so the handshake goes on.
        _ => pending().await,
    }
}

async fn ask_plainly(peer: SocketAddr, answer: &mut [u8]) -> io::Result<usize> {
    let mut stream = TcpStream::connect(peer).await?;
    stream.write_all(b"PING\r\n").await?;
    stream.read_exact(answer).await
}

/// Connects to the first address that answers.
async fn first_of(addresses: impl Iterator<Item = SocketAddr>) -> io::Result<TcpStream> {
    let attempts = addresses.map(TcpStream::connect);
    let connected = race::first_of(attempts, NEXT_AFTER, |connected| connected).await;
    connected.map_err(|mut failures| {
        let nowhere = || io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        failures.pop().unwrap_or_else(nowhere)
    })
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer).map_err(tls::explained),
            #[cfg(unix)]
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, data),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, data).map_err(tls::explained),
            #[cfg(unix)]
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, data),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx).map_err(tls::explained),
            #[cfg(unix)]
            Self::Unix(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx).map_err(tls::explained),
            #[cfg(unix)]
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::clock::Mono;
    use std::net::{Ipv4Addr, TcpListener};
    #[cfg(target_os = "linux")]
    use tokio::net::TcpSocket;

    fn loopback() -> SocketAddr {
        (Ipv4Addr::LOCALHOST, 0).into()
    }

    /// An address that never answers, while the sockets are kept: its backlog is full.
    #[cfg(target_os = "linux")]
    async fn silent() -> (SocketAddr, Vec<TcpStream>, tokio::net::TcpListener) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(loopback()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        let mut queue = Vec::new();
        while let Ok(waits) = timeout(NEXT_AFTER, TcpStream::connect(address)).await {
            queue.push(waits.unwrap());
        }
        (address, queue, listener)
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn an_address_that_is_silent_does_not_hide_the_next_one() {
        let (silent, _queue, _silence) = silent().await;
        let server = TcpListener::bind(loopback()).unwrap();
        let address = server.local_addr().unwrap();
        // The kernel gives up after two minutes.
        let connecting = first_of([silent, silent, address].into_iter());
        let stream = timeout(Duration::from_secs(20), connecting).await.unwrap().unwrap();
        assert_eq!(stream.peer_addr().unwrap(), address);
    }

    #[tokio::test]
    async fn an_address_that_refuses_is_not_waited_for() {
        let closed = TcpListener::bind(loopback()).unwrap().local_addr().unwrap();
        let server = TcpListener::bind(loopback()).unwrap();
        let address = server.local_addr().unwrap();
        let began = Mono::now();
        let addresses = std::iter::repeat_n(closed, 100).chain([address]);
        let stream = first_of(addresses).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), address);
        let took = Mono::now().since(began);
        assert!(took < NEXT_AFTER * 50, "{took:?}");
    }

    #[tokio::test]
    async fn a_connection_to_no_reachable_address_fails_with_the_reason() {
        let closed = TcpListener::bind(loopback()).unwrap().local_addr().unwrap();
        let error = first_of([closed, closed].into_iter()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        assert!(first_of(std::iter::empty()).await.is_err(), "no address is no connection");
    }
}
