//! The batch of one flush from the driver's thread, copied from Python's objects.

use std::cell::OnceCell;
use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};

use crate::grpc::{Status, PREFIX_BYTES};
use crate::http::messages::HttpResponse;
use crate::kernels::fan_out::Block;

const ARENA_BYTES: usize = 16 << 10;
const SMALL_BYTES: usize = 2 << 10; // replies up to this share an arena, which lives as long as each of them

pub struct Reply {
    pub id: u64,
    pub code: u32,
    pub body: Bytes, // a framed message, or for code ≠ 0 the text
}

pub struct Delivery {
    pub id: u64,
    pub what: Piece,
}

pub enum Piece {
    One { head: Range<usize>, tail: usize }, // of heads, in tails
    Many { blocks: Range<usize> },           // of messages, which streams may share
}

pub struct End {
    pub id: u64,
    pub code: u32,
    pub text: Bytes,
}

/// Bytes for answers; each names its tail.
pub enum Write {
    One { id: u64, tail: usize }, // already counted as queued
    All { ids: Vec<u64>, tail: usize },
}

/// Bytes that deliveries share.
pub struct Tail {
    pub bytes: Bytes,
    chunk: OnceCell<Bytes>, // encoded for HTTP/1.1; also shared
}

impl Tail {
    pub fn chunk(&self) -> &Bytes {
        self.chunk.get_or_init(|| {
            let head = format!("{:x}\r\n", self.bytes.len());
            let mut chunk = BytesMut::with_capacity(head.len() + self.bytes.len() + 2);
            chunk.put_slice(head.as_bytes());
            chunk.put_slice(&self.bytes);
            chunk.put_slice(b"\r\n");
            chunk.freeze()
        })
    }
}

/// One flush. A tail is stored once, however many deliveries share it.
#[derive(Default)]
pub struct Outbox {
    pub replies: Vec<Reply>,
    pub heads: Vec<u8>,
    pub tails: Vec<Tail>,
    pub blocks: Vec<Block>,
    pub deliveries: Vec<Delivery>,
    pub ends: Vec<End>,
    pub cuts: Vec<End>,     // of streams with a message that cannot be sent
    pub cuts_now: Vec<u64>, // answers of HTTP that end at once
    pub responses: Vec<HttpResponse>,
    pub writes: Vec<Write>, // of a server of HTTP alone
    pub resumed: Vec<u64>,  // bodies to read on
    arena: BytesMut,
    send_bytes_max: usize,
}

impl Outbox {
    pub fn new(send_bytes_max: usize) -> Self {
        Outbox { send_bytes_max, ..Outbox::default() }
    }

    /// Add bytes for deliveries; return their index.
    pub fn add_tail(&mut self, bytes: Bytes) -> usize {
        self.tails.push(Tail { bytes, chunk: OnceCell::new() });
        self.tails.len() - 1
    }

    /// Add a message of these parts.
    pub fn add_delivery(&mut self, id: u64, head: &[&[u8]], tail: usize) {
        let begin = self.heads.len();
        for part in head {
            self.heads.extend_from_slice(part);
        }
        let what = Piece::One { head: begin..self.heads.len(), tail };
        self.deliveries.push(Delivery { id, what });
    }

    /// Return whether it has nothing that a server of HTTP alone sends.
    pub fn is_empty(&self) -> bool {
        self.responses.is_empty()
            && self.writes.is_empty()
            && self.ends.is_empty()
            && self.cuts_now.is_empty()
            && self.resumed.is_empty()
    }

    pub fn add_reply(&mut self, id: u64, code: u32, body: &[u8]) {
        if body.len() > self.send_bytes_max {
            let Status { code, text } = Status::unsendable(body.len(), self.send_bytes_max);
            return self.replies.push(Reply { id, code, body: text });
        }
        let body = if code == 0 { self.frame(body) } else { Bytes::copy_from_slice(body) };
        self.replies.push(Reply { id, code, body });
    }

    fn frame(&mut self, body: &[u8]) -> Bytes {
        let size = PREFIX_BYTES + body.len();
        if body.len() > SMALL_BYTES {
            let mut message = BytesMut::with_capacity(size);
            put_message_prefix(&mut message, body.len());
            message.put_slice(body);
            return message.freeze();
        }
        if self.arena.capacity() < size {
            self.arena = BytesMut::with_capacity(ARENA_BYTES);
        }
        put_message_prefix(&mut self.arena, body.len());
        self.arena.put_slice(body);
        self.arena.split().freeze()
    }
}

/// Write the five bytes before a message.
pub fn put_message_prefix(out: &mut BytesMut, size: usize) {
    out.put_u8(0);
    out.put_u32(u32::try_from(size).unwrap_or(u32::MAX)); // larger ones are refused before
}
