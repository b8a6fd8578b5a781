//! What the servers of a place tell about themselves.

/// What one server answered.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Survey {
    /// The server, without login.
    pub server: String,
    /// Why it could not be asked, if so. The rest is empty then.
    pub failure: Option<String>,
    /// How long each of a few round trips took, in µs.
    pub round_trips: Vec<u64>,
    /// How far its clock is ahead of this machine's, in µs, as far as the quickest round trip can tell.
    pub ahead: i64,
    /// Its answers, in the order of the questions.
    pub answers: Vec<Answer>,
}

/// An answer to one question.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Answer {
    /// What it said, an item per line.
    pub text: String,
    /// Whether it refused to answer.
    pub refused: bool,
}
