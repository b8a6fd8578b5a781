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

/// The part of a token that its caller gives.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Label {
    /// The text at its end, as it is written there; empty for none.
    Text(Arc<str>),
    /// The whole token, which the caller has chosen. Other processes may have it at the same time, or later, for a hold of
    /// their own.
    Chosen(Arc<str>),
    /// The whole token, made for one hold and never used again.
    Made(Arc<str>),
}

impl Label {
    /// Whether it is a whole token that others may have as well.
    pub(crate) fn is_chosen(&self) -> bool {
        matches!(self, Self::Chosen(_))
    }

    /// Whether it is a whole token.
    pub(crate) fn is_token(&self) -> bool {
        !matches!(self, Self::Text(_))
    }

    /// The label in a token, or the whole token.
    pub(crate) fn into_text(self) -> Arc<str> {
        let (Self::Text(text) | Self::Chosen(text) | Self::Made(text)) = self;
        text
    }
}

/// The start of a label that names an owner: every hold of that owner has it, in any process. No other label begins so.
const OWNER: char = '@';

/// Whether a label names an owner.
pub(crate) fn is_owner(label: &str) -> bool {
    label.starts_with(OWNER)
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

    fn parts(&self) -> Option<Parts<'_>> {
        Parts::read(&self.0)
    }

    /// The manager that it belongs to; none if it is not a token of holdfast.
    #[must_use]
    pub fn client(&self) -> Option<&str> {
        Some(self.parts()?.client)
    }

    /// The token's number, if it is one of `client`. A value that begins with a token, and goes on behind a space, is
    /// another one, which its caller has chosen.
    #[must_use]
    pub fn number(&self, client: &str) -> Option<u64> {
        let parts = self.parts().filter(|parts| parts.client == client)?;
        parts.number.filter(|_| !self.0.contains(' '))
    }

    /// The terms of its owner, if it is a share: how many permits of how many.
    #[must_use]
    pub fn share(&self) -> Mode {
        let share = |parts: Parts<'_>| parts.number.and_then(|_| Mode::read_terms(parts.terms));
        self.parts().and_then(share).unwrap_or(Mode::SHARED)
    }

    /// The label of a token of holdfast; empty if it has none, or one that no caller can have.
    #[must_use]
    pub fn label(&self) -> &str {
        let may_have = |byte: u8| byte.is_ascii_alphanumeric() || b"._~-%".contains(&byte);
        let label = self.parts().map_or("", |parts| parts.label);
        if label.len() <= LABEL_MAX && label.bytes().all(may_have) { label } else { "" }
    }

    /// Whether it is a hold of the owner whom `label` names.
    #[must_use]
    pub fn is_of_owner(&self, label: &str) -> bool {
        is_owner(label) && self.parts().is_some_and(|parts| parts.label == label)
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

/// The parts of a token of holdfast, see [`Token`]. [`Tokens`] writes it.
struct Parts<'a> {
    client: &'a str,
    /// None if there stands something else.
    number: Option<u64>,
    /// Behind the number; empty without a limit.
    terms: &'a str,
    label: &'a str,
}

impl<'a> Parts<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let (client, rest) = text.strip_prefix(TOKEN_PREFIX)?.split_once('.')?;
        let (head, label) = rest.split_once('.').unwrap_or((rest, ""));
        let (number, terms) = head.split_at(head.find('/').unwrap_or(head.len()));
        Some(Self { client, number: number.parse().ok(), terms, label })
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
        let (mut limit, mut permits) = (itoa::Buffer::new(), itoa::Buffer::new());
        let Some([slash, limit, and, permits]) = mode.terms(&mut limit, &mut permits) else {
            return Token(text::join(&[&self.start, number, dot, label]));
        };
        Token(text::join(&[&self.start, number, slash, limit, and, permits, dot, label]))
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
    use std::path::Path;

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
        assert!(owned.is_of_owner("@order.7%20x"), "the token tells its owner");
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

    /// The parser of JavaScript reads the same texts: `test/base/token-texts.test.ts`, which also writes them.
    #[test]
    fn reads_and_writes_the_texts_of_the_other_parser() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("test/base/token-texts.tsv");
        let texts = std::fs::read_to_string(path).unwrap();
        assert!(texts.lines().count() > 400, "the other parser's texts are there");
        for line in texts.lines() {
            let [text, client, number, permits, limit, label] =
                line.split('\t').collect::<Vec<_>>()[..]
            else {
                panic!("{line:?} has other columns");
            };
            let token = Token::from_text(text);
            assert_eq!(token.number(client), number.parse().ok(), "{line}");
            let mode = match limit {
                "" => Mode::SHARED,
                limit => Mode::permits(permits.parse().unwrap(), limit.parse().unwrap()),
            };
            assert_eq!(token.share(), mode, "{line}");
            assert_eq!(token.is_of_owner(label), label.starts_with(OWNER), "{line}");
            assert_eq!(token.label(), if is_owner(label) { "" } else { label }, "{line}");
            if let Ok(number) = number.parse() {
                assert_eq!(token.client(), Some(client), "{line}");
                assert_eq!(Tokens::of(client).number(number, mode, label), token, "{line}");
            }
        }
    }

    #[test]
    fn a_label_is_a_text_or_a_whole_token_that_others_may_have() {
        let text: Arc<str> = "x".into();
        for (label, is_chosen, is_token) in [
            (Label::Text(Arc::clone(&text)), false, false),
            (Label::Chosen(Arc::clone(&text)), true, true),
            (Label::Made(Arc::clone(&text)), false, true),
        ] {
            assert_eq!((label.is_chosen(), label.is_token()), (is_chosen, is_token), "{label:?}");
            assert_eq!(label.into_text(), text);
        }
        assert!(is_owner("@a") && !is_owner("a@") && !is_owner(""));
    }

    #[test]
    fn a_token_tells_its_client_and_a_label_has_its_longest() {
        assert_eq!(Token::from_text("hf1.c.7").client(), Some("c"));
        assert_eq!(
            [("", None), ("c.7", None)]
                .map(|(text, client)| { Token::from_text(text).client() == client }),
            [true; 2]
        );
        let longest = "x".repeat(240);
        assert_eq!(Token::new("c", 7, &longest).label(), longest);
        assert_eq!(Token::new("c", 7, "a").to_string(), "hf1.c.7.a");
    }
}
