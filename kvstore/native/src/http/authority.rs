//! Clients of unix sockets send the socket's path as `:authority`, which h2 refuses as an invalid host.
//!
//! ```text
//! "%2Frun%2Fkv.sock", "/run/kv.sock"  ──►  "-2Frun-2Fkv.sock", "-run-kv.sock"
//! ```
//!
//! The name is not used, so `%` and `/` in it become `-`, in place: that has the same length, also in
//! Huffman's code, so no frame and no state of the header compression changes. Header blocks are only
//! scanned, and what is not understood is passed to h2 unchanged.

use bytes::{Buf, BytesMut};

const PREFACE_BYTES: usize = 24;
const FRAME_HEAD_BYTES: usize = 9;
const FRAME_PAYLOAD_MAX: usize = 16_384; // what the server's settings allow
const HEADERS: u8 = 0x1;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
const AUTHORITY_INDEX: usize = 1; // in HPACK's static table
const AUTHORITY: &[u8] = b":authority";
const AUTHORITY_HUFFMAN: &[u8] = b"\xb8\x3b\x53\x39\xec\x32\x7d\x7f";

/// Takes bytes as they arrive and returns complete frames.
pub struct AuthorityPatch {
    waiting: BytesMut,
    ready: usize, // bytes of waiting that may be read
    preface_left: usize,
    is_lost: bool, // not HTTP/2: pass on everything
}

impl AuthorityPatch {
    pub fn new() -> Self {
        AuthorityPatch {
            waiting: BytesMut::new(),
            ready: 0,
            preface_left: PREFACE_BYTES,
            is_lost: false,
        }
    }

    /// The buffer for the next bytes.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.waiting
    }

    /// The end of the bytes: return the rest as it is.
    pub fn finish(&mut self) {
        self.ready = self.waiting.len();
    }

    /// Return what may be read, of what arrived so far.
    pub fn readable(&mut self) -> &[u8] {
        self.patch_whole_frames();
        &self.waiting[..self.ready]
    }

    pub fn consume(&mut self, count: usize) {
        self.waiting.advance(count);
        self.ready -= count;
    }

    fn patch_whole_frames(&mut self) {
        loop {
            let rest = &mut self.waiting[self.ready..];
            if self.is_lost {
                self.ready += rest.len();
                return;
            }
            if self.preface_left > 0 && !rest.is_empty() {
                let count = rest.len().min(self.preface_left);
                self.preface_left -= count;
                self.ready += count;
                continue;
            }
            let Some(&[a, b, c, kind, flags, ..]) = rest.first_chunk::<FRAME_HEAD_BYTES>() else {
                return;
            };
            let size = u32::from_be_bytes([0, a, b, c]) as usize;
            if size > FRAME_PAYLOAD_MAX {
                self.is_lost = true;
                continue;
            }
            let Some(payload) = rest.get_mut(FRAME_HEAD_BYTES..FRAME_HEAD_BYTES + size) else {
                return;
            };
            if kind == HEADERS {
                let skipped =
                    usize::from(flags & PADDED != 0) + if flags & PRIORITY != 0 { 5 } else { 0 };
                if let Some(block) = payload.get_mut(skipped..) {
                    patch_block(block);
                }
            }
            self.ready += FRAME_HEAD_BYTES + size;
        }
    }
}

/// Walk a header block and patch the value of `:authority`.
fn patch_block(block: &mut [u8]) {
    let mut at = 0;
    while let Some(&first) = block.get(at) {
        let prefix_bits = match first {
            0x80.. => 7,
            0x40.. => 6,
            0x20.. => 5,
            _ => 4,
        };
        let Some(index) = read_integer(block, &mut at, prefix_bits) else { return };
        if (0x20..0x40).contains(&first) || first >= 0x80 {
            continue; // a table size, or a whole header from the table
        }
        let mut is_authority = index == AUTHORITY_INDEX;
        if index == 0 {
            let Some((begin, is_huffman)) = read_string(block, &mut at) else { return };
            let name = if is_huffman { AUTHORITY_HUFFMAN } else { AUTHORITY };
            is_authority = block[begin..at] == *name;
        }
        let Some((begin, is_huffman)) = read_string(block, &mut at) else { return };
        if is_authority {
            let value = &mut block[begin..at];
            if is_huffman {
                patch_huffman(value)
            } else {
                patch_plain(value)
            }
            return;
        }
    }
}

/// Read an HPACK integer and move past it.
fn read_integer(block: &[u8], at: &mut usize, prefix_bits: u32) -> Option<usize> {
    let mask = (1u8 << prefix_bits) - 1;
    let mut value = usize::from(block.get(*at)? & mask);
    *at += 1;
    if value < usize::from(mask) {
        return Some(value);
    }
    for shift in [0, 7, 14] {
        let byte = *block.get(*at)?;
        *at += 1;
        value += usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Move past an HPACK string; return where its bytes begin and whether they are in Huffman's code.
fn read_string(block: &[u8], at: &mut usize) -> Option<(usize, bool)> {
    let is_huffman = block.get(*at)? & 0x80 != 0;
    let size = read_integer(block, at, 7)?;
    let begin = *at;
    let end = begin.checked_add(size)?;
    if end > block.len() {
        return None;
    }
    *at = end;
    Some((begin, is_huffman))
}

fn patch_plain(value: &mut [u8]) {
    for byte in value {
        if matches!(byte, b'%' | b'/') {
            *byte = b'-';
        }
    }
}

/// The code is canonical, so the length of a symbol shows in its first bits: 5 up to 9, 6 up to 0x2d,
/// 7 up to 0x7b, 8 up to 0xfd; what is longer occurs in no path and ends the walk.
fn patch_huffman(value: &mut [u8]) {
    const PERCENT: usize = 0x15;
    const SLASH: usize = 0x18;
    const DASH: usize = 0x16;
    let bits_end = value.len() * 8;
    let bits = |value: &[u8], at: usize, count: usize| {
        (at..at + count).fold(0, |all, bit| {
            let byte = value.get(bit / 8).copied().unwrap_or(0xff);
            all << 1 | usize::from(byte >> (7 - bit % 8) & 1)
        })
    };
    let mut at = 0;
    while at < bits_end {
        let size = match bits(value, at, 8) {
            code if code >> 3 <= 0x09 => 5,
            code if code >> 2 <= 0x2d => 6,
            code if code >> 1 <= 0x7b => 7,
            code if code <= 0xfd => 8,
            _ => return,
        };
        if size == 6 && at + size <= bits_end && matches!(bits(value, at, 6), PERCENT | SLASH) {
            for place in 0..6 {
                let mask = 1 << (7 - (at + place) % 8);
                let byte = &mut value[(at + place) / 8];
                *byte = if DASH >> (5 - place) & 1 == 1 { *byte | mask } else { *byte & !mask };
            }
        }
        at += size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patched(block: &[u8]) -> Vec<u8> {
        let mut block = block.to_vec();
        patch_block(&mut block);
        block
    }

    #[test]
    fn a_path_becomes_a_name() {
        let before = [&b"\x83\x41\x09%2Fk.sock\x04\x02/x"[..]].concat();
        assert_eq!(patched(&before), b"\x83\x41\x09-2Fk.sock\x04\x02/x");
        let spelled = [&b"\x40\x0a:authority\x05tmp%2\x83"[..]].concat();
        assert_eq!(patched(&spelled), b"\x40\x0a:authority\x05tmp-2\x83");
        let by_name = [&b"\x00\x04path\x01/\x01\x02/a"[..]].concat();
        assert_eq!(patched(&by_name), b"\x00\x04path\x01/\x01\x02-a");
    }

    #[test]
    fn also_in_huffmans_code() {
        // "/a%" = 011000 00011 010101, then ones; "-a-" = 010110 00011 010110
        assert_eq!(patched(b"\x41\x83\x60\x6a\xff"), b"\x41\x83\x58\x6b\x7f");
    }

    #[test]
    fn nonsense_is_left_alone() {
        for block in
            [&b"\x41"[..], b"\x41\x7f\xff\xff\xff\xff", b"\x41\x05ab", b"\x00", b"\xff\xff"]
        {
            assert_eq!(patched(block), block);
        }
    }

    #[test]
    fn frames_come_out_whole_and_in_order() {
        let mut stream = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        stream.extend_from_slice(b"\0\0\0\x04\0\0\0\0\0");
        stream.extend_from_slice(b"\0\0\x04\x01\x04\0\0\0\x01\x41\x02/a");
        let mut expected = stream.clone();
        let slash = expected.len() - 2;
        expected[slash] = b'-';
        for size in 1..=stream.len() {
            let mut patch = AuthorityPatch::new();
            let mut out = Vec::new();
            for piece in stream.chunks(size) {
                patch.buffer().extend_from_slice(piece);
                let readable = patch.readable().to_vec();
                patch.consume(readable.len());
                out.extend_from_slice(&readable);
            }
            assert_eq!(out, expected);
        }
    }
}
