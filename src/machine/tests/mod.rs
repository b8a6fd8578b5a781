//! Scripted and random schedules of the machine against a model of the server.

mod random;
mod renewal;
mod scripted;
mod world;
