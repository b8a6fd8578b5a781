//! Names of locks, tokens and messages, whatever callers and servers make of them.

use super::Bytes;
use crate::protocol::keys::{LockKeys, SLOTS};
use crate::protocol::message::free_channel;
use crate::protocol::message::{Message, inbox};
use crate::protocol::reply::EXACT_MAX;
use crate::protocol::token::Token;

/// Keys of a lock are its own and lie in one slot; tokens and messages are read as they are written.
///
/// # Panics
/// If that is not so.
pub fn names(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    let (prefix, name) = (bytes.text(), bytes.text());
    let keys = LockKeys::new(&prefix, &name);
    check_keys(&keys, &format!("{prefix}{name}"));
    check_neighbour(&keys, &LockKeys::new(&bytes.text(), &bytes.text()));
    check_token(&mut bytes);
    check_messages(&mut bytes, &keys);
}

fn check_keys(keys: &LockKeys, lock: &str) {
    assert_eq!(keys.lock(), lock);
    assert!(keys.slot() < SLOTS);
    assert_eq!(*keys, LockKeys::from_key(lock));
    // Nobody may call a lock so on a Cluster: the brace would end the tag of its side keys.
    let splits = keys.tag() == lock && (lock.contains('}') || lock.is_empty());
    for side in side_keys(keys) {
        assert_ne!(side, lock);
        let together = LockKeys::from_key(&side).slot() == keys.slot();
        assert!(together || splits, "{side:?} is elsewhere");
        assert_eq!(keys.named_by(&format!("{side} is not a queue")), Some(side));
    }
    // A channel of the lock, too: a script may publish to what is in its slot alone.
    let channel = format!("holdfast:client:{{{}}}", keys.tag());
    if !keys.tag().is_empty() && !keys.tag().contains('}') {
        assert_eq!(LockKeys::from_key(&channel).slot(), keys.slot());
    }
    assert!(free_channel(keys).ends_with(lock));
}

fn check_neighbour(keys: &LockKeys, other: &LockKeys) {
    if keys == other {
        return;
    }
    for (side, theirs) in side_keys(keys).into_iter().zip(side_keys(other)) {
        assert_ne!(side, theirs, "{keys:?} and {other:?} share a key");
    }
}

fn side_keys(keys: &LockKeys) -> [String; 4] {
    keys.side_keys().map(|key| key.to_string())
}

fn check_token(bytes: &mut Bytes<'_>) {
    // What a manager calls itself has no dots.
    let client = bytes.text().replace('.', "");
    let (number, label) = (bytes.number(), bytes.text());
    let token = Token::new(&client, number, &label);
    assert_eq!(token.number(&client), Some(number));
    assert_eq!(Token::from_text(token.as_str()), token);
    // Another's is nobody's business, and whatever stands in Redis is no reason to panic.
    let _any = Token::from_text(&bytes.text()).number(&client);
}

fn check_messages(bytes: &mut Bytes<'_>, keys: &LockKeys) {
    let mut exact = || bytes.number() % (EXACT_MAX + 1);
    let (fence, claim, time) = (exact(), exact(), exact());
    let message = format!("hf1.c.7,{fence},{claim} {time} {}", keys.lock());
    let Some(Message::Granted(grants)) = Message::parse(&inbox("s"), &message) else {
        panic!("{message:?} is no grant");
    };
    assert!(grants.iter().all(|grant| grant.keys == *keys && grant.fence == fence));
    let freed = Message::parse(&free_channel(keys), &format!("free {}", keys.lock()));
    assert_eq!(freed, Some(Message::Freed(keys.clone())));
    let _any = Message::parse(&inbox("s"), &bytes.text());
}
