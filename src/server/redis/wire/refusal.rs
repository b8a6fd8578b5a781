//! Errors of servers.

use crate::protocol::{Failure, Refusal};
use redis::{RedisError, ServerError};

/// Longer error texts are cut to this many bytes: people are to read them.
const TEXT_MAX: usize = 400;

/// Cuts a text that is too long.
pub(in crate::server) fn brief(mut text: String) -> String {
    if text.len() > TEXT_MAX {
        let end = (0..=TEXT_MAX).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or(0));
        text.push('…');
    }
    text
}

pub(in crate::server) fn refused(code: &str, detail: &str) -> Failure {
    if code == "NOSCRIPT" {
        return Failure::NoScript;
    }
    // While a slot moves, a script cannot write to a key that it has deleted.
    if detail.contains("attempted to access a non local key") {
        return Failure::Halfway;
    }
    let (code, detail) = from_inside_a_script(detail).unwrap_or((code, detail));
    let (code, detail) = forbidden_to_a_script(detail).map_or((code, detail), |it| ("NOPERM", it));
    // The script's hash and line are cut off. The arguments of an unknown command are cut off too, because
    // those of HELLO are the login.
    let detail = match detail.rsplit_once(" script: ") {
        // Valkey 9.1 leaves the hash out.
        Some((before, place)) if place.contains(", on ") || place.starts_with("on @") => before,
        _ => detail,
    };
    let detail = detail.split_once(", with args beginning with").map_or(detail, |(it, _)| it);
    Failure::Refused(Refusal { code: brief(code.to_owned()), detail: brief(detail.to_owned()) })
}

/// An ACL's refusal in a script has no code: the first text before Redis 7.2, then the second.
pub(in crate::server) fn forbidden_to_a_script(detail: &str) -> Option<&str> {
    ["The user executing the script can't", "ACL failure in script: "]
        .iter()
        .find_map(|words| detail.get(detail.find(words)?..))
}

/// The refusal of an error that stands for as long as the connection lasts: the server lacks the command, or the user
/// lacks the right to it. Other errors pass, such as those of a proxy that cannot reach its server.
pub(in crate::server) fn lasting(failure: &Failure) -> Option<&Refusal> {
    match failure {
        Failure::Refused(refusal)
            if refusal.code == "NOPERM" || is_about_the_command(&refusal.to_string()) =>
        {
            Some(refusal)
        }
        _ => None,
    }
}

/// Whether a refusal names this command, which every server quotes in a way of its own.
pub(in crate::server) fn is_about(refusal: &Refusal, command: &str) -> bool {
    let quoted =
        |word: &str| word.trim_matches(|mark: char| !mark.is_ascii_alphanumeric()) == command;
    refusal.detail.to_ascii_uppercase().split_whitespace().any(quoted)
}

/// Whether a server has refused a login, or wants one.
pub(in crate::server) fn is_login(failure: &Failure) -> bool {
    matches!(failure, Failure::Refused(refusal) if refusal.is_login())
}

/// Whether an error says that a command may not run at all. Others are about its arguments, about the key (another
/// server may have it, or the user has no right to it), or about the state of the server.
pub(in crate::server) fn is_about_the_command(error: &str) -> bool {
    let error = error.to_ascii_lowercase();
    let words = [
        "can't run this command",
        "permissions to run",
        "is not allowed",
        "not allowed from script",
        "unknown command",
        "unknown redis command",
        "subcommand",
        "unsupported command",
        "not support",
        // Services that restrict scripts say so.
        "bad lua script",
        "number of keys",
    ];
    words.iter().any(|part| error.contains(part))
}

/// Redis 6 wraps an error that a command raised inside a script:
/// `ERR Error running script (call to f_…): @user_script:7: @user_script: 7: -OOM command not …`.
fn from_inside_a_script(detail: &str) -> Option<(&str, &str)> {
    if !detail.starts_with("Error running script") {
        return None;
    }
    let (_, place) = detail.rsplit_once("@user_script")?;
    let mut parts = place.splitn(3, ':');
    let error = parts.nth(2)?.trim_start().trim_start_matches('-');
    let (code, detail) = error.split_once(' ')?;
    code.bytes().all(|byte| byte.is_ascii_uppercase()).then_some((code, detail))
}

/// The failure that an error in place of a reply means.
pub(in crate::server) fn error_reply(error: &ServerError) -> Failure {
    refused(error.code(), error.details().unwrap_or_default())
}

/// The failure that an error of the client library means.
pub(in crate::server) fn failure(error: &RedisError) -> Failure {
    let detail = error.detail().unwrap_or_default();
    match error.code() {
        Some(code) => refused(code, detail),
        None => Failure::Lost(brief(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_inside_a_script_has_its_own_code_on_every_server() {
        let six = "Error running script (call to f_5fa): @user_script:19: @user_script: 19: \
                   -OOM command not allowed when used memory > 'maxmemory'.";
        let six_plain = "Error running script (call to f_5fa): @user_script:7: WRONGTYPE Operation";
        let six_denied = "Error running script (call to f_5fa): @user_script:7: @user_script: 7: \
                          The user executing the script can't run this command";
        let seven_denied = "The user executing the script can't access a key script: 5fa, on x.";
        let valkey_denied =
            "ACL failure in script: User a has no permissions script: 5fa, on @user_script:7.";
        let seven = "command not allowed. script: 5fa, on @user_script:19.";
        let nine = "command not allowed. script: on @user_script:19";
        for (code, detail, expected) in [
            ("ERR", six, ("OOM", "command not allowed when used memory > 'maxmemory'.")),
            ("ERR", six_plain, ("WRONGTYPE", "Operation")),
            ("OOM", seven, ("OOM", "command not allowed.")),
            ("OOM", nine, ("OOM", "command not allowed.")),
            ("ERR", six_denied, ("NOPERM", "The user executing the script can't run this command")),
            ("ERR", seven_denied, ("NOPERM", "The user executing the script can't access a key")),
            ("ERR", valkey_denied, ("NOPERM", "ACL failure in script: User a has no permissions")),
            ("ERR", "something else", ("ERR", "something else")),
            (
                "ERR",
                "unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'me' 's3cret' ",
                ("ERR", "unknown command 'HELLO'"),
            ),
        ] {
            let Failure::Refused(refusal) = refused(code, detail) else { panic!("not refused") };
            assert_eq!((refusal.code.as_str(), refusal.detail.as_str()), expected);
        }
    }

    #[test]
    fn a_refused_login_is_known_without_a_code() {
        for (code, detail, login) in [
            ("WRONGPASS", "invalid username-password pair or user is disabled.", true),
            ("NOAUTH", "Authentication required.", true),
            // Redis 5, and Kvrocks.
            ("ERR", "invalid password", true),
            ("ERR", "Invalid password", true),
            ("ERR", "unknown command 'HELLO'", false),
        ] {
            assert_eq!(is_login(&refused(code, detail)), login, "{code} {detail}");
        }
    }

    #[test]
    fn a_refusal_names_its_command() {
        for (detail, named) in [
            ("this user has no permissions to run the 'time' command", true),
            ("unknown command `TIME`, with args beginning with:", true),
            ("unknown command 'CONFIG'", false),
            ("a timeout", false),
        ] {
            let refusal = Refusal { code: "ERR".to_owned(), detail: detail.to_owned() };
            assert_eq!(is_about(&refusal, "TIME"), named, "{detail}");
        }
    }

    #[test]
    fn what_lasts_is_told_from_what_passes() {
        for (code, detail, lasts) in [
            ("NOPERM", "No permissions to access a key", true),
            ("ERR", "unknown command 'MGET'", true),
            ("ERR", "command 'MGET' is not allowed", true),
            ("ERR", "Unknown PUBSUB subcommand or wrong number of arguments for 'NUMSUB'", true),
            ("ERR", "ACL failure in script: No permissions to access a channel", true),
            ("ERR", "upstream failure", false),
            ("ERR", "Connection timed out", false),
            ("ERR", "max number of clients reached", false),
            ("LOADING", "Redis is loading the dataset in memory", false),
            ("BUSY", "Redis is busy running a script. You can only call SCRIPT KILL", false),
            ("OOM", "command not allowed when used memory > 'maxmemory'.", false),
            ("MISCONF", "Commands that may modify the data set are disabled", false),
            ("NOREPLICAS", "Not enough good replicas to write.", false),
        ] {
            let failure = refused(code, detail);
            assert_eq!(lasting(&failure).is_some(), lasts, "{code} {detail}");
        }
        assert_eq!(lasting(&Failure::Lost("unknown command".to_owned())), None);
    }
}
