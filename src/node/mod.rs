//! The boundary to JavaScript: thin and internal. Defaults and checks live in TypeScript.
//!
//! ```text
//!   JavaScript                                   Rust
//!   entry table ─ submit, in batches ───────▶    a turn of the manager's core, which writes
//!   drain into one typed array ◀─ event loop ─   a turn of the core, which reads
//!                              ◀─ one weak threadsafe function ─ the keeper, another thread
//! ```
//!
//! Every call carries numbers in one typed array and strings in one list; every outcome is a record
//! of fixed size, see [`records`].

#![expect(unnameable_types, reason = "only the registration of the addon reaches them")]

mod bridge;
mod buffers;
mod completions;
mod drainer;
mod event_loop;
mod logins;
mod manager;
mod numbers;
mod options;
mod outbox;
#[cfg(unix)]
mod process_end;
mod records;
#[cfg(all(feature = "faults", not(test)))]
mod samples;
mod submitter;
mod texts;
mod tls;
mod uv;

/// With the allocator of musl an acquire and its release cost a third more CPU.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
