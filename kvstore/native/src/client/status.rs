//! The end of a call as a gRPC status, and the statuses of HTTP/2's errors.

use ::http::{HeaderMap, StatusCode};
use bytes::{BufMut, Bytes, BytesMut};
use h2::Reason;

use crate::grpc;

pub const CANCELLED: u32 = 1;
const UNAUTHENTICATED: u32 = 16;
const PERMISSION_DENIED: u32 = 7;
const TEXT_BYTES_MAX: usize = 16 << 10;

/// Why a call has no reply, or a stream has ended; code 0: without an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub code: u32,
    pub text: Bytes,
    pub was_sent: bool, // the server may have seen the call
}

impl Failure {
    pub fn sent(code: u32, text: impl Into<Bytes>) -> Self {
        Failure { code, text: text.into(), was_sent: true }
    }

    pub fn unsent(code: u32, text: impl Into<Bytes>) -> Self {
        Failure { code, text: text.into(), was_sent: false }
    }

    /// The status of an HTTP/2 error; `is_seen` false: the server has not processed the stream.
    pub fn of_http2(error: &h2::Error, is_seen: bool, endpoint: &str) -> Self {
        let was_sent = is_seen && error.reason() != Some(Reason::REFUSED_STREAM);
        let code = match error.reason() {
            Some(reason) if error.is_reset() => match reason {
                Reason::REFUSED_STREAM => grpc::UNAVAILABLE,
                Reason::CANCEL => CANCELLED,
                Reason::ENHANCE_YOUR_CALM => grpc::RESOURCE_EXHAUSTED,
                Reason::INADEQUATE_SECURITY => PERMISSION_DENIED,
                _ => grpc::INTERNAL,
            },
            _ => grpc::UNAVAILABLE,
        };
        Failure { code, text: format!("{endpoint}: {error}").into(), was_sent }
    }

    /// The error in the head of an answer; none if messages may follow.
    pub fn of_head(status: StatusCode, headers: &HeaderMap) -> Option<Self> {
        if headers.contains_key("grpc-status") {
            return Some(Failure::of_trailers(headers));
        }
        let kind = headers.get("content-type").map_or(&b""[..], |value| value.as_bytes());
        if status == StatusCode::OK && kind.starts_with(b"application/grpc") {
            return None;
        }
        let code = match status.as_u16() {
            400 => grpc::INTERNAL,
            401 => UNAUTHENTICATED,
            403 => PERMISSION_DENIED,
            404 => grpc::UNIMPLEMENTED,
            429 | 502..=504 => grpc::UNAVAILABLE,
            _ => grpc::UNKNOWN,
        };
        let kind = String::from_utf8_lossy(kind);
        let text =
            format!("no gRPC answer: HTTP status {}, content type {kind:?}", status.as_u16());
        Some(Failure::sent(code, text))
    }

    /// The status in the trailers; an error if there is none.
    pub fn of_trailers(trailers: &HeaderMap) -> Self {
        let Some(status) = trailers.get("grpc-status") else {
            return Failure::sent(grpc::INTERNAL, "the answer has no grpc-status");
        };
        let parsed = status.to_str().ok().and_then(|text| text.parse::<u32>().ok());
        let Some(code) = parsed else {
            return Failure::sent(
                grpc::INTERNAL,
                format!("the grpc-status {status:?} is no number"),
            );
        };
        let code = if code > UNAUTHENTICATED { grpc::UNKNOWN } else { code };
        let text = trailers.get("grpc-message").map(|text| percent_decode(text.as_bytes()));
        Failure::sent(code, text.unwrap_or_default())
    }
}

/// Decode a `grpc-message`; invalid escapes stay as they are.
fn percent_decode(text: &[u8]) -> Bytes {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| (*byte as char).to_digit(16));
    let text = &text[..text.len().min(TEXT_BYTES_MAX)];
    let mut out = BytesMut::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        match (text[at], digit(text.get(at + 1)), digit(text.get(at + 2))) {
            (b'%', Some(high), Some(low)) => {
                out.put_u8((high * 16 + low) as u8);
                at += 3;
            }
            (byte, ..) => {
                out.put_u8(byte);
                at += 1;
            }
        }
    }
    out.freeze()
}

#[cfg(test)]
mod tests {
    use ::http::{HeaderName, HeaderValue};

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let value = |text: &'static str| HeaderValue::from_static(text);
        pairs.iter().map(|(name, text)| (HeaderName::from_static(name), value(text))).collect()
    }

    #[test]
    fn trailers_become_failures() {
        let found = Failure::of_trailers(&headers(&[
            ("grpc-status", "14"),
            ("grpc-message", "100%25 %C3%BC %zz%4"),
        ]));
        assert_eq!(found, Failure::sent(14, "100% ü %zz%4"));
        assert_eq!(Failure::of_trailers(&headers(&[("grpc-status", "0")])), Failure::sent(0, ""));
        assert_eq!(Failure::of_trailers(&headers(&[("grpc-status", "77")])).code, grpc::UNKNOWN);
        for bad in [&[("grpc-status", "x")][..], &[]] {
            assert_eq!(Failure::of_trailers(&headers(bad)).code, grpc::INTERNAL);
        }
    }

    #[test]
    fn heads_that_are_no_grpc_become_failures() {
        let grpc_head = headers(&[("content-type", "application/grpc+proto")]);
        assert_eq!(Failure::of_head(StatusCode::OK, &grpc_head), None);
        let html = headers(&[("content-type", "text/html")]);
        for (status, code) in [(200, 2), (400, 13), (401, 16), (403, 7), (404, 12), (503, 14)] {
            let found = Failure::of_head(StatusCode::from_u16(status).unwrap(), &html).unwrap();
            assert_eq!((found.code, found.was_sent), (code, true), "{status}");
        }
    }
}
