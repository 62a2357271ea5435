//! Responses: the same bytes as those of `splice` in Python.
//!
//! A header field is field 1 of every response. Its revision is in the middle:
//!
//! ```text
//! | 0a size | head: cluster, member | 18 revision | tail: term |
//! ```

use crate::kernels::protobuf::{bytes_size, varint_size, Writer};

/// What the headers of a batch have in common.
#[derive(Clone, Copy)]
pub struct HeaderParts<'a> {
    pub head: &'a [u8],
    pub tail: &'a [u8],
}

impl HeaderParts<'_> {
    fn body_size(&self, revision: u64) -> usize {
        self.head.len() + 1 + varint_size(revision) + self.tail.len()
    }

    /// The size of the header field with a revision, which is not 0.
    pub fn size(&self, revision: u64) -> usize {
        1 + bytes_size(self.body_size(revision))
    }

    pub fn write(&self, out: &mut Writer<'_>, revision: u64) {
        out.byte(0x0a);
        out.varint(self.body_size(revision) as u64);
        out.bytes(self.head);
        out.number_field(0x18, revision);
        out.bytes(self.tail);
    }
}

/// How a compare-and-put ended.
#[derive(Clone, Copy)]
pub enum Swapped<'a> {
    Done,                  // the put, at the header's revision
    Not,                   // and nothing to get
    Got(Option<&'a [u8]>), // instead: the KeyValue of a key, if there is one
}

impl Swapped<'_> {
    fn put_size(revision: u64) -> usize {
        1 + varint_size(revision) // of the header of the put's own response
    }

    fn got_size(revision: u64, kv: Option<&[u8]>) -> usize {
        2 + Self::put_size(revision) + kv.map_or(0, |kv| 1 + bytes_size(kv.len()) + 2)
    }

    /// The size of a TxnResponse.
    pub fn size(&self, header: &HeaderParts<'_>, revision: u64) -> usize {
        let rest = match self {
            // All lengths are one byte.
            Swapped::Done => 2 + 2 + 2 + 2 + Self::put_size(revision),
            Swapped::Not => 0,
            Swapped::Got(kv) => 1 + bytes_size(1 + bytes_size(Self::got_size(revision, *kv))),
        };
        header.size(revision) + rest
    }

    /// Write the TxnResponse to a slice of this size.
    pub fn write(&self, out: &mut [u8], header: &HeaderParts<'_>, revision: u64) {
        let mut out = Writer::new(out);
        header.write(&mut out, revision);
        let own_header = Self::put_size(revision);
        match self {
            Swapped::Done => {
                out.bytes(b"\x10\x01\x1a");
                out.varint(own_header as u64 + 4);
                out.byte(0x12);
                out.varint(own_header as u64 + 2);
                out.byte(0x0a);
                out.varint(own_header as u64);
                out.number_field(0x18, revision);
            }
            Swapped::Not => {}
            Swapped::Got(kv) => {
                let size = Self::got_size(revision, *kv);
                out.byte(0x1a);
                out.varint(1 + bytes_size(size) as u64);
                out.byte(0x0a);
                out.varint(size as u64);
                out.byte(0x0a);
                out.varint(own_header as u64);
                out.number_field(0x18, revision);
                if let Some(kv) = kv {
                    out.bytes_field(0x12, kv);
                    out.bytes(b"\x20\x01");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(swapped: Swapped<'_>) -> Vec<u8> {
        let header = HeaderParts { head: b"\x08\x01", tail: b"\x20\x02" };
        let mut out = vec![0; swapped.size(&header, 300)];
        swapped.write(&mut out, &header, 300);
        out
    }

    #[test]
    fn responses_of_swaps_have_their_sizes() {
        let header = b"\x0a\x07\x08\x01\x18\xac\x02\x20\x02";
        let own = b"\x0a\x03\x18\xac\x02";
        assert_eq!(written(Swapped::Not), header);
        let done = [&header[..], b"\x10\x01\x1a\x07\x12\x05", own].concat();
        assert_eq!(written(Swapped::Done), done);
        let absent = [&header[..], b"\x1a\x07\x0a\x05", own].concat();
        assert_eq!(written(Swapped::Got(None)), absent);
        let got = [&header[..], b"\x1a\x0d\x0a\x0b", own, b"\x12\x02kv\x20\x01"].concat();
        assert_eq!(written(Swapped::Got(Some(b"kv"))), got);
    }
}
