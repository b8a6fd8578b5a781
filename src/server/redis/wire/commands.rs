//! From calls to commands, in the dialect of the server.

use super::super::command::Command;
use super::super::dialect::{Delete, Dialect};
use super::clockless;
use super::encode::write_script;
use super::plain::{Plain, write_plain};
use crate::protocol::{Call, SendMode};

/// The command that runs `call` by the hash of its script, or the last one of a call of plain commands.
pub(in crate::server) fn command(call: &Call, dialect: Dialect) -> Command {
    let mut command = Command::new();
    write_commands(&mut command, call, SendMode::Plain, dialect, |_| {});
    command
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
            command.push_native_delete(delete, keys, token);
        }
        // Only a server that has the command is asked for it.
        (Call::Renew { keys, token, ttl }, _) => command.push_renewal(keys, token, *ttl),
        (_, Some(_)) if !clock => clockless::write(command, call, send_mode, counters),
        (_, Some(_)) => write_script(command, call, send_mode, counters),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{LockKeys, ServerTime, Token};
    use std::time::Duration;

    /// The names of the commands of a call, and the number of their parts.
    fn written(call: &Call, dialect: Dialect) -> Vec<(String, usize)> {
        let (mut command, mut written) = (Command::new(), Vec::new());
        // The function clears the command first.
        command.arg("PING");
        write_commands(&mut command, call, SendMode::Plain, dialect, |command| {
            let name = command.parts().next().unwrap();
            let name = String::from_utf8_lossy(name).into_owned();
            written.push((name, command.parts().count()));
        });
        written
    }

    #[test]
    fn a_call_is_written_as_its_server_understands_it() {
        let keys = LockKeys::new("lock:", "a");
        let token = Token::from_text("hf1.client.7");
        let ttl = Duration::from_secs(1);
        let delete = Call::Delete { keys: keys.clone(), token: token.clone() };
        let renew = Call::Renew { keys: keys.clone(), token: token.clone(), ttl };
        let take = Call::Take { keys, token, ttl, block: 1 };
        let with = |delete| Dialect { delete, ..Dialect::PLAIN };
        let one = |name: &str, parts| vec![(name.to_owned(), parts)];
        assert_eq!(written(&delete, with(Delete::Delex)), one("DELEX", 4));
        assert_eq!(written(&delete, with(Delete::Delifeq)), one("DELIFEQ", 3));
        let [script] = &written(&delete, with(Delete::Script))[..] else { panic!() };
        assert_eq!(script.0, "EVALSHA");
        assert_eq!(written(&renew, Dialect::PLAIN), one("SET", 7));
        let names: Vec<_> = written(&take, Dialect::PLAIN).into_iter().map(|it| it.0).collect();
        assert_eq!(names, ["SET", "INCRBY", "MGET"]);
    }

    #[test]
    fn a_server_without_a_clock_is_asked_to_free_a_lock_without_serving_its_queue() {
        let (keys, token) = (LockKeys::new("lock:", "a"), Token::from_text("hf1.client.7"));
        let free = Call::Free { keys: keys.clone(), token: token.clone() };
        let epoch = ServerTime::from_micros(0);
        let release = Call::Release { keys, token, epoch, shared: false };
        let script = |call, clock| {
            let mut hash = None;
            let dialect = Dialect { clock, ..Dialect::PLAIN };
            write_commands(&mut Command::new(), call, SendMode::Plain, dialect, |command| {
                hash = command.parts().nth(1).map(<[u8]>::to_vec);
            });
            hash.unwrap()
        };
        assert_eq!(script(&release, false), script(&free, true));
        assert_ne!(script(&release, true), script(&free, true));
    }
}
