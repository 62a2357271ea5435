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
use std::task::{ready, Context, Poll, Waker};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::unconstrained;

use crate::wire::Socket;

struct Ends {
    unread: Bytes, // read already, and given back
    unsent: Bytes, // the rest of a chunk
    socket: Socket,
}

/// The result of writing a chunk.
#[derive(Debug, PartialEq, Eq)]
pub enum Direct {
    Written,
    Begun, // the rest is sent when the connection's task is woken
    Not,
}

pub struct SharedSocket {
    ends: RefCell<Ends>,
    is_flushed: Cell<bool>, // hyper has nothing left to write
}

impl SharedSocket {
    pub fn new(socket: Socket) -> Self {
        let ends = Ends { unread: Bytes::new(), unsent: Bytes::new(), socket };
        SharedSocket { ends: RefCell::new(ends), is_flushed: Cell::new(true) }
    }

    /// Give bytes back that were read.
    pub fn unread(&self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.ends.borrow_mut().unread = bytes;
        }
    }

    pub fn has_unread(&self) -> bool {
        !self.ends.borrow().unread.is_empty()
    }

    /// Note that hyper will have something to write.
    pub fn note_buffered(&self) {
        self.is_flushed.set(false);
    }

    /// Tell whether everything is written.
    pub fn is_flushed(&self) -> bool {
        self.is_flushed.get() && self.ends.borrow().unsent.is_empty()
    }

    /// Write a chunk past hyper, as far as the socket takes it.
    pub fn write_directly(&self, chunk: &Bytes) -> Direct {
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

/// The socket as hyper uses it: hyper cannot close it, and its flushes are noted.
pub struct HyperIo(pub Rc<SharedSocket>);

impl AsyncRead for HyperIo {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.0.poll_read(cx, buf)
    }
}

impl AsyncWrite for HyperIo {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.note_buffered();
        self.0.poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = self.0.poll_flush(cx);
        self.0.is_flushed.set(flushed.is_ready());
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
    use crate::wire::{Carrier, Raw};

    #[test]
    fn what_is_written_past_hyper_keeps_its_place() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (here, mut there) = UnixStream::pair().unwrap();
            let socket = Rc::new(SharedSocket::new(Socket::Plain(Raw::new(Carrier::Unix(here)))));
            let mut hyper = HyperIo(socket.clone());
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
