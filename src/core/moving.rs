//! Moves the clock of a store in this process. All managers of the store do what is due at each moment on the way, and
//! JavaScript hears of it before the clock moves on.

use super::shared::lock;
use super::state::State;
use super::turns::Core;
use crate::protocol::Mono;
use crate::server::Clock;
use std::sync::{Arc, Mutex, Weak};

/// The managers of stores in this process, in the order of their start.
static MOVABLE: Mutex<Vec<Weak<Core>>> = Mutex::new(Vec::new());

/// So many moments are passed before JavaScript may do something else.
const MOMENTS_MAX: usize = 1_000;

/// Has the manager follow when the clock of its store is moved.
pub(super) fn register(core: &Arc<Core>) {
    let mut movable = lock(&MOVABLE);
    movable.retain(|core| core.strong_count() > 0);
    movable.push(Arc::downgrade(core));
}

/// Moves the clock of the store towards `until`, and stops as soon as `is_reported` says that there is something to
/// read. Returns whether it must be called again.
pub(super) fn advance(clock: &Arc<Clock>, until: Mono, is_reported: impl Fn() -> bool) -> bool {
    clock.stop();
    let cores: Vec<_> = {
        let movable = lock(&MOVABLE);
        let alive = movable.iter().filter_map(Weak::upgrade);
        alive.filter(|core| Arc::ptr_eq(&core.clock, clock)).collect()
    };
    for _ in 0..MOMENTS_MAX {
        settle(&cores);
        if is_reported() {
            return true;
        }
        let now = clock.now();
        if now >= until {
            return false;
        }
        let due = cores.iter().filter_map(|core| core.next_timeout()).min();
        clock.move_to(due.unwrap_or(until).clamp(now, until));
        for core in &cores {
            core.turn_and_wake();
        }
    }
    true
}

/// Has managers take what others have sent them, until none has sent anything.
fn settle(cores: &[Arc<Core>]) {
    loop {
        let sent: Vec<_> = cores.iter().filter(|core| core.has_mail()).collect();
        if sent.is_empty() {
            return;
        }
        for core in sent {
            core.turn_and_wake();
        }
    }
}

impl Core {
    /// Whether it has input. Waits for the keeper's turn, which may just have taken some.
    fn has_mail(&self) -> bool {
        let _turns = lock(&self.state);
        !self.mail.is_empty()
    }

    fn next_timeout(&self) -> Option<Mono> {
        lock(&self.state).as_mut().and_then(State::next_timeout)
    }

    fn turn_and_wake(&self) {
        if self.turn(State::read_all).reported {
            self.wake();
        }
    }
}
