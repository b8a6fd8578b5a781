//! Calls to a server whose scripts cannot read its clock. Without the time there is no wait queue and no share, so
//! exclusive locks alone work there.

use super::super::Command;
use super::encode::write_script;
use crate::protocol::{Call, Counters, Intent, Mode, Script, SendMode};

/// The answer to a call that needs the clock.
const REFUSAL: &str = "NOCLOCK scripts on this server may not run TIME, which everything but exclusive locks \
                       needs: no shares, no limits, no steal, adopt, downgrade or force";

/// Writes the script that does without the clock what `call` asks for, or one that refuses.
pub(super) fn write(command: &mut Command, call: &Call, send_mode: SendMode, counters: Counters) {
    match call {
        Call::Acquire {
            keys,
            token,
            ttl,
            epoch,
            block,
            intent: intent @ (Intent::Join(_) | Intent::Poll | Intent::Try),
            mode: Mode::Exclusive,
            ..
        } => {
            command.begin_script(Script::AcquireUnqueued, send_mode);
            command.arg(2).arg(keys.lock()).arg(keys.counter(counters)).arg(token);
            command.arg(*ttl).arg(*epoch);
            command.arg(if *intent == Intent::Poll { "poll" } else { "try" });
            command.arg(u64::from(*block));
        }
        // There are no queues, so there is nothing to serve.
        Call::Release { keys, token, .. } => {
            let free = Call::Free { keys: keys.clone(), token: token.clone() };
            write_script(command, &free, send_mode, counters);
        }
        Call::Claim { .. }
        | Call::Delete { .. }
        | Call::Extend { .. }
        | Call::Free { .. }
        | Call::KeepForeign { .. } => {
            write_script(command, call, send_mode, counters);
        }
        _ => {
            command.arg("EVAL").arg("return redis.error_reply(ARGV[1])").arg(0).arg(REFUSAL);
        }
    }
}
