//! Reads and writes numbers as Redis does.

/// Reads an integer as Redis stores one: no sign but `-`, no leading zero, no space.
pub(super) fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let canonical = match digits {
        [b'0'] => digits.len() == text.len(),
        [b'1'..=b'9', ..] => true,
        _ => false,
    };
    if !canonical {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Reads a score. A number beyond the range is refused, but `inf` is valid.
pub(super) fn score(text: &[u8]) -> Option<f64> {
    let number: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    let overflown = number.is_infinite() && text.iter().any(u8::is_ascii_digit);
    (!number.is_nan() && !overflown).then_some(number)
}

/// One end of a range of scores.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    pub(super) score: f64,
    /// Whether the range excludes the score itself.
    pub(super) exclusive: bool,
}

/// Reads `5`, `(5`, `-inf`, `(+inf`. Empty text is 0, as for C's `strtod`.
pub(super) fn bound(text: &[u8]) -> Option<Bound> {
    let (exclusive, number) = match text {
        [b'(', number @ ..] => (true, number),
        number => (false, number),
    };
    let score: f64 = match number {
        [] => 0.0,
        number => std::str::from_utf8(number).ok()?.parse().ok()?,
    };
    (!score.is_nan()).then_some(Bound { score, exclusive })
}

/// The number of digits that distinguish any two numbers.
const DIGITS: i32 = 17;

/// Writes a number as C's `%.17g` does: an integer has no decimal point.
pub(super) fn text(number: f64) -> String {
    if number.is_nan() {
        return if number.is_sign_negative() { "-nan" } else { "nan" }.to_owned();
    }
    if number.is_infinite() {
        return if number < 0.0 { "-inf" } else { "inf" }.to_owned();
    }
    if number.trunc().to_bits() == number.to_bits() && number.abs() < 1e15 {
        return format!("{number:.0}");
    }
    let scientific = format!("{number:.16e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..DIGITS).contains(&exponent) {
        let decimals = usize::try_from(DIGITS - 1 - exponent).unwrap_or(0);
        return without_trailing_zeros(&format!("{number:.decimals$}")).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", without_trailing_zeros(mantissa), exponent.abs())
}

fn without_trailing_zeros(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_integer_has_one_spelling() {
        for (text, expected) in [
            ("0", Some(0)),
            ("-1", Some(-1)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("-0", None),
            ("01", None),
            ("+1", None),
            (" 1", None),
            ("1 ", None),
            ("1.0", None),
            ("", None),
            ("-", None),
        ] {
            assert_eq!(integer(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn a_score_is_any_number() {
        for (text, expected) in [
            ("1", Some(1.0)),
            ("+1.5", Some(1.5)),
            ("-1e3", Some(-1000.0)),
            ("inf", Some(f64::INFINITY)),
            ("-Infinity", Some(f64::NEG_INFINITY)),
            ("1e999", None),
            ("nan", None),
            ("", None),
            ("x", None),
        ] {
            assert_eq!(score(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn a_bound_may_be_exclusive() {
        for (text, expected) in [
            ("5", Some((5.0, false))),
            ("(5", Some((5.0, true))),
            ("-inf", Some((f64::NEG_INFINITY, false))),
            ("(+inf", Some((f64::INFINITY, true))),
            ("", Some((0.0, false))),
            ("((5", None),
            ("nan", None),
        ] {
            let read = bound(text.as_bytes()).map(|bound| (bound.score, bound.exclusive));
            assert_eq!(read, expected, "{text:?}");
        }
    }

    #[test]
    fn a_number_is_written_as_c_writes_it() {
        for (number, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (3.0, "3"),
            (-2.5, "-2.5"),
            (0.1, "0.10000000000000001"),
            (1e15, "1000000000000000"),
            (1_700_000_000_000_042.0, "1700000000000042"),
            (9_007_199_254_740_993.0, "9007199254740992"),
            (1e17, "1e+17"),
            (123_456_789_012_345_680.0, "1.2345678901234568e+17"),
            (0.0001, "0.0001"),
            (0.00001, "1.0000000000000001e-05"),
            (1e100, "1e+100"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(text(number), expected);
        }
    }
}
