//! The core of holdfast: distributed locks held in Redis.
//!
//! ```text
//!   JavaScript ── node ── core ──── machine        (what happens next; no I/O, no clock)
//!                           └────── server         (Redis: sockets, scripts, replies)
//! ```
//!
//! - [`protocol`] has what a manager and a server exchange: keys, tokens, scripts, calls, replies, messages.
//! - [`machine`] is the lock protocol of one manager as a state machine. It uses neither clock nor
//!   network: time is an argument, and its orders are returned as a list of effects.
//! - `core` joins a manager's machine and its connections behind one mutex. Its turns carry commands, replies and
//!   timeouts into the machine, and effects out to the servers and the caller; whichever thread is awake runs them.
//! - `keeper` is the one thread of the process that holdfast starts. There `core` opens connections, renews on time, and
//!   reads where the event loop does not.
//! - `server` is the only place that names the Redis client.
//! - `node` is the only place that names Node-API.
//!
//! Without default features only the machine is compiled, which proves that it needs nothing else.

pub mod machine;
pub mod protocol;

#[cfg(all(test, loom))]
#[path = "core/alarm.rs"]
mod alarm;
#[cfg(feature = "core")]
pub mod core;
#[cfg(feature = "core")]
mod faults;
#[cfg(all(any(test, fuzzing), feature = "core"))]
#[doc(hidden)]
#[expect(clippy::panic, reason = "a panic is how the fuzzer reports a broken promise")]
pub mod fuzzing;
#[cfg(feature = "core")]
pub mod keeper;
#[cfg(feature = "node")]
mod node;
#[cfg(all(test, loom))]
#[expect(dead_code, reason = "what the model does without")]
#[path = "node/outbox.rs"]
mod outbox;
#[cfg(feature = "core")]
pub mod server;
mod slim;
