//! The fuzz targets: one function per target of `fuzz/`. Compiled for it and for tests only.
//!
//! Each function panics if a promise is broken. `fuzz/corpus` holds the inputs of the readers that are worth keeping, and
//! the test below replays them without a fuzzer.

mod machine;
mod names;

pub use self::machine::machine;
pub use self::names::names;
// The files lie here, but as modules they belong to the code that they access.
#[cfg(unix)]
pub use crate::core::fuzz::conversation;
pub use crate::server::fuzz::replies;
pub use crate::server::fuzz_frames::frames;
pub use crate::server::memory::fuzz::scripts;

/// Makes decisions from arbitrary bytes. Without bytes left, every decision is the first choice.
pub(crate) struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub(crate) fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// One of `count` choices, at most 256.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count.max(1)
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// A small number, one at the edge of what a type holds, or any.
    pub(crate) fn number(&mut self) -> u64 {
        const EDGES: [u64; 8] = [
            0,
            1,
            u32::MAX as u64,
            (1 << 53) - 1,
            1_700_000_000_000_000,
            i64::MAX as u64 - 1,
            i64::MAX as u64,
            u64::MAX,
        ];
        match self.byte() {
            small @ 0..128 => small.into(),
            thousands @ 128..192 => u64::from(thousands - 127) * 1_000,
            edge @ 192..224 => EDGES[usize::from(edge) % EDGES.len()],
            _ => u64::from_le_bytes(std::array::from_fn(|_| self.byte())),
        }
    }

    /// The next `count` bytes, or fewer if there are not enough.
    pub(crate) fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// At most 31 bytes, as text.
    pub(crate) fn text(&mut self) -> String {
        let length = self.below(32);
        String::from_utf8_lossy(self.take(length)).into_owned()
    }
}

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
