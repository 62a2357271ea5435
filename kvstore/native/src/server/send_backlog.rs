//! The unsent bytes of streams, counted by the driver's thread and the loop thread.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::id_map::IdMap;
use crate::server::inbox::Inbox;
use crate::server::receive_window::Window;

/// The unsent bytes of one stream: `queued - sent` message bytes. Shared with the driver's thread.
#[derive(Default)]
pub struct SendBacklog {
    pub queued: AtomicU64, // by the driver's thread, at flush
    pub sent: AtomicU64,   // by the loop thread
    handed: AtomicU64,     // of an answer of HTTP: to what writes the connection
    pub drain_wanted: AtomicBool,
    writable_below: AtomicU64,  // 0: no event; else the limit, plus one
    pub window: Option<Window>, // of the request's body, on a port of HTTP alone
    inbox: Option<Arc<Inbox>>,  // of an answer of HTTP: notified when bytes are written
    pub id: AtomicU64,          // the answer's, once it is in the call table
}

impl SendBacklog {
    /// For an answer of HTTP, whose body is delivered as fast as it is read.
    pub fn of_answer(inbox: Arc<Inbox>, window: Option<Window>) -> Self {
        SendBacklog { window, inbox: Some(inbox), ..SendBacklog::default() }
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

    /// Count bytes of an answer of HTTP that are next to be written to the connection.
    pub fn hand(&self, count: usize) {
        self.handed.fetch_add(count as u64, Ordering::SeqCst);
    }

    /// Return whether bytes wait for the client's window of HTTP/2: there are some, and none of them is
    /// about to be written to the connection.
    pub fn waits_for_window(&self) -> bool {
        self.unsent() > 0 && self.handed.load(Ordering::SeqCst) == self.sent.load(Ordering::SeqCst)
    }

    /// Count bytes of an answer of HTTP that the connection has written.
    pub fn credit(&self, count: usize) {
        if let Some(inbox) = &self.inbox {
            self.note_sent(inbox, self.id.load(Ordering::Relaxed), count as u64);
        }
    }

    /// Count bytes sent of the stream `id`; the driver may wait for an event.
    pub fn note_sent(&self, inbox: &Inbox, id: u64, count: u64) {
        let sent = self.sent.fetch_add(count, Ordering::SeqCst) + count;
        if self.drain_wanted.load(Ordering::SeqCst) && sent >= self.queued.load(Ordering::SeqCst) {
            self.drain_wanted.store(false, Ordering::SeqCst);
            inbox.wake();
        }
        if self.has_become_writable() {
            inbox.add_writable(id);
        }
    }

    /// Drop the bytes of an HTTP answer without a reader; waiters for room continue.
    pub fn discard_rest(&self) {
        let waits = self.writable_below.swap(0, Ordering::SeqCst) > 0;
        if let (Some(inbox), true) = (&self.inbox, waits) {
            inbox.add_writable(self.id.load(Ordering::Relaxed));
        }
    }
}

type BacklogMap = IdMap<u64, Arc<SendBacklog>>;

#[derive(Default)]
pub struct SendBacklogs {
    open: Mutex<BacklogMap>,
    behind: Mutex<BacklogMap>, // streams with unsent bytes after a `write_all`
}

impl SendBacklogs {
    pub fn lock(&self) -> MutexGuard<'_, BacklogMap> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn behind(&self) -> MutexGuard<'_, BacklogMap> {
        self.behind.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
