//! Scripted and random schedules of the machine against the scripts on an embedded server.

mod corners;
mod renewal;
mod scripted;
mod simulator;
mod waiting;
mod world;
