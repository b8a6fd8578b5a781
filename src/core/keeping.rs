//! The keeper's work for a manager.

use super::turns::{Core, Kept};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{self, Instant};

/// How long the keeper waits for a turn of another thread, which takes far less.
const BUSY: Duration = Duration::from_millis(1);

/// Looks after a manager until it ends.
pub(super) async fn keep(core: Arc<Core>) {
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
