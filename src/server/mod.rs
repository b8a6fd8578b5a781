//! The servers that store locks: Redis and Valkey, or a store in this process. The only module that names the Redis
//! client.

mod abilities;
mod clock;
mod connection;
pub(crate) mod embedded;
mod endpoint;
mod events;
mod logins;
pub(crate) mod memory;
mod redis;

pub use abilities::{Abilities, Resp};
pub(crate) use clock::Clock;
pub(crate) use connection::{Connection, connect, open_embedded};
pub use embedded::MemoryStore;
pub use endpoint::{Address, Endpoint, Replicas, Sentinel, Sentinels};
pub(crate) use events::{Deliver, Incoming, Item, Welcome};
pub use logins::{Asked, Login, LoginSource};
#[cfg(test)]
pub(crate) use redis::tests::scripted;
pub use redis::{BadOption, Tls, TlsOptions};
pub(crate) use redis::{Directory, Link, Socket, discover, explained, page, survey};
#[cfg(any(test, fuzzing))]
pub(crate) use redis::{fuzz, fuzz_frames};
