//! The limit on how long a socket may take no byte although bytes wait for it.
//!
//! ```text
//! Raw.poll_write ──Pending──► Stall: blocked since t ──t + limit──► the connection is closed
//!                └─n bytes──► Stall: not blocked
//! ```
//!
//! It is noted where the socket is written, below TLS and HTTP. A connection that waits for the window of
//! an HTTP/2 stream, or has nothing to send, is not blocked: this limit does not concern it.
//!
//! The kernel reports a socket as writable once a third of its buffer is free, which may be a megabyte and
//! take a slow reader minutes. So the timer asks now and then for a probe: a write without that report.

use std::cell::Cell;
use std::future::{poll_fn, Future};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::time::{sleep_until, Sleep};

const PROBES: u32 = 4; // in the time of the limit

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Probe {
    #[default]
    None,
    Wanted,
    Failed,
}

/// Since when a socket takes nothing.
#[derive(Default)]
pub struct Stall {
    since: Cell<Option<Instant>>,
    probe: Cell<Probe>,
}

impl Stall {
    /// The socket took no byte of those that wait.
    pub fn note_blocked(&self) {
        if self.since.get().is_none() {
            self.since.set(Some(Instant::now()));
        }
    }

    /// The socket took some.
    pub fn note_progress(&self) {
        self.since.set(None);
        self.probe.set(Probe::None);
    }

    /// Tell, once, whether a write is to be tried although the socket is not reported as writable.
    pub fn takes_probe(&self) -> bool {
        let is_wanted = self.probe.get() == Probe::Wanted;
        if is_wanted {
            self.probe.set(Probe::Failed); // until there is progress
        }
        is_wanted
    }

    pub fn since(&self) -> Option<Instant> {
        self.since.get()
    }
}

/// Fires when a socket is blocked for longer than the limit. It costs nothing before it is blocked.
pub struct StallTimer {
    limit: Option<Duration>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl StallTimer {
    /// For a limit; none: it never fires.
    pub fn new(limit: Option<Duration>) -> Self {
        StallTimer { limit, timer: None }
    }

    /// To be polled after every attempt to write.
    pub fn poll(&mut self, stall: &Stall, cx: &mut Context<'_>) -> Poll<()> {
        let Some(limit) = self.limit else { return Poll::Pending };
        let step = limit / PROBES;
        if self.timer.is_none() {
            let Some(since) = stall.since() else { return Poll::Pending };
            self.timer = Some(Box::pin(sleep_until((since + step).into())));
        }
        // It stays while bytes flow: a busy connection blocks often, and a timer is not free.
        while let Some(timer) = &mut self.timer {
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            match stall.since() {
                None => self.timer = None,
                Some(since) if since.elapsed() >= limit && stall.probe.get() == Probe::Failed => {
                    return Poll::Ready(());
                }
                Some(_) => {
                    stall.probe.set(Probe::Wanted);
                    cx.waker().wake_by_ref();
                    timer.as_mut().reset((Instant::now() + step).into());
                }
            }
        }
        Poll::Pending
    }
}

/// Wait until a socket is blocked for longer than the limit; to be polled with what writes to it.
pub async fn stalled(stall: &Stall, limit: Option<Duration>) {
    let mut timer = StallTimer::new(limit);
    poll_fn(|cx| timer.poll(stall, cx)).await;
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use tokio::time::timeout;

    use super::*;

    #[test]
    fn only_a_blocked_socket_is_stalled() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (stall, limit) = (Stall::default(), Duration::from_millis(20));
            let mut timer = StallTimer::new(Some(limit));
            let cx = &mut Context::from_waker(Waker::noop());
            assert!(timer.poll(&stall, cx).is_pending() && timer.timer.is_none());
            stall.note_blocked();
            assert!(timer.poll(&stall, cx).is_pending() && timer.timer.is_some());
            stall.note_progress();
            let waiting = poll_fn(|cx| timer.poll(&stall, cx));
            assert!(timeout(3 * limit, waiting).await.is_err(), "it made progress");
            assert!(timer.timer.is_none(), "the timer is gone");
            stall.note_blocked();
            let (mut probes, mut taken) = (0, 0);
            let waiting = poll_fn(|cx| {
                let polled = timer.poll(&stall, cx);
                if stall.takes_probe() {
                    probes += 1;
                    if taken < 10 {
                        taken += 1;
                        stall.note_progress(); // the probe was taken, and what is left was not
                        stall.note_blocked();
                    }
                }
                polled
            });
            timeout(100 * limit, waiting).await.expect("stalled");
            assert!(stall.since().unwrap().elapsed() >= limit);
            assert_eq!(taken, 10, "{probes} probes");
        });
    }
}
