//! Scalars as upstream understands them: YAML 1.1, with exceptions of its own.
//!
//! ```text
//! resolve("", "yes")   → Bool(true)       resolve(STR, "yes")  → Text("yes")
//! resolve("", "0o17")  → Int(15)          resolve("", "12:30") → Text("12:30")
//! ```

use std::borrow::Cow;

use super::nodes::STR;
use super::times::is_time;

const PREFIX: &str = "tag:yaml.org,2002:";
const INTEGER_DIGITS_MAX: usize = 100;
pub const MERGE: &str = "tag:yaml.org,2002:merge";

#[derive(Clone, Debug, PartialEq)]
pub enum Scalar<'a> {
    Null,
    Bool(bool),
    Int(i64),
    /// Above `i64::MAX`.
    Unsigned(u64),
    Float(f64),
    Text(Cow<'a, str>),
}

/// The value of a scalar, or what upstream says of it.
pub fn resolve<'a>(tag: &str, text: &'a str) -> Result<Scalar<'a>, String> {
    let tag = match tag.strip_prefix(PREFIX) {
        None if tag.is_empty() => return Ok(plain(text)),
        None => return Ok(Scalar::Text(text.into())),
        Some(tag) => tag,
    };
    match tag {
        "str" => return Ok(Scalar::Text(text.into())),
        "binary" => {
            let decoded = base64(text);
            let problem = "yaml: !!binary value contains invalid base64 data";
            return decoded.map(|text| Scalar::Text(text.into())).ok_or(problem.to_owned());
        }
        "bool" | "int" | "float" | "null" | "timestamp" => (),
        _ => return Ok(Scalar::Text(text.into())),
    }
    let value = plain(text);
    match (&value, tag) {
        (&Scalar::Int(number), "float") => return Ok(Scalar::Float(number as f64)),
        (&Scalar::Unsigned(number), "float") => return Ok(Scalar::Float(number as f64)),
        _ => (),
    }
    let found = short_tag(&value);
    if found == tag || tag == "timestamp" && is_time(text) {
        return Ok(value);
    }
    Err(format!("yaml: cannot decode !!{found} `{text}` as a !!{tag}"))
}

fn short_tag(value: &Scalar) -> &'static str {
    match value {
        Scalar::Null => "null",
        Scalar::Bool(_) => "bool",
        Scalar::Int(_) | Scalar::Unsigned(_) => "int",
        Scalar::Float(_) => "float",
        Scalar::Text(_) => STR.split_at(PREFIX.len()).1,
    }
}

/// A scalar without quotes or tag.
fn plain(text: &str) -> Scalar<'_> {
    let first = text.bytes().next().unwrap_or(b'~');
    let special = match first {
        b'0'..=b'9' | b'+' | b'-' | b'.' => number(text),
        b'y' | b'Y' | b'n' | b'N' | b't' | b'T' | b'f' | b'F' | b'o' | b'O' | b'~' => word(text),
        _ => None,
    };
    special.unwrap_or(Scalar::Text(text.into()))
}

fn word(text: &str) -> Option<Scalar<'static>> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Some(Scalar::Null),
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Some(Scalar::Bool(true))
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Some(Scalar::Bool(false))
        }
        _ => None,
    }
}

fn number(text: &str) -> Option<Scalar<'static>> {
    match text {
        ".nan" | ".NaN" | ".NAN" => return Some(Scalar::Float(f64::NAN)),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => {
            return Some(Scalar::Float(f64::INFINITY));
        }
        "-.inf" | "-.Inf" | "-.INF" => return Some(Scalar::Float(f64::NEG_INFINITY)),
        _ => (),
    }
    if text.starts_with('.') {
        return float(text);
    }
    let plain: Cow<str> =
        if text.contains('_') { text.replace('_', "").into() } else { text.into() };
    if plain.len() <= INTEGER_DIGITS_MAX {
        if let Some(integer) = integer(&plain) {
            return Some(integer);
        }
    }
    float(&plain)
}

/// An integer with or without the prefix of a base; None if it is none, or beyond 64 bits.
fn integer(text: &str) -> Option<Scalar<'static>> {
    let (sign, digits) = match text.as_bytes().first()? {
        sign @ (b'+' | b'-') => (*sign, &text[1..]),
        _ => (b' ', text),
    };
    let (base, digits) = match digits.get(..2) {
        Some("0b" | "0B") => (2, &digits[2..]),
        Some("0o" | "0O") => (8, &digits[2..]),
        Some("0x" | "0X") => (16, &digits[2..]),
        _ if digits.starts_with('0') => (8, digits),
        _ => (10, digits),
    };
    if !digits.bytes().all(|digit| char::from(digit).is_digit(base)) {
        return None; // from_str_radix would take another sign
    }
    let number = u64::from_str_radix(digits, base).ok()?;
    match (sign, i64::try_from(number)) {
        (b'-', Ok(number)) => Some(Scalar::Int(-number)),
        (b'-', Err(_)) => (number == 1 << 63).then_some(Scalar::Int(i64::MIN)),
        (_, Ok(number)) => Some(Scalar::Int(number)),
        (b'+', Err(_)) => None,
        (_, Err(_)) => Some(Scalar::Unsigned(number)),
    }
}

/// A float; None if it is none, or too large for one.
fn float(text: &str) -> Option<Scalar<'static>> {
    let mantissa = text.strip_prefix(['+', '-']).unwrap_or(text);
    // Rust reads `inf`, `nan` and `infinity` besides.
    let is_number = mantissa
        .bytes()
        .all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-'));
    if !is_number {
        return None;
    }
    let number: f64 = text.parse().ok()?;
    number.is_finite().then_some(Scalar::Float(number))
}

/// The text in base64, bytes that are not UTF-8 replaced one by one; None if it is invalid.
fn base64(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let mut digits = text.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n')).peekable();
    while digits.peek().is_some() {
        let group = [digits.next()?, digits.next()?, digits.next()?, digits.next()?];
        let count = match group {
            [_, _, b'=', b'='] => 2,
            [_, _, _, b'='] => 3,
            _ => 4,
        };
        let mut bits = 0;
        for &digit in &group[..count] {
            bits = bits << 6 | base64_digit(digit)?;
        }
        bits <<= 6 * (4 - count);
        bytes.extend_from_slice(&bits.to_be_bytes()[1..count]);
        if count < 4 && digits.peek().is_some() {
            return None;
        }
    }
    Some(replaced(&bytes))
}

fn base64_digit(digit: u8) -> Option<u32> {
    Some(u32::from(match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    }))
}

fn replaced(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Scalar<'_> {
        Scalar::Text(text.into())
    }

    #[test]
    fn plain_scalars_are_what_their_form_says() {
        for (written, value) in [
            ("yes", Scalar::Bool(true)),
            ("Off", Scalar::Bool(false)),
            ("yEs", text("yEs")),
            ("", Scalar::Null),
            ("~", Scalar::Null),
            ("0", Scalar::Int(0)),
            ("-0", Scalar::Int(0)),
            ("010", Scalar::Int(8)),
            ("08", Scalar::Float(8.0)),
            ("0x", text("0x")),
            ("0x1_F", Scalar::Int(31)),
            ("-0b11", Scalar::Int(-3)),
            ("+-1", text("+-1")),
            ("0x+1", text("0x+1")),
            ("é", text("é")),
            ("+é", text("+é")),
            ("-9223372036854775808", Scalar::Int(i64::MIN)),
            ("-9223372036854775809", Scalar::Float(-9.223_372_036_854_776e18)),
            ("+9223372036854775808", Scalar::Float(9.223_372_036_854_776e18)),
            ("18446744073709551615", Scalar::Unsigned(u64::MAX)),
            ("1.", Scalar::Float(1.0)),
            (".5", Scalar::Float(0.5)),
            (".5_0", text(".5_0")),
            ("1_0.5", Scalar::Float(10.5)),
            (".", text(".")),
            ("+", text("+")),
            ("1e5", Scalar::Float(1e5)),
            ("1e", text("1e")),
            ("1e999", text("1e999")),
            ("+.INF", Scalar::Float(f64::INFINITY)),
            ("inf", text("inf")),
            ("+inf", text("+inf")),
            ("12:30", text("12:30")),
        ] {
            assert_eq!(plain(written), value, "{written}");
        }
    }

    #[test]
    fn tags_decide() {
        let tagged = |short: &str, text: &'static str| resolve(&format!("{PREFIX}{short}"), text);
        assert_eq!(tagged("str", "1"), Ok(text("1")));
        assert_eq!(tagged("float", "3"), Ok(Scalar::Float(3.0)));
        assert_eq!(tagged("timestamp", "2024-01-01"), Ok(text("2024-01-01")));
        assert_eq!(tagged("binary", "aG\nk="), Ok(text("hi")));
        assert_eq!(tagged("binary", "4oI="), Ok(text("\u{fffd}\u{fffd}")));
        for wrong in ["a", "aGk", "aGk==", "====", "aG=k", "aGk=aGk=", "é==="] {
            let problem = "yaml: !!binary value contains invalid base64 data";
            assert_eq!(tagged("binary", wrong), Err(problem.to_owned()), "{wrong}");
        }
        assert_eq!(tagged("merge", "<<"), Ok(text("<<")));
        assert_eq!(tagged("int", "x"), Err("yaml: cannot decode !!str `x` as a !!int".to_owned()));
        assert_eq!(resolve("!foo", "1"), Ok(text("1")));
    }
}
