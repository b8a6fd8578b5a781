//! A manager behind its mutex, and the turns on it, by whichever thread is awake.

use super::inputs::Mail;
use super::shared::{Shared, lock};
use super::state::{State, Thread};
use super::ticket::{Caller, in_any_case};
use super::watch::{ReadSocket, Readable};
use crate::machine::NodeId;
use crate::protocol::Mono;
use crate::server::{Clock, Socket};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

/// The keeper takes the reading over if the event loop has not turned for this long.
const SILENT_AFTER: Duration = Duration::from_millis(10);

/// The state of a manager, and the turns that work on it.
pub(super) struct Core {
    /// None once the manager has ended.
    pub(super) state: Mutex<Option<State>>,
    /// That of its store, or of the machine.
    pub(super) clock: Arc<Clock>,
    pub(super) mail: Arc<Mail>,
    pub(super) shared: Arc<Shared>,
    pub(super) caller: Arc<dyn Caller>,
    /// The last turn that was not the keeper's, in µs of the monotonic clock.
    pub(super) turned: AtomicU64,
    /// Whether [`super::end_all`] has waited for its end.
    pub(super) awaited: AtomicBool,
}

/// The outcome of the keeper's turn.
pub(super) enum Kept {
    /// Another thread runs a turn just now.
    Busy,
    /// The manager has ended.
    Ended,
    /// When the keeper is needed next; none if it is woken before.
    Until(Option<Mono>),
}

/// The outcome of a turn.
#[derive(Default)]
pub(super) struct Turned {
    /// Whether the caller has something to read.
    pub(super) reported: bool,
    /// Whether the manager has ended.
    pub(super) ended: bool,
    /// When the keeper is needed next.
    due: Option<Mono>,
}

impl Core {
    /// The keeper's turn.
    pub(super) fn keep(&self) -> Kept {
        // The system may pause a thread that has the mutex. The other managers must not wait for that.
        let guard = match self.state.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Kept::Busy,
        };
        let turned = Mono::from_micros(self.turned.load(Ordering::Relaxed));
        let turn = self.turn_locked(guard, Thread::Keeper, |state, now| {
            state.keep(now, now.since(turned) >= SILENT_AFTER);
        });
        if turn.reported {
            self.wake();
        }
        if turn.ended { Kept::Ended } else { Kept::Until(turn.due) }
    }

    /// Wakes the caller, also if that panics once: its outcomes must not stay unread.
    pub(super) fn wake(&self) {
        in_any_case(|| self.caller.wake());
    }

    /// Runs a turn for the caller, who waits for the keeper's to end.
    pub(super) fn turn(&self, run: impl FnOnce(&mut State, Mono)) -> Turned {
        self.turn_locked(lock(&self.state), Thread::Caller, run)
    }

    /// Runs a turn. A panic in it ends the manager: its operations get outcomes, and its leases are lost.
    fn turn_locked(
        &self,
        mut guard: MutexGuard<'_, Option<State>>,
        thread: Thread,
        run: impl FnOnce(&mut State, Mono),
    ) -> Turned {
        let Some(state) = guard.as_mut() else {
            return Turned { ended: true, ..Turned::default() };
        };
        let now = self.clock.now();
        if thread == Thread::Caller {
            self.turned.store(now.as_micros(), Ordering::Relaxed);
        }
        let result = catch_unwind(AssertUnwindSafe(|| {
            run(state, now);
            state.finish_turn(now, thread)
        }));
        match result {
            Ok(due) if !state.has_stopped() => {
                Turned { reported: state.take_reported(), ended: false, due }
            }
            _ => {
                let ended = guard.take();
                drop(guard);
                drop(ended);
                self.mail.end();
                Turned { reported: true, ended: true, due: None }
            }
        }
    }
}

impl ReadSocket for Core {
    fn read(&self, node: NodeId, socket: &Arc<Socket>, waits: bool) -> Readable {
        let turned = self.turn(|state, now| state.read(now, node, socket, waits));
        // The end of the turn may have ended the connection.
        Readable { reported: turned.reported, over: socket.is_over() }
    }

    fn wake(&self) {
        Self::wake(self);
    }
}
