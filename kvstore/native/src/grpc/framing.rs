//! The framing of gRPC's messages, with grpc-go's error texts.
//!
//! ```text
//! message = 1 byte "compressed" · 4 bytes length, big endian · body
//! ```
//!
//! Nothing here uses sockets, streams or Python.

use std::cell::Cell;
use std::io::{Read, Write};
use std::rc::Rc;

use bytes::{Buf, Bytes, BytesMut};
use flate2::write::GzEncoder;
use flate2::Compression;

use crate::grpc::status::{Status, INTERNAL, RESOURCE_EXHAUSTED, UNIMPLEMENTED};

pub const PREFIX_BYTES: usize = 5;

/// Frame one message, given in pieces, compressed. An empty one is not compressed.
pub fn compress(pieces: &[&[u8]]) -> Bytes {
    let mut out = vec![0; PREFIX_BYTES];
    if pieces.iter().any(|piece| !piece.is_empty()) {
        let mut encoder = GzEncoder::new(&mut out, Compression::fast());
        for piece in pieces {
            let _ = encoder.write_all(piece); // into memory: it does not fail
        }
        let _ = encoder.finish();
        out[0] = 1;
    }
    let size = u32::try_from(out.len() - PREFIX_BYTES).unwrap_or(u32::MAX); // kept far below
    out[1..PREFIX_BYTES].copy_from_slice(&size.to_be_bytes());
    out.into()
}

/// How the client compresses its messages; the responses are compressed in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    Identity,
    Gzip,
}

impl Encoding {
    pub fn parse(value: &[u8]) -> Result<Self, Status> {
        match value {
            b"" | b"identity" => Ok(Encoding::Identity),
            b"gzip" => Ok(Encoding::Gzip),
            other => {
                let name = String::from_utf8_lossy(other);
                let text =
                    format!("grpc: Decompressor is not installed for grpc-encoding {name:?}");
                Err(Status::new(UNIMPLEMENTED, text))
            }
        }
    }

    /// Return the message as it was before compression.
    fn decode(self, body: Bytes, limit: usize) -> Result<Bytes, Status> {
        match self {
            Encoding::Identity => Err(Status::new(
                INTERNAL,
                "grpc: compressed flag set with identity or empty encoding",
            )),
            Encoding::Gzip => {
                let mut plain = Vec::new();
                let mut reader =
                    flate2::read::MultiGzDecoder::new(&body[..]).take(limit as u64 + 1);
                if let Err(error) = reader.read_to_end(&mut plain) {
                    let text = format!("grpc: failed to decompress the received message: {error}");
                    return Err(Status::new(INTERNAL, text));
                }
                if plain.len() > limit {
                    let text = format!(
                        "grpc: received message after decompression larger than max {limit}"
                    );
                    return Err(Status::new(RESOURCE_EXHAUSTED, text));
                }
                Ok(plain.into())
            }
        }
    }
}

/// The budget of bytes of incomplete requests, over all connections.
pub struct AssemblyBudget {
    bytes: Cell<usize>,
    limit: usize,
}

impl AssemblyBudget {
    pub fn new(limit: usize) -> Rc<Self> {
        Rc::new(AssemblyBudget { bytes: Cell::new(0), limit })
    }

    /// How much of it is reserved now.
    #[cfg(any(test, fuzzing))]
    pub fn held(&self) -> usize {
        self.bytes.get()
    }
}

/// The part of that budget that one request has reserved, until it is dropped.
pub struct Reservation {
    budget: Rc<AssemblyBudget>,
    bytes: usize,
}

impl Reservation {
    pub fn new(budget: &Rc<AssemblyBudget>) -> Self {
        Reservation { budget: budget.clone(), bytes: 0 }
    }

    /// Reserve more; an error if the budget is used up.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Status> {
        let all = self.budget.bytes.get() + bytes;
        if all > self.budget.limit {
            return Err(Status::too_many_requests());
        }
        self.budget.bytes.set(all);
        self.bytes += bytes;
        Ok(())
    }

    fn release(&mut self) {
        self.budget.bytes.set(self.budget.bytes.get() - self.bytes);
        self.bytes = 0;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.release();
    }
}

/// Cuts the bytes of one request stream into messages.
///
/// A message that arrived in one piece is a slice of it; any other is assembled, and its bytes count
/// against the common budget.
pub struct Deframer {
    chunk: Bytes,
    parts: BytesMut,
    held: Reservation,
    limit: usize,
    encoding: Encoding,
}

impl Deframer {
    pub fn new(limit: usize, encoding: Encoding, budget: &Rc<AssemblyBudget>) -> Self {
        Deframer {
            chunk: Bytes::new(),
            parts: BytesMut::new(),
            held: Reservation::new(budget),
            limit,
            encoding,
        }
    }

    /// Add a chunk; `next_message` must have consumed the last one.
    pub fn push(&mut self, chunk: Bytes) {
        debug_assert!(self.chunk.is_empty());
        self.chunk = chunk;
    }

    /// Return whether a message has begun that is not complete.
    pub fn is_incomplete(&self) -> bool {
        !self.parts.is_empty() || !self.chunk.is_empty()
    }

    /// Take the next complete message, if there is one.
    pub fn next_message(&mut self) -> Result<Option<Bytes>, Status> {
        let message =
            if self.parts.is_empty() { self.take_from_chunk() } else { self.take_from_parts() }?;
        match message {
            Some(mut message) => {
                let compressed = message[0] != 0;
                message.advance(PREFIX_BYTES);
                if compressed {
                    message = self.encoding.decode(message, self.limit)?;
                }
                Ok(Some(message))
            }
            None => Ok(None),
        }
    }

    fn take_from_chunk(&mut self) -> Result<Option<Bytes>, Status> {
        if let Some(size) = self.message_size(&self.chunk)? {
            if self.chunk.len() >= size {
                return Ok(Some(self.chunk.split_to(size)));
            }
        }
        let chunk = std::mem::take(&mut self.chunk);
        self.keep(&chunk)?;
        Ok(None)
    }

    fn take_from_parts(&mut self) -> Result<Option<Bytes>, Status> {
        let missing = PREFIX_BYTES.saturating_sub(self.parts.len()).min(self.chunk.len());
        let head = self.chunk.split_to(missing);
        self.keep(&head)?;
        let Some(size) = self.message_size(&self.parts)? else { return Ok(None) };
        let missing = size.saturating_sub(self.parts.len()).min(self.chunk.len());
        let rest = self.chunk.split_to(missing);
        self.keep(&rest)?;
        if self.parts.len() < size {
            return Ok(None);
        }
        self.held.release();
        Ok(Some(std::mem::take(&mut self.parts).freeze()))
    }

    /// Return the size of the message with its prefix, if the prefix is complete.
    fn message_size(&self, bytes: &[u8]) -> Result<Option<usize>, Status> {
        let Some(prefix) = bytes.first_chunk::<PREFIX_BYTES>() else { return Ok(None) };
        let [flag, length @ ..] = *prefix;
        if flag > 1 {
            let text = format!("grpc: received unexpected payload format {flag}");
            return Err(Status::new(INTERNAL, text));
        }
        let length = u32::from_be_bytes(length) as usize;
        if length > self.limit {
            return Err(Status::oversize(length, self.limit));
        }
        Ok(Some(PREFIX_BYTES + length))
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), Status> {
        self.held.grow(bytes.len())?;
        self.parts.extend_from_slice(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(body: &[u8]) -> Vec<u8> {
        let mut out = vec![0];
        out.extend_from_slice(&(body.len() as u32).to_be_bytes());
        out.extend_from_slice(body);
        out
    }

    #[test]
    fn messages_survive_any_cut() {
        let bodies: [&[u8]; 4] = [b"one", b"", b"a longer third message", b"x"];
        let stream: Vec<u8> = bodies.iter().flat_map(|body| framed(body)).collect();
        for size in 1..=stream.len() {
            let budget = AssemblyBudget::new(1 << 20);
            let mut deframer = Deframer::new(1 << 10, Encoding::Identity, &budget);
            let mut seen = Vec::new();
            for chunk in stream.chunks(size) {
                deframer.push(Bytes::copy_from_slice(chunk));
                while let Some(message) = deframer.next_message().unwrap() {
                    seen.push(message);
                }
            }
            assert_eq!(seen, bodies);
            assert!(!deframer.is_incomplete());
            assert_eq!(budget.held(), 0);
        }
    }

    #[test]
    fn the_budget_of_unfinished_messages_holds_and_is_given_back() {
        let budget = AssemblyBudget::new(8);
        let mut first = Deframer::new(100, Encoding::Identity, &budget);
        first.push(Bytes::from_static(b"\0\0\0\0\x20ab"));
        assert_eq!(first.next_message(), Ok(None));
        let mut second = Deframer::new(100, Encoding::Identity, &budget);
        second.push(Bytes::from_static(b"\0\0\0\0"));
        assert_eq!(second.next_message(), Err(Status::too_many_requests()));
        drop(first);
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn compressed_messages_come_back() {
        for pieces in [&[&b"one "[..], b"two"][..], &[b"", b"x"], &[b""], &[]] {
            let budget = AssemblyBudget::new(1 << 20);
            let mut deframer = Deframer::new(1 << 10, Encoding::Gzip, &budget);
            deframer.push(compress(pieces));
            assert_eq!(deframer.next_message(), Ok(Some(pieces.concat().into())));
        }
        assert!(compress(&[&[7; 100_000]]).len() < 1000);
    }
}
