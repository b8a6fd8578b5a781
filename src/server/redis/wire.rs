//! From calls to Redis commands, and from Redis values to replies.

mod clockless;
mod refusal;

pub(super) use refusal::{
    brief, failure, forbidden_to_a_script, is_about_the_command, lasting, refused,
};

use super::Endpoint;
use super::command::{Command, Word};
use super::dialect::{self, Delete, Dialect};
use super::frames;
use crate::machine::{Risk, SendMode, ServerProbe};
use crate::protocol::message::free_channel;
use crate::protocol::{
    Call, Counters, EXACT_MAX, Failure, Held, Intent, LockKeys, Mode, QueuePosition, Refusal,
    Reply, Script, ServerTime, Take, Token, exact,
};
use crate::server::Resp;
use redis::{Cmd, Pipeline, Value};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// Each script's SHA-1, by which a server that has seen its text can run it.
static HASHES: LazyLock<[String; Script::ALL.len()]> = LazyLock::new(|| {
    Script::ALL.map(|script| redis::Script::new(script.source()).get_hash().to_owned())
});

fn hash(script: Script) -> &'static str {
    // The enum counts from 0, in the order of `ALL`.
    &HASHES[script as usize]
}

/// The share of a lock that is requested.
fn limit(command: &mut Command, mode: Mode) {
    match mode {
        Mode::Exclusive => command.arg("-"),
        Mode::Shared { limit } => command.arg(limit.map_or(0, |limit| limit.get().into())),
    };
}

/// Adds the contention policy.
fn how(command: &mut Command, intent: &Intent, mode: Mode, block: u8) {
    match intent {
        Intent::Join(seq) => command.arg(seq.unwrap_or(0)),
        Intent::Poll => command.arg("poll"),
        Intent::Steal(_) => command.arg("steal"),
        Intent::Try => command.arg("try"),
    };
    limit(command, mode);
    command.arg(u64::from(block));
    if let Intent::Steal(seen) = intent {
        command.arg(&**seen);
    }
}

/// The keys of all locks, then the arguments of each.
fn together(
    command: &mut Command,
    first: &(LockKeys, Token),
    others: &[(LockKeys, Token)],
    ttl: Duration,
    epoch: ServerTime,
    counters: Counters,
) {
    let locks = || std::iter::once(first).chain(others);
    command.arg(3 * (1 + others.len() as u64));
    for (keys, _) in locks() {
        let [_, queue, ..] = keys.side_keys();
        command.arg(keys.lock()).arg(keys.counter(counters)).arg(queue);
    }
    command.arg(ms(ttl)).arg(epoch.as_micros());
    for (_, token) in locks() {
        command.arg(token.as_str());
    }
}

/// The command that runs `call`: by its hash, or with the whole source.
pub(in crate::server) fn command(call: &Call, dialect: Dialect) -> Command {
    let mut command = Command::new();
    write_commands(&mut command, call, SendMode::Plain, dialect, |_| {});
    command
}

/// The plain commands of a call that takes a lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Plain {
    Set,
    Incrby,
    Mget,
}

impl Plain {
    /// In the order in which they are sent.
    pub(crate) const ALL: [Self; 3] = [Self::Set, Self::Incrby, Self::Mget];
}

/// Writes one of the plain commands of `call`.
pub(in crate::server) fn write_plain(
    command: &mut Command,
    call: &Call,
    counters: Counters,
    part: Plain,
) {
    command.clear();
    let Call::Take { keys, token, ttl, block } = call else { return };
    match part {
        Plain::Set => {
            command.arg(Word::SET).arg(keys.lock()).arg(token.as_str());
            command.arg(Word::NX).arg(Word::PX).arg(ms(*ttl));
        }
        Plain::Incrby => {
            command.arg(Word::INCRBY).arg(keys.counter(counters)).arg(u64::from(*block));
        }
        Plain::Mget => {
            let [.., waiting] = keys.side_keys();
            command.arg(Word::MGET).arg(keys.lock()).arg(waiting);
        }
    }
}

/// Writes each command of `call` into one that may have been used before, and passes it to `each`.
pub(in crate::server) fn write_commands(
    command: &mut Command,
    call: &Call,
    send_mode: SendMode,
    Dialect { counters, delete, clock }: Dialect,
    mut each: impl FnMut(&Command),
) {
    command.clear();
    match (call, call.script()) {
        (Call::Delete { keys, token }, _) if delete != Delete::Script => {
            native_delete(command, delete, keys, token);
        }
        (_, Some(_)) if !clock => clockless::write(command, call, send_mode, counters),
        (_, Some(script)) => write_script(command, script, call, send_mode, counters),
        (_, None) => {
            for part in Plain::ALL {
                write_plain(command, call, counters, part);
                each(command);
            }
            return;
        }
    }
    each(command);
}

fn write_script(
    command: &mut Command,
    script: Script,
    call: &Call,
    send_mode: SendMode,
    counters: Counters,
) {
    run(command, script, send_mode);
    match call {
        Call::Take { .. } => {}
        Call::Acquire { keys, token, ttl, epoch, block, inbox, intent, mode } => {
            queue_keys(command, keys, counters).arg(token.as_str());
            command.arg(ms(*ttl)).arg(epoch.as_micros());
            command.arg(&**inbox);
            // The common case omits these: the server makes a Lua value of each argument.
            if (intent, *mode, *block) != (&Intent::Join(None), Mode::Exclusive, 1) {
                how(command, intent, *mode, *block);
            }
        }
        Call::Adopt { keys, token, epoch, owner, ttl, mode } => {
            all_keys(command, keys, counters, 5).arg(token.as_str());
            command.arg(epoch.as_micros()).arg(owner.as_str());
            command.arg(ms(*ttl));
            limit(command, *mode);
        }
        Call::Downgrade { keys, token, epoch, fence } => {
            queue_keys(command, keys, counters).arg(token.as_str());
            command.arg(epoch.as_micros()).arg(*fence);
        }
        Call::Claim { keys, token, ttl } => {
            let [_, _, waiters, ..] = keys.side_keys();
            command.arg(2).arg(keys.lock()).arg(waiters).arg(token.as_str()).arg(ms(*ttl));
        }
        Call::Extend { keys, token, ttl } => {
            command.arg(1).arg(keys.lock()).arg(token.as_str()).arg(ms(*ttl));
        }
        Call::ExtendShare { keys, token, ttl } => {
            lock_and_shared(command, keys, token).arg(ms(*ttl));
        }
        Call::CopyLock { keys, token, ttl, last } => {
            two_keys(command, keys, token).arg(ms(*ttl)).arg(*last);
        }
        Call::Force { keys, token, epoch, foreign, seen, owners } => {
            queue_keys(command, keys, counters).arg(token.as_str()).arg(epoch.as_micros());
            command.arg(if *foreign { "foreign" } else { "" });
            match seen {
                Some(seen) => command.arg(&**seen),
                None => command.arg(""),
            };
            for owner in &**owners {
                command.arg(owner.as_str());
            }
        }
        Call::Delete { keys, token } | Call::Free { keys, token } => {
            command.arg(1).arg(keys.lock()).arg(token.as_str());
        }
        Call::FreeShare { keys, token } => {
            lock_and_shared(command, keys, token);
        }
        Call::KeepEntry { keys, token } => {
            let [_, queue, waiters, ..] = keys.side_keys();
            command.arg(2).arg(queue).arg(waiters).arg(token.as_str());
        }
        Call::KeepLock { keys, ttl, .. } => {
            command.arg(1).arg(keys.lock()).arg(ms(*ttl));
        }
        Call::KeepShare { keys, token, ttl } => {
            let [.., shared, _] = keys.side_keys();
            command.arg(1).arg(shared).arg(token.as_str()).arg(ms(*ttl));
        }
        Call::HandoffShare { keys, token, epoch, successor, ttl, mode } => {
            let [_, queue, _, shared, _] = keys.side_keys();
            command
                .arg(4)
                .arg(keys.lock())
                .arg(keys.counter(counters))
                .arg(shared)
                .arg(queue)
                .arg(token.as_str());
            command.arg(epoch.as_micros()).arg(successor.as_str()).arg(ms(*ttl));
            limit(command, *mode);
        }
        Call::Release { keys, token, epoch } => {
            queue_keys(command, keys, counters).arg(token.as_str()).arg(epoch.as_micros());
        }
        Call::Reserve { keys, token, ttl, epoch, block } => {
            let [_, queue, ..] = keys.side_keys();
            command.arg(3).arg(keys.lock()).arg(keys.counter(counters)).arg(queue);
            command.arg(token.as_str()).arg(ms(*ttl)).arg(epoch.as_micros()).arg(u64::from(*block));
        }
        Call::WriteFence { keys, token, first, last } => {
            two_keys(command, keys, token).arg(*first).arg(*last);
        }
        Call::AcquireAll { first, others, ttl, epoch } => {
            together(command, first, others, *ttl, *epoch, counters);
        }
        Call::Vote { keys, token, attempt, ttl, mark, fences: (first, last) } => {
            two_keys(command, keys, token).arg(*attempt).arg(ms(*ttl)).arg(u64::from(*mark));
            command.arg(*first).arg(*last);
        }
        Call::Withdraw { keys, token } => {
            command.arg(1).arg(keys.lock()).arg(token.as_str()).arg(&*free_channel(keys));
        }
    }
}

/// Begins a command that runs `script`.
fn run(command: &mut Command, script: Script, send_mode: SendMode) {
    match send_mode {
        SendMode::Plain | SendMode::Redirected => command.arg(Word::EVALSHA).arg(hash(script)),
        SendMode::WithSource | SendMode::Asking(_) => command.arg("EVAL").arg(script.source()),
    };
}

fn native_delete(command: &mut Command, delete: Delete, keys: &LockKeys, token: &Token) {
    match delete {
        Delete::Script => command,
        Delete::Delifeq => command.arg("DELIFEQ").arg(keys.lock()),
        Delete::Delex => command.arg("DELEX").arg(keys.lock()).arg("IFEQ"),
    }
    .arg(token.as_str());
}

/// The command that asks for at most `most` holders and waiters of a lock.
pub(super) fn inspection(keys: &LockKeys, most: u64, with_source: bool) -> Command {
    let mut command = Command::new();
    if with_source {
        command.arg("EVAL").arg(Script::Inspect.source());
    } else {
        command.arg("EVALSHA").arg(hash(Script::Inspect));
    }
    let [_, queue, waiters, shared, _] = keys.side_keys();
    command.arg(4).arg(keys.lock()).arg(queue).arg(waiters).arg(shared).arg(most);
    command
}

/// The keys of a lock of a quorum, which has no wait queue.
fn two_keys<'a>(command: &'a mut Command, keys: &LockKeys, token: &Token) -> &'a mut Command {
    let [fence, ..] = keys.side_keys();
    command.arg(2).arg(keys.lock()).arg(fence).arg(token.as_str())
}

/// The keys that exist as long as a lock is shared.
fn lock_and_shared<'a>(
    command: &'a mut Command,
    keys: &LockKeys,
    token: &Token,
) -> &'a mut Command {
    let [.., shared, _] = keys.side_keys();
    command.arg(2).arg(keys.lock()).arg(shared).arg(token.as_str())
}

/// The keys of a script that may write the wait queue.
fn queue_keys<'a>(
    command: &'a mut Command,
    keys: &LockKeys,
    counters: Counters,
) -> &'a mut Command {
    let [.., waiting] = keys.side_keys();
    all_keys(command, keys, counters, 6).arg(waiting)
}

/// The first five of `count` keys.
fn all_keys<'a>(
    command: &'a mut Command,
    keys: &LockKeys,
    counters: Counters,
    count: u64,
) -> &'a mut Command {
    let [_, queue, waiters, shared, _] = keys.side_keys();
    command.arg(count).arg(keys.lock()).arg(keys.counter(counters));
    command.arg(queue).arg(waiters).arg(shared)
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The reply of `script` in `value`.
pub(in crate::server) fn reply(script: Script, value: Value) -> Result<Reply, Failure> {
    match (script, value) {
        (_, Value::ServerError(error)) => {
            Err(refused(error.code(), error.details().unwrap_or_default()))
        }
        (
            Script::Adopt
            | Script::ExtendShare
            | Script::HandoffShare
            | Script::KeepShare
            | Script::Reserve,
            Value::Int(0),
        ) => Ok(Reply::Owner(false)),
        (Script::ExtendShare, Value::Int(1)) => Ok(Reply::Owner(true)),
        (Script::HandoffShare | Script::Release | Script::Force, Value::Int(2)) => Ok(Reply::More),
        (
            Script::Acquire | Script::Adopt | Script::ExtendShare | Script::KeepShare,
            Value::Int(fence),
        ) => whole(fence)
            .map(|fence| Reply::Granted { fence })
            .ok_or_else(|| Failure::Lost(format!("the server sent the fence {fence}"))),
        (Script::HandoffShare | Script::Reserve, Value::Array(parts)) => match parts.as_slice() {
            [Value::Int(fence), Value::Int(waiting)] => whole(*fence)
                .zip(whole(*waiting))
                .map(|(fence, waiting)| match script {
                    Script::Reserve => Reply::Reserved { fence, waiting },
                    _ => Reply::HandedOff { fence, waiting },
                })
                .ok_or_else(|| unexpected(script, &Value::Array(parts))),
            _ => Err(unexpected(script, &Value::Array(parts))),
        },
        (Script::Acquire, Value::Array(parts)) => match parts.as_slice() {
            [Value::Int(fence)] => whole(*fence)
                .map(|fence| Reply::Joined { fence })
                .ok_or_else(|| unexpected(script, &Value::Array(parts))),
            _ => held(&parts),
        },
        (Script::AcquireAll, Value::Array(parts)) => {
            let fences = parts.iter().map(whole_value).collect::<Option<_>>();
            fences.map(Reply::All).ok_or_else(|| unexpected(script, &Value::Array(parts)))
        }
        (Script::Force, Value::Array(parts)) => match parts.as_slice() {
            [Value::BulkString(owners)] => Ok(Reply::Seen { owners: text(owners) }),
            _ => Err(unexpected(script, &Value::Array(parts))),
        },
        (Script::Vote, Value::Array(parts)) => {
            read_vote(&parts).ok_or_else(|| unexpected(Script::Vote, &Value::Array(parts)))
        }
        (
            Script::Acquire
            | Script::Adopt
            | Script::HandoffShare
            | Script::KeepShare
            | Script::Reserve
            | Script::Vote,
            value,
        ) => Err(unexpected(script, &value)),
        (_, Value::Int(answer @ (0 | 1))) => Ok(Reply::Owner(answer == 1)),
        (script, value) => Err(unexpected(script, &value)),
    }
}

fn text(bytes: &[u8]) -> Arc<str> {
    String::from_utf8_lossy(bytes).into()
}

/// The reply in those to the commands that take a lock for `token`. An error of the first decides; after an error of
/// another the lock has no fence.
pub(crate) fn taken(token: &Token, replies: &[Value]) -> Result<Reply, Failure> {
    let [set, counter, lock] = replies else { return Err(Failure::Lost(NOT_RESP.to_owned())) };
    Ok(Reply::Take(match (set, counter, lock) {
        (Value::ServerError(error), ..) => {
            return Err(refused(error.code(), error.details().unwrap_or_default()));
        }
        (Value::Nil, _, Value::Array(values))
            if matches!(values.as_slice(), [Value::BulkString(_), _]) =>
        {
            Take::Held
        }
        (Value::Nil, ..) => Take::Unseen,
        (Value::Okay, Value::Int(last), Value::Array(values)) => match values.as_slice() {
            [Value::BulkString(holder), Value::Nil] if is_token(holder, token) => {
                whole(*last).map_or(Take::Unfenced, |last| Take::Taken { last })
            }
            _ => Take::Overtaken,
        },
        _ => Take::Unfenced,
    }))
}

/// The length of the replies to the commands that take a lock, and what [`taken`] makes of them: without building values, if
/// all are there, and the lock is taken, as nearly always.
pub(crate) fn taken_at_once(bytes: &[u8], token: &Token) -> Option<(usize, Reply)> {
    let (last, rest) = line(bytes.strip_prefix(b"+OK\r\n:")?)?;
    let (length, rest) = line(rest.strip_prefix(b"*2\r\n$")?)?;
    let (holder, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    let rest = rest.strip_prefix(b"\r\n")?;
    let null = |null: &[u8]| rest.strip_prefix(null);
    let rest = null(b"_\r\n").or_else(|| null(b"$-1\r\n"))?;
    let take = whole(last).map_or(Take::Unfenced, |last| Take::Taken { last });
    is_token(holder, token).then_some((bytes.len() - rest.len(), Reply::Take(take)))
}

/// The number that a line consists of, and what follows the line.
fn line(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\r')?;
    let rest = bytes[end..].strip_prefix(b"\r\n")?;
    Some((frames::number(&bytes[..end])?, rest))
}

/// Whether a lock's value is `token`, with the mark or without.
fn is_token(value: &[u8], token: &Token) -> bool {
    value.strip_suffix(b"+").unwrap_or(value) == token.as_str().as_bytes()
}

fn held(parts: &[Value]) -> Result<Reply, Failure> {
    read_held(parts)
        .map(Reply::from)
        .ok_or_else(|| unexpected(Script::Acquire, &Value::Array(parts.to_vec())))
}

fn read_vote(parts: &[Value]) -> Option<Reply> {
    match parts {
        [Value::Int(1), counter, time, Value::Int(written)] => Some(Reply::Voted {
            counter: whole_value(counter)?,
            time: ServerTime::from_micros(whole_value(time)?),
            written: *written == 1,
        }),
        [Value::Int(0), Value::Int(remaining_ms), Value::BulkString(holder)] => {
            Some(unqueued(*remaining_ms, holder).into())
        }
        _ => None,
    }
}

/// A held lock that has no queue.
fn unqueued(remaining_ms: i64, holder: &[u8]) -> Held {
    Held {
        remaining: whole(remaining_ms).map(Duration::from_millis),
        holder: String::from_utf8_lossy(holder).into_owned(),
        ..Held::default()
    }
}

fn read_held(parts: &[Value]) -> Option<Held> {
    if let [Value::Int(remaining_ms), Value::BulkString(holder)] = parts {
        return Some(unqueued(*remaining_ms, holder));
    }
    let [remaining_ms, Value::BulkString(holder), time, position, seq, owners, more @ ..] = parts
    else {
        return None;
    };
    let Value::BulkString(owners) = owners else { return None };
    let position = u32::try_from(whole_value(position)?).ok()?;
    // Other clients can write any score: one out of range is replaced by the nearest that can be sent.
    let seq = u64::try_from(integer(seq)?).unwrap_or(0).min(EXACT_MAX);
    Some(Held {
        remaining: whole_value(remaining_ms).map(Duration::from_millis),
        holder: String::from_utf8_lossy(holder).into_owned(),
        time: ServerTime::from_micros(whole_value(time)?),
        queued: (position > 0).then_some(QueuePosition { position, seq }),
        owners: text(owners),
        queueing: position == 0 && matches!(more, [Value::Int(1), ..]),
        sharer: match more {
            [_, Value::BulkString(sharer), _] => String::from_utf8_lossy(sharer).into_owned(),
            _ => String::new(),
        },
        sharers: match more {
            [_, _, sharers] => u32::try_from(whole_value(sharers)?).ok()?,
            _ => 0,
        },
    })
}

/// A number in a script's answer, if it is not negative.
fn whole(number: i64) -> Option<u64> {
    exact(u64::try_from(number).ok()?)
}

fn whole_value(value: &Value) -> Option<u64> {
    integer(value).and_then(whole)
}

const fn integer(value: &Value) -> Option<i64> {
    if let Value::Int(number) = value { Some(*number) } else { None }
}

/// A reply that none of our scripts gives: its effect is unknown.
fn unexpected(script: Script, value: &Value) -> Failure {
    Failure::Lost(brief(format!("the server answered {script:?} with {value:?}")))
}

/// The reason to end a connection whose bytes make no sense.
pub(super) const NOT_RESP: &str = "the server sent something that is not RESP";

/// Why `bytes`, the first of a server, are no answer of a Redis server.
pub(super) fn stranger(bytes: &[u8]) -> String {
    match bytes {
        [b'H', b'T', b'T', b'P', b'/', ..] => {
            "an HTTP server answered, not a Redis server: check host and port, and if the service has a REST API, use \
             its URL for Redis clients"
        }
        // An alert of TLS.
        [0x15, 3, ..] => "the server speaks TLS: use rediss://",
        _ => NOT_RESP,
    }
    .to_owned()
}

/// Whether a server has refused HELLO itself, not the login in it: it has no RESP3.
pub(super) fn is_without_resp3(failure: &Failure) -> bool {
    let Failure::Refused(Refusal { code, detail }) = failure else { return false };
    let detail = detail.to_ascii_lowercase();
    match &**code {
        "NOPROTO" | "NOPERM" => true,
        // Proxies have words of their own: "unsupported command 'hello'".
        "ERR" => detail.contains("hello") || detail.contains("command"),
        _ => false,
    }
}

/// Builds the value of a whole frame.
pub(super) fn value(frame: &[u8]) -> Result<Value, Failure> {
    redis::parse_redis_value(frame).map_err(|_| Failure::Lost(NOT_RESP.to_owned()))
}

/// The number of commands at the end of a [`login`] that only name the client.
pub(super) const NAMING_COMMANDS: usize = 2;

/// The first commands of a connection. Servers may not know the last ones.
pub(super) fn login(endpoint: &Endpoint, resp: Resp) -> Pipeline {
    let mut pipeline = Pipeline::new();
    let Endpoint { username, password, .. } = endpoint;
    match (resp, password) {
        (Resp::Three, None) => {
            pipeline.cmd("HELLO").arg(3);
        }
        (Resp::Three, Some(password)) => {
            let username = username.as_deref().unwrap_or("default");
            pipeline.cmd("HELLO").arg(3).arg("AUTH").arg(username).arg(password);
        }
        (Resp::Two, None) => {}
        // Without a user in the form that is older than users.
        (Resp::Two, Some(password)) => {
            pipeline.cmd("AUTH").arg(username).arg(password);
        }
    }
    for (field, text) in [("LIB-NAME", "holdfast"), ("LIB-VER", env!("CARGO_PKG_VERSION"))] {
        pipeline.cmd("CLIENT").arg("SETINFO").arg(field).arg(text);
    }
    pipeline
}

/// The command that changes the subscriptions to `channels`.
pub(super) fn subscription(command: &str, channels: &[Arc<str>]) -> Cmd {
    let mut command = redis::cmd(command);
    for channel in channels {
        command.arg(&**channel);
    }
    command
}

/// The commands of a probe, as they are sent.
pub(super) fn probe_commands() -> &'static [u8] {
    static PACKED: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let mut pipeline = Pipeline::new();
        add_probe(&mut pipeline);
        pipeline.get_packed_pipeline()
    });
    &PACKED
}

/// The number of commands that [`add_probe`] adds to a pipeline.
pub(super) const PROBE_COMMANDS: usize = 3;

/// Asks for the server's replication id and its time.
pub(super) fn add_probe(pipeline: &mut Pipeline) {
    pipeline.cmd("INFO").arg("server");
    pipeline.cmd("INFO").arg("replication");
    pipeline.cmd("TIME");
}

/// A server's answer to [`add_probe`].
pub(super) fn probe(values: &[Value]) -> Result<ServerProbe, Failure> {
    let [server, replication, time] = values else {
        return Err(Failure::Lost("the server sent too few answers".to_owned()));
    };
    if let Some(failure) = [server, replication].into_iter().find_map(passing_error) {
        return Err(failure);
    }
    let uptime = info_field(server, "uptime_in_seconds").and_then(|text| text.parse::<i64>().ok());
    Ok(ServerProbe {
        replication_id: replication_id(server, replication),
        time: server_time(time)?,
        // Negative after its clock was set back: zero shows at least that it runs.
        uptime: uptime.map(|seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or(0))),
    })
}

/// The error in place of an answer, unless it lasts: whoever may not run INFO does without.
fn passing_error(answer: &Value) -> Option<Failure> {
    let Value::ServerError(error) = answer else { return None };
    let failure = refused(error.code(), error.details().unwrap_or_default());
    lasting(&failure).is_none().then_some(failure)
}

/// The number of replicas in a server's answer to [`add_probe`].
pub(super) fn connected_replicas(values: &[Value]) -> u32 {
    let count = values.get(1).and_then(|replication| info_field(replication, "connected_slaves"));
    count.and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// Whether a server's answer to [`add_probe`] says that it is a replica. An ACL may forbid INFO; then its
/// first refused write shows it.
pub(super) fn is_replica(values: &[Value]) -> bool {
    let role = values.get(1).and_then(|replication| info_field(replication, "role"));
    role.is_some_and(|role| role == "slave")
}

/// The replication id changes with every promotion, the run id with every start. An ACL may forbid INFO; then
/// this is unknown.
fn replication_id(server: &Value, replication: &Value) -> Option<String> {
    let run = info_field(server, "run_id")?;
    let replication = info_field(replication, "master_replid")?;
    Some(format!("{run}/{replication}"))
}

/// The first commands of a new connection after its login.
pub(super) fn introduction(client_name: &str, db: u32) -> Pipeline {
    let mut pipeline = Pipeline::new();
    add_probe(&mut pipeline);
    pipeline.cmd("INFO").arg("memory");
    pipeline.cmd("CLIENT").arg("SETNAME").arg(client_name);
    // A user who only needs database 0 may lack the permission for SELECT.
    if db != 0 {
        pipeline.cmd("SELECT").arg(db);
    }
    pipeline
}

/// A server's answer to an [`introduction`]: its probe, and the reasons why locks may be less safe there than
/// they could be; `name` is the server's name for people.
pub(super) fn introduced(
    values: &[Value],
    name: &str,
) -> Result<(ServerProbe, Vec<Risk>), Failure> {
    // The answer to SETNAME is ignored: a server that denies it is as good.
    let [about, _replication, _time, memory, _name, selected @ ..] = values else {
        return Err(Failure::Lost("the server sent too few answers".to_owned()));
    };
    // Checked first, because a Sentinel does not know the other commands.
    let mode = info_field(about, "redis_mode").or_else(|| info_field(about, "server_mode"));
    if mode.as_deref() == Some("sentinel") {
        let detail = "mode: it watches servers and keeps no data".to_owned();
        return Err(Failure::Refused(Refusal { code: "SENTINEL".to_owned(), detail }));
    }
    if let Some(version) = dialect::too_old(about) {
        return Err(Failure::Refused(Refusal { code: "VERSION".to_owned(), detail: version }));
    }
    if let [Value::ServerError(error)] = selected {
        return Err(refused(error.code(), error.details().unwrap_or_default()));
    }
    let probe = probe(values.get(..PROBE_COMMANDS).unwrap_or_default())?;
    let risks = is_replica(values).then(|| Risk::Replica(name.to_owned()));
    let risks = risks.into_iter().chain(eviction(memory, name));
    Ok((probe, risks.collect()))
}

/// Every policy but one can evict locks, because all of them have a TTL.
fn eviction(memory: &Value, name: &str) -> Option<Risk> {
    let policy = info_field(memory, "maxmemory_policy").filter(|policy| policy != "noeviction")?;
    let unlimited = info_field(memory, "maxmemory").is_some_and(|limit| limit == "0");
    let yet = if unlimited { ", which evicts nothing as long as maxmemory is 0" } else { "" };
    Some(Risk::Eviction(format!("the maxmemory-policy of {name} is {policy}{yet}")))
}

pub(super) fn info_field(info: &Value, field: &str) -> Option<String> {
    let text = match info {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes),
        Value::VerbatimString { text, .. } => text.into(),
        _ => return None,
    };
    let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    Some(value.trim().to_owned())
}

pub(super) fn server_time(value: &Value) -> Result<ServerTime, Failure> {
    match value {
        Value::ServerError(error) => {
            Err(refused(error.code(), error.details().unwrap_or_default()))
        }
        value => read_time(value).ok_or_else(|| {
            Failure::Lost(brief(format!("the server answered TIME with {value:?}")))
        }),
    }
}

/// Reads `[seconds, µs]`.
fn read_time(value: &Value) -> Option<ServerTime> {
    let Value::Array(parts) = value else { return None };
    let [Value::BulkString(seconds), Value::BulkString(micros)] = parts.as_slice() else {
        return None;
    };
    let number = |digits: &[u8]| std::str::from_utf8(digits).ok()?.parse::<u64>().ok();
    let time = number(seconds)?.checked_mul(1_000_000)?.checked_add(number(micros)?)?;
    exact(time).map(ServerTime::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn a_replication_id_consists_of_run_and_replication() {
        let server = bulk("# Server\r\nredis_version:7.0.15\r\nrun_id:abc\r\n");
        let replication = bulk("role:master\r\nmaster_replid:def\r\nmaster_replid2:000\r\n");
        let time = Value::Array(vec![bulk("1700000000"), bulk("000042")]);
        let values = [server, replication, time];
        assert!(!is_replica(&values));
        let probe = probe(&values).unwrap();
        assert_eq!(probe.replication_id.as_deref(), Some("abc/def"));
        assert_eq!(probe.time.as_micros(), 1_700_000_000_000_042);
    }

    #[test]
    fn a_probe_without_an_answer_is_none() {
        let time = || Value::Array(vec![bulk("1"), bulk("0")]);
        let error = |text: &str| value(format!("-{text}\r\n").as_bytes()).unwrap();
        let denied = "NOPERM this user has no permissions to run the 'info' command";
        for failed in 0..PROBE_COMMANDS {
            let mut values = [bulk(""), bulk(""), time()];
            values[failed] = error("ERR upstream failure");
            assert!(probe(&values).is_err(), "{failed}");
        }
        assert_eq!(probe(&[error(denied), error(denied), time()]).unwrap().replication_id, None);
    }

    #[test]
    fn an_uptime_below_zero_is_none_at_all() {
        let uptime = |text: &str| {
            let time = Value::Array(vec![bulk("1"), bulk("0")]);
            probe(&[bulk(&format!("uptime_in_seconds:{text}\r\n")), bulk(""), time]).unwrap().uptime
        };
        assert_eq!(uptime("7"), Some(Duration::from_secs(7)));
        assert_eq!(uptime("-3598"), Some(Duration::ZERO), "its clock was set back");
    }

    /// A server's answers to an introduction.
    fn answers(server: &str, replication: &str, memory: &str) -> Vec<Value> {
        let time = Value::Array(vec![bulk("1"), bulk("0")]);
        vec![bulk(server), bulk(replication), time, bulk(memory), Value::Okay]
    }

    #[test]
    fn a_server_that_can_lose_locks_is_known_at_once() {
        let risks =
            |role: &str, memory: &str| introduced(&answers("", role, memory), "a:1").unwrap().1;
        assert_eq!(risks("role:master\r\n", "maxmemory_policy:noeviction\r\n"), []);
        assert_eq!(risks("role:slave\r\n", ""), [Risk::Replica("a:1".to_owned())]);
        let full = "maxmemory:100\r\nmaxmemory_policy:allkeys-lru\r\n";
        let expected = "the maxmemory-policy of a:1 is allkeys-lru".to_owned();
        assert_eq!(risks("", full), [Risk::Eviction(expected.clone())]);
        let unlimited = "maxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n";
        let expected = format!("{expected}, which evicts nothing as long as maxmemory is 0");
        assert_eq!(risks("", unlimited), [Risk::Eviction(expected)]);
    }

    #[test]
    fn a_sentinel_is_refused_whatever_it_calls_its_mode() {
        for mode in ["redis_mode:sentinel\r\n", "server_mode:sentinel\r\n"] {
            let mut answers = answers(mode, "", "");
            answers.truncate(3);
            // A Sentinel knows neither TIME nor SELECT, and has no such section.
            answers.extend([bulk(""), Value::Okay, Value::Nil]);
            let Err(Failure::Refused(refusal)) = introduced(&answers, "") else {
                panic!("accepted")
            };
            assert_eq!(refusal.code, "SENTINEL");
        }
        assert!(introduced(&answers("redis_mode:standalone\r\n", "", ""), "").is_ok());
    }

    #[test]
    fn numbers_that_no_server_in_order_sends_are_an_unknown_outcome() {
        const MORE: i64 = 1 << 53;
        let [zero, time] = [Value::Int(0), Value::Int(MORE)];
        let held = [Value::Int(1), bulk("x"), time, zero.clone(), zero.clone(), zero];
        let voted = [Value::Int(1), Value::Int(0), Value::Int(i64::MAX)];
        for (script, value) in [
            (Script::Acquire, Value::Int(MORE)),
            (Script::Acquire, Value::Array(held.to_vec())),
            (Script::AcquireAll, Value::Array(vec![Value::Int(1), Value::Int(MORE)])),
            (Script::Vote, Value::Array(voted.to_vec())),
        ] {
            assert!(matches!(reply(script, value), Err(Failure::Lost(_))), "{script:?}");
        }
        for seconds in ["18446744073709", "18446744073709551615"] {
            let time = Value::Array(vec![bulk(seconds), bulk("999999")]);
            assert!(matches!(server_time(&time), Err(Failure::Lost(_))), "{seconds}");
        }
    }

    #[test]
    fn a_lock_is_taken_at_once_or_by_values() {
        let token = Token::new("c0ffee", 7, "");
        let texts = ["$13\r\nhf1.c0ffee.7+\r\n", "$12\r\nhf1.c0ffee.7\r\n", "$1\r\nx\r\n", "_\r\n"];
        let mut at_once = 0;
        for set in ["+OK\r\n", "_\r\n", "-ERR no\r\n"] {
            for counter in
                [":41\r\n", ":-1\r\n", ":9007199254740993\r\n", "-ERR no\r\n", "$1\r\n4\r\n"]
            {
                for (holder, waiting) in texts.into_iter().flat_map(|text| {
                    ["_\r\n", "$-1\r\n", "$0\r\n\r\n"].map(|waiting| (text, waiting))
                }) {
                    let bytes = format!("{set}{counter}*2\r\n{holder}{waiting}:1\r\n");
                    let mut frames = frames::Frames::new();
                    frames.feed(bytes.as_bytes());
                    let mut values = Vec::new();
                    for _ in Plain::ALL {
                        values.push(value(frames.next().unwrap().unwrap()).unwrap());
                    }
                    let by_values = taken(&token, &values);
                    let Some((length, reply)) = taken_at_once(bytes.as_bytes(), &token) else {
                        let is_common = matches!(by_values, Ok(Reply::Take(Take::Taken { .. })));
                        assert!(!is_common, "{bytes:?}");
                        continue;
                    };
                    at_once += 1;
                    assert_eq!(by_values, Ok(reply), "{bytes:?}");
                    assert_eq!(&bytes[length..], ":1\r\n");
                    for end in 0..length {
                        assert_eq!(taken_at_once(&bytes.as_bytes()[..end], &token), None);
                    }
                }
            }
        }
        assert!(at_once > 0);
    }

    #[test]
    fn a_stranger_is_named() {
        assert!(stranger(b"HTTP/1.1 400 Bad Request\r\n").contains("an HTTP server"));
        assert!(stranger(b"\x15\x03\x01\x00\x02\x02\x46").contains("use rediss://"));
        assert_eq!(stranger(b"220 mail\r\n"), NOT_RESP);
    }

    #[test]
    fn a_server_without_resp3_is_told_from_a_wrong_login() {
        for (code, detail, without) in [
            ("NOPROTO", "unsupported protocol version", true),
            ("ERR", "unknown command 'HELLO', with args beginning with: '3'", true),
            ("ERR", "unsupported command 'hello'", true),
            ("NOPERM", "this user has no permissions to run the 'hello' command", true),
            ("WRONGPASS", "invalid username-password pair or user is disabled.", false),
            ("NOAUTH", "HELLO must be called with the client already authenticated", false),
            ("ERR", "max number of clients reached", false),
        ] {
            assert_eq!(is_without_resp3(&refused(code, detail)), without, "{code} {detail}");
        }
        assert!(!is_without_resp3(&Failure::Lost("unknown command 'HELLO'".to_owned())));
    }

    #[test]
    fn a_text_without_end_is_cut_where_a_letter_ends() {
        let Err(Failure::Lost(text)) = reply(Script::Release, bulk(&"€".repeat(10_000))) else {
            panic!("accepted")
        };
        assert!(text.len() < 500 && text.ends_with('…'), "{text}");
        let Failure::Refused(refusal) = refused("ERR", &"€".repeat(10_000)) else {
            panic!("not")
        };
        assert!(refusal.detail.len() < 500, "{}", refusal.detail);
    }

    #[test]
    fn an_answer_of_the_wrong_shape_is_an_unknown_outcome() {
        for value in [Value::Nil, Value::Okay, Value::Int(-1), Value::Array(vec![Value::Nil])] {
            assert!(matches!(reply(Script::Acquire, value), Err(Failure::Lost(_))));
        }
        assert!(matches!(reply(Script::Release, Value::Int(7)), Err(Failure::Lost(_))));
    }
}
