//! Scripted and random schedules of the machine against the scripts on an embedded server.

mod renewal;
mod scripted;
mod simulator;
mod waiting;
mod world;
