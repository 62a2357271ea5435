//! A socket with a send buffer, shared by h2 and the task that drives it.
//!
//! ```text
//! h2 ──► poll_write ──► outgoing buffer ──► send (the driving task, once a round) ──► socket
//! h2 ◄── poll_read  ◄── socket            both directions pass a FrameObserver
//! ```
//!
//! All frames of one round are sent in one system call. The buffer is bounded: above `OUTGOING_MAX` a
//! write waits for the socket.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{ready, Context, Poll};
use std::time::Instant;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;

use crate::authority::AuthorityPatch;
use crate::frames::FrameObserver;

const OUTGOING_MAX: usize = 64 << 10;
const LARGE_BYTES: usize = 4 << 10; // of one write; more like it follow
const OUTGOING_ROOM: usize = OUTGOING_MAX + (24 << 10); // and for what is above when it is full
const OUTGOING_KEPT: usize = 16 << 10; // capacity an idle connection keeps
const READ_BYTES: usize = 16 << 10;
const LOOK_BYTES: usize = 256;
const PREFACE_BYTES: usize = 24;

/// A connection as it was accepted.
pub enum Carrier {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A connection whose first bytes may have been read ahead.
pub struct Raw {
    carrier: Carrier,
    unread: BytesMut,
}

impl Raw {
    pub fn new(carrier: Carrier) -> Self {
        Raw { carrier, unread: BytesMut::new() }
    }

    pub fn is_unix(&self) -> bool {
        matches!(self.carrier, Carrier::Unix(_))
    }

    /// Tell whether the first bytes are these; none if the connection ends before that is known.
    pub async fn begins_with(&mut self, beginning: &[u8]) -> io::Result<Option<bool>> {
        loop {
            let count = self.unread.len().min(beginning.len());
            if self.unread[..count] != beginning[..count] {
                return Ok(Some(false));
            }
            if count == beginning.len() {
                return Ok(Some(true));
            }
            let mut bytes = [0; LOOK_BYTES];
            let mut buf = ReadBuf::new(&mut bytes);
            poll_fn(|cx| self.carrier.poll_read(cx, &mut buf)).await?;
            if buf.filled().is_empty() {
                return Ok(None);
            }
            self.unread.extend_from_slice(buf.filled());
        }
    }
}

impl Carrier {
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self {
            Carrier::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Carrier::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncRead for Raw {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.unread.is_empty() {
            return this.carrier.poll_read(cx, buf);
        }
        let count = this.unread.len().min(buf.remaining());
        buf.put_slice(&this.unread.split_to(count));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Raw {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().carrier {
            Carrier::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            Carrier::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().carrier {
            Carrier::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Carrier::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    /// TLS has a buffer a record: all that are due go in one system call.
    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(())) // the kernel sends its buffers
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().carrier {
            Carrier::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Carrier::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// The socket under HTTP.
pub enum Socket {
    Plain(Raw),
    Tls(Box<TlsStream<Raw>>),
    /// HTTP/2 on a unix socket: the path in `:authority` becomes a name.
    Patched(Box<Socket>, AuthorityPatch),
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Plain(socket) => Pin::new(socket).poll_read(cx, buf),
            Socket::Tls(socket) => Pin::new(socket).poll_read(cx, buf),
            Socket::Patched(socket, patch) => {
                while patch.readable().is_empty() {
                    if ready!(poll_read_buf(Pin::new(&mut **socket), cx, patch.buffer()))? == 0 {
                        patch.finish();
                        break;
                    }
                }
                let readable = patch.readable();
                let count = readable.len().min(buf.remaining());
                buf.put_slice(&readable[..count]);
                patch.consume(count);
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Socket::Plain(socket) => Pin::new(socket).poll_write(cx, buf),
            Socket::Tls(socket) => Pin::new(socket).poll_write(cx, buf),
            Socket::Patched(socket, _) => Pin::new(&mut **socket).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Plain(_) => Poll::Ready(Ok(())),
            Socket::Tls(socket) => Pin::new(socket).poll_flush(cx),
            Socket::Patched(socket, _) => Pin::new(&mut **socket).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Plain(socket) => Pin::new(socket).poll_shutdown(cx),
            Socket::Tls(socket) => Pin::new(socket).poll_shutdown(cx),
            Socket::Patched(socket, _) => Pin::new(&mut **socket).poll_shutdown(cx),
        }
    }
}

fn poll_read_buf(
    socket: Pin<&mut Socket>,
    cx: &mut Context<'_>,
    out: &mut BytesMut,
) -> Poll<io::Result<usize>> {
    let mut bytes = [0; READ_BYTES];
    let mut buf = ReadBuf::new(&mut bytes);
    ready!(socket.poll_read(cx, &mut buf))?;
    out.extend_from_slice(buf.filled());
    Poll::Ready(Ok(buf.filled().len()))
}

/// The socket, its buffer, and the observers of its frames.
pub struct BufferedSocket {
    socket: Socket,
    begun: BytesMut, // an incomplete head of a frame
    seen: BytesMut,  // complete heads and payload, not read by h2 yet
    outgoing: BytesMut,
    pub incoming_frames: FrameObserver,
    pub outgoing_frames: FrameObserver,
    pub read_at: Instant,
}

impl BufferedSocket {
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
        let begun = self.incoming_frames.see_arriving(&mut self.begun);
        self.seen = self.begun.split_to(self.begun.len() - begun);
        Poll::Ready(Ok(()))
    }

    /// Append a frame of our own, if h2 is not in the middle of one.
    pub fn append_frame(&mut self, frame: &[u8]) -> bool {
        let fits = self.outgoing_frames.is_between_frames();
        if fits {
            self.outgoing.extend_from_slice(frame);
        }
        fits
    }
}

/// A handle to the socket; h2 has one, the driving task another.
#[derive(Clone)]
pub struct Wire(Rc<RefCell<BufferedSocket>>);

impl Wire {
    pub fn new(socket: Socket) -> Self {
        Wire(Rc::new(RefCell::new(BufferedSocket {
            socket,
            begun: BytesMut::new(),
            seen: BytesMut::new(),
            outgoing: BytesMut::new(),
            incoming_frames: FrameObserver::new(PREFACE_BYTES),
            outgoing_frames: FrameObserver::new(0),
            read_at: Instant::now(),
        })))
    }

    pub fn with<R>(&self, look: impl FnOnce(&mut BufferedSocket) -> R) -> R {
        look(&mut self.0.borrow_mut())
    }

    /// Write what is buffered; ready when all is written.
    pub fn poll_send(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.borrow_mut().poll_send(cx)
    }

    /// Write what is buffered and close.
    pub fn poll_close(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let line = &mut *self.0.borrow_mut();
        ready!(line.poll_send(cx))?;
        Pin::new(&mut line.socket).poll_shutdown(cx)
    }
}

impl Wire {
    /// Read and discard; ready at the other side's end.
    pub fn poll_discard(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let line = &mut *self.0.borrow_mut();
        loop {
            line.begun.clear();
            if ready!(poll_read_buf(Pin::new(&mut line.socket), cx, &mut line.begun))? == 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let line = &mut *self.0.borrow_mut();
        loop {
            if !line.seen.is_empty() {
                let count = line.seen.len().min(buf.remaining());
                buf.put_slice(&line.seen.split_to(count));
                return Poll::Ready(Ok(()));
            }
            if !line.begun.is_empty() {
                ready!(line.poll_rest(cx))?;
                continue;
            }
            let before = buf.filled().len();
            ready!(Pin::new(&mut line.socket).poll_read(cx, buf))?;
            line.read_at = Instant::now();
            let end = buf.filled().len();
            let arrived = &mut buf.filled_mut()[before..];
            let begun = line.incoming_frames.see_arriving(arrived);
            if begun == 0 {
                return Poll::Ready(Ok(()));
            }
            line.begun.extend_from_slice(&buf.filled()[end - begun..]);
            buf.set_filled(end - begun);
            if begun < end - before {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let line = &mut *self.0.borrow_mut();
        if line.outgoing.len() >= OUTGOING_MAX {
            ready!(line.poll_send(cx))?;
        }
        if bytes.len() >= LARGE_BYTES {
            line.outgoing.reserve(OUTGOING_ROOM.saturating_sub(line.outgoing.len())); // grow once, not by doubling
        }
        line.outgoing.extend_from_slice(bytes);
        line.outgoing_frames.see(bytes);
        line.incoming_frames.is_ending = line.outgoing_frames.goaways > 0;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(())) // the driving task sends, once for all frames of a round
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let line = &mut *self.0.borrow_mut();
        ready!(line.poll_send(cx))?;
        Pin::new(&mut line.socket).poll_shutdown(cx)
    }
}
