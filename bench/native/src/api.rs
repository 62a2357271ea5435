//! Requests of a Kubernetes API server, and watches of it.
//!
//!     kvload api      HOST:PORT --method PATCH --path /api/v1/…/c-{n} --body FILE --objects 1000
//!                     --bytes-min 0 --connections 10 --in-flight 10 --seconds 2 --calls 0
//!     kvload watches  HOST:PORT … --watch PATH --watchers 1000 --window 1
//!
//! `watches` sends the request again and again, each of which must be one event of every watch:
//! `window` requests ahead of the slowest watcher.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use h2::RecvStream;
use tokio::task::spawn_local;

use crate::grpc::{Connection, Target};
use crate::options::Options;
use crate::tally::Tally;
use crate::template::Template;
use crate::{started, Fault};

const PATIENCE: Duration = Duration::from_secs(60);

pub async fn play(options: &Options) -> Result<String, Fault> {
    let connections =
        Connection::open_many(&Target::of(options)?, options.count("connections")?).await?;
    let template = Rc::new(Template::of(options)?);
    let (bytes_min, calls) = (options.count_or("bytes-min", 0)?, options.count_or("calls", 0)?);
    let calls = if calls == 0 { u64::MAX } else { calls as u64 };
    let (in_flight, seconds) = (options.count("in-flight")?, options.number("seconds")?);
    let (tally, numbers) = (Rc::new(Tally::new()), Rc::new(Cell::new(0_u64)));
    started(&tally)?;
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let mut workers = Vec::new();
    for connection in &connections {
        for _ in 0..in_flight {
            let (connection, template) = (connection.clone(), template.clone());
            let (tally, numbers) = (tally.clone(), numbers.clone());
            workers.push(spawn_local(async move {
                while Instant::now() < end && numbers.get() < calls {
                    let number = numbers.replace(numbers.get() + 1);
                    let start_ns = tally.now_ns();
                    let answer = template.send(&connection, number).await?;
                    tally.note(start_ns, tally.now_ns());
                    if answer.len() < bytes_min {
                        return Err(format!("an answer of {} bytes", answer.len()).into());
                    }
                }
                Ok::<(), Fault>(())
            }));
        }
    }
    for worker in workers {
        worker.await??;
    }
    tally.check()?;
    tally.report("")
}

struct Load {
    tally: Tally,
    sent_ns: RefCell<Vec<u64>>,
    slowest: RefCell<Vec<usize>>, // how many watchers have had so many events
}

pub async fn play_watches(options: &Options) -> Result<String, Fault> {
    let (watchers, window) = (options.count("watchers")?, options.count("window")?);
    let target = Target::of(options)?;
    let connections = Connection::open_many(&target, options.count("connections")?).await?;
    let writer = Connection::open(&target).await?;
    let template = Template::of(options)?;
    let load = Rc::new(Load {
        tally: Tally::new(),
        sent_ns: RefCell::new(Vec::new()),
        slowest: RefCell::new(Vec::new()),
    });
    let path = options.text("watch")?;
    for number in 0..watchers {
        let body = template.open(&connections[number % connections.len()], path).await?;
        let load = load.clone();
        spawn_local(async move {
            let ended = read(body, &load).await;
            load.tally.fail(&ended.err().unwrap_or_else(|| "a watch ended".into()));
        });
    }
    started(&load.tally)?;
    let end = Instant::now() + Duration::from_secs_f64(options.number("seconds")?);
    let mut sent = 0;
    while Instant::now() < end {
        load.until(sent, window, watchers).await?;
        load.sent_ns.borrow_mut().push(load.tally.now_ns());
        template.send(&writer, sent as u64).await?;
        sent += 1;
    }
    load.until(sent, 1, watchers).await?;
    load.tally.report(&format!(", \"puts\": {sent}"))
}

impl Load {
    /// Wait until all watchers have had all events but for the last `window - 1`.
    async fn until(&self, sent: usize, window: usize, watchers: usize) -> Result<(), Fault> {
        let Some(number) = sent.checked_sub(window) else { return Ok(()) };
        let all = async {
            while self.slowest.borrow().get(number).copied().unwrap_or(0) < watchers {
                self.tally.check()?;
                self.tally.changed.notified().await;
            }
            self.tally.check()
        };
        match tokio::time::timeout(PATIENCE, all).await {
            Ok(result) => result,
            Err(_) => Err("an event did not come to all watchers".into()),
        }
    }

    fn take(&self, event: usize, now_ns: u64) -> Result<(), Fault> {
        let sent_ns = self.sent_ns.borrow();
        let start_ns = sent_ns.get(event).ok_or("an event that nobody made")?;
        self.tally.note(*start_ns, now_ns);
        let mut slowest = self.slowest.borrow_mut();
        if slowest.len() <= event {
            slowest.resize(event + 1, 0);
        }
        slowest[event] += 1;
        Ok(())
    }
}

async fn read(mut body: RecvStream, load: &Load) -> Result<(), Fault> {
    let mut events = 0;
    while let Some(chunk) = body.data().await {
        let chunk = chunk?;
        body.flow_control().release_capacity(chunk.len())?;
        let now_ns = load.tally.now_ns();
        for _ in chunk.iter().filter(|byte| **byte == b'\n') {
            load.take(events, now_ns)?;
            events += 1;
        }
        load.tally.changed.notify_one();
    }
    Ok(())
}
