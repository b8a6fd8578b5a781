//! Asks servers about themselves, without a manager.

use super::ticket::{Caller, Ticket, outcome_of};
use crate::faults::{self, OnPanic};
use crate::keeper;
use crate::machine::{OpId, Outcome};
use crate::server::{self, Endpoint};
use std::io;
use std::sync::Arc;

/// Asks every server of an address about itself, without a manager. `caller` always gets the outcome of `op`,
/// unless this function fails.
///
/// # Errors
/// If the keeper cannot be started.
pub fn survey(
    endpoint: Endpoint,
    questions: Vec<Vec<String>>,
    op: OpId,
    caller: Arc<dyn Caller>,
) -> io::Result<()> {
    let runtime = keeper::runtime()?;
    // Created late: a caller that gets an error expects no outcome as well.
    let ticket = Ticket::new(op, Arc::clone(&caller));
    runtime.spawn(async move {
        let _woken = OnPanic(|| caller.wake());
        faults::at("surveying");
        let surveys = server::survey(&Arc::new(endpoint), questions).await;
        ticket.complete(surveys.map_or_else(outcome_of, Outcome::Surveyed));
        caller.wake();
    });
    Ok(())
}
