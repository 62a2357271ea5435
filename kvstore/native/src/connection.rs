//! One connection: drives h2, takes its requests apart, keeps it alive and within its limits.
//!
//! Law: one task per connection and one per stream, none per unary call: a request that is whole
//! when it is seen goes straight to the inbox, and one that is not has a task until it is.

use std::future::{poll_fn, Future};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use h2::{Ping, PingPong};
use tokio::time::{sleep_until, timeout, Sleep};
use tokio_rustls::TlsAcceptor;

use crate::authority::AuthorityPatch;
use crate::calls::accept;
use crate::http1;
use crate::switchboard::{Conn, Payload, Switchboard};
use crate::tls::Tls;
use crate::wire::{Carrier, Raw, Socket, Wire};

// Calls that a client cancels before they are looked at. h2 hangs up above 20, which an innocent
// client that gives up a batch of calls is past at once.
const RESET_STREAMS_MAX: usize = 1024;
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;
const SEND_BUFFER_BYTES: usize = 128 << 10; // per stream, in h2
const HTTP2_BEGINNING: &[u8] = b"PRI"; // no method of HTTP/1.1 begins so
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
const PING_STRIKES_MAX: u32 = 2;
// The first asks for no more, the second, a round trip later, names the last stream that counts.
const GOAWAYS_OF_A_GRACEFUL_END: u32 = 2;
const TLS_HANDSHAKE: u8 = 0x16;
const NAMELESS: &str = "@"; // a client at a unix socket has no address; Go shows it so

/// GOAWAY: no last stream, ENHANCE_YOUR_CALM, and the words Go's clients look for.
const TOO_MANY_PINGS: &[u8] = b"\x00\x00\x16\x07\0\0\0\0\0\x7f\xff\xff\xff\0\0\0\x0btoo_many_pings";

type H2 = h2::server::Connection<Wire, Payload>;

/// Removes the connection from the tables, however it ends.
struct Membership {
    board: Rc<Switchboard>,
    conn: Rc<Conn>,
    id: u64,
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.board.connection_over(&self.conn);
        self.board.connections.borrow_mut().remove(&self.id);
        self.board.inbox.callers.leave(self.conn.slot);
        self.board.connection_closed.notify_one();
    }
}

/// A connection that was accepted, and what may be spoken on it.
pub struct Arrived {
    pub carrier: Carrier,
    pub port: Rc<Port>,
    pub peer: String,
}

/// What is served at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serves {
    All,
    Grpc,
    Http,
}

/// What may be spoken at an address.
pub struct Port {
    pub serves: Serves,
    pub is_plain: bool,
    pub tls: Option<Rc<Tls>>,
}

/// Serve a connection to its end.
pub async fn serve(board: Rc<Switchboard>, id: u64, arrived: Arrived) {
    let Arrived { carrier, port, peer } = arrived;
    let caller = match carrier {
        Carrier::Tcp(_) => peer.clone(),
        Carrier::Unix(_) => NAMELESS.to_owned(),
    };
    let slot = board.inbox.callers.enter(board.last_number(), caller);
    let conn = Rc::new(Conn::new(peer, slot, port.serves));
    conn.stopping.set(board.stopping.get());
    board.connections.borrow_mut().insert(id, conn.clone());
    let membership = Membership { board: board.clone(), conn: conn.clone(), id };
    let opening = async {
        let (socket, is_http1) = secure(&board, &conn, Raw::new(carrier), &port).await?;
        if is_http1 && port.serves != Serves::Grpc {
            return Ok(Spoken::Http1(socket));
        }
        let wire = Wire::new(socket);
        let h2 = handshake(&board, &wire).await.map_err(|error| format!("no HTTP/2: {error}"))?;
        Ok::<_, String>(Spoken::H2(wire, Box::new(h2)))
    };
    match timeout(board.options.handshake_timeout, opening).await {
        Ok(Ok(Spoken::H2(wire, h2))) => {
            Driver::new(board, conn, wire.clone(), *h2).await;
            drop(membership);
            let _ = timeout(CLOSE_TIMEOUT, poll_fn(|cx| wire.poll_close(cx))).await;
        }
        Ok(Ok(Spoken::Http1(socket))) => {
            if let Err(error) = http1::serve(&board, &conn, socket).await {
                // A client may leave, and one that was served may fall silent.
                if error.is_parse() || error.is_timeout() && !conn.is_used.get() {
                    notice(&board, &conn, "HTTP/1.1", &error);
                }
            }
        }
        Ok(Err(error)) => notice(&board, &conn, "handshake", &error),
        Err(_) => notice(&board, &conn, "handshake", &"it takes too long"),
    }
}

enum Spoken {
    H2(Wire, Box<H2>),
    Http1(Socket),
}

/// Do the TLS handshake, where it is TLS that is spoken; tell whether HTTP/1.1 follows.
async fn secure(
    board: &Switchboard,
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
    if port.is_plain && is_tls {
        let begins = raw.begins_with(&[TLS_HANDSHAKE]).await.map_err(|error| error.to_string())?;
        is_tls = begins.ok_or_else(ended)?;
    }
    let Some(tls) = port.tls.as_ref().filter(|_| is_tls) else {
        let begins = raw.begins_with(HTTP2_BEGINNING).await.map_err(|error| error.to_string())?;
        let is_http1 = !begins.ok_or_else(ended)?;
        return Ok((patched(Socket::Plain(raw), is_http1), is_http1));
    };
    let (config, warning) = tls.config()?;
    if let Some(warning) = warning {
        board.inbox.add_notice(warning);
    }
    let acceptor = TlsAcceptor::from(config);
    let secured = acceptor.accept(raw).await.map_err(|error| format!("TLS: {error}"))?;
    conn.is_tls.set(true);
    if let Some(name) = tls.admit(secured.get_ref().1.peer_certificates())? {
        let _ = conn.common_name.set(name); // it was empty
    }
    let is_http1 = secured.get_ref().1.alpn_protocol() != Some(b"h2");
    Ok((patched(Socket::Tls(Box::new(secured)), is_http1), is_http1))
}

fn notice(board: &Switchboard, conn: &Conn, what: &str, why: &dyn std::fmt::Display) {
    board.inbox.add_notice(format!("connection closed: {what}: {why}: {}", conn.peer));
}

async fn handshake(board: &Switchboard, wire: &Wire) -> Result<H2, Box<dyn std::error::Error>> {
    let mut builder = h2::server::Builder::new();
    builder
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buffer_size(SEND_BUFFER_BYTES)
        .max_pending_accept_reset_streams(RESET_STREAMS_MAX)
        .max_header_list_size(board.options.metadata_bytes_max);
    if board.options.concurrent_streams_max < u32::MAX {
        builder.max_concurrent_streams(board.options.concurrent_streams_max);
    }
    let mut handshake = builder.handshake::<Wire, Payload>(wire.clone());
    poll_fn(|cx| {
        let done = Pin::new(&mut handshake).poll(cx);
        match wire.poll_send(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error.into())),
            _ => done.map_err(Into::into),
        }
    })
    .await
}

/// Drives h2 until the connection is over.
struct Driver {
    board: Rc<Switchboard>,
    conn: Rc<Conn>,
    wire: Wire,
    h2: H2,
    pings: Option<PingPong>,
    ping_strikes: u32,
    last_ping_at: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
    pinged_at: Option<Instant>,
    is_draining: bool,
}

impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        this.board.inbox.note_look();
        if this.conn.waker.borrow().is_none() {
            *this.conn.waker.borrow_mut() = Some(cx.waker().clone());
        }
        if this.conn.stopping.get() && !this.is_draining {
            this.is_draining = true;
            this.h2.graceful_shutdown();
        }
        let is_over = this.advance(cx)
            || this.conn.overfull.get()
            || this.has_too_many_pings()
            || matches!(this.wire.poll_send(cx), Poll::Ready(Err(_)))
            || this.is_dead(cx);
        if this.is_draining {
            let goaways = this.wire.with(|line| line.outgoing_watch.goaways);
            this.conn.is_dismissed.set(goaways >= GOAWAYS_OF_A_GRACEFUL_END);
        }
        if is_over {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

impl Driver {
    fn new(board: Rc<Switchboard>, conn: Rc<Conn>, wire: Wire, mut h2: H2) -> Self {
        let interval = board.options.keepalive_interval;
        let timer =
            interval.map(|interval| Box::pin(sleep_until((Instant::now() + interval).into())));
        Driver {
            board,
            conn,
            wire,
            pings: h2.ping_pong(),
            h2,
            ping_strikes: 0,
            last_ping_at: None,
            timer,
            pinged_at: None,
            is_draining: false,
        }
    }

    /// Let h2 read and write, and take what arrived; true when the connection is over.
    fn advance(&mut self, cx: &mut Context<'_>) -> bool {
        let is_over = loop {
            match self.h2.poll_accept(cx) {
                Poll::Ready(Some(Ok((request, respond)))) => {
                    accept(&self.board, &self.conn, request, respond);
                }
                Poll::Ready(Some(Err(error))) => {
                    if !error.is_io() && !error.is_go_away() || error.is_library() {
                        notice(&self.board, &self.conn, "HTTP/2", &error);
                    }
                    break true;
                }
                Poll::Ready(None) => break true,
                Poll::Pending => break false,
            }
        };
        // After h2 has seen them too: a call is announced before it is told gone.
        let resets = self.wire.with(|line| std::mem::take(&mut line.incoming_watch.resets));
        for stream in resets {
            let id = self.conn.open.borrow().get(&stream).copied();
            if let Some(id) = id {
                self.board.client_gone(id);
            }
        }
        is_over
    }

    /// Hold the client to the least time between pings, as grpc-go does.
    fn has_too_many_pings(&mut self) -> bool {
        let pings = self.wire.with(|line| {
            if std::mem::take(&mut line.outgoing_watch.carried) {
                self.ping_strikes = 0;
            }
            std::mem::take(&mut line.incoming_watch.pings)
        });
        if pings == 0 {
            return false;
        }
        let now = Instant::now();
        let minimum = self.board.options.keepalive_min;
        let is_early = self.last_ping_at.is_some_and(|last| now - last < minimum);
        self.last_ping_at = Some(now);
        self.ping_strikes += pings - 1 + u32::from(is_early);
        if self.ping_strikes <= PING_STRIKES_MAX {
            return false;
        }
        notice(&self.board, &self.conn, "keep-alive", &"too many pings");
        self.wire.with(|line| line.append_frame(TOO_MANY_PINGS));
        true
    }

    /// Ping a client that says nothing; true when it is silent for too long.
    fn is_dead(&mut self, cx: &mut Context<'_>) -> bool {
        let (Some(timer), Some(interval)) =
            (&mut self.timer, self.board.options.keepalive_interval)
        else {
            return false;
        };
        if let (Some(pings), Some(_)) = (&mut self.pings, self.pinged_at) {
            if pings.poll_pong(cx).is_ready() {
                self.pinged_at = None;
            }
        }
        while timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            let read_at = self.wire.with(|line| line.read_at);
            let next = match self.pinged_at {
                Some(pinged_at) if read_at <= pinged_at => {
                    notice(&self.board, &self.conn, "keep-alive", &"no answer to a ping");
                    return true;
                }
                _ if now < read_at + interval => read_at + interval,
                _ => {
                    let sent = self.pings.as_mut().map(|pings| pings.send_ping(Ping::opaque()));
                    if matches!(sent, Some(Ok(()))) {
                        self.pinged_at = Some(now);
                    }
                    cx.waker().wake_by_ref(); // h2 writes the ping in the next round
                    now + self.board.options.keepalive_timeout
                }
            };
            timer.as_mut().reset(next.into());
        }
        false
    }
}
