//! Observes HTTP/2 frames: what the h2 crate does not report, and a workaround for one error of it.
//!
//! It finds frame boundaries, pings and resets in a byte stream given in pieces of any size.
//! It validates nothing: bytes that are not HTTP/2 give meaningless results here and an error in h2.
//!
//! Once a client has answered the ping of a graceful end, h2 ignores the streams it begins, because it had
//! not seen the last GOAWAY yet. But a WINDOW_UPDATE for such a stream is a connection error in h2
//! (0.4.20), which ends everything in flight. Such a frame is given an unknown type.

use crate::socket::buffered::{ObservesFrames, SharedBuffer};
use crate::socket::layers::Socket;

const PREFACE_BYTES: usize = 24;
const HEAD_BYTES: usize = 9;
const TYPE_AT: usize = 3; // in a head
const STREAM_MASK: u32 = 0x7fff_ffff;
const PING_BYTES: usize = 8;
const SHUTDOWN: [u8; PING_BYTES] = [0x0b, 0x7b, 0xa2, 0xf0, 0x8b, 0x9b, 0xfe, 0x54]; // the payload of h2's ping
const RESETS_MAX: usize = 65_536; // kept until read; they are read after every batch

const DATA: u8 = 0x0;
const HEADERS: u8 = 0x1;
const RST_STREAM: u8 = 0x3;
const PING: u8 = 0x6;
const GOAWAY: u8 = 0x7;
const WINDOW_UPDATE: u8 = 0x8;
const UNKNOWN: u8 = 0xff; // an endpoint must ignore what it does not know
const ACK: u8 = 0x1;

/// One direction of a connection.
pub struct FrameObserver {
    head: [u8; HEAD_BYTES],
    head_filled: usize,
    payload_left: usize,
    preface_left: usize,
    payload_begin: [u8; PING_BYTES],
    /// Pings that are no answers, since last taken.
    pub pings: u32,
    /// Streams reset, since last taken.
    pub resets: Vec<u32>,
    /// Whether headers or data were seen since this was last cleared.
    pub carried: bool,
    /// Bytes of DATA payload so far.
    pub data_bytes: u64,
    /// GOAWAY frames so far.
    pub goaways: u32,
    /// Whether a graceful end has begun, at the answer to its ping.
    pub is_ending: bool,
    newest_stream: u32,
    last_stream: u32, // that is taken up
}

impl FrameObserver {
    /// Observe a direction that begins with a preface of this many bytes.
    pub fn new(preface_bytes: usize) -> Self {
        FrameObserver {
            head: [0; HEAD_BYTES],
            head_filled: 0,
            payload_left: 0,
            preface_left: preface_bytes,
            payload_begin: [0; PING_BYTES],
            pings: 0,
            resets: Vec::new(),
            carried: false,
            data_bytes: 0,
            goaways: 0,
            is_ending: false,
            newest_stream: 0,
            last_stream: STREAM_MASK,
        }
    }

    /// Return whether the bytes so far end with a complete frame.
    pub fn is_between_frames(&self) -> bool {
        self.preface_left == 0 && self.head_filled == 0
    }

    pub fn see(&mut self, bytes: &[u8]) {
        let mut at = self.pass_preface(bytes);
        while at < bytes.len() {
            if self.head_filled < HEAD_BYTES {
                let count = (HEAD_BYTES - self.head_filled).min(bytes.len() - at);
                self.head[self.head_filled..self.head_filled + count]
                    .copy_from_slice(&bytes[at..at + count]);
                self.head_filled += count;
                at += count;
                if self.head_filled < HEAD_BYTES {
                    return;
                }
                self.payload_left = self.payload_bytes();
            }
            at += self.pass_payload(&bytes[at..]);
        }
    }

    /// Observe incoming bytes, and hide the frames of the workaround; return how many bytes at the end
    /// are part of a frame's head: they are to be given again, with the rest of it.
    pub fn see_arriving(&mut self, bytes: &mut [u8]) -> usize {
        let mut at = self.pass_preface(bytes);
        while at < bytes.len() {
            if self.head_filled < HEAD_BYTES {
                let Some(head) = bytes[at..].first_chunk_mut::<HEAD_BYTES>() else {
                    return bytes.len() - at;
                };
                if head[TYPE_AT] == WINDOW_UPDATE && stream_of(head) > self.last_stream {
                    head[TYPE_AT] = UNKNOWN;
                }
                self.head = *head;
                self.head_filled = HEAD_BYTES;
                self.payload_left = self.payload_bytes();
                at += HEAD_BYTES;
            }
            at += self.pass_payload(&bytes[at..]);
        }
        0
    }

    fn pass_preface(&mut self, bytes: &[u8]) -> usize {
        let count = self.preface_left.min(bytes.len());
        self.preface_left -= count;
        count
    }

    fn payload_bytes(&self) -> usize {
        let [a, b, c, ..] = self.head;
        u32::from_be_bytes([0, a, b, c]) as usize
    }

    /// Skip the rest of a frame, or what there is of it.
    fn pass_payload(&mut self, bytes: &[u8]) -> usize {
        let count = self.payload_left.min(bytes.len());
        let begin = self.payload_bytes() - self.payload_left;
        if begin < PING_BYTES {
            let kept = count.min(PING_BYTES - begin);
            self.payload_begin[begin..begin + kept].copy_from_slice(&bytes[..kept]);
        }
        self.payload_left -= count;
        if self.payload_left == 0 {
            self.head_filled = 0;
            self.end_frame();
        }
        count
    }

    fn end_frame(&mut self) {
        let [_, _, _, kind, flags, ..] = self.head;
        match kind {
            DATA => {
                self.carried = true;
                self.data_bytes += self.payload_bytes() as u64;
            }
            HEADERS => {
                self.carried = true;
                self.newest_stream = self.newest_stream.max(stream_of(&self.head));
            }
            PING if flags & ACK == 0 => self.pings = self.pings.saturating_add(1),
            PING if self.is_ending && self.payload_begin == SHUTDOWN => {
                self.last_stream = self.last_stream.min(self.newest_stream);
            }
            GOAWAY => self.goaways = self.goaways.saturating_add(1),
            RST_STREAM if self.resets.len() < RESETS_MAX => self.resets.push(stream_of(&self.head)),
            _ => {}
        }
    }
}

/// Both directions of a server's connection.
pub struct ServerFrames {
    pub incoming: FrameObserver,
    pub outgoing: FrameObserver,
}

/// The buffered socket of a server's connection.
pub type ServerSocket = SharedBuffer<Socket, ServerFrames>;

impl Default for ServerFrames {
    fn default() -> Self {
        ServerFrames {
            incoming: FrameObserver::new(PREFACE_BYTES),
            outgoing: FrameObserver::new(0),
        }
    }
}

impl ObservesFrames for ServerFrames {
    fn see_arriving(&mut self, bytes: &mut [u8]) -> usize {
        self.incoming.see_arriving(bytes)
    }

    fn see_leaving(&mut self, bytes: &[u8]) {
        self.outgoing.see(bytes);
        self.incoming.is_ending = self.outgoing.goaways > 0;
    }
}

fn stream_of(head: &[u8; HEAD_BYTES]) -> u32 {
    let [_, _, _, _, _, stream @ ..] = *head;
    u32::from_be_bytes(stream) & STREAM_MASK
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
            let mut watch = FrameObserver::new(7);
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

    #[test]
    fn credit_for_a_stream_begun_after_the_end_is_disguised_whatever_the_cut() {
        let credit = |stream: u8| [0, 0, 4, WINDOW_UPDATE, 0, 0, 0, 0, stream, 0, 0, 0, 9];
        let headers = |stream: u8| [0, 0, 0, HEADERS, 5, 0, 0, 0, stream];
        let mut stream = b"PREFACE".to_vec();
        stream.extend_from_slice(&headers(5));
        stream.extend_from_slice(&credit(7));
        stream.extend_from_slice(&[0, 0, 8, PING, ACK, 0, 0, 0, 0]);
        stream.extend_from_slice(&SHUTDOWN);
        stream.extend_from_slice(&headers(7));
        stream.extend_from_slice(&credit(0));
        stream.extend_from_slice(&credit(5));
        let at = stream.len();
        stream.extend_from_slice(&credit(7));
        stream.extend_from_slice(&[0, 0, 4, RST_STREAM, 0, 0, 0, 0, 7, 0, 0, 0, 8]);
        let mut expected = stream.clone();
        expected[at + TYPE_AT] = UNKNOWN;
        for (size, is_ending) in (1..=stream.len()).flat_map(|size| [(size, true), (size, false)]) {
            let (mut watch, mut mended, mut left) = (FrameObserver::new(7), Vec::new(), Vec::new());
            watch.is_ending = is_ending;
            for piece in stream.chunks(size) {
                left.extend_from_slice(piece);
                let begun = watch.see_arriving(&mut left);
                assert!(begun < HEAD_BYTES);
                mended.extend(left.drain(..left.len() - begun));
            }
            assert_eq!(&mended, if is_ending { &expected } else { &stream });
            assert_eq!((watch.carried, watch.resets.as_slice()), (true, &[7][..]));
        }
    }
}
