//! Requests of an HTTP/2 connection that are no gRPC: one task each.

use std::future::{poll_fn, Future};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{ready, Context, Poll};

use ::http::header::{HeaderName, CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING, UPGRADE};
use ::http::{Method, Request, Response};
use bytes::Bytes;
use h2::{Reason, RecvStream, SendStream};

use crate::grpc::{self, Held};
use crate::http::{poll_whole, Exchange, Fault, Intake, Piece, Refusal, Taken, TOO_LARGE};
use crate::outgoing::Sent;
use crate::switchboard::{Conn, Payload, Respond, Switchboard};

/// Headers of HTTP/1.1 that HTTP/2 has no place for.
const OF_HTTP1: [HeaderName; 4] =
    [CONNECTION, TRANSFER_ENCODING, UPGRADE, HeaderName::from_static("keep-alive")];

/// Answer one request.
pub async fn answer(
    board: Rc<Switchboard>,
    conn: Rc<Conn>,
    request: Request<RecvStream>,
    mut respond: Respond,
) {
    let (parts, mut body) = request.into_parts();
    let size =
        parts.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    let is_whole = size.is_some() || body.is_end_stream();
    let opened = if size.is_some_and(|size: u64| size > board.options.http_body_bytes_max as u64) {
        Err(TOO_LARGE)
    } else if is_whole {
        let (mut whole, mut held) = (Vec::new(), Held::new(&board.assembling));
        let read = poll_fn(|cx| {
            poll_whole(&board, &mut whole, &mut held, cx, |cx| poll_piece(&mut body, cx))
        });
        match read.await {
            Ok(whole) => {
                Exchange::open(&board, &conn, respond.stream_id().as_u32(), &parts, Some(whole))
            }
            Err(Fault::Refused(refusal)) => Err(refusal),
            Err(Fault::Gone) => return,
        }
    } else {
        Exchange::open(&board, &conn, respond.stream_id().as_u32(), &parts, None)
    };
    match opened {
        Ok(exchange) => {
            let incoming = (!is_whole).then(|| (body, Intake::default()));
            let is_head = parts.method == Method::HEAD;
            ExchangeTask { exchange, incoming, is_head, respond, send: None }.await;
        }
        Err(refusal) => send_plain(&conn, &mut respond, refusal),
    }
}

fn send_plain(conn: &Conn, respond: &mut Respond, refusal: Refusal) {
    let (head, body) = refusal.response().into_parts();
    // Each of these fails only when the client is gone; then nobody waits.
    if let Ok(mut send) = respond.send_response(Response::from_parts(head, ()), body.is_empty()) {
        if !body.is_empty() {
            let _ = send.send_data(conn.payload(body), true);
        }
    }
}

fn poll_piece(body: &mut RecvStream, cx: &mut Context<'_>) -> Piece {
    Poll::Ready(match ready!(body.poll_data(cx)) {
        None => None,
        Some(Err(_)) => Some(Err(())),
        Some(Ok(chunk)) => {
            // It fails only for more than was received.
            let _ = body.flow_control().release_capacity(chunk.len());
            Some(Ok(chunk))
        }
    })
}

/// Reads a body and sends the answer.
struct ExchangeTask {
    exchange: Exchange,
    incoming: Option<(RecvStream, Intake)>,
    is_head: bool,
    respond: Respond,
    send: Option<SendStream<Payload>>,
}

impl Future for ExchangeTask {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let Exchange { board, id, outgoing } = &this.exchange;
        outgoing.watch(cx);
        if outgoing.is_abandoned() {
            return Poll::Ready(());
        }
        if let Some((body, intake)) = &mut this.incoming {
            match intake.read(board, *id, outgoing, cx, |cx| poll_piece(body, cx)) {
                Taken::Waits => {}
                Taken::All => this.incoming = None,
                Taken::Broken => return Poll::Ready(()),
            }
        }
        if this.send.is_none() {
            let answered = ready!(this.exchange.poll_answer(cx, false));
            match answered {
                Ok(head) => match this.begin(head) {
                    Some(send) => this.send = Some(send),
                    None => return Poll::Ready(()),
                },
                Err(refusal) => {
                    send_plain(&this.exchange.outgoing.conn, &mut this.respond, refusal);
                    return Poll::Ready(());
                }
            }
        }
        this.poll_send(cx)
    }
}

impl ExchangeTask {
    /// Send the head; nothing if that is all, or if the client is gone.
    fn begin(&mut self, mut head: Response<()>) -> Option<SendStream<Payload>> {
        for name in OF_HTTP1 {
            head.headers_mut().remove(name);
        }
        let is_all = self.is_head || self.exchange.outgoing.rest_bytes() == Some(0);
        let sent = self.respond.send_response(head, is_all);
        if is_all && sent.is_ok() {
            self.exchange.finish();
        }
        sent.ok().filter(|_| !is_all)
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Exchange { board, outgoing, .. } = &self.exchange;
        let Some(send) = &mut self.send else { return Poll::Ready(()) };
        match outgoing.send(board, send, cx) {
            Sent::Waits => return Poll::Pending,
            Sent::Broken => return Poll::Ready(()),
            Sent::All => {}
        }
        let Some(status) = outgoing.status() else { return Poll::Pending };
        if status.code == grpc::OK {
            let _ = send.send_data(outgoing.conn.payload(Bytes::new()), true); // else it is gone
        } else {
            send.send_reset(Reason::INTERNAL_ERROR);
        }
        self.exchange.finish();
        Poll::Ready(())
    }
}
