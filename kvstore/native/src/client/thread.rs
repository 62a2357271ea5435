//! The client thread: dispatches flushes, enforces deadlines, stops.

use std::io;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::rc::Rc;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{unbounded_channel, UnboundedReceiver, UnboundedSender};
use tokio::task::LocalSet;
use tokio::time::{sleep, sleep_until};

use super::endpoint::Address;
use super::environment::Options;
use super::hub::Hub;
use super::inbox::Inbox;
use super::requests::Requests;
use crate::tasks::{panic_text, spawn_vital};
use crate::tls::client::{Settings, Tls};

const LATEST: Duration = Duration::from_secs(1 << 30);
const CLOSE_GRACE: Duration = Duration::from_millis(20); // to send resets of cancelled streams

pub enum Command {
    Flush(Requests),
    Endpoints(Vec<Address>),
    Stop,
}

/// The running thread.
pub struct Thread {
    pub commands: UnboundedSender<Command>,
    over: Arc<Exit>,
}

#[derive(Default)]
struct Exit {
    is_over: Mutex<bool>,
    changed: Condvar,
}

impl Thread {
    pub fn start(options: Options, tls: Settings, inbox: Arc<Inbox>) -> io::Result<Self> {
        let (commands, received) = unbounded_channel();
        let over = Arc::new(Exit::default());
        let thread_over = over.clone();
        let run = move || {
            let failing = inbox.clone();
            match catch_unwind(AssertUnwindSafe(|| run(options, tls, inbox, received))) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => failing.fail(error.to_string()),
                Err(panic) => failing.fail(panic_text(&*panic)),
            }
            *thread_over.is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
            thread_over.changed.notify_all();
        };
        thread::Builder::new().name("store-client".into()).spawn(run)?;
        Ok(Thread { commands, over })
    }

    /// Wait for the end of the thread; false on a timeout.
    pub fn wait_exit(&self, time: Duration) -> bool {
        let is_over = self.over.is_over.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.over.changed.wait_timeout_while(is_over, time, |is_over| !*is_over);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

fn run(
    options: Options,
    tls: Settings,
    inbox: Arc<Inbox>,
    commands: UnboundedReceiver<Command>,
) -> io::Result<()> {
    let ringing = inbox.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .on_thread_park(move || ringing.notify_if_due())
        .build()?;
    LocalSet::new().block_on(&runtime, async move {
        let hub = Hub::new(options, inbox, Tls::new(tls));
        let failing = hub.environment.inbox.clone();
        let fail = move |text| failing.fail(text);
        let timing = spawn_vital("keeps deadlines", fail, keep_deadlines(hub.clone()));
        run_commands(&hub, commands).await;
        timing.abort();
        hub.close();
        sleep(CLOSE_GRACE).await;
    });
    runtime.shutdown_background(); // without waiting for name look-ups
    Ok(())
}

async fn run_commands(hub: &Rc<Hub>, mut commands: UnboundedReceiver<Command>) {
    loop {
        match commands.recv().await {
            Some(Command::Flush(requests)) => hub.dispatch(requests),
            Some(Command::Endpoints(addresses)) => hub.set_endpoints(addresses),
            Some(Command::Stop) | None => return,
        }
    }
}

async fn keep_deadlines(hub: Rc<Hub>) {
    loop {
        let now = Instant::now();
        let next = hub.expire(now).unwrap_or(now + LATEST);
        tokio::select! {
            () = sleep_until(next.into()) => {}
            () = hub.deadlines_changed.notified() => {}
        }
    }
}
