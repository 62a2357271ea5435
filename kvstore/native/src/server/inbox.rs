//! The queue from the loop thread to the driver's thread, which takes a batch at once.
//!
//! ```text
//! loop thread                          driver's thread
//! add_call, add_frame, ... ──► Inbox ──► wait(timeout), take()
//! ```
//!
//! Invariant: one lock, held for a few pushes or one swap, never while a thread is woken. The order within
//! one stream is kept: opened, its frames, half-closed, disconnected.
//!
//! The driver's thread is woken only when the loop thread has nothing more to do at once
//! (`notify_if_due`, before it parks), or has polled `POLLS_MAX` connections since: a turn then gets
//! everything that arrived together, and the two threads do not wait for one another's lock.
//!
//! Producers that found no room wait in a queue and are woken in its order, a few at a time, as there is
//! room: waking all of them at every take would be quadratic in their number.
//!
//! Limits: queued calls (`add_call` refuses) and queued bytes (readers pause) are bounded, and one take
//! returns at most `calls_max` calls and about `bytes_max` bytes.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;

use crate::http::messages::{Arrival, HttpRequest};
use crate::server::peer_table::PeerTable;
use crate::wakeup::{PipeWakeup, Waited, Wakeup};

/// The metadata of one call that the node uses.
pub type Metadata = Vec<(&'static str, String)>;

const NOTICES_MAX: usize = 64;
const POLLS_MAX: u32 = 64;
const WOKEN_AT_ONCE: usize = 64; // producers that waited for room

#[derive(Clone, Debug)]
pub struct Limits {
    pub calls_max: usize,
    pub bytes_max: usize,
    pub waiting_calls_max: usize,
    pub waiting_bytes_max: usize,
    pub stream_frames_max: usize,
    pub stream_bytes_max: usize,
}

pub struct Call {
    pub id: u64,
    pub method: u32,
    pub body: Bytes,
    pub metadata: Option<Metadata>,
}

pub struct Opened {
    pub id: u64,
    pub method: u32,
    pub metadata: Option<Metadata>,
}

/// The columns of one batch.
#[derive(Default)]
pub struct Arrivals {
    pub calls: VecDeque<Call>,
    pub opened: Vec<Opened>,
    pub frames: VecDeque<(u64, Bytes)>,
    pub requests: Vec<HttpRequest>,
    pub arrived: Vec<Arrival>, // requests on ports of HTTP alone
    pub half_closed: Vec<u64>,
    pub gone: Vec<u64>,
    pub writable: Vec<u64>, // streams below the limit of unsent bytes of `notify_writable`
    pub notices: Vec<String>,
}

/// How much of one stream was read but not taken; reset at every complete take.
#[derive(Default)]
pub struct ReadAhead {
    frames: usize,
    bytes: usize,
    generation: u64,
}

/// A producer that waits for room.
struct Waiting {
    waker: Waker,
    is_queued: AtomicBool,
}

/// The position of a producer in the queue of waiters for room; at most one each.
#[derive(Default)]
pub struct Pause(Option<Arc<Waiting>>);

impl Pause {
    fn is_queued_for(&self, waker: &Waker) -> bool {
        let waiting = self.0.as_ref();
        waiting.is_some_and(|w| w.is_queued.load(Ordering::Acquire) && w.waker.will_wake(waker))
    }
}

struct State {
    arrivals: Arrivals,
    bytes: usize,
    paused: VecDeque<Arc<Waiting>>,    // since the last take
    resumable: VecDeque<Arc<Waiting>>, // since an earlier one: to be woken as there is room
    pending: bool,
    waiting: bool,
    failure: Option<String>,
}

impl State {
    fn pause(&mut self, waker: &Waker) -> Arc<Waiting> {
        let waiting = Arc::new(Waiting { waker: waker.clone(), is_queued: AtomicBool::new(true) });
        self.paused.push_back(waiting.clone());
        waiting
    }
}

fn wake_all(woken: Vec<Arc<Waiting>>) {
    for each in woken {
        each.is_queued.store(false, Ordering::Release); // first: it may queue again at once
        each.waker.wake_by_ref();
    }
}

pub struct Inbox {
    limits: Limits,
    generation: AtomicU64,
    state: Mutex<State>,
    wakeup: Wakeup,
    shared: OnceLock<PipeWakeup>, // for a sleeper that waits for other descriptors, too
    is_shared: AtomicBool,        // the current sleep uses it
    is_notify_due: AtomicBool,    // the driver's thread sleeps and has work
    polls: AtomicU32,             // of connections, since then
    is_drained: AtomicBool,       // after a drain began: nothing is in flight
    has_resumable: AtomicBool,
    wakes_for_notices: bool,
    pub peers: PeerTable,
}

impl Inbox {
    pub fn new(limits: Limits) -> io::Result<Self> {
        let state = State {
            arrivals: Arrivals::default(),
            bytes: 0,
            paused: VecDeque::new(),
            resumable: VecDeque::new(),
            pending: false,
            waiting: false,
            failure: None,
        };
        Ok(Inbox {
            limits,
            generation: AtomicU64::new(1),
            state: Mutex::new(state),
            wakeup: Wakeup::new()?,
            shared: OnceLock::new(),
            is_shared: AtomicBool::new(false),
            is_notify_due: AtomicBool::new(false),
            polls: AtomicU32::new(0),
            is_drained: AtomicBool::new(false),
            has_resumable: AtomicBool::new(false),
            wakes_for_notices: false,
            peers: PeerTable::default(),
        })
    }

    /// An inbox for a driver that polls only when it is woken.
    pub fn waking_for_notices(limits: Limits) -> io::Result<Self> {
        Ok(Inbox { wakes_for_notices: true, ..Inbox::new(limits)? })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn signal(&self, state: &mut State) {
        state.pending = true;
        if state.waiting {
            state.waiting = false;
            self.is_notify_due.store(true, Ordering::Release);
        }
    }

    /// Wake the driver's thread, if it sleeps and something is queued.
    pub fn notify_if_due(&self) {
        if self.is_notify_due.load(Ordering::Acquire)
            && self.is_notify_due.swap(false, Ordering::AcqRel)
        {
            self.polls.store(0, Ordering::Relaxed);
            match self.shared.get() {
                Some(shared) if self.is_shared.load(Ordering::Acquire) => shared.notify(),
                _ => self.wakeup.notify(),
            }
        }
    }

    /// Count a poll of a connection: a busy loop thread may not park for long.
    pub fn note_poll(&self) {
        if self.is_notify_due.load(Ordering::Relaxed)
            && self.polls.fetch_add(1, Ordering::Relaxed) >= POLLS_MAX
        {
            self.notify_if_due();
        }
    }

    /// Queue a unary or server-stream call; false: the queue is full.
    pub fn add_call(&self, call: Call) -> bool {
        let mut state = self.lock();
        if state.arrivals.calls.len() >= self.limits.waiting_calls_max {
            return false;
        }
        state.bytes += call.body.len();
        state.arrivals.calls.push_back(call);
        self.signal(&mut state);
        true
    }

    /// Queue a request that is not gRPC; false: the queue is full.
    pub fn add_request(&self, request: HttpRequest) -> bool {
        let mut state = self.lock();
        if state.arrivals.requests.len() >= self.limits.waiting_calls_max {
            return false;
        }
        state.bytes += request.body.as_ref().map_or(0, Bytes::len);
        state.arrivals.requests.push(request);
        self.signal(&mut state);
        true
    }

    /// Queue a request of a port of HTTP alone; false: the queue is full.
    pub fn add_arrival(&self, arrival: Arrival) -> bool {
        let mut state = self.lock();
        if state.arrivals.arrived.len() >= self.limits.waiting_calls_max {
            return false;
        }
        state.bytes += arrival.body.as_ref().map_or(0, Bytes::len);
        state.arrivals.arrived.push(arrival);
        self.signal(&mut state);
        true
    }

    /// Return whether a request may be read now; if not, the waker is woken when one may.
    pub fn has_room(&self, waker: &Waker, pause: &mut Pause) -> bool {
        let mut state = self.lock();
        if state.bytes < self.limits.waiting_bytes_max {
            return true;
        }
        if !pause.is_queued_for(waker) && !waker.will_wake(Waker::noop()) {
            pause.0 = Some(state.pause(waker));
        }
        false
    }

    /// To be called by the loop's thread before it sleeps: wake the driver's thread, if it has work, and
    /// producers, if there is room.
    pub fn before_park(&self) {
        self.notify_if_due();
        if self.has_resumable.load(Ordering::Acquire) {
            let woken = self.take_resumable(&mut self.lock());
            wake_all(woken);
        }
    }

    /// Take producers to wake, if there is room: some, since they use it up.
    fn take_resumable(&self, state: &mut State) -> Vec<Arc<Waiting>> {
        let mut woken = Vec::new();
        if state.bytes < self.limits.waiting_bytes_max {
            let count = state.resumable.len().min(WOKEN_AT_ONCE);
            woken.extend(state.resumable.drain(..count));
        }
        self.has_resumable.store(!state.resumable.is_empty(), Ordering::Release);
        woken
    }

    /// Queue a new bidi stream; false: the queue is full.
    pub fn add_opened(&self, opened: Opened) -> bool {
        let mut state = self.lock();
        if state.arrivals.opened.len() >= self.limits.waiting_calls_max {
            return false;
        }
        state.arrivals.opened.push(opened);
        self.signal(&mut state);
        true
    }

    /// Queue a stream's message; false: the reader pauses until the waker is woken.
    pub fn add_frame(&self, id: u64, message: Bytes, ahead: &mut ReadAhead, waker: &Waker) -> bool {
        let mut state = self.lock();
        let generation = self.generation.load(Ordering::Relaxed);
        if ahead.generation != generation {
            *ahead = ReadAhead { generation, ..ReadAhead::default() };
        }
        ahead.frames += 1;
        ahead.bytes += message.len();
        state.bytes += message.len();
        state.arrivals.frames.push_back((id, message));
        self.signal(&mut state);
        let full = ahead.frames >= self.limits.stream_frames_max
            || ahead.bytes >= self.limits.stream_bytes_max
            || state.bytes >= self.limits.waiting_bytes_max;
        if full {
            state.pause(waker);
        }
        !full
    }

    /// Return whether a paused reader stays paused.
    pub fn is_paused(&self, ahead: &ReadAhead) -> bool {
        ahead.generation == self.generation.load(Ordering::Acquire)
    }

    pub fn add_half_closed(&self, id: u64) {
        let mut state = self.lock();
        state.arrivals.half_closed.push(id);
        self.signal(&mut state);
    }

    pub fn add_disconnected(&self, id: u64) {
        let mut state = self.lock();
        state.arrivals.gone.push(id);
        self.signal(&mut state);
    }

    pub fn add_writable(&self, id: u64) {
        let mut state = self.lock();
        state.arrivals.writable.push(id);
        self.signal(&mut state);
    }

    /// Queue a line for the log, which does not wake the driver's thread; lines over the limit are
    /// dropped.
    pub fn add_notice(&self, text: String) {
        let mut state = self.lock();
        if state.arrivals.notices.len() < NOTICES_MAX {
            state.arrivals.notices.push(text);
            if self.wakes_for_notices {
                self.signal(&mut state);
            }
        }
    }

    /// Make a waiting `wait`, or the next one, return.
    pub fn wake(&self) {
        self.signal(&mut self.lock());
        self.notify_if_due();
    }

    /// Set whether a drain is complete; wakes the driver's thread when it is.
    pub fn set_drained(&self, is_drained: bool) {
        if is_drained != self.is_drained.swap(is_drained, Ordering::AcqRel) && is_drained {
            self.wake();
        }
    }

    pub fn is_drained(&self) -> bool {
        self.is_drained.load(Ordering::Acquire)
    }

    /// Note that the loop has failed.
    pub fn fail(&self, reason: String) {
        let mut state = self.lock();
        state.failure.get_or_insert(reason);
        self.signal(&mut state);
        drop(state);
        self.notify_if_due();
    }

    pub fn failure(&self) -> Option<String> {
        self.lock().failure.clone()
    }

    /// Wait until something is queued, `wake` was called, a signal came or the timeout is over.
    pub fn wait(&self, timeout: Duration) -> io::Result<Waited> {
        {
            let mut state = self.lock();
            if state.pending || timeout.is_zero() {
                return Ok(Waited::Exit);
            }
            self.wakeup.arm();
            state.waiting = true;
        }
        let waited = self.wakeup.wait(timeout);
        self.lock().waiting = false;
        waited
    }

    /// Return the descriptor for a sleeper that waits for others, too, between `arm` and `disarm`.
    pub fn descriptor(&self) -> io::Result<RawFd> {
        if self.shared.get().is_none() {
            let _ = self.shared.set(PipeWakeup::new()?); // set already by another thread
        }
        Ok(self.shared.get().map_or(-1, PipeWakeup::descriptor))
    }

    /// Begin a sleep that the descriptor ends; false: something is queued already.
    pub fn arm(&self) -> bool {
        let mut state = self.lock();
        if let Some(shared) = self.shared.get() {
            shared.arm(); // always: earlier notifications are known now
            if !state.pending {
                self.is_shared.store(true, Ordering::Release);
                state.waiting = true;
            }
        }
        state.waiting
    }

    /// End a sleep that `arm` began.
    pub fn disarm(&self) {
        self.lock().waiting = false;
        self.is_shared.store(false, Ordering::Release);
    }

    /// Return whether a take would return something, or `wake` was called.
    pub fn is_pending(&self) -> bool {
        self.lock().pending
    }

    /// Take everything, up to the limits of one take.
    pub fn take(&self) -> Arrivals {
        let (taken, woken) = {
            let mut state = self.lock();
            state.pending = false;
            let mut taken = std::mem::take(&mut state.arrivals);
            if state.bytes > self.limits.bytes_max || taken.calls.len() > self.limits.calls_max {
                self.put_back_rest(&mut state, &mut taken);
            } else {
                state.bytes = 0;
            }
            if state.arrivals.frames.is_empty() {
                self.generation.fetch_add(1, Ordering::Release);
                let State { paused, resumable, .. } = &mut *state;
                resumable.append(paused);
            }
            let woken = self.take_resumable(&mut state);
            (taken, woken)
        };
        wake_all(woken);
        taken
    }

    /// Put back what is over the limits of one take.
    fn put_back_rest(&self, state: &mut State, taken: &mut Arrivals) {
        let mut left_bytes = self.limits.bytes_max;
        let mut fit = |position: usize, size: usize, count_max: usize| {
            if position >= count_max || (size > left_bytes && position > 0) {
                return false;
            }
            left_bytes = left_bytes.saturating_sub(size);
            true
        };
        let calls = taken.calls.iter().enumerate();
        let calls_end =
            calls.take_while(|(i, call)| fit(*i, call.body.len(), self.limits.calls_max)).count();
        let frames = taken.frames.iter().enumerate();
        let frames_end = frames.take_while(|(i, frame)| fit(*i, frame.1.len(), usize::MAX)).count();
        let rest = &mut state.arrivals;
        rest.calls = taken.calls.split_off(calls_end);
        rest.frames = taken.frames.split_off(frames_end);
        let later: HashSet<u64> =
            rest.calls.iter().map(|call| call.id).chain(rest.frames.iter().map(|f| f.0)).collect();
        for (all, kept) in
            [(&mut taken.half_closed, &mut rest.half_closed), (&mut taken.gone, &mut rest.gone)]
        {
            let (later_ids, now): (Vec<u64>, Vec<u64>) =
                std::mem::take(all).into_iter().partition(|id| later.contains(id));
            *all = now;
            *kept = later_ids;
        }
        state.bytes = rest.calls.iter().map(|call| call.body.len()).sum::<usize>()
            + rest.frames.iter().map(|frame| frame.1.len()).sum::<usize>();
        state.pending = true;
    }
}

#[cfg(test)]
mod tests {
    use std::task::Wake;

    use super::*;

    struct Flag(AtomicBool);

    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    #[test]
    fn waking_paused_producers_is_linear() {
        const PRODUCERS: usize = 5_000;
        const ROOM: usize = 10; // requests
        let limits = Limits {
            calls_max: usize::MAX,
            bytes_max: usize::MAX,
            waiting_calls_max: usize::MAX,
            waiting_bytes_max: ROOM,
            stream_frames_max: usize::MAX,
            stream_bytes_max: usize::MAX,
        };
        let inbox = Inbox::new(limits).unwrap();
        let mut waiting: Vec<(Arc<Flag>, Pause)> = (0..PRODUCERS)
            .map(|_| (Arc::new(Flag(AtomicBool::new(true))), Pause::default()))
            .collect();
        let (mut polls, mut taken, mut takes) = (0usize, 0usize, 0usize);
        while taken < PRODUCERS {
            let mut is_idle = true;
            waiting.retain_mut(|(flag, pause)| {
                if !flag.0.swap(false, Ordering::SeqCst) {
                    return true;
                }
                is_idle = false;
                polls += 1;
                let has_room = inbox.has_room(&flag.clone().into(), pause);
                if has_room {
                    let body = Bytes::from_static(b"x");
                    assert!(inbox.add_call(Call { id: 1, method: 0, body, metadata: None }));
                }
                !has_room
            });
            if is_idle {
                let count = inbox.take().calls.len();
                assert!(count > 0, "producers wait although there is room");
                taken += count;
                takes += 1;
            } else {
                inbox.before_park();
            }
        }
        assert!(polls <= 2 * PRODUCERS + takes * WOKEN_AT_ONCE, "{polls} polls, {takes} takes");
        assert!(polls < PRODUCERS * PRODUCERS / ROOM / 10, "{polls} polls");
    }
}
