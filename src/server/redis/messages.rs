//! The messages of a server that speaks RESP2, where a connection that subscribes may ask nothing else: they have a
//! connection of their own. Both end together, so that a manager sees one connection, as with RESP3.

use super::dialogue::Dialogue;
use super::subscriber::{Channels, Subscriber, Subscription};
use crate::faults::OnPanic;
use crate::protocol::{DEFECT, Failure};
use crate::server::{Deliver, Endpoint, Incoming};
use redis::Pipeline;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;

/// If no message has come for this long, the connection is checked.
const CHECK_AFTER: Duration = Duration::from_secs(5);

/// Connects, and subscribes to the channels of `endpoint`. Returns the server's error if it refuses them.
pub(super) async fn open(endpoint: &Endpoint) -> Result<(Subscriber, Option<Failure>), Failure> {
    let mut dialogue = open_named(endpoint).await?;
    let refused = match &*endpoint.channels {
        // The server of a quorum has channels for locks that are waited for.
        [] => None,
        channels => dialogue.subscribe(channels).await?,
    };
    let patience = endpoint.connect_timeout;
    let mut subscriber = Subscriber::new(dialogue, Channels::Plain, CHECK_AFTER, patience);
    if refused.is_none() {
        subscriber.has(&endpoint.channels);
    }
    Ok((subscriber, refused))
}

async fn open_named(endpoint: &Endpoint) -> Result<Dialogue, Failure> {
    let mut dialogue = Dialogue::open(endpoint).await?;
    let mut name = Pipeline::new();
    name.cmd("CLIENT").arg("SETNAME").arg(&endpoint.client_name);
    // A server that denies it is as good.
    let _named = dialogue.ask(&name).await?;
    Ok(dialogue)
}

/// Delivers messages and carries `wanted` out until the connection breaks.
pub(super) async fn listen(
    endpoint: Endpoint,
    mut subscriber: Subscriber,
    mut wanted: UnboundedReceiver<Subscription>,
    deliver: Deliver,
) {
    let _reported = OnPanic(|| deliver(Incoming::Disconnected(DEFECT.to_owned())));
    let open = |server: Endpoint| async move { open_named(&server).await };
    let failure = subscriber.run_renewed(&endpoint, open, &mut wanted, &deliver).await;
    deliver(Incoming::Disconnected(format!("the connection for messages: {failure}")));
}
