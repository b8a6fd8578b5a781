//! The fuzz targets: one function per target of `fuzz/`. Compiled for it and for tests only.
//!
//! Each function panics if a promise is broken. `fuzz/corpus` holds the inputs of the readers that are worth keeping, and
//! the test below replays them without a fuzzer.

mod bytes;
mod machine;
mod names;

pub(crate) use self::bytes::Bytes;
pub use self::machine::machine;
pub use self::names::names;
// The files lie here, but as modules they belong to the code that they access.
#[cfg(unix)]
pub use crate::core::fuzz::conversation;
pub use crate::server::fuzz::replies;
pub use crate::server::fuzz_frames::frames;
pub use crate::server::memory::fuzz::scripts;

#[cfg(test)]
mod tests {
    use std::path::Path;

    fn replay(target: &str, run: fn(&[u8])) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
        let mut files: Vec<_> =
            folder.read_dir().expect(target).map(|file| file.expect(target).path()).collect();
        files.sort_unstable();
        assert!(!files.is_empty(), "no corpus of {target}");
        for file in files {
            let input = std::fs::read(&file).expect(target);
            // Shown if this input breaks a promise.
            println!("{}", file.display());
            run(&input);
        }
    }

    #[test]
    fn the_corpus_of_frames_still_passes() {
        replay("frames", super::frames);
    }

    #[test]
    fn the_corpus_of_names_still_passes() {
        replay("names", super::names);
    }

    #[test]
    fn the_corpus_of_replies_still_passes() {
        replay("replies", super::replies);
    }

    /// A change of the code gives the bytes of a whole conversation another meaning, so none are kept: each run makes
    /// the same ones anew.
    fn feed(run: fn(&[u8])) {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..400 {
            let mut input = vec![0; random.usize(..512)];
            random.fill(&mut input);
            run(&input);
        }
    }

    #[cfg(unix)]
    #[test]
    fn conversations_of_random_bytes_keep_the_promises() {
        feed(super::conversation);
    }

    #[test]
    fn a_machine_fed_with_random_bytes_keeps_the_promises() {
        feed(super::machine);
    }

    #[test]
    fn scripts_called_at_random_keep_the_promises() {
        feed(super::scripts);
    }
}
