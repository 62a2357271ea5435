//! How far the body of a request may be ahead of its reader.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

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

    /// Return whether more may be read; if not, a `take` wakes the reader.
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
