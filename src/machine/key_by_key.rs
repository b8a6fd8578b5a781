//! How a share is lengthened whose keys are on two servers, since its slot moves: by one call for each key.
//!
//! The lock's own key tells only that the lock is shared, and the set of shares only who shares it. So the share is
//! lengthened first, then the lock, and the last call shows that the share was there all the time: between the calls the
//! share may be stolen, and the lock be shared by others.

use crate::protocol::{Call, Mono, Reply};

/// The call that is under way.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum KeyByKey {
    /// Lengthens the lock's own key: it may be a lone share, or a whole lock that is to be downgraded.
    Alone,
    /// Lengthens the share in the set of shares.
    Share,
    /// Lengthens the lock's own key. The share was lengthened by a request that was sent at `since`.
    Lock { since: Mono },
    /// Lengthens the share in the set once more.
    ShareAgain { since: Mono },
}

impl KeyByKey {
    /// The call, for the share that `whole` would lengthen by all its keys.
    pub(super) fn call(self, whole: &Call) -> Call {
        let (keys, token, ttl) = (whole.keys().clone(), whole.token().clone(), whole.ttl());
        match self {
            Self::Alone => Call::Extend { keys, token, ttl },
            Self::Share | Self::ShareAgain { .. } => Call::KeepShare { keys, token, ttl },
            Self::Lock { .. } => Call::KeepLock { keys, token, ttl },
        }
    }

    /// The next step after the reply to a request that was sent at `sent`; none if the reply decides.
    pub(super) const fn next(self, sent: Mono, reply: &Reply) -> Option<Self> {
        match (self, reply) {
            (Self::Alone, Reply::Owner(false)) => Some(Self::Share),
            (Self::Share, Reply::Granted { .. }) => Some(Self::Lock { since: sent }),
            (Self::Lock { since }, Reply::Owner(true)) => Some(Self::ShareAgain { since }),
            _ => None,
        }
    }

    /// From when on the lease counts that the last reply confirms, unless from its own request.
    pub(super) const fn since(self) -> Option<Mono> {
        match self {
            Self::Alone | Self::Share => None,
            Self::Lock { since } | Self::ShareAgain { since } => Some(since),
        }
    }
}
