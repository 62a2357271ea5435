//! The requests that most calls are, recognized in their bytes.
//!
//! ```text
//! put    0a key [12 value]
//! get    0a key [38 1]                                  a range of one key, perhaps serializable
//! swap   0a compare  12 {12 {0a key [12 value] [18 lease]}}  [1a {0a {0a key}}]
//!        compare = [08 relation] [10 target] 1a key [number of the target]
//! ```
//!
//! A key of a put or a get has at most 127 bytes, and a value at most 2,097,151: `plain_put` and
//! `is_get` of Python recognize the same.

use crate::kernels::protobuf::Reader;

const KEY_MAX: usize = 127;
const VALUE_MAX: usize = 2_097_151;
const VERSION: u64 = 0;
const CREATE: u64 = 1;
const MOD: u64 = 2;
const RELATION_MAX: u64 = 3;

#[derive(Debug, PartialEq, Eq)]
pub struct Put<'a> {
    pub key: &'a [u8],
    pub value: &'a [u8],
}

#[derive(Debug, PartialEq, Eq)]
pub struct Get<'a> {
    pub key: &'a [u8],
    pub is_serializable: bool,
}

/// A compare-and-put: if a number of a key is as expected, a put, else perhaps a get.
#[derive(Debug, PartialEq, Eq)]
pub struct Swap<'a> {
    pub compared: &'a [u8],
    pub number_at: u8, // 0 create revision, 1 mod revision, 2 version: as in mvcc's Numbers
    pub relation: u64, // of pb.Compare
    pub number: u64,
    pub key: &'a [u8],
    pub value: &'a [u8],
    pub lease: u64,
    pub otherwise: &'a [u8], // the key to get; empty: nothing
}

pub fn put(body: &[u8]) -> Option<Put<'_>> {
    let mut fields = Reader(body);
    let key = short_key(&mut fields)?;
    let has_value = !fields.is_at_end();
    let value = fields.bytes_field(0x12)?;
    let is_plain = fields.is_at_end() && value.len() <= VALUE_MAX && has_value != value.is_empty();
    is_plain.then_some(Put { key, value })
}

pub fn get(body: &[u8]) -> Option<Get<'_>> {
    let mut fields = Reader(body);
    let key = short_key(&mut fields)?;
    match fields.0 {
        [] => Some(Get { key, is_serializable: false }),
        [0x38, 1..=127] => Some(Get { key, is_serializable: true }),
        _ => None,
    }
}

pub fn swap(body: &[u8]) -> Option<Swap<'_>> {
    let mut fields = Reader(body);
    let mut compare = Reader(fields.skip(0x0a).then(|| fields.bytes())??);
    let mut success = Reader(fields.skip(0x12).then(|| fields.bytes())??);
    let failure = if fields.is_at_end() { None } else { Some(fields.bytes_field(0x1a)?) };
    if !fields.is_at_end() {
        return None;
    }
    let relation = compare.number_field(0x08)?;
    let target = compare.number_field(0x10)?;
    let compared = compare.bytes_field(0x1a)?;
    let (number_at, tag) = match target {
        VERSION => (2, 0x20),
        CREATE => (0, 0x28),
        MOD => (1, 0x30),
        _ => return None,
    };
    let number = compare.number_field(tag)?;
    if relation > RELATION_MAX || compared.is_empty() || !compare.is_at_end() {
        return None;
    }
    let mut put = Reader(success.skip(0x12).then(|| success.bytes())??);
    let key = put.bytes_field(0x0a)?;
    let value = put.bytes_field(0x12)?;
    let lease = put.number_field(0x18)?;
    if key.is_empty() || !put.is_at_end() || !success.is_at_end() {
        return None;
    }
    let otherwise = match failure {
        None => &[][..],
        Some(failure) => plain_get(failure)?,
    };
    Some(Swap { compared, number_at, relation, number, key, value, lease, otherwise })
}

/// The key of an operation that gets a key without any option.
fn plain_get(op: &[u8]) -> Option<&[u8]> {
    let mut op = Reader(op);
    let mut range = Reader(op.skip(0x0a).then(|| op.bytes())??);
    let key = range.bytes_field(0x0a)?;
    (!key.is_empty() && range.is_at_end() && op.is_at_end()).then_some(key)
}

fn short_key<'a>(fields: &mut Reader<'a>) -> Option<&'a [u8]> {
    let key = fields.bytes_field(0x0a)?;
    (1..=KEY_MAX).contains(&key.len()).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_put_has_a_key_and_perhaps_a_value() {
        assert_eq!(put(b"\x0a\x01k\x12\x01v"), Some(Put { key: b"k", value: b"v" }));
        assert_eq!(put(b"\x0a\x01k"), Some(Put { key: b"k", value: b"" }));
        for other in [
            &b""[..],
            b"\x0a\x00",
            b"\x0a\x01k\x12\x00",
            b"\x0a\x01k\x12\x81\x00v",
            b"\x0a\x01k\x18\x01",
            b"\x12\x01v\x0a\x01k",
            b"\x0a\x02k",
        ] {
            assert_eq!(put(other), None, "{other:?}");
        }
    }

    #[test]
    fn a_get_may_be_serializable() {
        assert_eq!(get(b"\x0a\x01k"), Some(Get { key: b"k", is_serializable: false }));
        assert_eq!(get(b"\x0a\x01k\x38\x01"), Some(Get { key: b"k", is_serializable: true }));
        assert_eq!(get(b"\x0a\x01k\x38\x00"), None);
        assert_eq!(get(b"\x0a\x01k\x40\x01"), None);
    }

    #[test]
    fn a_swap_is_one_compare_and_one_put() {
        let compare = b"\x0a\x05\x10\x02\x1a\x01k";
        let success = b"\x12\x08\x12\x06\x0a\x01k\x12\x01v";
        let failure = b"\x1a\x05\x0a\x03\x0a\x01o";
        let swapped = Swap {
            compared: b"k",
            number_at: 1,
            relation: 0,
            number: 0,
            key: b"k",
            value: b"v",
            lease: 0,
            otherwise: b"",
        };
        assert_eq!(swap(&[&compare[..], success].concat()), Some(swapped));
        let with_get = [&compare[..], success, failure].concat();
        assert_eq!(swap(&with_get).unwrap().otherwise, b"o");
        assert_eq!(swap(&[&compare[..], compare, success].concat()), None);
        assert_eq!(swap(&[&success[..], compare].concat()), None);
        for end in 0..with_get.len() {
            let cut = swap(&with_get[..end]);
            assert!(cut.is_none() || end == compare.len() + success.len());
        }
    }
}
