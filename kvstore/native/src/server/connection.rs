//! One connection: drives h2, dispatches its requests, keeps it alive and within its limits.
//!
//! Invariant: one task per connection and one per stream, none per unary call: a request that is complete
//! when it is first polled goes straight to the inbox; any other has a task until it is complete.

use std::future::{poll_fn, Future};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use h2::{Ping, PingPong};
use tokio::io::AsyncWriteExt;
use tokio::time::{sleep, timeout, Sleep};
use tokio_rustls::TlsAcceptor;

use crate::grpc::calls::accept;
use crate::http::authority::AuthorityPatch;
use crate::http::frames::{ServerFrames, ServerSocket};
use crate::http::header_paths::PathPatch;
use crate::http::http1;
use crate::server::call_table::CallTable;
use crate::server::connection_info::ConnectionInfo;
use crate::server::connection_state::{Conn, Payload};
use crate::server::notices::{notice, notice_stall};
use crate::server::port::{Port, Serves};
use crate::socket::layers::Socket;
use crate::socket::raw::{Carrier, Raw};
use crate::socket::stall::StallTimer;
use crate::tasks::caught;

// Calls that a client cancels before they are accepted. h2 closes the connection above 20, which an
// ordinary client that cancels a batch of calls exceeds at once.
const RESET_STREAMS_MAX: usize = 1024;
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;
const WEB_WINDOW_BYTES: u32 = 256 << 10; // of one stream on a port of HTTP alone
const WINDOW_MAX: u32 = 1 << 30;
const SEND_BUFFER_BYTES: usize = 128 << 10; // per stream, in h2
const HTTP2_BEGINNING: &[u8] = b"PRI"; // no method of HTTP/1.1 begins like this
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
const LINGER: Duration = Duration::from_secs(1);
const PING_STRIKES_MAX: u32 = 2;
// The first announces the end, the second, a round trip later, names the last stream.
const GOAWAYS_OF_A_GRACEFUL_END: u32 = 2;
const TLS_HANDSHAKE: u8 = 0x16;
// What Go's servers answer.
const PLAINTEXT_REFUSED: &[u8] =
    b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
const NAMELESS: &str = "@"; // Go's address of a client of a unix socket

/// GOAWAY: no last stream, ENHANCE_YOUR_CALM, and the text Go's clients look for.
const TOO_MANY_PINGS: &[u8] = b"\x00\x00\x16\x07\0\0\0\0\0\x7f\xff\xff\xff\0\0\0\x0btoo_many_pings";

type H2 = h2::server::Connection<ServerSocket, Payload>;

/// Removes the connection from the tables, however it ends.
struct Membership {
    table: Rc<CallTable>,
    conn: Rc<Conn>,
    id: u64,
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.table.connection_over(&self.conn);
        let count = &self.conn.port.connections;
        count.set(count.get() - 1);
        self.table.inbox.peers.release(self.conn.slot);
        self.table.connections.remove(self.id);
    }
}

/// An accepted connection, and the port with its protocols.
pub struct Arrived {
    pub carrier: Carrier,
    pub port: Rc<Port>,
    pub peer: String,
}

/// Serve a connection to its end; a panic ends it, too.
pub async fn serve(table: Rc<CallTable>, id: u64, arrived: Arrived) {
    let (reporting, peer) = (table.clone(), arrived.peer.clone());
    if let Err(text) = caught(Box::pin(serve_to_end(table, id, arrived))).await {
        reporting.inbox.add_notice(format!("connection closed: {text}: {peer}"));
    }
}

async fn serve_to_end(table: Rc<CallTable>, id: u64, arrived: Arrived) {
    let Arrived { carrier, port, peer } = arrived;
    let caller = match carrier {
        Carrier::Tcp(_) => peer.clone(),
        Carrier::Unix(_) => NAMELESS.to_owned(),
    };
    let slot = table.inbox.peers.assign(table.last_number(), caller);
    let conn = Rc::new(Conn::new(peer, slot, port.clone()));
    conn.stopping.set(table.is_draining.get());
    table.connections.open.borrow_mut().insert(id, conn.clone());
    let membership = Membership { table: table.clone(), conn: conn.clone(), id };
    let silence = table.connections.note_silent(id, &conn);
    let raw = Raw::observed(carrier, conn.stall.clone(), Some(silence));
    // In boxes, as what http1 does to talk: an idle connection keeps no room for what it is past,
    // or never speaks.
    let opening = Box::pin(async {
        let (socket, is_http1) = secure(&table, &conn, raw, &port).await?;
        if is_http1 && port.serves != Serves::Grpc {
            return Ok(Protocol::Http1(socket));
        }
        let socket = ServerSocket::new(
            match port.web {
                Some(_) => {
                    Socket::WithPaths(Box::new(socket), Box::new(PathPatch::new(conn.clone())))
                }
                None => socket,
            },
            ServerFrames::default(),
        );
        let h2 = handshake(&port, &socket).await.map_err(|error| format!("no HTTP/2: {error}"))?;
        Ok::<_, String>(Protocol::H2(socket, Box::new(h2)))
    });
    let opened = tokio::select! {
        opened = timeout(port.limits.handshake_timeout, opening) => opened,
        () = conn.grace_is_over() => return,
        () = conn.is_broken_off_now() => return,
    };
    match opened {
        Ok(Ok(Protocol::H2(socket, h2))) => {
            Box::pin(Driver::new(table.clone(), conn.clone(), socket.clone(), *h2)).await;
            drop(membership);
            if conn.is_broken_off.get() {
                return; // its descriptor is needed now
            }
            let closing = table.connections.note_closing();
            let _ = timeout(CLOSE_TIMEOUT, poll_fn(|cx| socket.poll_close(cx))).await;
            // A client that has not seen the end yet still sends. Unread bytes would make the kernel
            // reset the connection and drop unsent answers.
            let _ = timeout(LINGER, poll_fn(|cx| socket.poll_discard(cx))).await;
            drop(closing);
        }
        Ok(Ok(Protocol::Http1(socket))) => {
            if let Err(error) = http1::serve(&table, &conn, socket).await {
                // A client may disconnect, and one that was served may become silent.
                if error.is_parse() || error.is_timeout() && conn.requests.get() == 0 {
                    notice(&table, &conn, "HTTP/1.1", &error);
                }
            }
        }
        Ok(Err(error)) => notice(&table, &conn, "handshake", &error),
        Err(_) => notice(&table, &conn, "handshake", &"it takes too long"),
    }
}

enum Protocol {
    H2(ServerSocket, Box<H2>),
    Http1(Socket),
}

/// Do the TLS handshake, if there is one; return whether HTTP/1.1 follows.
async fn secure(
    table: &CallTable,
    conn: &Conn,
    mut raw: Raw,
    port: &Port,
) -> Result<(Socket, bool), String> {
    let is_unix = raw.is_unix();
    let patched = |socket: Socket, is_http1: bool| match is_unix && !is_http1 {
        true => Socket::Patched(Box::new(socket), AuthorityPatch::new()),
        false => socket,
    };
    let ended = || "the client left".to_owned();
    let mut is_tls = port.tls.is_some();
    if is_tls && (port.is_plain || port.web.is_some()) {
        let begins = raw.begins_with(&[TLS_HANDSHAKE]).await.map_err(|error| error.to_string())?;
        is_tls = begins.ok_or_else(ended)?;
        if !is_tls && !port.is_plain {
            raw.write_all(PLAINTEXT_REFUSED).await.map_err(|error| error.to_string())?;
            return Err("TLS: the client speaks none".to_owned());
        }
    }
    let Some(tls) = port.tls.as_ref().filter(|_| is_tls) else {
        let begins = raw.begins_with(HTTP2_BEGINNING).await.map_err(|error| error.to_string())?;
        let is_http1 = !begins.ok_or_else(ended)?;
        if let Some(web) = &port.web {
            conn.set_info(ConnectionInfo {
                listener: web.listener,
                peer: conn.peer.clone(),
                ..ConnectionInfo::default()
            });
        }
        return Ok((patched(Socket::Plain(raw), is_http1), is_http1));
    };
    let (config, warning) = tls.config()?;
    if let Some(warning) = warning {
        table.inbox.add_notice(warning);
    }
    let acceptor = TlsAcceptor::from(config);
    let secured = acceptor.accept(raw).await.map_err(|error| format!("TLS: {error}"))?;
    conn.is_tls.set(true);
    let session = secured.get_ref().1;
    let protocol = session.alpn_protocol();
    if let Some(web) = &port.web {
        conn.set_info(ConnectionInfo {
            peer: conn.peer.clone(),
            listener: web.listener,
            is_tls: true,
            protocol: protocol.map(|name| String::from_utf8_lossy(name).into_owned()),
            server_name: session.server_name().map(str::to_owned),
            identity: tls.identify(session.peer_certificates()),
            ..ConnectionInfo::default()
        });
    } else if let Some(name) = tls.admit(session.peer_certificates())? {
        let _ = conn.common_name.set(name); // it was empty
    }
    let is_http1 = protocol != Some(b"h2");
    Ok((patched(Socket::Tls(Box::new(secured)), is_http1), is_http1))
}

async fn handshake(port: &Port, socket: &ServerSocket) -> Result<H2, Box<dyn std::error::Error>> {
    let streams_max = port.limits.streams_max;
    let (stream_window, connection_window) = match &port.web {
        // A request whose body is not read must not block the others of its connection.
        Some(_) => (WEB_WINDOW_BYTES, streams_max.saturating_mul(WEB_WINDOW_BYTES).min(WINDOW_MAX)),
        None => (STREAM_WINDOW_BYTES, CONNECTION_WINDOW_BYTES),
    };
    let mut builder = h2::server::Builder::new();
    builder
        .initial_window_size(stream_window)
        .initial_connection_window_size(connection_window)
        .max_send_buffer_size(SEND_BUFFER_BYTES)
        .max_pending_accept_reset_streams(RESET_STREAMS_MAX)
        .max_header_list_size(port.limits.header_bytes_max);
    if streams_max < u32::MAX {
        builder.max_concurrent_streams(streams_max);
    }
    let mut handshake = builder.handshake::<ServerSocket, Payload>(socket.clone());
    poll_fn(|cx| {
        let done = Pin::new(&mut handshake).poll(cx);
        match socket.poll_send(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error.into())),
            _ => done.map_err(Into::into),
        }
    })
    .await
}

/// Drives h2 until the connection is over.
struct Driver {
    table: Rc<CallTable>,
    conn: Rc<Conn>,
    socket: ServerSocket,
    h2: H2,
    pings: Option<PingPong>,
    ping_strikes: u32,
    last_ping_at: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
    pinged_at: Option<Instant>,
    idle: Option<Idle>,
    stall_timer: StallTimer,
    is_draining: bool,
}

/// Checks at intervals whether a connection had no request since the last check.
struct Idle {
    timeout: Duration,
    timer: Pin<Box<Sleep>>,
    requests_seen: u64,
    requests: u64,
}

impl Idle {
    fn new(timeout: Duration) -> Self {
        let timer = Box::pin(sleep(timeout));
        Idle { timeout, timer, requests_seen: 0, requests: 0 }
    }

    fn poll(&mut self, cx: &mut Context<'_>, has_open: bool) -> bool {
        while self.timer.as_mut().poll(cx).is_ready() {
            if !has_open && self.requests == self.requests_seen {
                return true;
            }
            self.requests_seen = self.requests;
            self.timer.as_mut().reset((Instant::now() + self.timeout).into());
        }
        false
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        this.table.inbox.note_poll();
        if this.conn.waker.borrow().is_none() {
            *this.conn.waker.borrow_mut() = Some(cx.waker().clone());
        }
        let is_idle = !this.is_draining && this.is_idle(cx);
        if (this.conn.stopping.get() || is_idle) && !this.is_draining {
            this.is_draining = true;
            this.h2.graceful_shutdown();
        }
        let is_over = this.advance(cx)
            || this.conn.is_broken_off.get()
            || this.has_too_many_pings()
            || matches!(this.socket.poll_send(cx), Poll::Ready(Err(_)))
            || this.is_stalled(cx)
            || this.is_dead(cx);
        if this.is_draining {
            let goaways = this.socket.with(|socket| socket.frames.outgoing.goaways);
            this.conn.is_closing.set(goaways >= GOAWAYS_OF_A_GRACEFUL_END);
        }
        if is_over {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

impl Driver {
    fn new(table: Rc<CallTable>, conn: Rc<Conn>, socket: ServerSocket, mut h2: H2) -> Self {
        let limits = &conn.port.limits;
        let timer = limits.ping.as_ref().map(|ping| Box::pin(sleep(ping.interval)));
        let idle = conn.port.web.as_ref().map(|web| Idle::new(web.idle_timeout));
        let stall_timer = StallTimer::new(limits.write_stall);
        Driver {
            idle,
            table,
            conn,
            socket,
            pings: h2.ping_pong(),
            h2,
            ping_strikes: 0,
            last_ping_at: None,
            timer,
            pinged_at: None,
            stall_timer,
            is_draining: false,
        }
    }

    /// Let h2 read and write, and accept requests; true when the connection has ended.
    fn advance(&mut self, cx: &mut Context<'_>) -> bool {
        let is_over = loop {
            match self.h2.poll_accept(cx) {
                Poll::Ready(Some(Ok((mut request, respond)))) => {
                    if self.conn.has_lost_targets() {
                        notice(&self.table, &self.conn, "HTTP/2", &"too many long paths at once");
                        break true;
                    }
                    if let Some(target) = self.conn.take_target(respond.stream_id().as_u32()) {
                        request.extensions_mut().insert(target);
                    }
                    self.conn.note_active();
                    if let Some(idle) = &mut self.idle {
                        idle.requests += 1;
                    }
                    accept(&self.table, &self.conn, request, respond);
                }
                Poll::Ready(Some(Err(error))) => {
                    if !error.is_io() && !error.is_go_away() || error.is_library() {
                        notice(&self.table, &self.conn, "HTTP/2", &error);
                    }
                    break true;
                }
                Poll::Ready(None) => break true,
                Poll::Pending => break false,
            }
        };
        // After h2 has handled them, too: a call is in the inbox before its end is.
        let resets = self.socket.with(|socket| std::mem::take(&mut socket.frames.incoming.resets));
        for stream in resets {
            let id = self.conn.open.borrow().get(&stream).copied();
            if let Some(id) = id {
                self.table.client_disconnected(id);
            }
        }
        is_over
    }

    fn is_idle(&mut self, cx: &mut Context<'_>) -> bool {
        let has_open = !self.conn.open.borrow().is_empty();
        self.idle.as_mut().is_some_and(|idle| idle.poll(cx, has_open))
    }

    /// Enforce the minimum interval of pings, as grpc-go does; a port of HTTP has none.
    fn has_too_many_pings(&mut self) -> bool {
        let pings = self.socket.with(|socket| {
            if std::mem::take(&mut socket.frames.outgoing.carried) {
                self.ping_strikes = 0;
            }
            std::mem::take(&mut socket.frames.incoming.pings)
        });
        if pings == 0 || self.conn.port.web.is_some() {
            return false;
        }
        let now = Instant::now();
        let minimum = self.table.options.keepalive_min;
        let is_early = self.last_ping_at.is_some_and(|last| now - last < minimum);
        self.last_ping_at = Some(now);
        self.ping_strikes += pings - 1 + u32::from(is_early);
        if self.ping_strikes <= PING_STRIKES_MAX {
            return false;
        }
        notice(&self.table, &self.conn, "keep-alive", &"too many pings");
        self.socket.with(|socket| {
            // Not in the middle of a frame of h2's.
            if socket.frames.outgoing.is_between_frames() {
                socket.append_frame(TOO_MANY_PINGS);
            }
        });
        true
    }

    /// Return whether the socket has taken nothing for too long.
    fn is_stalled(&mut self, cx: &mut Context<'_>) -> bool {
        let is_stalled = self.stall_timer.poll(&self.conn.stall, cx).is_ready();
        if is_stalled {
            notice_stall(&self.table, &self.conn);
        }
        is_stalled
    }

    /// Ping a silent client; true when it is silent for too long.
    fn is_dead(&mut self, cx: &mut Context<'_>) -> bool {
        let (Some(timer), Some(ping)) = (&mut self.timer, &self.conn.port.limits.ping) else {
            return false;
        };
        let interval = ping.interval;
        if let (Some(pings), Some(_)) = (&mut self.pings, self.pinged_at) {
            if pings.poll_pong(cx).is_ready() {
                self.pinged_at = None;
            }
        }
        while timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            let read_at = self.socket.with(|socket| socket.read_at);
            let next = match self.pinged_at {
                Some(pinged_at) if read_at <= pinged_at => {
                    notice(&self.table, &self.conn, "keep-alive", &"no answer to a ping");
                    return true;
                }
                _ if now < read_at + interval => read_at + interval,
                _ => {
                    let sent = self.pings.as_mut().map(|pings| pings.send_ping(Ping::opaque()));
                    if matches!(sent, Some(Ok(()))) {
                        self.pinged_at = Some(now);
                    }
                    cx.waker().wake_by_ref(); // h2 writes the ping in the next round
                    now + ping.timeout
                }
            };
            timer.as_mut().reset(next.into());
        }
        false
    }
}
