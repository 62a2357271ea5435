//! The layers of a server's socket: TLS, and the patches of header blocks.

use std::io;
use std::pin::Pin;
use std::task::{ready, Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::server::TlsStream;

use crate::http::authority::AuthorityPatch;
use crate::http::header_paths::PathPatch;
use crate::socket::buffered::poll_read_buf;
use crate::socket::raw::Raw;

/// The socket under HTTP.
pub enum Socket {
    Plain(Raw),
    Tls(Box<TlsStream<Raw>>),
    /// HTTP/2 on a unix socket: the path in `:authority` becomes a name.
    Patched(Box<Socket>, AuthorityPatch),
    /// HTTP/2 on a port of HTTP alone: paths that h2 would refuse are kept beside.
    WithPaths(Box<Socket>, Box<PathPatch>),
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
            Socket::WithPaths(socket, patch) => {
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
            Socket::Patched(socket, _) | Socket::WithPaths(socket, _) => {
                Pin::new(&mut **socket).poll_write(cx, buf)
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Plain(_) => Poll::Ready(Ok(())),
            Socket::Tls(socket) => Pin::new(socket).poll_flush(cx),
            Socket::Patched(socket, _) | Socket::WithPaths(socket, _) => {
                Pin::new(&mut **socket).poll_flush(cx)
            }
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Plain(socket) => Pin::new(socket).poll_shutdown(cx),
            Socket::Tls(socket) => Pin::new(socket).poll_shutdown(cx),
            Socket::Patched(socket, _) | Socket::WithPaths(socket, _) => {
                Pin::new(&mut **socket).poll_shutdown(cx)
            }
        }
    }
}
