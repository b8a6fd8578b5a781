//! When the keeper looks after a manager next.
//!
//! The keeper plans its sleep under the mutex of the core, and another thread that finds out, under the same mutex,
//! that it would come too late wakes it. `npm run loom` tries every order of the two.

use crate::protocol::Mono;

/// The plan of the keeper. The thread that has the mutex of the core owns it.
#[derive(Debug, Default)]
pub(super) struct Alarm {
    planned: Option<Mono>,
}

impl Alarm {
    /// The keeper sleeps until `due`, or until it is woken.
    pub(super) const fn sleep_until(&mut self, due: Option<Mono>) {
        self.planned = due;
    }

    /// Another thread needs the keeper at `due`. Returns whether it must be woken for that.
    pub(super) fn must_wake(&mut self, due: Option<Mono>) -> bool {
        let Some(due) = due else { return false };
        let late = self.planned.is_none_or(|planned| due < planned);
        if late {
            // The keeper is woken once, however often this is asked before it has planned anew.
            self.planned = Some(due);
        }
        late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keeper_is_woken_only_if_it_would_come_too_late() {
        let at = |us| Some(Mono::from_micros(us));
        for (planned, due, wakes) in [
            (None, None, false),
            (None, at(5), true),
            (at(5), None, false),
            (at(5), at(4), true),
            (at(5), at(5), false),
            (at(5), at(6), false),
        ] {
            let mut alarm = Alarm::default();
            alarm.sleep_until(planned);
            assert_eq!(alarm.must_wake(due), wakes, "{planned:?}, {due:?}");
            assert!(!alarm.must_wake(due), "it is woken once");
        }
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::atomic::{AtomicBool, Ordering};
    use loom::sync::{Arc, Mutex};

    /// The mutex of a core protects the plan and the machine, of which the next timeout is enough here.
    #[derive(Default)]
    struct State {
        alarm: Alarm,
        timeout: Option<Mono>,
    }

    struct Core {
        state: Mutex<State>,
        woken: AtomicBool,
    }

    impl Core {
        /// The keeper plans until no thread has woken it since.
        fn keep(&self) {
            loop {
                let mut state = self.state.lock().unwrap();
                let due = state.timeout;
                state.alarm.sleep_until(due);
                drop(state);
                if !self.woken.swap(false, Ordering::AcqRel) {
                    return;
                }
            }
        }

        fn wake(&self) {
            self.woken.store(true, Ordering::Release);
        }
    }

    /// How JavaScript sets a timeout.
    type SetTimeout = fn(&Core, Mono);

    /// JavaScript sets a timeout while the keeper plans a sleep without end: in the end the keeper knows of it.
    fn every_timeout_is_kept(set_timeout: SetTimeout) {
        loom::model(move || {
            let (state, woken) = (Mutex::default(), AtomicBool::new(false));
            let core = Arc::new(Core { state, woken });
            let keeper = {
                let core = Arc::clone(&core);
                loom::thread::spawn(move || core.keep())
            };
            set_timeout(&core, Mono::from_micros(5));
            keeper.join().unwrap();
            if core.woken.swap(false, Ordering::AcqRel) {
                core.keep();
            }
            let state = core.state.lock().unwrap();
            assert_eq!(state.alarm.planned, state.timeout, "a timeout that is slept through");
        });
    }

    #[test]
    fn no_timeout_is_slept_through() {
        every_timeout_is_kept(|core, at| {
            let mut state = core.state.lock().unwrap();
            state.timeout = Some(at);
            if state.alarm.must_wake(Some(at)) {
                core.wake();
            }
        });
    }

    #[test]
    #[should_panic(expected = "a timeout that is slept through")]
    fn a_wake_before_the_timeout_is_set_is_lost() {
        every_timeout_is_kept(|core, at| {
            if core.state.lock().unwrap().alarm.must_wake(Some(at)) {
                core.wake();
            }
            core.state.lock().unwrap().timeout = Some(at);
        });
    }

    #[test]
    #[should_panic(expected = "a timeout that is slept through")]
    fn a_plan_that_is_missing_must_wake() {
        every_timeout_is_kept(|core, at| {
            let mut state = core.state.lock().unwrap();
            state.timeout = Some(at);
            if state.alarm.planned.is_some_and(|planned| at < planned) {
                core.wake();
            }
        });
    }
}
