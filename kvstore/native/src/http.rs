//! Requests that are not gRPC: what HTTP/1.1 and HTTP/2 have in common.
//!
//! ```text
//! request ──► Exchange.open ──► inbox.requests (complete body, or frames under the same id)
//! answer  ◄── Exchange.poll_answer ◄── outbox.responses (complete body, or deliveries and an end)
//! ```
//!
//! Invariant: an exchange is a stream of the call table from its request on. One that is dropped before
//! its end is reported as disconnected. A body of a known length is read ahead and counts, while it
//! arrives, against the budget of incomplete requests; any other arrives in frames, as far as the inbox
//! has room.
//!
//! On a port of HTTP alone requests are in `inbox.arrived`, with their parsed heads. There a body that is
//! too large to be read ahead arrives in frames, too, as fast as it is read; a body whose client waits
//! for 100 (Continue) does not begin before its reader does; and the rest of a body whose request was
//! answered early is received only up to a limit, so that the answer arrives.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{ready, Context, Poll};

use ::http::header::{EXPECT, HOST, UPGRADE};
use ::http::request::Parts;
use ::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use bytes::Bytes;
use tokio::time::timeout;

use crate::call_table::{CallTable, Conn};
use crate::calls::COMMON_NAME_KEY;
use crate::connection_info::ConnectionInfo;
use crate::grpc::{self, Reservation};
use crate::inbox::ReadAhead;
use crate::outgoing::Outgoing;
use crate::port::Port;

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
}

impl HttpResponse {
    pub fn new(
        id: u64,
        status: u16,
        headers: &[(String, String)],
        body: Option<Bytes>,
    ) -> HttpResponse {
        HttpResponse { id, head: head(status, headers), body, rest: Vec::new() }
    }
}

/// A request in the driver's thread; dropped before its end, it is reported as disconnected.
pub struct Exchange {
    pub table: Rc<CallTable>,
    pub id: u64,
    pub outgoing: Rc<Outgoing>,
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if self.outgoing.is_ended() {
            self.finish(); // the driver has ended it and needs no report
        } else {
            self.table.client_disconnected(self.id);
        }
    }
}

/// An error that the transport answers itself.
pub struct Refusal(StatusCode, &'static str);

pub const TOO_LARGE: Refusal = Refusal(StatusCode::PAYLOAD_TOO_LARGE, "request body too large\n");
const TOO_MANY: Refusal = Refusal(StatusCode::TOO_MANY_REQUESTS, "too many requests\n");
const STOPPING: Refusal = Refusal(StatusCode::SERVICE_UNAVAILABLE, "the server stops\n");
pub const INCOMPLETE: Refusal = Refusal(StatusCode::BAD_REQUEST, "request body is not whole\n");
const LATE: Refusal = Refusal(StatusCode::REQUEST_TIMEOUT, "request body takes too long\n");
const INTERNAL_ERROR: Refusal = Refusal(StatusCode::INTERNAL_SERVER_ERROR, "");

impl Refusal {
    pub fn response(self) -> Response<Bytes> {
        let mut response = Response::new(Bytes::from_static(self.1.as_bytes()));
        *response.status_mut() = self.0;
        response
    }
}

impl Exchange {
    /// Queue a request for the driver's thread, or refuse it.
    pub fn open(
        table: &Rc<CallTable>,
        conn: &Rc<Conn>,
        http_stream: u32,
        parts: Parts,
        body: Option<Bytes>,
        may_upgrade: bool,
    ) -> Result<Exchange, Refusal> {
        if table.stopping.get() {
            return Err(STOPPING);
        }
        let id = table.next_id(conn.slot);
        let outgoing = Rc::new(Outgoing::plain(conn.clone(), http_stream));
        // Before it is in the inbox, for the driver may answer at once.
        table.add_stream(id, outgoing.clone());
        let is_taken = match conn.info() {
            Some(info) => {
                if let (None, Some(window)) = (&body, &outgoing.lag.window) {
                    if parts.headers.contains_key(EXPECT) {
                        window.hold();
                    }
                }
                table.inbox.add_arrival(Arrival { id, info, parts, body, may_upgrade })
            }
            None => {
                let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
                table.inbox.add_request(HttpRequest {
                    id,
                    method: parts.method.to_string(),
                    target: target.to_owned(),
                    headers: headers(conn, &parts),
                    body,
                })
            }
        };
        if !is_taken {
            table.take_stream(id);
            return Err(TOO_MANY);
        }
        Ok(Exchange { table: table.clone(), id, outgoing })
    }

    /// Wait for the answer: its head, after which the body is in `outgoing`; or an error.
    pub fn poll_answer(
        &self,
        cx: &mut Context<'_>,
        may_upgrade: bool,
    ) -> Poll<Result<Response<()>, Refusal>> {
        self.outgoing.watch(cx);
        if self.outgoing.is_abandoned() {
            return Poll::Ready(Err(INCOMPLETE)); // the client has disconnected or half-closed
        }
        let Some(answer) = self.outgoing.take_answer() else {
            let Some(status) = self.outgoing.status() else { return Poll::Pending };
            self.table.take_stream(self.id);
            return Poll::Ready(Err(match status.code {
                grpc::UNAVAILABLE => STOPPING,
                _ => INTERNAL_ERROR,
            }));
        };
        match fitting(answer.head, may_upgrade) {
            Ok(head) => Poll::Ready(Ok(head)),
            Err(error) => {
                let notice = format!("bad answer to the HTTP request {}: {error}", self.id);
                self.table.inbox.add_notice(notice);
                self.table.client_disconnected(self.id);
                Poll::Ready(Err(INTERNAL_ERROR))
            }
        }
    }

    /// The last byte was sent.
    pub fn finish(&self) {
        self.table.take_stream(self.id);
    }
}

/// The headers in order, names in lower case. Some that no client can send describe the connection:
/// `:scheme`, `:peer`, and `tls-common-name` for one with a verified certificate.
fn headers(conn: &Conn, parts: &Parts) -> Vec<(String, String)> {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let mut headers = Vec::with_capacity(parts.headers.len() + 4);
    headers.push((":scheme".into(), if conn.is_tls.get() { "https" } else { "http" }.into()));
    headers.push((":peer".into(), conn.peer.clone()));
    if let (Some(authority), false) = (parts.uri.authority(), parts.headers.contains_key(HOST)) {
        headers.push(("host".into(), authority.to_string()));
    }
    for (name, value) in &parts.headers {
        if name != COMMON_NAME_KEY {
            headers.push((name.to_string(), text(value)));
        }
    }
    if let Some(name) = conn.common_name.get() {
        headers.push((COMMON_NAME_KEY.into(), name.clone()));
    }
    headers
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

/// Check that an answer's head fits its request.
fn fitting(head: Result<Response<()>, String>, may_upgrade: bool) -> Result<Response<()>, String> {
    let head = head?;
    let status = head.status();
    if status.is_informational() && !(may_upgrade && status == StatusCode::SWITCHING_PROTOCOLS) {
        return Err(format!("status {status} answers no such request"));
    }
    Ok(head)
}

/// Tell whether a client requests an upgrade that is allowed: any protocol on a port of HTTP alone,
/// elsewhere a WebSocket.
pub fn asks_for_upgrade(port: &Port, headers: &HeaderMap) -> bool {
    if port.web.is_some() {
        return headers.contains_key(UPGRADE);
    }
    let offered = headers.get_all(UPGRADE).iter().filter_map(|value| value.to_str().ok());
    offered
        .flat_map(|value| value.split(','))
        .any(|name| name.trim().eq_ignore_ascii_case("websocket"))
}

/// A piece of a body, of any kind of connection.
pub type Piece = Poll<Option<Result<Bytes, ()>>>;

/// Why a body is not complete.
pub enum BodyError {
    Refused(Refusal),
    Gone,
}

/// Tell whether a body of this length is read ahead; an error if it is too long.
pub fn comes_whole(port: &Port, parts: &Parts, size: Option<u64>) -> Result<bool, Refusal> {
    let Some(size) = size else { return Ok(false) };
    let fits = size <= port.limits.whole_body_bytes_max as u64;
    if port.web.is_none() {
        return if fits { Ok(true) } else { Err(TOO_LARGE) };
    }
    Ok(fits && (size == 0 || !parts.headers.contains_key(EXPECT)))
}

/// Read a body to its end, with a timeout.
pub async fn read_whole(
    table: &CallTable,
    port: &Port,
    mut next: impl FnMut(&mut Context<'_>) -> Piece,
) -> Result<Bytes, BodyError> {
    let (mut whole, mut held) = (Vec::new(), Reservation::new(&table.assembling));
    let reading = poll_fn(|cx| poll_whole(table, port, &mut whole, &mut held, cx, &mut next));
    match &port.web {
        None => reading.await,
        Some(web) => {
            timeout(web.body_timeout, reading).await.unwrap_or(Err(BodyError::Refused(LATE)))
        }
    }
}

fn poll_whole(
    table: &CallTable,
    port: &Port,
    whole: &mut Vec<u8>,
    held: &mut Reservation,
    cx: &mut Context<'_>,
    next: &mut impl FnMut(&mut Context<'_>) -> Piece,
) -> Poll<Result<Bytes, BodyError>> {
    loop {
        if !table.inbox.has_room(cx.waker()) {
            return Poll::Pending;
        }
        let chunk = match ready!(next(cx)) {
            None => return Poll::Ready(Ok(std::mem::take(whole).into())),
            Some(Err(())) => return Poll::Ready(Err(BodyError::Gone)),
            Some(Ok(chunk)) => chunk,
        };
        if whole.len() + chunk.len() > port.limits.whole_body_bytes_max {
            return Poll::Ready(Err(BodyError::Refused(TOO_LARGE)));
        }
        if held.grow(chunk.len()).is_err() {
            return Poll::Ready(Err(BodyError::Refused(TOO_MANY)));
        }
        whole.extend_from_slice(&chunk);
    }
}

/// Reads a body, or the bytes after an upgrade, into the inbox.
#[derive(Default)]
pub struct BodyReader {
    ahead: ReadAhead,
    is_paused: bool,
    is_over: bool,
    discarded: usize, // bytes that came after the end
}

/// The result of reading.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken {
    Waits,
    All,
    Broken,
    TooMuch, // after the end
}

pub const DISCARDED_MAX: usize = 256 << 10; // as Go's servers read on

impl BodyReader {
    /// Read as far as the inbox has room.
    pub fn read(
        &mut self,
        table: &CallTable,
        id: u64,
        outgoing: &Outgoing,
        cx: &mut Context<'_>,
        mut next: impl FnMut(&mut Context<'_>) -> Piece,
    ) -> Taken {
        let inbox = &table.inbox;
        if self.is_over {
            return Taken::All;
        }
        if self.is_paused && inbox.is_paused(&self.ahead) {
            return Taken::Waits;
        }
        self.is_paused = false;
        let window = outgoing.lag.window.as_ref();
        loop {
            if let Some(window) = window {
                if outgoing.is_ended() && window.is_held() {
                    return Taken::TooMuch; // the client waits for a 100 that is not sent
                }
                if !outgoing.is_ended() && !window.has_room() {
                    outgoing.watch_reader(cx);
                    return Taken::Waits;
                }
            }
            match next(cx) {
                Poll::Pending => return Taken::Waits,
                Poll::Ready(Some(Err(()))) => return Taken::Broken,
                Poll::Ready(None) => {
                    self.is_over = true;
                    if !outgoing.is_ended() {
                        inbox.add_half_closed(id);
                    }
                    return Taken::All;
                }
                Poll::Ready(Some(Ok(chunk))) if chunk.is_empty() => {}
                // Bytes after the end are discarded.
                Poll::Ready(Some(Ok(chunk))) if outgoing.is_ended() => {
                    self.discarded += chunk.len();
                    if window.is_some() && self.discarded > DISCARDED_MAX {
                        return Taken::TooMuch;
                    }
                }
                Poll::Ready(Some(Ok(chunk))) => {
                    if let Some(window) = window {
                        window.hand(chunk.len());
                    }
                    if !inbox.add_frame(id, chunk, &mut self.ahead, cx.waker()) {
                        self.is_paused = true;
                        return Taken::Waits;
                    }
                }
            }
        }
    }
}
