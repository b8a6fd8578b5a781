//! Names of locks, tokens and messages, from arbitrary text.

use super::bytes::Bytes;
use crate::protocol::message::free_channel;
use crate::protocol::message::{Message, inbox};
use crate::protocol::{EXACT_MAX, LockKeys, SLOTS, Token};

/// The keys of a lock are unique and in one slot; tokens and messages are read as they are written.
///
/// # Panics
/// If one of these does not hold.
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
    assert!(keys.slot() < SLOTS, "the slot is one of a Cluster's");
    assert_eq!(*keys, LockKeys::from_key(lock));
    // TypeScript refuses such names on a Cluster: the brace would end the tag of the side keys.
    let splits = keys.tag() == lock && (lock.contains('}') || lock.is_empty());
    for side in side_keys(keys) {
        assert_ne!(side, lock);
        let together = LockKeys::from_key(&side).slot() == keys.slot();
        assert!(together || splits, "{side:?} is elsewhere");
        assert_eq!(keys.named_by(&format!("{side} is not a queue")), Some(side));
    }
    // The lock's channel too: a script may publish only to a channel in its slot.
    let channel = format!("holdfast:client:{{{}}}", keys.tag());
    if !keys.tag().is_empty() && !keys.tag().contains('}') {
        assert_eq!(LockKeys::from_key(&channel).slot(), keys.slot());
    }
    assert!(free_channel(keys).ends_with(lock), "the channel ends with its lock");
}

fn check_neighbour(keys: &LockKeys, other: &LockKeys) {
    if keys == other {
        return;
    }
    for (side, theirs) in side_keys(keys).into_iter().zip(side_keys(other)) {
        assert_ne!(side, theirs, "{keys:?} and {other:?} share a key");
    }
}

fn side_keys(keys: &LockKeys) -> [String; 5] {
    keys.side_keys().map(|key| key.to_string())
}

fn check_token(bytes: &mut Bytes<'_>) {
    // Client names contain no dots.
    let client = bytes.text().replace('.', "");
    let (number, label) = (bytes.number(), bytes.text());
    let token = Token::new(&client, number, &label);
    assert_eq!(token.number(&client), Some(number));
    assert_eq!(Token::from_text(token.as_str()), token);
    // Tokens of others are ignored, and no text in Redis may cause a panic.
    let _any = Token::from_text(&bytes.text()).number(&client);
}

fn check_messages(bytes: &mut Bytes<'_>, keys: &LockKeys) {
    let mut exact = || bytes.number() % (EXACT_MAX + 1);
    let (fence, claim, time) = (exact(), exact(), exact());
    let message = format!("hf1.c.7,{fence},{claim} {time} {}", keys.lock());
    let Some(Message::Granted(grants)) = Message::parse(&inbox("s"), &message) else {
        panic!("{message:?} is no grant");
    };
    assert!(
        grants.iter().all(|grant| grant.keys == *keys && grant.fence == fence),
        "each grant has the lock's key and its fence"
    );
    let freed = Message::parse(&free_channel(keys), &format!("free {}", keys.lock()));
    assert_eq!(freed, Some(Message::Freed(keys.clone())));
    let _any = Message::parse(&inbox("s"), &bytes.text());
}
