//! The end of the process, however JavaScript brings it about.
//!
//! Node ends the workers of a process without a word to their JavaScript, at the very end: their managers then release what
//! they hold, but the process may be gone before a server has answered. Nothing of Node comes after that, so the C
//! library calls this.

#![expect(unsafe_code, reason = "the C library calls back")]

use crate::core::await_ending;
use std::ffi::c_int;
use std::panic::catch_unwind;
use std::sync::Once;

unsafe extern "C" {
    fn atexit(callback: extern "C" fn()) -> c_int;
}

/// Has the process wait a moment, at its end, for managers that are ending.
pub(super) fn wait_for_managers() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the addon is never unloaded, so the function is there when it is called. If there is no room for it, the
        // leases end by themselves.
        let _registered = unsafe { atexit(at_end) };
    });
}

extern "C" fn at_end() {
    // A panic must not unwind into the C library.
    drop(catch_unwind(await_ending));
}
