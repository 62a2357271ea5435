//! Header blocks of HTTP/2 whose paths h2 would refuse: see `targets`.
//!
//! ```text
//! HEADERS [+ CONTINUATION …] with ":path: /a>1"  ──►  HEADERS with ":path: /xxx"  and the target "/a>1"
//! ```
//!
//! A block is held until it is complete, up to the limit of a head. One without such a path is passed on as
//! it came. What is not understood is passed on as well, and everything after it: h2 ends the connection.

use std::rc::Rc;

use bytes::{Buf, BytesMut};

use crate::http::hpack::{Found, Paths};
use crate::server::connection_state::Conn;

const PREFACE_BYTES: usize = 24;
const HEAD_BYTES: usize = 9;
const FLAGS_AT: usize = 4;
const PAYLOAD_MAX: usize = 16_384; // what the server's settings allow
const KEPT_BYTES: usize = 16 << 10; // capacity that stays
const FRAMES_BYTES: usize = 64 << 10; // of a block's frames, beside its content
const STREAM_MASK: u32 = 0x7fff_ffff;
const PRIORITY_BYTES: usize = 5;
const HEADERS: u8 = 0x1;
const CONTINUATION: u8 = 0x9;
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// Takes bytes as they arrive and returns those that h2 is to read.
pub struct PathPatch {
    conn: Rc<Conn>,
    paths: Paths,
    arrived: BytesMut,
    ready: BytesMut,
    pass_left: usize,    // bytes that pass unseen
    held: Vec<u8>,       // the frames of a block, as they came
    block: Vec<u8>,      // their content
    begun: Option<Head>, // of the block
    is_lost: bool,       // not understood: pass on everything
}

/// Of the first frame of a block.
struct Head {
    stream: u32,
    flags: u8,
    priority: Option<[u8; PRIORITY_BYTES]>,
}

impl PathPatch {
    pub fn new(conn: Rc<Conn>) -> Self {
        PathPatch {
            conn,
            paths: Paths::new(),
            arrived: BytesMut::new(),
            ready: BytesMut::new(),
            pass_left: PREFACE_BYTES,
            held: Vec::new(),
            block: Vec::new(),
            begun: None,
            is_lost: false,
        }
    }

    /// The buffer for the next bytes.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.arrived
    }

    /// The end of the bytes: the rest is passed on as it is.
    pub fn finish(&mut self) {
        self.lose();
        self.pass();
    }

    /// Return what may be read, of what arrived so far.
    pub fn readable(&mut self) -> &[u8] {
        while self.step() {}
        &self.ready
    }

    pub fn consume(&mut self, count: usize) {
        self.ready.advance(count);
        if self.ready.is_empty() && self.ready.capacity() > KEPT_BYTES {
            self.ready = BytesMut::new();
        }
    }

    fn lose(&mut self) {
        self.is_lost = true;
        self.ready.extend_from_slice(&std::mem::take(&mut self.held));
    }

    fn pass(&mut self) {
        self.ready.extend_from_slice(&self.arrived.split());
    }

    /// Handle a piece of what arrived; false: more must arrive first.
    fn step(&mut self) -> bool {
        if self.arrived.is_empty() {
            return false;
        }
        if self.is_lost {
            self.pass();
            return false;
        }
        if self.pass_left > 0 {
            let count = self.pass_left.min(self.arrived.len());
            self.ready.extend_from_slice(&self.arrived.split_to(count));
            self.pass_left -= count;
            return true;
        }
        let Some(&[a, b, c, kind, flags, d, e, f, g]) = self.arrived.first_chunk::<HEAD_BYTES>()
        else {
            return false;
        };
        let size = u32::from_be_bytes([0, a, b, c]) as usize;
        let stream = u32::from_be_bytes([d, e, f, g]) & STREAM_MASK;
        let expected = if self.begun.is_some() { CONTINUATION } else { HEADERS };
        if kind != expected {
            if self.begun.is_some() {
                self.lose(); // nothing may come between
            } else {
                self.pass_left = HEAD_BYTES + size;
            }
            return true;
        }
        if size > PAYLOAD_MAX {
            self.lose();
            return true;
        }
        if self.arrived.len() < HEAD_BYTES + size {
            return false;
        }
        if kind == HEADERS && flags & (PADDED | PRIORITY) == 0 && flags & END_HEADERS != 0 {
            return self.pass_block(size, stream);
        }
        let frame = self.arrived.split_to(HEAD_BYTES + size);
        self.held.extend_from_slice(&frame);
        let payload = &frame[HEAD_BYTES..];
        if kind == CONTINUATION {
            self.block.extend_from_slice(payload);
        } else if !self.begin(payload, flags, stream) {
            self.lose();
            return true;
        }
        let limit = self.conn.port.limits.header_bytes_max as usize + FRAMES_BYTES;
        if flags & END_HEADERS != 0 {
            self.end_block();
        } else if self.held.len() > limit {
            self.lose();
        }
        true
    }

    /// Handle a block in one frame, which is nearly every block: it passes as it is, or is held.
    fn pass_block(&mut self, size: usize, stream: u32) -> bool {
        let frame = self.arrived.split_to(HEAD_BYTES + size);
        match self.paths.follow(&frame[HEAD_BYTES..]) {
            None => self.is_lost = true,
            Some(Found { real, value: None }) => {
                if let Some(real) = real {
                    self.conn.add_target(stream, real);
                }
            }
            Some(found) => {
                self.block.extend_from_slice(&frame[HEAD_BYTES..]);
                let head = Head { stream, flags: frame[FLAGS_AT], priority: None };
                self.replace(&head, found);
                return true;
            }
        }
        self.ready.extend_from_slice(&frame);
        true
    }

    /// Begin a block; false: its first frame is invalid.
    fn begin(&mut self, payload: &[u8], flags: u8, stream: u32) -> bool {
        let mut rest = payload;
        if flags & PADDED != 0 {
            let Some((padding, after)) = rest.split_first() else { return false };
            let Some(size) = after.len().checked_sub(usize::from(*padding)) else { return false };
            rest = &after[..size];
        }
        let mut priority = None;
        if flags & PRIORITY != 0 {
            let Some((found, after)) = rest.split_first_chunk::<PRIORITY_BYTES>() else {
                return false;
            };
            (priority, rest) = (Some(*found), after);
        }
        self.block.extend_from_slice(rest);
        self.begun = Some(Head { stream, flags, priority });
        true
    }

    fn end_block(&mut self) {
        let Some(head) = self.begun.take() else { return };
        let Some(found) = self.paths.follow(&self.block) else { return self.lose() };
        self.replace(&head, found);
    }

    /// Pass on the block that is held, with another path if it is to have one.
    fn replace(&mut self, head: &Head, found: Found) {
        if let Some(real) = found.real {
            self.conn.add_target(head.stream, real);
        }
        match found.value {
            None => self.ready.extend_from_slice(&self.held),
            Some((at, size, instead)) => {
                self.block.splice(at..at + size, instead);
                self.write_block(head);
            }
        }
        for each in [&mut self.held, &mut self.block] {
            each.clear();
            each.shrink_to(KEPT_BYTES);
        }
    }

    /// Pass on the block in frames of our own.
    fn write_block(&mut self, head: &Head) {
        let mut kind = HEADERS;
        let mut flags = head.flags & END_STREAM;
        let mut prefix = head.priority.as_ref().map_or(&[][..], |priority| &priority[..]);
        if !prefix.is_empty() {
            flags |= PRIORITY;
        }
        let mut rest = &self.block[..];
        loop {
            let (piece, after) = rest.split_at(rest.len().min(PAYLOAD_MAX - prefix.len()));
            if after.is_empty() {
                flags |= END_HEADERS;
            }
            let size = (prefix.len() + piece.len()) as u32;
            self.ready.extend_from_slice(&size.to_be_bytes()[1..]);
            self.ready.extend_from_slice(&[kind, flags]);
            self.ready.extend_from_slice(&head.stream.to_be_bytes());
            self.ready.extend_from_slice(prefix);
            self.ready.extend_from_slice(piece);
            if after.is_empty() {
                return;
            }
            (rest, prefix, kind, flags) = (after, &[], CONTINUATION, 0);
        }
    }
}
