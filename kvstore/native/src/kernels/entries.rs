//! The data of entries of the log: an InternalRaftRequest around a request's bytes.
//!
//! ```text
//! | tag of the kind | length | request | a2 06 length | 08 request id |
//! ```

use crate::kernels::protobuf::{varint_size, Reader, Writer};

const HEADER_TAG: [u8; 2] = [0xa2, 0x06];
const SHORT_FIELD_MAX: u32 = 15; // its tag is one byte

/// The data for a request of a kind (field) with its id, to be written at once.
pub struct Wrapping<'a> {
    tag: u8,
    body: &'a [u8],
    id: u64,
    header_size: usize,
}

impl<'a> Wrapping<'a> {
    /// None: the tag of the kind takes more than one byte.
    pub fn new(field: u32, body: &'a [u8], id: u64) -> Option<Self> {
        let tag = (field <= SHORT_FIELD_MAX).then_some((field << 3 | 2) as u8)?;
        let header_size = if id == 0 { 0 } else { 1 + varint_size(id) };
        Some(Wrapping { tag, body, id, header_size })
    }

    pub fn size(&self) -> usize {
        let body = varint_size(self.body.len() as u64) + self.body.len();
        1 + body + HEADER_TAG.len() + 1 + self.header_size
    }

    /// Write to a slice of this size.
    pub fn write(&self, out: &mut [u8]) {
        let mut out = Writer::new(out);
        out.bytes_field(self.tag, self.body);
        out.bytes(&HEADER_TAG);
        out.byte(self.header_size as u8);
        if self.id != 0 {
            out.number_field(0x08, self.id);
        }
    }
}

/// The request in an entry's data, if it is of this kind and has nothing but a header behind it.
pub fn unwrapped(field: u32, data: &[u8]) -> Option<&[u8]> {
    let tag = (field <= SHORT_FIELD_MAX).then_some((field << 3 | 2) as u8)?;
    let mut fields = Reader(data);
    let body = fields.skip(tag).then(|| fields.bytes())??;
    let header = fields.0.strip_prefix(&HEADER_TAG)?;
    let (size, header) = header.split_first()?;
    (*size < 128 && usize::from(*size) == header.len()).then_some(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrapped_is_unwrapped() {
        for id in [0, 1, 127, 128, u64::MAX] {
            let wrapping = Wrapping::new(4, b"body", id).unwrap();
            let mut data = vec![0; wrapping.size()];
            wrapping.write(&mut data);
            assert_eq!(unwrapped(4, &data), Some(&b"body"[..]));
            assert_eq!(unwrapped(5, &data), None);
            for end in 0..data.len() {
                assert_eq!(unwrapped(4, &data[..end]), None);
            }
        }
        assert!(Wrapping::new(16, b"", 1).is_none());
    }
}
