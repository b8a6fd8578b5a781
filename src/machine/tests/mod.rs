//! Scripted and random schedules of the machine against the scripts on an embedded server.

mod bursts;
mod caller_order;
mod callers;
mod campaign;
mod cluster;
mod cluster_faults;
mod cluster_servers;
mod components;
mod connection;
mod corners;
mod defects;
mod fast_path;
mod faults;
mod foreign;
mod handoff;
mod idling;
mod internals;
mod kept;
mod known_defects;
mod learning;
mod ledger;
mod member;
mod messages;
mod models;
mod network;
mod one_shots;
mod order;
mod outages;
mod owned;
mod owners;
mod polling;
mod process;
mod promises;
mod quorum;
mod quorum_ballots;
mod quorum_corners;
mod quorum_defects;
mod quorum_process;
mod quorum_server;
mod quorum_watch;
mod renewal;
mod script_effects;
mod script_grants;
mod script_queue;
mod script_shares;
mod scripted;
mod server;
mod share_handoff;
mod simulator;
mod snapshot;
mod steps;
mod theft_rules;
mod thefts;
mod told;
mod under_way;
mod values;
mod waiting;
mod watch;
mod world;
mod written;

use super::context::Context;
use crate::protocol::Mono;

/// What the parts of a machine share, for tests of one part by itself.
pub(super) fn context_at(now: Mono) -> Context {
    let mut context = world::World::new("c").machine.context;
    context.now = now;
    context
}
