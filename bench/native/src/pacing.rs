//! Moments at a fixed rate, from a thread of its own: an event loop's timers are a millisecond apart.

use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{unbounded_channel, UnboundedReceiver};

/// Yield each moment something is due; the channel closes after the last.
pub fn dues(rate: f64, seconds: f64) -> UnboundedReceiver<Instant> {
    let (send, receive) = unbounded_channel();
    thread::spawn(move || {
        let begin = Instant::now();
        for number in 0..(rate * seconds) as u64 {
            let due = begin + Duration::from_secs_f64(number as f64 / rate);
            let now = Instant::now();
            if due > now {
                thread::sleep(due - now);
            }
            if send.send(due).is_err() {
                return;
            }
        }
    });
    receive
}
