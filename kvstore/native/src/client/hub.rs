//! The open calls and streams, and the choice of an endpoint for each. Client thread only.
//!
//! Invariant: a call or stream is in the hub exactly from its flush until its end is queued or it is
//! cancelled. It goes to the next connected endpoint, round robin, and waits if there is none. An endpoint
//! that has just answered UNAVAILABLE comes last for a moment.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::http::HeaderValue;
use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::SendStream;
use tokio::sync::Notify;
use tokio::task::{spawn_local, JoinHandle};

use super::connection::{Connection, Running};
use super::endpoint::{Address, Endpoint};
use super::environment::{Environment, Options};
use super::exchange::{reply, Stream, StreamTask};
use super::inbox::{End, Inbox};
use super::requests::{Call, Metadata, Open, Requests};
use super::status::Failure;
use crate::grpc;
use crate::id_map::IdMap;
use crate::tls::client::Tls;

const WAITING_SLACK: usize = 1024;

struct OpenCall {
    due: Option<Instant>, // when it ends: at its deadline, or earlier while it waits
    state: CallState,
}

enum CallState {
    Waiting(Call),
    Sent(JoinHandle<()>),
}

struct OpenStream {
    stream: Rc<Stream>,
    state: StreamState,
}

enum StreamState {
    Waiting(Open),
    Sent(JoinHandle<()>),
}

pub struct Hub {
    pub environment: Rc<Environment>,
    pub deadlines_changed: Notify,
    endpoints: RefCell<Vec<Rc<Endpoint>>>,
    turn: Cell<usize>,
    calls: RefCell<IdMap<u64, OpenCall>>,
    streams: RefCell<IdMap<u64, OpenStream>>,
    waiting: RefCell<VecDeque<u64>>, // ids; those that no longer wait are skipped
    deadlines: RefCell<BTreeSet<(Instant, u64)>>,
    timeout_header: RefCell<Option<(Duration, HeaderValue)>>, // the last one
}

fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

impl Hub {
    pub fn new(options: Options, inbox: Arc<Inbox>, tls: Tls) -> Rc<Self> {
        Rc::new(Hub {
            environment: Rc::new(Environment::new(options, inbox, tls)),
            deadlines_changed: Notify::new(),
            endpoints: RefCell::default(),
            turn: Cell::new(0),
            calls: RefCell::default(),
            streams: RefCell::default(),
            waiting: RefCell::default(),
            deadlines: RefCell::default(),
            timeout_header: RefCell::default(),
        })
    }

    /// Use these endpoints; those that stay keep their connections.
    pub fn set_endpoints(self: &Rc<Self>, addresses: Vec<Address>) {
        let before = std::mem::take(&mut *self.endpoints.borrow_mut());
        let (mut kept, gone): (Vec<_>, Vec<_>) =
            before.into_iter().partition(|each| addresses.contains(&each.address));
        for endpoint in gone {
            endpoint.close();
        }
        let mut endpoints = Vec::with_capacity(addresses.len());
        for address in addresses {
            match kept.iter().position(|each| each.address == address) {
                Some(at) => endpoints.push(kept.swap_remove(at)),
                None => {
                    let hub = self.clone();
                    let on_connected = move || hub.serve_waiting();
                    endpoints.push(Endpoint::start(&self.environment, address, on_connected));
                }
            }
        }
        if !endpoints.is_empty() {
            // So that clients that start together do not all begin with the same one.
            let share = (self.environment.jitter() + 1.0) / 2.0;
            self.turn.set((share * endpoints.len() as f64) as usize);
        }
        *self.endpoints.borrow_mut() = endpoints;
    }

    /// Begin everything in a flush.
    pub fn dispatch(self: &Rc<Self>, requests: Requests) {
        for (id, why) in requests.refused {
            self.end(id, Failure::unsent(grpc::INVALID_ARGUMENT, why));
        }
        for call in requests.calls {
            self.begin_call(call);
        }
        for open in requests.opened {
            self.begin_stream(open, Rc::default());
        }
        {
            let streams = self.streams.borrow();
            for (id, message) in requests.frames {
                if let Some(open) = streams.get(&id) {
                    open.stream.send(message);
                }
            }
            for id in requests.half_closed {
                if let Some(open) = streams.get(&id) {
                    open.stream.half_close();
                }
            }
            for (id, bytes) in requests.taken {
                if let Some(open) = streams.get(&id) {
                    open.stream.take(bytes);
                }
            }
        }
        for id in requests.gone {
            self.give_up(id);
        }
    }

    fn begin_call(self: &Rc<Self>, call: Call) {
        let (id, deadline) = (call.id, call.deadline);
        let mut due = deadline;
        let timeout = deadline.map(|deadline| self.timeout_header(deadline));
        let begun = self.begin(call.method, timeout.as_ref(), call.metadata.as_ref());
        let state = match begun {
            None => {
                self.wait(id);
                due = earlier(deadline, self.reach_by());
                CallState::Waiting(call)
            }
            Some((connection, (response, mut send))) => {
                let running = connection.running();
                // It fails only if the stream has ended; its response has the error.
                let _ = send.send_data(call.message, true);
                CallState::Sent(spawn_local(
                    self.clone().end_call(connection, id, response, running),
                ))
            }
        };
        self.add_deadline(id, due);
        self.calls.borrow_mut().insert(id, OpenCall { due, state });
    }

    /// Queue an id for a connection; cancelled ids stay in the queue.
    fn wait(&self, id: u64) {
        let mut waiting = self.waiting.borrow_mut();
        let (calls, streams) = (self.calls.borrow(), self.streams.borrow());
        if waiting.len() > 2 * (calls.len() + streams.len()) + WAITING_SLACK {
            waiting.retain(|id| calls.contains_key(id) || streams.contains_key(id));
        }
        waiting.push_back(id);
    }

    /// The time limit of a wait that begins now.
    fn reach_by(&self) -> Option<Instant> {
        self.environment.options.reach_timeout.map(|timeout| Instant::now() + timeout)
    }

    fn begin_stream(self: &Rc<Self>, open: Open, stream: Rc<Stream>) {
        let id = open.id;
        let state =
            match self.begin(open.method, None, open.metadata.as_ref()) {
                None => {
                    self.wait(id);
                    self.add_deadline(id, self.reach_by());
                    StreamState::Waiting(open)
                }
                Some((connection, halves)) => StreamState::Sent(spawn_local(
                    self.clone().end_stream(connection, id, stream.clone(), halves),
                )),
            };
        self.streams.borrow_mut().insert(id, OpenStream { stream, state });
    }

    /// Begin at the next connected endpoint; none if there is none.
    #[allow(clippy::type_complexity)]
    fn begin(
        &self,
        method: u32,
        timeout: Option<&HeaderValue>,
        metadata: Option<&Metadata>,
    ) -> Option<(Rc<Connection>, (ResponseFuture, SendStream<Bytes>))> {
        loop {
            let connection = self.next_connection()?;
            if let Ok(halves) = connection.begin(method, timeout, metadata) {
                return Some((connection, halves));
            }
        }
    }

    fn next_connection(&self) -> Option<Rc<Connection>> {
        let endpoints = self.endpoints.borrow();
        if let [only] = &endpoints[..] {
            return only.connection();
        }
        let now = Instant::now();
        let turn = self.turn.get().wrapping_add(1);
        self.turn.set(turn);
        let order = (0..endpoints.len())
            .map(|at| &endpoints[(turn % endpoints.len() + at) % endpoints.len()]);
        let healthy = order.clone().filter(|each| !each.is_avoided(now));
        healthy.chain(order).find_map(|each| each.connection())
    }

    /// Begin the calls and streams that wait for a connection.
    pub fn serve_waiting(self: &Rc<Self>) {
        let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
        for id in waiting {
            if let Some(OpenCall { state: CallState::Waiting(call), .. }) = self.take_call(id) {
                self.begin_call(call); // an id is queued once, and not after it was sent
                continue;
            }
            let found = self.streams.borrow_mut().remove(&id);
            match found {
                Some(OpenStream { state: StreamState::Waiting(open), stream }) => {
                    self.begin_stream(open, stream);
                }
                Some(other) => {
                    self.streams.borrow_mut().insert(id, other);
                }
                None => {}
            }
        }
    }

    /// The time until a deadline, as a `grpc-timeout`.
    fn timeout_header(&self, deadline: Instant) -> HeaderValue {
        let left = deadline.saturating_duration_since(Instant::now());
        // Whole milliseconds, so that calls with the same limit share a header, plus one in transit.
        let left = Duration::from_millis(left.as_millis() as u64 + 1);
        if let Some((of, header)) = &*self.timeout_header.borrow() {
            if *of == left {
                return header.clone();
            }
        }
        let millis = left.as_millis();
        let text = if millis < 100_000_000 {
            format!("{millis}m")
        } else {
            format!("{}S", left.as_secs().min(99_999_999))
        };
        let Ok(header) = HeaderValue::try_from(text) else { return HeaderValue::from_static("1H") };
        *self.timeout_header.borrow_mut() = Some((left, header.clone()));
        header
    }

    fn add_deadline(&self, id: u64, due: Option<Instant>) {
        if let Some(due) = due {
            let mut deadlines = self.deadlines.borrow_mut();
            let is_first = deadlines.first().is_none_or(|(first, _)| due < *first);
            deadlines.insert((due, id));
            if is_first {
                self.deadlines_changed.notify_one();
            }
        }
    }

    /// End what is past its deadline; return the next deadline.
    pub fn expire(&self, now: Instant) -> Option<Instant> {
        loop {
            let (deadline, id) = self.deadlines.borrow().first().copied()?;
            if deadline > now {
                return Some(deadline);
            }
            self.deadlines.borrow_mut().pop_first();
            let call = self.calls.borrow_mut().remove(&id);
            match call.map(|call| call.state) {
                Some(CallState::Sent(task)) => {
                    task.abort();
                    let text = "context deadline exceeded";
                    self.end(id, Failure::sent(grpc::DEADLINE_EXCEEDED, text));
                }
                Some(CallState::Waiting(_)) => self.end(id, self.unreached()),
                None => self.expire_stream(id),
            }
        }
    }

    /// End a stream that has waited for a connection too long.
    fn expire_stream(&self, id: u64) {
        let waits = |open: &OpenStream| matches!(open.state, StreamState::Waiting(_));
        if self.streams.borrow().get(&id).is_some_and(waits) {
            self.streams.borrow_mut().remove(&id);
            self.end(id, self.unreached());
        }
    }

    fn unreached(&self) -> Failure {
        Failure::unsent(grpc::UNAVAILABLE, self.errors())
    }

    /// Why no endpoint can be reached.
    fn errors(&self) -> String {
        let endpoints = self.endpoints.borrow();
        let errors: Vec<_> = endpoints.iter().filter_map(|each| each.error()).collect();
        if errors.is_empty() {
            return "no endpoint was connected in time".into();
        }
        format!("no endpoint could be reached: {}", errors.join("; "))
    }

    fn end(&self, id: u64, failure: Failure) {
        let Failure { code, text, was_sent } = failure;
        self.environment.inbox.add_end(End { id, code, text, was_sent });
    }

    fn take_call(&self, id: u64) -> Option<OpenCall> {
        let call = self.calls.borrow_mut().remove(&id)?;
        if let Some(due) = call.due {
            self.deadlines.borrow_mut().remove(&(due, id));
        }
        Some(call)
    }

    /// Wait for the reply to a call that was sent, and end the call with it.
    async fn end_call(
        self: Rc<Self>,
        connection: Rc<Connection>,
        id: u64,
        response: ResponseFuture,
        running: Running,
    ) {
        let result = reply(&self.environment, &connection, response).await;
        drop(running);
        self.finish_call(id, &connection, result);
    }

    /// Run a stream that was begun to its end.
    async fn end_stream(
        self: Rc<Self>,
        connection: Rc<Connection>,
        id: u64,
        stream: Rc<Stream>,
        halves: (ResponseFuture, SendStream<Bytes>),
    ) {
        let end = StreamTask::new(&self.environment, connection.clone(), id, stream, halves).await;
        self.finish_stream(id, &connection, end);
    }

    /// End a call with its reply or its error.
    fn finish_call(&self, id: u64, connection: &Connection, result: Result<Bytes, Failure>) {
        if self.take_call(id).is_none() {
            return; // cancelled in the meantime
        }
        match result {
            Ok(reply) => self.environment.inbox.add_reply(id, reply),
            Err(failure) => {
                self.note_failure(connection, &failure);
                self.end(id, failure);
            }
        }
    }

    /// End a stream.
    fn finish_stream(&self, id: u64, connection: &Connection, failure: Failure) {
        if self.streams.borrow_mut().remove(&id).is_some() {
            self.note_failure(connection, &failure);
            self.end(id, failure);
        }
    }

    fn note_failure(&self, connection: &Connection, failure: &Failure) {
        if failure.code == grpc::UNAVAILABLE {
            let endpoints = self.endpoints.borrow();
            if let Some(endpoint) =
                endpoints.iter().find(|each| *each.address.name == *connection.name)
            {
                endpoint.avoid(Instant::now());
            }
        }
    }

    /// Cancel a call or stream; nothing is queued for it.
    fn give_up(&self, id: u64) {
        if let Some(call) = self.take_call(id) {
            if let CallState::Sent(task) = call.state {
                task.abort();
            }
        } else if let Some(open) = self.streams.borrow_mut().remove(&id) {
            if let StreamState::Sent(task) = open.state {
                task.abort();
            }
        }
    }

    /// Cancel everything and stop dialling.
    pub fn close(&self) {
        for endpoint in self.endpoints.borrow_mut().drain(..) {
            endpoint.close();
        }
        let calls: Vec<u64> = self.calls.borrow().keys().copied().collect();
        let streams: Vec<u64> = self.streams.borrow().keys().copied().collect();
        for id in calls.into_iter().chain(streams) {
            self.give_up(id);
        }
    }
}
