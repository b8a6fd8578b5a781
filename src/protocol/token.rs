//! Owner tokens, which name the holders of locks.

use super::mode::Mode;
use super::text;
use std::fmt;
use std::sync::Arc;

/// The start of every token of holdfast. A lock whose value begins otherwise belongs to other code and is respected,
/// never touched.
pub const TOKEN_PREFIX: &str = "hf1.";

/// The start of a lock's value while plain commands have taken its only share; its token follows. No client has this
/// name.
const LONE_SHARE: &str = "hf1.shared.";

/// The start of a label that is a whole token, which its caller has chosen. Other processes may have it at the same time,
/// or later, for a hold of their own. No label of a caller has it.
const CHOSEN: char = '=';

/// The start of a label that is a whole token, made for one hold and never used again. No label of a caller has it.
const MADE: char = '!';

/// The start of a label that names an owner: every hold of that owner has it, in any process. No other label begins so.
const OWNER: char = '@';

/// Whether a label names an owner.
pub(crate) fn is_owner(label: &str) -> bool {
    label.starts_with(OWNER)
}

/// Whether a label is a whole token that others may have as well.
pub(crate) fn is_chosen(label: &str) -> bool {
    label.starts_with(CHOSEN)
}

/// Whether a label is a whole token.
pub(crate) fn is_whole(label: &str) -> bool {
    label.starts_with([CHOSEN, MADE])
}

/// The longest label of a caller, in bytes as it is written: what may not stand in a token is written as `%` and two digits.
const LABEL_MAX: usize = 240;

/// The unit of the numbers of tokens, in µs.
pub(crate) const TICK_US: u64 = 4;

/// Names one owner of one lock: `hf1.<client>.<n>[/<limit>[/<permits>]][.<label>]`.
///
/// `client` is a UUID v7 per manager, which begins with the ms from 1970 to its start. `n` is the time from that start to
/// the moment when the lock was asked for, in units of 4 µs, or 1 more than the last `n` if that is greater. So a token is
/// unique, and shows in Redis which process holds a lock. Of a share with a limit it also tells that, and the number of its
/// permits unless it is one: so the set of shares needs no more members for that. A token is never used again once its
/// release was sent, unless its caller has chosen it, and adopts it anew.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Token(Arc<str>);

impl Token {
    /// The token number `n` of `client`, with a label for people (empty for none).
    #[must_use]
    pub fn new(client: &str, n: u64, label: &str) -> Self {
        Tokens::of(client).number(n, Mode::Exclusive, label)
    }

    /// A token that was read from Redis.
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        Self(text.into())
    }

    /// The manager that it belongs to; none if it is not a token of holdfast.
    #[must_use]
    pub fn client(&self) -> Option<&str> {
        let (client, _) = self.0.strip_prefix(TOKEN_PREFIX)?.split_once('.')?;
        Some(client)
    }

    /// The token's number, if it is one of `client`. A value that begins with a token, and goes on behind a space, is
    /// another one, which its caller has chosen.
    #[must_use]
    pub fn number(&self, client: &str) -> Option<u64> {
        let rest = self.0.strip_prefix(TOKEN_PREFIX)?.strip_prefix(client)?.strip_prefix('.')?;
        if rest.contains(' ') {
            return None;
        }
        rest.split(['.', '/']).next()?.parse().ok()
    }

    /// What its owner asked for, if it is a share: how many permits of how many.
    #[must_use]
    pub fn share(&self) -> Mode {
        let terms = || {
            let (_, rest) = self.0.strip_prefix(TOKEN_PREFIX)?.split_once('.')?;
            let mut parts = rest.split('.').next()?.split('/');
            let _number: u64 = parts.next()?.parse().ok()?;
            let limit = parts.next()?.parse().ok()?;
            Some(Mode::permits(
                parts.next().map_or(Some(1), |permits| permits.parse().ok())?,
                limit,
            ))
        };
        terms().unwrap_or(Mode::SHARED)
    }

    /// The label of a token of holdfast; empty if it has none, or one that no caller can have.
    #[must_use]
    pub fn label(&self) -> &str {
        let rest = self.0.strip_prefix(TOKEN_PREFIX).and_then(|rest| rest.splitn(3, '.').nth(2));
        let may_have = |byte: u8| byte.is_ascii_alphanumeric() || b"._~-%".contains(&byte);
        rest.filter(|label| label.len() <= LABEL_MAX && label.bytes().all(may_have)).unwrap_or("")
    }

    /// Whether it is a hold of the owner whom `label` names.
    #[must_use]
    pub fn is_of_owner(&self, label: &str) -> bool {
        let rest = self.0.strip_prefix(TOKEN_PREFIX).and_then(|rest| rest.splitn(3, '.').nth(2));
        is_owner(label) && rest == Some(label)
    }

    /// The value of a lock of which plain commands have taken a share for this token, the only one.
    #[must_use]
    pub fn lone_share(&self) -> Self {
        Self(text::join(&[LONE_SHARE, &self.0]))
    }

    /// The token as it is stored in Redis.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Makes the tokens of one client, which begin alike.
#[derive(Debug)]
pub(crate) struct Tokens {
    start: String,
}

impl Tokens {
    pub(crate) fn of(client: &str) -> Self {
        Self { start: [TOKEN_PREFIX, client, "."].concat() }
    }

    /// The token number `n` of a lock or share, with a label (empty for none).
    pub(crate) fn number(&self, n: u64, mode: Mode, label: &str) -> Token {
        let mut number = itoa::Buffer::new();
        let number = number.format(n);
        let dot = if label.is_empty() { "" } else { "." };
        let Mode::Shared { limit: Some(limit), permits } = mode else {
            return Token(text::join(&[&self.start, number, dot, label]));
        };
        let (mut most, mut own) = (itoa::Buffer::new(), itoa::Buffer::new());
        let most = most.format(limit.get());
        let (slash, own) =
            if permits.get() > 1 { ("/", own.format(permits.get())) } else { ("", "") };
        Token(text::join(&[&self.start, number, "/", most, slash, own, dot, label]))
    }

    /// The token of a lock with this `label`, which is number `n` unless the label names the whole token.
    pub(crate) fn labelled(&self, n: u64, mode: Mode, label: &str) -> Token {
        label
            .strip_prefix([CHOSEN, MADE])
            .map_or_else(|| self.number(n, mode, label), Token::from_text)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_client_the_number_and_the_label() {
        assert_eq!(Token::new("c0ffee", 7, "").as_str(), "hf1.c0ffee.7");
        assert_eq!(Token::new("c0ffee", 7, "cron").as_str(), "hf1.c0ffee.7.cron");
        assert_eq!(Token::new("c0ffee", 7, "cron").number("c0ffee"), Some(7));
        assert_eq!(Token::new("c0ffee", 7, "").number("c0ff"), None);
        assert_eq!(Token::from_text("hf1.c0ffee.7.cron done").number("c0ffee"), None);
        for label in ["", "cron", "web-1.4711", "a.b~c_d", "by%20anna%40x"] {
            assert_eq!(Token::new("c0ffee", 7, label).label(), label);
        }
        for text in ["", "old code.7.x", "hf1.c0ffee.7.=other", "hf1.c0ffee.7.a b"] {
            assert_eq!(Token::from_text(text).label(), "", "{text}");
        }
        assert_eq!(Token::new("c0ffee", 7, &"x".repeat(241)).label(), "");
        let owned = Token::new("c0ffee", 7, "@order.7%20x");
        assert_eq!(owned.as_str(), "hf1.c0ffee.7.@order.7%20x");
        assert_eq!((owned.number("c0ffee"), owned.label()), (Some(7), ""));
        assert!(owned.is_of_owner("@order.7%20x"));
        for label in ["", "@", "@order", "order.7%20x", "@order.7%20x."] {
            assert!(!owned.is_of_owner(label), "{label}");
        }
        assert!(!Token::new("c0ffee", 7, "cron").is_of_owner("cron"), "a label is no owner");
        for (mode, text) in [
            (Mode::SHARED, "hf1.c0ffee.7.a/b"),
            (Mode::permits(1, 10), "hf1.c0ffee.7/10.a/b"),
            (Mode::permits(3, 10), "hf1.c0ffee.7/10/3.a/b"),
            (
                Mode::permits((1 << 53) - 2, (1 << 53) - 1),
                "hf1.c0ffee.7/9007199254740991/9007199254740990.a/b",
            ),
        ] {
            let token = Tokens::of("c0ffee").number(7, mode, "a/b");
            assert_eq!((token.as_str(), token.share()), (text, mode));
            assert_eq!(token.number("c0ffee"), Some(7));
        }
        for text in
            ["", "old", "hf1.c0ffee.7/x", "hf1.c0ffee.7/10/x", "hf1.c0ffee.7/0/3", "hf1.c.a/2.7"]
        {
            assert_eq!(Token::from_text(text).share(), Mode::SHARED, "{text}");
        }
        let share = Token::new("c0ffee", 7, "cron").lone_share();
        assert_eq!(share.as_str(), "hf1.shared.hf1.c0ffee.7.cron");
        assert_eq!(share.number("c0ffee"), None);
    }
}
