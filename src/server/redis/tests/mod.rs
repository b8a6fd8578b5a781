//! Connections to servers that answer as a test says.

mod cluster;
mod conversations;
mod dialogue;
mod link;
pub(crate) mod scripted;
mod subscriptions;
