//! How many descriptors the process has left, and who frees some when they run short.
//!
//! ```text
//! limit 1024, reserve 150:  0 ........ 873 | 874 .......... 1023
//!                           connections    | logs, databases, snapshots, links
//! ```
//!
//! A new descriptor gets the lowest free number, so there are enough as long as no number of a connection
//! lies in the reserve. From then on descriptors are counted, at intervals. While they are short, the
//! listeners of every server of the process stop accepting, and `announce_shortage` asks all servers to
//! close connections that have sent nothing, or are idle.

use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustix::process::{getrlimit, Resource};
use tokio::sync::Notify;

/// Descriptors that connections leave to the rest of the process, as etcd's listeners do.
pub const RESERVE: u64 = 150;
const COUNT_INTERVAL: Duration = Duration::from_millis(50);
#[cfg(target_os = "linux")]
const OPEN: &str = "/proc/self/fd";
#[cfg(not(target_os = "linux"))]
const OPEN: &str = "/dev/fd";

static SERVERS: Mutex<Vec<Weak<Notify>>> = Mutex::new(Vec::new());
static IS_COUNTING: AtomicBool = AtomicBool::new(false); // numbers in the reserve are in use
static LAST: Mutex<Option<Count>> = Mutex::new(None);

/// The descriptors of the process at a time; connections since then are added.
struct Count {
    at: Instant,
    used: u64,
    highest: u64,
}

impl Count {
    /// Count now; none if that would need one more descriptor than there are.
    fn take() -> Option<Self> {
        let (mut used, mut highest) = (0, 0);
        for each in fs::read_dir(OPEN).ok()? {
            used += 1;
            let number = each.ok().and_then(|each| each.file_name().to_str()?.parse().ok());
            highest = highest.max(number.unwrap_or(0));
        }
        Some(Count { at: Instant::now(), used, highest })
    }
}

fn last() -> MutexGuard<'static, Option<Count>> {
    LAST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The soft limit now; none if there is none.
pub fn limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

fn first_reserved(limit: Option<u64>) -> u64 {
    // Half of a limit that is too small for the reserve.
    limit.map_or(u64::MAX, |limit| limit - RESERVE.min(limit / 2))
}

/// Return whether fewer than `RESERVE` descriptors are left with this new one.
pub fn are_short_with(new: &impl AsFd) -> bool {
    let number = u64::try_from(new.as_fd().as_raw_fd()).unwrap_or(0);
    if number < first_reserved(limit()) && !IS_COUNTING.load(Ordering::Relaxed) {
        return false;
    }
    if let Some(count) = &mut *last() {
        count.used += 1;
        count.highest = count.highest.max(number);
    }
    are_short()
}

/// Return whether fewer than `RESERVE` descriptors are left.
pub fn are_short() -> bool {
    let last = &mut *last();
    if last.as_ref().is_none_or(|count| count.at.elapsed() >= COUNT_INTERVAL) {
        *last = Count::take();
    }
    let first = first_reserved(limit());
    let (used, highest) = last.as_ref().map_or((u64::MAX, u64::MAX), |c| (c.used, c.highest));
    IS_COUNTING.store(highest >= first, Ordering::Relaxed);
    used > first
}

/// Note that a connection is closed.
pub fn note_closed() {
    if let Some(count) = &mut *last() {
        count.used = count.used.saturating_sub(1);
    }
}

/// A server that wants to hear of a shortage.
pub struct Shortage(Arc<Notify>);

impl Shortage {
    pub fn subscribe() -> Self {
        let notify = Arc::new(Notify::new());
        let mut servers = SERVERS.lock().unwrap_or_else(PoisonError::into_inner);
        servers.retain(|each| each.strong_count() > 0);
        servers.push(Arc::downgrade(&notify));
        Shortage(notify)
    }

    /// Wait for the next announcement.
    pub async fn announced(&self) {
        self.0.notified().await;
    }
}

/// Let every server of the process close connections that have sent nothing, or are idle.
pub fn announce_shortage() {
    let servers = SERVERS.lock().unwrap_or_else(PoisonError::into_inner);
    for each in servers.iter().filter_map(Weak::upgrade) {
        each.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_is_kept_of_large_limits_and_half_of_small_ones() {
        assert_eq!(first_reserved(Some(1024)), 874);
        assert_eq!(first_reserved(Some(256)), 128);
        assert_eq!(first_reserved(None), u64::MAX);
    }

    #[test]
    fn every_server_hears_of_a_shortage() {
        let (one, other) = (Shortage::subscribe(), Shortage::subscribe());
        announce_shortage();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            one.announced().await;
            other.announced().await;
        });
    }
}
