//! Panics, and what limits their effects.
//!
//! No code of this crate is meant to panic. If it does, no caller may be left waiting.

/// Runs a closure if a panic unwinds through the scope that owns this.
pub(crate) struct OnPanic<F: FnMut()>(pub(crate) F);

impl<F: FnMut()> Drop for OnPanic<F> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            (self.0)();
        }
    }
}

/// Panics if a test has asked for it: `HOLDFAST_FAULT=drain@2` panics at the second call with this entry.
/// Only an addon that is built with the feature `faults` does so.
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

/// Does nothing: the published addon has no fault injection.
#[cfg(not(feature = "faults"))]
pub(crate) const fn at(_entry: &str) {}
