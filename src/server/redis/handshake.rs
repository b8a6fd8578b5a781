//! The first exchange on a new connection, on the runtime: login, introduction, subscriptions.

use super::dialect::{self, Delete, Dialect};
use super::frames::Frames;
use super::link::{Link, pushed};
use super::replicas::ReplicaAcker;
use super::stream::Stream;
use super::{Address, Deliver, Directory, Endpoint, Incoming, Welcome, persistence, wire};
use crate::machine::{Denied, Risk, ServerProbe};
use crate::protocol::{Counters, Failure};
use redis::{Pipeline, PushKind, Value};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

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

/// Connects to a single server, logs in, subscribes to the inbox and probes the server. `deliver` gets what the replicas
/// confirm.
pub(super) async fn connect(
    endpoint: &Endpoint,
    directory: &Arc<Directory>,
    deliver: Deliver,
    purpose: Purpose,
) -> Result<(Link, Welcome), Failure> {
    let stream = Stream::open(endpoint).await.map_err(|error| Failure::Lost(error.to_string()))?;
    let mut dialogue = Dialogue { stream, frames: Frames::new(), early: Vec::new() };
    dialogue.log_in(endpoint).await?;
    let (probe, mut risks, delete) = dialogue.introduce(endpoint).await?;
    let channel = endpoint.channels.first().map(|channel| &**channel);
    let wanted = |counters| Dialect { counters, delete, clock: true };
    let (dialect, mut denied) = match purpose {
        Purpose::Server => dialogue.settle(wanted(Counters::Server), channel).await?,
        Purpose::Cluster => dialogue.settle(wanted(Counters::Slots), channel).await?,
        Purpose::Quorum { ask_persistence } => {
            if ask_persistence {
                risks.extend(dialogue.ask_persistence(endpoint).await?);
            }
            (Dialect::PLAIN, Denied::default())
        }
    };
    if !endpoint.channels.is_empty() {
        denied.pubsub = dialogue.listen(&endpoint.channels).await?.or(denied.pubsub);
    }
    let acker = match endpoint.replicas {
        None => None,
        Some(replicas) => {
            let replication_id = probe.replication_id.clone();
            Some(ReplicaAcker::open(endpoint, replicas, replication_id, directory, deliver).await?)
        }
    };
    let Dialogue { stream, frames, early } = dialogue;
    let (socket, tls) = stream.into_parts();
    let socket = socket.try_into().map_err(|error: std::io::Error| lost(&error))?;
    let link = Link::new(socket, tls, frames, early, acker, dialect);
    Ok((link, Welcome { probe, risks, denied }))
}

/// A connection on which one thing is asked after the other.
struct Dialogue {
    stream: Stream,
    frames: Frames,
    /// The messages that came meanwhile.
    early: Vec<Incoming>,
}

impl Dialogue {
    async fn log_in(&mut self, endpoint: &Endpoint) -> Result<(), Failure> {
        let login = self.ask(&wire::login(endpoint)).await;
        let refused = match login {
            Ok(answers) => answers.into_iter().next().map(Value::extract_error),
            // A server that expects TLS hangs up on plain text.
            Err(Failure::Lost(why))
                if matches!(endpoint.address, Address::Tcp { .. }) && endpoint.tls.is_none() =>
            {
                let why = format!("{why}; if the server expects TLS, use rediss://");
                return Err(Failure::Lost(why));
            }
            Err(other) => return Err(other),
        };
        // Servers may not know the other commands of a login, which only name the client.
        match refused {
            Some(Err(error)) => Err(wire::without_resp3(wire::failure(&error))),
            _ => Ok(()),
        }
    }

    async fn introduce(
        &mut self,
        endpoint: &Endpoint,
    ) -> Result<(ServerProbe, Vec<Risk>, Delete), Failure> {
        let answers = self.ask(&wire::introduction(&endpoint.client_name, endpoint.db)).await?;
        let (probe, risks) = wire::introduced(&answers, &endpoint.address.to_string())?;
        Ok((probe, risks, answers.first().map_or(Delete::Script, dialect::native_delete)))
    }

    /// The part of `wanted` that the server allows, and what it denies. Scripts publish to `channel`.
    async fn settle(
        &mut self,
        wanted: Dialect,
        channel: Option<&str>,
    ) -> Result<(Dialect, Denied), Failure> {
        let answers = self.ask(&dialect::question(wanted, channel)).await?;
        Ok(dialect::answered(wanted, answers))
    }

    async fn ask_persistence(&mut self, endpoint: &Endpoint) -> Result<Option<Risk>, Failure> {
        let answers = self.ask(&persistence::question()).await?;
        Ok(persistence::forgets(&answers, &endpoint.address.to_string()))
    }

    /// Subscribes to `channels` and checks that messages may be published to the first of them. Returns the reason
    /// if an ACL forbids it.
    async fn listen(&mut self, channels: &[Arc<str>]) -> Result<Option<String>, Failure> {
        let subscription = wire::subscription(channels, true).get_packed_command();
        self.write(&subscription).await?;
        let mut answers = Vec::new();
        let mut unconfirmed = channels.len();
        while unconfirmed > 0 {
            match self.next().await? {
                Value::Push { kind: PushKind::Subscribe, .. } => unconfirmed -= 1,
                Value::Push { .. } => {}
                // An error refuses all of them.
                refused => {
                    answers.push(refused);
                    unconfirmed = 0;
                }
            }
        }
        let mut probes = Pipeline::new();
        probes.cmd("PUBLISH").arg(&*channels[0]).arg("");
        probes.cmd("PUBSUB").arg("NUMSUB").arg(&*channels[0]);
        answers.extend(self.ask(&probes).await?);
        let failed = answers.into_iter().find_map(|answer| answer.extract_error().err());
        match failed.map(|error| wire::failure(&error)) {
            None => Ok(None),
            Some(Failure::Refused(refusal)) => Ok(Some(refusal.to_string())),
            Some(other) => Err(other),
        }
    }

    /// The replies to `pipeline`.
    async fn ask(&mut self, pipeline: &Pipeline) -> Result<Vec<Value>, Failure> {
        self.write(&pipeline.get_packed_pipeline()).await?;
        let mut answers = Vec::with_capacity(pipeline.len());
        while answers.len() < pipeline.len() {
            match self.next().await? {
                Value::Push { .. } => {}
                answer => answers.push(answer),
            }
        }
        Ok(answers)
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.stream.write_all(bytes).await.map_err(|error| lost(&error))?;
        self.stream.flush().await.map_err(|error| lost(&error))
    }

    /// The next value that is no message.
    async fn next(&mut self) -> Result<Value, Failure> {
        loop {
            let frame = match self.frames.next() {
                Ok(frame) => frame.map(wire::value),
                Err(_) => return Err(Failure::Lost(wire::stranger(self.frames.rest()))),
            };
            if let Some(value) = frame {
                let value = value?;
                match pushed(&value) {
                    Some(message) => self.early.push(message),
                    None => return Ok(value),
                }
                continue;
            }
            let count = self.stream.read(self.frames.room()).await.map_err(|error| lost(&error))?;
            if count == 0 {
                return Err(Failure::Lost("the server closed the connection".to_owned()));
            }
            self.frames.fill(count);
        }
    }
}

fn lost(error: &std::io::Error) -> Failure {
    Failure::Lost(error.to_string())
}
