//! Splits the bytes of a server into whole RESP3 values, without building them.
//!
//! Source: <https://redis.io/docs/latest/develop/reference/protocol-spec/>

use std::io;
use std::ops::{Range, RangeInclusive};

/// The buffer of a new connection: room for the replies of some hundred calls.
const ROOM: usize = 8 * 1024;
/// The longest value, in bytes. The longest reply of a script of ours is far below.
const LENGTH_MAX: usize = 64 * 1024 * 1024;
/// The longest first line of a value: a simple string, an error or a number.
const LINE_MAX: usize = 64 * 1024;

/// The bytes that were read and not taken yet.
#[derive(Default)]
pub(crate) struct Frames {
    buffer: Vec<u8>,
    /// The bytes of the buffer that are in use.
    filled: Range<usize>,
    /// The first byte of the value at the front that was not scanned yet.
    scanned: usize,
    /// The values that the value at the front still lacks, itself included; 0 before it was looked at.
    missing: u64,
}

/// The bytes are not RESP3, or a value has no end in sight.
#[derive(Debug)]
pub(crate) struct Malformed;

impl Frames {
    /// An empty buffer.
    pub(crate) fn new() -> Self {
        Self { buffer: vec![0; ROOM], ..Self::default() }
    }

    /// The free part of the buffer, which is never empty. Report the bytes read into it with [`Self::fill`].
    pub(crate) fn room(&mut self) -> &mut [u8] {
        let Range { start, end } = self.filled;
        if start == end {
            self.filled = 0..0;
            self.scanned = 0;
        } else if end == self.buffer.len() {
            self.buffer.copy_within(start..end, 0);
            self.filled = 0..end - start;
            self.scanned = self.scanned.saturating_sub(start);
            if self.filled.end * 2 > self.buffer.len() {
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
        }
        &mut self.buffer[self.filled.end..]
    }

    /// The bytes that were read and not taken yet.
    pub(super) fn rest(&self) -> &[u8] {
        &self.buffer[self.filled.clone()]
    }

    /// Counts `count` bytes of the free part as read.
    pub(crate) fn fill(&mut self, count: usize) {
        self.filled.end = (self.filled.end + count).min(self.buffer.len());
    }

    /// Reads once. Returns the number of bytes, and whether they filled the free part.
    ///
    /// # Errors
    /// Those of `read`.
    pub(crate) fn read(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<(usize, bool)> {
        let room = self.room();
        let free = room.len();
        let count = read(room)?;
        self.fill(count);
        Ok((count, count == free))
    }

    /// Adds bytes as if they had been read.
    #[cfg(any(test, fuzzing))]
    pub(super) fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = self.room();
            let count = room.len().min(bytes.len());
            room[..count].copy_from_slice(&bytes[..count]);
            self.fill(count);
            bytes = &bytes[count..];
        }
    }

    /// Takes what `read` finds in the bytes that were not taken yet: the length of whole values, and their meaning.
    pub(super) fn take<T>(&mut self, read: impl FnOnce(&[u8]) -> Option<(usize, T)>) -> Option<T> {
        let (length, meaning) = read(self.rest())?;
        self.filled.start = (self.filled.start + length).min(self.filled.end);
        self.missing = 0;
        Some(meaning)
    }

    /// The next whole value; none if its end was not read yet.
    ///
    /// # Errors
    /// If the bytes are not RESP3. Nothing after them can be read.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>, Malformed> {
        if self.missing == 0 {
            self.missing = 1;
            self.scanned = self.filled.start;
        }
        while self.missing > 0 {
            let Some((length, values)) = header(&self.buffer[self.scanned..self.filled.end])?
            else {
                return match self.filled.len() {
                    ..LENGTH_MAX => Ok(None),
                    _ => Err(Malformed),
                };
            };
            self.scanned += length;
            self.missing = (self.missing - 1).saturating_add(values);
        }
        let value = self.filled.start..self.scanned;
        self.filled.start = value.end;
        Ok(Some(&self.buffer[value]))
    }
}

/// The length of a value without the values in it, and their number; none if its end was not read yet.
fn header(bytes: &[u8]) -> Result<Option<(usize, u64)>, Malformed> {
    let line = &bytes[..bytes.len().min(LINE_MAX)];
    let Some(end) = line.iter().position(|byte| *byte == b'\n') else {
        return if bytes.len() < LINE_MAX { Ok(None) } else { Err(Malformed) };
    };
    let [kind, number @ .., b'\r', b'\n'] = &bytes[..=end] else { return Err(Malformed) };
    let length = end + 1;
    match kind {
        b'+' | b'-' | b':' | b',' | b'#' | b'_' | b'(' => Ok(Some((length, 0))),
        b'$' | b'=' | b'!' => match count(number)? {
            None => Ok(Some((length, 0))),
            Some(text) => {
                let text = usize::try_from(text).ok().filter(|text| *text < LENGTH_MAX);
                let length = length + text.ok_or(Malformed)? + 2;
                Ok((bytes.len() >= length).then_some((length, 0)))
            }
        },
        b'*' | b'~' | b'>' => Ok(Some((length, count(number)?.unwrap_or(0)))),
        b'%' => Ok(Some((length, count(number)?.unwrap_or(0).saturating_mul(2)))),
        // Attributes precede the value that they describe.
        b'|' => Ok(Some((length, count(number)?.unwrap_or(0).saturating_mul(2).saturating_add(1)))),
        _ => Err(Malformed),
    }
}

/// A length, or none for -1, the null value of RESP2.
fn count(digits: &[u8]) -> Result<Option<u64>, Malformed> {
    match number(digits) {
        Some(-1) => Ok(None),
        Some(number) => u64::try_from(number).map(Some).map_err(|_| Malformed),
        None => Err(Malformed),
    }
}

/// The number that a line consists of.
pub(super) fn number(line: &[u8]) -> Option<i64> {
    /// How many digits a number has that cannot overflow.
    const DIGITS: RangeInclusive<usize> = 1..=18;
    if !DIGITS.contains(&line.len()) || !line.iter().all(u8::is_ascii_digit) {
        return std::str::from_utf8(line).ok()?.parse().ok();
    }
    Some(line.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUES: &[&str] = &[
        "+OK\r\n",
        ":42\r\n",
        "-ERR no\r\n",
        "$5\r\na\r\nbc\r\n",
        "$-1\r\n",
        "_\r\n",
        "#t\r\n",
        ",1.5\r\n",
        "(123456789012345678901234567890\r\n",
        "*0\r\n",
        "*-1\r\n",
        "%-1\r\n",
        "|-1\r\n:1\r\n",
        "*2\r\n:1\r\n*1\r\n$0\r\n\r\n",
        "%1\r\n+key\r\n*2\r\n:1\r\n:2\r\n",
        ">3\r\n+message\r\n$1\r\na\r\n$1\r\nb\r\n",
        "|1\r\n+ttl\r\n:3\r\n$1\r\nx\r\n",
        "=5\r\ntxt:x\r\n",
        "!5\r\nERR x\r\n",
        "~1\r\n:1\r\n",
    ];

    fn all(frames: &mut Frames) -> Vec<String> {
        let mut seen = Vec::new();
        while let Some(value) = frames.next().unwrap() {
            seen.push(String::from_utf8(value.to_vec()).unwrap());
        }
        seen
    }

    #[test]
    fn values_are_found_wherever_the_bytes_are_split() {
        let bytes = VALUES.concat().into_bytes();
        for step in 1..=bytes.len() {
            let (mut frames, mut seen) = (Frames::new(), Vec::new());
            for chunk in bytes.chunks(step) {
                frames.feed(chunk);
                seen.extend(all(&mut frames));
            }
            assert_eq!(seen, VALUES, "{step} bytes at a time");
        }
    }

    #[test]
    fn a_value_that_is_longer_than_the_buffer_makes_it_grow() {
        let long = format!("${}\r\n{}\r\n", 5 * ROOM, "x".repeat(5 * ROOM));
        let mut frames = Frames::new();
        for _ in 0..3 {
            frames.feed(b":1\r\n");
            frames.feed(long.as_bytes());
            assert_eq!(all(&mut frames), [":1\r\n", &long]);
        }
        assert!(frames.buffer.len() < 16 * ROOM, "the buffer grows no further than it must");
    }

    #[test]
    fn the_buffer_grows_once_more_than_half_of_it_is_not_taken() {
        for (left, size) in [(ROOM / 2, ROOM), (ROOM / 2 + 1, 2 * ROOM)] {
            let mut frames = Frames::new();
            let taken = format!("+{}\r\n", "x".repeat(ROOM - left - 3));
            frames.feed(taken.as_bytes());
            frames.feed(format!("${ROOM}\r\n{}", "x".repeat(left - 7)).as_bytes());
            assert_eq!(all(&mut frames), [taken]);
            assert_eq!(frames.room().len(), size - left);
            assert_eq!(frames.buffer.len(), size, "{left} bytes are left");
        }
    }

    #[test]
    fn what_follows_a_value_that_was_taken_is_the_next_one() {
        let mut frames = Frames::new();
        frames.feed(b"+O");
        assert!(frames.next().unwrap().is_none(), "its end may follow");
        frames.feed(b"K\r\n:1\r\n");
        assert_eq!(frames.take(|bytes| Some((5, bytes.len()))), Some(9));
        assert_eq!(all(&mut frames), [":1\r\n"]);
    }

    #[test]
    fn a_read_says_whether_there_was_room_for_more() {
        let mut frames = Frames::new();
        let mut read = |count: usize| frames.read(|room| Ok(count.min(room.len()))).unwrap();
        assert_eq!(read(ROOM - 1), (ROOM - 1, false));
        assert_eq!(read(ROOM), (1, true));
        assert_eq!(read(0), (0, false));
    }

    #[test]
    fn bytes_that_are_not_resp_are_refused() {
        let long_line = format!("+{}", "x".repeat(LINE_MAX - 1));
        let long_text = format!("${LENGTH_MAX}\r\n");
        for bytes in [
            "x\r\n",
            "*x\r\n",
            "*\r\n",
            "$\r\n",
            "$-2\r\n",
            ":1\n",
            "\r\n",
            "$99999999999999\r\n",
            &long_text,
            &long_line,
        ] {
            let mut frames = Frames::new();
            frames.feed(bytes.as_bytes());
            assert!(frames.next().is_err(), "{bytes:.20}");
        }
    }

    #[test]
    fn the_longest_line_and_text_are_accepted() {
        let line = format!("+{}\r\n", "x".repeat(LINE_MAX - 3));
        let mut frames = Frames::new();
        let (beginning, end) = line.as_bytes().split_at(LINE_MAX - 1);
        frames.feed(beginning);
        assert!(frames.next().unwrap().is_none(), "its end may follow");
        frames.feed(end);
        frames.feed(format!("${}\r\n", LENGTH_MAX - 1).as_bytes());
        assert_eq!(all(&mut frames), [line]);
    }

    #[test]
    fn a_value_without_end_is_given_up() {
        let mut frames = Frames::new();
        frames.feed(format!("${}\r\n", LENGTH_MAX - 1).as_bytes());
        let piece = vec![b'x'; LENGTH_MAX / 8];
        for _ in 0..7 {
            frames.feed(&piece);
            assert!(frames.next().unwrap().is_none(), "its end may follow");
        }
        frames.feed(&piece);
        assert!(frames.next().is_err(), "so much is not kept");
    }

    #[test]
    fn a_number_is_read_to_the_last_that_there_is() {
        for (line, expected) in [
            ("7", Some(7)),
            ("999999999999999999", Some(999_999_999_999_999_999)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("", None),
            ("1 ", None),
        ] {
            assert_eq!(number(line.as_bytes()), expected, "{line}");
        }
    }

    #[test]
    fn a_count_without_end_waits_for_its_values() {
        let mut frames = Frames::new();
        frames.feed(format!("*{}\r\n", i64::MAX).as_bytes());
        frames.feed(format!("%{}\r\n", i64::MAX).as_bytes());
        assert!(frames.next().unwrap().is_none(), "the count waits for its values");
    }

    #[test]
    fn what_was_taken_makes_room_again() {
        let stream = b"$5\r\nhello\r\n:1\r\n".repeat(10_000);
        let (mut frames, mut count) = (Frames::new(), 0);
        // The pieces seldom end where a value does.
        for piece in stream.chunks(13) {
            frames.feed(piece);
            while let Some(frame) = frames.next().unwrap() {
                assert_eq!(frame.len(), if count % 2 == 0 { 11 } else { 4 });
                count += 1;
            }
        }
        assert_eq!((count, frames.buffer.len()), (20_000, ROOM));
    }
}
