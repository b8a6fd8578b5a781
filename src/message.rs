//! What the scripts publish to managers.

use crate::clock::ServerTime;
use crate::keys::LockKeys;
use crate::script::exact;
use std::time::Duration;

/// What a script publishes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Message {
    /// A lock of a quorum may be free.
    Freed(LockKeys),
    /// The locks or shares that one call gave to one process.
    Granted(Vec<Grant>),
    /// A lock was taken from its owner.
    Taken(Taken),
}

impl Message {
    /// Reads `free lock`, `stolen token lock`, `adopted token lock`, or grants:
    /// `token,fence,claim_ms[;…] now_us lock`.
    #[must_use]
    pub fn parse(message: &str) -> Option<Self> {
        let (word, rest) = message.split_once(' ')?;
        match word {
            "free" => Some(Self::Freed(LockKeys::from_key(rest))),
            "stolen" | "adopted" => {
                let (token, _lock) = rest.split_once(' ')?;
                let adopted = word == "adopted";
                Some(Self::Taken(Taken { token: token.to_owned(), adopted }))
            }
            grants => Grant::parse(grants, rest).map(Self::Granted),
        }
    }
}

/// A lock that was granted by a message.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Grant {
    /// Whose it is.
    pub token: String,
    /// Strictly greater than every fence issued for this lock before.
    pub fence: u64,
    /// The lease, unless it is claimed for longer.
    pub claim: Duration,
    /// When it was granted, by the server's clock.
    pub time: ServerTime,
    /// The lock.
    pub keys: LockKeys,
}

impl Grant {
    fn parse(grants: &str, rest: &str) -> Option<Vec<Self>> {
        let (time, lock) = rest.split_once(' ')?;
        let number = |digits: &str| exact(digits.parse().ok()?);
        let time = ServerTime::from_micros(number(time)?);
        let keys = LockKeys::from_key(lock);
        let one = |grant: &str| {
            let mut parts = grant.splitn(3, ',');
            Some(Self {
                token: parts.next()?.to_owned(),
                fence: number(parts.next()?)?,
                claim: Duration::from_millis(number(parts.next()?)?),
                time,
                keys: keys.clone(),
            })
        };
        grants.split(';').map(one).collect()
    }
}

/// A lock that was taken from its owner.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Taken {
    /// Whose it was.
    pub token: String,
    /// Whether the owner had passed it on: somebody has adopted it. Stolen otherwise.
    pub adopted: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_read_as_it_is_published() {
        let message =
            "hf1.c.7.a,1700000000000001,3000;hf1.c.9,1700000000000002,50 1700000000000000 lock:a b";
        let Some(Message::Granted(grants)) = Message::parse(message) else { panic!("no grant") };
        let read = |grant: &Grant| (grant.token.clone(), grant.fence, grant.claim.as_millis());
        let [first, second] = [&grants[0], &grants[1]].map(read);
        assert_eq!(first, ("hf1.c.7.a".to_owned(), 1_700_000_000_000_001, 3_000));
        assert_eq!(second, ("hf1.c.9".to_owned(), 1_700_000_000_000_002, 50));
        assert!(grants.iter().all(|grant| grant.keys.lock() == "lock:a b"));
        for bad in [
            "",
            "hf1.c.7,x,3000 1 lock:a",
            "hf1.c.7,1,3000 1",
            "hf1.c.7,1,3000;x 1 lock:a",
            "hf1.c.7,9007199254740992,3000 1 lock:a",
            "hf1.c.7,1,3000 18446744073709551615 lock:a",
        ] {
            assert_eq!(Message::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_is_taken_away_is_read_as_it_is_published() {
        for (message, adopted) in [("adopted hf1.c.7 lock:a b", true), ("stolen hf1.c.7 l", false)]
        {
            let taken = Taken { token: "hf1.c.7".to_owned(), adopted };
            assert_eq!(Message::parse(message), Some(Message::Taken(taken)));
        }
    }
}
