//! The lock scripts in the store and in a real server: random calls have the same replies, send the same
//! messages and leave the same data.
//!
//! The calls follow from a seed: `HOLDFAST_FROM=<seed> HOLDFAST_SEEDS=1` replays one round. The real time
//! between two calls is not reproducible.

use super::in_step::{Effect, Eval, InStep};
use crate::machine::SendMode;
use crate::protocol::keys::COUNTER;
use crate::protocol::message::{Message, inbox, notices};
use crate::protocol::{
    Call, Counters, Failure, Intent, LockKeys, Mode, Reply, Script, ServerTime, Token,
};
use crate::server::embedded::Plain;
use crate::server::redis::{Command, Dialect, wire};
use std::collections::BTreeSet;
use std::fmt::{Arguments, Debug};
use std::sync::Arc;
use std::time::Duration;

/// The number of rounds of a test run.
const SEEDS: u64 = 150;
/// The search for a defect ends with the first round that finds it; the rarest ones depend on real time.
const SEARCHED: u64 = 10 * SEEDS;
const STEPS: usize = 60;

const CLIENTS: [&str; 3] = ["a", "b", "c"];
/// Locks with the hash tag around the whole name or within it.
const LOCKS: [&str; 2] = ["lock:a", "lock:{b} %d é"];
/// The channels of a client.
fn channels(client: &str) -> [Arc<str>; 2] {
    [notices(client), inbox(client)]
}

/// Owner tokens, each with its client.
const TOKENS: [(&str, &str); 6] = [
    ("a", "hf1.a.1"),
    ("a", "hf1.a.2"),
    ("b", "hf1.b.1/2/2.cron"),
    ("b", "hf1.b.2.x+"),
    ("c", "hf1.c.1"),
    ("c", "hf1.c.2.%d é"),
];
const LEASES_MS: [u64; 9] = [1, 2, 5, 20, 100, 300, 1_000, 5_000, 30_000];
const FENCES: [u64; 2] = [7, 1_800_000_000_000_000];
/// Around the times in the scripts, and a day.
const SKIPS_MS: [u64; 6] = [1_000, 2_000, 3_000, 15_000, 30_000, 86_400_000];

/// Writes of other code or a person to the keys of a lock. A token is in ARGV.
const MEDDLING: &[&str] = &[
    // The lock is owned by other code, or free.
    "redis.call('SET', KEYS[1], 'theirs', 'PX', 200)",
    "redis.call('SET', KEYS[1], 'theirs+', 'PX', 20)",
    "redis.call('SET', KEYS[1], 'theirs')",
    "redis.call('SET', KEYS[1], '', 'PX', 50)",
    "redis.call('SET', KEYS[1], ARGV[1] .. '+', 'PX', 50)",
    "redis.call('PEXPIRE', KEYS[1], 3)",
    "redis.call('DEL', KEYS[1])",
    // Keys are lost.
    "redis.call('DEL', KEYS[2])",
    "redis.call('DEL', KEYS[3])",
    "redis.call('DEL', KEYS[4])",
    "redis.call('DEL', KEYS[5])",
    "redis.call('DEL', unpack(KEYS))",
    "redis.call('PEXPIRE', KEYS[3], 5)",
    // Invalid shares.
    "redis.call('SET', KEYS[1], 'hf1.shared', 'PX', 50)",
    "redis.call('ZADD', KEYS[5], '9e12', 'stranger')",
    "redis.call('ZADD', KEYS[5], 5, ARGV[1], -7, '?' .. ARGV[1])",
    "redis.call('SET', KEYS[1], 'hf1.shared', 'PX', 50)
     redis.call('ZADD', KEYS[5], '9e12', ARGV[1], 7, '#' .. ARGV[1])",
    "redis.call('SET', KEYS[1], 'hf1.shared', 'PX', 50)
     redis.call('ZADD', KEYS[5], '9e12', ARGV[1], '-1.8e16', '#' .. ARGV[1])",
    "redis.call('SET', KEYS[5], 'x', 'PX', 50)",
    // Invalid fence counters, or at the limit of exact numbers.
    "redis.call('SET', KEYS[2], 'x', 'PX', 100)",
    "redis.call('SET', KEYS[2], '-5', 'PX', 100)",
    "redis.call('SET', KEYS[2], '007', 'PX', 100)",
    "redis.call('SET', KEYS[2], '123')",
    "redis.call('SET', KEYS[2], '9000000000000000', 'PX', 100)",
    "redis.call('SET', KEYS[2], '9007199254740992', 'PX', 100)",
    "redis.call('SET', KEYS[2], '9223372036854775806', 'PX', 100)",
    "redis.call('SET', KEYS[2], '9223372036854775807000', 'PX', 100)",
    // Values of another type.
    "redis.call('DEL', KEYS[1]) redis.call('HSET', KEYS[1], 'f', 'v') redis.call('PEXPIRE', KEYS[1], 50)",
    "redis.call('DEL', KEYS[2]) redis.call('ZADD', KEYS[2], 1, 'm') redis.call('PEXPIRE', KEYS[2], 50)",
    "redis.call('SET', KEYS[3], 'x', 'PX', 50)",
    "redis.call('SET', KEYS[4], 'x', 'PX', 50)",
    // Invalid waiters.
    "redis.call('ZADD', KEYS[3], 1, 'stranger')",
    "redis.call('ZADD', KEYS[3], '-2.5', ARGV[1])",
    "redis.call('ZADD', KEYS[3], '9e15', 'hf1.z.1')",
    "redis.call('ZADD', KEYS[3], '9e16', ARGV[1])",
    "redis.call('HSET', KEYS[4], ARGV[1], 'nonsense')",
    "redis.call('HSET', KEYS[4], ARGV[1], '1 2 3 4 - holdfast:a')",
    "redis.call('HSET', KEYS[4], ARGV[1], '99999999999999 0 1 0 - holdfast:a')",
    "redis.call('HSET', KEYS[4], ARGV[1], '99999999999999 99999999999999999999 1 0 - ')",
    "redis.call('HSET', KEYS[4], ARGV[1], '99999999999999 100 0 0 - ')",
    "redis.call('HSET', KEYS[4], ARGV[1], '99999999999999 100 99999999999999999999 0 - ')",
    "redis.call('HSET', KEYS[4], ARGV[1], '99999999999999 100 1 9007199254740993 - ')",
    "redis.call('HSET', KEYS[4], ARGV[1], '99999999999999 100 1 0 x ')",
    "redis.call('HDEL', KEYS[4], ARGV[1])",
    "redis.call('HSET', KEYS[4], 'unclaimed', 'stranger')",
    "redis.call('HSET', KEYS[4], 'unclaimed', ARGV[1])",
    // Two callers of one manager want shares.
    "redis.call('DEL', KEYS[1])
     redis.call('ZADD', KEYS[3], 1, 'hf1.a.8', 2, 'hf1.a.9')
     redis.call('HSET', KEYS[4], 'hf1.a.8', '99999999999999 100 1 0 0 holdfast:a')
     redis.call('HSET', KEYS[4], 'hf1.a.9', '99999999999999 100 1 0 0 holdfast:a')",
    // A wait queue longer than one pass: all entries unknown, or without subscribers.
    "redis.call('DEL', KEYS[1])
     for i = 1, 300 do redis.call('ZADD', KEYS[3], i, 'hf1.gone.' .. i) end",
    "redis.call('DEL', KEYS[1])
     for i = 1, 300 do
       redis.call('ZADD', KEYS[3], 7, 'hf1.gone.' .. i)
       redis.call('HSET', KEYS[4], 'hf1.gone.' .. i, '99999999999999 100 1 0 - holdfast:gone')
     end",
];

/// Defects of a store: the command, and its replacement. A test that did not find them would prove nothing.
const DEFECTS: &[(&str, &str, &str)] = &[
    ("a lease seems longer by 1 ms", "PTTL", "return run(name, ...) + 1"),
    ("a lease is longer by 1 ms", "PEXPIRE", "local key, ms = ... return run(name, key, ms + 1)"),
    ("a lease is not lengthened", "PEXPIRE", "return 1"),
    (
        "a counter loses its end",
        "SET",
        "local key, value, option = ...
         if option == 'KEEPTTL' then return run(name, key, value) end
         return run(name, ...)",
    ),
    (
        "NX is overlooked",
        "SET",
        "local key, value, option, _, ms = ...
         if option == 'NX' then return run(name, key, value, 'PX', ms) end
         return run(name, ...)",
    ),
    (
        "a value of another type seems to be none",
        "GET",
        "local reply = run(name, ...) return type(reply) == 'string' and reply",
    ),
    (
        "the queue is read from its end",
        "ZRANGE",
        "local key, from, to, scores = ...
         if scores then return run(name, ...) end
         return run(name, key, -1 - to, -1 - from)",
    ),
    (
        "scores lose their last digits",
        "ZADD",
        "local key, score, member = ...
         return run(name, key, string.format('%.14g', score), member)",
    ),
    ("a position is off by one", "ZRANK", "return run(name, ...) + 1"),
    ("a waiter that has left stays enqueued", "ZREM", "return 0"),
    ("a field stays", "HDEL", "return 0"),
    ("an empty queue exists", "EXISTS", "return 1"),
    ("everybody seems to listen", "PUBSUB", "return { select(2, ...), 1 }"),
    ("nobody seems to listen", "PUBSUB", "return { select(2, ...), 0 }"),
    ("a message is lost", "PUBLISH", "return 0"),
    (
        "a message is cut off",
        "PUBLISH",
        "local to, text = ... return run(name, to, text:sub(1, -2))",
    ),
    ("a clock is late by 1 µs", "TIME", "local t = run(name) return { t[1], t[2] - 1 }"),
];

/// Events that must have happened at least once.
const OUTCOMES: &[&str] = &[
    "a message",
    "adopted",
    "several shares in a message",
    "stolen",
    "to be freed",
    "freed",
    "a share is freed",
    "a share is lengthened",
    "an entry is kept",
    "granted",
    "held",
    "joined",
    "queued",
    "lengthened",
    "not the owner",
    "released",
    "reserved",
    "the queue is too long",
    "ERR",
    "FENCE",
    "WRONGTYPE",
];

enum Step {
    Call(Call),
    Meddle {
        source: &'static str,
        token: &'static str,
    },
    Subscribe(usize),
    Unsubscribe(usize),
    /// Waits for real time to pass.
    Wait(Duration),
    /// Advances the clocks without waiting.
    Skip(u64),
}

/// Random steps, taken in the store and in a server.
struct Round<'a> {
    pair: &'a mut InStep,
    seed: u64,
    rng: fastrand::Rng,
    /// The lock of the next step.
    lock: &'static str,
    /// The last token that was granted the lock, and the last position that a reply named.
    owner: Token,
    seq: u64,
    /// The owners that a reply named.
    owners: Arc<str>,
    /// Which counters issue the fences.
    counters: Counters,
    /// Whether scripts may read the clock.
    clock: bool,
    story: Vec<String>,
    seen: BTreeSet<String>,
    compared: usize,
}

impl<'a> Round<'a> {
    fn new(pair: &'a mut InStep, seed: u64) -> Self {
        pair.reset();
        Self {
            pair,
            seed,
            rng: fastrand::Rng::with_seed(seed),
            lock: LOCKS[0],
            owner: Token::from_text(TOKENS[0].1),
            seq: 0,
            owners: "".into(),
            clock: !seed.is_multiple_of(7),
            counters: if seed.is_multiple_of(4) { Counters::Locks } else { Counters::Server },
            story: Vec::new(),
            seen: BTreeSet::new(),
            compared: 0,
        }
    }

    /// Takes all steps; returns the log if store and server differ.
    fn run(&mut self) -> Result<(), String> {
        for client in 0..CLIENTS.len() {
            self.take(&Step::Subscribe(client))?;
        }
        for _ in 0..STEPS {
            // Most steps use one lock.
            self.lock = LOCKS[usize::from(self.rng.u8(..5) == 0)];
            let step = self.next();
            self.take(&step)?;
        }
        Ok(())
    }

    fn next(&mut self) -> Step {
        let client = self.rng.usize(..CLIENTS.len());
        match self.rng.u8(..100) {
            0..70 => Step::Call(self.call()),
            70..78 => self.meddle(),
            78..82 => Step::Subscribe(client),
            82..84 => Step::Unsubscribe(client),
            84..90 => Step::Wait(Duration::from_millis(self.rng.u64(1..5))),
            90..95 => Step::Skip(self.rng.u64(1..400)),
            _ => Step::Skip(self.pick(&SKIPS_MS)),
        }
    }

    /// The holds that plain commands take or delete for a token: the whole lock, or a share as its only owner.
    fn lone_or_whole(&mut self, token: Token) -> Token {
        if self.rng.bool() { token.lone_share() } else { token }
    }

    fn call(&mut self) -> Call {
        let keys = LockKeys::from_key(self.lock);
        let (client, token) = self.pick(&TOKENS);
        let token = Token::from_text(token);
        let ttl = Duration::from_millis(match self.rng.u8(..50) {
            0 => self.pick(&[0, u64::MAX]),
            _ => self.pick(&LEASES_MS),
        });
        let now_us = self.pair.now().as_micros();
        let epoch = self.pick(&[0, now_us - 3_600_000_000, now_us, now_us + 1_000_000_000]);
        let epoch = ServerTime::from_micros(epoch);
        // The owner makes most calls.
        let owner = if self.rng.bool() { self.owner.clone() } else { token.clone() };
        match self.rng.u8(..21) {
            0..12 => Call::Acquire {
                keys,
                token,
                ttl,
                epoch,
                block: self.pick(&[1, 1, 2, 16]),
                inbox: if self.rng.u8(..6) == 0 { "".into() } else { inbox(client) },
                intent: self.intent(),
                mode: self.pick(&[
                    Mode::Exclusive,
                    Mode::SHARED,
                    Mode::permits(1, 2),
                    Mode::permits(2, 2),
                ]),
            },
            12 if self.rng.bool() => Call::Claim { keys, token: owner, ttl },
            13 if self.rng.u8(..3) == 0 => {
                let block = self.pick(&[1, 2, 16]);
                Call::Reserve { keys, token: owner, ttl, epoch, block }
            }
            12..14 => Call::Extend { keys, token: owner, ttl },
            14 if self.rng.bool() => Call::Delete { keys, token: self.lone_or_whole(owner) },
            14 => Call::Free { keys, token: owner },
            15 if self.rng.bool() => {
                Call::Take { keys, token: self.lone_or_whole(token), ttl, block: 1 }
            }
            15 => Call::Downgrade { keys, token: owner, epoch, fence: self.pick(&FENCES) },
            16 => self.adopt(keys, token, epoch, ttl),
            17 if self.rng.bool() => {
                let (_, successor) = self.pick(&TOKENS);
                let (successor, mode) = (Token::from_text(successor), Mode::permits(1, 2));
                Call::HandoffShare { keys, token: owner, epoch, successor, ttl, mode }
            }
            18 if self.rng.bool() => {
                let foreign = self.rng.bool();
                let seen = self.rng.bool().then(|| Arc::clone(&self.owners));
                let owners = self.rng.bool().then(|| self.owner.clone()).into_iter().collect();
                Call::Force { keys, token, epoch, foreign, seen, owners }
            }
            20 => match self.rng.u8(..4) {
                0 => Call::ExtendShare { keys, token: owner, ttl, fence: self.pick(&FENCES) },
                1 => Call::FreeShare { keys, token: owner },
                2 => {
                    let mut some = |most| {
                        let count = self.rng.u8(..most);
                        let tokens = (0..count).map(|_| Token::from_text(self.pick(&TOKENS).1));
                        tokens.collect::<Vec<_>>()
                    };
                    let (taking, leaving) = (some(4), some(3));
                    Call::ChangeShares { keys, token, ttl, epoch, taking, leaving }
                }
                _ => Call::KeepEntry { keys, token },
            },
            _ => Call::Release { keys, token: owner, epoch, shared: false },
        }
    }

    fn adopt(&self, keys: LockKeys, token: Token, epoch: ServerTime, ttl: Duration) -> Call {
        let owner = self.owner.clone();
        Call::Adopt { keys, token, epoch, owner, ttl, mode: Mode::SHARED }
    }

    fn intent(&mut self) -> Intent {
        match self.rng.u8(..11) {
            10 => Intent::Steal(Arc::clone(&self.owners)),
            0..5 => Intent::Join(None),
            5 => Intent::Join(Some(self.seq)),
            6..8 => Intent::Poll,
            _ => Intent::Try,
        }
    }

    fn meddle(&mut self) -> Step {
        let source = match self.rng.u8(..4) {
            0 => "redis.call('DEL', unpack(KEYS))",
            _ => self.pick(MEDDLING),
        };
        Step::Meddle { source, token: self.pick(&TOKENS).1 }
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.rng.usize(..from.len())]
    }

    fn take(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Call(call) => {
                let Some(script) = call.script() else { return self.take_plainly(call) };
                let counters = self.counters;
                let dialect = Dialect { counters, clock: self.clock, ..Dialect::PLAIN };
                let mut command = Command::new();
                wire::write_commands(&mut command, call, SendMode::WithSource, dialect, |_| {});
                let (keys, args) = command.keys_and_arguments();
                let name = format!("{script:?}");
                let source = std::str::from_utf8(command.parts().nth(1).unwrap()).unwrap();
                let effect = self.eval(&name, Eval { source, keys: &keys, args: &args })?;
                self.learn(script, call, effect);
            }
            Step::Meddle { source, token } => {
                let keys = LockKeys::from_key(self.lock);
                let keys = [keys.lock(), COUNTER, &keys.queue(), &keys.waiters(), &keys.shared()];
                let (keys, args) = (keys.map(str::as_bytes), [token.as_bytes()]);
                self.eval(source, Eval { source, keys: &keys, args: &args })?;
            }
            Step::Subscribe(client) => {
                self.note(format_args!("subscribe {}", CLIENTS[*client]));
                for channel in channels(CLIENTS[*client]) {
                    self.pair.subscribe(*client as u64, &channel);
                }
            }
            Step::Unsubscribe(client) => {
                self.note(format_args!("unsubscribe {}", CLIENTS[*client]));
                for channel in channels(CLIENTS[*client]) {
                    self.pair.unsubscribe(*client as u64, &channel);
                }
            }
            Step::Wait(duration) => {
                self.note(format_args!("wait {duration:?}"));
                std::thread::sleep(*duration);
            }
            Step::Skip(ms) => {
                self.note(format_args!("skip {ms} ms"));
                self.pair.skip(*ms);
            }
        }
        Ok(())
    }

    /// The plain commands of a call, one after the other.
    fn take_plainly(&mut self, call: &Call) -> Result<(), String> {
        for part in Plain::ALL {
            let mut command = Command::new();
            wire::write_plain(&mut command, call, self.counters, part);
            let (source, args) =
                ("return redis.call(unpack(ARGV))", command.parts().collect::<Vec<_>>());
            self.eval("plain", Eval { source, keys: &[], args: &args })?;
        }
        self.seen.insert("plain commands".to_owned());
        Ok(())
    }

    fn note(&mut self, what: Arguments<'_>) {
        self.story.push(format!("{}  {}  {what}", self.pair.now().as_micros(), self.lock));
    }

    /// Runs a script in both. Returns its effect, or the log if they differ.
    fn eval(&mut self, name: &str, eval: Eval<'_>) -> Result<Effect, String> {
        let us = self.rng.u64(..1_000);
        let (ours, theirs) = self.pair.run(eval, us);
        let args: Vec<_> = eval.args.iter().map(|arg| String::from_utf8_lossy(arg)).collect();
        self.note(format_args!("{name} {args:?} → {:?}", theirs.reply));
        let Some(ours) = ours else { return Ok(theirs) };
        self.compared += 1;
        if ours == theirs {
            return Ok(theirs);
        }
        let (seed, story) = (self.seed, self.story.join("\n  "));
        let differences = [
            difference("reply", &ours.reply, &theirs.reply),
            difference("messages", &ours.messages, &theirs.messages),
            difference("data", &ours.data, &theirs.data),
        ];
        Err(format!("seed {seed}:\n  {story}{}", differences.concat()))
    }

    /// Records a result for later calls.
    fn learn(&mut self, script: Script, call: &Call, effect: Effect) {
        for message in
            effect.messages.iter().filter_map(|(channel, text)| Message::parse(channel, text))
        {
            let seen = match message {
                Message::Granted(grants) => {
                    self.owner = grants[0].token.clone();
                    if grants.len() > 1 { "several shares in a message" } else { "a message" }
                }
                Message::Taken(taken) if taken.adopted => "adopted",
                Message::Taken(_) => "stolen",
                Message::Freed(_) => "a quorum",
                Message::Changed(_) | Message::AllChanged => "no script publishes that",
            };
            self.seen.insert(seen.to_owned());
        }
        let seen = match (wire::reply(script, effect.reply), call) {
            (Ok(Reply::Granted { .. }), Call::ExtendShare { .. }) => "a share is lengthened",
            (Ok(Reply::HandedOff { .. }), Call::HandoffShare { successor, .. }) => {
                self.owner = successor.clone();
                "handed off"
            }
            (Ok(Reply::Reserved { .. }), _) => "reserved",
            (Ok(Reply::Granted { .. }), Call::Acquire { token, .. }) => {
                self.owner = token.clone();
                "granted"
            }
            (Ok(Reply::Joined { .. }), Call::Acquire { token, .. }) => {
                self.owner = token.clone();
                "joined"
            }
            (Ok(Reply::Held(held)), _) => match held.queued {
                Some(queued) => {
                    (self.seq, self.owners) = (queued.seq, held.owners);
                    "queued"
                }
                None => "held",
            },
            (Ok(Reply::Seen { owners }), _) => {
                self.owners = owners;
                "to be freed"
            }
            (Ok(Reply::More), _) => "the queue is too long",
            (Ok(Reply::Owner(true)), Call::Claim { .. }) => "claimed",
            (Ok(Reply::Owner(true)), Call::Extend { .. }) => "lengthened",
            (Ok(Reply::Owner(true)), Call::Free { .. }) => "freed",
            (Ok(Reply::Owner(true)), Call::FreeShare { .. }) => "a share is freed",
            (Ok(Reply::Owner(true)), Call::KeepEntry { .. }) => "an entry is kept",
            (Ok(Reply::Owner(true)), _) => "released",
            (Ok(Reply::Owner(false)), _) => "not the owner",
            (Err(Failure::Refused(refusal)), _) => &refusal.code.clone(),
            (Ok(_), _) => return,
            // A reply that no script gives would close the connection: one key must not cause that.
            (Err(other), call) => panic!("{other:?} from {call:?}\n  {}", self.story.join("\n  ")),
        };
        self.seen.insert(seen.to_owned());
    }
}

/// The difference, if there is one.
fn difference<T: Debug + PartialEq>(what: &str, ours: &T, theirs: &T) -> String {
    if ours == theirs {
        return String::new();
    }
    format!("\n{what} of the last step:\n  store  {ours:?}\n  server {theirs:?}")
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn random_calls_do_the_same_as_in_a_server() {
    let mut pair = InStep::new();
    let (from, seeds) = (number("HOLDFAST_FROM", 0), number("HOLDFAST_SEEDS", SEEDS));
    let mut seen = BTreeSet::new();
    let mut compared = 0;
    for seed in from..from + seeds {
        let mut round = Round::new(&mut pair, seed);
        round.run().unwrap_or_else(|story| panic!("{story}"));
        seen.append(&mut round.seen);
        compared += round.compared;
    }
    if seeds >= SEEDS {
        let missing: Vec<_> = OUTCOMES.iter().filter(|outcome| !seen.contains(**outcome)).collect();
        assert!(missing.is_empty(), "the rounds do too little: {missing:?} never happened");
    }
    assert!(compared as u64 > seeds, "too little was compared: {compared} scripts");
}

/// The values that other servers give to scripts: scores as numbers, which Lua 5.4 tells apart, or nil where Redis has false.
const DIALECTS: [(&str, &str); 3] = [
    ("integers for scores", "return tonumber(score)"),
    ("floats for scores", "return score + 0.0"),
    ("scores with an exponent", "return string.format('%.17e', score)"),
];

#[test]
fn scripts_do_the_same_whatever_a_server_makes_of_scores_and_nil() {
    let mut pair = InStep::new();
    for (dialect, of_score) in DIALECTS {
        pair.set_defect(dialect_of_replies(of_score));
        for seed in 0..SEEDS / 2 {
            let mut round = Round::new(&mut pair, seed);
            round.run().unwrap_or_else(|story| panic!("{dialect}: {story}"));
        }
    }
}

/// The prefix of the scripts of a store whose replies have nil for false, and `of_score` for a score.
fn dialect_of_replies(of_score: &str) -> String {
    let prelude = format!(
        "local server = redis
         local function of_score(score) {of_score} end
         local function reply_to(run, name, ...)
           local reply, scores = run(name, ...), name == 'ZSCORE'
           for _, option in ipairs({{ ... }}) do scores = scores or option == 'WITHSCORES' end
           if not reply then return nil end
           if scores and type(reply) == 'string' then return of_score(reply) end
           for i = 2, scores and #reply or 0, 2 do reply[i] = of_score(reply[i]) end
           return reply
         end
         local redis = {{
           call = function(...) return reply_to(server.call, ...) end,
           pcall = function(...) return reply_to(server.pcall, ...) end,
           error_reply = server.error_reply,
         }} "
    );
    // On one line, so that errors name the same lines.
    prelude.replace('\n', " ")
}

#[test]
fn every_defect_of_the_store_is_found() {
    let mut pair = InStep::new();
    let mut find = |command, instead, seeds| {
        pair.set_defect(defect(command, instead));
        (0..seeds).find_map(|seed| Round::new(&mut pair, seed).run().err())
    };
    assert_eq!(find("NO SUCH COMMAND", "", 3), None, "where there is no defect");
    let mut missed = DEFECTS.to_vec();
    missed.retain(|(_, command, instead)| find(command, instead, SEARCHED).is_none());
    assert!(missed.is_empty(), "not found in {SEARCHED} rounds: {missed:?}");
}

/// The prefix of the scripts of a store that runs `instead` of `command`.
fn defect(command: &str, instead: &str) -> String {
    let prelude = format!(
        "local server = redis
         local function call(run, name, ...)
           if name ~= '{command}' then return run(name, ...) end
           {instead}
         end
         local redis = {{
           call = function(...) return call(server.call, ...) end,
           pcall = function(...) return call(server.pcall, ...) end,
           error_reply = server.error_reply,
         }} "
    );
    // On one line, so that errors name the same lines.
    prelude.replace('\n', " ")
}
