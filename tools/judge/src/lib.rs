//! Judges histories of locks: was there an order of all operations, each between its call and its return, that one lock
//! without concurrency would have had as well?
//!
//! The order is searched for by a published checker, the crate `todc-utils`. Here are only the model of a lock
//! (`model.rs`), and the way from records to operations (`operations.rs`). `README.md` beside it gives the reasons.

pub mod model;
pub mod operations;
pub mod record;
pub mod verdict;
