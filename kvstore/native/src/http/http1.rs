//! HTTP/1.1: one connection of hyper's, its bodies, and the bytes after an upgrade.
//!
//! Headers have timeouts: the first request's is that of a handshake, those of the next ones are longer.
//! After a 101 the connection belongs to the exchange: its bytes are frames, deliveries are sent as they
//! are.
//!
//! ```text
//! serve_requests (hyper) ──idle──► wait_idle (a socket, no buffers) ──first bytes──► serve_requests
//! serve_requests (hyper) ──a split head──► serve_requests, with all of it
//! ```

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::{pending, poll_fn, Future};
use std::io;
use std::pin::{pin, Pin};
use std::rc::Rc;
use std::task::{ready, Context, Poll};
use std::time::{Duration, Instant};

use ::http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, TRANSFER_ENCODING};
use ::http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use bytes::{Buf, Bytes};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::ReadBuf;
use tokio::time::{sleep, timeout};

use crate::grpc;
use crate::http::body::{
    comes_whole, read_whole, BodyError, BodyReader, Piece, Taken, DISCARDED_MAX,
};
use crate::http::exchange::{asks_for_upgrade, Exchange};
use crate::http::http1_socket::{HyperIo, SharedSocket};
use crate::http::refusal::{Refusal, INCOMPLETE};
use crate::server::call_table::CallTable;
use crate::server::connection_state::{Busy, Conn};
use crate::server::notices::notice_stall;
use crate::server::outgoing::{Outgoing, WritesDirectly, SEND_STEP_BYTES};
use crate::server::supervision::spawn_of_connection;
use crate::socket::layers::Socket;
use crate::socket::stall::stalled;

const HEADERS_MAX: usize = 128;
const READ_BYTES: usize = 16 << 10;
const FIRST_READ_BYTES: usize = 1 << 10;
const IDLE_AFTER: Duration = Duration::from_secs(2);
const MANY_CONNECTIONS: usize = 256; // from here on at once
const LINGER: Duration = Duration::from_secs(1);
const BUFFER_MIN: usize = 8 << 10; // hyper's

/// The exchange that owns the connection after an upgrade.
type UpgradedExchange = Rc<RefCell<Option<Exchange>>>;

/// How `serve_requests` ended.
enum End {
    Exit(hyper::Result<()>),
    Silent,
    HeadSplit,
    Late,
}

/// Serve an HTTP/1.1 connection to its end.
pub async fn serve(table: &Rc<CallTable>, conn: &Rc<Conn>, socket: Socket) -> hyper::Result<()> {
    let socket = Rc::new(SharedSocket::new(socket));
    loop {
        let upgraded = UpgradedExchange::default();
        // In a box, so that a connection that sleeps does not keep the room that talking takes.
        let end = Box::pin(serve_requests(table, conn, &upgraded, &socket)).await;
        let inherited = upgraded.borrow_mut().take();
        if let (Some(exchange), End::Exit(Ok(()))) = (inherited, &end) {
            conn.is_closing.set(true);
            let tunnel = Tunnel {
                socket,
                exchange,
                body_reader: BodyReader::default(),
                leaving: Bytes::new(),
            };
            tokio::select! {
                biased;
                () = tunnel => {}
                () = conn.is_broken_off_now() => {}
                () = stalled(&conn.stall, conn.port.limits.write_stall) => notice_stall(table, conn),
            }
            return Ok(());
        }
        match end {
            End::Exit(result) => {
                close(conn, &socket).await;
                return result;
            }
            End::Silent if wait_idle(conn, &socket).await => {}
            End::HeadSplit => {}
            _ => return Ok(()),
        }
    }
}

/// Let hyper serve requests, until the connection ends or becomes idle.
async fn serve_requests(
    table: &Rc<CallTable>,
    conn: &Rc<Conn>,
    upgraded: &UpgradedExchange,
    socket: &Rc<SharedSocket>,
) -> End {
    let service = service_fn(|mut request: Request<Incoming>| {
        if let Some(target) = conn.take_target(0) {
            request.extensions_mut().insert(target);
        }
        let (table, conn, upgraded) = (table.clone(), conn.clone(), upgraded.clone());
        let socket = socket.clone();
        let busy = Busy::new(&conn);
        conn.requests.set(conn.requests.get() + 1);
        conn.note_active();
        socket.note_body(request.body().is_end_stream());
        async move {
            let answered = match host_error(&request) {
                Some(text) => Ok(bad_request(text)),
                None => answer(&table, &conn, &upgraded, &socket, request).await,
            };
            socket.note_buffered();
            let answered = answered.unwrap_or_else(|refusal| refusal.response().map(Kind::Plain));
            Ok::<_, Infallible>(answered.map(|kind| AnswerBody { kind, _busy: busy }))
        }
    });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(conn.port.limits.header_timeout)
        .max_headers(HEADERS_MAX);
    if conn.port.web.is_some() {
        let header_bytes_max = conn.port.limits.header_bytes_max as usize;
        builder.max_buf_size(header_bytes_max.max(BUFFER_MIN));
    }
    let begun_with = conn.requests.get();
    let io = HyperIo { socket: socket.clone(), conn: conn.clone(), begun_with };
    let mut serving = builder.serve_connection(TokioIo::new(io), service);
    let may_sleep = conn.port.web.is_some();
    let mut is_shutting_down = false;
    // Idle means after a request: an incomplete head does not restart its timeout.
    let mut silence = pin!(becomes_idle(table, conn, socket, begun_with));
    let end = loop {
        tokio::select! {
            biased; // hyper's work comes first
            result = &mut serving => break End::Exit(result),
            () = first_request_timeout(conn) => {
                let peer = &conn.peer;
                let notice = format!("connection closed: HTTP/1.1: no request in time: {peer}");
                table.inbox.add_notice(notice);
                break End::Late;
            }
            () = conn.is_stopping_now(), if !is_shutting_down => {
                is_shutting_down = true;
                conn.is_closing.set(true);
                Pin::new(&mut serving).graceful_shutdown();
            }
            () = drain_timeout(conn) => break End::Late,
            () = conn.is_broken_off_now() => break End::Late,
            () = stalled(&conn.stall, conn.port.limits.write_stall) => {
                notice_stall(table, conn);
                break End::Late;
            }
            () = head_split(socket), if !is_shutting_down => break End::HeadSplit,
            () = silence.as_mut(), if may_sleep && !is_shutting_down => break End::Silent,
        }
    };
    socket.take_back(serving.into_parts().read_buf);
    end
}

/// Wait for the timeout of the first request.
async fn first_request_timeout(conn: &Conn) {
    sleep(conn.port.limits.handshake_timeout).await;
    if conn.requests.get() > 0 {
        pending::<()>().await;
    }
}

/// Wait until a draining connection has had the time for a first request, and had none.
async fn drain_timeout(conn: &Conn) {
    conn.grace_is_over().await;
    if conn.requests.get() > 0 {
        pending::<()>().await;
    }
}

/// Wait until the bytes of a head are split, and the answers before it are written.
async fn head_split(socket: &SharedSocket) {
    // Hyper, which is polled in the same task, has found the one, and is woken for the other.
    let is_ready = || socket.is_head_split() && socket.is_flushed();
    poll_fn(|_| if is_ready() { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// Wait until a connection has had more than so many requests and is idle: for a while, or at once if
/// there are many connections.
async fn becomes_idle(table: &CallTable, conn: &Conn, socket: &SharedSocket, begun_with: u64) {
    let mut armed = None; // with so many requests
    let mut timer = pin!(sleep(IDLE_AFTER));
    poll_fn(|cx| loop {
        let requests = conn.requests.get();
        if requests == begun_with
            || conn.busy.get() > 0
            || conn.stopping.get()
            || !socket.is_body_over()
            || !socket.is_flushed()
        {
            return Poll::Pending; // hyper wakes this task, too
        }
        if table.connections.open.borrow().len() > MANY_CONNECTIONS {
            return Poll::Ready(());
        }
        if armed.is_none() {
            timer.as_mut().reset((Instant::now() + IDLE_AFTER).into());
            armed = Some(requests);
        }
        ready!(timer.as_mut().poll(cx));
        if armed.take() == Some(requests) {
            return Poll::Ready(());
        }
    })
    .await;
}

/// Wait for the next request without hyper, whose buffers are most of what an idle connection takes.
///
/// False if the client disconnects, the server drains, or the connection is idle for too long.
async fn wait_idle(conn: &Conn, socket: &SharedSocket) -> bool {
    if socket.has_unread() {
        return true;
    }
    let time = conn.port.limits.header_timeout.saturating_sub(IDLE_AFTER);
    let arrived = tokio::select! {
        arrived = poll_fn(|cx| poll_some(socket, cx)) => arrived.unwrap_or_default(),
        () = sleep(time) => Bytes::new(),
        () = conn.is_stopping_now() => Bytes::new(),
        () = conn.is_broken_off_now() => Bytes::new(),
    };
    if arrived.is_empty() {
        conn.is_closing.set(true);
        let _ = poll_fn(|cx| socket.poll_shutdown(cx)).await; // an error: it is closed
        return false;
    }
    socket.unread(arrived);
    true
}

fn poll_some(socket: &SharedSocket, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
    let mut bytes = [0; FIRST_READ_BYTES];
    let mut buffer = ReadBuf::new(&mut bytes);
    ready!(socket.poll_read(cx, &mut buffer))?;
    Poll::Ready(Ok(Bytes::copy_from_slice(buffer.filled())))
}

/// Close the connection. On a port of HTTP alone incoming bytes are read for a while: unread bytes would
/// make the kernel reset the connection and drop the last answer. Who sends more than is read has as long
/// to see the answer before the reset.
async fn close(conn: &Conn, socket: &SharedSocket) {
    let closing = async {
        poll_fn(|cx| socket.poll_shutdown(cx)).await?;
        let mut discarded = 0;
        while conn.port.web.is_some() && discarded < DISCARDED_MAX {
            match poll_fn(|cx| poll_some(socket, cx)).await?.len() {
                0 => break,
                size => discarded += size,
            }
        }
        if discarded >= DISCARDED_MAX {
            pending::<()>().await;
        }
        Ok::<_, io::Error>(())
    };
    let _ = timeout(LINGER, closing).await; // its result does not matter
}

/// What is wrong with the Host headers of a request; the texts are those of Go's servers.
fn host_error<T>(request: &Request<T>) -> Option<&'static str> {
    let mut hosts = request.headers().get_all(HOST).iter();
    let is_missing = hosts.next().is_none();
    if hosts.next().is_some() {
        return Some("400 Bad Request");
    }
    let is_required = request.version() == Version::HTTP_11 && request.method() != Method::CONNECT;
    (is_missing && is_required).then_some("400 Bad Request: missing required Host header")
}

/// An answer after which the connection is closed.
fn bad_request(text: &'static str) -> Response<Kind> {
    let mut response = Response::new(Kind::Plain(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Answer one request; errors are answered, too.
async fn answer(
    table: &Rc<CallTable>,
    conn: &Rc<Conn>,
    upgraded: &UpgradedExchange,
    socket: &Rc<SharedSocket>,
    request: Request<Incoming>,
) -> Result<Response<Kind>, Refusal> {
    table.inbox.note_poll();
    let port = &conn.port;
    let size = request.body().size_hint().exact();
    // On a port of HTTP alone a request with a body cannot be upgraded.
    let asks = asks_for_upgrade(port, request.headers()) && (port.web.is_none() || size == Some(0));
    let (parts, mut body) = request.into_parts();
    let may_be_chunked = parts.version == Version::HTTP_11 && parts.method != Method::HEAD;
    let exchange = if !asks && comes_whole(port, &parts, size)? {
        let whole = match size {
            Some(0) => Bytes::new(),
            _ => match read_whole(table, port, |cx| poll_piece(&mut body, socket, cx)).await {
                Ok(whole) => whole,
                Err(BodyError::Refused(refusal)) => return Err(refusal),
                Err(BodyError::Gone) => return Err(INCOMPLETE),
            },
        };
        Exchange::open(table, conn, 0, parts, Some(whole), false)?
    } else {
        let exchange = Exchange::open(table, conn, 0, parts, None, asks)?;
        if !asks {
            spawn_of_connection(table, conn, BodyTask::new(&exchange, body, socket));
        }
        exchange
    };
    let head = poll_fn(|cx| exchange.poll_answer(cx, asks)).await?;
    if asks && head.status() == StatusCode::SWITCHING_PROTOCOLS {
        *upgraded.borrow_mut() = Some(exchange);
        return Ok(head.map(|()| Kind::Plain(Bytes::new())));
    }
    // Chunks of this one may be written past hyper: their number is not announced.
    let is_chunked = port.web.is_some()
        && may_be_chunked
        && exchange.outgoing.rest_bytes().is_none()
        && !matches!(head.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
        && !head.headers().contains_key(CONTENT_LENGTH)
        && !head.headers().contains_key(TRANSFER_ENCODING);
    let socket = socket.clone();
    Ok(head.map(|()| Kind::Exchange {
        exchange: Some(exchange),
        is_incomplete: false,
        socket,
        is_chunked,
    }))
}

fn poll_piece(body: &mut Incoming, socket: &SharedSocket, cx: &mut Context<'_>) -> Piece {
    loop {
        return Poll::Ready(match ready!(Pin::new(&mut *body).poll_frame(cx)) {
            None => {
                socket.note_body(true);
                None
            }
            Some(Err(_)) => Some(Err(())),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => Some(Ok(data)),
                Err(_) => continue, // trailers
            },
        });
    }
}

/// Reads a body into the inbox, beside the answer.
struct BodyTask {
    table: Rc<CallTable>,
    id: u64,
    outgoing: Rc<Outgoing>,
    body: Incoming,
    body_reader: BodyReader,
    socket: Rc<SharedSocket>,
    _busy: Busy,
}

impl BodyTask {
    fn new(exchange: &Exchange, body: Incoming, socket: &Rc<SharedSocket>) -> Self {
        BodyTask {
            table: exchange.table.clone(),
            id: exchange.id,
            outgoing: exchange.outgoing.clone(),
            body,
            body_reader: BodyReader::default(),
            socket: socket.clone(),
            _busy: Busy::new(&exchange.outgoing.conn),
        }
    }
}

impl Future for BodyTask {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let BodyTask { table, id, outgoing, body, body_reader, socket, .. } = self.get_mut();
        match body_reader.read(table, *id, outgoing, cx, |cx| poll_piece(body, socket, cx)) {
            Taken::Waits => return Poll::Pending,
            Taken::All | Taken::TooMuch => {}
            Taken::Broken => table.client_disconnected(*id),
        }
        Poll::Ready(())
    }
}

/// The body of an answer.
struct AnswerBody {
    kind: Kind,
    _busy: Busy,
}

enum Kind {
    Plain(Bytes),
    Exchange {
        exchange: Option<Exchange>, // until the end
        is_incomplete: bool,
        socket: Rc<SharedSocket>,
        is_chunked: bool,
    },
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        let Kind::Exchange { exchange, socket, .. } = &mut self.kind else { return };
        let Some(exchange) = exchange.take() else { return };
        exchange.outgoing.socket.take();
        // The exchange is over when hyper has written what it has.
        if exchange.outgoing.is_ended() && !socket.is_flushed() {
            socket.keep(exchange);
        }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let (exchange, is_incomplete, socket, is_chunked) = match &mut self.get_mut().kind {
            Kind::Plain(bytes) if bytes.is_empty() => return Poll::Ready(None),
            Kind::Plain(bytes) => return Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Kind::Exchange { exchange, is_incomplete, socket, is_chunked } => {
                let Some(exchange) = exchange else { return Poll::Ready(None) };
                (exchange, is_incomplete, socket, *is_chunked)
            }
        };
        exchange.outgoing.watch(cx);
        if exchange.outgoing.is_abandoned() {
            return Poll::Ready(Some(Err(io::ErrorKind::BrokenPipe.into())));
        }
        if exchange.outgoing.has_queued() {
            if !socket.has_room() {
                return Poll::Pending;
            }
            let piece = exchange.outgoing.take(SEND_STEP_BYTES).unwrap_or_default();
            socket.credit_later(&exchange.outgoing.backlog, piece.len());
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        let Some(status) = exchange.outgoing.status() else {
            // The head is written; chunks may be written once it is flushed.
            *exchange.outgoing.socket.borrow_mut() =
                is_chunked.then(|| socket.clone() as Rc<dyn WritesDirectly>);
            return Poll::Pending;
        };
        socket.note_buffered();
        if status.code == grpc::OK {
            return Poll::Ready(None);
        }
        if !std::mem::replace(is_incomplete, true) {
            cx.waker().wake_by_ref(); // send deliveries first: an error stops hyper at once
            return Poll::Pending;
        }
        Poll::Ready(Some(Err(io::ErrorKind::ConnectionAborted.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.size_hint().exact() == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Plain(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Exchange { exchange: None, .. } => SizeHint::with_exact(0),
            Kind::Exchange { exchange: Some(exchange), .. } => match exchange.outgoing.rest_bytes()
            {
                Some(rest) => SizeHint::with_exact(rest as u64),
                None => SizeHint::default(),
            },
        }
    }
}

/// A connection after its upgrade.
struct Tunnel {
    socket: Rc<SharedSocket>,
    exchange: Exchange,
    body_reader: BodyReader,
    leaving: Bytes,
}

impl Future for Tunnel {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let Exchange { table, id, outgoing } = &this.exchange;
        outgoing.watch(cx);
        if outgoing.is_abandoned() {
            return Poll::Ready(());
        }
        let socket = &this.socket;
        let taken = this.body_reader.read(table, *id, outgoing, cx, |cx| poll_bytes(socket, cx));
        if matches!(taken, Taken::Broken | Taken::TooMuch) {
            return Poll::Ready(());
        }
        if ready!(this.poll_write(cx)).is_ok() {
            this.exchange.finish();
        }
        Poll::Ready(())
    }
}

impl Tunnel {
    /// Write queued bytes; ready at the end.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Exchange { outgoing, .. } = &self.exchange;
        loop {
            if self.leaving.is_empty() {
                match outgoing.take(SEND_STEP_BYTES) {
                    Some(piece) => {
                        outgoing.backlog.hand(piece.len());
                        self.leaving = piece;
                    }
                    None => break,
                }
            }
            let count = ready!(self.socket.poll_write(cx, &self.leaving))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.leaving.advance(count);
            outgoing.backlog.credit(count);
        }
        ready!(self.socket.poll_flush(cx))?;
        if !outgoing.is_ended() {
            return Poll::Pending;
        }
        self.socket.poll_shutdown(cx)
    }
}

fn poll_bytes(socket: &SharedSocket, cx: &mut Context<'_>) -> Piece {
    let mut bytes = [0; READ_BYTES];
    let mut buffer = ReadBuf::new(&mut bytes);
    Poll::Ready(match ready!(socket.poll_read(cx, &mut buffer)) {
        Err(_) => Some(Err(())),
        Ok(()) if buffer.filled().is_empty() => None,
        Ok(()) => Some(Ok(Bytes::copy_from_slice(buffer.filled()))),
    })
}
