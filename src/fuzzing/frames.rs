//! Bytes of a server in pieces of any size.

use super::frames::{Frames, Malformed};
use super::{values, wire};
use crate::fuzzing::Bytes;

/// Splits bytes into values twice, once read at once and once piece by piece, and reads each value.
///
/// # Panics
/// If the pieces change what is found, or a value is read in two ways.
pub fn frames(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    let sizes: [usize; 4] = std::array::from_fn(|_| usize::from(bytes.byte()) + 1);
    let bytes = bytes.take(usize::MAX);
    let (whole, whole_ended) = split(&[bytes]);
    let (pieced, pieced_ended) = split(&pieces(bytes, &sizes));
    assert_eq!(whole, pieced, "the values depend on how they arrive");
    assert_eq!(whole_ended, pieced_ended, "the end depends on how the values arrive");
    assert!(bytes.starts_with(&whole.concat()), "bytes are lost");
    for value in &whole {
        judge(value);
    }
}

/// The bytes in pieces whose sizes repeat.
fn pieces<'a>(mut bytes: &'a [u8], sizes: &[usize]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    for size in sizes.iter().cycle() {
        if bytes.is_empty() {
            break;
        }
        let (piece, rest) = bytes.split_at((*size).min(bytes.len()));
        pieces.push(piece);
        bytes = rest;
    }
    pieces
}

/// The whole values in the pieces, and whether something that is no value ended them.
fn split(pieces: &[&[u8]]) -> (Vec<Vec<u8>>, bool) {
    let (mut frames, mut values) = (Frames::new(), Vec::new());
    for piece in pieces {
        frames.feed(piece);
        loop {
            match frames.next() {
                Ok(Some(value)) => values.push(value.to_vec()),
                Ok(None) => break,
                Err(Malformed) => return (values, true),
            }
        }
    }
    (values, false)
}

/// Common values are read without the parser, which must read the same.
fn judge(value: &[u8]) {
    if let (Some(read), Ok(parsed)) = (values::common(value), wire::value(value)) {
        assert_eq!(parsed, read);
    }
}
