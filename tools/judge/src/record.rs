//! The records of a history: a JSON object in each line, as `tools/judge/README.md` describes them.

use serde::Deserialize;
use std::io::{Error, ErrorKind, Result};
use std::path::Path;

/// The first line.
#[derive(Debug, Deserialize)]
pub struct Header {
    /// The name and the version of the form.
    pub format: String,
    /// What was recorded, for people.
    pub title: String,
}

/// What a caller asked for, or was told.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// It asked for the lock.
    Acquire,
    /// It asked for a lock that it had already.
    Reenter,
    /// It gave back what it had entered again.
    Leave,
    /// It read that it holds the lock.
    Held,
    /// It had the lease lengthened.
    Extend,
    /// It turned the whole lock into a share.
    Downgrade,
    /// It took the lock over from another process.
    Adopt,
    /// It gave the lock back.
    Release,
    /// It was told that it has lost the lock.
    Lost,
    /// A fault after which nobody is promised to be alone: the server lost data, or the lock was taken by force.
    Forget,
}

/// How an action ended. Without an outcome it never returned.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It was done.
    Ok,
    /// It was not done: somebody else had the lock.
    Refused,
    /// Nobody knows: an error, or no answer.
    Unknown,
}

/// How a lock was asked for.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The whole lock.
    Exclusive,
    /// A share of it, or a permit.
    Shared,
}

/// One line. Times are µs of one clock.
#[derive(Clone, Debug, Deserialize)]
pub struct Record {
    /// Who it was.
    #[serde(default)]
    pub process: String,
    /// Which lock; nothing for a fault of all locks.
    pub lock: Option<String>,
    /// What it did.
    pub action: Action,
    /// The hold, by a name of its own.
    pub hold: Option<String>,
    /// Right before the call.
    pub call: u64,
    /// Right after the answer.
    #[serde(rename = "return")]
    pub returned: Option<u64>,
    /// How it ended.
    pub outcome: Option<Outcome>,
    /// How it was asked for; whole by default.
    pub mode: Option<Mode>,
    /// The largest number of holders at the grant.
    pub limit: Option<usize>,
    /// The fence of the grant; nothing for locks that have none.
    pub fence: Option<u64>,
    /// To adopt: the fence of the hold that was taken over.
    pub from: Option<u64>,
    /// Until when the caller was told that it holds the lock.
    pub until: Option<u64>,
}

impl Record {
    /// The time of the answer, if the action was done for certain.
    #[must_use]
    pub fn done(&self) -> Option<u64> {
        self.returned.filter(|_| self.outcome == Some(Outcome::Ok))
    }
}

/// A file.
#[derive(Debug)]
pub struct File {
    /// Its first line.
    pub header: Header,
    /// All others.
    pub records: Vec<Record>,
}

/// The form that this program reads.
const FORMAT: &str = "holdfast-history/1";

/// Reads a file.
///
/// # Errors
///
/// If it cannot be read, or is not of the form.
pub fn read(path: &Path) -> Result<File> {
    parse(&std::fs::read_to_string(path)?)
        .map_err(|error| Error::new(ErrorKind::InvalidData, format!("{}: {error}", path.display())))
}

/// Reads the text of a file.
///
/// # Errors
///
/// If it is not of the form.
pub fn parse(text: &str) -> Result<File> {
    let mut lines = text.lines();
    let header: Header = serde_json::from_str(lines.next().unwrap_or_default())?;
    if header.format != FORMAT {
        return Err(Error::other(format!("it is in the form {}, not {FORMAT}", header.format)));
    }
    let records = lines.map(serde_json::from_str).collect::<serde_json::Result<_>>()?;
    Ok(File { header, records })
}
