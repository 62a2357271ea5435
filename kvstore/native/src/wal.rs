//! Entry records of the write-ahead log, equal to those of `encode_entries` in
//! `kvstore.storage.wal.record`, byte for byte.
//!
//! ```text
//! | 8-byte LE word | 08 02 | 10 crc | 1a length entry | zero padding to a multiple of 8 |
//! word = n, or n | (0x80 | padding) << 56 where there is padding
//! ```
//!
//! The crc is CRC-32C over all bodies of the log so far. The record of a state has kind 3 and its bytes
//! as the body.

const ENTRY_RECORD: u8 = 2;
const STATE_RECORD: u8 = 3;
const HEAD_BYTES_MAX: usize = 8 + 2 + 6 + 11; // word, kind, crc, length of the body
const ENTRY_HEAD_BYTES_MAX: usize = 4 * 11;
const PADDING_BYTES_MAX: usize = 7;

/// One entry of raft's log.
pub struct Entry<'a> {
    pub kind: u64,
    pub term: u64,
    pub index: u64,
    pub data: &'a [u8],
}

/// Append the record of an entry to `out`; return the crc after it.
pub fn append_entry(out: &mut Vec<u8>, entry: &Entry<'_>, crc: u32) -> u32 {
    let mut head = [0u8; ENTRY_HEAD_BYTES_MAX];
    let mut end = 0;
    if entry.kind != 0 {
        end = field(&mut head, end, 0x08, entry.kind);
    }
    if entry.term != 0 {
        end = field(&mut head, end, 0x10, entry.term);
    }
    if entry.index != 0 {
        end = field(&mut head, end, 0x18, entry.index);
    }
    if !entry.data.is_empty() {
        end = field(&mut head, end, 0x22, entry.data.len() as u64);
    }
    append_record(out, ENTRY_RECORD, &head[..end], entry.data, crc)
}

/// Append the record of a state; return the crc after it.
pub fn append_state(out: &mut Vec<u8>, state: &[u8], crc: u32) -> u32 {
    append_record(out, STATE_RECORD, state, &[], crc)
}

/// Append a record whose body is in two parts.
fn append_record(out: &mut Vec<u8>, kind: u8, head: &[u8], data: &[u8], crc: u32) -> u32 {
    out.reserve(HEAD_BYTES_MAX + head.len() + data.len() + PADDING_BYTES_MAX);
    let crc = crc32c::crc32c_append(crc32c::crc32c_append(crc, head), data);

    let word_at = out.len();
    out.extend_from_slice(&[0; 8]);
    let record_at = out.len();
    out.extend_from_slice(&[0x08, kind, 0x10]);
    push_varint(out, u64::from(crc));
    out.push(0x1a);
    push_varint(out, (head.len() + data.len()) as u64);
    out.extend_from_slice(head);
    out.extend_from_slice(data);
    let size = out.len() - record_at;
    let padding = size.wrapping_neg() & 7;
    out.resize(out.len() + padding, 0);
    let mut word = size as u64;
    if padding != 0 {
        word |= (0x80 | padding as u64) << 56;
    }
    out[word_at..record_at].copy_from_slice(&word.to_le_bytes());
    crc
}

fn field(head: &mut [u8; ENTRY_HEAD_BYTES_MAX], at: usize, tag: u8, mut number: u64) -> usize {
    head[at] = tag;
    let mut at = at + 1;
    while number > 127 {
        head[at] = number as u8 | 0x80;
        number >>= 7;
        at += 1;
    }
    head[at] = number as u8;
    at + 1
}

fn push_varint(out: &mut Vec<u8>, mut number: u64) {
    while number > 127 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_framed_and_padded() {
        let mut out = Vec::new();
        let entry = Entry { kind: 0, term: 2, index: 300, data: b"data" };
        let crc = append_entry(&mut out, &entry, 0);
        let body = b"\x10\x02\x18\xac\x02\x22\x04data";
        assert_eq!(crc, crc32c::crc32c(body));
        assert_eq!(out.len() % 8, 0);
        let word = u64::from_le_bytes(out[..8].try_into().unwrap());
        let size = (word & ((1 << 56) - 1)) as usize;
        assert_eq!(&out[8 + size - body.len()..8 + size], body);
        assert_eq!((word >> 56) as usize & 7, out.len() - 8 - size);
    }

    #[test]
    fn an_empty_entry_has_no_fields_that_are_zero() {
        let mut out = Vec::new();
        append_entry(&mut out, &Entry { kind: 0, term: 0, index: 0, data: b"" }, 7);
        let word = u64::from_le_bytes(out[..8].try_into().unwrap());
        assert_eq!(out[8 + (word as usize & 0xff) - 1], 0, "the length of nothing");
    }
}
