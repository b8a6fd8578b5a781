//! When the routes of a Cluster are queried again.

use super::context::Context;
use super::interface::Effect;
use super::timers::Timer;
use crate::protocol::Mono;
use std::time::Duration;

/// The shortest pause between two queries of the routes.
const DISCOVERY_INTERVAL: Duration = Duration::from_millis(100);
/// The longest pause between two queries while none is answered.
const DISCOVERY_MS_MAX: u64 = 1_000;

#[derive(Debug, Default)]
pub(super) struct Discovery {
    asked: Option<Mono>,
    under_way: bool,
    failures: u32,
}

impl Discovery {
    /// Queries which server has which slot, unless a query is open.
    pub(super) fn ask(&mut self, context: &mut Context) {
        if !std::mem::replace(&mut self.under_way, true) {
            self.asked = Some(context.now);
            context.push(Effect::Discover);
        }
    }

    /// The routes may have changed: queries them, within the rate limit.
    pub(super) fn ask_soon(&self, context: &mut Context) {
        if !context.config.cluster || context.timers.at(Timer::Discover).is_some() {
            return;
        }
        let interval = match self.failures {
            0 => DISCOVERY_INTERVAL,
            failures => {
                let most_ms = (100_u64 << failures.min(10)).min(DISCOVERY_MS_MAX);
                context.jitter((most_ms / 2, most_ms))
            }
        };
        let earliest = self.asked.map_or(context.now, |asked| asked + interval);
        context.timers.set(Timer::Discover, earliest.max(context.now));
    }

    pub(super) fn answered(&mut self, known: bool) {
        self.under_way = false;
        self.failures = if known { 0 } else { self.failures + 1 };
    }
}
