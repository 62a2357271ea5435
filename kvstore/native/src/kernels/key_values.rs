//! Records of the store: revision keys and KeyValues, as `encode_kv` of Python makes them.

use crate::kernels::protobuf::{bytes_size, varint_size, Writer};

pub const REVISION_KEY_BYTES: usize = 17;
const SEPARATOR: u8 = b'_';

/// A KeyValue; zeros and empty bytes are left out.
pub struct KeyValue<'a> {
    pub key: &'a [u8],
    pub create: u64,
    pub modified: u64,
    pub version: u64,
    pub value: &'a [u8],
    pub lease: u64,
}

impl KeyValue<'_> {
    fn numbers(&self) -> [(u8, u64); 3] {
        [(0x10, self.create), (0x18, self.modified), (0x20, self.version)]
    }

    pub fn size(&self) -> usize {
        let bytes = |bytes: &[u8]| if bytes.is_empty() { 0 } else { 1 + bytes_size(bytes.len()) };
        let number = |number| if number == 0 { 0 } else { 1 + varint_size(number) };
        let numbers: usize = self.numbers().iter().map(|(_, each)| number(*each)).sum();
        bytes(self.key) + numbers + bytes(self.value) + number(self.lease)
    }

    /// Write to a slice of this size.
    pub fn write(&self, out: &mut [u8]) {
        let mut out = Writer::new(out);
        if !self.key.is_empty() {
            out.bytes_field(0x0a, self.key);
        }
        for (tag, number) in self.numbers().into_iter().filter(|(_, number)| *number != 0) {
            out.number_field(tag, number);
        }
        if !self.value.is_empty() {
            out.bytes_field(0x2a, self.value);
        }
        if self.lease != 0 {
            out.number_field(0x30, self.lease);
        }
    }
}

/// The key of the record of a main revision's first change.
pub fn revision_key(main: u64) -> [u8; REVISION_KEY_BYTES] {
    let mut key = [0; REVISION_KEY_BYTES];
    key[..8].copy_from_slice(&main.to_be_bytes());
    key[8] = SEPARATOR;
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_value_has_only_fields_that_are_not_zero() {
        let kv = KeyValue { key: b"k", create: 5, modified: 300, version: 2, value: b"", lease: 0 };
        let mut out = vec![0; kv.size()];
        kv.write(&mut out);
        assert_eq!(out, b"\x0a\x01k\x10\x05\x18\xac\x02\x20\x02");
    }
}
