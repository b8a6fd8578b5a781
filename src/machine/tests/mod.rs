//! Scripted and random schedules of the machine against the scripts on an embedded server.

mod corners;
mod defects;
mod promises;
mod renewal;
mod scripted;
mod simulator;
mod waiting;
mod watch;
mod world;
