//! One HTTP/2 connection to a server: begins calls, drives h2, keeps itself alive.
//!
//! Invariant: a connection is used only after the server's SETTINGS have arrived, which proves that it
//! speaks HTTP/2. It is not used for new calls after a GOAWAY; open calls go on. Pings are sent only while
//! a call or stream is open, as gRPC's servers require.

use std::cell::{Cell, RefCell};
use std::future::{poll_fn, Future};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use ::http::header::{HeaderName, CONTENT_TYPE, TE, USER_AGENT};
use ::http::{HeaderMap, HeaderValue, Method, Request, Uri, Version};
use bytes::Bytes;
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{Ping, PingPong, SendStream};
use tokio::time::{sleep_until, Sleep};

use super::environment::Environment;
use super::frame_watch::{Carrier, ClientSocket, Watch};
use super::requests::Metadata;

const STREAM_WINDOW_BYTES: u32 = 2 << 20;
// Streams with slow readers use up their part of it: other calls must not wait for that.
const CONNECTION_WINDOW_BYTES: u32 = 1 << 30;
const HEADER_LIST_BYTES_MAX: u32 = 1 << 20;
const RESET_STREAMS_MAX: usize = 1024; // cancelled calls that may still be answered
const KEEPALIVE_SLOWER_MAX: u32 = 32;
const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
const AGENT: HeaderValue = HeaderValue::from_static("kvstore-client");
const APPLICATION_GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const TRAILERS: HeaderValue = HeaderValue::from_static("trailers");

type H2 = h2::client::Connection<ClientSocket, Bytes>;

/// A connection for calls and streams.
pub struct Connection {
    pub name: Rc<str>, // of the endpoint
    socket: ClientSocket,
    sender: SendRequest<Bytes>,
    uris: Vec<Uri>, // by method
    head: HeaderMap,
    is_usable: Cell<bool>,
    running: Cell<usize>,
}

/// Counts an open call or stream of a connection, until it is dropped.
pub struct Running(Rc<Connection>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.set(self.0.running.get() - 1);
    }
}

impl Connection {
    pub fn is_usable(&self) -> bool {
        self.is_usable.get()
    }

    /// Use it for no new calls.
    pub fn give_up(&self) {
        self.is_usable.set(false);
    }

    pub fn running(self: &Rc<Self>) -> Running {
        self.running.set(self.running.get() + 1);
        Running(self.clone())
    }

    /// Return whether the server may have processed a stream.
    pub fn may_have_seen(&self, stream: u32) -> bool {
        self.socket.with(|socket| socket.frames.last_stream.is_none_or(|last| stream <= last))
    }

    /// Begin a call or stream; an error means that the connection is unusable.
    pub fn begin(
        &self,
        method: u32,
        timeout: Option<&HeaderValue>,
        metadata: Option<&Metadata>,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
        let mut request = Request::new(());
        *request.method_mut() = Method::POST;
        *request.version_mut() = Version::HTTP_2;
        *request.uri_mut() = self.uris[method as usize].clone();
        *request.headers_mut() = self.head.clone();
        if let Some(timeout) = timeout {
            request.headers_mut().insert(GRPC_TIMEOUT, timeout.clone());
        }
        for (name, value) in metadata.iter().flat_map(|metadata| metadata.iter()) {
            request.headers_mut().append(name.clone(), value.clone());
        }
        // A new handle: one that has begun a stream above the server's limit refuses the next.
        let begun = self.sender.clone().send_request(request, false);
        if begun.is_err() {
            self.is_usable.set(false);
        }
        begun
    }
}

/// The names of a new connection.
pub struct Names<'a> {
    pub endpoint: &'a Rc<str>,
    pub scheme: &'static str,
    pub authority: &'a str,
}

/// Begin HTTP/2 over a socket; returns after the server's SETTINGS.
pub async fn open(
    environment: &Rc<Environment>,
    names: Names<'_>,
    socket: Box<dyn Carrier>,
    slower: u32,
) -> Result<Driver, String> {
    let uris = environment
        .options
        .paths
        .iter()
        .map(|path| format!("{}://{}{path}", names.scheme, names.authority).parse::<Uri>())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| format!("authority {:?}: {error}", names.authority))?;
    let socket = ClientSocket::new(socket, Watch::new());
    let (sender, mut h2) = Builder::new()
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_header_list_size(HEADER_LIST_BYTES_MAX)
        .max_concurrent_reset_streams(RESET_STREAMS_MAX)
        .enable_push(false)
        .handshake::<ClientSocket, Bytes>(socket.clone())
        .await
        .map_err(|error| error.to_string())?;
    poll_fn(|cx| poll_settings(&mut h2, &socket, cx)).await?;
    let head = [(CONTENT_TYPE, APPLICATION_GRPC), (TE, TRAILERS), (USER_AGENT, AGENT)];
    let connection = Rc::new(Connection {
        name: names.endpoint.clone(),
        socket: socket.clone(),
        sender,
        uris,
        head: head.into_iter().collect(),
        is_usable: Cell::new(true),
        running: Cell::new(0),
    });
    Ok(Driver::new(environment.clone(), connection, socket, h2, slower.min(KEEPALIVE_SLOWER_MAX)))
}

/// Wait for the server's SETTINGS.
fn poll_settings(
    h2: &mut H2,
    socket: &ClientSocket,
    cx: &mut Context<'_>,
) -> Poll<Result<(), String>> {
    let polled = Pin::new(h2).poll(cx);
    if let Poll::Ready(Err(error)) = socket.poll_send(cx) {
        return Poll::Ready(Err(error.to_string()));
    }
    if socket.with(|socket| socket.frames.has_settings) {
        return Poll::Ready(Ok(()));
    }
    match polled {
        Poll::Ready(Ok(())) => Poll::Ready(Err("the server hung up".into())),
        Poll::Ready(Err(error)) => Poll::Ready(Err(error.to_string())),
        Poll::Pending => Poll::Pending,
    }
}

/// Drives a connection to its end; calls on_retired when it takes no new calls.
pub struct Driver {
    environment: Rc<Environment>,
    pub connection: Rc<Connection>,
    pub on_retired: RefCell<Option<Box<dyn FnOnce()>>>,
    socket: ClientSocket,
    h2: H2,
    pings: Option<PingPong>,
    interval: Option<Duration>,
    timer: Option<Pin<Box<Sleep>>>,
    pinged_at: Option<Instant>,
}

impl Driver {
    fn new(
        environment: Rc<Environment>,
        connection: Rc<Connection>,
        socket: ClientSocket,
        mut h2: H2,
        slower: u32,
    ) -> Self {
        let interval = environment.options.keepalive_interval.map(|interval| interval * slower);
        let timer =
            interval.map(|interval| Box::pin(sleep_until((Instant::now() + interval).into())));
        let pings = h2.ping_pong();
        let on_retired = RefCell::default();
        Driver {
            environment,
            connection,
            on_retired,
            socket,
            h2,
            pings,
            interval,
            timer,
            pinged_at: None,
        }
    }

    fn retire(&self) {
        self.connection.is_usable.set(false);
        if let Some(tell) = self.on_retired.borrow_mut().take() {
            tell();
        }
    }

    /// Ping a silent server while something is open; true when it is silent for too long.
    fn is_dead(&mut self, cx: &mut Context<'_>) -> bool {
        let (Some(timer), Some(interval)) = (&mut self.timer, self.interval) else { return false };
        let keeps_idle = self.environment.options.keeps_idle_alive;
        if let (Some(pings), Some(_)) = (&mut self.pings, self.pinged_at) {
            if pings.poll_pong(cx).is_ready() {
                self.pinged_at = None;
            }
        }
        while timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            let read_at = self.socket.with(|socket| socket.read_at);
            let becomes_idle = now >= read_at + interval;
            let next = match self.pinged_at {
                Some(pinged_at) if read_at <= pinged_at => return true,
                _ if self.connection.running.get() == 0 && !keeps_idle => now + interval,
                _ if !becomes_idle => read_at + interval,
                _ => {
                    let sent = self.pings.as_mut().map(|pings| pings.send_ping(Ping::opaque()));
                    if matches!(sent, Some(Ok(()))) {
                        self.pinged_at = Some(now);
                    }
                    cx.waker().wake_by_ref(); // h2 writes the ping in the next round
                    now + self.environment.options.keepalive_timeout
                }
            };
            timer.as_mut().reset(next.into());
        }
        false
    }
}

/// How a connection ended.
pub struct Exit {
    pub reason: String,
    pub has_too_many_pings: bool, // the server's GOAWAY says so
}

impl Future for Driver {
    type Output = Exit;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Exit> {
        let this = self.get_mut();
        this.environment.inbox.note_poll();
        let polled = Pin::new(&mut this.h2).poll(cx);
        let written: Poll<io::Result<()>> = this.socket.poll_send(cx);
        let (is_asked, has_too_many_pings) = this
            .socket
            .with(|socket| (socket.frames.last_stream.is_some(), socket.frames.has_too_many_pings));
        if is_asked {
            this.retire();
        }
        let reason = match (polled, written) {
            (Poll::Ready(Err(error)), _) => error.to_string(),
            (Poll::Ready(Ok(())), _) => "the server closed the connection".into(),
            (_, Poll::Ready(Err(error))) => error.to_string(),
            _ if this.is_dead(cx) => "no answer to a keep-alive ping".into(),
            _ => return Poll::Pending,
        };
        this.retire();
        Poll::Ready(Exit { reason, has_too_many_pings })
    }
}
