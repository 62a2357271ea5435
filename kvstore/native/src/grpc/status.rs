//! Statuses of gRPC as headers and trailers, and the timeouts of its requests.

use std::time::Duration;

use ::http::header::{HeaderName, CONTENT_TYPE};
use ::http::{HeaderMap, HeaderValue, Response, StatusCode};
use bytes::{BufMut, Bytes, BytesMut};

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

#[cfg(test)]
mod tests {
    use super::*;

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
