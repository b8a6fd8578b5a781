//! The core of a manager: the machine, its connections and the outcomes, behind one mutex. It has no thread of its
//! own: whoever is awake runs a turn.
//!
//! ```text
//!   JavaScript ─ submit ──▶ ┌ Core ──────────────────────────────────┐
//!   event loop ─ readable ▶ │ machine · a link to each server        │ ◀─ keep ─ keeper (timeouts, new connections;
//!                           └ caller: outcomes, losses, notices ─────┘            reads while nobody else does)
//! ```
//!
//! A turn feeds commands, replies and timeouts to the machine, carries out its effects and writes. It never blocks,
//! and it makes no decisions.

mod alarm;
mod attempts;
#[cfg(all(unix, any(test, fuzzing)))]
#[expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how the fuzzer reports a broken promise"
)]
#[path = "../fuzzing/conversation.rs"]
pub(crate) mod fuzz;
mod handle;
mod inputs;
mod keeping;
mod moving;
mod queries;
mod shared;
mod state;
mod survey;
#[cfg(test)]
mod tests;
mod ticket;
mod turns;
mod watch;

pub use handle::{Handle, WeakHandle, await_ending, end_all};
pub use inputs::Submission;
pub use shared::Shared;
pub use survey::survey;
pub use ticket::{Caller, Ticket};
#[cfg(feature = "node")]
pub(crate) use watch::Readable;
pub use watch::{Reader, Watch};
