//! The open calls and streams of a server. Loop thread only.
//!
//! Invariant: a call is in the table exactly from its arrival in the inbox until its answer is sent or its
//! client disconnects; in the latter case, and only then, it is reported as disconnected, once.
//! A stream stays until its end is passed to h2; one that is ended for an error of its own is reported
//! as disconnected.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::grpc::open_call::{refuse, OpenCall};
use crate::grpc::routes::Routes;
use crate::grpc::{AssemblyBudget, Status};
use crate::http::date::Date;
use crate::id_map::IdMap;
use crate::server::connection_state::Conn;
use crate::server::connections::Connections;
use crate::server::inbox::Inbox;
use crate::server::outgoing::Outgoing;
use crate::server::peer_table::id_of;
use crate::server::send_backlog::SendBacklogs;

#[derive(Clone, Debug)]
pub struct Options {
    pub request_bytes_max: usize,
    pub connection_backlog_bytes_max: usize,
    pub assembling_bytes_max: usize,
    pub connections_max: usize, // of all ports
    pub keepalive_min: Duration,
    pub send_bytes_max: usize,
}

pub struct CallTable {
    pub options: Options,
    pub inbox: Arc<Inbox>,
    pub backlogs: Arc<SendBacklogs>,
    pub assembling: Rc<AssemblyBudget>,
    pub stopping: Cell<bool>,
    pub is_draining: Cell<bool>, // GOAWAY is sent to all clients, also to new ones
    pub connections: Rc<Connections>,
    pub deadlines: RefCell<BTreeSet<(Instant, u64)>>,
    pub deadlines_changed: Notify,
    pub date: Date,
    pub direct_writes: Cell<usize>, // system calls of a dispatch
    pub routes: Routes,
    last_number: Cell<u64>,
    calls: RefCell<IdMap<u64, OpenCall>>,
    pub streams: RefCell<IdMap<u64, Rc<Outgoing>>>,
}

impl CallTable {
    pub fn new(
        options: Options,
        routes: Routes,
        inbox: Arc<Inbox>,
        backlogs: Arc<SendBacklogs>,
    ) -> Self {
        CallTable {
            assembling: AssemblyBudget::new(options.assembling_bytes_max),
            options,
            inbox,
            backlogs,
            stopping: Cell::new(false),
            is_draining: Cell::new(false),
            connections: Rc::default(),
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

    /// Return whether any call or stream is open.
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

    pub fn add_call(&self, id: u64, stream: u32, call: OpenCall) {
        self.add_deadline(id, call.deadline);
        call.conn.open.borrow_mut().insert(stream, id);
        self.calls.borrow_mut().insert(id, call);
    }

    pub fn add_stream(&self, id: u64, outgoing: Rc<Outgoing>) {
        self.add_deadline(id, outgoing.deadline);
        outgoing.id.set(id);
        outgoing.backlog.id.store(id, Ordering::Relaxed);
        outgoing.conn.open.borrow_mut().insert(outgoing.http_stream, id);
        self.backlogs.lock().insert(id, outgoing.backlog.clone());
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

    pub fn take_call(&self, id: u64) -> Option<OpenCall> {
        let call = self.calls.borrow_mut().remove(&id)?;
        call.conn.open.borrow_mut().remove(&call.respond.stream_id().as_u32());
        call.conn.note_active();
        self.forget_deadline(id, call.deadline);
        Some(call)
    }

    /// Remove a stream from the tables; its task runs until everything is sent.
    pub fn take_stream(&self, id: u64) -> Option<Rc<Outgoing>> {
        let outgoing = self.streams.borrow_mut().remove(&id)?;
        outgoing.conn.open.borrow_mut().remove(&outgoing.http_stream);
        outgoing.conn.note_active();
        if self.backlogs.lock().remove(&id).is_some_and(|backlog| backlog.window.is_some()) {
            self.backlogs.behind().remove(&id);
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

    /// End an answer of HTTP at once, with what is queued for it; it is reported as disconnected.
    pub fn cut_now(&self, id: u64) {
        if let Some(outgoing) = self.take_stream(id) {
            outgoing.abandon();
            outgoing.break_off();
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

    /// How many calls are open; an endless stream is not counted.
    pub fn calls_in_flight(&self) -> usize {
        let streams = self.streams.borrow();
        self.calls.borrow().len() + streams.values().filter(|each| each.is_call()).count()
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
}
