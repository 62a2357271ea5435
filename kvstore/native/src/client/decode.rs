//! Fields of protobuf messages, read in place.
//!
//! ```text
//! "0a 03 61 62 63  10 07"  ──►  (1, Bytes("abc")), (2, Varint(7))
//! ```
//!
//! Fields may come in any order and repeatedly: the last scalar counts, lists grow. Unknown fields are
//! skipped. Any invalid byte is an error.

const MISSING: &str = "a field ends after its message";

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    Fixed,
}

impl<'a> Value<'a> {
    pub fn number(self) -> i64 {
        match self {
            Value::Varint(number) => number as i64,
            _ => 0,
        }
    }

    pub fn bytes(self) -> &'a [u8] {
        match self {
            Value::Bytes(bytes) => bytes,
            _ => &[],
        }
    }
}

/// The fields of one message, in order.
pub struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub fn of(message: &'a [u8]) -> Self {
        Fields { rest: message }
    }

    fn varint(&mut self) -> Result<u64, &'static str> {
        let mut number = 0;
        for (at, &byte) in self.rest.iter().enumerate().take(10) {
            number |= u64::from(byte & 0x7f) << (7 * at);
            if byte < 0x80 {
                if at == 9 && byte > 1 {
                    return Err("a number above 64 bits");
                }
                self.rest = &self.rest[at + 1..];
                return Ok(number);
            }
        }
        Err(if self.rest.len() < 10 { MISSING } else { "a number of more than ten bytes" })
    }

    fn skip(&mut self, count: usize) -> Result<&'a [u8], &'static str> {
        let (skipped, rest) = self.rest.split_at_checked(count).ok_or(MISSING)?;
        self.rest = rest;
        Ok(skipped)
    }

    /// Return the next field; none at the end.
    #[allow(clippy::should_implement_trait)] // as an iterator it could not end at an error
    pub fn next(&mut self) -> Result<Option<(u32, Value<'a>)>, &'static str> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let field = u32::try_from(tag >> 3).unwrap_or(0);
        if field == 0 || field >= 1 << 29 {
            return Err("a field number out of range");
        }
        let value = match tag & 7 {
            0 => Value::Varint(self.varint()?),
            1 => self.skip(8).map(|_| Value::Fixed)?,
            2 => {
                let size = usize::try_from(self.varint()?).map_err(|_| MISSING)?;
                Value::Bytes(self.skip(size)?)
            }
            5 => self.skip(4).map(|_| Value::Fixed)?,
            _ => return Err("an unknown wire type"),
        };
        Ok(Some((field, value)))
    }
}

/// Call `each` with every field of a message.
pub fn walk<'a, E: From<&'static str>>(
    message: &'a [u8],
    mut each: impl FnMut(u32, Value<'a>) -> Result<(), E>,
) -> Result<(), E> {
    let mut fields = Fields::of(message);
    while let Some((field, value)) = fields.next()? {
        each(field, value)?;
    }
    Ok(())
}

/// The revision in a ResponseHeader.
pub fn revision_of(header: &[u8]) -> Result<i64, &'static str> {
    let mut revision = 0;
    walk(header, |field, value| {
        if field == 3 {
            revision = value.number();
        }
        Ok::<_, &'static str>(())
    })?;
    Ok(revision)
}

/// A KeyValue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyValue<'a> {
    pub key: &'a [u8],
    pub value: &'a [u8],
    pub create_revision: i64,
    pub mod_revision: i64,
    pub version: i64,
    pub lease: i64,
}

impl<'a> KeyValue<'a> {
    pub fn parse(message: &'a [u8]) -> Result<Self, &'static str> {
        let mut kv = KeyValue::default();
        walk(message, |field, value| {
            match field {
                1 => kv.key = value.bytes(),
                2 => kv.create_revision = value.number(),
                3 => kv.mod_revision = value.number(),
                4 => kv.version = value.number(),
                5 => kv.value = value.bytes(),
                6 => kv.lease = value.number(),
                _ => {}
            }
            Ok::<_, &'static str>(())
        })?;
        Ok(kv)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_value_is_read() {
        let message =
            b"\x0a\x01k\x10\x02\x18\x80\x01\x20\x03\x2a\x02vv\x30\xff\xff\xff\xff\xff\xff\
                        \xff\xff\xff\x01\x79abcdefgh\x7dabcd";
        let found = KeyValue::parse(message).unwrap();
        assert_eq!((found.key, found.value), (&b"k"[..], &b"vv"[..]));
        assert_eq!((found.create_revision, found.mod_revision, found.version), (2, 128, 3));
        assert_eq!(found.lease, -1);
    }

    #[test]
    fn whatever_is_wrong_is_an_error() {
        for bad in [
            &b"\x0a"[..],
            b"\x0a\x05abc",
            b"\x10",
            b"\x10\xff",
            b"\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02",
            b"\x00\x01",
            b"\x0b",
            b"\x09abc",
            b"\x0d",
            b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        ] {
            assert!(KeyValue::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn any_bytes_end() {
        for seed in 0..2000u32 {
            let mut state = seed.wrapping_mul(2_654_435_761) | 1;
            let bytes: Vec<u8> = (0..seed % 40)
                .map(|_| {
                    state ^= state << 13;
                    state ^= state >> 17;
                    state ^= state << 5;
                    (state >> 11) as u8
                })
                .collect();
            let _ = KeyValue::parse(&bytes);
        }
    }
}
