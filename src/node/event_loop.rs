//! The event loop of an environment, as the reader of its sockets.
//!
//! A poll handle waits for each socket. When it fires, the core of its manager reads on this thread, and JavaScript
//! gets the outcomes in the same turn of the loop.

#![expect(unsafe_code, reason = "libuv and Node-API call back with raw pointers")]
#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "the calls of a block are one step, which one reason proves"
)]

use super::uv::{Handle, Loop, Uv};
use crate::core::{Readable, Watch};
use crate::server::Socket;
use napi::{Env, JsValue, bindgen_prelude::Function, sys};
use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, null_mut};
use std::rc::Rc;
use std::sync::Arc;

/// One environment's event loop. All of it happens on the thread of that environment.
pub(super) struct EventLoop {
    uv: &'static Uv,
    env: sys::napi_env,
    uv_loop: Loop,
    /// The function that drains.
    on_records: sys::napi_ref,
    context: sys::napi_async_context,
    /// The handles that are open.
    polls: RefCell<Vec<*mut Poll>>,
    /// The handles that are closing.
    closing: Cell<usize>,
    /// The environment ends: JavaScript is not called any more.
    ended: Cell<bool>,
    /// The cleanup hook: removing it lets the environment go.
    hook: Cell<Option<sys::napi_async_cleanup_hook_handle>>,
}

/// A poll handle and its socket, which must be open until the handle is closed.
struct Poll {
    /// The memory of the `uv_poll_t`.
    handle: Vec<u64>,
    watch: Watch,
    socket: Arc<Socket>,
    event_loop: Rc<EventLoop>,
}

impl EventLoop {
    /// None if this runtime has no usable libuv. `on_records` is called after each turn that leaves records.
    pub(super) fn new(env: Env, on_records: &Function<'_, (), ()>) -> Option<Rc<Self>> {
        let uv = Uv::get()?;
        let (env, mut uv_loop) = (env.raw(), null_mut());
        let (mut reference, mut context) = (null_mut(), null_mut());
        // SAFETY: these are plain Node-API calls on the thread of `env`, with outputs that outlive them.
        unsafe {
            let mut name = null_mut();
            let label = c"holdfast";
            if sys::napi_get_uv_event_loop(env, &raw mut uv_loop) != sys::Status::napi_ok
                || sys::napi_create_string_utf8(env, label.as_ptr(), 8, &raw mut name)
                    != sys::Status::napi_ok
                || sys::napi_async_init(env, null_mut(), name, &raw mut context)
                    != sys::Status::napi_ok
                || sys::napi_create_reference(env, on_records.raw(), 1, &raw mut reference)
                    != sys::Status::napi_ok
            {
                return None;
            }
        }
        let event_loop = Rc::new(Self {
            uv,
            env,
            uv_loop: uv_loop.cast(),
            on_records: reference,
            context,
            polls: RefCell::default(),
            closing: Cell::new(0),
            ended: Cell::new(false),
            hook: Cell::new(None),
        });
        let argument = Rc::into_raw(Rc::clone(&event_loop)).cast_mut().cast();
        // SAFETY: the hook gets back the reference that was made for it.
        unsafe {
            sys::napi_add_async_cleanup_hook(env, Some(end), argument, null_mut());
        }
        Some(event_loop)
    }

    /// Waits for a socket from now on. Returns whether there are records to drain.
    pub(super) fn watch(self: &Rc<Self>, watch: Watch) -> bool {
        let Some(socket) = watch.socket().filter(|_| !self.ended.get()) else { return false };
        let descriptor = socket.descriptor();
        let words = self.uv.poll_size() / size_of::<u64>() + 1;
        let event_loop = Rc::clone(self);
        let poll = Box::new(Poll { handle: vec![0; words], watch, socket, event_loop });
        let poll = Box::into_raw(poll);
        // SAFETY: the box was just made, and keeps its socket open. Its memory stays where it is until `on_closed`, or
        // until the end of this block if there is no handle. The first field of a handle is its user's.
        let (made, started) = unsafe {
            let handle: Handle = (*poll).handle.as_mut_ptr().cast();
            let made = self.uv.init(self.uv_loop, handle, descriptor);
            // After the call that clears the memory on some systems.
            handle.cast::<*mut Poll>().write(poll);
            (made, made && self.uv.start(handle, on_readable))
        };
        if !made {
            // SAFETY: nothing else refers to the box. The keeper's looks remain.
            drop(unsafe { Box::from_raw(poll) });
            return false;
        }
        self.polls.borrow_mut().push(poll);
        // It may have become readable before.
        self.read(poll, started)
    }

    /// Reads the socket of an open handle. The handle is closed if the socket needs no wait, or if it no
    /// longer `waits` by itself. Returns whether there are records to drain.
    fn read(&self, poll: *mut Poll, waits: bool) -> bool {
        // SAFETY: the box of an open handle lives until `on_closed`, which is called in a later turn of the loop.
        let Poll { watch, socket, .. } = unsafe { &*poll };
        // A panic must not unwind into libuv. The core has handled it.
        let readable = catch_unwind(AssertUnwindSafe(|| watch.readable(socket, waits)))
            .unwrap_or(Readable { reported: true, over: true });
        if readable.over || !waits {
            self.close(poll);
        }
        readable.reported
    }

    fn close(&self, poll: *mut Poll) {
        let mut polls = self.polls.borrow_mut();
        let Some(index) = polls.iter().position(|open| ptr::eq(*open, poll)) else { return };
        polls.swap_remove(index);
        self.closing.set(self.closing.get() + 1);
        // SAFETY: it was among the open handles, so it was made and not closed.
        unsafe { self.uv.close((*poll).handle.as_mut_ptr().cast(), on_closed) };
    }

    /// Calls the function that drains, and then what waits for its outcomes.
    fn call(&self) {
        if self.ended.get() {
            return;
        }
        let env = self.env;
        let (mut scope, mut function, mut this) = (null_mut(), null_mut(), null_mut());
        // SAFETY: these are plain Node-API calls on the thread of `env`, which has not ended.
        unsafe {
            if sys::napi_open_handle_scope(env, &raw mut scope) != sys::Status::napi_ok {
                return;
            }
            sys::napi_get_reference_value(env, self.on_records, &raw mut function);
            sys::napi_get_global(env, &raw mut this);
            let called = sys::napi_make_callback(
                env,
                self.context,
                this,
                function,
                0,
                ptr::null(),
                null_mut(),
            );
            if called != sys::Status::napi_ok {
                report(env);
            }
            sys::napi_close_handle_scope(env, scope);
        }
    }

    /// Lets the environment go once no handle is left.
    fn finish(&self) {
        if self.closing.get() > 0 || !self.polls.borrow().is_empty() {
            return;
        }
        if let Some(hook) = self.hook.take() {
            // SAFETY: the hook was called with this handle, which is removed once.
            unsafe { sys::napi_remove_async_cleanup_hook(hook) };
        }
    }
}

/// Makes an exception an uncaught one. It must not stay pending: the next call into Node-API would fail of it.
///
/// # Safety
/// It is called on the thread of `env`.
unsafe fn report(env: sys::napi_env) {
    let mut error = null_mut();
    // SAFETY: as promised by the caller.
    unsafe {
        if sys::napi_get_and_clear_last_exception(env, &raw mut error) == sys::Status::napi_ok
            && !error.is_null()
        {
            sys::napi_fatal_exception(env, error);
            sys::napi_get_and_clear_last_exception(env, &raw mut error);
        }
    }
}

/// A socket is readable, or with another `status` than 0 it has an error and libuv has stopped waiting for it, as after
/// a reset.
unsafe extern "C" fn on_readable(handle: Handle, status: c_int, _events: c_int) {
    // SAFETY: `watch` has written the pointer, and the box lives until `on_closed`.
    let poll = unsafe { handle.cast::<*mut Poll>().read() };
    // SAFETY: as above; the reference ends before anything can free the box.
    let event_loop = unsafe { Rc::clone(&(*poll).event_loop) };
    if event_loop.read(poll, status == 0) {
        event_loop.call();
    }
}

/// libuv has let a handle go.
unsafe extern "C" fn on_closed(handle: Handle) {
    // SAFETY: `watch` has written the pointer, and nothing refers to the box any more.
    let poll = unsafe { Box::from_raw(handle.cast::<*mut Poll>().read()) };
    let event_loop = Rc::clone(&poll.event_loop);
    drop(poll);
    event_loop.closing.set(event_loop.closing.get() - 1);
    event_loop.finish();
}

/// The environment ends, and waits until the hook is removed.
unsafe extern "C" fn end(hook: sys::napi_async_cleanup_hook_handle, argument: *mut c_void) {
    // SAFETY: `new` has made this reference for this one call.
    let event_loop = unsafe { Rc::from_raw(argument.cast::<EventLoop>()) };
    event_loop.ended.set(true);
    event_loop.hook.set(Some(hook));
    // SAFETY: the environment still exists, and nothing uses these two after `ended`.
    unsafe {
        sys::napi_async_destroy(event_loop.env, event_loop.context);
        sys::napi_delete_reference(event_loop.env, event_loop.on_records);
    }
    let polls = event_loop.polls.borrow().clone();
    for poll in polls {
        event_loop.close(poll);
    }
    event_loop.finish();
}
