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
