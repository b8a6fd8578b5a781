//! The messages between a manager and a server, and the types that both sides use.

pub mod call;
pub mod clock;
pub mod error;
pub mod ids;
pub mod keys;
pub mod message;
pub mod mode;
pub mod query;
pub mod quorum;
pub mod reply;
pub mod routes;
pub mod script;
pub mod send_mode;
pub mod survey;
mod text;
pub mod token;
pub mod validity;
pub mod welcome;

pub use call::{Call, Intent};
pub use clock::{Mono, ServerTime};
pub use error::{DEFECT, Failure, Refusal, WRONG_TYPE};
pub use ids::{LeaseId, NodeId, OpId, RequestId, TokenId};
pub use keys::{CounterKey, Counters, LockKeys, SLOTS, SideKey};
pub use message::{Grant, Message, Taken};
pub use mode::Mode;
pub use reply::{
    COUNTER_AHEAD_MAX, EXACT_MAX, FENCE_MAX, HeldBy, QueuePosition, Reply, Take, exact,
};
pub use routes::Routes;
pub use script::Script;
pub use send_mode::SendMode;
pub use token::{Label, TOKEN_PREFIX, Token};
pub(crate) use token::{TICK_US, Tokens, is_owner};
pub(crate) use validity::DRIFT;
pub use validity::{CLAIM, drift, lease_until, valid_until};
pub use welcome::{Denied, Risk, ServerProbe};
