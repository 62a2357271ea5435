//! Watches: S streams of W watchers each, and puts that they tell of. The watchers have one key
//! (`--distinct 0`), a key each (1) or one range of 1,000 keys (2), which are put in turn.
//!
//! A value begins with the moment its put was due; whoever gets the event subtracts. As fast as it
//! goes means: so many puts ahead of their events, so that no backlog grows and what is measured is
//! what is delivered.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::task::spawn_local;

use crate::grpc::{Connection, Messages, Target};
use crate::options::Options;
use crate::pacing::dues;
use crate::proto::{self, bytes_of, Fields, Value};
use crate::tally::{Tally, VALUE_BYTES};
use crate::{started, Fault};

const WATCH: &str = "/etcdserverpb.Watch/Watch";
const PUT: &str = "/etcdserverpb.KV/Put";
const PATIENCE: Duration = Duration::from_secs(30);
const CREATED: u64 = 3;
const CANCELED: u64 = 4;
const EVENTS: u64 = 11;
const RANGE_KEYS: usize = 1_000;

struct Load {
    tally: Rc<Tally>,
    created: Cell<usize>,
    puts: Vec<Connection>,
    keys: usize,
    sent: Cell<u64>,
}

pub async fn play(options: &Options) -> Result<String, Fault> {
    let (streams, watchers) = (options.count("streams")?, options.count("watchers")?);
    let all = streams * watchers;
    let (keys, fan_out) = match options.count("distinct")? {
        0 => (1, all),
        1 => (all, 1),
        2 => (RANGE_KEYS, all),
        other => return Err(format!("--distinct {other}: 0, 1 or 2").into()),
    };
    let target = Target::of(options)?;
    let writer = options.optional("puts-to").map_or(target.clone(), |other| target.at(other));
    let load = Rc::new(Load {
        tally: Rc::new(Tally::new()),
        created: Cell::new(0),
        puts: Connection::open_many(&writer, 4).await?,
        keys,
        sent: Cell::new(0),
    });
    let connections = Connection::open_many(&target, options.count("connections")?).await?;
    for stream in 0..streams {
        let connection = &connections[stream % connections.len()];
        let (response, mut send) = connection.begin(WATCH).await?;
        for watcher in 0..watchers {
            let watch = match fan_out == all && keys > 1 {
                true => proto::watch_range(&key(0), &key(keys), false),
                false => proto::watch(&key((stream * watchers + watcher) % keys)),
            };
            send.send_data(watch.framed(), false)?;
        }
        let load = load.clone();
        spawn_local(async move {
            let ended = read(Messages::of(response), &load).await;
            drop(send); // it was open for as long as events were wanted
            load.tally.fail(&ended.err().unwrap_or_else(|| "a watch stream ended".into()));
        });
    }
    load.until(|| load.created.get() == all, "all watches").await?;
    started(&load.tally)?;
    let fan_out = fan_out as u64;
    let seconds = options.number("seconds")?;
    match options.number("rate")? {
        0.0 => race(&load, fan_out, options.count("window")? as u64, seconds).await?,
        rate => pace(&load, rate, seconds).await?,
    }
    load.until(|| load.tally.done.get() >= load.sent.get() * fan_out, "all events").await?;
    if load.tally.done.get() > load.sent.get() * fan_out {
        return Err(format!("{} events of {} puts", load.tally.done.get(), load.sent.get()).into());
    }
    load.tally.report(&format!(", \"puts\": {}", load.sent.get()))
}

fn key(number: usize) -> [u8; 8] {
    (0x7777 << 48 | number as u64).to_be_bytes()
}

impl Load {
    async fn until(&self, is_done: impl Fn() -> bool, what: &str) -> Result<(), Fault> {
        let all = async {
            while !is_done() {
                self.tally.check()?;
                self.tally.changed.notified().await;
            }
            self.tally.check()
        };
        match tokio::time::timeout(PATIENCE, all).await {
            Ok(result) => result,
            Err(_) => Err(format!("{what} did not come; {} did", self.tally.done.get()).into()),
        }
    }

    fn put(self: &Rc<Self>, due: Instant) {
        let number = self.sent.get();
        self.sent.set(number + 1);
        let mut value = [b'v'; VALUE_BYTES];
        value[..8].copy_from_slice(&self.tally.ns_of(due).to_be_bytes());
        let frame =
            proto::put(&key(number.wrapping_mul(7919) as usize % self.keys), &value).framed();
        let load = self.clone();
        spawn_local(async move {
            let connection = &load.puts[number as usize % load.puts.len()];
            if let Err(fault) = connection.call(PUT, frame).await {
                load.tally.fail(&fault);
            }
        });
    }

    fn take(&self, message: &[u8], now_ns: u64) -> Result<(), Fault> {
        let mut fields = Fields(message);
        while let Some((number, value)) = fields.next()? {
            match (number, value) {
                (CREATED, Value::Number(1)) => self.created.set(self.created.get() + 1),
                (CANCELED, Value::Number(1)) => return Err("a watch was cancelled".into()),
                (EVENTS, Value::Bytes(event)) => {
                    let value = bytes_of(bytes_of(event, 2)?, 5)?;
                    let stamp = value.get(..8).ok_or("an event of another's put")?;
                    self.tally.note(u64::from_be_bytes(stamp.try_into()?), now_ns);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

async fn read(
    messages: impl std::future::Future<Output = Result<Messages, Fault>>,
    load: &Load,
) -> Result<(), Fault> {
    let mut messages = messages.await?;
    let mut goes_on = true;
    while goes_on {
        let mut now_ns = 0; // one look at the clock for all that came together
        goes_on = messages
            .take(|message| {
                now_ns = if now_ns == 0 { load.tally.now_ns() } else { now_ns };
                load.take(message, now_ns)
            })
            .await?;
        load.tally.changed.notify_one();
    }
    Ok(())
}

async fn race(load: &Rc<Load>, fan_out: u64, window: u64, seconds: f64) -> Result<(), Fault> {
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    while Instant::now() < end {
        load.tally.check()?;
        while load.sent.get() < load.tally.done.get() / fan_out + window {
            load.put(Instant::now());
        }
        if tokio::time::timeout(PATIENCE, load.tally.changed.notified()).await.is_err() {
            return Err("no event came for long".into());
        }
    }
    Ok(())
}

async fn pace(load: &Rc<Load>, rate: f64, seconds: f64) -> Result<(), Fault> {
    let mut moments = dues(rate, seconds);
    while let Some(due) = moments.recv().await {
        load.put(due);
    }
    load.tally.check()
}
