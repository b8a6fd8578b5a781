//! The core of a manager: the machine, its connections and the outcomes, behind one mutex. It has no thread of its
//! own: whoever is awake runs a turn.
//!
//! ```text
//!   JavaScript ─ submit ──▶ ┌ Core ──────────────────────────────────┐
//!   event loop ─ readable ▶ │ machine · a link to each server        │ ◀─ keep ─ keeper (timeouts, new connections;
//!                           └ caller: outcomes, losses, notices ─────┘            reads while nobody else does)
//! ```
//!
//! A turn feeds commands, replies and timeouts to the machine, carries out its effects and writes. It never blocks,
//! and it makes no decisions.

mod alarm;
mod attempts;
#[cfg(all(unix, any(test, fuzzing)))]
#[expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a fuzzer learns so that a promise is broken"
)]
#[path = "../fuzzing/conversation.rs"]
pub(crate) mod fuzz;
mod moving;
mod queries;
mod shared;
mod state;
#[cfg(test)]
mod tests;
mod ticket;

pub use shared::Shared;
pub use ticket::{Caller, Ticket};

use self::state::State;
use self::ticket::in_any_case;
use crate::keeper;
use crate::machine::{Command, Config, NodeId, OpId};
use crate::protocol::query::Question;
use crate::protocol::{Mono, ServerTime};
use crate::server::{Clock, Endpoint, Socket};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::thread;
use std::time::Duration;
use tokio::sync::Notify;

/// The keeper takes the reading over if the event loop has not turned for this long.
const SILENT_AFTER: Duration = Duration::from_millis(10);

/// How often [`end_all`] looks for the answers of the servers, and how long it sleeps in between.
const END_TURNS: u32 = 100;
const END_PAUSE: Duration = Duration::from_millis(1);

/// The managers that end without a handle, until they have ended.
static ENDING: Mutex<Vec<WeakHandle>> = Mutex::new(Vec::new());

/// The reader of a manager's sockets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reader {
    /// The event loop of the caller, see [`Caller::watch`]. While it does not turn, the keeper reads.
    EventLoop,
    /// The keeper alone.
    Keeper,
}

/// A manager's handle to its core. Dropping it releases the held locks as far as possible and ends the core.
pub struct Handle(Arc<Core>);

/// Input from a caller.
pub enum Submission {
    /// Starts an operation, which the core always completes.
    Begin(OpId, Command),
    /// Queries holders and waiters.
    Query(Ticket, Question),
    /// Ends an acquire, if it is still open. The outcome is that acquire's.
    Cancel(OpId),
}

impl Handle {
    /// Starts a manager.
    ///
    /// # Errors
    /// If the keeper, the thread that all managers of the process share, cannot be started.
    pub fn start(
        config: Config,
        endpoint: Endpoint,
        caller: Arc<dyn Caller>,
        reader: Reader,
    ) -> io::Result<Self> {
        let runtime = keeper::runtime()?;
        let mail = Arc::new(Mail::new());
        let shared = Arc::new(Shared::default());
        let (clock, is_movable) = (endpoint.address.clock(), endpoint.address.is_movable());
        let core = Arc::new_cyclic(|core| {
            let ends = (Arc::clone(&caller), Arc::clone(&shared), Arc::clone(&mail));
            let read_by = (reader, runtime.clone(), Arc::clone(&clock));
            let state = State::new((config, endpoint), read_by, Weak::clone(core), ends);
            let (turned, awaited) = (AtomicU64::new(0), AtomicBool::new(false));
            Core { state: Mutex::new(Some(state)), clock, mail, shared, caller, turned, awaited }
        });
        if is_movable {
            moving::register(&core);
        }
        runtime.spawn(keeper::keep(Arc::clone(&core)));
        Ok(Self(core))
    }

    /// Takes all operations. Their requests are written before this returns. Returns whether there is something for the
    /// caller to read that nothing else announces.
    #[must_use]
    pub fn submit(&self, submissions: &mut Vec<Submission>) -> bool {
        let turned = self.0.turn(|state, now| state.begin(now, submissions));
        for submission in submissions.drain(..) {
            // A manager that has ended takes none.
            if let Submission::Begin(op, _) = submission {
                drop(Ticket::new(op, Arc::clone(&self.0.caller)));
            }
        }
        turned.reported
    }

    /// Does at once what the event loop and the keeper would do later. Returns the same as [`Self::submit`].
    #[must_use]
    pub fn turn(&self) -> bool {
        self.0.turn(State::read_all).reported
    }

    /// What the clock of the server of the lock `name` shows, give or take a round trip; none if it is unknown.
    #[must_use]
    pub fn server_time(&self, name: impl AsRef<str>) -> Option<ServerTime> {
        lock(&self.0.state).as_ref()?.server_time(self.now(), name.as_ref())
    }

    /// A reference for [`end_all`].
    #[must_use]
    pub fn downgrade(&self) -> WeakHandle {
        WeakHandle(Arc::downgrade(&self.0))
    }

    /// The state that any thread may read at any time.
    #[must_use]
    pub fn shared(&self) -> &Shared {
        &self.0.shared
    }
}

/// A reference to a manager that does not keep it.
#[derive(Clone)]
pub struct WeakHandle(Weak<Core>);

impl WeakHandle {
    /// Whether the manager may still be in use.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.0.strong_count() > 0
    }
}

/// Releases what these managers hold, as far as possible, ends them, and waits a moment for their servers, once for each
/// manager. To be called where nothing else may run afterwards.
pub fn end_all(managers: &[WeakHandle]) {
    let cores: Vec<_> = managers.iter().filter_map(|WeakHandle(core)| core.upgrade()).collect();
    let end = |core: &Arc<Core>| core.turn(State::close).ended;
    let mut open: Vec<_> = cores.iter().filter(|core| !end(core)).collect();
    open.retain(|core| !core.awaited.swap(true, Ordering::Relaxed));
    for _ in 0..END_TURNS {
        open.retain(|core| !core.turn(State::read_all).ended);
        if open.is_empty() {
            return;
        }
        thread::sleep(END_PAUSE);
    }
}

/// Waits a moment for the managers whose handles were dropped, those of every environment. To be called at the end of
/// the process: while it goes on, the keeper does the rest.
pub fn await_ending() {
    let ending = std::mem::take(&mut *lock(&ENDING));
    end_all(&ending);
}

impl Drop for Handle {
    fn drop(&mut self) {
        let turned = self.0.turn(State::close);
        if turned.reported {
            self.0.wake();
        }
        if !turned.ended {
            let mut ending = lock(&ENDING);
            ending.retain(WeakHandle::is_alive);
            ending.push(self.downgrade());
        }
    }
}

/// A socket of a manager, for the event loop that waits for it.
#[cfg_attr(
    not(feature = "node"),
    expect(dead_code, reason = "only Node has an event loop that waits")
)]
pub struct Watch {
    core: Arc<Core>,
    node: NodeId,
    /// Weak: an event loop that does not turn keeps no socket open that has ended meanwhile.
    socket: Weak<Socket>,
}

/// The outcome of [`Watch::readable`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[cfg(feature = "node")]
pub(crate) struct Readable {
    /// Whether there is something for the caller to read that nothing else announces.
    pub(crate) reported: bool,
    /// Whether the connection is over, so nothing needs to wait for its socket.
    pub(crate) over: bool,
}

impl Watch {
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
        let turned = self.core.turn(|state, now| state.read(now, self.node, socket, waits));
        // The end of the turn may have ended the connection.
        Readable { reported: turned.reported, over: socket.is_over() }
    }
}

/// Input from the tasks of the keeper and from other managers, until the next turn.
pub(crate) struct Mail {
    /// None once the manager has ended.
    inputs: Mutex<Option<Vec<state::Input>>>,
    /// Wakes the keeper.
    wake: Notify,
}

impl Mail {
    fn new() -> Self {
        Self { inputs: Mutex::new(Some(Vec::new())), wake: Notify::new() }
    }

    /// After the end of the manager it has no taker, and a connection in it closes at once.
    fn put(&self, input: state::Input) {
        if let Some(inputs) = &mut *lock(&self.inputs) {
            inputs.push(input);
        }
        self.wake.notify_one();
    }

    fn take(&self) -> Vec<state::Input> {
        lock(&self.inputs).as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The manager has ended.
    fn end(&self) {
        let rest = lock(&self.inputs).take();
        drop(rest);
        self.wake.notify_one();
    }

    pub(crate) async fn arrived(&self) {
        self.wake.notified().await;
    }
}

/// See the module.
pub(crate) struct Core {
    /// None once the manager has ended.
    state: Mutex<Option<State>>,
    /// That of its store, or of the machine.
    pub(crate) clock: Arc<Clock>,
    pub(crate) mail: Arc<Mail>,
    shared: Arc<Shared>,
    caller: Arc<dyn Caller>,
    /// The last turn that was not the keeper's, in µs of the monotonic clock.
    turned: AtomicU64,
    /// Whether [`end_all`] has waited for its end.
    awaited: AtomicBool,
}

/// The thread that runs a turn.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Thread {
    Caller,
    Keeper,
}

/// The outcome of the keeper's turn.
pub(crate) enum Kept {
    /// Another thread runs a turn just now.
    Busy,
    /// The manager has ended.
    Ended,
    /// When the keeper is needed next; none if it is woken before.
    Until(Option<Mono>),
}

#[derive(Default)]
struct Turned {
    /// Whether the caller has something to read.
    reported: bool,
    /// Whether the manager has ended.
    ended: bool,
    /// When the keeper is needed next.
    due: Option<Mono>,
}

impl Core {
    /// The keeper's turn.
    pub(crate) fn keep(&self) -> Kept {
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

    /// Reads for a socket that the keeper waits for. Returns whether it must go on waiting.
    pub(crate) fn read(&self, node: NodeId, socket: &Arc<Socket>) -> bool {
        // The task that sleeps until the next timeout is another one, so it is woken as by a caller.
        let turn = self.turn(|state, now| state.read(now, node, socket, true));
        if turn.reported {
            self.wake();
        }
        !socket.is_over()
    }

    /// Wakes the caller, also if that panics once: its outcomes must not stay unread.
    fn wake(&self) {
        in_any_case(|| self.caller.wake());
    }

    /// Runs a turn for the caller, who waits for the keeper's to end.
    fn turn(&self, run: impl FnOnce(&mut State, Mono)) -> Turned {
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

/// A panic is handled where it is caught, so poison is ignored.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
