//! One manager, as JavaScript uses it.

use super::numbers::number;
use super::records::read_time;
use super::submitter::{Remaining, Submit, Submitter};
use crate::faults;
use crate::machine::Stats;
use crate::protocol::Risk;
use crate::server::{Abilities, Resp};
use napi::bindgen_prelude::{Function, Null};
use napi::{Either, Env};
use napi_derive::napi;
use std::rc::Rc;

/// A manager. Dropping it, and the function that starts its operations, releases the held locks as far as possible.
#[napi]
pub struct NativeManager {
    submitter: Rc<Submitter>,
}

#[napi]
impl NativeManager {
    pub(super) const fn new(submitter: Rc<Submitter>) -> Self {
        Self { submitter }
    }

    /// The function that starts operations: `submit(count, length, hasRoom, long?)`, see `Submitter`.
    #[napi(
        catch_unwind,
        ts_return_type = "(count: number, length: number, hasRoom: boolean, long?: Uint8Array) => number"
    )]
    pub fn submitter<'env>(&self, env: &'env Env) -> napi::Result<Submit<'env>> {
        Rc::clone(&self.submitter).function(env)
    }

    /// Does at once what the event loop would do later. Returns whether there are records to drain.
    #[napi(catch_unwind)]
    pub fn turn(&self) -> bool {
        faults::at("catch up");
        self.submitter.handle.turn()
    }

    /// The function that answers how many requests have no answer yet: `unanswered()`.
    #[napi(catch_unwind)]
    pub fn counter<'env>(&self, env: &'env Env) -> napi::Result<Function<'env, (), f64>> {
        Rc::clone(&self.submitter).counter(env)
    }

    /// The function that answers the remaining time of a lease in ms: `remaining(lease)`, 0 if it has ended.
    #[napi(catch_unwind, ts_return_type = "(lease: number) => number")]
    pub fn leases<'env>(&self, env: &'env Env) -> napi::Result<Remaining<'env>> {
        Rc::clone(&self.submitter).leases(env)
    }

    /// The time on the clock of the server of the lock `name`, in ms since 1970; none if it is unknown.
    #[napi(catch_unwind)]
    pub fn server_time(&self, name: String) -> Option<f64> {
        let time = self.submitter.handle.server_time(name)?;
        Some(number(time.as_micros()) / 1000.0)
    }

    /// The time on the manager's clock, in µs: that of its store, if that is in this process.
    #[napi(catch_unwind)]
    pub fn clock(&self) -> f64 {
        faults::at("clock");
        number(self.submitter.handle.now().as_micros())
    }

    /// Moves the clock of a store in this process towards `until`, by the same clock, and stops when there are records to
    /// drain. Returns whether it must be called again.
    #[napi(catch_unwind)]
    pub fn advance(&self, until: f64) -> bool {
        faults::at("advance");
        self.submitter.handle.advance(read_time(until), || self.submitter.completions.has_records())
    }

    /// The manager's counters.
    #[napi(catch_unwind)]
    pub fn stats(&self) -> ManagerStats {
        faults::at("stats");
        let shared = self.submitter.handle.shared();
        let servers = shared.servers().into_iter().map(Into::into).collect();
        ManagerStats { servers, ..shared.stats().into() }
    }
}

/// The counters of a manager, see `Stats` in the machine.
#[napi(object)]
pub struct ManagerStats {
    /// Locks held now.
    pub held: f64,
    /// Locks without a caller now, kept for the next one.
    pub idle: f64,
    /// Acquires without an outcome now.
    pub waiting: f64,
    /// Locks acquired.
    pub acquired: f64,
    /// Locks handed off by another caller of this process.
    pub handed_off: f64,
    /// Acquires that timed out.
    pub timed_out: f64,
    /// Locks lost.
    pub lost: f64,
    /// Leases renewed.
    pub renewals: f64,
    /// Requests sent.
    pub requests: f64,
    /// Hand-offs between processes that took at most 2^i µs.
    pub hand_offs: Vec<f64>,
    /// The connected servers, and those that refuse the login since.
    pub servers: Vec<ServerAbilities>,
}

/// The abilities of a connected server, see `Abilities` of the servers.
#[napi(object)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are independent")]
pub struct ServerAbilities {
    /// Its name for people.
    pub server: String,
    /// The version of RESP.
    pub protocol: u32,
    /// Whether scripts may read its clock.
    pub clock: bool,
    /// Whether publishing and subscribing are allowed.
    pub pubsub: bool,
    /// Whether locks may be taken by plain commands.
    pub plain_commands: bool,
    /// Whether it tells at once of changed keys.
    pub tracking: bool,
    /// Its command for a compare-and-delete; null if a script does it.
    pub compare_and_delete: Either<String, Null>,
    /// The codes of the warnings about it.
    pub risks: Vec<String>,
    /// The server's words, if it refuses the login since the connection was lost; null otherwise.
    pub refused: Either<String, Null>,
}

impl From<Abilities> for ServerAbilities {
    fn from(abilities: Abilities) -> Self {
        let Abilities {
            server,
            resp,
            clock,
            pubsub,
            plain_commands,
            tracking,
            compare_and_delete,
            risks,
            refused,
        } = abilities;
        Self {
            server,
            protocol: match resp {
                Resp::Two => 2,
                Resp::Three => 3,
            },
            clock,
            pubsub,
            plain_commands,
            tracking,
            compare_and_delete: match compare_and_delete {
                Some(command) => Either::A(command.to_owned()),
                None => Either::B(Null),
            },
            risks: risks.iter().map(|risk| code_of(risk).to_owned()).collect(),
            refused: refused.map_or(Either::B(Null), Either::A),
        }
    }
}

/// The code of the warning that JavaScript gives for a risk.
const fn code_of(risk: &Risk) -> &'static str {
    match risk {
        Risk::ActiveReplica(_) => "WARN_LOCK_ACTIVE_REPLICA",
        Risk::Eviction(_) => "WARN_LOCK_EVICTION",
        Risk::Forgets(_) => "WARN_LOCK_PERSISTENCE",
        Risk::Replica(_) => "WARN_LOCK_REPLICA",
    }
}

impl From<Stats> for ManagerStats {
    fn from(stats: Stats) -> Self {
        Self {
            held: number(stats.held),
            idle: number(stats.idle),
            waiting: number(stats.waiting),
            acquired: number(stats.acquired),
            handed_off: number(stats.handed_off),
            timed_out: number(stats.timed_out),
            lost: number(stats.lost),
            renewals: number(stats.renewals),
            requests: number(stats.requests),
            hand_offs: stats.hand_offs.map(number).into(),
            servers: Vec::new(),
        }
    }
}
