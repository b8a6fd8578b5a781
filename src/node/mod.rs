//! The boundary to JavaScript: thin and internal. Defaults and checks live in TypeScript.
//!
//! ```text
//!   JavaScript                                  Rust, one thread per process
//!   slot table ─ one submit per microtask ──▶   channel ─ one turn of the driver
//!   drain into one typed array ◀─ one weak threadsafe function ─ completion queue
//! ```
//!
//! Every call carries numbers in one typed array and strings in one list; every outcome is a record
//! of fixed size, see [`records`].

#![expect(unnameable_types, reason = "only the registration of the addon reaches them")]

mod bridge;
mod completions;
mod manager;
mod options;
mod outbox;
mod records;
#[cfg(all(feature = "faults", not(test)))]
mod samples;
mod texts;
