//! The sockets that are listened on.
//!
//! An unspecified address, `0.0.0.0` or `::`, takes IPv6 and IPv4 on one socket, as in Go's servers; where
//! the host has no IPv6, `0.0.0.0` takes IPv4. Any other address takes its own family.

use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::net::sockopt::{
    set_ipv6_v6only, set_socket_keepalive, set_tcp_keepidle, set_tcp_keepintvl,
};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener};

use crate::socket::raw::Carrier;

const LISTEN_BACKLOG: u32 = 4096;
const TCP_KEEPALIVE: Duration = Duration::from_secs(15); // as Go's listeners have it

/// Where to listen.
#[derive(Clone, Debug)]
pub enum ListenAddress {
    Tcp { host: String, port: u16, is_shared: bool }, // shared: with SO_REUSEPORT
    Unix { path: String },
}

pub enum Listening {
    Tcp(TcpListener),
    Unix(UnixListener, String),
}

impl Listening {
    /// Accept a connection; return it with the client's address.
    pub async fn accept(&self) -> io::Result<(Carrier, String)> {
        match self {
            Listening::Tcp(listener) => {
                let (socket, peer) = listener.accept().await?;
                tune(&socket);
                let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
                Ok((Carrier::Tcp(socket), peer.to_string()))
            }
            Listening::Unix(listener, path) => {
                let (socket, _) = listener.accept().await?;
                Ok((Carrier::Unix(socket), path.clone()))
            }
        }
    }
}

impl AsFd for Listening {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listening::Tcp(listener) => listener.as_fd(),
            Listening::Unix(listener, _) => listener.as_fd(),
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let Listening::Unix(_, path) = self {
            let _ = std::fs::remove_file(path); // the next server takes a stale socket over
        }
    }
}

/// Bind and listen; return the port, too, 0 of a unix socket.
pub async fn bind(address: &ListenAddress) -> io::Result<(Listening, u16)> {
    match address {
        ListenAddress::Unix { path } => {
            let listener = UnixListener::bind(path)?;
            Ok((Listening::Unix(listener, path.clone()), 0))
        }
        ListenAddress::Tcp { host, port, is_shared } => {
            let mut found = tokio::net::lookup_host((host.as_str(), *port)).await?;
            let address =
                found.next().ok_or_else(|| io::Error::other("the name has no address"))?;
            let listener = bound(address, *is_shared)?.listen(LISTEN_BACKLOG)?;
            let port = listener.local_addr()?.port();
            Ok((Listening::Tcp(listener), port))
        }
    }
}

fn bound(address: SocketAddr, is_shared: bool) -> io::Result<TcpSocket> {
    if address.ip().is_unspecified() {
        let every = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), address.port());
        match bound_to(every, is_shared, true) {
            Err(error) if address.is_ipv4() && has_no_ipv6(&error) => {}
            result => return result,
        }
    }
    bound_to(address, is_shared, false)
}

fn has_no_ipv6(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let missing = [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL, Errno::PROTONOSUPPORT];
    missing.iter().any(|each| error.raw_os_error() == Some(each.raw_os_error()))
}

fn bound_to(address: SocketAddr, is_shared: bool, has_both: bool) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    if has_both {
        set_ipv6_v6only(&socket, false)?;
    }
    socket.set_reuseaddr(true)?;
    #[cfg(unix)]
    socket.set_reuseport(is_shared)?;
    socket.bind(address)?;
    Ok(socket)
}

/// Set socket options; if that fails the connection is slower, or a dead client is detected later.
fn tune(socket: &TcpStream) {
    let _ = socket.set_nodelay(true);
    let _ = set_socket_keepalive(socket, true);
    let _ = set_tcp_keepidle(socket, TCP_KEEPALIVE);
    let _ = set_tcp_keepintvl(socket, TCP_KEEPALIVE);
}
