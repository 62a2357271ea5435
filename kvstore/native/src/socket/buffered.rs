//! A socket with a send buffer, shared by h2 and the task that drives it: a server's or a client's.
//!
//! ```text
//! h2 ──► poll_write ──► outgoing buffer ──► poll_send (the driving task, once a round) ──► socket
//! h2 ◄── poll_read  ◄── socket            both directions pass an observer of frames
//! ```
//!
//! All frames of one round are sent in one system call. The buffer is bounded: above `OUTGOING_MAX` a
//! write waits for the socket.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::{pin, Pin};
use std::rc::Rc;
use std::task::{ready, Context, Poll};
use std::time::Instant;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

const OUTGOING_MAX: usize = 64 << 10;
const LARGE_BYTES: usize = 4 << 10; // of one write; more like it follow
const OUTGOING_ROOM: usize = OUTGOING_MAX + (24 << 10); // and for what is above when it is full
const OUTGOING_KEPT: usize = 16 << 10; // capacity an idle connection keeps
const READ_BYTES: usize = 16 << 10;

/// Sees the bytes of both directions, in pieces of any size.
pub trait ObservesFrames {
    /// See bytes that arrived, which it may change; return how many of the last belong to the incomplete
    /// head of a frame, which it has not seen.
    fn see_arriving(&mut self, bytes: &mut [u8]) -> usize;

    /// See bytes that h2 writes.
    fn see_leaving(&mut self, bytes: &[u8]);
}

/// Read into a buffer, as much as one read gives; an idle connection keeps no buffer.
pub fn poll_read_buf<S: AsyncRead + Unpin>(
    mut socket: Pin<&mut S>,
    cx: &mut Context<'_>,
    out: &mut BytesMut,
) -> Poll<io::Result<usize>> {
    out.reserve(READ_BYTES);
    let polled = pin!(socket.read_buf(out)).poll(cx);
    if polled.is_pending() && out.is_empty() {
        *out = BytesMut::new();
    }
    polled
}

/// The socket, its buffers, and the observer of its frames.
pub struct BufferedSocket<S, F> {
    socket: S,
    begun: BytesMut, // an incomplete head of a frame
    seen: BytesMut,  // complete heads and payload, not read by h2 yet
    outgoing: BytesMut,
    pub frames: F,
    pub read_at: Instant,
}

impl<S: AsyncRead + AsyncWrite + Unpin, F: ObservesFrames> BufferedSocket<S, F> {
    /// Append a frame of our own to what is written next.
    pub fn append_frame(&mut self, frame: &[u8]) {
        self.outgoing.extend_from_slice(frame);
    }

    /// Write as much of the buffer as the socket takes; ready when it is empty.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.outgoing.is_empty() {
            let count = ready!(Pin::new(&mut self.socket).poll_write(cx, &self.outgoing))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.outgoing.advance(count);
        }
        ready!(Pin::new(&mut self.socket).poll_flush(cx))?;
        if self.outgoing.capacity() > OUTGOING_KEPT {
            self.outgoing = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }

    /// Read the rest of a frame's head.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if ready!(poll_read_buf(Pin::new(&mut self.socket), cx, &mut self.begun))? == 0 {
            self.seen = self.begun.split(); // the end: h2 reports the error
            return Poll::Ready(Ok(()));
        }
        self.read_at = Instant::now();
        let begun = self.frames.see_arriving(&mut self.begun);
        self.seen = self.begun.split_to(self.begun.len() - begun);
        Poll::Ready(Ok(()))
    }
}

/// A handle to the socket; h2 has one, the driving task another.
pub struct SharedBuffer<S, F>(Rc<RefCell<BufferedSocket<S, F>>>);

impl<S, F> Clone for SharedBuffer<S, F> {
    fn clone(&self) -> Self {
        SharedBuffer(self.0.clone())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin, F: ObservesFrames> SharedBuffer<S, F> {
    pub fn new(socket: S, frames: F) -> Self {
        SharedBuffer(Rc::new(RefCell::new(BufferedSocket {
            socket,
            begun: BytesMut::new(),
            seen: BytesMut::new(),
            outgoing: BytesMut::new(),
            frames,
            read_at: Instant::now(),
        })))
    }

    pub fn with<R>(&self, look: impl FnOnce(&mut BufferedSocket<S, F>) -> R) -> R {
        look(&mut self.0.borrow_mut())
    }

    /// Write what is buffered; ready when all is written.
    pub fn poll_send(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.borrow_mut().poll_send(cx)
    }

    /// Write what is buffered and close.
    pub fn poll_close(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let buffered = &mut *self.0.borrow_mut();
        ready!(buffered.poll_send(cx))?;
        Pin::new(&mut buffered.socket).poll_shutdown(cx)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin, F: ObservesFrames> SharedBuffer<S, F> {
    /// Read and discard; ready at the other side's end.
    pub fn poll_discard(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let buffered = &mut *self.0.borrow_mut();
        loop {
            buffered.begun.clear();
            if ready!(poll_read_buf(Pin::new(&mut buffered.socket), cx, &mut buffered.begun))? == 0
            {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin, F: ObservesFrames> AsyncRead for SharedBuffer<S, F> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let buffered = &mut *self.0.borrow_mut();
        loop {
            if !buffered.seen.is_empty() {
                let count = buffered.seen.len().min(buf.remaining());
                buf.put_slice(&buffered.seen.split_to(count));
                return Poll::Ready(Ok(()));
            }
            if !buffered.begun.is_empty() {
                ready!(buffered.poll_rest(cx))?;
                continue;
            }
            let before = buf.filled().len();
            ready!(Pin::new(&mut buffered.socket).poll_read(cx, buf))?;
            buffered.read_at = Instant::now();
            let end = buf.filled().len();
            let arrived = &mut buf.filled_mut()[before..];
            let begun = buffered.frames.see_arriving(arrived);
            if begun == 0 {
                return Poll::Ready(Ok(()));
            }
            buffered.begun.extend_from_slice(&buf.filled()[end - begun..]);
            buf.set_filled(end - begun);
            if begun < end - before {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin, F: ObservesFrames> AsyncWrite for SharedBuffer<S, F> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let buffered = &mut *self.0.borrow_mut();
        if buffered.outgoing.len() >= OUTGOING_MAX {
            ready!(buffered.poll_send(cx))?;
        }
        if bytes.len() >= LARGE_BYTES {
            // It grows once, not by doubling.
            buffered.outgoing.reserve(OUTGOING_ROOM.saturating_sub(buffered.outgoing.len()));
        }
        buffered.outgoing.extend_from_slice(bytes);
        buffered.frames.see_leaving(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(())) // the driving task sends, once for all frames of a round
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let buffered = &mut *self.0.borrow_mut();
        ready!(buffered.poll_send(cx))?;
        Pin::new(&mut buffered.socket).poll_shutdown(cx)
    }
}
