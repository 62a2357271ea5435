//! Requests that are no gRPC: what HTTP/1.1 and HTTP/2 have in common.
//!
//! ```text
//! request ──► Exchange.open ──► inbox.requests (body whole, or frames under the same id)
//! answer  ◄── Exchange.poll_answer ◄── outbox.responses (body whole, or deliveries and an end)
//! ```
//!
//! Law: an exchange is a stream of the switchboard from its request on. One that is dropped before its
//! end is told gone. A body of a known length comes whole and counts, while it comes, against the
//! budget of unfinished requests; any other comes in frames, as far as the inbox has room.

use std::rc::Rc;
use std::task::{ready, Context, Poll};

use ::http::header::{HOST, UPGRADE};
use ::http::request::Parts;
use ::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use bytes::Bytes;

use crate::calls::COMMON_NAME_KEY;
use crate::grpc::{self, Held};
use crate::inbox::ReadAhead;
use crate::outgoing::Outgoing;
use crate::switchboard::{Conn, Switchboard};

/// A request for the driver's thread.
pub struct HttpRequest {
    pub id: u64,
    pub method: String,
    pub target: String, // path and query
    pub headers: Vec<(String, String)>,
    pub body: Option<Bytes>, // nothing: it comes in frames
}

/// Its answer.
pub struct HttpResponse {
    pub id: u64,
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Option<Bytes>, // nothing: it comes in deliveries
}

/// A request that the driver's thread knows of; who drops it before its end is gone.
pub struct Exchange {
    pub board: Rc<Switchboard>,
    pub id: u64,
    pub outgoing: Rc<Outgoing>,
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if self.outgoing.is_ended() {
            self.finish(); // who has ended it need not hear that the client left
        } else {
            self.board.client_gone(self.id);
        }
    }
}

/// An answer of our own.
pub struct Refusal(StatusCode, &'static str);

pub const TOO_LARGE: Refusal = Refusal(StatusCode::PAYLOAD_TOO_LARGE, "request body too large\n");
const TOO_MANY: Refusal = Refusal(StatusCode::TOO_MANY_REQUESTS, "too many requests\n");
const STOPPING: Refusal = Refusal(StatusCode::SERVICE_UNAVAILABLE, "the server stops\n");
pub const TORN: Refusal = Refusal(StatusCode::BAD_REQUEST, "request body is not whole\n");
const FAULT: Refusal = Refusal(StatusCode::INTERNAL_SERVER_ERROR, "");

impl Refusal {
    pub fn response(self) -> Response<Bytes> {
        let mut response = Response::new(Bytes::from_static(self.1.as_bytes()));
        *response.status_mut() = self.0;
        response
    }
}

impl Exchange {
    /// Hand a request to the driver's thread, or answer that it cannot be.
    pub fn open(
        board: &Rc<Switchboard>,
        conn: &Rc<Conn>,
        http_stream: u32,
        parts: &Parts,
        body: Option<Bytes>,
    ) -> Result<Exchange, Refusal> {
        if board.stopping.get() {
            return Err(STOPPING);
        }
        let id = board.next_id(conn.slot);
        let outgoing = Rc::new(Outgoing::plain(conn.clone(), http_stream));
        // Before the driver's thread hears of it, for it may answer at once.
        board.add_stream(id, outgoing.clone());
        let request = HttpRequest {
            id,
            method: parts.method.to_string(),
            target: parts.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned(),
            headers: headers(conn, parts),
            body,
        };
        if !board.inbox.add_request(request) {
            board.take_stream(id);
            return Err(TOO_MANY);
        }
        Ok(Exchange { board: board.clone(), id, outgoing })
    }

    /// Wait for the answer: its head, after which the body is in `outgoing`; or one of our own.
    pub fn poll_answer(
        &self,
        cx: &mut Context<'_>,
        may_upgrade: bool,
    ) -> Poll<Result<Response<()>, Refusal>> {
        self.outgoing.watch(cx);
        if self.outgoing.is_abandoned() {
            return Poll::Ready(Err(TORN)); // the client has left, perhaps only with one half
        }
        let Some(answer) = self.outgoing.take_answer() else {
            let Some(status) = self.outgoing.status() else { return Poll::Pending };
            self.board.take_stream(self.id);
            return Poll::Ready(Err(match status.code {
                grpc::UNAVAILABLE => STOPPING,
                _ => FAULT,
            }));
        };
        match response(&answer, may_upgrade) {
            Ok(head) => {
                if let Some(body) = answer.body {
                    self.outgoing.finish_with(body);
                }
                Poll::Ready(Ok(head))
            }
            Err(error) => {
                let notice = format!("bad answer to the HTTP request {}: {error}", self.id);
                self.board.inbox.add_notice(notice);
                self.board.client_gone(self.id);
                Poll::Ready(Err(FAULT))
            }
        }
    }

    /// The last byte went out.
    pub fn finish(&self) {
        self.board.take_stream(self.id);
    }
}

/// The headers in order, names in lower case. Some that no client can send say how it came here:
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

fn response(answer: &HttpResponse, may_upgrade: bool) -> Result<Response<()>, String> {
    let mut response = Response::new(());
    let status = StatusCode::from_u16(answer.status).map_err(|error| error.to_string())?;
    if status.is_informational() && !(may_upgrade && status == StatusCode::SWITCHING_PROTOCOLS) {
        return Err(format!("status {status} answers no such request"));
    }
    *response.status_mut() = status;
    for (name, value) in &answer.headers {
        let bad = |error: &dyn std::fmt::Display| format!("header {name:?}: {error}");
        let key = HeaderName::try_from(name.as_str()).map_err(|error| bad(&error))?;
        let value = HeaderValue::try_from(value.as_str()).map_err(|error| bad(&error))?;
        response.headers_mut().append(key, value);
    }
    Ok(response)
}

/// Tell whether a client asks to go on as a WebSocket; other protocols it offers are passed over.
pub fn asks_for_websocket(headers: &HeaderMap) -> bool {
    let offered = headers.get_all(UPGRADE).iter().filter_map(|value| value.to_str().ok());
    offered
        .flat_map(|value| value.split(','))
        .any(|name| name.trim().eq_ignore_ascii_case("websocket"))
}

/// What was read of a body, of whatever kind of connection.
pub type Piece = Poll<Option<Result<Bytes, ()>>>;

/// Why a body is not whole.
pub enum Fault {
    Refused(Refusal),
    Gone,
}

/// Read a body to its end.
pub fn poll_whole(
    board: &Switchboard,
    whole: &mut Vec<u8>,
    held: &mut Held,
    cx: &mut Context<'_>,
    mut next: impl FnMut(&mut Context<'_>) -> Piece,
) -> Poll<Result<Bytes, Fault>> {
    loop {
        if !board.inbox.has_room(cx.waker()) {
            return Poll::Pending;
        }
        let chunk = match ready!(next(cx)) {
            None => return Poll::Ready(Ok(std::mem::take(whole).into())),
            Some(Err(())) => return Poll::Ready(Err(Fault::Gone)),
            Some(Ok(chunk)) => chunk,
        };
        if whole.len() + chunk.len() > board.options.http_body_bytes_max {
            return Poll::Ready(Err(Fault::Refused(TOO_LARGE)));
        }
        if held.grow(chunk.len()).is_err() {
            return Poll::Ready(Err(Fault::Refused(TOO_MANY)));
        }
        whole.extend_from_slice(&chunk);
    }
}

/// A body, or the bytes after an upgrade, on their way into the inbox.
#[derive(Default)]
pub struct Intake {
    ahead: ReadAhead,
    is_paused: bool,
    is_over: bool,
}

/// How far an intake came.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken {
    Waits,
    All,
    Broken,
}

impl Intake {
    /// Read as far as the inbox has room.
    pub fn read(
        &mut self,
        board: &Switchboard,
        id: u64,
        outgoing: &Outgoing,
        cx: &mut Context<'_>,
        mut next: impl FnMut(&mut Context<'_>) -> Piece,
    ) -> Taken {
        let inbox = &board.inbox;
        if self.is_over {
            return Taken::All;
        }
        if self.is_paused && inbox.is_paused(&self.ahead) {
            return Taken::Waits;
        }
        self.is_paused = false;
        loop {
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
                // What comes after the end is nobody's.
                Poll::Ready(Some(Ok(chunk))) if chunk.is_empty() || outgoing.is_ended() => {}
                Poll::Ready(Some(Ok(chunk))) => {
                    if !inbox.add_frame(id, chunk, &mut self.ahead, cx.waker()) {
                        self.is_paused = true;
                        return Taken::Waits;
                    }
                }
            }
        }
    }
}
