//! Requests and answers of HTTP, as they pass between the loop thread and the driver's.

use std::sync::Arc;

use ::http::request::Parts;
use ::http::{HeaderName, HeaderValue, Response, StatusCode};
use bytes::Bytes;

use crate::server::connection_info::ConnectionInfo;

/// A request for the driver's thread.
pub struct HttpRequest {
    pub id: u64,
    pub method: String,
    pub target: String, // path and query
    pub headers: Vec<(String, String)>,
    pub body: Option<Bytes>, // nothing: it comes in frames
}

/// A request on a port of HTTP alone, with its parsed head.
pub struct Arrival {
    pub id: u64,
    pub info: Arc<ConnectionInfo>,
    pub parts: Parts,
    pub body: Option<Bytes>, // nothing: it comes in frames
    pub may_upgrade: bool,
}

/// An answer.
pub struct HttpResponse {
    pub id: u64,
    pub head: Result<Response<()>, String>, // or why it is invalid
    pub body: Option<Bytes>,                // nothing: it comes in deliveries
    pub rest: Vec<Bytes>,                   // of a body in several parts
    pub is_counted: bool,                   // its bytes are counted as queued
}

impl HttpResponse {
    pub fn new(
        id: u64,
        status: u16,
        headers: &[(String, String)],
        body: Option<Bytes>,
    ) -> HttpResponse {
        HttpResponse { id, head: head(status, headers), body, rest: Vec::new(), is_counted: false }
    }
}

fn head(status: u16, headers: &[(String, String)]) -> Result<Response<()>, String> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(status).map_err(|error| error.to_string())?;
    for (name, value) in headers {
        let bad = |error: &dyn std::fmt::Display| format!("header {name:?}: {error}");
        let key = HeaderName::try_from(name.as_str()).map_err(|error| bad(&error))?;
        let value = HeaderValue::try_from(value.as_str()).map_err(|error| bad(&error))?;
        response.headers_mut().append(key, value);
    }
    Ok(response)
}
