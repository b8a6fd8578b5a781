//! Texts that many parts of a manager share.

use std::cell::RefCell;
use std::sync::Arc;

thread_local! {
    /// Where texts are joined: each lock makes some, and each would take memory twice otherwise.
    static JOINED: RefCell<String> = const { RefCell::new(String::new()) };
}

/// One text of several.
pub(super) fn join(parts: &[&str]) -> Arc<str> {
    let joined = JOINED.try_with(|joined| {
        let mut joined = joined.try_borrow_mut().ok()?;
        joined.clear();
        for part in parts {
            joined.push_str(part);
        }
        Some(Arc::from(joined.as_str()))
    });
    // A thread that ends has its memory no more.
    joined.ok().flatten().unwrap_or_else(|| parts.concat().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_nothing_of_the_one_before() {
        assert_eq!(&*join(&["lock:", "item:42"]), "lock:item:42");
        assert_eq!(&*join(&["é", "", "a"]), "éa");
        assert_eq!(&*join(&[]), "");
    }
}
