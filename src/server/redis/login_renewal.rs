//! Connections whose login does not last: they log in again before it ends.

use super::dialogue::{Dialogue, in_time};
use crate::protocol::Failure;
use crate::server::{Deliver, Endpoint, Incoming, Login, LoginSource};
use std::sync::Arc;
use tokio::sync::oneshot;

/// Has the connection that `login` has opened log in again, each time its login is due. A server that refuses the new
/// login leaves the connection as it was, so it is asked for once more.
pub(super) async fn renew(endpoint: Endpoint, mut login: Arc<Login>, deliver: Deliver) {
    let mut refused: Option<Arc<Login>> = None;
    loop {
        let patience = endpoint.connect_timeout;
        let failed = |why| deliver(Incoming::LoginNotRenewed(why));
        let next = endpoint.login_source.next(&login, refused.as_deref(), patience, failed).await;
        let (tell, told) = oneshot::channel();
        deliver(Incoming::Login(Arc::clone(&next), tell));
        match told.await {
            Ok(Ok(())) => (login, refused) = (next, None),
            Ok(Err(refusal)) => {
                // The first time it may have changed since it was asked for.
                if refused.replace(next).is_some() {
                    deliver(Incoming::LoginNotRenewed(refusal.to_string()));
                }
                LoginSource::pause().await;
            }
            // The connection has ended.
            Err(_) => return,
        }
    }
}

/// Another connection beside the one that `login` has opened, once its login is due: in RESP2 a connection that has
/// subscribed cannot log in again. The connection for requests tells what fails.
pub(super) async fn successor<F>(
    endpoint: &Endpoint,
    login: &Arc<Login>,
    open: impl Fn(Endpoint) -> F,
) -> Dialogue
where
    F: Future<Output = Result<Dialogue, Failure>>,
{
    let mut refused: Option<Arc<Login>> = None;
    loop {
        let patience = endpoint.connect_timeout;
        let next = endpoint.login_source.next(login, refused.as_deref(), patience, drop).await;
        let login_source = LoginSource::Fixed(Arc::clone(&next));
        let server = Endpoint { login_source, ..endpoint.clone() };
        if let Ok(dialogue) = in_time(endpoint, open(server)).await {
            return dialogue;
        }
        refused = Some(next);
        LoginSource::pause().await;
    }
}
