//! The messages to managers.

use crate::protocol::clock::ServerTime;
use crate::protocol::keys::LockKeys;
use crate::protocol::reply::exact;
use crate::protocol::token::Token;
use std::sync::Arc;
use std::time::Duration;

/// A message to a manager: all but those about changed keys, which are the server's own, are published by scripts.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Message {
    /// The key of a tracked lock has changed, or the server forgets that it is tracked.
    Changed(LockKeys),
    /// The same of every lock that is tracked there.
    AllChanged,
    /// A lock of a quorum may be free.
    Freed(LockKeys),
    /// The locks or shares that one call granted to one process.
    Granted(Vec<Grant>),
    /// A lock was taken from its owner.
    Taken(Taken),
}

impl Message {
    /// Parses a message on `channel`: `free lock`, `stolen token lock`, `adopted token lock`, or grants:
    /// `token,fence,ttl_ms[;…] now_us lock`. None if no script of ours publishes it there: any client with the right
    /// to publish may know a client id, but not the name of an inbox.
    #[must_use]
    pub fn parse(channel: &str, message: &str) -> Option<Self> {
        let (word, rest) = message.split_once(' ')?;
        match word {
            "free" => {
                let keys = LockKeys::from_key(rest);
                (*free_channel(&keys) == *channel).then_some(Self::Freed(keys))
            }
            "stolen" | "adopted" => {
                let (token, lock) = rest.split_once(' ')?;
                let token = Token::from_text(token);
                let loss =
                    Taken { keys: LockKeys::from_key(lock), adopted: word == "adopted", token };
                let meant = loss.token.client().map(notices);
                meant.is_some_and(|meant| *meant == *channel).then_some(Self::Taken(loss))
            }
            _ if !channel.starts_with(INBOX) => None,
            grants => Grant::parse(grants, rest).map(Self::Granted),
        }
    }
}

/// The start of every inbox's name.
const INBOX: &str = "holdfast:inbox:";

/// The channel of a manager's grants. `secret` is known to this manager and its servers alone: a forged grant would
/// start a second holder.
#[must_use]
pub fn inbox(secret: &str) -> Arc<str> {
    [INBOX, secret].concat().into()
}

/// The channel on which the manager `client`, whose name is in its tokens, learns that a lock was taken from it. Any
/// client may know it, so its messages are hints.
#[must_use]
pub fn notices(client: &str) -> Arc<str> {
    ["holdfast:", client].concat().into()
}

/// The beginning of every [`free_channel`].
pub const FREE_CHANNELS: &str = "holdfast:free:";

/// The channel on which the waiters for a lock of a quorum learn that it may be free.
#[must_use]
pub fn free_channel(keys: &LockKeys) -> Arc<str> {
    format!("{FREE_CHANNELS}{}", keys.lock()).into()
}

/// A grant by message.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Grant {
    /// The owner token.
    pub token: Token,
    /// Strictly greater than every fence issued for this lock before.
    pub fence: u64,
    /// The lease, until the owner claims it for longer.
    pub claim: Duration,
    /// The server's clock at the grant.
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
                token: Token::from_text(parts.next()?),
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
    /// The lock.
    pub keys: LockKeys,
    /// The former owner's token.
    pub token: Token,
    /// Whether it was adopted by a caller to whom the owner had exported the token. Stolen otherwise.
    pub adopted: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_read_as_it_is_published() {
        let message =
            "hf1.c.7.a,1700000000000001,3000;hf1.c.9,1700000000000002,50 1700000000000000 lock:a b";
        let channel = inbox("s");
        let Some(Message::Granted(grants)) = Message::parse(&channel, message) else {
            panic!("no grant")
        };
        let read = |grant: &Grant| (grant.token.to_string(), grant.fence, grant.claim.as_millis());
        let [first, second] = [&grants[0], &grants[1]].map(read);
        assert_eq!(first, ("hf1.c.7.a".to_owned(), 1_700_000_000_000_001, 3_000));
        assert_eq!(second, ("hf1.c.9".to_owned(), 1_700_000_000_000_002, 50));
        assert!(
            grants.iter().all(|grant| grant.keys.lock() == "lock:a b"),
            "each grant is of the lock that the message names"
        );
        for bad in [
            "",
            "hf1.c.7,x,3000 1 lock:a",
            "hf1.c.7,1,3000 1",
            "hf1.c.7,1,3000;x 1 lock:a",
            "hf1.c.7,9007199254740992,3000 1 lock:a",
            "hf1.c.7,1,3000 18446744073709551615 lock:a",
        ] {
            assert_eq!(Message::parse(&channel, bad), None, "{bad}");
        }
    }

    #[test]
    fn what_is_taken_away_is_read_as_it_is_published() {
        for (message, adopted) in [("adopted hf1.c.7 lock:a b", true), ("stolen hf1.c.7 l", false)]
        {
            let lock = message.splitn(3, ' ').last().unwrap();
            let token = Token::from_text("hf1.c.7");
            let loss = Taken { keys: LockKeys::from_key(lock), token, adopted };
            assert_eq!(Message::parse("holdfast:c", message), Some(Message::Taken(loss)));
        }
    }

    #[test]
    fn nothing_is_believed_that_no_script_publishes_on_its_channel() {
        let grant = "hf1.c.7,1700000000000001,3000 1700000000000000 lock:a";
        for (channel, message) in [
            ("holdfast:c", grant),
            ("holdfast:free:lock:a", grant),
            ("holdfast:inbox:s", "stolen hf1.c.7 lock:a"),
            ("holdfast:d", "stolen hf1.c.7 lock:a"),
            ("holdfast:c", "free lock:a"),
            ("holdfast:free:lock:b", "free lock:a"),
        ] {
            assert_eq!(Message::parse(channel, message), None, "{message} on {channel}");
        }
    }

    #[test]
    fn a_lock_of_a_quorum_is_free_on_its_channel() {
        let keys = LockKeys::new("lock:", "a b");
        assert_eq!(&*free_channel(&keys), "holdfast:free:lock:a b");
        let parsed = Message::parse("holdfast:free:lock:a b", "free lock:a b");
        assert_eq!(parsed, Some(Message::Freed(keys)));
        assert_eq!((&*inbox("s"), &*notices("c")), ("holdfast:inbox:s", "holdfast:c"));
        for bad in ["free", "stolen", "stolen hf1.c.7", "adopted x lock:a"] {
            assert_eq!(Message::parse("holdfast:c", bad), None, "{bad}");
        }
    }

    #[test]
    fn the_numbers_of_a_grant_are_exact() {
        let parse = |text: &str| match Message::parse("holdfast:inbox:s", text) {
            Some(Message::Granted(grants)) => {
                grants.first().map(|it| (it.fence, it.claim.as_millis(), it.time.as_micros()))
            }
            None => None,
            other => panic!("{other:?}"),
        };
        let most = "9007199254740991";
        let number = (1 << 53) - 1;
        let all = parse(&format!("hf1.c.7,{most},{most} {most} lock:a"));
        assert_eq!(all, Some((number, u128::from(number), number)));
        assert_eq!(parse("hf1.c.7,1,9007199254740992 1 lock:a"), None);
        assert_eq!(parse("hf1.c.7,1,1 9007199254740992 lock:a"), None);
        assert_eq!(parse("hf1.c.7,-1,1 1 lock:a"), None);
    }
}
