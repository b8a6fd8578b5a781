//! Redis and Valkey servers: addresses, connections, commands and replies.

mod cluster;
mod command;
mod connecting;
mod descriptors;
mod dialect;
mod dialogue;
mod directory;
mod frames;
#[cfg(any(test, fuzzing))]
#[path = "../../fuzzing/replies.rs"]
pub(crate) mod fuzz;
#[cfg(any(test, fuzzing))]
#[path = "../../fuzzing/frames.rs"]
pub(crate) mod fuzz_frames;
mod handshake;
mod hybrid;
mod link;
mod login_renewal;
mod messages;
mod persistence;
mod probe;
pub(super) mod query;
mod race;
mod replicas;
mod rights;
mod sentinel;
mod servers;
mod shard_channels;
mod slots;
mod socket;
mod stream;
mod subscriber;
mod survey;
#[cfg(test)]
pub(super) mod tests;
mod tls;
mod together;
mod values;
pub(super) mod wire;

pub(crate) use cluster::discover;
pub(super) use command::Command;
pub(super) use connecting::connect;
pub(crate) use descriptors::explained;
pub(super) use dialect::Dialect;
pub(crate) use directory::Directory;
pub(crate) use link::Link;
pub(crate) use query::page;
pub(crate) use socket::Socket;
pub(crate) use survey::survey;
pub use tls::{BadOption, Tls, TlsOptions};
