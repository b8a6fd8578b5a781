//! Panics, and what remains of their effects.
//!
//! No code of this crate is meant to panic. Should it do so all the same, nobody may be left waiting.

/// Does something when the scope that has it is left by a panic, and nothing otherwise.
pub(crate) struct OnPanic<F: FnMut()>(pub(crate) F);

impl<F: FnMut()> Drop for OnPanic<F> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            (self.0)();
        }
    }
}

/// Panics if a test has asked for it: `HOLDFAST_FAULT=drain@2` at the second pass of this entry. Only an addon that
/// is built with the feature `faults` can do so.
#[cfg(feature = "faults")]
pub(crate) fn at(entry: &str) {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    static PASSES: AtomicU64 = AtomicU64::new(0);
    static PLAN: LazyLock<Option<(String, u64)>> = LazyLock::new(|| {
        let plan = std::env::var("HOLDFAST_FAULT").ok()?;
        let (entry, pass) = plan.split_once('@')?;
        Some((entry.to_owned(), pass.parse().ok()?))
    });
    let Some((planned, pass)) = &*PLAN else { return };
    let due = planned == entry && PASSES.fetch_add(1, Ordering::Relaxed) + 1 == *pass;
    assert!(!due, "the fault that was asked for: {entry}");
}

/// Nothing: the addon that is shipped has no faults to ask for.
#[cfg(not(feature = "faults"))]
pub(crate) const fn at(_entry: &str) {}
