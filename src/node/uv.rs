//! The functions of libuv that reading needs, looked up in the running process: not every runtime has them.
//!
//! Source: <https://docs.libuv.org/en/v1.x/poll.html>

#![expect(unsafe_code, reason = "libuv is a C library")]
#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "the calls of a block are one step, which one reason proves"
)]

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

/// A `uv_handle_t`, whose first field is free for its user.
pub(super) type Handle = *mut c_void;
/// A `uv_loop_t`.
pub(super) type Loop = *mut c_void;
#[cfg(unix)]
pub(super) type Descriptor = c_int;
#[cfg(windows)]
pub(super) type Descriptor = std::os::windows::io::RawSocket;

/// `UV_POLL` of `uv_handle_type`.
const POLL_TYPE: c_int = 8;
/// `UV_READABLE` of `uv_poll_event`.
const READABLE: c_int = 1;

pub(super) type OnPoll = unsafe extern "C" fn(Handle, c_int, c_int);
pub(super) type OnClosed = unsafe extern "C" fn(Handle);

/// The functions of this process.
pub(super) struct Uv {
    handle_size: unsafe extern "C" fn(c_int) -> usize,
    poll_init: unsafe extern "C" fn(Loop, Handle, Descriptor) -> c_int,
    poll_start: unsafe extern "C" fn(Handle, c_int, OnPoll) -> c_int,
    unref: unsafe extern "C" fn(Handle),
    close: unsafe extern "C" fn(Handle, OnClosed),
}

impl Uv {
    /// None if this runtime has no libuv, or keeps it to itself.
    pub(super) fn get() -> Option<&'static Self> {
        static UV: OnceLock<Option<Uv>> = OnceLock::new();
        UV.get_or_init(Self::find).as_ref()
    }

    fn find() -> Option<Self> {
        #[cfg(unix)]
        use libloading::os::unix::Library;
        #[cfg(windows)]
        use libloading::os::windows::Library;
        #[cfg(unix)]
        let process = Library::this();
        #[cfg(windows)]
        let process = Library::this().ok()?;
        let init = if cfg!(windows) { "uv_poll_init_socket" } else { "uv_poll_init" };
        // SAFETY: the types are those of libuv's header, which keeps them through version 1, and the process never
        // unloads the executable that they are in.
        unsafe {
            Some(Self {
                handle_size: *process.get("uv_handle_size").ok()?,
                poll_init: *process.get(init).ok()?,
                poll_start: *process.get("uv_poll_start").ok()?,
                unref: *process.get("uv_unref").ok()?,
                close: *process.get("uv_close").ok()?,
            })
        }
    }

    /// The size of a handle, in bytes.
    pub(super) fn poll_size(&self) -> usize {
        // SAFETY: it only looks a number up.
        unsafe { (self.handle_size)(POLL_TYPE) }
    }

    /// Makes a handle for `socket` that does not keep the loop alive. Returns whether it could; if so, [`Self::close`]
    /// must let it go.
    ///
    /// # Safety
    /// `handle` has [`Self::poll_size`] bytes, which stay where they are until [`Self::close`] has called back, `socket`
    /// is open until then, and this is the thread of `event_loop`. If it could not be made, nothing refers to `handle`.
    pub(super) unsafe fn init(&self, event_loop: Loop, handle: Handle, socket: Descriptor) -> bool {
        // SAFETY: as promised by the caller.
        unsafe {
            if (self.poll_init)(event_loop, handle, socket) != 0 {
                return false;
            }
            (self.unref)(handle);
            true
        }
    }

    /// Calls `on_poll` whenever the socket is readable. After a call with an error it calls no more. Returns whether it
    /// could begin.
    ///
    /// # Safety
    /// `handle` was made by [`Self::init`], is not closed yet, and this is the thread of its loop.
    pub(super) unsafe fn start(&self, handle: Handle, on_poll: OnPoll) -> bool {
        // SAFETY: as promised by the caller.
        unsafe { (self.poll_start)(handle, READABLE, on_poll) == 0 }
    }

    /// Ends the waiting. `on_closed` is called in a later turn of the loop; `handle` must last until then.
    ///
    /// # Safety
    /// `handle` was made by [`Self::init`], is not closed yet, and this is the thread of its loop.
    pub(super) unsafe fn close(&self, handle: Handle, on_closed: OnClosed) {
        // SAFETY: as promised by the caller.
        unsafe { (self.close)(handle, on_closed) }
    }
}
