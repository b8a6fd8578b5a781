//! The steps of a schedule, which a shorter story leaves out one after the other.

use std::any::Any;
use std::collections::BTreeSet;

/// Which steps of a schedule are taken, and what each of them draws by chance.
#[derive(Clone, Default)]
pub(super) struct Steps {
    /// The state of the generator before each step of the first run. A step that is left out changes no other.
    drawn: Vec<u64>,
    left_out: BTreeSet<usize>,
}

/// How a schedule went.
pub(super) struct Run {
    pub(super) steps: Steps,
    /// The promise that it has broken.
    pub(super) broken: Option<String>,
    /// The seed, and the events, if they were requested.
    pub(super) story: String,
    /// How many locks were acquired.
    pub(super) acquired: usize,
}

impl Run {
    /// How many locks were acquired; panics if a promise was broken.
    pub(super) fn acquired(self) -> usize {
        assert!(self.broken.is_none(), "{}{}", self.broken.unwrap_or_default(), self.story);
        self.acquired
    }
}

impl Steps {
    /// Begins the step `index`; false if it is left out.
    pub(super) fn takes(&mut self, index: usize, rng: &mut fastrand::Rng) -> bool {
        match self.drawn.get(index) {
            Some(state) => *rng = fastrand::Rng::with_seed(*state),
            None => self.drawn.push(rng.get_seed()),
        }
        !self.left_out.contains(&index)
    }
}

/// Leaves out every step of a failed run without which the same promise is broken.
pub(super) fn shorten(failed: &Run, run: impl Fn(Steps) -> Run) -> Steps {
    let same =
        |other: &Run| other.broken.as_deref().map(kind) == failed.broken.as_deref().map(kind);
    let (mut steps, count) = (failed.steps.clone(), failed.steps.drawn.len());
    let mut size = count.next_power_of_two();
    while size > 0 {
        let mut is_shorter = false;
        for from in (0..count).step_by(size) {
            let mut fewer = steps.clone();
            fewer.left_out.extend(from..count.min(from + size));
            if fewer.left_out.len() > steps.left_out.len() && same(&run(fewer.clone())) {
                (steps, is_shorter) = (fewer, true);
            }
        }
        // Without one step others may have become needless.
        size = if size == 1 && is_shorter { 1 } else { size / 2 };
    }
    steps
}

/// A broken promise without the numbers of this run.
fn kind(broken: &str) -> String {
    let line = broken.lines().next().unwrap_or_default();
    line.chars().filter(char::is_ascii_alphabetic).take(40).collect()
}

/// What a panic says.
pub(super) fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}
