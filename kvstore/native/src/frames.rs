//! Watches HTTP/2 frames go by, without taking part: what the h2 crate does not tell.
//!
//! It sees frame boundaries, pings and resets in a byte stream given in pieces of any size.
//! It judges nothing: a stream of bytes that is no HTTP/2 gives nonsense here and an error in h2.

const HEAD_BYTES: usize = 9;
const RESETS_MAX: usize = 65_536; // kept until asked for; a reader asks after every batch

const DATA: u8 = 0x0;
const HEADERS: u8 = 0x1;
const RST_STREAM: u8 = 0x3;
const PING: u8 = 0x6;
const GOAWAY: u8 = 0x7;
const ACK: u8 = 0x1;

/// One direction of a connection.
pub struct FrameWatch {
    head: [u8; HEAD_BYTES],
    head_filled: usize,
    payload_left: usize,
    preface_left: usize,
    /// Pings that are no answers, since last taken.
    pub pings: u32,
    /// Streams reset, since last taken.
    pub resets: Vec<u32>,
    /// Whether headers or data went by since this was last cleared.
    pub carried: bool,
    /// Bytes of DATA payload so far.
    pub data_bytes: u64,
    /// GOAWAY frames so far.
    pub goaways: u32,
}

impl FrameWatch {
    /// Watch a direction that begins with a preface of this many bytes.
    pub fn new(preface_bytes: usize) -> Self {
        FrameWatch {
            head: [0; HEAD_BYTES],
            head_filled: 0,
            payload_left: 0,
            preface_left: preface_bytes,
            pings: 0,
            resets: Vec::new(),
            carried: false,
            data_bytes: 0,
            goaways: 0,
        }
    }

    /// Tell whether the bytes so far end with a whole frame.
    pub fn is_between_frames(&self) -> bool {
        self.preface_left == 0 && self.head_filled == 0
    }

    pub fn see(&mut self, mut bytes: &[u8]) {
        let preface = self.preface_left.min(bytes.len());
        self.preface_left -= preface;
        bytes = &bytes[preface..];
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
            }
            let count = self.payload_left.min(bytes.len());
            self.payload_left -= count;
            bytes = &bytes[count..];
            if self.payload_left == 0 {
                self.head_filled = 0;
                self.end_frame();
            }
        }
    }

    fn end_frame(&mut self) {
        let [a, b, c, kind, flags, stream @ ..] = self.head;
        match kind {
            DATA => {
                self.carried = true;
                self.data_bytes += u64::from(u32::from_be_bytes([0, a, b, c]));
            }
            HEADERS => self.carried = true,
            PING if flags & ACK == 0 => self.pings = self.pings.saturating_add(1),
            GOAWAY => self.goaways = self.goaways.saturating_add(1),
            RST_STREAM if self.resets.len() < RESETS_MAX => {
                self.resets.push(u32::from_be_bytes(stream) & 0x7fff_ffff);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_seen_whatever_the_cut() {
        let mut stream = b"PREFACE".to_vec();
        stream.extend_from_slice(&[0, 0, 8, PING, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
        stream.extend_from_slice(&[0, 0, 8, PING, ACK, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
        stream.extend_from_slice(&[0, 0, 4, RST_STREAM, 0, 0, 0, 1, 5, 0, 0, 0, 8]);
        stream.extend_from_slice(&[0, 0, 3, DATA, 0, 0, 0, 0, 3, 7, 7, 7]);
        stream.extend_from_slice(&[0, 0, 8, GOAWAY, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0]);
        stream.extend_from_slice(&[0, 0, 0, 4, 1, 0, 0, 0, 0]);
        for size in 1..=stream.len() {
            let mut watch = FrameWatch::new(7);
            for piece in stream.chunks(size) {
                watch.see(piece);
            }
            assert_eq!((watch.pings, watch.resets.as_slice()), (1, &[261][..]));
            assert_eq!((watch.carried, watch.data_bytes, watch.goaways), (true, 3, 1));
            assert!(watch.is_between_frames());
            watch.see(&[0, 0]);
            assert!(!watch.is_between_frames());
        }
    }
}
