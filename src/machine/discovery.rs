//! When it is asked anew which server of a Cluster has which slot.

use super::context::Context;
use super::interface::Effect;
use super::timers::Timer;
use crate::protocol::clock::Mono;
use std::time::Duration;

/// Two questions for the routes are so far apart at least.
const DISCOVERY_INTERVAL: Duration = Duration::from_millis(100);
/// The longest pause between two of them while nobody answers.
const DISCOVERY_MS_MAX: u64 = 1_000;

/// Asking for the routes.
#[derive(Debug, Default)]
pub(super) struct Discovery {
    /// When it was last done.
    asked: Option<Mono>,
    /// An answer is still missing.
    under_way: bool,
    /// How often in a row nobody knew the answer.
    failures: u32,
}

impl Discovery {
    /// Asks which server has which slot, if nobody does already.
    pub(super) fn ask(&mut self, cx: &mut Context) {
        if !std::mem::replace(&mut self.under_way, true) {
            self.asked = Some(cx.now);
            cx.push(Effect::Discover);
        }
    }

    /// The routes may have changed: asks for them, but not all the time.
    pub(super) fn ask_soon(&self, cx: &mut Context) {
        if !cx.config.cluster || cx.timers.at(Timer::Discover).is_some() {
            return;
        }
        let interval = match self.failures {
            0 => DISCOVERY_INTERVAL,
            failures => {
                let most_ms = (100_u64 << failures.min(10)).min(DISCOVERY_MS_MAX);
                cx.jitter((most_ms / 2, most_ms))
            }
        };
        let earliest = self.asked.map_or(cx.now, |asked| asked + interval);
        cx.timers.set(Timer::Discover, earliest.max(cx.now));
    }

    pub(super) fn answered(&mut self, known: bool) {
        self.under_way = false;
        self.failures = if known { 0 } else { self.failures + 1 };
    }
}
