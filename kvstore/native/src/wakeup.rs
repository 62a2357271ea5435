//! Wakes a thread that sleeps until another has work for it, or a signal comes.
//!
//! ```text
//! sleeper:  arm() … queue is empty … wait(timeout)          notifier:  … push … notify()
//! ```
//!
//! Invariant: a `notify` after `arm` ends the wait that follows it; a wait may also end without one.
//! Signals end a wait, so this is no condition variable, which would wait again.
//!
//! On Linux it is a futex, elsewhere a pipe. A sleeper that waits for other descriptors, too, has a pipe
//! everywhere.

use std::io;
use std::time::Duration;

use rustix::event::Timespec;

const LONGEST_S: u64 = 1 << 30;

/// How a wait ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Waited {
    Exit,
    Interrupted,
}

fn timespec(timeout: Duration) -> Timespec {
    Timespec {
        tv_sec: timeout.as_secs().min(LONGEST_S) as i64,
        tv_nsec: i64::from(timeout.subsec_nanos()),
    }
}

#[cfg(target_os = "linux")]
pub type Wakeup = futex::Wakeup;
#[cfg(not(target_os = "linux"))]
pub type Wakeup = pipe::Wakeup;
pub type PipeWakeup = pipe::Wakeup;

#[cfg(target_os = "linux")]
mod futex {
    use std::sync::atomic::{AtomicU32, Ordering};

    use rustix::io::Errno;
    use rustix::thread::futex;

    use super::{io, timespec, Duration, Waited};

    const IDLE: u32 = 0;
    const NOTIFIED: u32 = 1;

    pub struct Wakeup(AtomicU32);

    impl Wakeup {
        pub fn new() -> io::Result<Self> {
            Ok(Wakeup(AtomicU32::new(IDLE)))
        }

        pub fn arm(&self) {
            self.0.store(IDLE, Ordering::SeqCst);
        }

        pub fn wait(&self, timeout: Duration) -> io::Result<Waited> {
            let spec = timespec(timeout);
            match futex::wait(&self.0, futex::Flags::PRIVATE, IDLE, Some(&spec)) {
                Ok(()) | Err(Errno::AGAIN | Errno::TIMEDOUT) => Ok(Waited::Exit),
                Err(Errno::INTR) => Ok(Waited::Interrupted),
                Err(error) => Err(error.into()),
            }
        }

        pub fn notify(&self) {
            self.0.store(NOTIFIED, Ordering::SeqCst);
            // It fails only for an invalid address.
            let _ = futex::wake(&self.0, futex::Flags::PRIVATE, 1);
        }
    }
}

mod pipe {
    use std::io::{PipeReader, PipeWriter, Read, Write};
    use std::os::fd::{AsRawFd, RawFd};
    use std::sync::atomic::{AtomicBool, Ordering};

    use rustix::event::{poll, PollFd, PollFlags};
    use rustix::io::Errno;

    use super::{io, timespec, Duration, Waited};

    pub struct Wakeup {
        reader: PipeReader,
        writer: PipeWriter,
        has_byte: AtomicBool, // at most one is in the pipe
    }

    impl Wakeup {
        pub fn new() -> io::Result<Self> {
            let (reader, writer) = io::pipe()?;
            Ok(Wakeup { reader, writer, has_byte: AtomicBool::new(false) })
        }

        pub fn arm(&self) {
            if self.has_byte.load(Ordering::SeqCst) && (&self.reader).read(&mut [0]).is_ok() {
                self.has_byte.store(false, Ordering::SeqCst);
            }
        }

        /// Readable after `notify`.
        pub fn descriptor(&self) -> RawFd {
            self.reader.as_raw_fd()
        }

        #[cfg(test)]
        pub fn is_notified(&self) -> bool {
            self.has_byte.load(Ordering::SeqCst)
        }

        #[allow(dead_code)] // where `Wakeup` is a futex
        pub fn wait(&self, timeout: Duration) -> io::Result<Waited> {
            let mut fds = [PollFd::new(&self.reader, PollFlags::IN)];
            match poll(&mut fds, Some(&timespec(timeout))) {
                Ok(_) => Ok(Waited::Exit),
                Err(Errno::INTR) => Ok(Waited::Interrupted),
                Err(error) => Err(error.into()),
            }
        }

        pub fn notify(&self) {
            if !self.has_byte.swap(true, Ordering::SeqCst) {
                let _ = (&self.writer).write(&[1]); // the pipe is empty, so it fits
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use super::*;

    macro_rules! suite {
        ($name:ident, $wakeup:ty) => {
            #[test]
            fn $name() {
                let wakeup = Arc::new(<$wakeup>::new().unwrap());
                let begin = Instant::now();
                wakeup.arm();
                assert_eq!(wakeup.wait(Duration::from_millis(30)).unwrap(), Waited::Exit);
                assert!(begin.elapsed() >= Duration::from_millis(30));
                wakeup.notify(); // before the wait
                wakeup.notify();
                wakeup.wait(Duration::from_secs(60)).unwrap();
                for _ in 0..100 {
                    wakeup.arm();
                    let ringer = wakeup.clone();
                    let thread = std::thread::spawn(move || ringer.notify());
                    wakeup.wait(Duration::from_secs(60)).unwrap();
                    thread.join().unwrap();
                }
                assert!(begin.elapsed() < Duration::from_secs(50));
            }
        };
    }

    #[cfg(target_os = "linux")]
    suite!(a_futex_wakes, futex::Wakeup);
    suite!(a_pipe_wakes, pipe::Wakeup);
}
