//! Requests of an HTTP/2 connection that are not gRPC: one task each.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{ready, Context, Poll};

use ::http::header::{HeaderName, CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING, UPGRADE};
use ::http::{HeaderValue, Method, Request, Response, StatusCode};
use bytes::Bytes;
use h2::{Reason, RecvStream, SendStream};

use crate::grpc;
use crate::grpc::open_call::Respond;
use crate::http::body::{comes_whole, read_whole, BodyError, BodyReader, Piece, Taken};
use crate::http::exchange::Exchange;
use crate::http::refusal::Refusal;
use crate::server::call_table::CallTable;
use crate::server::connection_state::{Busy, Conn, Payload};
use crate::server::outgoing::Sent;

/// Headers of HTTP/1.1 that HTTP/2 forbids.
const HTTP1_ONLY: [HeaderName; 4] =
    [CONNECTION, TRANSFER_ENCODING, UPGRADE, HeaderName::from_static("keep-alive")];

/// Answer one request.
pub async fn answer(
    table: Rc<CallTable>,
    conn: Rc<Conn>,
    request: Request<RecvStream>,
    mut respond: Respond,
) {
    let _busy = Busy::new(&conn); // its body may arrive before there is an exchange
    let (parts, mut body) = request.into_parts();
    let size =
        parts.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    let size = size.or_else(|| body.is_end_stream().then_some(0));
    let stream = respond.stream_id().as_u32();
    let is_head = parts.method == Method::HEAD;
    let mut is_whole = true;
    let opened = match comes_whole(&conn.port, &parts, size) {
        Err(refusal) => Err(refusal),
        Ok(true) if body.is_end_stream() => {
            Exchange::open(&table, &conn, stream, parts, Some(Bytes::new()), false)
        }
        Ok(true) => match read_whole(&table, &conn.port, |cx| poll_piece(&mut body, cx)).await {
            Ok(whole) => Exchange::open(&table, &conn, stream, parts, Some(whole), false),
            Err(BodyError::Refused(refusal)) => Err(refusal),
            Err(BodyError::Gone) => return,
        },
        Ok(false) => {
            is_whole = false;
            Exchange::open(&table, &conn, stream, parts, None, false)
        }
    };
    match opened {
        Ok(exchange) => {
            let incoming = (!is_whole).then(|| (body, BodyReader::default()));
            ExchangeTask { exchange, incoming, is_head, respond, is_begun: false }.await;
        }
        Err(refusal) => send_plain(&conn, &mut respond, refusal),
    }
}

fn send_plain(conn: &Conn, respond: &mut Respond, refusal: Refusal) {
    let (head, body) = refusal.response().into_parts();
    // Each of these fails only when the client has disconnected.
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

/// Add the date, and the length where it is known, as hyper does for HTTP/1.1.
fn complete(head: &mut Response<()>, table: &CallTable, rest_bytes: Option<usize>) {
    let has_no_body = matches!(head.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let headers = head.headers_mut();
    if let (Some(bytes), false) = (rest_bytes, has_no_body) {
        headers.entry(CONTENT_LENGTH).or_insert_with(|| HeaderValue::from(bytes));
    }
    headers.entry(DATE).or_insert_with(|| table.date.now());
}

/// Reads a body and sends the answer.
struct ExchangeTask {
    exchange: Exchange,
    incoming: Option<(RecvStream, BodyReader)>,
    is_head: bool,
    respond: Respond,
    is_begun: bool, // the answer
}

impl Future for ExchangeTask {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let Exchange { table, id, outgoing } = &this.exchange;
        outgoing.watch(cx);
        if outgoing.is_abandoned() {
            return Poll::Ready(());
        }
        if let Some((body, body_reader)) = &mut this.incoming {
            match body_reader.read(table, *id, outgoing, cx, |cx| poll_piece(body, cx)) {
                Taken::Waits => {}
                Taken::All | Taken::TooMuch => this.incoming = None,
                Taken::Broken => return Poll::Ready(()),
            }
        }
        if !this.is_begun {
            let answered = ready!(this.exchange.poll_answer(cx, false));
            match answered {
                Ok(head) => match this.begin(head) {
                    Some(stream) => {
                        *this.exchange.outgoing.stream.borrow_mut() = Some(stream);
                        this.is_begun = true;
                    }
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
    /// Send the head; none if that is all, or if the client has disconnected.
    fn begin(&mut self, mut head: Response<()>) -> Option<SendStream<Payload>> {
        for name in HTTP1_ONLY {
            head.headers_mut().remove(name);
        }
        let rest_bytes = self.exchange.outgoing.rest_bytes();
        if self.exchange.outgoing.conn.port.web.is_some() {
            complete(&mut head, &self.exchange.table, rest_bytes);
        }
        let is_all = self.is_head || rest_bytes == Some(0);
        let sent = self.respond.send_response(head, is_all);
        if is_all && sent.is_ok() {
            self.exchange.finish();
        }
        sent.ok().filter(|_| !is_all)
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Exchange { table, outgoing, .. } = &self.exchange;
        let stream = &mut *outgoing.stream.borrow_mut();
        let Some(send) = stream else { return Poll::Ready(()) };
        match outgoing.send(&table.inbox, send, cx) {
            Sent::Waits => return Poll::Pending,
            Sent::Broken => return Poll::Ready(()),
            Sent::All => {}
        }
        let Some(status) = outgoing.status() else { return Poll::Pending };
        if status.code == grpc::OK {
            let _ = send.send_data(outgoing.conn.payload(Bytes::new()), true); // an error: disconnected
        } else {
            send.send_reset(Reason::INTERNAL_ERROR);
        }
        *stream = None;
        self.exchange.finish();
        Poll::Ready(())
    }
}

impl Drop for ExchangeTask {
    fn drop(&mut self) {
        *self.exchange.outgoing.stream.borrow_mut() = None; // the exchange may live longer than h2's stream
    }
}
