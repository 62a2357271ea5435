//! Reading and writing the fields of messages.
//!
//! `Reader` is strict: lengths are in the shortest form, numbers are not negative, and whatever else
//! occurs is not recognized. `Writer` fills a slice whose size was computed before.

/// The greatest number that is read: 63 bits, nine bytes.
const NUMBER_BYTES_MAX: usize = 9;

pub fn varint_size(number: u64) -> usize {
    (70 - (number | 1).leading_zeros() as usize) / 7
}

/// The size of a field of bytes behind its tag: length and contents.
pub fn bytes_size(size: usize) -> usize {
    varint_size(size as u64) + size
}

/// The unread rest of a message.
#[derive(Clone, Copy)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }

    /// Skip a tag of one byte, if it is the next.
    pub fn skip(&mut self, tag: u8) -> bool {
        match self.0.split_first() {
            Some((first, rest)) if *first == tag => {
                self.0 = rest;
                true
            }
            _ => false,
        }
    }

    /// Read a number of up to 63 bits.
    pub fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for (at, byte) in self.0.iter().take(NUMBER_BYTES_MAX).enumerate() {
            number |= u64::from(byte & 127) << (7 * at);
            if *byte < 128 {
                self.0 = &self.0[at + 1..];
                return Some(number);
            }
        }
        None
    }

    /// Read the length of bytes in its shortest form, and the bytes.
    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let before = self.0.len();
        let size = self.number()?;
        if before - self.0.len() != varint_size(size) {
            return None;
        }
        let (bytes, rest) = self.0.split_at_checked(usize::try_from(size).ok()?)?;
        self.0 = rest;
        Some(bytes)
    }

    /// Read a field of bytes if this tag is the next; empty if not, or if the field is.
    pub fn bytes_field(&mut self, tag: u8) -> Option<&'a [u8]> {
        if self.skip(tag) {
            self.bytes()
        } else {
            Some(&[])
        }
    }

    /// Read a field of a number if this tag is the next; zero if not.
    pub fn number_field(&mut self, tag: u8) -> Option<u64> {
        if self.skip(tag) {
            self.number()
        } else {
            Some(0)
        }
    }
}

/// Fills a slice from its beginning.
pub struct Writer<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    pub fn new(out: &'a mut [u8]) -> Self {
        Writer { out, at: 0 }
    }

    pub fn byte(&mut self, byte: u8) {
        self.out[self.at] = byte;
        self.at += 1;
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        let end = self.at + bytes.len();
        self.out[self.at..end].copy_from_slice(bytes);
        self.at = end;
    }

    pub fn varint(&mut self, mut number: u64) {
        while number > 127 {
            self.byte(number as u8 | 0x80);
            number >>= 7;
        }
        self.byte(number as u8);
    }

    pub fn bytes_field(&mut self, tag: u8, bytes: &[u8]) {
        self.byte(tag);
        self.varint(bytes.len() as u64);
        self.bytes(bytes);
    }

    pub fn number_field(&mut self, tag: u8, number: u64) {
        self.byte(tag);
        self.varint(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_varint_has_its_size() {
        for shift in 0..64 {
            for number in [(1u64 << shift) - 1, 1 << shift] {
                let size = varint_size(number);
                let mut out = vec![0; size];
                Writer::new(&mut out).varint(number);
                assert!(out[size - 1] < 128, "{number}");
                if number >> 63 == 0 {
                    assert_eq!(Reader(&out).number(), Some(number));
                } else {
                    assert_eq!(Reader(&out).number(), None);
                }
            }
        }
    }

    #[test]
    fn lengths_are_in_the_shortest_form_and_within_the_message() {
        assert_eq!(Reader(b"\x02ab").bytes(), Some(&b"ab"[..]));
        assert_eq!(Reader(b"\x82\x00ab").bytes(), None);
        assert_eq!(Reader(b"\x03ab").bytes(), None);
        assert_eq!(Reader(b"\x83").bytes(), None);
        assert_eq!(Reader(b"").bytes(), None);
    }
}
