//! Starts operations, and says how long leases last: the calls that every lock makes.
//!
//! Each is a function of its own rather than a method, since a method pays for each call: napi asks V8 anew which object
//! it belongs to, and notes in a map of the whole process that the object is in use.

use super::buffers::{Buffers, writable};
use super::completions::Completions;
use super::numbers::number;
use super::records::{Operation, read_lease, read_operations};
use crate::core::{Caller, Handle, Submission, Ticket};
use crate::faults;
use napi::Env;
use napi::bindgen_prelude::{FnArgs, Function, Uint8Array};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// The function in JavaScript: the number of operations, the length of their strings, whether there is room for records,
/// and the strings, if they are too long for the buffer.
pub(super) type Submit<'env> = Function<'env, FnArgs<(u32, u32, bool, Option<Uint8Array>)>, i32>;

/// The function that answers the remaining time of a lease.
pub(super) type Remaining<'env> = Function<'env, FnArgs<(f64,)>, f64>;

/// One manager, as its functions use it. Dropping it releases the held locks as far as possible.
pub(super) struct Submitter {
    pub(super) handle: Handle,
    pub(super) completions: Arc<Completions>,
    caller: Arc<dyn Caller>,
    buffers: RefCell<Buffers>,
    /// The memory for the operations of a call. Those of a thousand callers are so many bytes that the allocator would
    /// get them from the system anew each time.
    submissions: RefCell<Vec<Submission>>,
    /// The label of the last acquire.
    label: RefCell<Arc<str>>,
}

impl Submitter {
    pub(super) fn new(
        handle: Handle,
        caller: Arc<dyn Caller>,
        completions: Arc<Completions>,
        buffers: Buffers,
    ) -> Self {
        Self {
            handle,
            completions,
            caller,
            buffers: RefCell::new(buffers),
            submissions: RefCell::default(),
            label: RefCell::default(),
        }
    }

    /// The function that JavaScript calls. napi makes an error of a panic in it.
    pub(super) fn function(self: Rc<Self>, env: &Env) -> napi::Result<Submit<'_>> {
        env.create_function_from_closure("submit", move |call| {
            let long = if call.length() > 3 { call.get::<Option<Uint8Array>>(3)? } else { None };
            Ok(self.submit(call.get(0)?, call.get(1)?, call.get(2)?, long.as_deref()))
        })
    }

    /// The function that answers how many requests have no answer yet.
    pub(super) fn counter(self: Rc<Self>, env: &Env) -> napi::Result<Function<'_, (), f64>> {
        env.create_function_from_closure("unanswered", move |_| {
            faults::at("unanswered");
            Ok(number(self.handle.shared().unanswered()))
        })
    }

    /// The function that answers the remaining time of a lease in ms; 0 if it has ended.
    pub(super) fn leases(self: Rc<Self>, env: &Env) -> napi::Result<Remaining<'_>> {
        env.create_function_from_closure("remaining", move |call| {
            faults::at("remaining");
            let lease = read_lease(call.get(0)?);
            let remaining = self.handle.shared().remaining(lease, self.handle.now());
            Ok(remaining.as_secs_f64() * 1000.0)
        })
    }

    /// Starts the first `count` operations of the numbers of the buffers, with their strings, which take the first `length`
    /// bytes of `long`, if that is given, or else of the text there. If that leaves records, and `has_room`, moves them
    /// into the buffers and returns their number, as `drain` does; -1 if there is no room for any. If it panics, it has
    /// started none.
    fn submit(&self, count: u32, length: u32, has_room: bool, long: Option<&[u8]>) -> i32 {
        faults::at("submit");
        let mut buffers = self.buffers.borrow_mut();
        let Buffers { numbers, text, records } = &mut *buffers;
        let mut submissions = self.submissions.take();
        let mut label = self.label.borrow_mut();
        let strings = long.unwrap_or(text).get(..length as usize).unwrap_or_default();
        for (op, operation) in read_operations(count, numbers, strings, &mut label) {
            let ticket = || Ticket::new(op, Arc::clone(&self.caller));
            submissions.push(match operation {
                Operation::Cancel => Submission::Cancel(op),
                Operation::Command(command) => Submission::Begin(op, command),
                Operation::Query(question) => Submission::Query(ticket(), question),
                // Dropping a ticket completes its operation as a defect of holdfast.
                Operation::Malformed => {
                    drop(ticket());
                    continue;
                }
            });
        }
        drop(label);
        let has_records = self.handle.submit(&mut submissions);
        self.submissions.replace(submissions);
        let records = writable(records);
        if let Some(last) = records.last_mut() {
            *last = number(self.handle.shared().unanswered());
        }
        if !has_records {
            return 0;
        }
        if !has_room {
            return -1;
        }
        i32::try_from(self.completions.drain_into(records)).unwrap_or(0)
    }
}
