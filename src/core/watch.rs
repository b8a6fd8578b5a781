//! The sockets of a manager, and what waits for them.

use crate::machine::NodeId;
use crate::server::Socket;
use std::sync::{Arc, Weak};

/// The reader of a manager's sockets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reader {
    /// The event loop of the caller, see [`super::Caller::watch`]. While it does not turn, the keeper reads.
    EventLoop,
    /// The keeper alone.
    Keeper,
}

/// The reader of a socket that is readable: the core.
pub(super) trait ReadSocket: Send + Sync {
    /// Reads what is there. `waits`: whether the reader waits for the socket from here on. If not, the keeper looks after it.
    fn read(&self, node: NodeId, socket: &Arc<Socket>, waits: bool) -> Readable;
    /// Wakes the caller.
    fn wake(&self);
}

/// A socket of a manager, for the event loop that waits for it.
#[cfg_attr(
    not(feature = "node"),
    expect(dead_code, reason = "only Node has an event loop that waits")
)]
pub struct Watch {
    core: Arc<dyn ReadSocket>,
    node: NodeId,
    /// Weak: an event loop that does not turn keeps no socket open that has ended meanwhile.
    socket: Weak<Socket>,
}

/// The outcome of [`Watch::readable`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Readable {
    /// Whether there is something for the caller to read that nothing else announces.
    pub(crate) reported: bool,
    /// Whether the connection is over, so nothing needs to wait for its socket.
    pub(crate) over: bool,
}

impl Watch {
    pub(super) fn new(core: Arc<dyn ReadSocket>, node: NodeId, socket: &Arc<Socket>) -> Self {
        Self { core, node, socket: Arc::downgrade(socket) }
    }

    /// The socket to wait for; none if it is closed already.
    #[must_use]
    #[cfg(feature = "node")]
    pub(crate) fn socket(&self) -> Option<Arc<Socket>> {
        self.socket.upgrade()
    }

    /// Reads what is there. `waits`: whether the event loop waits for the socket from here on. If not, the keeper reads.
    #[must_use]
    #[cfg(feature = "node")]
    pub(crate) fn readable(&self, socket: &Arc<Socket>, waits: bool) -> Readable {
        self.core.read(self.node, socket, waits)
    }
}

/// Reads the socket of `node` for the keeper, whenever it is readable, until its connection is over.
pub(super) async fn read_by_keeper(core: Weak<dyn ReadSocket>, node: NodeId, socket: Arc<Socket>) {
    // The task that sleeps until the next timeout is another one, so it is woken as by a caller.
    let read = || {
        let Some(core) = core.upgrade() else { return false };
        let Readable { reported, over } = core.read(node, &socket, true);
        if reported {
            core.wake();
        }
        !over
    };
    // A runtime that cannot wait for the socket leaves it to the keeper's looks.
    drop(socket.while_readable(read).await);
}
