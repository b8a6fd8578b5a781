//! A manager, for those who use it.

use super::inputs::{Mail, Submission};
use super::keeping::keep;
use super::moving;
use super::shared::{Shared, lock};
use super::state::State;
use super::ticket::{Caller, Ticket};
use super::turns::Core;
use super::watch::{ReadSocket, Reader};
use crate::keeper;
use crate::machine::Config;
use crate::protocol::{Mono, ServerTime};
use crate::server::Endpoint;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::Duration;

/// How often [`end_all`] looks for the answers of the servers, and how long it sleeps in between.
const END_TURNS: u32 = 100;
const END_PAUSE: Duration = Duration::from_millis(1);

/// The managers that end without a handle, until they have ended.
static ENDING: Mutex<Vec<WeakHandle>> = Mutex::new(Vec::new());

/// A manager's handle to its core. Dropping it releases the held locks as far as possible and ends the core.
pub struct Handle(Arc<Core>);

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
            let reads: Weak<dyn ReadSocket> = Weak::<Core>::clone(core);
            let ends = (Arc::clone(&caller), Arc::clone(&shared), Arc::clone(&mail));
            let read_by = (reader, runtime.clone(), Arc::clone(&clock));
            let state = State::new((config, endpoint), read_by, reads, ends);
            let (turned, awaited) = (AtomicU64::new(0), AtomicBool::new(false));
            Core { state: Mutex::new(Some(state)), clock, mail, shared, caller, turned, awaited }
        });
        if is_movable {
            moving::register(&core);
        }
        runtime.spawn(keep(Arc::clone(&core)));
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

    /// The time on the clock of the server of the lock `name`, give or take a round trip; none if it is unknown.
    #[must_use]
    pub fn server_time(&self, name: impl AsRef<str>) -> Option<ServerTime> {
        lock(&self.0.state).as_ref()?.server_time(self.now(), name.as_ref())
    }

    /// The time on the clock of the manager.
    #[must_use]
    pub fn now(&self) -> Mono {
        self.0.clock.now()
    }

    /// Moves the clock of the store towards `until`, and stops as soon as `is_reported` says that there is something to
    /// read. Returns whether it must be called again.
    #[must_use]
    pub fn advance(&self, until: Mono, is_reported: impl Fn() -> bool) -> bool {
        moving::advance(&self.0.clock, until, is_reported)
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
