//! The socket of an HTTP/1.1 connection, shared by hyper and by an answer that writes past it.
//!
//! ```text
//! hyper ──► HyperIo ──► SharedSocket ──► socket
//! Outgoing.deliver ──write_directly──► SharedSocket
//! ```
//!
//! Chunks of an answer are independent. So if hyper has nothing left to write, one more may be written
//! directly, which saves a poll of its task: an event for a thousand open answers costs a thousand writes
//! and little else. Invariant: the rest of a partial write is sent before anything of hyper's.

use std::cell::{Cell, RefCell};
use std::future::{poll_fn, Future};
use std::io;
use std::pin::{pin, Pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{ready, Context, Poll, Waker};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::unconstrained;

use crate::http::exchange::Exchange;
use crate::http::request_lines::{is_whole_and_plain, Line, RequestLine};
use crate::server::connection_state::Conn;
use crate::server::outgoing::{Direct, WritesDirectly};
use crate::server::send_backlog::SendBacklog;
use crate::socket::layers::Socket;

const UNFLUSHED_BYTES_MAX: usize = 128 << 10; // of answers, in hyper

struct Ends {
    unread: Bytes, // read already, and given back
    unsent: Bytes, // the rest of a chunk
    socket: Socket,
}

pub struct SharedSocket {
    ends: RefCell<Ends>,
    is_flushed: Cell<bool>, // hyper has nothing left to write
    line: RefCell<RequestLine>,
    is_body_over: Cell<bool>, // the last request's: the next byte from the client is a head's
    is_head_split: Cell<bool>,
    unflushed: RefCell<Unflushed>,
}

/// What was given to hyper, or begun directly, and is not written yet.
#[derive(Default)]
struct Unflushed {
    credits: Vec<(Arc<SendBacklog>, usize)>,
    bytes: usize,
    exchanges: Vec<Exchange>, // whose last byte hyper has
    waits: bool,              // for a flush: more is there to be written
}

impl Drop for Unflushed {
    /// It is written, or the connection has ended and nothing waits for it.
    fn drop(&mut self) {
        for (backlog, bytes) in self.credits.drain(..) {
            backlog.credit(bytes);
        }
    }
}

impl SharedSocket {
    pub fn new(socket: Socket) -> Self {
        let ends = Ends { unread: Bytes::new(), unsent: Bytes::new(), socket };
        SharedSocket {
            ends: RefCell::new(ends),
            is_flushed: Cell::new(true),
            line: RefCell::default(),
            is_body_over: Cell::new(true),
            is_head_split: Cell::new(false),
            unflushed: RefCell::default(),
        }
    }

    /// Note whether the body of the last request was read to its end.
    pub fn note_body(&self, is_over: bool) {
        self.is_body_over.set(is_over);
    }

    /// Return whether the client has nothing more to send for the last request.
    pub fn is_body_over(&self) -> bool {
        self.is_body_over.get()
    }

    /// Return whether hyper may hold the beginning of a head whose next bytes are unread here.
    pub fn is_head_split(&self) -> bool {
        self.is_head_split.get()
    }

    /// Give back what hyper had not used: what is unread here continues it.
    pub fn take_back(&self, bytes: Bytes) {
        self.is_head_split.set(false);
        self.unread(bytes);
    }

    /// Return whether hyper may have more bytes of answers; if not, its task is woken by the next flush.
    pub fn has_room(&self) -> bool {
        let unflushed = &mut *self.unflushed.borrow_mut();
        unflushed.waits = unflushed.bytes >= UNFLUSHED_BYTES_MAX;
        !unflushed.waits
    }

    /// Keep an exchange until its last byte is written.
    pub fn keep(&self, exchange: Exchange) {
        self.unflushed.borrow_mut().exchanges.push(exchange);
    }

    /// Everything is written.
    fn note_flushed(&self, cx: &Context<'_>) {
        self.is_flushed.set(true);
        if self.unflushed.borrow().credits.is_empty()
            && self.unflushed.borrow().exchanges.is_empty()
        {
            return;
        }
        let unflushed = self.unflushed.take();
        if unflushed.waits {
            cx.waker().wake_by_ref();
        }
    }

    /// Give bytes back that were read: they are read before those that were given back earlier.
    pub fn unread(&self, bytes: Bytes) {
        if bytes.is_empty() {
            return; // they may still hold a large buffer
        }
        let unread = &mut self.ends.borrow_mut().unread;
        if unread.is_empty() {
            *unread = bytes;
        } else {
            *unread = Bytes::from([&bytes[..], &unread[..]].concat());
        }
    }

    pub fn has_unread(&self) -> bool {
        !self.ends.borrow().unread.is_empty()
    }

    /// Note that hyper will have something to write.
    pub fn note_buffered(&self) {
        self.is_flushed.set(false);
    }

    /// Return whether everything is written.
    pub fn is_flushed(&self) -> bool {
        self.is_flushed.get() && self.ends.borrow().unsent.is_empty()
    }

    pub fn poll_read(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let ends = &mut *self.ends.borrow_mut();
        if ends.unread.is_empty() {
            return Pin::new(&mut ends.socket).poll_read(cx, buf);
        }
        let count = ends.unread.len().min(buf.remaining());
        buf.put_slice(&ends.unread.split_to(count));
        Poll::Ready(Ok(()))
    }

    pub fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let ends = &mut *self.ends.borrow_mut();
        ready!(ends.poll_unsent(cx))?;
        Pin::new(&mut ends.socket).poll_write(cx, bytes)
    }

    pub fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ends = &mut *self.ends.borrow_mut();
        ready!(ends.poll_unsent(cx))?;
        Pin::new(&mut ends.socket).poll_flush(cx)
    }

    pub fn poll_shutdown(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ends = &mut *self.ends.borrow_mut();
        ready!(ends.poll_unsent(cx))?;
        Pin::new(&mut ends.socket).poll_shutdown(cx)
    }
}

impl WritesDirectly for SharedSocket {
    fn write_directly(&self, chunk: &Bytes) -> Direct {
        if !self.is_flushed() {
            return Direct::Not;
        }
        let ends = &mut *self.ends.borrow_mut();
        // What cannot be written at once is left to hyper's task, which is woken.
        let cx = &mut Context::from_waker(Waker::noop());
        let socket = &mut ends.socket;
        let writing = poll_fn(|cx| Pin::new(&mut *socket).poll_write(cx, chunk));
        let Poll::Ready(Ok(count)) = pin!(unconstrained(writing)).poll(cx) else {
            return Direct::Not;
        };
        let flushing = poll_fn(|cx| Pin::new(&mut *socket).poll_flush(cx));
        let is_out = pin!(unconstrained(flushing)).poll(cx).is_ready();
        if count == chunk.len() && is_out {
            return Direct::Written;
        }
        ends.unsent = chunk.slice(count..);
        self.is_flushed.set(false);
        Direct::Begun
    }

    fn credit_later(&self, backlog: &Arc<SendBacklog>, bytes: usize) {
        self.note_buffered();
        backlog.hand(bytes);
        let unflushed = &mut *self.unflushed.borrow_mut();
        unflushed.bytes += bytes;
        match unflushed.credits.last_mut() {
            Some((last, count)) if Arc::ptr_eq(last, backlog) => *count += bytes,
            _ => unflushed.credits.push((backlog.clone(), bytes)),
        }
    }
}

impl Ends {
    fn poll_unsent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unsent.is_empty() {
            let count = ready!(Pin::new(&mut self.socket).poll_write(cx, &self.unsent))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.unsent.advance(count);
        }
        Poll::Ready(Ok(()))
    }
}

/// The socket as hyper uses it: hyper cannot close it, its flushes are noted, and targets that it would
/// refuse are kept beside.
pub struct HyperIo {
    pub socket: Rc<SharedSocket>,
    pub conn: Rc<Conn>,
    pub begun_with: u64, // requests, before hyper's first
}

impl HyperIo {
    /// Give bytes back that continue what hyper may hold of a head; false: they pass anyway.
    ///
    /// Hyper reads on while it answers, so after its first request it may have the beginning of the next
    /// head, and then these bytes are from the middle of one. A line that is whole and plain passes in
    /// both cases. Everything else is looked at together with what hyper holds: see `serve_requests`.
    fn splits_head(&self, buf: &mut ReadBuf<'_>, before: usize) -> bool {
        let arrived = &buf.filled()[before..];
        let conn = &self.conn;
        if conn.requests.get() == self.begun_with
            || conn.is_closing.get()
            || arrived.is_empty()
            || is_whole_and_plain(arrived)
        {
            return false;
        }
        self.socket.unread(Bytes::copy_from_slice(arrived));
        self.socket.is_head_split.set(true);
        buf.set_filled(before);
        true
    }

    /// Look at bytes that begin a head; true: there is something to read.
    fn see_line(&self, buf: &mut ReadBuf<'_>, before: usize) -> bool {
        let conn = &self.conn;
        let (requests, limit) = (conn.requests.get(), conn.port.limits.header_bytes_max as usize);
        let arrived = &buf.filled()[before..];
        let mut line = self.socket.line.borrow_mut();
        if arrived.is_empty() {
            self.socket.unread(line.give_up(requests)); // the end
            return !self.socket.has_unread();
        }
        match line.see(arrived, requests, limit) {
            Line::Plain => return true,
            Line::Incomplete => {}
            Line::Whole(bytes, real) => {
                if let Some(target) = real {
                    conn.add_target(0, target.into());
                }
                self.socket.unread(bytes);
            }
        }
        buf.set_filled(before);
        false
    }
}

impl AsyncRead for HyperIo {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        loop {
            ready!(self.socket.poll_read(cx, buf))?;
            let conn = &self.conn;
            let begins = conn.busy.get() == 0
                && self.socket.is_body_over()
                && self.socket.line.borrow().is_awaited(conn.requests.get());
            if begins && self.splits_head(buf, before) {
                return Poll::Pending; // the next bytes are read by another of hyper's connections
            }
            if !begins || self.see_line(buf, before) {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl AsyncWrite for HyperIo {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.socket.note_buffered();
        self.socket.poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = self.socket.poll_flush(cx);
        match &flushed {
            Poll::Ready(Ok(())) => self.socket.note_flushed(cx),
            other => self.socket.is_flushed.set(other.is_ready()),
        }
        flushed
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(())) // `close` does it later
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixStream;
    use tokio::time::timeout;

    use super::*;
    use crate::socket::raw::{Carrier, Raw};

    #[test]
    fn what_is_written_past_hyper_keeps_its_order() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (here, mut there) = UnixStream::pair().unwrap();
            let socket = Rc::new(SharedSocket::new(Socket::Plain(Raw::new(Carrier::Unix(here)))));
            let conn = Rc::new(Conn::new("peer".into(), 0, crate::fuzzing::port(None)));
            let mut hyper = HyperIo { socket: socket.clone(), conn, begun_with: 0 };
            let (mut expected, mut seen) = (Vec::new(), Vec::new());
            hyper.write_all(b"head ").await.unwrap();
            assert_eq!(socket.write_directly(&Bytes::from_static(b"early")), Direct::Not);
            hyper.flush().await.unwrap();
            expected.extend_from_slice(b"head ");
            let chunk = Bytes::from(vec![b'x'; 10_000]);
            loop {
                let direct = socket.write_directly(&chunk);
                if direct != Direct::Not {
                    expected.extend_from_slice(&chunk);
                }
                if direct != Direct::Written {
                    break;
                }
            }
            assert!(!socket.is_flushed() || expected.len() > 5);
            expected.extend_from_slice(b" tail");
            let writing = async {
                hyper.write_all(b" tail").await.unwrap();
                hyper.flush().await.unwrap();
                assert!(socket.is_flushed());
                drop((hyper, socket));
            };
            let reading = there.read_to_end(&mut seen);
            let both = async { tokio::join!(writing, reading) };
            timeout(Duration::from_secs(10), both).await.unwrap().1.unwrap();
            assert!(seen == expected, "{} bytes, {} expected", seen.len(), expected.len());
        });
    }
}
