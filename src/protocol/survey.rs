//! The results of server probes.

/// The answers of one server.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Survey {
    /// The server's name, without login.
    pub server: String,
    /// Why it could not be probed, if so. The rest is empty then.
    pub failure: Option<String>,
    /// The durations of a few round trips, in µs.
    pub round_trips: Vec<u64>,
    /// How far its clock is ahead of this machine's, in µs, by the quickest round trip.
    pub ahead: i64,
    /// Its answers, in the order of the probe's commands.
    pub answers: Vec<Answer>,
}

/// The answer to one command.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Answer {
    /// The text of the answer, an item per line.
    pub text: String,
    /// Whether the server refused the command.
    pub refused: bool,
}
