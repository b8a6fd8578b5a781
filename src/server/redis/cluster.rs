//! Redis Cluster: the routes from slots to servers, and a connection to each server.
//!
//! Source: <https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/>

use super::dialogue::{Dialogue, in_time};
use super::handshake::{self, Purpose};
use super::link::{Link, Origin};
use super::slots::{Name, Slots, read_slots};
use super::{Directory, race, shard_channels, wire};
use crate::protocol::{Failure, NodeId, Routes};
use crate::server::{Address, Deliver, Endpoint, Welcome, events::naming};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// The servers that have slots, ordered by name.
pub(super) async fn primaries(
    endpoint: &Arc<Endpoint>,
    directory: &Arc<Directory>,
) -> Result<Vec<Endpoint>, Failure> {
    let routes = discover(endpoint, directory).await?;
    let nodes = routes.nodes().into_iter();
    let known = nodes.filter_map(|node| directory.address(node));
    Ok(known.map(|(host, port)| endpoint.server(host, port)).collect())
}

/// If a server has not answered within this time, the next one is asked as well.
const NEXT_AFTER: Duration = Duration::from_millis(150);

/// Asks for the slots of all servers. The last known members are asked first. The seeds are believed only if
/// no member answers: a seed may have left the Cluster since, and know only an old or another one.
pub(crate) async fn discover(
    endpoint: &Arc<Endpoint>,
    directory: &Arc<Directory>,
) -> Result<Routes, Failure> {
    let members = directory.members();
    let mut failures =
        match ask_in_turn(endpoint, members, |slots| directory.accept(slots, true)).await {
            Ok(routes) => return Ok(routes),
            Err(failures) => failures,
        };
    if let Address::Cluster { seeds } = &endpoint.address {
        let accept = |slots| directory.accept(slots, false);
        match ask_in_turn(endpoint, seeds.clone(), accept).await {
            Ok(routes) => return Ok(routes),
            Err(more) => failures.extend(more),
        }
    }
    // A wrong login is wrong on every server.
    if let Some((_, refused)) = failures.iter().find(|(_, failure)| wire::is_login(failure)) {
        return Err(refused.clone());
    }
    let mut failures: Vec<_> = failures
        .iter()
        .map(|((host, port), failure)| format!("{host}:{port}: {failure}"))
        .collect();
    failures.sort_unstable();
    failures.dedup();
    Err(Failure::Lost(failures.join("; ")))
}

/// Asks one server after the other, the next as soon as one fails or is slow. The first accepted answer
/// counts.
async fn ask_in_turn(
    endpoint: &Arc<Endpoint>,
    mut servers: Vec<Name>,
    accept: impl Fn(Slots) -> Result<Routes, Failure>,
) -> Result<Routes, Vec<(Name, Failure)>> {
    // Otherwise all managers would ask the same server.
    let first = usize::try_from(uuid::Uuid::new_v4().as_u64_pair().0)
        .unwrap_or(0)
        .checked_rem(servers.len());
    servers.rotate_left(first.unwrap_or(0));
    let questions = servers.into_iter().map(|name| {
        let server = endpoint.server(name.0.clone(), name.1);
        async move {
            let answer = ask_for_slots(&server, &name.0).await;
            (name, answer)
        }
    });
    race::first_of(questions, NEXT_AFTER, |(name, answer)| {
        answer.and_then(&accept).map_err(|failure| (name, failure))
    })
    .await
}

async fn ask_for_slots(server: &Endpoint, host: &str) -> Result<Slots, Failure> {
    let question = async {
        let mut dialogue = Dialogue::open(server).await?;
        let mut slots = redis::cmd("CLUSTER");
        slots.arg("SLOTS");
        dialogue.ask_one(&slots).await
    };
    let answer = in_time(server, question).await?;
    read_slots(&answer, host)
        .filter(|slots| !slots.ranges.is_empty())
        .ok_or_else(|| Failure::Lost("it names no server that has slots".to_owned()))
}

/// Connects to the server `node`. Its shard channels have a connection of their own, which ends with it.
pub(super) async fn connect(
    endpoint: &Endpoint,
    directory: &Arc<Directory>,
    node: NodeId,
    deliver: Deliver,
) -> Result<(Link, Welcome), Failure> {
    let Some((host, port)) = directory.address(node) else {
        return Err(Failure::Lost("the server is not known any more".to_owned()));
    };
    let server = endpoint.server(host.clone(), port);
    let named = naming(format!("{host}:{port}"), Arc::clone(&deliver));
    let (mut link, welcome) =
        handshake::connect(&server, directory, named, Purpose::Cluster).await?;
    let (channels, wanted) = mpsc::unbounded_channel();
    link.tasks.spawn(shard_channels::listen(server, wanted, deliver));
    link.set_channels(channels);
    let directory = Arc::clone(directory);
    link.set_origin((host.clone(), port), Origin { host, directory });
    Ok((link, welcome))
}
