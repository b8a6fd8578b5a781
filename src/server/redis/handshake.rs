//! The first exchange on a new connection, on the runtime: introduction, questions, subscriptions.

use super::dialect::Dialect;
use super::dialogue::{Dialogue, in_time};
use super::link::Link;
use super::probe::needed;
use super::replicas::ReplicaAcker;
use super::subscriber::Subscriber;
use super::{Directory, login_renewal, messages, persistence, rights, wire};
use crate::protocol::message::FREE_CHANNELS;
use crate::protocol::{Counters, Denied, Failure, Refusal, Risk, Script, ServerProbe};
use crate::server::{Abilities, Deliver, Endpoint, Incoming, Login, LoginSource, Resp, Welcome};
use redis::{Pipeline, Value};
use std::io;
use std::sync::Arc;
use tokio::sync::mpsc;

/// The locks that a server keeps for a manager.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    /// All of them.
    Server,
    /// Those of some slots.
    Cluster,
    /// Its vote about each. With `ask_persistence` the server is asked whether a restart may lose data.
    Quorum { ask_persistence: bool },
}

/// Connects to a single server within the connect timeout, logs in, subscribes to the inbox and probes the server.
/// `deliver` gets what the replicas confirm, and in RESP2 the messages.
pub(super) async fn connect(
    endpoint: &Endpoint,
    directory: &Arc<Directory>,
    deliver: Deliver,
    purpose: Purpose,
) -> Result<(Link, Welcome), Failure> {
    in_time(endpoint, shake_hands(endpoint, directory, deliver, purpose)).await
}

async fn shake_hands(
    endpoint: &Endpoint,
    directory: &Arc<Directory>,
    deliver: Deliver,
    purpose: Purpose,
) -> Result<(Link, Welcome), Failure> {
    let mut dialogue = Dialogue::open(endpoint).await?;
    let (probe, mut risks) = introduce(&mut dialogue, endpoint).await?;
    let (mut dialect, mut denied) = settle(&mut dialogue, endpoint, purpose).await?;
    let messages = subscribe(&mut dialogue, endpoint, &mut denied).await?;
    if !denied.tracking && messages.is_some() {
        // Its pushes come as arrays, which nothing tells from answers.
        let mut off = Pipeline::new();
        off.add_command(wire::tracking(false));
        dialogue.ask(&off).await?;
        denied.tracking = true;
    }
    let mut abilities = Abilities {
        server: endpoint.address.to_string(),
        resp: dialogue.resp(),
        clock: denied.clock.is_none(),
        pubsub: denied.pubsub.is_none(),
        plain_commands: denied.plain_commands.is_none(),
        tracking: !denied.tracking,
        compare_and_delete: dialect.delete.command(),
        risks: Vec::new(),
        refused: None,
    };
    if let Purpose::Quorum { ask_persistence } = purpose {
        risks.extend(join_quorum(&mut dialogue, endpoint, &mut denied, ask_persistence).await?);
        dialect = Dialect::PLAIN;
    }
    abilities.risks.clone_from(&risks);
    let acker = match endpoint.replicas {
        None => None,
        Some(replicas) => {
            let replication_id = probe.replication_id.clone();
            let deliver = Arc::clone(&deliver);
            let first = alike(endpoint, &dialogue);
            let opened = (endpoint, &first);
            Some(ReplicaAcker::open(opened, replicas, replication_id, directory, deliver).await?)
        }
    };
    let login = dialogue.login();
    let (socket, tls, frames, pushes) = dialogue.into_parts();
    let socket = socket.try_into().map_err(|error: io::Error| Failure::Lost(error.to_string()))?;
    let early = pushes.iter().filter_map(wire::pushed).map(Incoming::Message).collect();
    let mut link = Link::new(socket, tls, frames, early, acker, dialect);
    // Nothing is awaited from here on: what the tasks deliver must come after this connection.
    if let LoginSource::Asked(_) = endpoint.login_source {
        link.tasks.spawn(login_renewal::renew(endpoint.clone(), login, Arc::clone(&deliver)));
    }
    if let Some(subscriber) = messages {
        let (channels, wanted) = mpsc::unbounded_channel();
        link.tasks.spawn(messages::listen(endpoint.clone(), subscriber, wanted, deliver));
        link.set_channels(channels);
    }
    Ok((link, Welcome { probe, risks, denied, abilities: Some(abilities) }))
}

/// For another connection of the same manager: nobody is asked for its login again.
fn alike(endpoint: &Endpoint, dialogue: &Dialogue) -> Endpoint {
    Endpoint { login_source: LoginSource::Fixed(dialogue.login()), ..endpoint.clone() }
}

async fn introduce(
    dialogue: &mut Dialogue,
    endpoint: &Endpoint,
) -> Result<(ServerProbe, Vec<Risk>), Failure> {
    let answers = dialogue.ask(&wire::introduction(&endpoint.client_name, endpoint.db)).await?;
    let login = dialogue.login();
    let introduced = wire::introduced(&answers, &endpoint.address.to_string());
    introduced.map_err(|failure| match wire::lasting(&failure) {
        Some(why) if wire::is_about(why, "TIME") => {
            Failure::Refused(needed("locks", &["TIME"], why, user(&login)))
        }
        _ => failure,
    })
}

/// The dialect that the server allows, and what it denies. Fails if one of its scripts could end after its first write.
async fn settle(
    dialogue: &mut Dialogue,
    endpoint: &Endpoint,
    purpose: Purpose,
) -> Result<(Dialect, Denied), Failure> {
    let counters = match purpose {
        Purpose::Server | Purpose::Quorum { .. } => Counters::Server,
        Purpose::Cluster => Counters::Slots,
    };
    let channel = match purpose {
        Purpose::Quorum { .. } => Some(FREE_CHANNELS),
        Purpose::Server | Purpose::Cluster => endpoint.channels.first().map(|channel| &**channel),
    };
    let answers = dialogue.ask(&rights::question(counters, channel, dialogue.resp())).await?;
    let (dialect, denied, refused) = rights::answered(counters, answers)?;
    let scripts = match purpose {
        Purpose::Quorum { .. } => &Script::OF_QUORUMS[..],
        Purpose::Server | Purpose::Cluster if !dialect.clock => &Script::WITHOUT_CLOCK,
        Purpose::Server | Purpose::Cluster => &Script::ALL,
    };
    match refused.half_done(scripts, user(&dialogue.login())) {
        Some(refusal) => Err(Failure::Refused(refusal)),
        None => Ok((dialect, denied)),
    }
}

/// The ACL user.
fn user(login: &Login) -> &str {
    login.username.as_deref().unwrap_or("default")
}

/// Checks what the votes of a server need. They are scripts of their own, which use no plain commands.
async fn join_quorum(
    dialogue: &mut Dialogue,
    endpoint: &Endpoint,
    denied: &mut Denied,
    ask_persistence: bool,
) -> Result<Option<Risk>, Failure> {
    denied.plain_commands = None;
    if let Some(why) = denied.clock.take() {
        let detail =
            format!("its scripts may not read the clock (TIME), which a vote needs: {why}");
        return Err(Failure::Refused(Refusal { code: "NOCLOCK".to_owned(), detail }));
    }
    if !ask_persistence {
        return Ok(None);
    }
    let answers = dialogue.ask(&persistence::question()).await?;
    Ok(persistence::forgets(&answers, &endpoint.address.to_string()))
}

/// Subscribes to the channels of `endpoint`, without pushes on a connection of its own, which is returned. Checks that
/// messages may be published to the first of them, if there is one, and notes why not.
async fn subscribe(
    dialogue: &mut Dialogue,
    endpoint: &Endpoint,
    denied: &mut Denied,
) -> Result<Option<Subscriber>, Failure> {
    let channel = endpoint.channels.first();
    let (alone, mut failed) = match dialogue.resp() {
        Resp::Two => (true, None),
        Resp::Three => try_pushes(dialogue, &endpoint.channels).await?,
    };
    let mut subscriber = None;
    if alone {
        let (opened, refused) = messages::open(&alike(endpoint, dialogue)).await?;
        (subscriber, failed) = (Some(opened), refused);
    }
    if failed.is_none()
        && let Some(channel) = channel
    {
        let mut probes = Pipeline::new();
        probes.cmd("PUBLISH").arg(&**channel).arg("");
        probes.cmd("PUBSUB").arg("NUMSUB").arg(&**channel);
        let answers = dialogue.ask(&probes).await?;
        if answers.last().is_some_and(counts_nobody) {
            // If the connection for messages has broken since, nobody is counted rightly, and its end is noticed next.
            let stands = match &mut subscriber {
                Some(subscriber) => subscriber.confirm(channel).await.is_ok(),
                None => true,
            };
            denied.pubsub = stands.then(|| NOT_COUNTED.to_owned());
        }
        let error = answers.into_iter().map(Value::extract_error).find_map(Result::err);
        failed = error.as_ref().map(wire::failure);
    }
    if let Some(failure) = failed {
        let why = wire::lasting(&failure).map(ToString::to_string);
        denied.pubsub = Some(why.ok_or(failure)?);
    }
    Ok(subscriber)
}

/// Subscribes to `channels` where RESP3 has pushes. Returns whether messages need a connection of their own, since they come
/// as arrays, as those of Kvrocks do, and the server's error if it refuses the subscription.
async fn try_pushes(
    dialogue: &mut Dialogue,
    channels: &[Arc<str>],
) -> Result<(bool, Option<Failure>), Failure> {
    // The server of a quorum gets its channels later, so another one shows it.
    let trial = [FREE_CHANNELS.into()];
    let tried = if channels.is_empty() { &trial } else { channels };
    let refused = dialogue.subscribe(tried).await?;
    let alone = dialogue.pushes_arrays();
    if refused.is_none() && (alone || channels.is_empty()) {
        dialogue.unsubscribe(tried).await?;
    }
    Ok((alone, refused.filter(|_| !channels.is_empty())))
}

/// The scripts ask for the number of subscribers before they grant a lock by message.
const NOT_COUNTED: &str = "PUBSUB NUMSUB does not count this manager's subscription: its connections may lead to \
different servers";

/// Whether this answer to PUBSUB NUMSUB says that the channel has no subscriber.
fn counts_nobody(answer: &Value) -> bool {
    matches!(answer, Value::Array(parts) if matches!(parts.get(1), Some(Value::Int(0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subscription_that_nobody_counts_is_noticed() {
        let counted = |parts| counts_nobody(&Value::Array(parts));
        let channel = || Value::BulkString(b"inbox".to_vec());
        assert!(counted(vec![channel(), Value::Int(0)]), "a count of zero is noticed");
        assert!(!counted(vec![channel(), Value::Int(1)]), "a subscription that is counted is good");
        // A server that answers something else may count all the same.
        assert!(!counted(Vec::new()), "an answer without a count is no denial");
        assert!(!counts_nobody(&Value::Nil), "another answer is no denial");
    }
}
