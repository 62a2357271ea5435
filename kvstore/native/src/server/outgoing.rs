//! The send queue of one open stream, gRPC's or HTTP's.
//!
//! ```text
//! CallTable ──► Outgoing.begin / deliver / end ──► queue ──► h2, hyper or a socket
//! ```
//!
//! Invariant: deliveries are sent in order, then the end; only the first end counts. Bytes in the queue
//! are bounded by the stream's limit, and every byte sent is counted for the driver's thread.
//!
//! Small messages flushed together are sent in one DATA frame; a large shared tail is not copied.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::{BufMut, Bytes, BytesMut};
use h2::{Reason, SendStream};

use crate::grpc::{self, Status, PREFIX_BYTES};
use crate::http::messages::HttpResponse;
use crate::kernels::fan_out::Block;
use crate::server::connection_state::{Conn, Payload};
use crate::server::inbox::Inbox;
use crate::server::outbox::{put_message_prefix, Tail};
use crate::server::receive_window::Window;
use crate::server::send_backlog::SendBacklog;

const COALESCED_BYTES: usize = 16 << 10; // one full DATA frame
const SHARED_TAIL_BYTES: usize = 8 << 10; // smaller tails are cheaper to copy than to chain
pub const SEND_STEP_BYTES: usize = 64 << 10;

struct Chunk {
    bytes: Bytes,
    message_bytes: usize, // without prefixes, as the driver counts them
    continues: bool,      // the message goes on in the next chunk
}

#[derive(Default)]
struct Queue {
    chunks: VecDeque<Chunk>,
    staging: BytesMut,
    staging_message_bytes: usize,
    bytes: usize,         // of messages, unsent
    is_partly_sent: bool, // the first chunk
}

impl Queue {
    fn seal(&mut self) {
        if !self.staging.is_empty() {
            let bytes = std::mem::take(&mut self.staging).freeze();
            let message_bytes = std::mem::take(&mut self.staging_message_bytes);
            self.chunks.push_back(Chunk { bytes, message_bytes, continues: false });
        }
    }

    fn push(&mut self, head: &[u8], tail: &Bytes, is_grpc: bool) {
        let size = head.len() + tail.len();
        self.bytes += size;
        if !is_grpc && head.is_empty() && self.staging.is_empty() && self.chunks.is_empty() {
            let chunk = Chunk { bytes: tail.clone(), message_bytes: size, continues: false };
            return self.chunks.push_back(chunk); // alone it need not be copied
        }
        let copied = if tail.len() >= SHARED_TAIL_BYTES { 0 } else { tail.len() };
        if self.staging.len() + PREFIX_BYTES + head.len() + copied > COALESCED_BYTES {
            self.seal();
        }
        if is_grpc {
            put_message_prefix(&mut self.staging, size);
        }
        self.staging.put_slice(head);
        self.staging_message_bytes += head.len();
        if copied == tail.len() {
            self.staging.put_slice(tail);
            self.staging_message_bytes += copied;
            return;
        }
        let first = self.chunks.len();
        self.seal();
        if let Some(chunk) = self.chunks.get_mut(first) {
            chunk.continues = is_grpc;
        }
        let chunk = Chunk { bytes: tail.clone(), message_bytes: tail.len(), continues: false };
        self.chunks.push_back(chunk);
    }

    /// An error if too many bytes would be unsent; then those that can be are dropped.
    fn make_room(&mut self, size: usize, limit: usize) -> Result<(), Status> {
        if self.bytes == 0 || self.bytes + size <= limit {
            return Ok(());
        }
        let waiting = self.bytes;
        self.drop_unsent();
        Err(Status::new(
            grpc::RESOURCE_EXHAUSTED,
            format!(
                "kvstore: the reader of this stream is too slow: {waiting} bytes wait unsent, \
                 limit {limit}"
            ),
        ))
    }

    /// Add messages that have their prefixes; large blocks are not copied.
    fn push_block(&mut self, block: &Block) {
        if block.bytes.len() >= SHARED_TAIL_BYTES {
            return self.push_whole(block.bytes.clone(), block.message_bytes);
        }
        self.bytes += block.message_bytes;
        if self.staging.len() + block.bytes.len() > COALESCED_BYTES {
            self.seal();
        }
        self.staging.put_slice(&block.bytes);
        self.staging_message_bytes += block.message_bytes;
    }

    fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.staging.is_empty()
    }

    fn push_whole(&mut self, bytes: Bytes, message_bytes: usize) {
        self.seal();
        self.bytes += message_bytes;
        self.chunks.push_back(Chunk { bytes, message_bytes, continues: false });
    }

    /// How many bytes could be sent at once; none if the queue is empty.
    fn front_bytes(&mut self) -> Option<usize> {
        self.seal();
        self.chunks.front().map(|chunk| chunk.bytes.len())
    }

    /// Take up to so many bytes from the front, with their count of message bytes.
    fn take(&mut self, bytes_max: usize) -> Option<(Bytes, usize)> {
        let chunk = self.chunks.front_mut()?;
        let piece = chunk.bytes.split_to(bytes_max.min(chunk.bytes.len()));
        let is_done = chunk.bytes.is_empty();
        let credit =
            if is_done { chunk.message_bytes } else { piece.len().min(chunk.message_bytes) };
        chunk.message_bytes -= credit;
        self.bytes -= credit;
        self.is_partly_sent = !is_done || chunk.continues;
        if is_done {
            self.chunks.pop_front();
        }
        Some((piece, credit))
    }

    /// Drop the chunks whose sending has not begun.
    fn drop_unsent(&mut self) {
        self.seal();
        let mut keep = usize::from(self.is_partly_sent);
        while keep > 0 && keep < self.chunks.len() && self.chunks[keep - 1].continues {
            keep += 1;
        }
        self.chunks.truncate(keep);
        self.bytes = self.chunks.iter().map(|chunk| chunk.message_bytes).sum();
    }
}

/// The result of writing a chunk directly.
#[derive(Debug, PartialEq, Eq)]
pub enum Direct {
    Written,
    Begun, // the rest is sent when the connection's task is woken
    Not,
}

/// A socket of HTTP/1.1 that chunks of an answer may be written to past hyper.
pub trait WritesDirectly {
    /// Write a chunk, as far as the socket takes it.
    fn write_directly(&self, chunk: &Bytes) -> Direct;

    /// Note bytes of an answer that are not written yet: they count as sent when they are.
    fn credit_later(&self, backlog: &Arc<SendBacklog>, bytes: usize);
}

/// The result of sending.
#[derive(Debug, PartialEq, Eq)]
pub enum Sent {
    All,
    Waits,
    Broken,
}

/// The writing half of a stream.
pub struct Outgoing {
    pub id: Cell<u64>, // once it is in the call table
    pub conn: Rc<Conn>,
    pub http_stream: u32,
    pub deadline: Option<Instant>,
    pub backlog: Arc<SendBacklog>,
    is_grpc: bool,
    pub ends_by_itself: Cell<bool>, // of a gRPC stream: the server's answer is bounded
    pub is_gzip: bool,
    answer: RefCell<Option<HttpResponse>>, // of a request that is not gRPC
    is_answered: Cell<bool>,
    queue: RefCell<Queue>,
    status: RefCell<Option<Status>>,
    is_abandoned: Cell<bool>,
    waker: RefCell<Option<Waker>>,
    reader: RefCell<Option<Waker>>, // if another task than the writer's reads the body
    pub stream: RefCell<Option<SendStream<Payload>>>, // HTTP/2: of an answer that was begun
    pub socket: RefCell<Option<Rc<dyn WritesDirectly>>>, // HTTP/1.1: of an answer in chunks that was begun
}

impl Outgoing {
    /// The half of a gRPC stream: messages get their prefix.
    pub fn new(conn: Rc<Conn>, http_stream: u32, deadline: Option<Instant>, is_gzip: bool) -> Self {
        Outgoing {
            id: Cell::new(0),
            conn,
            http_stream,
            deadline,
            backlog: Arc::default(),
            is_grpc: true,
            is_gzip,
            answer: RefCell::default(),
            is_answered: Cell::new(false),
            ends_by_itself: Cell::new(false),
            queue: RefCell::default(),
            status: RefCell::default(),
            is_abandoned: Cell::new(false),
            waker: RefCell::new(None),
            reader: RefCell::new(None),
            stream: RefCell::new(None),
            socket: RefCell::new(None),
        }
    }

    /// The half of a request that is not gRPC: bytes are sent as they are.
    pub fn plain(conn: Rc<Conn>, http_stream: u32, inbox: Arc<Inbox>) -> Self {
        let window = conn.port.web.as_ref().map(|web| Window::new(web.window_bytes));
        let backlog = Arc::new(SendBacklog::of_answer(inbox, window));
        Outgoing { is_grpc: false, backlog, ..Outgoing::new(conn, http_stream, None, false) }
    }

    /// Wake this task when there is something to send, or an end.
    pub fn watch(&self, cx: &Context<'_>) {
        let waker = &mut *self.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
    }

    /// Wake this task when the body may be read on.
    pub fn watch_reader(&self, cx: &Context<'_>) {
        *self.reader.borrow_mut() = Some(cx.waker().clone());
    }

    /// Wake the task that waits to read the body.
    pub fn wake_reader(&self) {
        if let Some(waker) = self.reader.borrow_mut().take() {
            waker.wake();
        }
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Queue one message; an error: too many bytes are unsent.
    pub fn deliver(&self, head: &[u8], tail: &Bytes, limit: usize) -> Result<(), Status> {
        if self.is_ended() {
            return Ok(());
        }
        let queue = &mut *self.queue.borrow_mut();
        queue.make_room(head.len() + tail.len(), limit)?;
        if self.is_gzip {
            queue.push_whole(grpc::compress(&[head, tail]), head.len() + tail.len());
        } else {
            queue.push(head, tail, self.is_grpc);
        }
        self.wake();
        Ok(())
    }

    /// Queue messages that have their prefixes; an error: too many bytes are unsent.
    pub fn deliver_blocks(&self, blocks: &[Block], limit: usize) -> Result<(), Status> {
        if self.is_ended() {
            return Ok(());
        }
        let queue = &mut *self.queue.borrow_mut();
        for block in blocks {
            queue.make_room(block.message_bytes, limit)?;
            if self.is_gzip {
                for message in block.messages() {
                    queue.push_whole(grpc::compress(&[&message]), message.len());
                }
            } else if self.is_grpc {
                queue.push_block(block);
            } else {
                block.messages().for_each(|message| queue.push(&[], &message, false));
            }
        }
        self.wake();
        Ok(())
    }

    /// Send bytes directly, if the queue is empty and the socket takes them at once; is_counted: they
    /// are counted as queued, and as sent when they are written.
    pub fn send_at_once(&self, direct_writes: &Cell<usize>, tail: &Tail, is_counted: bool) -> bool {
        if self.is_grpc || !self.queue.borrow().is_empty() {
            return false;
        }
        let size = tail.bytes.len();
        if size == 0 {
            return true; // an empty chunk would be the end
        }
        if let Some(stream) = &mut *self.stream.borrow_mut() {
            stream.reserve_capacity(size);
            if stream.capacity() < size {
                return false;
            }
            let backlog = is_counted.then(|| self.backlog.clone());
            // An error: the task will see a closed socket.
            let _ = stream.send_data(self.conn.payload_of(tail.bytes.clone(), backlog), false);
        } else if let Some(socket) =
            self.socket.borrow().as_ref().filter(|_| size <= SEND_STEP_BYTES)
        {
            direct_writes.set(direct_writes.get() + 1);
            match socket.write_directly(tail.chunk()) {
                Direct::Written if is_counted => {
                    self.backlog.hand(size);
                    self.backlog.credit(size);
                }
                Direct::Written => {}
                Direct::Begun => {
                    if is_counted {
                        socket.credit_later(&self.backlog, size);
                    }
                    self.wake();
                }
                Direct::Not => return false,
            }
        } else {
            return false;
        }
        true
    }

    /// Queue one message that has its prefix already.
    pub fn deliver_framed(&self, bytes: Bytes) {
        if !self.is_ended() {
            let message_bytes = bytes.len().saturating_sub(PREFIX_BYTES);
            let bytes =
                if self.is_gzip { grpc::compress(&[&bytes[PREFIX_BYTES..]]) } else { bytes };
            self.deliver_whole(bytes, message_bytes);
        }
    }

    fn deliver_whole(&self, bytes: Bytes, message_bytes: usize) {
        self.backlog.queued.fetch_add(message_bytes as u64, Ordering::SeqCst);
        self.deliver_counted(bytes, message_bytes);
    }

    fn deliver_counted(&self, bytes: Bytes, message_bytes: usize) {
        self.queue.borrow_mut().push_whole(bytes, message_bytes);
        self.wake();
    }

    /// Answer a request that is not gRPC; only the first answer counts. A complete answer is its own end,
    /// and nothing after it is sent.
    pub fn begin(&self, mut answer: HttpResponse) {
        if !self.is_grpc && !self.is_ended() && !self.is_answered.replace(true) {
            let body = answer.body.take();
            let rest = std::mem::take(&mut answer.rest);
            let is_counted = answer.is_counted;
            *self.answer.borrow_mut() = Some(answer);
            match body {
                Some(body) => self.finish_with(body, rest, is_counted),
                None => self.wake(),
            }
        }
    }

    /// Take the answer, when it is there.
    pub fn take_answer(&self) -> Option<HttpResponse> {
        self.answer.borrow_mut().take()
    }

    /// Queue all bytes of an answer, and its end.
    fn finish_with(&self, body: Bytes, rest: Vec<Bytes>, is_counted: bool) {
        for part in std::iter::once(body).chain(rest).filter(|part| !part.is_empty()) {
            let size = part.len();
            match is_counted {
                true => self.deliver_counted(part, size),
                false => self.deliver_whole(part, size),
            }
        }
        self.end(Status::new(grpc::OK, ""));
    }

    /// Let the stream end after what is queued; only the first end counts.
    pub fn end(&self, status: Status) {
        self.status.borrow_mut().get_or_insert(status);
        self.wake();
        self.wake_reader(); // the rest of the body is discarded
    }

    pub fn is_grpc(&self) -> bool {
        self.is_grpc
    }

    /// Return whether this is a call with a bounded answer, rather than an endless stream.
    pub fn is_call(&self) -> bool {
        if self.is_grpc {
            self.ends_by_itself.get()
        } else {
            !self.is_answered.get() || self.is_ended()
        }
    }

    pub fn is_ended(&self) -> bool {
        self.status.borrow().is_some()
    }

    /// The status to end with, when there is one.
    pub fn status(&self) -> Option<Status> {
        self.status.borrow().clone()
    }

    /// Stop at once, because the client has disconnected.
    pub fn abandon(&self) {
        self.is_abandoned.set(true);
        self.wake();
    }

    /// Stop what carries the answer: the stream of HTTP/2, or the connection of HTTP/1.1.
    pub fn break_off(&self) {
        match self.stream.borrow_mut().take() {
            Some(mut stream) => stream.send_reset(Reason::CANCEL),
            None if self.http_stream == 0 => self.conn.break_off(),
            None => {}
        }
    }

    pub fn is_abandoned(&self) -> bool {
        self.is_abandoned.get()
    }

    pub fn has_queued(&self) -> bool {
        self.queue.borrow_mut().front_bytes().is_some()
    }

    /// How many bytes are still to be sent, if that is known: after an orderly end.
    pub fn rest_bytes(&self) -> Option<usize> {
        let is_whole = self.status.borrow().as_ref().is_some_and(|status| status.code == grpc::OK);
        is_whole.then(|| self.queue.borrow().bytes)
    }

    /// Take up to so many queued bytes of an answer of HTTP; who writes them counts them as sent.
    pub fn take(&self, bytes_max: usize) -> Option<Bytes> {
        let queue = &mut *self.queue.borrow_mut();
        queue.seal();
        queue.take(bytes_max).map(|(piece, _)| piece)
    }

    /// Send queued bytes, as far as the stream's window allows.
    pub fn send(
        &self,
        inbox: &Inbox,
        send: &mut SendStream<Payload>,
        cx: &mut Context<'_>,
    ) -> Sent {
        let queue = &mut *self.queue.borrow_mut();
        while let Some(size) = queue.front_bytes() {
            send.reserve_capacity(size.min(SEND_STEP_BYTES));
            if send.capacity() == 0 {
                match send.poll_capacity(cx) {
                    Poll::Pending => return Sent::Waits,
                    Poll::Ready(Some(Ok(_))) => continue,
                    Poll::Ready(Some(Err(_)) | None) => return Sent::Broken,
                }
            }
            let Some((piece, credit)) = queue.take(send.capacity()) else { break };
            let backlog = (!self.is_grpc).then(|| self.backlog.clone());
            if send.send_data(self.conn.payload_of(piece, backlog), false).is_err() {
                return Sent::Broken;
            }
            if self.is_grpc {
                self.backlog.note_sent(inbox, self.id.get(), credit as u64);
            }
        }
        Sent::All
    }
}
