//! How one thread sleeps until another has something for it, or a signal comes.
//!
//! ```text
//! sleeper:  arm() … nothing here yet … wait(timeout)          ringer:  … leave something … ring()
//! ```
//!
//! Law: a ring after `arm` ends the wait that follows it; a wait may also end without one. Signals end a
//! wait, which is why this is no condition variable: those start over.
//!
//! On Linux it is a futex, elsewhere a pipe. A sleeper that waits for other descriptors too has a pipe
//! everywhere.

use std::io;
use std::time::Duration;

use rustix::event::Timespec;

const LONGEST_S: u64 = 1 << 30;

/// How a wait ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Waited {
    Over,
    Interrupted,
}

fn timespec(timeout: Duration) -> Timespec {
    Timespec {
        tv_sec: timeout.as_secs().min(LONGEST_S) as i64,
        tv_nsec: i64::from(timeout.subsec_nanos()),
    }
}

#[cfg(target_os = "linux")]
pub type Bell = futex::Bell;
#[cfg(not(target_os = "linux"))]
pub type Bell = pipe::Bell;
pub type PipeBell = pipe::Bell;

#[cfg(target_os = "linux")]
mod futex {
    use std::sync::atomic::{AtomicU32, Ordering};

    use rustix::io::Errno;
    use rustix::thread::futex;

    use super::{io, timespec, Duration, Waited};

    const SILENT: u32 = 0;
    const RUNG: u32 = 1;

    pub struct Bell(AtomicU32);

    impl Bell {
        pub fn new() -> io::Result<Self> {
            Ok(Bell(AtomicU32::new(SILENT)))
        }

        pub fn arm(&self) {
            self.0.store(SILENT, Ordering::SeqCst);
        }

        pub fn wait(&self, timeout: Duration) -> io::Result<Waited> {
            let spec = timespec(timeout);
            match futex::wait(&self.0, futex::Flags::PRIVATE, SILENT, Some(&spec)) {
                Ok(()) | Err(Errno::AGAIN | Errno::TIMEDOUT) => Ok(Waited::Over),
                Err(Errno::INTR) => Ok(Waited::Interrupted),
                Err(error) => Err(error.into()),
            }
        }

        pub fn ring(&self) {
            self.0.store(RUNG, Ordering::SeqCst);
            // It fails only for an address that is none.
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

    pub struct Bell {
        reader: PipeReader,
        writer: PipeWriter,
        has_byte: AtomicBool, // at most one is in the pipe
    }

    impl Bell {
        pub fn new() -> io::Result<Self> {
            let (reader, writer) = io::pipe()?;
            Ok(Bell { reader, writer, has_byte: AtomicBool::new(false) })
        }

        pub fn arm(&self) {
            if self.has_byte.load(Ordering::SeqCst) && (&self.reader).read(&mut [0]).is_ok() {
                self.has_byte.store(false, Ordering::SeqCst);
            }
        }

        /// What is readable once it was rung.
        pub fn descriptor(&self) -> RawFd {
            self.reader.as_raw_fd()
        }

        #[allow(dead_code)] // where the bell is a futex
        pub fn wait(&self, timeout: Duration) -> io::Result<Waited> {
            let mut fds = [PollFd::new(&self.reader, PollFlags::IN)];
            match poll(&mut fds, Some(&timespec(timeout))) {
                Ok(_) => Ok(Waited::Over),
                Err(Errno::INTR) => Ok(Waited::Interrupted),
                Err(error) => Err(error.into()),
            }
        }

        pub fn ring(&self) {
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
        ($name:ident, $bell:ty) => {
            #[test]
            fn $name() {
                let bell = Arc::new(<$bell>::new().unwrap());
                let begin = Instant::now();
                bell.arm();
                assert_eq!(bell.wait(Duration::from_millis(30)).unwrap(), Waited::Over);
                assert!(begin.elapsed() >= Duration::from_millis(30));
                bell.ring(); // before the wait
                bell.ring();
                bell.wait(Duration::from_secs(60)).unwrap();
                for _ in 0..100 {
                    bell.arm();
                    let ringer = bell.clone();
                    let thread = std::thread::spawn(move || ringer.ring());
                    bell.wait(Duration::from_secs(60)).unwrap();
                    thread.join().unwrap();
                }
                assert!(begin.elapsed() < Duration::from_secs(50));
            }
        };
    }

    #[cfg(target_os = "linux")]
    suite!(a_futex_wakes, futex::Bell);
    suite!(a_pipe_wakes, pipe::Bell);
}
