//! One call: from its headers and its request message to the inbox.
//!
//! A unary call whose request is complete when it is first polled goes straight to the inbox; any other
//! has a task until it is complete. Invalid requests are answered here, with grpc-go's texts.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use ::http::header::CONTENT_TYPE;
use ::http::{Method, Request, StatusCode};
use bytes::Bytes;
use h2::RecvStream;
use tokio::time::timeout_at;

use crate::grpc::open_call::{decline, refuse, OpenCall, Respond};
use crate::grpc::routes::{Kind, Route};
use crate::grpc::stream::{Incoming, StreamTask};
use crate::grpc::{self, parse_timeout, Deframer, Encoding, Status};
use crate::http::http2;
use crate::server::call_table::CallTable;
use crate::server::connection_info::COMMON_NAME_KEY;
use crate::server::connection_state::Conn;
use crate::server::inbox::{Call, Metadata, Opened, Pause};
use crate::server::outgoing::Outgoing;
use crate::server::port::Serves;
use crate::server::supervision::spawn_of_connection;

const METADATA_KEYS: [&str; 5] =
    ["hasleader", "token", "authorization", "client-api-version", "traceparent"];

/// The parsed headers of a request.
struct Head {
    route: Route,
    metadata: Option<Metadata>,
    deadline: Option<Instant>,
    encoding: Encoding,
}

/// The answer to a request with invalid headers.
struct BadHead {
    http: StatusCode,
    status: Status,
}

impl From<Status> for BadHead {
    fn from(status: Status) -> Self {
        BadHead { http: StatusCode::OK, status }
    }
}

fn read_head(
    table: &CallTable,
    conn: &Conn,
    request: &Request<RecvStream>,
) -> Result<Head, BadHead> {
    let mut content_type: &[u8] = b"";
    let mut head = Head {
        route: Route { method: 0, kind: Kind::Unary, ends_by_itself: true },
        metadata: None,
        deadline: None,
        encoding: Encoding::Identity,
    };
    let mut bad_timeout = None;
    let mut encoding: &[u8] = b"";
    for (name, value) in request.headers() {
        match name.as_str() {
            "content-type" => content_type = value.as_bytes(),
            "grpc-timeout" => match parse_timeout(value.as_bytes()) {
                Ok(time) => head.deadline = Instant::now().checked_add(time),
                Err(text) => bad_timeout = Some(text),
            },
            "grpc-encoding" => encoding = value.as_bytes(),
            name => {
                if let Some(key) = METADATA_KEYS.iter().find(|key| **key == name) {
                    if let Ok(text) = value.to_str() {
                        head.metadata.get_or_insert_default().push((key, text.to_owned()));
                    }
                }
            }
        }
    }
    if !is_grpc(content_type) {
        let shown = String::from_utf8_lossy(content_type);
        return Err(BadHead {
            http: StatusCode::UNSUPPORTED_MEDIA_TYPE,
            status: Status::new(
                grpc::INVALID_ARGUMENT,
                format!("invalid gRPC request content-type {shown:?}"),
            ),
        });
    }
    if let Some(text) = bad_timeout {
        return Err(BadHead {
            http: StatusCode::BAD_REQUEST,
            status: Status::new(grpc::INTERNAL, format!("malformed grpc-timeout: {text}")),
        });
    }
    if request.method() != Method::POST {
        let text = format!(
            "Received a HEADERS frame with :method {:?} which should be POST",
            request.method().as_str()
        );
        return Err(BadHead {
            http: StatusCode::METHOD_NOT_ALLOWED,
            status: Status::new(grpc::INTERNAL, text),
        });
    }
    head.route = table.routes.find(request.uri().path())?;
    head.encoding = Encoding::parse(encoding)?;
    if let Some(name) = conn.common_name.get() {
        head.metadata.get_or_insert_default().push((COMMON_NAME_KEY, name.clone()));
    }
    Ok(head)
}

fn content_type(request: &Request<RecvStream>) -> &[u8] {
    request.headers().get(CONTENT_TYPE).map_or(b"", |value| value.as_bytes())
}

fn is_grpc(content_type: &[u8]) -> bool {
    match content_type.strip_prefix(b"application/grpc") {
        Some(rest) => matches!(rest.first(), None | Some(b'+' | b';')),
        None => false,
    }
}

pub fn accept(
    table: &Rc<CallTable>,
    conn: &Rc<Conn>,
    request: Request<RecvStream>,
    mut respond: Respond,
) {
    let is_http = match conn.port.serves {
        Serves::All => !is_grpc(content_type(&request)),
        Serves::Grpc => false,
        Serves::Http => true,
    };
    if is_http {
        spawn_of_connection(
            table,
            conn,
            http2::answer(table.clone(), conn.clone(), request, respond),
        );
        return;
    }
    let head = match read_head(table, conn, &request) {
        Ok(_) if table.stopping.get() => return decline(respond),
        Ok(head) => head,
        Err(bad) => {
            // It fails only when the client has disconnected.
            let _ = respond.send_response(bad.status.response(bad.http), true);
            return;
        }
    };
    let limit = table.options.request_bytes_max;
    let deframer = Deframer::new(limit, head.encoding, &table.assembling);
    let body = request.into_body();
    if head.route.kind == Kind::Bidi {
        return open_bidi(table, conn, head, respond, Incoming::new(body, deframer));
    }
    let mut reading = Reading { body, deframer, pause: Pause::default() };
    match reading.poll(table, &mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => {
            announce(table, conn, head, respond, result);
        }
        Poll::Pending => {
            let (of_table, of_conn) = (table.clone(), conn.clone());
            spawn_of_connection(table, conn, async move {
                let (table, conn) = (of_table, of_conn);
                let whole = poll_fn(|cx| reading.poll(&table, cx));
                let result = match head.deadline {
                    None => whole.await,
                    Some(deadline) => timeout_at(deadline.into(), whole)
                        .await
                        .unwrap_or_else(|_| Err(Some(Status::deadline_exceeded()))),
                };
                announce(&table, &conn, head, respond, result);
            });
        }
    }
}

/// A request that is read as one message.
struct Reading {
    body: RecvStream,
    deframer: Deframer,
    pause: Pause,
}

impl Reading {
    /// Read on; an error without a status: the client has disconnected.
    fn poll(
        &mut self,
        table: &CallTable,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Bytes, Option<Status>>> {
        loop {
            match self.deframer.next_message() {
                Ok(Some(message)) => return Poll::Ready(Ok(message)),
                Ok(None) => {}
                Err(status) => return Poll::Ready(Err(Some(status))),
            }
            if !table.inbox.has_room(cx.waker(), &mut self.pause) {
                return Poll::Pending;
            }
            match self.body.poll_data(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(chunk))) => {
                    // It fails only for more than was received.
                    let _ = self.body.flow_control().release_capacity(chunk.len());
                    self.deframer.push(chunk);
                }
                Poll::Ready(Some(Err(_))) => return Poll::Ready(Err(None)),
                Poll::Ready(None) => {
                    let text = if self.deframer.is_incomplete() { "unexpected EOF" } else { "EOF" };
                    return Poll::Ready(Err(Some(Status::new(grpc::UNKNOWN, text))));
                }
            }
        }
    }
}

/// Queue a call with its complete request for the driver's thread.
fn announce(
    table: &Rc<CallTable>,
    conn: &Rc<Conn>,
    head: Head,
    respond: Respond,
    result: Result<Bytes, Option<Status>>,
) {
    let body = match result {
        Ok(_) if table.stopping.get() => return decline(respond),
        Ok(body) => body,
        Err(Some(status)) => return refuse(respond, &status),
        Err(None) => return,
    };
    let id = table.next_id(conn.slot);
    let Head { route, deadline, encoding, .. } = head;
    let outgoing =
        (route.kind == Kind::ServerStream).then(|| add_stream(table, conn, id, &head, &respond));
    if !table.inbox.add_call(Call { id, method: route.method, body, metadata: head.metadata }) {
        table.take_stream(id);
        return refuse(respond, &Status::too_many_requests());
    }
    match outgoing {
        None => {
            let stream = respond.stream_id().as_u32();
            let is_gzip = encoding == Encoding::Gzip;
            table.add_call(id, stream, OpenCall { respond, conn: conn.clone(), deadline, is_gzip });
        }
        Some(outgoing) => run_stream(table, id, outgoing, respond, None),
    }
}

fn open_bidi(
    table: &Rc<CallTable>,
    conn: &Rc<Conn>,
    head: Head,
    respond: Respond,
    incoming: Incoming,
) {
    let id = table.next_id(conn.slot);
    let outgoing = add_stream(table, conn, id, &head, &respond);
    let opened = Opened { id, method: head.route.method, metadata: head.metadata };
    if !table.inbox.add_opened(opened) {
        table.take_stream(id);
        return refuse(respond, &Status::too_many_requests());
    }
    run_stream(table, id, outgoing, respond, Some(incoming));
}

/// Add a stream to the tables; before it is in the inbox, for the driver may answer at once.
fn add_stream(
    table: &CallTable,
    conn: &Rc<Conn>,
    id: u64,
    head: &Head,
    respond: &Respond,
) -> Rc<Outgoing> {
    let http_stream = respond.stream_id().as_u32();
    let is_gzip = head.encoding == Encoding::Gzip;
    let outgoing = Rc::new(Outgoing::new(conn.clone(), http_stream, head.deadline, is_gzip));
    let route = head.route;
    outgoing.ends_by_itself.set(route.kind == Kind::ServerStream && route.ends_by_itself);
    table.add_stream(id, outgoing.clone());
    outgoing
}

fn run_stream(
    table: &Rc<CallTable>,
    id: u64,
    outgoing: Rc<Outgoing>,
    respond: Respond,
    incoming: Option<Incoming>,
) {
    let conn = outgoing.conn.clone();
    let of_table = table.clone();
    let task = StreamTask { table: of_table, id, outgoing, incoming, respond, send: None };
    spawn_of_connection(table, &conn, task);
}
