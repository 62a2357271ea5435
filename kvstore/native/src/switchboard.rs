//! The calls and streams that are open, and the way of an outbox to them. Loop thread only.
//!
//! Law: a call is in the switchboard exactly from its arrival in the inbox until its answer was
//! handed over or its client went away; in the latter case, and only then, it is told gone, once.
//! A stream stays until its end was handed to h2; one that is cut for its own fault is told gone.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use ::http::StatusCode;
use bytes::{Buf, Bytes};
use h2::server::SendResponse;
use h2::Reason;
use tokio::sync::Notify;
use tokio::task::spawn_blocking;

use crate::callers::id_of;
use crate::connection::Serves;
use crate::grpc::{self, Assembling, Status, PREFIX_BYTES};
use crate::inbox::Inbox;
use crate::outbox::Outbox;
use crate::outgoing::Outgoing;

const COMPRESSED_ELSEWHERE_BYTES: usize = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Unary,
    ServerStream,
    Bidi,
}

#[derive(Clone, Copy, Debug)]
pub struct Route {
    pub method: u32,
    pub kind: Kind,
    pub ends_by_itself: bool, // the answers of a server stream do, or it goes on
}

#[derive(Clone, Debug)]
pub struct Options {
    pub request_bytes_max: usize,
    pub http_body_bytes_max: usize, // of a body that is handed over whole
    pub stream_backlog_bytes_max: usize,
    pub connection_backlog_bytes_max: usize,
    pub assembling_bytes_max: usize,
    pub metadata_bytes_max: u32,
    pub concurrent_streams_max: u32,
    pub connections_max: usize,
    pub handshake_timeout: Duration,
    pub keepalive_min: Duration,
    pub keepalive_interval: Option<Duration>,
    pub keepalive_timeout: Duration,
    pub header_timeout: Duration, // HTTP/1.1: from one request to the headers of the next
    pub send_bytes_max: usize,
}

/// Ids are small numbers in order: one multiplication spreads them.
#[derive(Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(self.0 ^ u64::from(*byte));
        }
    }

    fn write_u32(&mut self, id: u32) {
        self.write_u64(u64::from(id));
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = id.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(26);
    }
}

pub type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// What waits unsent on one stream: `queued - sent` message bytes. Shared with the driver's thread.
#[derive(Default)]
pub struct Lag {
    pub queued: AtomicU64, // by the driver's thread, at flush
    pub sent: AtomicU64,   // by the loop thread
    pub drain_wanted: AtomicBool,
}

#[derive(Default)]
pub struct Lags(Mutex<IdMap<u64, Arc<Lag>>>);

impl Lags {
    pub fn lock(&self) -> MutexGuard<'_, IdMap<u64, Arc<Lag>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes on their way out, counted against their connection until h2 lets go of them.
pub struct Payload {
    bytes: Bytes,
    size: usize,
    held: Rc<Cell<usize>>,
}

impl Buf for Payload {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        self.held.set(self.held.get() - self.size);
    }
}

/// What calls know of their connection.
pub struct Conn {
    pub peer: String,
    pub slot: u32, // in its calls' ids
    pub serves: Serves,
    pub common_name: OnceCell<String>, // of the client's verified certificate
    pub is_tls: Cell<bool>,
    pub is_used: Cell<bool>,            // HTTP/1.1: a request came
    pub open: RefCell<IdMap<u32, u64>>, // HTTP/2 stream → call or stream id
    pub held: Rc<Cell<usize>>,          // bytes of answers that the client has not taken
    pub stopping: Cell<bool>,
    pub is_dismissed: Cell<bool>, // no new request can come on it
    pub overfull: Cell<bool>,
    pub waker: RefCell<Option<Waker>>,
    pub stopped: Notify, // for HTTP/1.1
}

impl Conn {
    pub fn new(peer: String, slot: u32, serves: Serves) -> Self {
        Conn {
            peer,
            slot,
            serves,
            common_name: OnceCell::new(),
            is_tls: Cell::new(false),
            is_used: Cell::new(false),
            open: RefCell::default(),
            held: Rc::default(),
            stopping: Cell::new(false),
            is_dismissed: Cell::new(false),
            overfull: Cell::new(false),
            waker: RefCell::new(None),
            stopped: Notify::new(),
        }
    }

    pub fn payload(&self, bytes: Bytes) -> Payload {
        let size = bytes.len();
        self.held.set(self.held.get() + size);
        Payload { bytes, size, held: self.held.clone() }
    }

    pub fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }
}

pub type Respond = SendResponse<Payload>;

/// A unary call the driver has, or will have, to answer.
pub struct OpenCall {
    pub respond: Respond,
    pub conn: Rc<Conn>,
    pub deadline: Option<Instant>,
    pub is_gzip: bool,
}

impl OpenCall {
    fn send(mut self, body: Bytes) {
        // Each of these fails only when the client or the connection is gone; then nobody waits.
        let head = grpc::ok_response(self.is_gzip);
        let Ok(mut send) = self.respond.send_response(head, false) else { return };
        if send.send_data(self.conn.payload(body), false).is_ok() {
            let _ = send.send_trailers(Status::new(grpc::OK, "").trailers());
        }
    }

    /// Compress the answer, a large one in another thread, and send it.
    fn send_compressed(self, body: Bytes) {
        if body.len() < COMPRESSED_ELSEWHERE_BYTES {
            return self.send(grpc::compress(&[&body[PREFIX_BYTES..]]));
        }
        tokio::task::spawn_local(async move {
            let work = spawn_blocking(move || grpc::compress(&[&body[PREFIX_BYTES..]]));
            match work.await {
                Ok(body) => self.send(body),
                Err(error) => refuse(self.respond, &Status::new(grpc::INTERNAL, error.to_string())),
            }
        });
    }
}

pub struct Switchboard {
    pub options: Options,
    pub inbox: Arc<Inbox>,
    pub lags: Arc<Lags>,
    pub assembling: Rc<Assembling>,
    pub stopping: Cell<bool>,
    pub connections: RefCell<IdMap<u64, Rc<Conn>>>,
    pub connection_closed: Notify,
    pub deadlines: RefCell<BTreeSet<(Instant, u64)>>,
    pub deadlines_changed: Notify,
    routes: HashMap<String, Route>,
    last_number: Cell<u64>,
    calls: RefCell<IdMap<u64, OpenCall>>,
    streams: RefCell<IdMap<u64, Rc<Outgoing>>>,
}

impl Switchboard {
    pub fn new(
        options: Options,
        routes: HashMap<String, Route>,
        inbox: Arc<Inbox>,
        lags: Arc<Lags>,
    ) -> Self {
        Switchboard {
            assembling: Assembling::new(options.assembling_bytes_max),
            options,
            inbox,
            lags,
            stopping: Cell::new(false),
            connections: RefCell::default(),
            connection_closed: Notify::new(),
            deadlines: RefCell::default(),
            deadlines_changed: Notify::new(),
            routes,
            last_number: Cell::new(0),
            calls: RefCell::default(),
            streams: RefCell::default(),
        }
    }

    /// Tell whether any call or stream is open.
    #[cfg(any(test, fuzzing))]
    pub fn has_open(&self) -> bool {
        !self.calls.borrow().is_empty() || !self.streams.borrow().is_empty()
    }

    /// The number of the newest id.
    pub fn last_number(&self) -> u64 {
        self.last_number.get()
    }

    /// An id of a connection's; they rise.
    pub fn next_id(&self, slot: u32) -> u64 {
        let number = self.last_number.get() + 1;
        self.last_number.set(number);
        id_of(number, slot)
    }

    /// Find what serves a path, or tell in grpc-go's words why nothing does.
    pub fn route(&self, path: &str) -> Result<Route, Status> {
        if let Some(route) = self.routes.get(path) {
            return Ok(*route);
        }
        let unimplemented = |text: String| Err(Status::new(grpc::UNIMPLEMENTED, text));
        let bare = path.strip_prefix('/').unwrap_or(path);
        let Some((service, method)) = bare.rsplit_once('/') else {
            return unimplemented(format!("malformed method name: {path:?}"));
        };
        let prefix = format!("/{service}/");
        if self.routes.keys().any(|known| known.starts_with(&prefix)) {
            return unimplemented(format!("unknown method {method} for service {service}"));
        }
        unimplemented(format!("unknown service {service}"))
    }

    pub fn add_call(&self, id: u64, stream: u32, call: OpenCall) {
        self.expect(id, call.deadline);
        call.conn.open.borrow_mut().insert(stream, id);
        self.calls.borrow_mut().insert(id, call);
    }

    pub fn add_stream(&self, id: u64, outgoing: Rc<Outgoing>) {
        self.expect(id, outgoing.deadline);
        outgoing.conn.open.borrow_mut().insert(outgoing.http_stream, id);
        self.lags.lock().insert(id, outgoing.lag.clone());
        self.streams.borrow_mut().insert(id, outgoing);
    }

    fn expect(&self, id: u64, deadline: Option<Instant>) {
        if let Some(deadline) = deadline {
            let mut deadlines = self.deadlines.borrow_mut();
            let is_first = deadlines.first().is_none_or(|(first, _)| deadline < *first);
            deadlines.insert((deadline, id));
            if is_first {
                self.deadlines_changed.notify_one();
            }
        }
    }

    fn forget_deadline(&self, id: u64, deadline: Option<Instant>) {
        if let Some(deadline) = deadline {
            self.deadlines.borrow_mut().remove(&(deadline, id));
        }
    }

    fn take_call(&self, id: u64) -> Option<OpenCall> {
        let call = self.calls.borrow_mut().remove(&id)?;
        call.conn.open.borrow_mut().remove(&call.respond.stream_id().as_u32());
        self.forget_deadline(id, call.deadline);
        Some(call)
    }

    /// Take a stream out of the tables; its task goes on for as long as it has something to send.
    pub fn take_stream(&self, id: u64) -> Option<Rc<Outgoing>> {
        let outgoing = self.streams.borrow_mut().remove(&id)?;
        outgoing.conn.open.borrow_mut().remove(&outgoing.http_stream);
        self.lags.lock().remove(&id);
        self.forget_deadline(id, outgoing.deadline);
        Some(outgoing)
    }

    /// The client of a call or stream went away.
    pub fn client_gone(&self, id: u64) {
        if self.take_call(id).is_some() {
            self.inbox.add_gone(id);
        } else if let Some(outgoing) = self.take_stream(id) {
            outgoing.abandon();
            self.inbox.add_gone(id);
        }
    }

    /// End a stream from here; the node is told that it is gone.
    pub fn cut(&self, id: u64, status: Status) {
        if let Some(outgoing) = self.take_stream(id) {
            outgoing.end(status);
            self.inbox.add_gone(id);
        }
    }

    /// End the call or stream whose time is over.
    pub fn expire(&self, id: u64) {
        if let Some(call) = self.take_call(id) {
            refuse(call.respond, &Status::deadline_exceeded());
            self.inbox.add_gone(id);
        } else {
            self.cut(id, Status::deadline_exceeded());
        }
    }

    /// Hand every answer to its call; what belongs to nobody is dropped.
    pub fn dispatch(&self, outbox: Outbox) {
        for reply in outbox.replies {
            match self.take_call(reply.id) {
                Some(call) => self.answer(call, reply.code, reply.body),
                None => self.reply_to_stream(reply.id, reply.code, reply.body),
            }
        }
        for response in outbox.responses {
            let found = self.streams.borrow().get(&response.id).cloned();
            if let Some(outgoing) = found {
                outgoing.begin(response);
            }
        }
        let mut current: Option<(u64, Rc<Outgoing>)> = None;
        for delivery in outbox.deliveries {
            if current.as_ref().is_none_or(|(id, _)| *id != delivery.id) {
                let found = self.streams.borrow().get(&delivery.id).cloned();
                current = found.map(|outgoing| (delivery.id, outgoing));
            }
            let Some((id, outgoing)) = &current else { continue };
            let head = &outbox.heads[delivery.head];
            let tail = &outbox.tails[delivery.tail];
            if let Err(status) = outgoing.deliver(head, tail, self.options.stream_backlog_bytes_max)
            {
                self.cut(*id, status);
                current = None;
            }
        }
        for cut in outbox.cuts {
            self.cut(cut.id, Status::new(cut.code, cut.text));
        }
        for end in outbox.ends {
            let found = self.streams.borrow().get(&end.id).cloned();
            if let Some(outgoing) = found {
                outgoing.end(Status::new(end.code, end.text));
            } else if let Some(call) = self.take_call(end.id) {
                refuse(call.respond, &Status::new(end.code, end.text));
            }
        }
    }

    fn answer(&self, call: OpenCall, code: u32, body: Bytes) {
        if code != grpc::OK {
            return refuse(call.respond, &Status::new(code, body));
        }
        let conn = &call.conn;
        if conn.held.get() > self.options.connection_backlog_bytes_max {
            if !conn.overfull.replace(true) {
                self.inbox.add_notice(format!(
                    "connection closed: {} bytes of answers wait unread, limit {}: {}",
                    conn.held.get(),
                    self.options.connection_backlog_bytes_max,
                    conn.peer,
                ));
                conn.wake();
            }
            return;
        }
        if call.is_gzip {
            call.send_compressed(body);
        } else {
            call.send(body);
        }
    }

    fn reply_to_stream(&self, id: u64, code: u32, body: Bytes) {
        let found = self.streams.borrow().get(&id).cloned();
        let Some(outgoing) = found else { return };
        if !outgoing.is_grpc() {
            self.inbox.add_notice(format!("a gRPC reply to the HTTP request {id}"));
            return outgoing.end(Status::new(grpc::INTERNAL, ""));
        }
        if code == grpc::OK {
            outgoing.deliver_framed(body);
            outgoing.end(Status::new(grpc::OK, ""));
        } else {
            outgoing.end(Status::new(code, body));
        }
    }

    /// How many calls are to be answered yet; a stream without an end of its own is none.
    pub fn calls_in_flight(&self) -> usize {
        let streams = self.streams.borrow();
        self.calls.borrow().len() + streams.values().filter(|each| each.is_call()).count()
    }

    /// Tell whether a connection may still bring new requests.
    pub fn may_bring_more(&self) -> bool {
        self.connections.borrow().values().any(|conn| !conn.is_dismissed.get())
    }

    /// End all that is still open: nobody will answer any more.
    pub fn refuse_open(&self) {
        let ids: Vec<u64> = self.calls.borrow().keys().copied().collect();
        for id in ids {
            if let Some(call) = self.take_call(id) {
                refuse(call.respond, &Status::stopped());
            }
        }
        let streams: Vec<Rc<Outgoing>> = self.streams.borrow().values().cloned().collect();
        for outgoing in streams {
            outgoing.end(Status::stopped());
        }
    }

    /// A connection is over: so is all that was open on it.
    pub fn connection_over(&self, conn: &Conn) {
        let ids: Vec<u64> = conn.open.borrow().values().copied().collect();
        for id in ids {
            self.client_gone(id);
        }
    }

    /// Bytes went out on a stream; the driver may wait for the last of them.
    pub fn note_sent(&self, lag: &Lag, count: u64) {
        let sent = lag.sent.fetch_add(count, Ordering::SeqCst) + count;
        if lag.drain_wanted.load(Ordering::SeqCst) && sent >= lag.queued.load(Ordering::SeqCst) {
            lag.drain_wanted.store(false, Ordering::SeqCst);
            self.inbox.wake();
        }
    }
}

/// Say that nothing was done, so that a client asks elsewhere by itself.
pub fn decline(mut respond: Respond) {
    respond.send_reset(Reason::REFUSED_STREAM);
}

/// Answer with a status alone. It fails only when the client is gone; then nobody waits.
pub fn refuse(mut respond: Respond, status: &Status) {
    let _ = respond.send_response(status.response(StatusCode::OK), true);
}
