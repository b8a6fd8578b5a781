//! The memory that the two halves of a manager share: a call then hands over numbers alone. Node-API takes 600
//! instructions for each array that is an argument.

use napi::bindgen_prelude::{Float64Array, Uint8Array};
use napi_derive::napi;

/// What `submit` reads and writes. JavaScript owns it, writes operations before a call, and reads records after it.
#[napi(object, object_to_js = false)]
pub struct Buffers {
    /// The operations, see `OpKind`.
    pub numbers: Float64Array,
    /// Their strings.
    pub text: Uint8Array,
    /// Room for records, and for one number behind them: that of the requests without an answer.
    pub records: Float64Array,
}

/// The numbers of an array of the TypeScript half, to write into.
#[expect(unsafe_code, reason = "napi offers no other way to write into a typed array")]
pub(super) fn writable(array: &mut Float64Array) -> &mut [f64] {
    // SAFETY: the array is a private buffer of our own TypeScript, which waits for this call
    // on the only thread that can reach it; nothing else reads or writes it meanwhile. It is never
    // detached, and too long to be moved by the garbage collector.
    unsafe { array.as_mut() }
}
