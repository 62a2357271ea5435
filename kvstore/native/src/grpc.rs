//! gRPC over HTTP/2: framing of messages, timeouts, statuses, and errors with grpc-go's texts.
//!
//! ```text
//! message = 1 byte "compressed" · 4 bytes length, big endian · body
//! ```
//!
//! Nothing here uses sockets, streams or Python.

use std::cell::Cell;
use std::io::{Read, Write};
use std::rc::Rc;
use std::time::Duration;

use ::http::header::{HeaderName, CONTENT_TYPE};
use ::http::{HeaderMap, HeaderValue, Response, StatusCode};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use flate2::write::GzEncoder;
use flate2::Compression;

pub const PREFIX_BYTES: usize = 5;

pub const OK: u32 = 0;
pub const UNKNOWN: u32 = 2;
pub const INVALID_ARGUMENT: u32 = 3;
pub const DEADLINE_EXCEEDED: u32 = 4;
pub const RESOURCE_EXHAUSTED: u32 = 8;
pub const UNIMPLEMENTED: u32 = 12;
pub const INTERNAL: u32 = 13;
pub const UNAVAILABLE: u32 = 14;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const GZIP: HeaderValue = HeaderValue::from_static("gzip");
const APPLICATION_GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const ZERO: HeaderValue = HeaderValue::from_static("0");

/// A gRPC code and a text in UTF-8.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    pub code: u32,
    pub text: Bytes,
}

impl Status {
    pub fn new(code: u32, text: impl Into<Bytes>) -> Self {
        Status { code, text: text.into() }
    }

    pub fn deadline_exceeded() -> Self {
        Status::new(DEADLINE_EXCEEDED, "context deadline exceeded")
    }

    pub fn stopped() -> Self {
        Status::new(UNAVAILABLE, "etcdserver: server stopped")
    }

    pub fn too_many_requests() -> Self {
        Status::new(RESOURCE_EXHAUSTED, "etcdserver: too many requests")
    }

    pub fn oversize(size: usize, limit: usize) -> Self {
        let text = format!("grpc: received message larger than max ({size} vs. {limit})");
        Status::new(RESOURCE_EXHAUSTED, text)
    }

    pub fn unsendable(size: usize, limit: usize) -> Self {
        let text = format!("grpc: trying to send message larger than max ({size} vs. {limit})");
        Status::new(RESOURCE_EXHAUSTED, text)
    }

    /// The headers after the last message.
    pub fn trailers(&self) -> HeaderMap {
        let mut map = HeaderMap::with_capacity(2);
        self.write(&mut map);
        map
    }

    /// A complete response without messages.
    pub fn response(&self, http: StatusCode) -> Response<()> {
        let mut response = Response::new(());
        *response.status_mut() = http;
        response.headers_mut().insert(CONTENT_TYPE, APPLICATION_GRPC);
        self.write(response.headers_mut());
        response
    }

    fn write(&self, map: &mut HeaderMap) {
        if self.code == OK {
            map.insert(GRPC_STATUS, ZERO);
            return;
        }
        map.insert(GRPC_STATUS, HeaderValue::from(self.code));
        if !self.text.is_empty() {
            map.insert(GRPC_MESSAGE, percent_encode(&self.text));
        }
    }
}

/// The headers before the first message.
pub fn ok_response(is_gzip: bool) -> Response<()> {
    let mut response = Response::new(());
    response.headers_mut().insert(CONTENT_TYPE, APPLICATION_GRPC);
    if is_gzip {
        response.headers_mut().insert(GRPC_ENCODING, GZIP);
    }
    response
}

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

/// Encode a status text as `grpc-message` wants it.
fn percent_encode(text: &[u8]) -> HeaderValue {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut out = BytesMut::with_capacity(text.len());
    for &byte in text {
        if (0x20..=0x7e).contains(&byte) && byte != b'%' {
            out.put_u8(byte);
        } else {
            out.put_slice(&[b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
    }
    // The text is printable ASCII, so this cannot fail; if it did, the text would be lost.
    HeaderValue::from_maybe_shared(out.freeze()).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// Read a `grpc-timeout`: up to eight digits and a unit.
pub fn parse_timeout(text: &[u8]) -> Result<Duration, String> {
    let shown = || String::from_utf8_lossy(text).into_owned();
    if text.len() < 2 {
        return Err(format!("transport: timeout string is too short: {:?}", shown()));
    }
    if text.len() > 9 {
        return Err(format!("transport: timeout string is too long: {:?}", shown()));
    }
    let (digits, unit) = text.split_at(text.len() - 1);
    let unit_ns: u64 = match unit {
        b"H" => 3_600_000_000_000,
        b"M" => 60_000_000_000,
        b"S" => 1_000_000_000,
        b"m" => 1_000_000,
        b"u" => 1_000,
        b"n" => 1,
        _ => return Err(format!("transport: timeout unit is not recognized: {:?}", shown())),
    };
    let mut count: u64 = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            let number = String::from_utf8_lossy(digits);
            return Err(format!("strconv.ParseUint: parsing {number:?}: invalid syntax"));
        }
        count = count * 10 + u64::from(digit - b'0');
    }
    Ok(Duration::from_nanos(count.saturating_mul(unit_ns)))
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

    /// Tell whether a message has begun that is not complete.
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

    #[test]
    fn timeouts() {
        assert_eq!(parse_timeout(b"10m"), Ok(Duration::from_millis(10)));
        assert_eq!(parse_timeout(b"99999999H"), Ok(Duration::from_nanos(u64::MAX)));
        for bad in [&b""[..], b"5", b"5x", b"x5S", b"123456789S", b"-1S"] {
            assert!(parse_timeout(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn texts_are_percent_encoded() {
        assert_eq!(percent_encode("100 % ü\n".as_bytes()), "100 %25 %C3%BC%0A");
    }
}
