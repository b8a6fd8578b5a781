//! Connections to servers that answer as a test says.

mod conversations;
mod link;
pub(crate) mod scripted;
