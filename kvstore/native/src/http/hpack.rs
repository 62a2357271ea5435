//! As much of HPACK (RFC 7541) as is needed to know which path a header block has.
//!
//! The dynamic table is followed by the sizes of its entries alone; of paths the values are kept that h2
//! does not get to see. A block that is not understood is an error, which h2 will find, too.

use std::collections::VecDeque;
use std::rc::Rc;

use crate::http::targets::{is_plain, shown};

const ENTRY_OVERHEAD: usize = 32;
const TABLE_BYTES: usize = 4096; // what the server's settings allow
const PATH: &[u8] = b":path";
/// The lengths of the names in the static table, from index 1.
const STATIC_NAMES: [u8; 61] = [
    10, 7, 7, 5, 5, 7, 7, 7, 7, 7, 7, 7, 7, 7, 14, 15, 15, 13, 6, 27, 3, 5, 13, 13, 19, 16, 16, 14,
    16, 13, 12, 6, 4, 4, 6, 7, 4, 4, 8, 17, 13, 8, 19, 13, 4, 8, 12, 18, 19, 5, 7, 7, 11, 6, 10,
    25, 17, 10, 4, 3, 16,
];
/// The lengths in bits of Huffman's codes, by byte; codes are in the order of lengths, then of bytes.
const CODE_BITS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5,
    5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6,
    6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22,
    23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22,
    21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20,
    22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19,
    21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22,
    22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
];
const CODE_BITS_MIN: usize = 5;
const CODE_BITS_MAX: usize = 30;

/// Decodes Huffman's code: for each length the first code, and the bytes in the order of their codes.
struct Huffman {
    first: [u32; CODE_BITS_MAX + 1],
    index: [usize; CODE_BITS_MAX + 2], // of the first byte of a length
    bytes: [u8; 256],
}

const HUFFMAN: Huffman = Huffman::new();

impl Huffman {
    const fn new() -> Self {
        let mut made = Huffman {
            first: [0; CODE_BITS_MAX + 1],
            index: [0; CODE_BITS_MAX + 2],
            bytes: [0; 256],
        };
        let (mut bits, mut code, mut index) = (CODE_BITS_MIN, 0, 0);
        while bits <= CODE_BITS_MAX {
            made.first[bits] = code;
            made.index[bits] = index;
            let mut byte = 0;
            while byte < 256 {
                if CODE_BITS[byte] as usize == bits {
                    made.bytes[index] = byte as u8;
                    index += 1;
                    code += 1;
                }
                byte += 1;
            }
            code <<= 1;
            bits += 1;
        }
        made.index[CODE_BITS_MAX + 1] = index;
        made
    }

    /// Call `take` with each byte; none: it is no code.
    fn decode(&self, text: &[u8], mut take: impl FnMut(u8)) -> Option<()> {
        let (mut code, mut bits) = (0u32, 0);
        for byte in text {
            for shift in (0..8).rev() {
                code = code << 1 | u32::from(byte >> shift & 1);
                bits += 1;
                if bits < CODE_BITS_MIN {
                    continue;
                }
                if bits > CODE_BITS_MAX {
                    return None;
                }
                let index = self.index[bits] + code.wrapping_sub(self.first[bits]) as usize;
                if code >= self.first[bits] && index < self.index[bits + 1] {
                    take(self.bytes[index]);
                    (code, bits) = (0, 0);
                }
            }
        }
        (bits < 8 && code == (1 << bits) - 1).then_some(()) // the rest is ones
    }
}

struct Entry {
    name_bytes: usize,
    bytes: usize,
    is_path: bool,
    real: Option<Rc<str>>, // of a path that h2 does not get
}

/// The decoding state of one connection.
pub struct Paths {
    entries: VecDeque<Entry>, // the newest first
    bytes: usize,
    bytes_max: usize,
}

/// A path in a header block.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The path that h2 does not get.
    pub real: Option<Rc<str>>,
    /// The literal to replace: the position and length of its value, and the new value.
    pub value: Option<(usize, usize, Vec<u8>)>,
}

/// A string in a block.
struct Text<'a> {
    bytes: &'a [u8],
    is_huffman: bool,
}

impl Text<'_> {
    fn decoded(&self) -> Option<Vec<u8>> {
        if !self.is_huffman {
            return Some(self.bytes.to_vec());
        }
        let mut out = Vec::with_capacity(self.bytes.len() * 8 / CODE_BITS_MIN);
        HUFFMAN.decode(self.bytes, |byte| out.push(byte))?;
        Some(out)
    }

    fn decoded_bytes(&self) -> Option<usize> {
        let mut count = self.bytes.len();
        if self.is_huffman {
            count = 0;
            HUFFMAN.decode(self.bytes, |_| count += 1)?;
        }
        Some(count)
    }
}

fn read_integer(block: &[u8], at: &mut usize, prefix_bits: u32) -> Option<usize> {
    let most = (1usize << prefix_bits) - 1;
    let mut value = usize::from(*block.get(*at)?) & most;
    *at += 1;
    if value < most {
        return Some(value);
    }
    for shift in (0..28).step_by(7) {
        let byte = *block.get(*at)?;
        *at += 1;
        value += usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn write_integer(out: &mut Vec<u8>, first: u8, prefix_bits: u32, mut value: usize) {
    let most = (1usize << prefix_bits) - 1;
    if value < most {
        return out.push(first | value as u8);
    }
    out.push(first | most as u8);
    value -= most;
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn read_text<'a>(block: &'a [u8], at: &mut usize) -> Option<Text<'a>> {
    let is_huffman = block.get(*at)? & 0x80 != 0;
    let size = read_integer(block, at, 7)?;
    let bytes = block.get(*at..at.checked_add(size)?)?;
    *at += size;
    Some(Text { bytes, is_huffman })
}

impl Paths {
    pub fn new() -> Self {
        Paths { entries: VecDeque::new(), bytes: 0, bytes_max: TABLE_BYTES }
    }

    /// Follow a header block; none: it is not understood.
    pub fn follow(&mut self, block: &[u8]) -> Option<Found> {
        let (mut at, mut found) = (0, Found::default());
        while let Some(&first) = block.get(at) {
            match first {
                0x80.. => {
                    let index = read_integer(block, &mut at, 7)?;
                    if let Some(entry) = self.entry(index)?.filter(|entry| entry.is_path) {
                        found.real = entry.real.clone();
                    }
                }
                0x40.. => self.literal(block, &mut at, 6, &mut found)?,
                0x20.. => {
                    self.bytes_max = read_integer(block, &mut at, 5)?.min(TABLE_BYTES);
                    self.evict(0);
                }
                _ => self.literal(block, &mut at, 4, &mut found)?,
            }
        }
        Some(found)
    }

    /// An entry of the dynamic table; none of the static one. The outer none: there is no such entry.
    fn entry(&self, index: usize) -> Option<Option<&Entry>> {
        match index.checked_sub(STATIC_NAMES.len() + 1) {
            Some(index) => self.entries.get(index).map(Some),
            None => (index > 0).then_some(None),
        }
    }

    fn literal(
        &mut self,
        block: &[u8],
        at: &mut usize,
        prefix_bits: u32,
        found: &mut Found,
    ) -> Option<()> {
        let is_kept = prefix_bits == 6;
        let index = read_integer(block, at, prefix_bits)?;
        let (name_bytes, is_path) = if index == 0 {
            let name = read_text(block, at)?.decoded()?;
            (name.len(), name == PATH)
        } else {
            match self.entry(index)? {
                Some(entry) => (entry.name_bytes, entry.is_path),
                None => (usize::from(STATIC_NAMES[index - 1]), matches!(index, 4 | 5)),
            }
        };
        let begin = *at;
        let text = read_text(block, at)?;
        let mut real = None;
        let value_bytes = match (is_path, is_kept) {
            (true, _) => {
                let value = text.decoded()?;
                if let Some(target) = (!is_plain(&value)).then(|| shown(&value)).flatten() {
                    real = Some(Rc::from(target));
                    let instead = stand_in(value.len());
                    found.value = Some((begin, *at - begin, instead));
                }
                found.real = real.clone();
                value.len()
            }
            (false, true) => text.decoded_bytes()?,
            (false, false) => return Some(()),
        };
        if is_kept {
            let bytes = name_bytes + value_bytes + ENTRY_OVERHEAD;
            self.evict(bytes);
            if bytes <= self.bytes_max {
                self.bytes += bytes;
                self.entries.push_front(Entry { name_bytes, bytes, is_path, real });
            }
        }
        Some(())
    }

    /// Make room for an entry.
    fn evict(&mut self, bytes: usize) {
        while self.bytes + bytes > self.bytes_max {
            let Some(oldest) = self.entries.pop_back() else { return };
            self.bytes -= oldest.bytes;
        }
    }
}

/// A path that h2 accepts, as a string in a block. It is as long as the real one, so that the table stays
/// the same, or too long for the table as well.
fn stand_in(bytes: usize) -> Vec<u8> {
    let bytes = bytes.min(2 * TABLE_BYTES);
    let mut text = Vec::with_capacity(bytes + 4);
    write_integer(&mut text, 0, 7, bytes);
    text.push(b'/');
    text.resize(text.len() + bytes - 1, b'x');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(paths: &mut Paths, block: &[u8]) -> (Option<String>, Option<(usize, usize)>) {
        let found = paths.follow(block).expect("it is understood");
        (found.real.map(|real| real.to_string()), found.value.map(|(at, size, _)| (at, size)))
    }

    #[test]
    fn the_examples_of_rfc_7541_are_understood() {
        // C.4: requests with Huffman's code; C.6's sizes are those of answers.
        let mut paths = Paths::new();
        let blocks: [(&[u8], usize); 3] = [
            (b"\x82\x86\x84\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff", 57),
            (b"\x82\x86\x84\xbe\x58\x86\xa8\xeb\x10\x64\x9c\xbf", 110),
            (
                b"\x82\x87\x85\xbf\x40\x88\x25\xa8\x49\xe9\x5b\xa9\x7d\x7f\x89\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf",
                164,
            ),
        ];
        for (block, bytes) in blocks {
            assert_eq!(found(&mut paths, block), (None, None));
            assert_eq!(paths.bytes, bytes);
        }
        let huffman =
            Text { bytes: b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff", is_huffman: true };
        assert_eq!(huffman.decoded().as_deref(), Some(&b"www.example.com"[..]));
    }

    #[test]
    fn a_path_of_the_table_is_known_by_its_index() {
        let mut paths = Paths::new();
        assert_eq!(found(&mut paths, b"\x44\x04/a>1"), (Some("/a>1".into()), Some((1, 5))));
        assert_eq!(found(&mut paths, b"\x44\x02/b"), (None, None));
        assert_eq!(found(&mut paths, b"\xbf"), (Some("/a>1".into()), None));
        assert_eq!(found(&mut paths, b"\xbe"), (None, None));
        assert_eq!(found(&mut paths, b"\x0f\x2f\x03/<>"), (Some("/<>".into()), Some((2, 4))));
        assert_eq!(found(&mut paths, b"\x00\x05:path\x02/\""), (Some("/\"".into()), Some((7, 3))));
        assert_eq!(found(&mut paths, b"\x20"), (None, None)); // a table of no bytes
        assert_eq!((paths.bytes, paths.follow(b"\xbe")), (0, None));
    }

    #[test]
    fn a_long_path_empties_the_table() {
        let mut paths = Paths::new();
        assert_eq!(found(&mut paths, b"\x44\x04/a>1").0.as_deref(), Some("/a>1"));
        let long = [b'/'; 500_000];
        let mut block = vec![0x44];
        write_integer(&mut block, 0, 7, long.len());
        block.extend_from_slice(&long);
        let found = paths.follow(&block).unwrap();
        assert_eq!(found.real.as_deref().map(str::len), Some(500_000));
        let (at, size, instead) = found.value.unwrap();
        assert_eq!((at, at + size), (1, block.len()));
        assert!(instead.len() < 10_000 && paths.entries.is_empty());
        assert_eq!(read_text(&instead, &mut 0).unwrap().bytes.len(), 2 * TABLE_BYTES);
    }
}
