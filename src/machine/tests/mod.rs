//! Scripted and random schedules of the machine against the scripts on an embedded server.

mod cluster;
mod connection;
mod corners;
mod defects;
mod errands;
mod faults;
mod handoff;
mod messages;
mod models;
mod network;
mod order;
mod passing;
mod promises;
mod quorum;
mod quorum_defects;
mod quorum_process;
mod renewal;
mod scripted;
mod server;
mod simulator;
mod snapshot;
mod taking;
mod thefts;
mod waiting;
mod watch;
mod world;
