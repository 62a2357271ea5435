//! The open calls and streams, and the dispatch of an outbox to them. Loop thread only.
//!
//! Invariant: a call is in the table exactly from its arrival in the inbox until its answer is sent or its
//! client disconnects; in the latter case, and only then, it is reported as disconnected, once.
//! A stream stays until its end is passed to h2; one that is ended for an error of its own is reported
//! as disconnected.

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
use tokio::task::{spawn_blocking, yield_now};
use tokio::time::sleep;

use crate::connection_info::ConnectionInfo;
use crate::date::Date;
use crate::grpc::{self, AssemblyBudget, Status, PREFIX_BYTES};
use crate::inbox::Inbox;
use crate::outbox::{Outbox, Tail, Write};
use crate::outgoing::Outgoing;
use crate::peer_table::id_of;
use crate::port::Port;

const COMPRESSED_ELSEWHERE_BYTES: usize = 64 << 10;
const DIRECT_WRITES_MAX: usize = 32;
const GOAWAY_GRACE: Duration = Duration::from_secs(1);

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
    pub ends_by_itself: bool, // the answer of a server stream is bounded
}

#[derive(Clone, Debug)]
pub struct Options {
    pub request_bytes_max: usize,
    pub connection_backlog_bytes_max: usize,
    pub assembling_bytes_max: usize,
    pub connections_max: usize, // of all ports
    pub keepalive_min: Duration,
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

/// The unsent bytes of one stream: `queued - sent` message bytes. Shared with the driver's thread.
#[derive(Default)]
pub struct Lag {
    pub queued: AtomicU64, // by the driver's thread, at flush
    pub sent: AtomicU64,   // by the loop thread
    pub drain_wanted: AtomicBool,
    writable_below: AtomicU64,  // 0: no event; else the limit, plus one
    pub window: Option<Window>, // of the request's body, on a port of HTTP alone
}

impl Lag {
    /// For a stream whose body is delivered as fast as it is read.
    pub fn with_window(window: Option<Window>) -> Self {
        Lag { window, ..Lag::default() }
    }

    /// The unsent bytes.
    pub fn unsent(&self) -> u64 {
        self.queued.load(Ordering::SeqCst).saturating_sub(self.sent.load(Ordering::SeqCst))
    }

    /// Request an event once at most `bytes` are unsent; true, without an event, if they are now.
    pub fn notify_writable(&self, bytes: u64) -> bool {
        self.writable_below.store(bytes.saturating_add(1), Ordering::SeqCst); // before it is compared
        self.unsent() <= bytes && self.writable_below.swap(0, Ordering::SeqCst) > 0
    }

    /// Tell, once, whether the requested event is due.
    fn has_become_writable(&self) -> bool {
        let wanted = self.writable_below.load(Ordering::SeqCst);
        wanted > 0 && wanted > self.unsent() && self.writable_below.swap(0, Ordering::SeqCst) > 0
    }
}

/// How much of a body was delivered to the driver's thread and not read there.
pub struct Window {
    bytes_max: u64,
    handed: AtomicU64,   // by the loop thread
    taken: AtomicU64,    // by the driver's
    is_held: AtomicBool, // nothing is delivered before the reader begins
    is_waited: AtomicBool,
}

impl Window {
    pub fn new(bytes_max: u64) -> Self {
        Window {
            bytes_max,
            handed: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            is_held: AtomicBool::new(false),
            is_waited: AtomicBool::new(false),
        }
    }

    /// Deliver nothing before the reader begins.
    pub fn hold(&self) {
        self.is_held.store(true, Ordering::SeqCst);
    }

    pub fn is_held(&self) -> bool {
        self.is_held.load(Ordering::SeqCst)
    }

    fn ahead(&self) -> u64 {
        self.handed.load(Ordering::SeqCst).saturating_sub(self.taken.load(Ordering::SeqCst))
    }

    fn is_full(&self) -> bool {
        self.is_held() || self.ahead() >= self.bytes_max
    }

    /// Tell whether more may be read; if not, a `take` wakes the reader.
    pub fn has_room(&self) -> bool {
        if !self.is_full() {
            return true;
        }
        self.is_waited.store(true, Ordering::SeqCst); // before the second check
        !self.is_full()
    }

    pub fn hand(&self, bytes: usize) {
        self.handed.fetch_add(bytes as u64, Ordering::SeqCst);
    }

    /// Note that bytes were read, or that the reader begins; true: wake the task that reads the socket.
    pub fn take(&self, bytes: u64) -> bool {
        self.is_held.store(false, Ordering::SeqCst);
        self.taken.fetch_add(bytes, Ordering::SeqCst);
        self.ahead() <= self.bytes_max / 2 && self.is_waited.swap(false, Ordering::SeqCst)
    }
}

type LagMap = IdMap<u64, Arc<Lag>>;

#[derive(Default)]
pub struct Lags {
    open: Mutex<LagMap>,
    behind: Mutex<LagMap>, // streams with unsent bytes after a `write_all`
}

impl Lags {
    pub fn lock(&self) -> MutexGuard<'_, LagMap> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn behind(&self) -> MutexGuard<'_, LagMap> {
        self.behind.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes being sent, counted for their connection until h2 drops them.
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

/// The connection, as its calls and streams use it.
pub struct Conn {
    pub peer: String,
    pub slot: u32, // in its calls' ids
    pub port: Rc<Port>,
    info: OnceCell<Arc<ConnectionInfo>>, // on a port of HTTP alone
    pub common_name: OnceCell<String>,   // of the client's verified certificate
    pub is_tls: Cell<bool>,
    pub requests: Cell<u64>,            // HTTP/1.1: so far
    pub busy: Cell<u32>,                // HTTP/1.1: requests being read or answered
    pub open: RefCell<IdMap<u32, u64>>, // HTTP/2 stream → call or stream id
    pub held: Rc<Cell<usize>>,          // unsent bytes of answers
    pub stopping: Cell<bool>,
    pub was_told_to_close: Cell<bool>, // no new request can arrive on it
    pub is_full: Cell<bool>,
    pub waker: RefCell<Option<Waker>>,
    stopped: Notify,
}

impl Conn {
    pub fn new(peer: String, slot: u32, port: Rc<Port>) -> Self {
        Conn {
            peer,
            slot,
            port,
            info: OnceCell::new(),
            common_name: OnceCell::new(),
            is_tls: Cell::new(false),
            requests: Cell::new(0),
            busy: Cell::new(0),
            open: RefCell::default(),
            held: Rc::default(),
            stopping: Cell::new(false),
            was_told_to_close: Cell::new(false),
            is_full: Cell::new(false),
            waker: RefCell::new(None),
            stopped: Notify::new(),
        }
    }

    /// Set the results of the handshake.
    pub fn set_info(&self, info: ConnectionInfo) {
        let _ = self.info.set(Arc::new(info)); // it was empty
    }

    /// The properties for each request, on a port of HTTP alone.
    pub fn info(&self) -> Option<Arc<ConnectionInfo>> {
        self.info.get().cloned()
    }

    /// Send GOAWAY; open calls are answered.
    pub fn stop(&self) {
        self.stopping.set(true);
        self.wake();
        self.stopped.notify_waiters();
    }

    /// Wait for `stop`.
    pub async fn is_stopping_now(&self) {
        while !self.stopping.get() {
            self.stopped.notified().await;
        }
    }

    /// Wait, after `stop`, for requests that were already being sent.
    pub async fn grace_is_over(&self) {
        self.is_stopping_now().await;
        sleep(GOAWAY_GRACE).await;
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
        // Each of these fails only when the client has disconnected.
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

pub struct CallTable {
    pub options: Options,
    pub inbox: Arc<Inbox>,
    pub lags: Arc<Lags>,
    pub assembling: Rc<AssemblyBudget>,
    pub stopping: Cell<bool>,
    pub is_draining: Cell<bool>, // GOAWAY is sent to all clients, also to new ones
    pub connections: RefCell<IdMap<u64, Rc<Conn>>>,
    pub connection_closed: Notify,
    closing: Cell<usize>, // connections that have ended and are not closed yet
    pub deadlines: RefCell<BTreeSet<(Instant, u64)>>,
    pub deadlines_changed: Notify,
    pub date: Date,
    pub direct_writes: Cell<usize>, // system calls of a dispatch
    routes: HashMap<String, Route>,
    last_number: Cell<u64>,
    calls: RefCell<IdMap<u64, OpenCall>>,
    streams: RefCell<IdMap<u64, Rc<Outgoing>>>,
}

impl CallTable {
    pub fn new(
        options: Options,
        routes: HashMap<String, Route>,
        inbox: Arc<Inbox>,
        lags: Arc<Lags>,
    ) -> Self {
        CallTable {
            assembling: AssemblyBudget::new(options.assembling_bytes_max),
            options,
            inbox,
            lags,
            stopping: Cell::new(false),
            is_draining: Cell::new(false),
            connections: RefCell::default(),
            connection_closed: Notify::new(),
            closing: Cell::new(0),
            deadlines: RefCell::default(),
            deadlines_changed: Notify::new(),
            date: Date::default(),
            direct_writes: Cell::new(0),
            routes,
            last_number: Cell::new(0),
            calls: RefCell::default(),
            streams: RefCell::default(),
        }
    }

    /// Count a connection as closing, until the returned value is dropped.
    pub fn note_closing(self: &Rc<Self>) -> Closing {
        self.closing.set(self.closing.get() + 1);
        Closing(self.clone())
    }

    /// Wait until every connection is closed.
    pub async fn all_closed(&self) {
        while !self.connections.borrow().is_empty() || self.closing.get() > 0 {
            self.connection_closed.notified().await;
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

    /// The next id of a connection's call; ids increase.
    pub fn next_id(&self, slot: u32) -> u64 {
        let number = self.last_number.get() + 1;
        self.last_number.set(number);
        id_of(number, slot)
    }

    /// Find the route of a path, or return grpc-go's error.
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
        self.add_deadline(id, call.deadline);
        call.conn.open.borrow_mut().insert(stream, id);
        self.calls.borrow_mut().insert(id, call);
    }

    pub fn add_stream(&self, id: u64, outgoing: Rc<Outgoing>) {
        self.add_deadline(id, outgoing.deadline);
        outgoing.id.set(id);
        outgoing.conn.open.borrow_mut().insert(outgoing.http_stream, id);
        self.lags.lock().insert(id, outgoing.lag.clone());
        self.streams.borrow_mut().insert(id, outgoing);
    }

    fn add_deadline(&self, id: u64, deadline: Option<Instant>) {
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

    /// Remove a stream from the tables; its task runs until everything is sent.
    pub fn take_stream(&self, id: u64) -> Option<Rc<Outgoing>> {
        let outgoing = self.streams.borrow_mut().remove(&id)?;
        outgoing.conn.open.borrow_mut().remove(&outgoing.http_stream);
        if self.lags.lock().remove(&id).is_some_and(|lag| lag.window.is_some()) {
            self.lags.behind().remove(&id);
        }
        self.forget_deadline(id, outgoing.deadline);
        Some(outgoing)
    }

    /// The client of a call or stream has disconnected.
    pub fn client_disconnected(&self, id: u64) {
        if self.take_call(id).is_some() {
            self.inbox.add_disconnected(id);
        } else if let Some(outgoing) = self.take_stream(id) {
            outgoing.abandon();
            self.inbox.add_disconnected(id);
        }
    }

    /// End a stream because of an error; it is reported as disconnected.
    pub fn cut(&self, id: u64, status: Status) {
        if let Some(outgoing) = self.take_stream(id) {
            outgoing.end(status);
            self.inbox.add_disconnected(id);
        }
    }

    /// End the call or stream whose deadline has passed.
    pub fn expire(&self, id: u64) {
        if let Some(call) = self.take_call(id) {
            refuse(call.respond, &Status::deadline_exceeded());
            self.inbox.add_disconnected(id);
        } else {
            self.cut(id, Status::deadline_exceeded());
        }
    }

    /// Send every answer to its call; answers without a call are dropped.
    pub async fn dispatch(&self, outbox: Outbox) {
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
        for write in &outbox.writes {
            match write {
                Write::One { id, tail } => self.write(*id, &outbox.tails[*tail], true).await,
                Write::All { ids, tail } => {
                    for id in ids {
                        self.write(*id, &outbox.tails[*tail], false).await;
                    }
                }
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
            let limit = outgoing.conn.port.limits.backlog_bytes_max;
            if let Err(status) = outgoing.deliver(head, &tail.bytes, limit) {
                self.cut(*id, status);
                current = None;
            }
        }
        for id in outbox.resumed {
            if let Some(outgoing) = self.streams.borrow().get(&id) {
                outgoing.wake_reader();
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

    /// Send bytes of an answer, or queue them; is_counted: they are already counted as queued.
    async fn write(&self, id: u64, tail: &Tail, is_counted: bool) {
        let found = self.streams.borrow().get(&id).cloned();
        let Some(outgoing) = found.filter(|outgoing| !outgoing.is_ended()) else { return };
        let size = tail.bytes.len() as u64;
        if outgoing.send_at_once(&self.direct_writes, tail) {
            if is_counted {
                self.note_sent(id, &outgoing.lag, size);
            }
            if self.direct_writes.get() >= DIRECT_WRITES_MAX {
                self.direct_writes.set(0);
                yield_now().await; // so that other connections are polled, too
            }
            return;
        }
        if !is_counted {
            outgoing.lag.queued.fetch_add(size, Ordering::SeqCst);
            self.lags.behind().insert(id, outgoing.lag.clone());
        }
        let limit = outgoing.conn.port.limits.backlog_bytes_max;
        if let Err(status) = outgoing.deliver(&[], &tail.bytes, limit) {
            self.cut(id, status);
        }
    }

    fn answer(&self, call: OpenCall, code: u32, body: Bytes) {
        if code != grpc::OK {
            return refuse(call.respond, &Status::new(code, body));
        }
        let conn = &call.conn;
        if conn.held.get() > self.options.connection_backlog_bytes_max {
            if !conn.is_full.replace(true) {
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

    /// How many calls are open; an endless stream is not counted.
    pub fn calls_in_flight(&self) -> usize {
        let streams = self.streams.borrow();
        self.calls.borrow().len() + streams.values().filter(|each| each.is_call()).count()
    }

    /// Tell whether new requests may still arrive.
    pub fn may_send_requests(&self) -> bool {
        self.connections.borrow().values().any(|conn| !conn.was_told_to_close.get())
    }

    /// End everything still open, because the driver has stopped.
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

    /// End everything open on a connection that has ended.
    pub fn connection_over(&self, conn: &Conn) {
        let ids: Vec<u64> = conn.open.borrow().values().copied().collect();
        for id in ids {
            self.client_disconnected(id);
        }
    }

    /// Count bytes sent on a stream; the driver may wait for an event.
    pub fn note_sent(&self, id: u64, lag: &Lag, count: u64) {
        let sent = lag.sent.fetch_add(count, Ordering::SeqCst) + count;
        if lag.drain_wanted.load(Ordering::SeqCst) && sent >= lag.queued.load(Ordering::SeqCst) {
            lag.drain_wanted.store(false, Ordering::SeqCst);
            self.inbox.wake();
        }
        if lag.has_become_writable() {
            self.inbox.add_writable(id);
        }
    }
}

/// A connection that has ended and is not closed yet.
pub struct Closing(Rc<CallTable>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.closing.set(self.0.closing.get() - 1);
        self.0.connection_closed.notify_one();
    }
}

/// Refuse a stream as not processed, so that the client retries it elsewhere.
pub fn decline(mut respond: Respond) {
    respond.send_reset(Reason::REFUSED_STREAM);
}

/// Answer with a status alone. It fails only when the client has disconnected.
pub fn refuse(mut respond: Respond, status: &Status) {
    let _ = respond.send_response(status.response(StatusCode::OK), true);
}
