//! An accepted connection: its first bytes may be looked at, and it is noted when it takes nothing.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{ready, Context, Poll};

use bytes::BytesMut;
use rustix::net::{send, SendFlags};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use crate::server::connections::Silence;
use crate::socket::stall::Stall;

const LOOK_BYTES: usize = 256;

/// A connection as it was accepted.
pub enum Carrier {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A connection whose first bytes may have been read ahead.
pub struct Raw {
    carrier: Carrier,
    unread: BytesMut,
    stall: Rc<Stall>,
    silence: Option<Silence>, // until the first byte arrives
}

impl Raw {
    #[cfg(test)]
    pub fn new(carrier: Carrier) -> Self {
        Raw::observed(carrier, Rc::default(), None)
    }

    /// With the notes of when it is blocked, and that it has sent nothing yet.
    pub fn observed(carrier: Carrier, stall: Rc<Stall>, silence: Option<Silence>) -> Self {
        Raw { carrier, unread: BytesMut::new(), stall, silence }
    }

    fn poll_carrier(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(self.carrier.poll_read(cx, buf))?;
        if buf.filled().len() > before {
            self.silence = None;
        }
        Poll::Ready(Ok(()))
    }

    /// Note whether the socket took something; bytes: some of what it did not.
    fn noted(&self, written: Poll<io::Result<usize>>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.stall.note_progress();
            return written;
        }
        self.stall.note_blocked();
        if self.stall.takes_probe() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            if let Ok(count @ 1..) = send(&self.carrier, bytes, flags) {
                self.stall.note_progress();
                return Poll::Ready(Ok(count));
            }
        }
        Poll::Pending
    }

    pub fn is_unix(&self) -> bool {
        matches!(self.carrier, Carrier::Unix(_))
    }

    /// Return whether the first bytes are these; none if the connection ends before that is known.
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
            poll_fn(|cx| self.poll_carrier(cx, &mut buf)).await?;
            if buf.filled().is_empty() {
                return Ok(None);
            }
            self.unread.extend_from_slice(buf.filled());
        }
    }
}

impl AsFd for Carrier {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Carrier::Tcp(stream) => stream.as_fd(),
            Carrier::Unix(stream) => stream.as_fd(),
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
            return this.poll_carrier(cx, buf);
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
        let this = self.get_mut();
        let written = match &mut this.carrier {
            Carrier::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            Carrier::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
        };
        this.noted(written, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = match &mut this.carrier {
            Carrier::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Carrier::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        };
        let first = bufs.iter().find(|buf| !buf.is_empty());
        this.noted(written, first.map_or(&[], |buf| buf))
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
