//! The part of its lock that a hold has.

use std::num::NonZeroU64;

/// The part of a lock that a token has or requests.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Mode {
    /// The whole lock.
    #[default]
    Exclusive,
    /// A share, beside others.
    Shared {
        /// How many permits may be held at once when it is granted, with its own; none for any number.
        limit: Option<NonZeroU64>,
        /// How many of them it has: all or none. One without a limit.
        permits: NonZeroU64,
    },
}

impl Mode {
    /// A share beside any number of others.
    pub const SHARED: Self = Self::Shared { limit: None, permits: NonZeroU64::MIN };

    /// A share with so many permits of `limit`. At least one, and a share without a limit has no more.
    #[must_use]
    pub const fn permits(permits: u64, limit: u64) -> Self {
        let limit = NonZeroU64::new(limit);
        match NonZeroU64::new(permits) {
            Some(permits) if limit.is_some() => Self::Shared { limit, permits },
            _ => Self::Shared { limit, permits: NonZeroU64::MIN },
        }
    }

    /// Whether it is a share.
    #[must_use]
    pub const fn is_shared(self) -> bool {
        matches!(self, Self::Shared { .. })
    }

    /// The limit and the permits as they stand behind the number of a token, `[/<limit>[/<permits>]]`, in parts; none without a
    /// limit.
    pub(super) fn terms<'a>(
        self,
        limit_digits: &'a mut itoa::Buffer,
        permits_digits: &'a mut itoa::Buffer,
    ) -> Option<[&'a str; 4]> {
        let Self::Shared { limit: Some(limit), permits } = self else { return None };
        let limit = limit_digits.format(limit.get());
        Some(match permits.get() {
            1 => ["/", limit, "", ""],
            permits => ["/", limit, "/", permits_digits.format(permits)],
        })
    }

    /// The share that such a text tells; none if it tells no limit.
    pub(super) fn read_terms(terms: &str) -> Option<Self> {
        let mut numbers = terms.strip_prefix('/')?.split('/');
        let limit = numbers.next()?.parse().ok()?;
        let permits = numbers.next().map_or(Some(1), |permits| permits.parse().ok())?;
        numbers.next().is_none().then(|| Self::permits(permits, limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_has_at_least_one_permit_and_more_only_of_a_limit() {
        let share = |limit, permits| Mode::Shared {
            limit: NonZeroU64::new(limit),
            permits: NonZeroU64::new(permits).unwrap(),
        };
        for (permits, limit, mode) in
            [(2, 9, share(9, 2)), (0, 9, share(9, 1)), (2, 0, share(0, 1)), (0, 0, share(0, 1))]
        {
            assert_eq!(Mode::permits(permits, limit), mode);
            assert!(mode.is_shared());
        }
        assert_eq!(Mode::SHARED, Mode::permits(1, 0));
        assert!(!Mode::Exclusive.is_shared() && Mode::default() == Mode::Exclusive);
    }

    #[test]
    fn the_terms_of_a_share_are_its_limit_and_its_permits_unless_it_has_one() {
        let terms = |mode: Mode| {
            let (mut limit, mut permits) = (itoa::Buffer::new(), itoa::Buffer::new());
            mode.terms(&mut limit, &mut permits).map(|parts| parts.concat())
        };
        for (mode, text) in [(Mode::permits(1, 9), "/9"), (Mode::permits(2, 9), "/9/2")] {
            assert_eq!(terms(mode).as_deref(), Some(text));
            assert_eq!(Mode::read_terms(text), Some(mode));
        }
        assert_eq!([Mode::SHARED, Mode::Exclusive].map(terms), [None, None]);
        assert_eq!(Mode::read_terms("/9/1"), Some(Mode::permits(1, 9)));
        for other in ["", "9", "/", "/x", "/9/", "/9/x", "/9/2/", "/9/2/1", "//2", "/-1"] {
            assert_eq!(Mode::read_terms(other), None, "{other}");
        }
    }
}
