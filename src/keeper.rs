//! The keeper: one thread of the process, for all managers. It opens connections, runs timeouts and renewals on time
//! whatever JavaScript does, and reads where the event loop does not.

use crate::server;
use std::io;
use std::sync::{Mutex, PoisonError};
use tokio::runtime::{Builder, Handle};

static RUNTIME: Mutex<Option<Handle>> = Mutex::new(None);

/// How many names are looked up at once. Nothing ends a lookup before its time, so while no name server answers, each
/// attempt to connect leaves one behind.
const LOOKUPS_MAX: usize = 64;

/// The runtime of the process, started by the first call. It lives as long as the process: nothing joins its
/// thread, so the end of an environment never waits for it.
pub(crate) fn runtime() -> io::Result<Handle> {
    let mut started = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(handle) = &*started {
        return Ok(handle.clone());
    }
    let handle = start().map_err(server::explained)?;
    *started = Some(handle.clone());
    Ok(handle)
}

fn start() -> io::Result<Handle> {
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_all().max_blocking_threads(LOOKUPS_MAX).build()?;
    let handle = runtime.handle().clone();
    std::thread::Builder::new()
        .name("holdfast".to_owned())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))?;
    Ok(handle)
}
