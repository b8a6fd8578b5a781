//! The core of holdfast: distributed locks held in Redis.
//!
//! ```text
//!   JavaScript ── node ── driver ── machine        (what happens next; no I/O, no clock)
//!                           └────── server         (Redis: sockets, scripts, replies)
//! ```
//!
//! - [`protocol`] has what a manager and a server exchange: keys, tokens, scripts, calls, replies, messages.
//! - [`machine`] is the lock protocol of one manager as a state machine. It uses neither clock nor
//!   network: time is an argument, and its orders are returned as a list of effects.
//! - `driver` owns the loop: it carries commands, replies and timeouts into the machine and its
//!   effects out to the server and the caller.
//! - `server` is the only place that names the Redis client.
//! - `node` is the only place that names Node-API.
//!
//! Without default features only the machine is compiled, which proves that it needs nothing else.

pub mod machine;
pub mod protocol;

#[cfg(feature = "driver")]
pub mod driver;
#[cfg(feature = "driver")]
mod faults;
#[cfg(all(any(test, fuzzing), feature = "driver"))]
#[doc(hidden)]
#[expect(clippy::panic, reason = "a fuzzer learns so that a promise is broken")]
pub mod fuzzing;
#[cfg(feature = "node")]
mod node;
#[cfg(all(test, loom))]
#[expect(dead_code, reason = "what the model does without")]
#[path = "node/outbox.rs"]
mod outbox;
#[cfg(feature = "driver")]
pub mod server;
