//! Errors that the transport answers itself.

use ::http::{Response, StatusCode};
use bytes::Bytes;

/// An error that the transport answers itself.
pub struct Refusal(StatusCode, &'static str);

pub const TOO_LARGE: Refusal = Refusal(StatusCode::PAYLOAD_TOO_LARGE, "request body too large\n");
pub const TOO_MANY: Refusal = Refusal(StatusCode::TOO_MANY_REQUESTS, "too many requests\n");
pub const STOPPING: Refusal = Refusal(StatusCode::SERVICE_UNAVAILABLE, "the server stops\n");
pub const INCOMPLETE: Refusal = Refusal(StatusCode::BAD_REQUEST, "request body is not whole\n");
pub const LATE: Refusal = Refusal(StatusCode::REQUEST_TIMEOUT, "request body takes too long\n");
pub const INTERNAL_ERROR: Refusal = Refusal(StatusCode::INTERNAL_SERVER_ERROR, "");

impl Refusal {
    pub fn response(self) -> Response<Bytes> {
        let mut response = Response::new(Bytes::from_static(self.1.as_bytes()));
        *response.status_mut() = self.0;
        response
    }
}
