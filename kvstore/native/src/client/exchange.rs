//! The open calls of a connection: a unary call from its request to its reply, and a stream.
//!
//! ```text
//! flush ──► Stream.queue ──► StreamTask ──► h2 (as far as the window allows)
//! h2 ──► StreamTask ──► Inbox.add_frame (as far as the reader keeps up)
//! ```
//!
//! Invariant: the messages of a stream that its reader has not consumed are bounded by
//! `stream_ahead_bytes_max`, each counted with `MESSAGE_COST` besides its bytes; above that h2's window
//! closes, and the server waits.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{ready, Context, Poll, Waker};

use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::{RecvStream, SendStream};

use super::connection::{Connection, Running};
use super::environment::Environment;
use super::status::Failure;
use crate::grpc::{self, Deframer, Encoding, Status};

/// The cost of a message besides its bytes until its reader has consumed it.
pub const MESSAGE_COST: usize = 64;
const SEND_STEP_BYTES: usize = 64 << 10;

fn deframer(environment: &Environment) -> Deframer {
    Deframer::new(
        environment.options.response_bytes_max,
        Encoding::Identity,
        &environment.assembling,
    )
}

/// The error of an invalid answer. One that is too large has another text than a request that is too
/// large for the server: that request was not executed, this one was.
fn of_status(status: Status) -> Failure {
    if status.code == grpc::RESOURCE_EXHAUSTED {
        let text = String::from_utf8_lossy(&status.text);
        let sizes = text.rsplit_once("larger than max").map_or("", |(_, sizes)| sizes);
        return Failure::sent(status.code, format!("answer larger than max{sizes}"));
    }
    Failure::sent(status.code, status.text)
}

fn incomplete() -> Failure {
    Failure::sent(grpc::INTERNAL, "the answer ends within a message")
}

/// Wait for the reply to a call that was sent.
pub async fn reply(
    environment: &Environment,
    connection: &Connection,
    response: ResponseFuture,
) -> Result<Bytes, Failure> {
    let stream = response.stream_id().as_u32();
    receive(environment, response).await.map_err(|error| error.failure(connection, stream))
}

enum CallError {
    Http2(h2::Error),
    Status(Failure),
}

impl From<h2::Error> for CallError {
    fn from(error: h2::Error) -> Self {
        CallError::Http2(error)
    }
}

impl From<Failure> for CallError {
    fn from(failure: Failure) -> Self {
        CallError::Status(failure)
    }
}

impl CallError {
    fn failure(self, connection: &Connection, stream: u32) -> Failure {
        match self {
            CallError::Status(failure) => failure,
            CallError::Http2(error) => {
                Failure::of_http2(&error, connection.may_have_seen(stream), &connection.name)
            }
        }
    }
}

async fn receive(environment: &Environment, response: ResponseFuture) -> Result<Bytes, CallError> {
    let (head, mut body) = response.await?.into_parts();
    environment.inbox.note_poll();
    if let Some(failure) = Failure::of_head(head.status, &head.headers) {
        return Err(as_error(failure).into());
    }
    let mut deframer = deframer(environment);
    let mut reply = None;
    while let Some(chunk) = body.data().await {
        let chunk = chunk?;
        let _ = body.flow_control().release_capacity(chunk.len()); // fails only for more than was received
        deframer.push(chunk);
        while let Some(message) = deframer.next_message().map_err(of_status)? {
            if reply.replace(message).is_some() {
                return Err(Failure::sent(grpc::INTERNAL, "more than one reply to a call").into());
            }
        }
    }
    let trailers = body.trailers().await?.unwrap_or_default();
    let end = Failure::of_trailers(&trailers);
    if end.code != grpc::OK {
        return Err(end.into());
    }
    if deframer.is_incomplete() {
        return Err(incomplete().into());
    }
    reply.ok_or_else(|| as_error(end).into())
}

/// Status OK without a reply is an error of a call.
fn as_error(end: Failure) -> Failure {
    if end.code == grpc::OK {
        return Failure::sent(grpc::INTERNAL, "no reply to a call");
    }
    end
}

/// The state of a stream: messages to send, and how far the reader is behind.
#[derive(Default)]
pub struct Stream {
    queue: RefCell<VecDeque<Bytes>>,
    is_half_closed: Cell<bool>,
    ahead_bytes: Cell<usize>,
    waker: RefCell<Option<Waker>>,
}

impl Stream {
    pub fn send(&self, message: Bytes) {
        self.queue.borrow_mut().push_back(message);
        self.wake();
    }

    pub fn half_close(&self) {
        self.is_half_closed.set(true);
        self.wake();
    }

    /// Note that the reader has consumed so many bytes.
    pub fn take(&self, bytes: usize) {
        self.ahead_bytes.set(self.ahead_bytes.get().saturating_sub(bytes));
        self.wake();
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    fn watch(&self, cx: &Context<'_>) {
        let waker = &mut *self.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
    }
}

/// Sends and reads a stream until its end, which it returns.
pub struct StreamTask {
    environment: Rc<Environment>,
    connection: Rc<Connection>,
    id: u64,
    http_stream: u32,
    stream: Rc<Stream>,
    response: Option<ResponseFuture>,
    body: Option<RecvStream>,
    deframer: Deframer,
    send: Option<SendStream<Bytes>>, // none after the half-close
    _running: Running,
}

impl StreamTask {
    pub fn new(
        environment: &Rc<Environment>,
        connection: Rc<Connection>,
        id: u64,
        stream: Rc<Stream>,
        (response, send): (ResponseFuture, SendStream<Bytes>),
    ) -> Self {
        StreamTask {
            environment: environment.clone(),
            _running: connection.running(),
            connection,
            id,
            http_stream: response.stream_id().as_u32(),
            stream,
            response: Some(response),
            body: None,
            deframer: deframer(environment),
            send: Some(send),
        }
    }

    /// Send queued messages, as far as the window allows. Errors show where answers are read.
    fn write(&mut self, cx: &mut Context<'_>) {
        let Some(send) = &mut self.send else { return };
        let mut queue = self.stream.queue.borrow_mut();
        while let Some(front) = queue.front_mut() {
            send.reserve_capacity(front.len().min(SEND_STEP_BYTES));
            if send.capacity() == 0 {
                match send.poll_capacity(cx) {
                    Poll::Pending => return,
                    Poll::Ready(Some(Ok(_))) => continue,
                    Poll::Ready(Some(Err(_)) | None) => return queue.clear(),
                }
            }
            let piece = front.split_to(front.len().min(send.capacity()));
            if send.send_data(piece, false).is_err() {
                return queue.clear();
            }
            if front.is_empty() {
                queue.pop_front();
            }
        }
        if self.stream.is_half_closed.get() {
            let _ = send.send_data(Bytes::new(), true);
            self.send = None;
        }
    }

    fn read(&mut self, cx: &mut Context<'_>) -> Poll<CallError> {
        if let Some(response) = &mut self.response {
            let (head, body) = match ready!(Pin::new(response).poll(cx)) {
                Ok(response) => response.into_parts(),
                Err(error) => return Poll::Ready(error.into()),
            };
            self.response = None;
            if let Some(failure) = Failure::of_head(head.status, &head.headers) {
                return Poll::Ready(failure.into());
            }
            self.body = Some(body);
        }
        let Some(body) = &mut self.body else { return Poll::Pending };
        loop {
            match hand_over(&self.environment, self.id, &self.stream, &mut self.deframer) {
                Ok(true) => {}
                Ok(false) => return Poll::Pending, // until the reader has caught up
                Err(failure) => return Poll::Ready(failure.into()),
            }
            match ready!(body.poll_data(cx)) {
                Some(Ok(chunk)) => {
                    let _ = body.flow_control().release_capacity(chunk.len());
                    self.deframer.push(chunk);
                }
                Some(Err(error)) => return Poll::Ready(error.into()),
                None => break,
            }
        }
        match ready!(body.poll_trailers(cx)) {
            Err(error) => Poll::Ready(error.into()),
            Ok(trailers) => {
                let end = Failure::of_trailers(&trailers.unwrap_or_default());
                let is_incomplete = end.code == grpc::OK && self.deframer.is_incomplete();
                Poll::Ready(if is_incomplete { incomplete() } else { end }.into())
            }
        }
    }
}

/// Queue complete messages; false when the reader is too far behind.
fn hand_over(
    environment: &Environment,
    id: u64,
    stream: &Stream,
    deframer: &mut Deframer,
) -> Result<bool, Failure> {
    while stream.ahead_bytes.get() < environment.options.stream_ahead_bytes_max {
        let Some(message) = deframer.next_message().map_err(of_status)? else { return Ok(true) };
        stream.ahead_bytes.set(stream.ahead_bytes.get() + message.len() + MESSAGE_COST);
        environment.inbox.add_frame(id, message);
    }
    Ok(false)
}

impl Future for StreamTask {
    type Output = Failure;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Failure> {
        let this = self.get_mut();
        this.environment.inbox.note_poll();
        this.stream.watch(cx);
        this.write(cx);
        let fault = ready!(this.read(cx));
        Poll::Ready(fault.failure(&this.connection, this.http_stream))
    }
}
