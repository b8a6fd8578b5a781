//! Scripted and random schedules of the machine against the scripts on an embedded server.

mod random;
mod renewal;
mod scripted;
mod waiting;
mod world;
