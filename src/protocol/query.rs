//! What a query found.

/// A part of what there is.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Page {
    /// Where to go on; empty at the end.
    pub cursor: String,
    /// Who holds a lock.
    pub held: Vec<Holding>,
    /// Who waits for one.
    pub pending: Vec<Waiting>,
}

/// One holder of a lock.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Holding {
    /// The lock's key.
    pub key: String,
    /// Whether it is a share.
    pub shared: bool,
    /// The owner token.
    pub token: String,
    /// Of the whole lock the last fence that is reserved for its owner.
    pub fence: u64,
    /// The lease that is left, in ms; negative if it never ends by itself.
    pub remaining_ms: i64,
}

/// One who waits for a lock.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Waiting {
    /// The lock's key.
    pub key: String,
    /// Whether it wants a share.
    pub shared: bool,
    /// Its token.
    pub token: String,
    /// 1 for who is next.
    pub position: u32,
}

/// What is asked for.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Question {
    /// Where the page before it ended; empty at the beginning.
    pub cursor: String,
    /// What the keys begin with.
    pub starts_with: String,
    /// How many keys are looked at, about.
    pub count: u32,
}
