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

use std::rc::Rc;
use std::task::{Context, Poll};

use ::http::header::{EXPECT, HOST, UPGRADE};
use ::http::request::Parts;
use ::http::{HeaderMap, HeaderValue, Response, StatusCode};
use bytes::Bytes;

use crate::grpc;
use crate::http::messages::{Arrival, HttpRequest};
use crate::http::refusal::{Refusal, INCOMPLETE, INTERNAL_ERROR, STOPPING, TOO_MANY};
use crate::http::targets::RealTarget;
use crate::server::call_table::CallTable;
use crate::server::connection_info::COMMON_NAME_KEY;
use crate::server::connection_state::Conn;
use crate::server::outgoing::Outgoing;
use crate::server::port::Port;

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
        let outgoing = Rc::new(Outgoing::plain(conn.clone(), http_stream, table.inbox.clone()));
        // Before it is in the inbox, for the driver may answer at once.
        table.add_stream(id, outgoing.clone());
        let is_taken = match conn.info() {
            Some(info) => {
                if let (None, Some(window)) = (&body, &outgoing.backlog.window) {
                    if parts.headers.contains_key(EXPECT) {
                        window.hold();
                    }
                }
                table.inbox.add_arrival(Arrival { id, info, parts, body, may_upgrade })
            }
            None => {
                let real = parts.extensions.get::<RealTarget>().map(|real| real.0.as_str());
                let plain = parts.uri.path_and_query().map(|target| target.as_str());
                table.inbox.add_request(HttpRequest {
                    id,
                    method: parts.method.to_string(),
                    target: real.or(plain).unwrap_or("/").to_owned(),
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
        if self.outgoing.has_queued() {
            self.outgoing.backlog.discard_rest(); // the body of an answer to HEAD
        }
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

/// Check that an answer's head fits its request.
fn fitting(head: Result<Response<()>, String>, may_upgrade: bool) -> Result<Response<()>, String> {
    let head = head?;
    let status = head.status();
    if status.is_informational() && !(may_upgrade && status == StatusCode::SWITCHING_PROTOCOLS) {
        return Err(format!("status {status} answers no such request"));
    }
    Ok(head)
}

/// Return whether a client requests an upgrade that is allowed: any protocol on a port of HTTP alone,
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
