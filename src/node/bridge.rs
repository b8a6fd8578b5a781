//! One environment (the main thread, a worker, or a second copy of the package).

#![expect(unsafe_code, reason = "napi offers no other way to write into a typed array")]

use super::completions::{Completions, ManagerCaller};
use super::manager::NativeManager;
use super::options::ManagerOptions;
use super::texts::OutcomeText;
use crate::driver::{self, Caller, Handle, Ticket};
use crate::faults;
use crate::machine::{Command, OpId};
use napi::bindgen_prelude::{Float64ArraySlice, Function};
use napi_derive::napi;
use std::sync::Arc;

/// Delivers the outcomes of all managers of one environment to its JavaScript.
#[napi]
pub struct Bridge {
    completions: Arc<Completions>,
}

#[napi]
impl Bridge {
    /// Calls `wake` when outcomes are ready, at most once until `drain` returns 0.
    #[napi(constructor, catch_unwind)]
    pub fn new(wake: Function<'_, (), ()>) -> napi::Result<Self> {
        faults::at("bridge");
        let wake = wake.build_threadsafe_function::<()>().weak::<true>().build()?;
        Ok(Self { completions: Arc::new(Completions::new(wake)) })
    }

    /// Moves records into `into` and returns their number. 0 means that there are none and that the next
    /// record wakes again.
    #[napi(catch_unwind)]
    pub fn drain(&self, mut into: Float64ArraySlice<'_>) -> u32 {
        faults::at("drain");
        // SAFETY: the array is a private buffer of our own TypeScript, which waits for this call
        // on the only thread that can reach it; nothing else reads or writes it meanwhile.
        let into = unsafe { into.as_mut() };
        u32::try_from(self.completions.drain(into)).unwrap_or(0)
    }

    /// The text of the outcome in `slot`.
    #[napi(catch_unwind)]
    pub fn take_text(&self, slot: u32) -> Option<OutcomeText> {
        faults::at("text");
        self.completions.take_text(slot)
    }

    /// The text of the oldest notice that was not taken yet.
    #[napi(catch_unwind)]
    pub fn take_notice(&self) -> Option<String> {
        faults::at("notice");
        self.completions.take_notice()
    }

    /// Starts the manager that records call `manager`. The outcome in `slot` says whether it could connect.
    /// Throws an `InvalidArg` if an option cannot be used.
    #[napi(catch_unwind)]
    pub fn connect(
        &self,
        slot: u32,
        manager: u32,
        options: ManagerOptions,
    ) -> napi::Result<NativeManager> {
        faults::at("connect");
        let completions = Arc::clone(&self.completions);
        let caller: Arc<dyn Caller> = Arc::new(ManagerCaller { completions, manager });
        let (config, endpoint) = options.split()?;
        let handle = Handle::start(config, endpoint, Arc::clone(&caller))?;
        // Last: a caller that gets an error expects no outcome.
        handle.submit(Ticket::new(OpId(slot), Arc::clone(&caller)), Command::Open);
        Ok(NativeManager::new(handle, caller))
    }

    /// Asks every server of an address the questions, each a command, without a manager. Throws an
    /// `InvalidArg` if an option cannot be used.
    #[napi(catch_unwind)]
    pub fn survey(
        &self,
        slot: u32,
        options: ManagerOptions,
        questions: Vec<Vec<String>>,
    ) -> napi::Result<()> {
        faults::at("survey");
        let completions = Arc::clone(&self.completions);
        // A survey has neither losses nor notices, so this number names no manager.
        let caller: Arc<dyn Caller> = Arc::new(ManagerCaller { completions, manager: u32::MAX });
        let (_, endpoint) = options.split()?;
        Ok(driver::survey(endpoint, questions, OpId(slot), caller)?)
    }
}
