//! Waiting until replicas have a grant, on a connection of its own: WAIT blocks the connection that it is
//! sent on.
//!
//! It counts from the last command of that connection that was replicated, and without one answers at once.
//! So each WAIT follows, in the same write, such a command that was sent after the grant was read, to the
//! same server.
//!
//! Source: <https://redis.io/docs/latest/commands/wait/>

use super::{Deliver, Directory, Endpoint, Incoming, single, wire};
use crate::faults::{self, OnPanic};
use crate::machine::TokenId;
use crate::protocol::error::{DEFECT, Failure, Refusal};
use redis::{Pipeline, Value};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::JoinHandle;

/// How many replicas must have a grant.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Replicas {
    /// So many.
    AtLeast(u32),
    /// With the primary, more than half of all that were ever seen, and at least one.
    Majority,
}

/// How long the replicas may take. Less than a claim lasts, for a grant by message is claimed afterwards.
const WAIT: Duration = Duration::from_secs(1);

/// The task that waits. Dropping it ends it.
pub(super) struct ReplicaAcker {
    grants: UnboundedSender<TokenId>,
    task: JoinHandle<()>,
}

impl ReplicaAcker {
    /// Connects, and checks that the server knows WAIT and is the one that shows `history`.
    pub(super) async fn open(
        endpoint: &Endpoint,
        replicas: Replicas,
        history: Option<String>,
        directory: &Arc<Directory>,
        deliver: Deliver,
    ) -> Result<Self, Failure> {
        let dialled = single::dial(endpoint, |_| {}).await?;
        let mut line = Line { dialled, history, directory: Arc::clone(directory) };
        line.ask(0, Duration::from_millis(1)).await?;
        let (grants, waiting) = mpsc::unbounded_channel();
        let task = tokio::spawn(watch(line, replicas, waiting, deliver));
        Ok(Self { grants, task })
    }

    /// Tells when enough replicas have all that was granted so far.
    pub(super) fn confirm(&self, grant: TokenId) {
        // If the task has ended, so has the connection.
        let _ended = self.grants.send(grant).is_err();
    }
}

impl Drop for ReplicaAcker {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One WAIT at a time answers for all that was granted before it was sent.
async fn watch(
    mut line: Line,
    replicas: Replicas,
    mut waiting: UnboundedReceiver<TokenId>,
    deliver: Deliver,
) {
    let _told = OnPanic(|| deliver(Incoming::Disconnected(DEFECT.to_owned())));
    let mut grants = Vec::new();
    while waiting.recv_many(&mut grants, usize::MAX).await > 0 {
        faults::at("replicas");
        match line.enough(replicas).await {
            Ok(verdict) => {
                for grant in grants.drain(..) {
                    deliver(Incoming::Confirmed(grant, verdict.clone()));
                }
            }
            Err(failure) => return deliver(Incoming::Disconnected(failure.to_string())),
        }
    }
}

struct Line {
    dialled: single::Dialled,
    /// Which data the grants are in.
    history: Option<String>,
    directory: Arc<Directory>,
}

impl Line {
    /// Whether enough replicas have what was written before.
    async fn enough(&mut self, replicas: Replicas) -> Result<Result<(), Refusal>, Failure> {
        loop {
            let needed = self.needed(replicas);
            let acknowledged = self.ask(needed, WAIT).await?;
            if self.needed(replicas) > needed {
                // It has more of them than was known.
                continue;
            }
            if acknowledged >= needed {
                return Ok(Ok(()));
            }
            let ms = WAIT.as_millis();
            let detail = format!("{acknowledged} of {needed} replicas had the lock within {ms} ms");
            return Ok(Err(Refusal { code: "NOREPLICAS".to_owned(), detail }));
        }
    }

    fn needed(&self, replicas: Replicas) -> u32 {
        match replicas {
            Replicas::AtLeast(count) => count,
            // With the primary, which is one of them. One replica is always needed: that none is seen does
            // not mean that there is none.
            Replicas::Majority => self.directory.replicas().div_ceil(2).max(1),
        }
    }

    /// How many replicas have what was written before, as soon as `count` have, or after `limit`.
    async fn ask(&mut self, count: u32, limit: Duration) -> Result<u32, Failure> {
        let mut pipeline = Pipeline::new();
        wire::add_look(&mut pipeline);
        let ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        // To read is not enough from Redis 7.2 and Valkey on. A message is replicated, and leaves nothing.
        pipeline.cmd("PUBLISH").arg("holdfast:replicas").arg("");
        pipeline.cmd("WAIT").arg(count).arg(ms);
        let answers = self.dialled.inner.send_packed_commands(&pipeline, 0, pipeline.len());
        let answers = tokio::time::timeout(limit + WAIT, answers).await;
        let answers = answers
            .map_err(|_| Failure::Lost("no answer to WAIT".to_owned()))?
            .map_err(|error| wire::failure(&error))?;
        let (probe, acknowledged) = answers.split_at(wire::PROBE_COMMANDS.min(answers.len()));
        if wire::probe(probe)?.history != self.history {
            return Err(Failure::Lost("another server took its place".to_owned()));
        }
        let acknowledged = acknowledged.iter().cloned().map(Value::extract_error);
        let acknowledged = acknowledged.collect::<Result<Vec<_>, _>>();
        let acknowledged = acknowledged.map_err(|error| wire::failure(&error))?;
        match acknowledged.as_slice() {
            [Value::Int(_), Value::Int(count)] => {
                self.directory.saw_replicas(wire::connected_replicas(probe));
                Ok(u32::try_from(*count).unwrap_or(0))
            }
            _ => Err(Failure::Lost("the server left an answer out".to_owned())),
        }
    }
}
