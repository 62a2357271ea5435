//! What the driver's thread hands over in one flush, already in bytes of our own.

use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};

use crate::grpc::{Status, PREFIX_BYTES};
use crate::http::HttpResponse;

const ARENA_BYTES: usize = 16 << 10;
const SMALL_BYTES: usize = 2 << 10; // replies up to this share an arena; one that lingers pins it

pub struct Reply {
    pub id: u64,
    pub code: u32,
    pub body: Bytes, // a framed message, or for code ≠ 0 the text
}

pub struct Delivery {
    pub id: u64,
    pub head: Range<usize>, // in heads
    pub tail: usize,        // in tails
}

pub struct End {
    pub id: u64,
    pub code: u32,
    pub text: Bytes,
}

/// One flush. A tail stands once, however many deliveries share it.
#[derive(Default)]
pub struct Outbox {
    pub replies: Vec<Reply>,
    pub heads: Vec<u8>,
    pub tails: Vec<Bytes>,
    pub deliveries: Vec<Delivery>,
    pub ends: Vec<End>,
    pub cuts: Vec<End>, // of streams that were given what cannot be sent
    pub responses: Vec<HttpResponse>,
    arena: BytesMut,
    send_bytes_max: usize,
}

impl Outbox {
    pub fn new(send_bytes_max: usize) -> Self {
        Outbox { send_bytes_max, ..Outbox::default() }
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
