//! The bytes of a text, handed to the parser as libyaml reads them: decoded in windows of 16 KiB.
//!
//! A byte that is wrong is noticed when its window is decoded, and so before or after an error of
//! syntax. A text begins with a byte order mark if it is UTF-16.

use std::borrow::Cow;
use std::io::{self, BufRead, Read};

const WINDOW_BYTES: usize = 16_384;
pub const MARK_UTF8: &[u8] = b"\xef\xbb\xbf";
const MARK_UTF16_LITTLE: &[u8] = b"\xff\xfe";
const MARK_UTF16_BIG: &[u8] = b"\xfe\xff";

#[derive(Clone, Copy)]
enum Encoding {
    Utf8,
    Utf16 { is_big: bool },
}

/// A text of which one window at a time is decoded.
pub struct Windows<'a> {
    encoding: Encoding,
    rest: &'a [u8], // what has not been decoded
    skipped: usize, // bytes of the mark, which count in the first window
    window: Cow<'a, str>,
    read: usize, // bytes of the window that the parser has taken
}

/// Characters of a window, and the bytes that they took. An error if there are none.
type Decoded<'a> = Result<(Cow<'a, str>, usize), &'static str>;

impl<'a> Windows<'a> {
    pub fn new(data: &'a [u8]) -> Self {
        let mut encoding = Encoding::Utf8;
        let mut skipped = 0;
        for (mark, marked) in [
            (MARK_UTF16_LITTLE, Encoding::Utf16 { is_big: false }),
            (MARK_UTF16_BIG, Encoding::Utf16 { is_big: true }),
            (MARK_UTF8, Encoding::Utf8),
        ] {
            if data.starts_with(mark) {
                (encoding, skipped) = (marked, mark.len());
                break;
            }
        }
        let rest = data.get(skipped..).unwrap_or_default();
        Windows { encoding, rest, skipped, window: Cow::Borrowed(""), read: 0 }
    }

    /// Decode the next window. There is none at the end of the text.
    fn advance(&mut self) -> io::Result<()> {
        let size = self.rest.len().min(WINDOW_BYTES - std::mem::take(&mut self.skipped));
        let (raw, is_last) = (&self.rest[..size], size == self.rest.len());
        let decoded = match self.encoding {
            Encoding::Utf8 => utf8(raw, is_last),
            Encoding::Utf16 { is_big } => utf16(raw, is_last, is_big),
        };
        let (window, used) = decoded.map_err(io::Error::other)?;
        self.rest = &self.rest[used..];
        (self.window, self.read) = (window, 0);
        Ok(())
    }
}

/// How many directives stand before the first document, whether or not they are valid. Each is compared
/// with all before it, and each tag of the document with all of them.
pub fn count_directives(data: &[u8]) -> usize {
    let mut windows = Windows::new(data);
    let (mut count, mut is_at_start) = (0, true);
    while !windows.rest.is_empty() && windows.advance().is_ok() {
        for character in windows.window.chars() {
            let is_first = std::mem::replace(&mut is_at_start, is_break(character));
            match character {
                _ if !is_first || is_at_start => (),
                '%' => count += 1,
                ' ' | '\t' | '#' | '\u{feff}' => (),
                _ => return count,
            }
        }
    }
    count
}

pub fn is_break(character: char) -> bool {
    matches!(character, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

impl Read for Windows<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let size = available.len().min(out.len());
        out[..size].copy_from_slice(&available[..size]);
        self.consume(size);
        Ok(size)
    }
}

impl BufRead for Windows<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.read >= self.window.len() && !self.rest.is_empty() {
            self.advance()?;
        }
        Ok(self.window.as_bytes().get(self.read..).unwrap_or_default())
    }

    fn consume(&mut self, size: usize) {
        self.read += size;
    }
}

/// The characters of a window, up to one that it has the beginning of only.
fn utf8(raw: &[u8], is_last: bool) -> Decoded<'_> {
    let (text, error) = match std::str::from_utf8(raw) {
        Ok(text) => (text, None),
        Err(error) => {
            let (valid, wrong) = raw.split_at(error.valid_up_to());
            let problem = wrong_utf8(wrong, is_last && valid.is_empty());
            (std::str::from_utf8(valid).unwrap_or_default(), problem)
        }
    };
    // The bytes before the invalid one are decoded first, and may be wrong itself.
    if !text.chars().all(is_allowed) {
        return Err("control characters are not allowed");
    }
    match error {
        Some(problem) => Err(problem),
        None => Ok((Cow::Borrowed(text), text.len())),
    }
}

/// What is wrong with the first character; None: it goes on in the next window.
fn wrong_utf8(wrong: &[u8], is_end: bool) -> Option<&'static str> {
    let first = *wrong.first()?;
    let width = match first {
        0..=0x7f => 1,
        _ if first & 0xe0 == 0xc0 => 2,
        _ if first & 0xf0 == 0xe0 => 3,
        _ if first & 0xf8 == 0xf0 => 4,
        _ => return Some("invalid leading UTF-8 octet"),
    };
    let Some(sequence) = wrong.get(..width) else {
        return is_end.then_some("incomplete UTF-8 octet sequence");
    };
    let mut code = u32::from(first) & (0xff >> (width + 1));
    for octet in &sequence[1..] {
        if octet & 0xc0 != 0x80 {
            return Some("invalid trailing UTF-8 octet");
        }
        code = code << 6 | u32::from(octet & 0x3f);
    }
    let least = [0, 0, 0x80, 0x800, 0x1_0000][width];
    Some(if code < least {
        "invalid length of a UTF-8 sequence"
    } else {
        "invalid Unicode character"
    })
}

fn utf16(raw: &[u8], is_last: bool, is_big: bool) -> Decoded<'_> {
    let unit = |at: usize| -> Option<u16> {
        let pair = [*raw.get(at)?, *raw.get(at + 1)?];
        Some(if is_big { u16::from_be_bytes(pair) } else { u16::from_le_bytes(pair) })
    };
    let mut text = String::with_capacity(raw.len());
    let mut at = 0;
    while at < raw.len() {
        let is_end = is_last && at == 0;
        let Some(first) = unit(at) else {
            if is_end {
                return Err("incomplete UTF-16 character");
            }
            break;
        };
        let mut units = [first, 0];
        let mut count = 1;
        match first & 0xfc00 {
            0xdc00 => return Err("unexpected low surrogate area"),
            0xd800 => {
                let Some(second) = unit(at + 2) else {
                    if is_end {
                        return Err("incomplete UTF-16 surrogate pair");
                    }
                    break;
                };
                if second & 0xfc00 != 0xdc00 {
                    return Err("expected low surrogate area");
                }
                (units[1], count) = (second, 2);
            }
            _ => (),
        }
        for character in char::decode_utf16(units.into_iter().take(count)).flatten() {
            if !is_allowed(character) {
                return Err("control characters are not allowed");
            }
            text.push(character);
        }
        at += 2 * count;
    }
    Ok((Cow::Owned(text), at))
}

fn is_allowed(character: char) -> bool {
    matches!(character,
        '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{d7ff}'
        | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(data: &[u8]) -> Result<String, String> {
        let mut text = String::new();
        match Windows::new(data).read_to_string(&mut text) {
            Ok(_) => Ok(text),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn texts_of_all_encodings_are_read_across_windows() {
        for unit in ["aé", "a€", "a😀", "aaa😀", "é"] {
            for shift in 0..4 {
                let text = "b".repeat(shift) + &unit.repeat(20_000);
                let units: Vec<u16> = text.encode_utf16().collect();
                let little = units.iter().flat_map(|unit| unit.to_le_bytes());
                let big = units.iter().flat_map(|unit| unit.to_be_bytes());
                assert_eq!(read(text.as_bytes()).as_ref(), Ok(&text));
                assert_eq!(read(&[MARK_UTF8, text.as_bytes()].concat()).as_ref(), Ok(&text));
                let marked: Vec<u8> = b"\xff\xfe".iter().copied().chain(little).collect();
                assert_eq!(read(&marked).as_ref(), Ok(&text));
                let marked: Vec<u8> = b"\xfe\xff".iter().copied().chain(big).collect();
                assert_eq!(read(&marked).as_ref(), Ok(&text));
            }
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (data, problem) in [
            (&b"a\x01"[..], "control characters are not allowed"),
            (b"a\x80", "invalid leading UTF-8 octet"),
            (b"a\xc3", "incomplete UTF-8 octet sequence"),
            (b"a\xc3a", "invalid trailing UTF-8 octet"),
            (b"a\xc0\x80", "invalid length of a UTF-8 sequence"),
            (b"a\xed\xa0\x80", "invalid Unicode character"),
            (b"a\xf7\xbf\xbf\xbf", "invalid Unicode character"),
            (b"\xff\xfea", "incomplete UTF-16 character"),
            (b"\xff\xfe\x00\xdc", "unexpected low surrogate area"),
            (b"\xff\xfe\x00\xd8", "incomplete UTF-16 surrogate pair"),
            (b"\xfe\xff\xd8\x00\x00a", "expected low surrogate area"),
        ] {
            assert_eq!(read(data), Err(problem.to_owned()), "{data:?}");
        }
    }
}
