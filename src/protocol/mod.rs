//! The messages between a manager and a server, and the types that both sides use.

pub mod call;
pub mod clock;
pub mod error;
pub mod ids;
pub mod keys;
pub mod message;
pub mod query;
pub mod reply;
pub mod script;
pub mod survey;
pub mod token;
pub mod validity;
