//! Hands records to JavaScript: the one call of each turn that has some. A function of its own, for the reason that
//! `submitter` gives.

use super::buffers::writable;
use super::completions::Completions;
use super::event_loop::EventLoop;
use crate::faults;
use napi::Env;
use napi::bindgen_prelude::{Float64Array, Function};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// The records of an environment, and where JavaScript reads them.
pub(super) struct Drainer {
    pub(super) completions: Arc<Completions>,
    /// None if the keeper reads.
    pub(super) event_loop: Option<Rc<EventLoop>>,
    /// The room for records.
    records: RefCell<Float64Array>,
}

impl Drainer {
    pub(super) const fn new(
        completions: Arc<Completions>,
        event_loop: Option<Rc<EventLoop>>,
        records: Float64Array,
    ) -> Self {
        Self { completions, event_loop, records: RefCell::new(records) }
    }

    /// The function that JavaScript calls. napi makes an error of a panic in it.
    pub(super) fn function(self: Rc<Self>, env: &Env) -> napi::Result<Function<'_, (), u32>> {
        env.create_function_from_closure("drain", move |_| Ok(self.drain()))
    }

    /// Moves records into the room for them and returns their number. If they do not fill it, there are no more, and the
    /// next record wakes again.
    fn drain(&self) -> u32 {
        faults::at("drain");
        if let Some(event_loop) = &self.event_loop {
            for watch in self.completions.take_watches() {
                // The records that it leaves are drained below.
                let _reported = event_loop.watch(watch);
            }
        }
        self.completions.drain_into(writable(&mut self.records.borrow_mut()))
    }
}
