//! One environment (the main thread, a worker, or a second copy of the package).

#![expect(unsafe_code, reason = "napi offers no other way to write into a typed array")]

use super::completions::{Completions, ManagerCaller, OutcomeText};
use super::manager::{ManagerOptions, NativeManager};
use crate::driver::{self, Caller, Handle, Ticket};
use crate::faults;
use crate::machine::{Command, OpId};
use napi::bindgen_prelude::{Float64ArraySlice, Function};
use napi_derive::napi;
use std::sync::Arc;

/// Carries outcomes of all managers of one environment to its JavaScript.
#[napi]
pub struct Bridge {
    completions: Arc<Completions>,
}

#[napi]
impl Bridge {
    /// `wake` is called, at most once until `drain` returns 0, when outcomes are ready.
    #[napi(constructor, catch_unwind)]
    pub fn new(wake: Function<'_, (), ()>) -> napi::Result<Self> {
        faults::at("bridge");
        let wake = wake.build_threadsafe_function::<()>().weak::<true>().build()?;
        Ok(Self { completions: Arc::new(Completions::new(wake)) })
    }

    /// Moves outcomes into `into` (four numbers each) and returns how many. 0 means that there are
    /// none and that the next one wakes again.
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

    /// The text of the oldest news that was not taken yet.
    #[napi(catch_unwind)]
    pub fn take_news(&self) -> Option<String> {
        faults::at("news");
        self.completions.take_news()
    }

    /// Starts the manager that notices call `manager`. The outcome in `slot` tells whether it could
    /// connect. Throws an `InvalidArg` if an option cannot be used.
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
        // Last: whoever is told of an error does not expect an outcome as well.
        handle.submit(Ticket::new(OpId(slot), Arc::clone(&caller)), Command::Open);
        Ok(NativeManager::new(handle, caller))
    }

    /// Asks every server of a place the questions, each a command, without a manager. Throws an
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
        // No notice is about it.
        let caller: Arc<dyn Caller> = Arc::new(ManagerCaller { completions, manager: u32::MAX });
        let (_, endpoint) = options.split()?;
        Ok(driver::survey(endpoint, questions, OpId(slot), caller)?)
    }
}
