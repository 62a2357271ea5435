//! The queue of answers from the client thread to the caller's thread, which takes a batch at once.
//!
//! ```text
//! client thread                           caller's thread
//! add_reply, add_frame, add_end ──► Inbox ──► descriptor readable ──► take()
//! ```
//!
//! Invariant: items are taken in the order they were added, so the frames of a stream come before its end.
//! The descriptor becomes readable when the client thread has nothing more to do at once
//! (`notify_if_due`, before it parks), or has polled `POLLS_MAX` tasks since: one take then gets everything
//! that arrived together.
//!
//! Limits: a take returns about `TAKE_BYTES_MAX`; the queue is bounded by the calls in flight, and for
//! streams by what each may be ahead of its reader (`exchange`).

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::wakeup::PipeWakeup;

const TAKE_BYTES_MAX: usize = 16 << 20;
const POLLS_MAX: u32 = 64;
const NOTICES_MAX: usize = 64;

/// The end of a call or stream without a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    pub id: u64,
    pub code: u32,
    pub text: Bytes,
    pub was_sent: bool, // the server may have seen it
}

pub enum Item {
    Reply(u64, Bytes),
    Frame(u64, Bytes),
    End(End),
}

impl Item {
    fn size(&self) -> usize {
        match self {
            Item::Reply(_, body) | Item::Frame(_, body) => body.len(),
            Item::End(end) => end.text.len(),
        }
    }
}

#[derive(Default)]
struct State {
    items: VecDeque<Item>,
    notices: Vec<String>,
    failure: Option<String>,
}

/// The result of one take.
#[derive(Default)]
pub struct Taken {
    pub items: VecDeque<Item>,
    pub notices: Vec<String>,
}

pub struct Inbox {
    state: Mutex<State>,
    wakeup: PipeWakeup,
    is_notify_due: AtomicBool,
    polls: AtomicU32,
}

impl Inbox {
    pub fn new() -> io::Result<Self> {
        Ok(Inbox {
            state: Mutex::default(),
            wakeup: PipeWakeup::new()?,
            is_notify_due: AtomicBool::new(false),
            polls: AtomicU32::new(0),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Readable when something is queued.
    pub fn descriptor(&self) -> RawFd {
        self.wakeup.descriptor()
    }

    pub fn add_reply(&self, id: u64, body: Bytes) {
        self.add(Item::Reply(id, body));
    }

    pub fn add_frame(&self, id: u64, message: Bytes) {
        self.add(Item::Frame(id, message));
    }

    pub fn add_end(&self, end: End) {
        self.add(Item::End(end));
    }

    fn add(&self, item: Item) {
        self.lock().items.push_back(item);
        self.is_notify_due.store(true, Ordering::Release);
    }

    /// Queue a line for the log; lines over the limit are dropped.
    pub fn add_notice(&self, text: String) {
        let notices = &mut self.lock().notices;
        if notices.len() < NOTICES_MAX {
            notices.push(text);
            self.is_notify_due.store(true, Ordering::Release);
        }
    }

    /// Note that the thread has failed.
    pub fn fail(&self, reason: String) {
        self.lock().failure.get_or_insert(reason);
        self.wakeup.notify();
    }

    pub fn failure(&self) -> Option<String> {
        self.lock().failure.clone()
    }

    /// Make the descriptor readable if something was added since the last time.
    pub fn notify_if_due(&self) {
        if self.is_notify_due.load(Ordering::Acquire)
            && self.is_notify_due.swap(false, Ordering::AcqRel)
        {
            self.polls.store(0, Ordering::Relaxed);
            self.wakeup.notify();
        }
    }

    /// Count a poll of a task: a busy thread may not park for long.
    pub fn note_poll(&self) {
        if self.is_notify_due.load(Ordering::Relaxed)
            && self.polls.fetch_add(1, Ordering::Relaxed) >= POLLS_MAX
        {
            self.notify_if_due();
        }
    }

    /// Take everything, up to the limit of one take.
    pub fn take(&self) -> Taken {
        self.wakeup.arm(); // first: later items notify again
        let mut state = self.lock();
        let notices = std::mem::take(&mut state.notices);
        let mut bytes = 0;
        let mut fits = |item: &Item| {
            bytes += item.size();
            bytes <= TAKE_BYTES_MAX
        };
        let count = state.items.iter().take_while(|item| fits(item)).count();
        if count == state.items.len() {
            return Taken { items: std::mem::take(&mut state.items), notices };
        }
        let rest = state.items.split_off(count.max(1)); // one is always taken
        let items = std::mem::replace(&mut state.items, rest);
        let is_more = !state.items.is_empty();
        drop(state);
        if is_more {
            self.wakeup.notify();
        }
        Taken { items, notices }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(taken: &Taken) -> Vec<u64> {
        let id = |item: &Item| match item {
            Item::Reply(id, _) | Item::Frame(id, _) => *id,
            Item::End(end) => end.id,
        };
        taken.items.iter().map(id).collect()
    }

    fn is_readable(inbox: &Inbox) -> bool {
        inbox.wakeup.is_notified()
    }

    #[test]
    fn items_keep_their_order_and_ring_once() {
        let inbox = Inbox::new().unwrap();
        inbox.add_frame(7, Bytes::from_static(b"one"));
        inbox.add_reply(3, Bytes::from_static(b"two"));
        let end = End { id: 7, code: 14, text: Bytes::new(), was_sent: true };
        inbox.add_end(end);
        assert!(!is_readable(&inbox));
        inbox.notify_if_due();
        assert!(is_readable(&inbox));
        assert_eq!(ids(&inbox.take()), [7, 3, 7]);
        assert!(!is_readable(&inbox));
        inbox.notify_if_due();
        assert!(!is_readable(&inbox));
    }

    #[test]
    fn a_take_is_bounded_and_the_rest_rings_again() {
        let inbox = Inbox::new().unwrap();
        let large = Bytes::from(vec![0; TAKE_BYTES_MAX]);
        inbox.add_reply(1, large.clone());
        inbox.add_reply(2, large);
        inbox.add_reply(3, Bytes::new());
        inbox.notify_if_due();
        assert_eq!(ids(&inbox.take()), [1]);
        assert!(is_readable(&inbox));
        assert_eq!(ids(&inbox.take()), [2, 3]);
        assert!(!is_readable(&inbox));
    }

    #[test]
    fn whoever_never_parks_rings_all_the_same() {
        let inbox = Inbox::new().unwrap();
        inbox.add_notice("a line".into());
        (0..=POLLS_MAX).for_each(|_| inbox.note_poll());
        assert!(is_readable(&inbox));
        assert_eq!(inbox.take().notices, ["a line"]);
    }
}
