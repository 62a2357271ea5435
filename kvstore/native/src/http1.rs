//! HTTP/1.1: one connection of hyper's, its bodies, and what follows an upgrade.
//!
//! Headers have to come in time: those of the first request as a handshake does, those of the next ones
//! within a longer one. After a 101 the
//! connection is the exchange's own: its bytes are frames, deliveries leave as they are.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::{pending, poll_fn, Future};
use std::io;
use std::pin::{pin, Pin};
use std::rc::Rc;
use std::task::{ready, Context, Poll};

use ::http::{Request, Response, StatusCode};
use bytes::{Buf, Bytes};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::sleep;

use crate::grpc::{self, Held};
use crate::http::{
    asks_for_websocket, poll_whole, Exchange, Fault, Intake, Piece, Refusal, Taken, TOO_LARGE, TORN,
};
use crate::outgoing::{Outgoing, SEND_STEP_BYTES};
use crate::switchboard::{Conn, Switchboard};
use crate::wire::Socket;

const HEADERS_MAX: usize = 128;
const READ_BYTES: usize = 16 << 10;

/// The exchange that takes the connection over, once it is upgraded.
type Heir = Rc<RefCell<Option<(OnUpgrade, Exchange)>>>;

/// Serve an HTTP/1.1 connection to its end.
pub async fn serve(board: &Rc<Switchboard>, conn: &Rc<Conn>, socket: Socket) -> hyper::Result<()> {
    let heir = Heir::default();
    let service = service_fn(|request: Request<Incoming>| {
        let (board, conn, heir) = (board.clone(), conn.clone(), heir.clone());
        async move {
            let answered = answer(&board, &conn, &heir, request).await;
            Ok::<_, Infallible>(
                answered.unwrap_or_else(|refusal| refusal.response().map(AnswerBody::Plain)),
            )
        }
    });
    let mut serving = pin!(http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(board.options.header_timeout)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(socket), service)
        .with_upgrades());
    tokio::select! {
        result = serving.as_mut() => result?,
        () = first_is_late(board, conn) => {
            let peer = &conn.peer;
            let notice = format!("connection closed: HTTP/1.1: no request in time: {peer}");
            board.inbox.add_notice(notice);
            return Ok(());
        }
        () = conn.stopped.notified() => {
            serving.as_mut().graceful_shutdown();
            conn.is_dismissed.set(true);
            serving.as_mut().await?;
        }
    }
    let inherited = heir.borrow_mut().take();
    if let Some((upgrade, exchange)) = inherited {
        conn.is_dismissed.set(true);
        let io = TokioIo::new(upgrade.await?);
        Tunnel { io, exchange, intake: Intake::default(), leaving: Bytes::new() }.await;
    }
    Ok(())
}

/// Wait until the first request should have come and has not.
async fn first_is_late(board: &Switchboard, conn: &Conn) {
    sleep(board.options.handshake_timeout).await;
    if conn.is_used.get() {
        pending::<()>().await;
    }
}

/// Answer one request; an error is an answer too, of our own.
async fn answer(
    board: &Rc<Switchboard>,
    conn: &Rc<Conn>,
    heir: &Heir,
    mut request: Request<Incoming>,
) -> Result<Response<AnswerBody>, Refusal> {
    conn.is_used.set(true);
    let asks = asks_for_websocket(request.headers());
    let upgrade = asks.then(|| hyper::upgrade::on(&mut request));
    let (parts, mut body) = request.into_parts();
    let exchange = match body.size_hint().exact() {
        Some(size) if upgrade.is_none() => {
            if size > board.options.http_body_bytes_max as u64 {
                return Err(TOO_LARGE);
            }
            let (mut whole, mut held) = (Vec::new(), Held::new(&board.assembling));
            let read = poll_fn(|cx| {
                poll_whole(board, &mut whole, &mut held, cx, |cx| poll_piece(&mut body, cx))
            });
            let whole = match read.await {
                Ok(whole) => whole,
                Err(Fault::Refused(refusal)) => return Err(refusal),
                Err(Fault::Gone) => return Err(TORN),
            };
            Exchange::open(board, conn, 0, &parts, Some(whole))?
        }
        _ => {
            let exchange = Exchange::open(board, conn, 0, &parts, None)?;
            if upgrade.is_none() {
                tokio::task::spawn_local(BodyTask::new(&exchange, body));
            }
            exchange
        }
    };
    let head = poll_fn(|cx| exchange.poll_answer(cx, upgrade.is_some())).await?;
    let switched = upgrade.filter(|_| head.status() == StatusCode::SWITCHING_PROTOCOLS);
    let body = match switched {
        Some(upgrade) => {
            *heir.borrow_mut() = Some((upgrade, exchange));
            AnswerBody::Plain(Bytes::new())
        }
        None => AnswerBody::Exchange { exchange, is_torn: false },
    };
    Ok(head.map(|()| body))
}

fn poll_piece(body: &mut Incoming, cx: &mut Context<'_>) -> Piece {
    loop {
        return Poll::Ready(match ready!(Pin::new(&mut *body).poll_frame(cx)) {
            None => None,
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
    board: Rc<Switchboard>,
    id: u64,
    outgoing: Rc<Outgoing>,
    body: Incoming,
    intake: Intake,
}

impl BodyTask {
    fn new(exchange: &Exchange, body: Incoming) -> Self {
        BodyTask {
            board: exchange.board.clone(),
            id: exchange.id,
            outgoing: exchange.outgoing.clone(),
            body,
            intake: Intake::default(),
        }
    }
}

impl Future for BodyTask {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let BodyTask { board, id, outgoing, body, intake } = self.get_mut();
        match intake.read(board, *id, outgoing, cx, |cx| poll_piece(body, cx)) {
            Taken::Waits => return Poll::Pending,
            Taken::All => {}
            Taken::Broken => board.client_gone(*id),
        }
        Poll::Ready(())
    }
}

/// The body of an answer.
enum AnswerBody {
    Plain(Bytes),
    Exchange { exchange: Exchange, is_torn: bool },
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let (exchange, is_torn) = match self.get_mut() {
            AnswerBody::Plain(bytes) if bytes.is_empty() => return Poll::Ready(None),
            AnswerBody::Plain(bytes) => {
                return Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes)))))
            }
            AnswerBody::Exchange { exchange, is_torn } => (exchange, is_torn),
        };
        exchange.outgoing.watch(cx);
        if exchange.outgoing.is_abandoned() {
            return Poll::Ready(Some(Err(io::ErrorKind::BrokenPipe.into())));
        }
        if let Some(piece) = exchange.outgoing.take(&exchange.board, SEND_STEP_BYTES) {
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        let Some(status) = exchange.outgoing.status() else { return Poll::Pending };
        if status.code == grpc::OK {
            return Poll::Ready(None);
        }
        if !std::mem::replace(is_torn, true) {
            cx.waker().wake_by_ref(); // what was delivered leaves first: an error stops hyper at once
            return Poll::Pending;
        }
        Poll::Ready(Some(Err(io::ErrorKind::ConnectionAborted.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.size_hint().exact() == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            AnswerBody::Plain(bytes) => SizeHint::with_exact(bytes.len() as u64),
            AnswerBody::Exchange { exchange, .. } => match exchange.outgoing.rest_bytes() {
                Some(rest) => SizeHint::with_exact(rest as u64),
                None => SizeHint::default(),
            },
        }
    }
}

/// A connection after its upgrade.
struct Tunnel {
    io: TokioIo<Upgraded>,
    exchange: Exchange,
    intake: Intake,
    leaving: Bytes,
}

impl Future for Tunnel {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let Exchange { board, id, outgoing } = &this.exchange;
        outgoing.watch(cx);
        if outgoing.is_abandoned() {
            return Poll::Ready(());
        }
        let io = &mut this.io;
        let taken = this.intake.read(board, *id, outgoing, cx, |cx| poll_bytes(io, cx));
        if taken == Taken::Broken {
            return Poll::Ready(());
        }
        if ready!(this.poll_write(cx)).is_ok() {
            this.exchange.finish();
        }
        Poll::Ready(())
    }
}

impl Tunnel {
    /// Write what waits; ready at the end.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Exchange { board, outgoing, .. } = &self.exchange;
        loop {
            if self.leaving.is_empty() {
                match outgoing.take(board, SEND_STEP_BYTES) {
                    Some(piece) => self.leaving = piece,
                    None => break,
                }
            }
            let count = ready!(Pin::new(&mut self.io).poll_write(cx, &self.leaving))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.leaving.advance(count);
        }
        ready!(Pin::new(&mut self.io).poll_flush(cx))?;
        if !outgoing.is_ended() {
            return Poll::Pending;
        }
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

fn poll_bytes(io: &mut TokioIo<Upgraded>, cx: &mut Context<'_>) -> Piece {
    let mut bytes = [0; READ_BYTES];
    let mut buffer = ReadBuf::new(&mut bytes);
    Poll::Ready(match ready!(Pin::new(io).poll_read(cx, &mut buffer)) {
        Err(_) => Some(Err(())),
        Ok(()) if buffer.filled().is_empty() => None,
        Ok(()) => Some(Ok(Bytes::copy_from_slice(buffer.filled()))),
    })
}
