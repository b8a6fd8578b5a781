//! Identifiers.

/// Names an operation of a caller. Chosen by the caller, unique among the open ones.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct OpId(pub u32);

impl OpId {
    /// An operation without a caller.
    pub const NOBODY: Self = Self(u32::MAX);
}

/// Names a token of this manager: the number in it.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct TokenId(pub u64);

/// Names the hold of one caller: its token, and the number of handoffs since the grant. So a former owner cannot touch
/// the hold of its successor.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct LeaseId(pub u64);

impl LeaseId {
    /// The most holds of a grant. JavaScript represents whole numbers exactly up to 2^53. The numbers of leases reach that
    /// after 2^53 / 256 units of [`TICK_US`](super::TICK_US), which is over four years.
    const GENERATIONS: u64 = 256;

    /// The first hold of a grant.
    #[must_use]
    pub const fn first(attempt: TokenId) -> Self {
        Self(attempt.0 * Self::GENERATIONS)
    }

    /// The token that the lock was granted to.
    #[must_use]
    pub const fn token_id(self) -> TokenId {
        TokenId(self.0 / Self::GENERATIONS)
    }

    /// How many holds of the grant may follow this one.
    pub(crate) const fn followers(self) -> u64 {
        Self::GENERATIONS - 1 - self.0 % Self::GENERATIONS
    }

    /// The number of handoffs since `earlier`, a hold of the same grant.
    pub(crate) const fn handoffs_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    pub(crate) const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// Names a request to the server. Requests are answered in the order of their numbers.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct RequestId(pub u64);

/// Names a server of a manager, and the connection to it.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct NodeId(pub u16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_hold_of_a_grant_has_a_number_of_its_own() {
        let first = LeaseId::first(TokenId(3));
        let second = first.next();
        assert_eq!((first.0, second.0), (768, 769));
        assert_eq!([first, second, LeaseId(1_023)].map(LeaseId::token_id), [TokenId(3); 3]);
        assert_eq!(LeaseId(1_024).token_id(), TokenId(4));
        assert_eq!([first, second, LeaseId(1_023)].map(LeaseId::followers), [255, 254, 0]);
        assert_eq!((second.handoffs_since(first), first.handoffs_since(second)), (1, 0));
    }
}
