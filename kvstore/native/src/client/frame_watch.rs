//! Finds in a server's frames what h2 does not report.
//!
//! That is whether the server's SETTINGS have arrived, and which streams a GOAWAY excludes, for those were
//! certainly not processed. It validates nothing: bytes that are not HTTP/2 give meaningless results here
//! and an error in h2.

use tokio::io::{AsyncRead, AsyncWrite};

use crate::socket::buffered::{ObservesFrames, SharedBuffer};

const HEAD_BYTES: usize = 9;
const GOAWAY_BYTES: usize = 8; // that are looked at
const STREAM_MASK: u32 = 0x7fff_ffff;
const SETTINGS: u8 = 0x4;
const GOAWAY: u8 = 0x7;
const ENHANCE_YOUR_CALM: u32 = 0xb;

/// The socket under HTTP/2.
pub trait Carrier: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Carrier for T {}

/// The buffered socket of a client's connection.
pub type ClientSocket = SharedBuffer<Box<dyn Carrier>, Watch>;

/// Observes incoming frames, in pieces of any size.
pub struct Watch {
    head: [u8; HEAD_BYTES],
    head_filled: usize,
    payload_left: usize,
    payload_begin: [u8; GOAWAY_BYTES],
    payload_seen: usize,
    /// Whether the server's SETTINGS have arrived.
    pub has_settings: bool,
    /// The last stream that is processed, after a GOAWAY.
    pub last_stream: Option<u32>,
    /// Whether a GOAWAY reported too many pings.
    pub has_too_many_pings: bool,
}

impl Watch {
    pub fn new() -> Self {
        Watch {
            head: [0; HEAD_BYTES],
            head_filled: 0,
            payload_left: 0,
            payload_begin: [0; GOAWAY_BYTES],
            payload_seen: 0,
            has_settings: false,
            last_stream: None,
            has_too_many_pings: false,
        }
    }

    pub fn see(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.head_filled < HEAD_BYTES {
                let count = (HEAD_BYTES - self.head_filled).min(bytes.len());
                self.head[self.head_filled..self.head_filled + count]
                    .copy_from_slice(&bytes[..count]);
                self.head_filled += count;
                bytes = &bytes[count..];
                if self.head_filled < HEAD_BYTES {
                    return;
                }
                let [a, b, c, ..] = self.head;
                self.payload_left = u32::from_be_bytes([0, a, b, c]) as usize;
                self.payload_seen = 0;
            }
            let count = self.payload_left.min(bytes.len());
            let kept = count.min(GOAWAY_BYTES.saturating_sub(self.payload_seen));
            if kept > 0 {
                self.payload_begin[self.payload_seen..self.payload_seen + kept]
                    .copy_from_slice(&bytes[..kept]);
                self.payload_seen += kept;
            }
            self.payload_left -= count;
            bytes = &bytes[count..];
            if self.payload_left == 0 {
                self.head_filled = 0;
                self.end_frame();
            }
        }
    }

    fn end_frame(&mut self) {
        match self.head[3] {
            SETTINGS => self.has_settings = true,
            GOAWAY if self.payload_seen == GOAWAY_BYTES => {
                let [a, b, c, d, code @ ..] = self.payload_begin;
                let last = u32::from_be_bytes([a, b, c, d]) & STREAM_MASK;
                self.last_stream = Some(self.last_stream.map_or(last, |before| before.min(last)));
                self.has_too_many_pings |= u32::from_be_bytes(code) == ENHANCE_YOUR_CALM;
            }
            _ => {}
        }
    }
}

impl ObservesFrames for Watch {
    fn see_arriving(&mut self, bytes: &mut [u8]) -> usize {
        self.see(bytes);
        0
    }

    fn see_leaving(&mut self, _: &[u8]) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_and_goaways_are_seen_whatever_the_cut() {
        let mut stream = vec![0, 0, 6, SETTINGS, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 100];
        stream.extend_from_slice(&[0, 0, 3, 0, 0, 0, 0, 0, 3, 7, 7, 7]);
        let quiet = stream.len();
        stream.extend_from_slice(&[0, 0, 8, GOAWAY, 0, 0, 0, 0, 0]);
        stream.extend_from_slice(&[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
        stream.extend_from_slice(&[0, 0, 10, GOAWAY, 0, 0, 0, 0, 0]);
        stream.extend_from_slice(&[0x80, 0, 0, 9, 0, 0, 0, 11, b'n', b'o']);
        for size in 1..=stream.len() {
            let mut watch = Watch::new();
            let (first, rest) = stream.split_at(quiet);
            first.chunks(size).for_each(|piece| watch.see(piece));
            assert!(watch.has_settings);
            assert_eq!((watch.last_stream, watch.has_too_many_pings), (None, false));
            rest.chunks(size).for_each(|piece| watch.see(piece));
            assert_eq!((watch.last_stream, watch.has_too_many_pings), (Some(9), true));
        }
    }
}
