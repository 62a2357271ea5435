//! The open connections of a server: which have sent nothing yet, which are idle, and which are closing.
//!
//! When descriptors run short, those are closed first that have sent nothing, then those of ports of HTTP
//! that have no request under way: of the host with idle ones that has most connections, the longest idle
//! first. A client that holds many connections loses its own, not those of others.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::id_map::IdMap;
use crate::server::connection_state::Conn;
use crate::server::descriptors;
use crate::server::inbox::Inbox;

const SHED_LOG_INTERVAL: Duration = Duration::from_secs(10);
const IDLE_AFTER: Duration = Duration::from_secs(1); // without a request: its client may be just about to send
const IDLE_AT_ONCE: usize = 64; // closed at once: to find them takes a look at all

#[derive(Default)]
pub struct Connections {
    pub open: RefCell<IdMap<u64, Rc<Conn>>>,
    silent: RefCell<BTreeMap<u64, Rc<Conn>>>, // that have sent nothing, in the order of their arrival
    shed: Cell<(u64, Option<Instant>)>,       // closed since the last line of the log, and its time
    idle_looked_at: Cell<Option<Instant>>,    // in vain
    closing: Cell<usize>,                     // that have ended and are not closed yet
    closed: Notify,
}

impl Connections {
    /// Remove a connection that has ended.
    pub fn remove(&self, id: u64) {
        self.open.borrow_mut().remove(&id);
        self.closed.notify_one();
    }

    /// Count a connection as closing, until the returned value is dropped.
    pub fn note_closing(self: &Rc<Self>) -> Closing {
        self.closing.set(self.closing.get() + 1);
        Closing(self.clone())
    }

    /// Note that a new connection has sent nothing, until the returned value is dropped.
    pub fn note_silent(self: &Rc<Self>, id: u64, conn: &Rc<Conn>) -> Silence {
        self.silent.borrow_mut().insert(id, conn.clone());
        Silence { connections: self.clone(), id }
    }

    /// Close the connection that has been silent for longest, but not the newest of all; false if there
    /// is none.
    pub fn close_oldest_silent(&self, inbox: &Inbox) -> bool {
        let mut silent = self.silent.borrow_mut();
        if silent.len() < 2 {
            return false;
        }
        let Some((_, conn)) = silent.pop_first() else { return false };
        drop(silent);
        conn.break_off();
        descriptors::note_closed();
        self.note_shed(inbox);
        true
    }

    /// Close some of the connections that have no request under way; false if there are none.
    pub fn close_idle(&self, inbox: &Inbox) -> bool {
        let is_early = |at: Instant| at.elapsed() < IDLE_AFTER;
        if self.idle_looked_at.get().is_some_and(is_early) {
            return false;
        }
        let idle = idle_of_one_host(&self.open.borrow());
        if idle.is_empty() {
            self.idle_looked_at.set(Some(Instant::now()));
            return false;
        }
        for conn in idle {
            conn.break_off();
            descriptors::note_closed();
            self.note_shed(inbox);
        }
        true
    }

    /// Count a connection that was closed for lack of descriptors; there is a line of the log at
    /// intervals.
    fn note_shed(&self, inbox: &Inbox) {
        let (count, logged_at) = self.shed.get();
        let is_due = logged_at.is_none_or(|at| at.elapsed() >= SHED_LOG_INTERVAL);
        if !is_due {
            return self.shed.set((count + 1, logged_at));
        }
        self.shed.set((0, Some(Instant::now())));
        let closed = count + 1;
        inbox.add_notice(format!(
            "connections closed that had sent nothing, or were idle, for lack of descriptors: {closed}"
        ));
    }

    /// Wait until every connection is closed.
    pub async fn all_closed(&self) {
        while !self.open.borrow().is_empty() || self.closing.get() > 0 {
            self.closed.notified().await;
        }
    }

    /// Return whether new requests may still arrive.
    pub fn may_send_requests(&self) -> bool {
        self.open.borrow().values().any(|conn| !conn.is_closing.get())
    }
}

/// Return at most `IDLE_AT_ONCE` idle connections, the longest idle first: of the host that has most
/// connections among those with idle ones.
fn idle_of_one_host(open: &IdMap<u64, Rc<Conn>>) -> Vec<Rc<Conn>> {
    let mut hosts: HashMap<&str, (usize, Vec<&Rc<Conn>>)> = HashMap::new();
    for conn in open.values() {
        let (count, idle) = hosts.entry(conn.host()).or_default();
        *count += 1;
        if conn.is_idle_for(IDLE_AFTER) {
            idle.push(conn);
        }
    }
    let with_idle = hosts.into_values().filter(|(_, idle)| !idle.is_empty());
    let (_, mut idle) = with_idle.max_by_key(|(count, _)| *count).unwrap_or_default();
    idle.sort_by_key(|conn| conn.active_at.get());
    idle.into_iter().take(IDLE_AT_ONCE).cloned().collect()
}

/// A connection that has ended and is not closed yet.
pub struct Closing(Rc<Connections>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.closing.set(self.0.closing.get() - 1);
        self.0.closed.notify_one();
    }
}

/// A connection that has sent nothing.
pub struct Silence {
    connections: Rc<Connections>,
    id: u64,
}

impl Drop for Silence {
    fn drop(&mut self) {
        self.connections.silent.borrow_mut().remove(&self.id);
    }
}
