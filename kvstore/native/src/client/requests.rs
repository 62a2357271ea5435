//! The batch of one flush from the caller's thread, copied from Python's objects.

use std::sync::Arc;
use std::time::Instant;

use ::http::{HeaderName, HeaderValue};
use bytes::{BufMut, Bytes, BytesMut};

use crate::grpc::PREFIX_BYTES;
use crate::server::outbox::put_message_prefix;

const ARENA_BYTES: usize = 16 << 10;
const SMALL_BYTES: usize = 2 << 10; // bodies up to this share an arena

/// The metadata of calls, often shared.
pub type Metadata = Arc<Vec<(HeaderName, HeaderValue)>>;

/// A unary call.
pub struct Call {
    pub id: u64,
    pub method: u32,
    pub message: Bytes, // framed
    pub deadline: Option<Instant>,
    pub metadata: Option<Metadata>,
}

/// A stream; its messages follow.
pub struct Open {
    pub id: u64,
    pub method: u32,
    pub metadata: Option<Metadata>,
}

/// One flush.
#[derive(Default)]
pub struct Requests {
    pub calls: Vec<Call>,
    pub opened: Vec<Open>,
    pub frames: Vec<(u64, Bytes)>, // framed
    pub half_closed: Vec<u64>,
    pub gone: Vec<u64>,
    pub taken: Vec<(u64, usize)>, // bytes that a stream's reader has consumed
    pub refused: Vec<(u64, String)>, // calls and streams that cannot be sent, and why
    arena: BytesMut,
}

impl Requests {
    pub fn new(half_closed: Vec<u64>, gone: Vec<u64>, taken: Vec<(u64, usize)>) -> Self {
        Requests { half_closed, gone, taken, ..Requests::default() }
    }

    /// Copy a message with its prefix.
    pub fn frame(&mut self, body: &[u8]) -> Bytes {
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
