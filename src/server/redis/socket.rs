//! A socket that never blocks. One thread at a time reads and writes it; another one may wait until it is readable.

use super::stream::Parts;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
#[cfg(all(unix, feature = "node"))]
use std::os::fd::{AsRawFd, RawFd};
#[cfg(unix)]
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::io::Interest;

/// An open socket, which two refer to:
///
/// - Its link owns it: it alone reads and writes, and it ends the connection.
/// - Its waiter, a poll handle of an event loop or a task of the keeper, keeps it open for as long as a system waits for
///   it. Whenever the wait is over, the waiter asks [`Self::is_over`], and if so lets go. It always learns of the end: what
///   makes a socket over also makes it readable, or is what the waiter has just read.
pub(crate) struct Socket {
    stream: Stream,
    over: AtomicBool,
}

enum Stream {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

impl Socket {
    pub(super) fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        retried(|| match &self.stream {
            Stream::Tcp(stream) => (&*stream).read(into),
            #[cfg(unix)]
            Stream::Unix(stream) => (&*stream).read(into),
        })
    }

    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        retried(|| match &self.stream {
            Stream::Tcp(stream) => (&*stream).write(bytes),
            #[cfg(unix)]
            Stream::Unix(stream) => (&*stream).write(bytes),
        })
    }

    /// Whether it has no reader any more, so no event loop needs to wait for it.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Its end was read.
    pub(super) fn set_over(&self) {
        self.over.store(true, Ordering::Release);
    }

    /// Ends the connection, so the socket becomes readable. With `abort` the kernel discards what it has not
    /// delivered yet, so that no request arrives after its connection was given up; where a system cannot do that
    /// while another thread still waits for the socket, it happens when that thread lets the socket go.
    pub(super) fn close(&self, abort: bool) {
        // First: whoever waits is woken by the rest.
        self.set_over();
        // If the connection is already gone there is nothing to end.
        match &self.stream {
            Stream::Tcp(stream) => {
                if abort {
                    drop(
                        socket2::SockRef::from(stream).set_linger(Some(std::time::Duration::ZERO)),
                    );
                    #[cfg(target_os = "linux")]
                    let _ended = rustix::net::connect_unspec(stream);
                }
                drop(stream.shutdown(Shutdown::Both));
            }
            #[cfg(unix)]
            Stream::Unix(stream) => drop(stream.shutdown(Shutdown::Both)),
        }
    }

    /// The number by which an event loop knows the socket.
    #[cfg(all(unix, feature = "node"))]
    pub(crate) fn descriptor(&self) -> RawFd {
        match &self.stream {
            Stream::Tcp(stream) => stream.as_raw_fd(),
            Stream::Unix(stream) => stream.as_raw_fd(),
        }
    }

    /// The handle by which an event loop knows the socket.
    #[cfg(all(windows, feature = "node"))]
    pub(crate) fn descriptor(&self) -> std::os::windows::io::RawSocket {
        use std::os::windows::io::AsRawSocket;
        let Stream::Tcp(stream) = &self.stream;
        stream.as_raw_socket()
    }

    /// Calls `read` at once and whenever the socket is readable, until it returns `false`. Fails before the first call if
    /// no event loop can wait for the socket.
    pub(crate) async fn while_readable(&self, mut read: impl FnMut() -> bool) -> io::Result<()> {
        let watched = match &self.stream {
            Stream::Tcp(stream) => {
                Watched::Tcp(tokio::net::TcpStream::from_std(stream.try_clone()?)?)
            }
            #[cfg(unix)]
            Stream::Unix(stream) => {
                Watched::Unix(tokio::net::UnixStream::from_std(stream.try_clone()?)?)
            }
        };
        if !read() {
            return Ok(());
        }
        loop {
            watched.readable().await?;
            let mut wanted = true;
            // The answer tells tokio that the socket was read until nothing was left.
            let drained = watched.try_io(|| {
                wanted = read();
                Err(io::ErrorKind::WouldBlock.into())
            });
            debug_assert!(drained.is_err(), "it always waits for the next bytes");
            if !wanted {
                return Ok(());
            }
        }
    }
}

/// The socket, as the runtime waits for it.
enum Watched {
    Tcp(tokio::net::TcpStream),
    #[cfg(unix)]
    Unix(tokio::net::UnixStream),
}

impl Watched {
    async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.readable().await,
            #[cfg(unix)]
            Self::Unix(stream) => stream.readable().await,
        }
    }

    fn try_io(&self, read: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.try_io(Interest::READABLE, read),
            #[cfg(unix)]
            Self::Unix(stream) => stream.try_io(Interest::READABLE, read),
        }
    }
}

fn retried(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

impl TryFrom<Parts> for Socket {
    type Error = io::Error;

    fn try_from(parts: Parts) -> io::Result<Self> {
        let stream = match parts {
            Parts::Tcp(stream) => Stream::Tcp(stream.into_std()?),
            #[cfg(unix)]
            Parts::Unix(stream) => Stream::Unix(stream.into_std()?),
        };
        Ok(Self { stream, over: AtomicBool::new(false) })
    }
}
