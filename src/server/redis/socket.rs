//! A socket that never blocks. One thread at a time reads and writes it; another one may wait until it is readable.

use super::stream::Parts;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
#[cfg(all(unix, feature = "node"))]
use std::os::fd::{AsRawFd, RawFd};
#[cfg(unix)]
use std::os::unix::net::UnixStream;
use tokio::io::Interest;

/// An open socket. It stays open until the last reference is dropped, but [`Self::close`] ends its connection at
/// once, so a thread that waits for it can let it go later.
pub(crate) enum Socket {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

impl Socket {
    pub(super) fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        retried(|| match self {
            Self::Tcp(stream) => (&*stream).read(into),
            #[cfg(unix)]
            Self::Unix(stream) => (&*stream).read(into),
        })
    }

    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        retried(|| match self {
            Self::Tcp(stream) => (&*stream).write(bytes),
            #[cfg(unix)]
            Self::Unix(stream) => (&*stream).write(bytes),
        })
    }

    /// Ends the connection, so the socket becomes readable. With `abort` the kernel discards what it has not
    /// delivered yet, so that no request arrives after its connection was given up; where a system cannot do that
    /// while another thread still waits for the socket, it happens when that thread lets the socket go.
    pub(super) fn close(&self, abort: bool) {
        // If the connection is already gone there is nothing to end.
        match self {
            Self::Tcp(stream) => {
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
            Self::Unix(stream) => drop(stream.shutdown(Shutdown::Both)),
        }
    }

    /// The number by which an event loop knows the socket.
    #[cfg(all(unix, feature = "node"))]
    pub(crate) fn descriptor(&self) -> RawFd {
        match self {
            Self::Tcp(stream) => stream.as_raw_fd(),
            Self::Unix(stream) => stream.as_raw_fd(),
        }
    }

    /// The handle by which an event loop knows the socket.
    #[cfg(all(windows, feature = "node"))]
    pub(crate) fn descriptor(&self) -> std::os::windows::io::RawSocket {
        use std::os::windows::io::AsRawSocket;
        let Self::Tcp(stream) = self;
        stream.as_raw_socket()
    }

    /// Calls `read` whenever the socket is readable, until it returns `false`.
    pub(crate) async fn while_readable(&self, mut read: impl FnMut() -> bool) -> io::Result<()> {
        let watched = match self {
            Self::Tcp(stream) => {
                Watched::Tcp(tokio::net::TcpStream::from_std(stream.try_clone()?)?)
            }
            #[cfg(unix)]
            Self::Unix(stream) => {
                Watched::Unix(tokio::net::UnixStream::from_std(stream.try_clone()?)?)
            }
        };
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
        Ok(match parts {
            Parts::Tcp(stream) => Self::Tcp(stream.into_std()?),
            #[cfg(unix)]
            Parts::Unix(stream) => Self::Unix(stream.into_std()?),
        })
    }
}
