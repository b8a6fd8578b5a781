//! Failures between a manager and its server, by what is known afterwards.

use super::ids::NodeId;
use thiserror::Error;

/// The error for callers when a task of ours has panicked.
pub const DEFECT: &str = "a defect of holdfast, please report it";

/// The code of a refusal whose key holds another type of data, and so nothing of a lock.
pub const WRONG_TYPE: &str = "WRONGTYPE";

/// The server answered with an error. The request changed nothing.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("{code} {detail}")]
pub struct Refusal {
    /// The first word of the server's error, such as `NOPERM` or `LOADING`.
    pub code: String,
    /// The rest of it.
    pub detail: String,
}

impl Refusal {
    /// For a request that two servers of a Cluster have redirected in turn.
    #[must_use]
    pub fn redirected(slot: u16) -> Self {
        let detail = format!("the servers of the Cluster redirect slot {slot} to each other");
        Self { code: "REDIRECTED".to_owned(), detail }
    }

    /// For a request that names keys on both servers of a slot that moves.
    #[must_use]
    pub fn apart(slot: u16) -> Self {
        let detail = format!("slot {slot} is moving, and its keys are on two servers");
        Self { code: "TRYAGAIN".to_owned(), detail }
    }

    /// Whether the server has refused a login, or wants one. Redis before 6 and Kvrocks have no code for a wrong password.
    #[must_use]
    pub fn is_login(&self) -> bool {
        matches!(self.code.as_str(), "WRONGPASS" | "NOAUTH")
            || self.code == "ERR" && self.detail.to_ascii_lowercase().contains("invalid password")
    }

    /// Whether the server would refuse any connection with this login: it is wrong, or lacks a right.
    #[must_use]
    pub fn is_about_login(&self) -> bool {
        self.is_login() || self.code == "NOPERM"
    }

    /// Whether the server lacks a resource that may return: memory, replicas, a working disk.
    #[must_use]
    pub fn is_shortage(&self) -> bool {
        matches!(self.code.as_str(), "MISCONF" | "NOREPLICAS" | "OOM")
    }

    /// Whether the same request can succeed a moment later without help.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        // It has no code of its own for that.
        let is_full = self.code == "ERR" && self.detail.contains("max number of clients");
        is_full
            || matches!(
                self.code.as_str(),
                "BUSY"
                    | "CLUSTERDOWN"
                    | "LOADING"
                    | "MASTERDOWN"
                    | "READONLY"
                    | "REDIRECTED"
                    | "TRYAGAIN"
            )
    }
}

/// Why a request has no reply of its script.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum Failure {
    /// The connection broke or stayed silent. The request may have been executed, or may yet be.
    #[error("{0}")]
    Lost(String),
    /// The lock's slot is moving, which stopped a script in its middle. Its writes before that stand.
    #[error("the lock is moving to another server")]
    Halfway,
    /// The lock's slot lives on another server; the request was not executed.
    #[error("the lock is on another server")]
    Moved(NodeId),
    /// The lock's slot is moving to another server, which must get this request.
    #[error("the lock is moving to another server")]
    Moving(NodeId),
    /// Too many servers of a quorum failed for any majority. The cause of each, by node number; empty where there was
    /// none.
    #[error("no majority of the servers: {}", .0.join("; "))]
    NoQuorum(Vec<String>),
    /// The request was sent with others about the same lock, which the server could not carry out together. It was not
    /// executed.
    #[error("the request must be sent alone")]
    Together,
    /// The server does not know the script by its hash; it was not executed.
    #[error("the server does not know the script")]
    NoScript,
    /// The server refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: &str, detail: &str) -> Refusal {
        Refusal { code: code.to_owned(), detail: detail.to_owned() }
    }

    #[test]
    fn refusals_are_known_by_their_codes() {
        for (code, detail, [login, about_login, shortage, transient]) in [
            ("WRONGPASS", "", [true, true, false, false]),
            ("NOAUTH", "", [true, true, false, false]),
            ("ERR", "invalid password", [true, true, false, false]),
            ("ERR", "Invalid Password given", [true, true, false, false]),
            ("NOPERM", "invalid password", [false, true, false, false]),
            ("MISCONF", "", [false, false, true, false]),
            ("NOREPLICAS", "", [false, false, true, false]),
            ("OOM", "", [false, false, true, false]),
            ("BUSY", "", [false, false, false, true]),
            ("CLUSTERDOWN", "", [false, false, false, true]),
            ("LOADING", "", [false, false, false, true]),
            ("MASTERDOWN", "", [false, false, false, true]),
            ("READONLY", "", [false, false, false, true]),
            ("REDIRECTED", "", [false, false, false, true]),
            ("TRYAGAIN", "", [false, false, false, true]),
            ("ERR", "max number of clients reached", [false, false, false, true]),
            ("NOPERM", "max number of clients reached", [false, true, false, false]),
            ("ERR", "unknown command", [false; 4]),
            ("WRONGTYPE", "", [false; 4]),
            ("FENCE", "", [false; 4]),
            ("loading", "", [false; 4]),
        ] {
            let it = refused(code, detail);
            let is = [it.is_login(), it.is_about_login(), it.is_shortage(), it.is_transient()];
            assert_eq!(is, [login, about_login, shortage, transient], "{it}");
        }
    }

    #[test]
    fn failures_say_what_is_known() {
        let causes = ["away", "", "late"].map(str::to_owned).to_vec();
        for (failure, text) in [
            (Failure::Lost("cut".to_owned()), "cut"),
            (Failure::Halfway, "the lock is moving to another server"),
            (Failure::Moved(NodeId(1)), "the lock is on another server"),
            (Failure::Moving(NodeId(1)), "the lock is moving to another server"),
            (Failure::NoQuorum(causes), "no majority of the servers: away; ; late"),
            (Failure::NoScript, "the server does not know the script"),
            (Failure::Refused(refused("OOM", "no memory")), "OOM no memory"),
            (
                Refusal::redirected(7).into(),
                "REDIRECTED the servers of the Cluster redirect slot 7 to each other",
            ),
            (
                Refusal::apart(7).into(),
                "TRYAGAIN slot 7 is moving, and its keys are on two servers",
            ),
        ] {
            assert_eq!(failure.to_string(), text);
        }
    }
}
