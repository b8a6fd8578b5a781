//! Waits until replicas have a grant, on a connection of its own, because WAIT blocks its connection.
//!
//! WAIT covers the commands up to the last replicated one of its connection; without one it answers at once.
//! So each WAIT follows, in the same write, such a command that was sent after the grant was read, to the
//! same server.
//!
//! Source: <https://redis.io/docs/latest/commands/wait/>

use super::dialogue::Dialogue;
use super::{Directory, wire};
use crate::faults::{self, OnPanic};
use crate::protocol::{DEFECT, Failure, Refusal, TokenId};
use crate::server::{Deliver, Endpoint, Incoming, Login, LoginSource, Replicas};
use redis::{Pipeline, Value};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::JoinHandle;

/// The timeout of WAIT. Shorter than a claim, because a grant by message is claimed afterwards.
const WAIT: Duration = Duration::from_secs(1);

/// The task that sends WAIT. Dropping it ends it.
pub(super) struct ReplicaAcker {
    grants: UnboundedSender<TokenId>,
    task: JoinHandle<()>,
}

impl ReplicaAcker {
    /// Connects as `first` says, and later as `endpoint`, and checks that the server knows WAIT and has this replication id.
    pub(super) async fn open(
        (endpoint, first): (&Endpoint, &Endpoint),
        replicas: Replicas,
        replication_id: Option<String>,
        directory: &Arc<Directory>,
        deliver: Deliver,
    ) -> Result<Self, Failure> {
        let dialogue = Dialogue::open(first).await?;
        let mut connection =
            WaitConnection { dialogue, replication_id, directory: Arc::clone(directory) };
        connection.ask(0, Duration::from_millis(1)).await?;
        let (grants, waiting) = mpsc::unbounded_channel();
        let task = tokio::spawn(watch(endpoint.clone(), connection, replicas, waiting, deliver));
        Ok(Self { grants, task })
    }

    /// Reports when enough replicas have all grants so far.
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

/// One WAIT at a time, which covers all grants before it.
async fn watch(
    endpoint: Endpoint,
    mut connection: WaitConnection,
    replicas: Replicas,
    mut waiting: UnboundedReceiver<TokenId>,
    deliver: Deliver,
) {
    let _reported = OnPanic(|| deliver(Incoming::Disconnected(DEFECT.to_owned())));
    let mut grants = Vec::new();
    let mut refused: Option<Arc<Login>> = None;
    loop {
        let login = connection.dialogue.login();
        let patience = endpoint.connect_timeout;
        tokio::select! {
            count = waiting.recv_many(&mut grants, usize::MAX) => if count == 0 { return },
            next = endpoint.login_source.next(&login, refused.as_deref(), patience, drop) => {
                match connection.dialogue.log_in_again(&next).await {
                    Ok(()) => refused = None,
                    Err(Failure::Refused(_)) => {
                        refused = Some(next);
                        LoginSource::pause().await;
                    }
                    Err(failure) => return deliver(Incoming::Disconnected(failure.to_string())),
                }
                continue;
            }
        }
        faults::at("replicas");
        match connection.enough(replicas).await {
            Ok(verdict) => {
                for grant in grants.drain(..) {
                    deliver(Incoming::Confirmed(grant, verdict.clone()));
                }
            }
            Err(failure) => return deliver(Incoming::Disconnected(failure.to_string())),
        }
    }
}

struct WaitConnection {
    dialogue: Dialogue,
    /// The replication id of the data that the grants are in.
    replication_id: Option<String>,
    directory: Arc<Directory>,
}

impl WaitConnection {
    /// Whether enough replicas have all earlier writes.
    async fn enough(&mut self, replicas: Replicas) -> Result<Result<(), Refusal>, Failure> {
        loop {
            let needed = self.needed(replicas);
            let acknowledged = self.ask(needed, WAIT).await?;
            if self.needed(replicas) > needed {
                // More replicas have connected meanwhile.
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
            // The primary counts as one server. At least one replica is needed, even if none was ever seen.
            Replicas::Majority => self.directory.replicas().div_ceil(2).max(1),
        }
    }

    /// The number of replicas with all earlier writes, once it is `count` or after `limit`.
    async fn ask(&mut self, count: u32, limit: Duration) -> Result<u32, Failure> {
        let mut pipeline = Pipeline::new();
        wire::add_probe(&mut pipeline);
        let ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        // From Redis 7.2 and Valkey on, a read is not enough. A message is replicated and leaves no data.
        pipeline.cmd("PUBLISH").arg("holdfast:replicas").arg("");
        pipeline.cmd("WAIT").arg(count).arg(ms);
        let answers = self.dialogue.ask(&pipeline);
        let answers = tokio::time::timeout(limit + WAIT, answers).await;
        let answers = answers.map_err(|_| Failure::Lost("no answer to WAIT".to_owned()))??;
        let (probe, acknowledged) = answers.split_at(wire::PROBE_COMMANDS.min(answers.len()));
        if wire::probe(probe)?.replication_id != self.replication_id {
            return Err(Failure::Lost("another server replaced it".to_owned()));
        }
        let acknowledged = acknowledged.iter().cloned().map(Value::extract_error);
        let acknowledged = acknowledged.collect::<Result<Vec<_>, _>>();
        let acknowledged = acknowledged.map_err(|error| wire::failure(&error))?;
        match acknowledged.as_slice() {
            [Value::Int(_), Value::Int(count)] => {
                self.directory.saw_replicas(wire::connected_replicas(probe));
                Ok(u32::try_from(*count).unwrap_or(0))
            }
            _ => Err(Failure::Lost("the server sent too few answers".to_owned())),
        }
    }
}
