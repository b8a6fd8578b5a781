//! The keeper: one thread of the process, for all managers. It opens connections, runs timeouts and renewals on time
//! whatever JavaScript does, and reads where the event loop does not.

mod runtime;

pub(crate) use runtime::get as runtime;

use crate::core::{Caller, Core, Kept, Ticket};
use crate::faults::{self, OnPanic};
use crate::machine::{NodeId, OpId, Outcome};
use crate::protocol::Failure;
use crate::server::{self, Endpoint, Socket};
use std::io;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::{self, Instant};

/// How long the keeper waits for a turn of another thread, which takes far less.
const BUSY: Duration = Duration::from_millis(1);

/// Looks after a manager until it ends.
pub(crate) async fn keep(core: Arc<Core>) {
    let mut alarm = pin!(time::sleep_until(Instant::now()));
    loop {
        let due = match core.keep() {
            Kept::Ended => return,
            Kept::Until(due) => due,
            Kept::Busy => {
                time::sleep(BUSY).await;
                continue;
            }
        };
        if let Some(due) = due {
            alarm.as_mut().reset(Instant::now() + due.since(core.clock.now()));
        }
        tokio::select! {
            () = core.mail.arrived() => {}
            () = alarm.as_mut(), if due.is_some() => {}
        }
    }
}

/// Reads the socket of `node` whenever it is readable, until its connection is over.
pub(crate) async fn read(core: Weak<Core>, node: NodeId, socket: Arc<Socket>) {
    let readable = || core.upgrade().is_some_and(|core| core.read(node, &socket));
    // A runtime that cannot wait for the socket leaves it to the keeper's looks.
    drop(socket.while_readable(readable).await);
}

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
    let runtime = runtime()?;
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

/// The outcome of an operation that the machine does not know.
pub(crate) fn outcome_of(failure: Failure) -> Outcome {
    match failure {
        Failure::Refused(refusal) => Outcome::Server { refusal, key: None },
        other => Outcome::Connection(other.to_string()),
    }
}
