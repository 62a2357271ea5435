//! A connection, as its calls and streams use it. Loop thread only.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::http::targets::{RealTarget, Targets};
use crate::id_map::IdMap;
use crate::server::connection_info::ConnectionInfo;
use crate::server::port::Port;
use crate::server::send_backlog::SendBacklog;
use crate::socket::stall::Stall;

const GOAWAY_GRACE: Duration = Duration::from_secs(1);

/// Bytes being sent, counted for their connection until h2 drops them, and for their answer, if it has
/// a backlog, until they are written.
pub struct Payload {
    bytes: Bytes,
    size: usize,
    held: Rc<Cell<usize>>,
    backlog: Option<Arc<SendBacklog>>,
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
        if let Some(backlog) = &self.backlog {
            backlog.credit(count);
        }
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        self.held.set(self.held.get() - self.size);
        if let Some(backlog) = self.backlog.take().filter(|_| !self.bytes.is_empty()) {
            backlog.credit(self.bytes.len());
        }
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
    pub busy: Cell<u32>,                // requests of HTTP being read or answered
    pub open: RefCell<IdMap<u32, u64>>, // HTTP/2 stream → call or stream id
    pub held: Rc<Cell<usize>>,          // unsent bytes of answers
    pub active_at: Cell<Instant>,       // a request began or ended, or the connection began
    pub stopping: Cell<bool>,
    pub is_closing: Cell<bool>,    // no new request can arrive on it
    pub is_broken_off: Cell<bool>, // it ends at once
    pub stall: Rc<Stall>,
    targets: RefCell<Targets>, // of requests that h2 or hyper is about to announce
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
            active_at: Cell::new(Instant::now()),
            stopping: Cell::new(false),
            is_closing: Cell::new(false),
            is_broken_off: Cell::new(false),
            stall: Rc::default(),
            targets: RefCell::default(),
            waker: RefCell::new(None),
            stopped: Notify::new(),
        }
    }

    /// Note that a request begins or ends.
    pub fn note_active(&self) {
        self.active_at.set(Instant::now());
    }

    /// The address of the client without its port.
    pub fn host(&self) -> &str {
        self.peer.rsplit_once(':').map_or(&self.peer, |(host, _)| host)
    }

    /// Return whether a connection of a port of HTTP has had no request for so long, and has none.
    pub fn is_idle_for(&self, time: Duration) -> bool {
        self.port.web.is_some()
            && self.info.get().is_some() // after the handshake, which has a timeout of its own
            && self.busy.get() == 0
            && self.open.borrow().is_empty()
            && self.held.get() == 0
            && !self.is_closing.get()
            && !self.is_broken_off.get()
            && self.active_at.get().elapsed() >= time
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

    /// Keep the real target of a request that is about to be announced; its HTTP/2 stream is 0 for
    /// HTTP/1.1.
    pub fn add_target(&self, stream: u32, target: Rc<str>) {
        self.targets.borrow_mut().add(stream, target);
    }

    /// Take the real target of a request, if it has one; requests are announced in their order.
    pub fn take_target(&self, stream: u32) -> Option<RealTarget> {
        self.targets.borrow_mut().take(stream)
    }

    /// Return whether targets were dropped because too many wait.
    pub fn has_lost_targets(&self) -> bool {
        self.targets.borrow().has_lost
    }

    /// End the connection at once.
    pub fn break_off(&self) {
        self.is_broken_off.set(true);
        self.wake();
        self.stopped.notify_waiters();
    }

    /// Wait for `break_off`.
    pub async fn is_broken_off_now(&self) {
        while !self.is_broken_off.get() {
            self.stopped.notified().await;
        }
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
        self.payload_of(bytes, None)
    }

    /// Bytes that are counted as sent for a backlog when they are written.
    pub fn payload_of(&self, bytes: Bytes, backlog: Option<Arc<SendBacklog>>) -> Payload {
        let size = bytes.len();
        self.held.set(self.held.get() + size);
        if let Some(backlog) = &backlog {
            backlog.hand(size);
        }
        Payload { bytes, size, held: self.held.clone(), backlog }
    }

    pub fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }
}

/// While there is one, a request is being read or answered.
pub struct Busy(Rc<Conn>);

impl Busy {
    pub fn new(conn: &Rc<Conn>) -> Self {
        conn.busy.set(conn.busy.get() + 1);
        Busy(conn.clone())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.set(self.0.busy.get() - 1);
        self.0.note_active();
    }
}
