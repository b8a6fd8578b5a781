//! One environment (the main thread, a worker, or a second copy of the package).

use super::buffers::Buffers;
use super::completions::{Completions, ManagerCaller};
use super::drainer::Drainer;
use super::event_loop::EventLoop;
use super::logins::{LoginAnswer, Logins};
use super::manager::NativeManager;
use super::options::ManagerOptions;
use super::submitter::Submitter;
use super::texts::OutcomeText;
use crate::core::{Caller, Handle, Reader, Submission, WeakHandle, end_all, survey};
use crate::faults;
use crate::machine::{Command, OpId};
use napi::Env;
use napi::bindgen_prelude::{Float64Array, Function};
use napi_derive::napi;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Delivers the outcomes of all managers of one environment to its JavaScript.
#[napi]
pub struct Bridge {
    drainer: Rc<Drainer>,
    managers: Arc<Managers>,
    logins: Logins,
}

/// The managers of an environment that may be alive.
type Managers = Mutex<Vec<WeakHandle>>;

impl Drop for Bridge {
    fn drop(&mut self) {
        self.drainer.completions.end();
    }
}

#[napi]
impl Bridge {
    /// Calls `wake` when outcomes are ready, at most once until all are drained, or after each turn of the event loop that
    /// leaves some. `reads`: whether this event loop reads the sockets, if it can. `records`: the room for records.
    #[napi(constructor, catch_unwind)]
    pub fn new(
        env: Env,
        wake: Function<'_, (), ()>,
        reads: bool,
        records: Float64Array,
    ) -> napi::Result<Self> {
        faults::at("bridge");
        let event_loop = if reads { EventLoop::new(env, &wake) } else { None };
        let wake = wake.build_threadsafe_function::<()>().weak::<true>().build()?;
        let completions = Arc::new(Completions::new(wake));
        let managers = Arc::<Managers>::default();
        #[cfg(unix)]
        super::process_end::wait_for_managers();
        if event_loop.is_none() || cfg!(windows) {
            // Deno drops no object at the end of an environment, so nothing else would end its managers. Windows lets no
            // addon act at the end of a process while there are other threads, so nothing else would wait for them.
            let at_end = (Arc::clone(&completions), Arc::clone(&managers));
            env.add_env_cleanup_hook(at_end, |(completions, managers)| {
                completions.end();
                end_all(&lock(&managers));
            })?;
        }
        let drainer = Rc::new(Drainer::new(completions, event_loop, records));
        Ok(Self { drainer, managers, logins: Logins::default() })
    }

    /// Ends the managers of this environment, which goes on no more, and waits a moment for their servers.
    #[napi(catch_unwind)]
    pub fn end(&self) {
        faults::at("end");
        end_all(&lock(&self.managers));
    }

    /// A name for a manager that starts now: a UUID v7 without hyphens, which begins with the ms since 1970. The core counts
    /// the numbers of its tokens in µs from here, so each token tells when its lock was asked for.
    #[napi(catch_unwind)]
    pub fn new_client() -> String {
        uuid::Uuid::now_v7().simple().to_string()
    }

    /// The function that hands over records: `drain()`, see `Drainer`.
    #[napi(catch_unwind)]
    pub fn drainer<'env>(&self, env: &'env Env) -> napi::Result<Function<'env, (), u32>> {
        Rc::clone(&self.drainer).function(env)
    }

    /// The text of the outcome of `entry`.
    #[napi(catch_unwind)]
    pub fn take_text(&self, entry: u32) -> Option<OutcomeText> {
        faults::at("text");
        self.drainer.completions.take_text(entry)
    }

    /// The text of the oldest notice that was not taken yet.
    #[napi(catch_unwind)]
    pub fn take_notice(&self) -> Option<String> {
        faults::at("notice");
        self.drainer.completions.take_notice()
    }

    /// Starts the manager that records call `manager`. The outcome of `entry` says whether it could connect.
    /// Throws an `InvalidArg` if an option cannot be used, and a `Cancelled` if this process lacks what it needs.
    #[napi(catch_unwind)]
    pub fn connect(
        &self,
        entry: u32,
        manager: u32,
        options: ManagerOptions,
        buffers: Buffers,
    ) -> napi::Result<NativeManager> {
        faults::at("connect");
        let completions = Arc::clone(&self.drainer.completions);
        let caller: Arc<dyn Caller> = Arc::new(ManagerCaller { completions, manager });
        let (config, endpoint) = options.split(&self.logins)?;
        let reader =
            if self.drainer.event_loop.is_some() { Reader::EventLoop } else { Reader::Keeper };
        let handle = Handle::start(config, endpoint, Arc::clone(&caller), reader);
        let handle = handle.map_err(|error| no_keeper(&error))?;
        let mut managers = lock(&self.managers);
        managers.retain(WeakHandle::is_alive);
        managers.push(handle.downgrade());
        drop(managers);
        // Last: a caller that gets an error expects no outcome.
        if handle.submit(&mut vec![Submission::Begin(OpId(entry), Command::Open)]) {
            caller.wake();
        }
        let completions = Arc::clone(&self.drainer.completions);
        Ok(NativeManager::new(Rc::new(Submitter::new(handle, caller, completions, buffers))))
    }

    /// Gives the login `number` of a manager, which was asked for or has changed. Returns whether the manager goes on.
    #[napi(catch_unwind)]
    pub fn answer_login(&self, number: u32, answer: LoginAnswer) -> bool {
        faults::at("login");
        self.logins.answer(number, answer)
    }

    /// Asks every server of an address the questions, each a command, without a manager. Throws as `connect` does.
    #[napi(catch_unwind)]
    pub fn survey(
        &self,
        entry: u32,
        options: ManagerOptions,
        questions: Vec<Vec<String>>,
    ) -> napi::Result<()> {
        faults::at("survey");
        let completions = Arc::clone(&self.drainer.completions);
        // A survey has neither losses nor notices, so this number names no manager.
        let caller: Arc<dyn Caller> = Arc::new(ManagerCaller { completions, manager: u32::MAX });
        let (_, endpoint) = options.split(&self.logins)?;
        survey(endpoint, questions, OpId(entry), caller).map_err(|error| no_keeper(&error))
    }
}

fn no_keeper(error: &io::Error) -> napi::Error {
    napi::Error::new(napi::Status::Cancelled, error.to_string())
}

/// A panic is handled where it is caught, so poison is ignored.
fn lock(managers: &Managers) -> MutexGuard<'_, Vec<WeakHandle>> {
    managers.lock().unwrap_or_else(PoisonError::into_inner)
}
