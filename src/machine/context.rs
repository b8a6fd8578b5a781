//! The context of every component: the time of an input, the manager's settings, and the list of effects.

use super::interface::{Config, Effect, Outcome};
use super::stats::Stats;
use super::timers::Timers;
use crate::protocol::{Mode, Mono, OpId, TICK_US, Token, TokenId, Tokens};
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Context {
    pub(super) config: Config,
    pub(super) now: Mono,
    /// The effects of the present input, in order.
    pub(super) effects: Vec<Effect>,
    pub(super) stats: Stats,
    pub(super) timers: Timers,
    rng: fastrand::Rng,
    tokens: Tokens,
    pub(super) last_token: u64,
}

impl Context {
    pub(super) fn new(config: Config, seed: u64) -> Self {
        Self {
            tokens: Tokens::of(&config.client),
            config,
            now: Mono::default(),
            effects: Vec::new(),
            stats: Stats::default(),
            timers: Timers::default(),
            rng: fastrand::Rng::with_seed(seed),
            last_token: 0,
        }
    }

    pub(super) fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    pub(super) fn complete(&mut self, op: OpId, outcome: Outcome) {
        self.push(Effect::Complete { op, outcome });
    }

    /// A number that no token of this manager had before: the time since the manager began, so that the token tells when
    /// its lock was asked for. Numbers that are taken within the same tick follow each other.
    pub(super) fn next_token_id(&mut self) -> TokenId {
        let elapsed = self.now.as_micros().saturating_sub(self.config.started.as_micros());
        self.last_token = (elapsed / TICK_US).max(self.last_token + 1);
        TokenId(self.last_token)
    }

    pub(super) fn token(&self, id: TokenId, mode: Mode, label: &str) -> Token {
        self.tokens.number(id.0, mode, label)
    }

    /// The number of a token, if it is this manager's.
    pub(super) fn number_of(&self, token: &Token) -> Option<TokenId> {
        token.number(&self.config.client).map(TokenId)
    }

    /// A random time from `least` to `most`.
    pub(super) fn between(&mut self, least: Duration, most: Duration) -> Duration {
        least + most.saturating_sub(least).mul_f64(self.rng.f64())
    }

    /// A random time in a range of ms, so that clients do not move in step.
    pub(super) fn jitter(&mut self, (least_ms, most_ms): (u64, u64)) -> Duration {
        Duration::from_micros(self.rng.u64(least_ms * 1_000..most_ms * 1_000))
    }
}

/// The label in a token, if its new owner has asked for another one.
pub(super) fn other_label(label: &Arc<str>, wanted: &Arc<str>) -> Option<String> {
    (!Arc::ptr_eq(label, wanted) && label != wanted).then(|| label.to_string())
}

/// The keys of `map`, the oldest first.
pub(super) fn in_order<K: Copy + Ord, V>(map: &FxHashMap<K, V>) -> Vec<K> {
    let mut names: Vec<K> = map.keys().copied().collect();
    names.sort_unstable();
    names
}
