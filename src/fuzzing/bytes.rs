//! Arbitrary bytes as decisions.

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
