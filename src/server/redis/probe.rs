//! The commands that a server allows to scripts, found out by a script on each new connection. Scripts are not rolled back, so none may
//! meet a refusal after its first write.

use super::wire;
use crate::protocol::{Failure, Refusal, Script};
use redis::{Pipeline, Value};
use std::sync::LazyLock;

/// Tries what scripts do. Changes nothing: the commands on `ARGV[1]`, a key that is not there, either need one that is,
/// or have an argument that a server rejects after it has checked the user's rights. Publishes an empty message, which
/// means nothing, to the channel `ARGV[2]`. Returns the errors of TIME, PUBLISH and PUBSUB, '' for none, and then the
/// name and error of each other command that has one.
const PROBE: &str = "\
local key, channel = ARGV[1], ARGV[2]
local function refusal(...)
  local reply = redis.pcall(...)
  return type(reply) == 'table' and reply.err or ''
end
local refusals = {
  refusal('TIME'),
  channel and refusal('PUBLISH', channel, '') or '',
  channel and refusal('PUBSUB', 'NUMSUB', channel) or '',
}
if not key or redis.pcall('EXISTS', key) == 1 then
  return refusals
end
local function try(name, ...)
  local why = refusal(name, key, ...)
  if why ~= '' then
    refusals[#refusals + 1] = name .. ' ' .. why
  end
end
try('DEL')
try('EXISTS')
try('GET')
try('HDEL', 'x')
try('HGET', 'x')
try('HSET', 'x', 'x', 'x')
try('INCRBY', 'x')
try('PEXPIRE', 1)
try('PTTL')
try('SET', 'x', 'XX')
try('ZADD', 'XX', 1, 'x')
try('ZCOUNT', 0, 0)
try('ZRANGE', 0, 0)
try('ZRANGEBYSCORE', 0, 0)
try('ZRANK', 'x')
try('ZREM', 'x')
try('ZSCORE', 'x')
return refusals
";

static PROBE_HASH: LazyLock<String> =
    LazyLock::new(|| redis::Script::new(PROBE).get_hash().to_owned());

/// A key that only the probe names. Users with the least rights may use it.
pub(super) const NO_KEY: &str = "holdfast:probe";

/// Adds the probe to a pipeline, and then a call by its hash alone, which may be a right of its own.
pub(super) fn add_to(pipeline: &mut Pipeline, channel: Option<&str>) {
    pipeline.cmd("EVAL").arg(PROBE).arg(0).arg(NO_KEY).arg(channel);
    pipeline.cmd("EVALSHA").arg(&*PROBE_HASH).arg(0);
}

/// Adds a call by its hash that has a key, which some services want of every script.
pub(super) fn add_hash_with_key(pipeline: &mut Pipeline, key: &str) {
    pipeline.cmd("EVALSHA").arg(&*PROBE_HASH).arg(1).arg(key);
}

/// The commands that a server refuses to scripts, and its words about it.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct Refused {
    pub(super) clock: Option<String>,
    pub(super) publish: Option<String>,
    /// Other commands, by name.
    commands: Vec<(String, String)>,
    /// The commands that call scripts.
    calls: Vec<(&'static str, Refusal)>,
}

/// Reads the answer of the probe. Fails if it does not tell whether scripts may read the clock and publish.
pub(super) fn refused(answer: &Value) -> Result<Refused, Failure> {
    let Value::Array(parts) = answer else { return Ok(Refused::default()) };
    let mut texts = parts.iter().map(|part| match part {
        Value::BulkString(text) => wire::brief(String::from_utf8_lossy(text).into_owned()),
        _ => String::new(),
    });
    let mut next = || texts.next().filter(|text| !text.is_empty()).map(lasting).transpose();
    let (clock, publish, count) = (next()?, next()?, next()?);
    let commands = texts
        .filter(|text| wire::is_about_the_command(text))
        .filter_map(|text| text.split_once(' ').map(|(name, why)| (name.into(), why.into())))
        .collect();
    Ok(Refused { clock, publish: publish.or(count), commands, calls: Vec::new() })
}

/// The error that a script got, if it lasts.
fn lasting(error: String) -> Result<String, Failure> {
    let (code, detail) = error.split_once(' ').unwrap_or((&error, ""));
    let failure = wire::refused(code, detail);
    if wire::lasting(&failure).is_some() { Ok(error) } else { Err(failure) }
}

impl Refused {
    /// Notes that a command which calls scripts is refused itself: whatever it calls, the server's words are the same.
    pub(super) fn deny(&mut self, call: &'static str, refusals: &[&Option<Refusal>]) {
        if let [Some(first), rest @ ..] = refusals
            && rest.iter().all(|refusal| refusal.as_ref() == Some(first))
        {
            self.calls.push((call, first.clone()));
        }
    }

    /// The refusal of a server where one of `scripts` could not be called, or end after its first write; none if all of them
    /// can run. `user` is the ACL user.
    pub(super) fn half_done(&self, scripts: &[Script], user: &str) -> Option<Refusal> {
        let calls: Vec<_> = self.calls.iter().map(|(name, _)| *name).collect();
        if let Some((_, why)) = self.calls.first() {
            return Some(needed("locks", &calls, why, user));
        }
        let runs = |name: &str| {
            let call = format!("call('{name}'");
            scripts.iter().any(|script| script.source().contains(&call))
        };
        let missing: Vec<_> = self.commands.iter().filter(|(name, _)| runs(name)).collect();
        let (_, why) = missing.first()?;
        let names = missing.iter().map(|(name, _)| &**name).collect::<Vec<_>>();
        let denied = wire::forbidden_to_a_script(why).is_some();
        let code = if denied { "NOPERM" } else { "ERR" };
        let why = Refusal { code: code.to_owned(), detail: why.clone() };
        Some(needed("the scripts of locks", &names, &why, user))
    }
}

/// The refusal of commands without which there are no locks. `who` must run them.
pub(super) fn needed(who: &str, names: &[&str], why: &Refusal, user: &str) -> Refusal {
    let all = names.join(", ");
    // A right to keys, channels or a database is not had by granting commands.
    let detail = if why.code == "NOPERM" && wire::is_about_the_command(&why.to_string()) {
        let rule = names.join(" +").to_ascii_lowercase();
        format!("{who} may not run {all}: grant it by ACL SETUSER {user} +{rule}")
    } else {
        format!("{who} may not run {all}: {}", why.detail)
    };
    Refusal { code: why.code.clone(), detail }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn answer(texts: &[&str]) -> Value {
        Value::Array(texts.iter().map(|text| Value::BulkString((*text).into())).collect())
    }

    /// The names after `before` in a text.
    fn names(text: &'static str, before: &str) -> BTreeSet<&'static str> {
        text.split(before).skip(1).filter_map(|rest| rest.split('\'').next()).collect()
    }

    #[test]
    fn every_command_of_the_scripts_is_tried() {
        let tried = names(PROBE, "try('");
        let asked = names(PROBE, "refusal('");
        let used: BTreeSet<_> =
            Script::ALL.iter().flat_map(|script| names(script.source(), "call('")).collect();
        assert!(asked.is_disjoint(&tried), "no command is both tried and asked about");
        assert_eq!(used, tried.union(&asked).copied().collect());
    }

    #[test]
    fn what_a_server_refuses_is_read() {
        assert_eq!(refused(&answer(&["", "", ""])), Ok(Refused::default()));
        assert_eq!(refused(&Value::Nil), Ok(Refused::default()));
        let no = "This Redis command is not allowed from script";
        let no_time = refused(&answer(&[no, "", ""])).unwrap();
        assert_eq!((no_time.clock.as_deref(), no_time.publish), (Some(no), None));
        for texts in [["", no, ""], ["", "", no]] {
            let no_messages = refused(&answer(&texts)).unwrap();
            assert_eq!((no_messages.clock, no_messages.publish.as_deref()), (None, Some(no)));
        }
        for texts in [["ERR later", "", ""], ["", "ERR later", ""], ["", "", "ERR later"]] {
            assert!(refused(&answer(&texts)).is_err(), "{texts:?}");
        }
    }

    #[test]
    fn what_the_probe_cannot_know_refuses_nothing() {
        let other = [
            "INCRBY ERR value is not an integer or out of range",
            "HSET ERR wrong number of arguments for 'hset' command",
            "SET ERR Script attempted to access a non local key in a cluster node",
            "ZADD ERR ACL failure in script: No permissions to access a key",
            "ZREM READONLY You can't write against a read only replica.",
            "GET ERR The user executing the script can't access at least one of the keys",
            "DEL OOM command not allowed when used memory > 'maxmemory'.",
            "SET ERR unsupported option XX",
        ];
        assert_eq!(refused(&answer(&[&["", "", ""], &other[..]].concat())), Ok(Refused::default()));
    }

    #[test]
    fn a_script_that_could_end_halfway_is_named_by_its_commands() {
        let refusal = |texts: &[&str], scripts: &[Script]| {
            let refused = refused(&answer(&[&["", "", ""], texts].concat())).unwrap();
            refused.half_done(scripts, "app").map(|refusal| refusal.to_string())
        };
        let six = "ZADD @user_script: 4: The user executing the script can't run this command";
        let eight = "HSET ERR ACL failure in script: User app has no permissions to run the 'hset'";
        assert_eq!(
            refusal(&[six, eight], &Script::ALL).as_deref(),
            Some(
                "NOPERM the scripts of locks may not run ZADD, HSET: grant it by \
                 ACL SETUSER app +zadd +hset"
            )
        );
        assert_eq!(refusal(&[six, eight], &[Script::Free, Script::Extend]), None);
        let service = "ZADD ERR This Redis command is not allowed from script";
        let text = refusal(&[service], &Script::ALL).unwrap();
        assert!(text.starts_with("ERR the scripts of locks may not run ZADD: ERR This"), "{text}");
    }

    #[test]
    fn a_command_is_granted_only_where_its_right_is_what_lacks() {
        let said = |detail: &str| {
            let why = Refusal { code: "NOPERM".to_owned(), detail: detail.to_owned() };
            needed("locks", &["EVAL", "EVALSHA"], &why, "app").detail
        };
        let command = "User app has no permissions to run the 'eval' command";
        assert!(
            said(command).ends_with("grant it by ACL SETUSER app +eval +evalsha"),
            "the refusal names the right to grant"
        );
        for right in ["No permissions to access database", "No permissions to access a key"] {
            assert_eq!(said(right), format!("locks may not run EVAL, EVALSHA: {right}"));
        }
    }
}
