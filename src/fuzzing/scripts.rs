//! The scripts on a keyspace with arbitrary content.

use super::{Entries, Store, access};
use crate::fuzzing::Bytes;
use crate::protocol::keys::COUNTER;
use crate::protocol::{
    Call, Counters, EXACT_MAX, FENCE_MAX, Failure, Intent, LockKeys, Mode, Script, ServerTime,
    Token,
};
use crate::server::redis::{Dialect, wire};
use redis::Value;
use std::cell::RefCell;
use std::time::Duration;

/// More steps find no additional defects.
const STEPS_MAX: usize = 64;

/// Runs scripts as the core calls them, scripts with invalid arguments, and commands of other clients that
/// write to the same keys.
///
/// # Panics
/// If a script that fails has changed anything, or gives a reply that is not one of its own.
pub fn scripts(data: &[u8]) {
    thread_local! {
        // Starting a Lua and compiling the scripts takes longer than running them.
        static STORE: RefCell<Store> = RefCell::new(Store::new());
    }
    STORE.with_borrow_mut(|store| {
        store.reset();
        // A client that listens to an inbox can be granted a lock by message.
        store.subscribe(1, "inbox");
        Scene { store, now_ms: 1_700_000_000_000 }.play(&mut Bytes::new(data));
    });
}

struct Scene<'a> {
    store: &'a mut Store,
    now_ms: u64,
}

impl Scene<'_> {
    fn play(&mut self, bytes: &mut Bytes<'_>) {
        for _ in 0..STEPS_MAX {
            if bytes.is_empty() {
                return;
            }
            match bytes.below(8) {
                0 => self.now_ms = self.now_ms.saturating_add(bytes.number() % 100_000),
                1 | 2 => self.meddle(bytes),
                3 => self.nonsense(bytes),
                _ => self.call(bytes),
            }
            let _published = self.store.take_messages();
        }
    }

    fn now(&self) -> ServerTime {
        ServerTime::from_micros(self.now_ms * 1_000)
    }

    /// Another client writes to a key of a lock.
    fn meddle(&self, bytes: &mut Bytes<'_>) {
        let keys = lock(bytes);
        let key = key(bytes, &keys);
        let name = bytes.pick(&["SET", "HSET", "ZADD", "DEL", "PEXPIRE", "INCRBY", "APPEND"]);
        let member = if bytes.flag() { token(bytes).as_str().to_owned() } else { bytes.text() };
        // In the range that Lua keeps exactly: no clock shows a later time, and holdfast writes none.
        let number = (bytes.number() % EXACT_MAX).to_string();
        let parts = match name {
            "SET" => vec![name, &key, &member, "PX", &number],
            "HSET" => vec![name, &key, &member, &number],
            "ZADD" => vec![name, &key, &number, &member],
            "PEXPIRE" | "INCRBY" => vec![name, &key, &number],
            "APPEND" => vec![name, &key, &member],
            _ => vec![name, &key],
        };
        let parts: Vec<&[u8]> = parts.into_iter().map(str::as_bytes).collect();
        let _answer = self.store.command(self.now(), &parts);
    }

    /// Runs a script with keys and arguments of which only some are valid.
    fn nonsense(&mut self, bytes: &mut Bytes<'_>) {
        let source = bytes.pick(&Script::ALL).source();
        let keys = lock(bytes);
        let keys: Vec<String> = (0..bytes.below(7)).map(|_| key(bytes, &keys)).collect();
        let args: Vec<String> = (0..bytes.below(9)).map(|_| argument(bytes)).collect();
        let [keys, args] = [&keys, &args].map(|texts| texts.iter().map(String::as_bytes).collect());
        let (keys, args): (Vec<&[u8]>, Vec<&[u8]>) = (keys, args);
        let _answer = self.store.eval(self.now(), source, &keys, &args);
    }

    /// Runs a script as the core does.
    fn call(&mut self, bytes: &mut Bytes<'_>) {
        let call = any_call(bytes);
        let before = self.save();
        let Some(script) = call.script() else { return };
        let counters = bytes.pick(&[Counters::Server, Counters::Locks]);
        let command = wire::command(&call, Dialect { counters, ..Dialect::PLAIN });
        let (keys, args) = command.keys_and_arguments();
        let value = self.store.eval(self.now(), script.source(), &keys, &args);
        let failed = matches!(value, Value::ServerError(_));
        let reply = wire::reply(script, value);
        // A lost connection would let the keys of one lock break the connection for all.
        assert!(!matches!(reply, Err(Failure::Lost(_))), "{call:?} was answered {reply:?}");
        if failed {
            assert!(matches!(reply, Err(Failure::Refused(_))), "{reply:?}");
            assert_eq!(
                self.save(),
                before,
                "{call:?} was refused ({reply:?}) and changed something"
            );
        }
    }

    /// The content of the keys that have not expired.
    fn save(&self) -> Entries {
        let mut keyspace = access(&self.store.keyspace);
        keyspace.set_now(self.now());
        keyspace.sweep();
        keyspace.save()
    }
}

fn lock(bytes: &mut Bytes<'_>) -> LockKeys {
    LockKeys::new("lock:", bytes.pick(&["a", "b", "{t}c"]))
}

fn key(bytes: &mut Bytes<'_>, keys: &LockKeys) -> String {
    let [fence, queue, waiters, shared, waiting] = keys.side_keys().map(|key| key.to_string());
    let all = [keys.lock(), COUNTER, &fence, &queue, &waiters, &shared, &waiting, "elsewhere"];
    bytes.pick(&all).to_owned()
}

fn token(bytes: &mut Bytes<'_>) -> Token {
    match bytes.below(6) {
        0 => Token::from_text(&bytes.text()),
        number => Token::new("client", number as u64, bytes.pick(&["", "label"])),
    }
}

fn argument(bytes: &mut Bytes<'_>) -> String {
    match bytes.below(4) {
        0 => token(bytes).as_str().to_owned(),
        1 => (bytes.number() % EXACT_MAX).to_string(),
        2 => bytes.pick(&["poll", "try", "steal", "-", "inbox", "foreign", "", "1"]).to_owned(),
        _ => bytes.text(),
    }
}

/// Lease times from zero to more than callers may ask for.
fn ttl(bytes: &mut Bytes<'_>) -> Duration {
    Duration::from_millis(bytes.pick(&[1, 50, 10_000, 86_400_000, 9_000_000_000_000]))
}

fn any_call(bytes: &mut Bytes<'_>) -> Call {
    let (script, keys, token) = (bytes.pick(&Script::ALL), lock(bytes), token(bytes));
    let ttl = ttl(bytes);
    // The time of a server's clock, up to the year 2255: beyond it there are no fences.
    let epoch = ServerTime::from_micros(bytes.number() % (FENCE_MAX + 1));
    let (first, last) = (bytes.number() % EXACT_MAX, bytes.number() % EXACT_MAX);
    match script {
        Script::Acquire | Script::AcquireUnqueued | Script::Inspect => {
            let intent = match bytes.below(5) {
                0 => Intent::Join(Some(first)),
                1 => Intent::Join(None),
                2 => Intent::Poll,
                3 => Intent::Steal(self::token(bytes).as_str().into()),
                _ => Intent::Try,
            };
            let inbox = bytes.pick(&["", "inbox", "nobody listens"]).into();
            let block = bytes.pick(&[1, 16]);
            Call::Acquire { keys, token, ttl, epoch, block, inbox, intent, mode: mode(bytes) }
        }
        Script::Adopt => {
            let owner = self::token(bytes);
            Call::Adopt { keys, token, epoch, owner, ttl, mode: mode(bytes) }
        }
        Script::ChangeShares => {
            let mut some = || (0..bytes.below(4)).map(|_| self::token(bytes)).collect();
            let (taking, leaving) = (some(), some());
            Call::ChangeShares { keys, token, ttl, epoch, taking, leaving }
        }
        Script::Claim => Call::Claim { keys, token, ttl },
        Script::Delete => Call::Delete { keys, token },
        Script::Downgrade => Call::Downgrade { keys, token, epoch, fence: first },
        Script::Extend => Call::Extend { keys, token, ttl },
        Script::CopyLock => Call::CopyLock { keys, token, ttl, last },
        Script::Force => Call::Force {
            keys,
            token,
            epoch,
            foreign: bytes.flag(),
            seen: bytes.flag().then(|| self::token(bytes).as_str().into()),
            owners: bytes.flag().then(|| self::token(bytes)).into_iter().collect(),
        },
        Script::ExtendShare => Call::ExtendShare { keys, token, ttl, fence: first },
        Script::Free => Call::Free { keys, token },
        Script::FreeShare => Call::FreeShare { keys, token },
        Script::KeepEntry => Call::KeepEntry { keys, token },
        Script::KeepForeign => Call::KeepForeign { keys, token, ttl },
        Script::KeepLock => Call::KeepLock { keys, token, ttl },
        Script::KeepShare => Call::KeepShare { keys, token, ttl },
        Script::HandoffShare => Call::HandoffShare {
            keys,
            token,
            epoch,
            successor: self::token(bytes),
            ttl,
            mode: mode(bytes),
        },
        Script::Release => Call::Release { keys, token, epoch, shared: bytes.flag() },
        Script::Reserve => Call::Reserve { keys, token, ttl, epoch, block: bytes.byte() % 16 + 1 },
        Script::WriteFence => Call::WriteFence { keys, token, first, last },
        Script::AcquireAll => {
            let others = (0..bytes.below(4)).map(|_| (lock(bytes), self::token(bytes))).collect();
            Call::AcquireAll { first: (keys, token), others, ttl, epoch }
        }
        Script::Vote => {
            let fences = if bytes.flag() { (first, last) } else { (0, 0) };
            Call::Vote { keys, token, attempt: first, ttl, mark: bytes.flag(), fences }
        }
        Script::Withdraw => Call::Withdraw { keys, token },
    }
}

fn mode(bytes: &mut Bytes<'_>) -> Mode {
    match bytes.byte() % 4 {
        0 => Mode::Exclusive,
        limit => Mode::permits(1, u64::from(limit) - 1),
    }
}
