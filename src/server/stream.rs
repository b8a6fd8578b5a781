//! A socket to a server, with or without TLS, that can be closed abortively.

use super::{Address, Endpoint, tls};
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio_rustls::client::TlsStream;

/// How long a connection may be silent before the kernel asks whether the peer is still there.
const KEEPALIVE: TcpKeepalive =
    TcpKeepalive::new().with_time(Duration::from_secs(15)).with_interval(Duration::from_secs(5));

pub(super) struct Stream {
    socket: Socket,
    abort: Arc<AtomicBool>,
}

enum Socket {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    #[cfg(unix)]
    Unix(UnixStream),
}

impl Stream {
    /// Opens a socket. When `abort` is set later, dropping the stream discards what the kernel has
    /// not delivered yet, so that no request arrives after its connection was given up.
    pub(super) async fn open(endpoint: &Endpoint, abort: Arc<AtomicBool>) -> io::Result<Self> {
        let socket = match &endpoint.address {
            Address::Tcp { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                stream.set_nodelay(true)?;
                SockRef::from(&stream).set_tcp_keepalive(&KEEPALIVE)?;
                match &endpoint.tls {
                    Some(tls) => Socket::Tls(Box::new(tls.connect(host, stream).await?)),
                    None => Socket::Tcp(stream),
                }
            }
            #[cfg(unix)]
            Address::Unix { path } => Socket::Unix(UnixStream::connect(path).await?),
            #[cfg(not(unix))]
            Address::Unix { .. } => return Err(io::ErrorKind::Unsupported.into()),
            Address::Cluster { .. }
            | Address::Memory { .. }
            | Address::Quorum { .. }
            | Address::Sentinel(_) => {
                return Err(io::ErrorKind::Unsupported.into());
            }
        };
        Ok(Self { socket, abort })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.abort.load(Ordering::Relaxed) {
            return;
        }
        let stream = match &self.socket {
            Socket::Tcp(stream) => stream,
            Socket::Tls(stream) => stream.get_ref().0,
            #[cfg(unix)]
            Socket::Unix(_) => return,
        };
        // If the socket is gone already there is nothing left to discard.
        drop(stream.set_zero_linger());
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.get_mut().socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
            Socket::Tls(stream) => Pin::new(stream).poll_read(cx, buffer).map_err(tls::explained),
            #[cfg(unix)]
            Socket::Unix(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_write(cx, data),
            Socket::Tls(stream) => Pin::new(stream).poll_write(cx, data).map_err(tls::explained),
            #[cfg(unix)]
            Socket::Unix(stream) => Pin::new(stream).poll_write(cx, data),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Socket::Tls(stream) => Pin::new(stream).poll_flush(cx).map_err(tls::explained),
            #[cfg(unix)]
            Socket::Unix(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Socket::Tls(stream) => Pin::new(stream).poll_shutdown(cx).map_err(tls::explained),
            #[cfg(unix)]
            Socket::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
