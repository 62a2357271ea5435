//! Unary calls whose requests differ: as fast as answers come, or each at its time.
//!
//!     put        sequential keys of 8 bytes
//!     cas        swap a key of one's own: each finds what it expects
//!     contended  all swap one key: one of those in flight wins
//!     mixed      transactions, a put and a read in turn
//!     range      read the keys that `put` writes; they must be there
//!
//! --keys N: sequential keys begin anew after so many. --calls N: end after so many.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::task::spawn_local;

use crate::grpc::{Connection, Target};
use crate::options::Options;
use crate::pacing::dues;
use crate::proto;
use crate::tally::{Tally, VALUE_BYTES};
use crate::{started, Fault};

const PUT: &str = "/etcdserverpb.KV/Put";
const TXN: &str = "/etcdserverpb.KV/Txn";
const RANGE: &str = "/etcdserverpb.KV/Range";
const KEYS: usize = 100_000;
const VALUE: [u8; VALUE_BYTES] = [b'v'; VALUE_BYTES];
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Put,
    Swap { is_contended: bool },
    Mixed,
    Range,
}

/// Makes the requests of one worker and learns from their answers.
struct Source {
    kind: Kind,
    key: [u8; 8],
    keys: u64,
    numbers: Rc<Cell<u64>>,
    mod_revision: u64,
}

impl Source {
    fn next(&mut self) -> (&'static str, Bytes) {
        let number = self.numbers.get();
        self.numbers.set(number + 1);
        let key = (number % self.keys).to_be_bytes();
        match self.kind {
            Kind::Put => (PUT, proto::put(&key, &VALUE).framed()),
            Kind::Range => (RANGE, proto::range(&key).framed()),
            Kind::Swap { .. } => {
                (TXN, proto::compare_and_swap(&self.key, self.mod_revision, &VALUE).framed())
            }
            Kind::Mixed if number.is_multiple_of(2) => {
                (TXN, proto::txn(2, proto::put(&key, &VALUE)).framed())
            }
            Kind::Mixed => (TXN, proto::txn(1, proto::range(&key)).framed()),
        }
    }

    /// Take an answer; return whether a transaction did what was asked.
    ///
    /// Nobody else writes, so the store's revision is that of the key: where it is contended, of
    /// the swap that won; where not, of one's own.
    fn learn(&mut self, answer: &[u8]) -> Result<bool, Fault> {
        if self.kind == Kind::Put {
            return Ok(true);
        }
        if self.kind == Kind::Range {
            return match proto::number_of(answer, proto::COUNT)? {
                1 => Ok(true),
                _ => Err("a key that was put is not there".into()),
            };
        }
        let (revision, succeeded) = proto::txn_outcome(answer)?;
        self.mod_revision = revision;
        if !succeeded && self.kind == (Kind::Swap { is_contended: false }) {
            return Err("a swap that nobody disturbs failed".into());
        }
        Ok(succeeded)
    }
}

pub async fn play(options: &Options) -> Result<String, Fault> {
    let connections =
        Connection::open_many(&Target::of(options)?, options.count("connections")?).await?;
    let kind = match options.text("kind")? {
        "put" => Kind::Put,
        "cas" => Kind::Swap { is_contended: false },
        "contended" => Kind::Swap { is_contended: true },
        "mixed" => Kind::Mixed,
        "range" => Kind::Range,
        other => {
            return Err(format!("kind {other}: one of put, cas, contended, mixed, range").into())
        }
    };
    let (keys, calls) = (options.count_or("keys", KEYS)? as u64, options.count_or("calls", 0)?);
    let calls = if calls == 0 { u64::MAX } else { calls as u64 };
    let tally = Rc::new(Tally::new());
    started(&tally)?;
    let seconds = options.number("seconds")?;
    match options.number("rate")? {
        0.0 => {
            let in_flight = options.count("in-flight")?;
            let limits = Limits { keys, calls, seconds };
            race(&connections, kind, in_flight, limits, &tally).await?
        }
        rate => pace(connections, rate, seconds, keys, &tally).await?,
    }
    tally.check()?;
    tally.report("")
}

/// Keys to go round, and when to end: after so many calls, or seconds.
#[derive(Clone, Copy)]
struct Limits {
    keys: u64,
    calls: u64,
    seconds: f64,
}

/// in_flight workers a connection, each sending its next when its last was answered.
async fn race(
    connections: &[Connection],
    kind: Kind,
    in_flight: usize,
    limits: Limits,
    tally: &Rc<Tally>,
) -> Result<(), Fault> {
    let Limits { keys, calls, seconds } = limits;
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let numbers = Rc::new(Cell::new(0));
    let run =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_micros() as u64;
    let mut workers = Vec::new();
    for connection in connections {
        for _ in 0..in_flight {
            let own = if kind == (Kind::Swap { is_contended: true }) { 0 } else { workers.len() };
            let key = (run << 12 | own as u64).to_be_bytes(); // never used before
            let source = Source { kind, key, keys, numbers: numbers.clone(), mod_revision: 0 };
            workers.push(spawn_local(work(connection.clone(), source, end, calls, tally.clone())));
        }
    }
    for worker in workers {
        worker.await??;
    }
    Ok(())
}

async fn work(
    connection: Connection,
    mut source: Source,
    end: Instant,
    calls: u64,
    tally: Rc<Tally>,
) -> Result<(), Fault> {
    while Instant::now() < end && source.numbers.get() < calls {
        let (path, frame) = source.next();
        let start_ns = tally.now_ns();
        let answer = connection.call(path, frame).await?;
        tally.note(start_ns, tally.now_ns());
        if source.learn(&answer)? {
            tally.succeeded.set(tally.succeeded.get() + 1);
        }
    }
    Ok(())
}

/// Puts at a fixed rate, answered or not; latency counts from when each was due.
async fn pace(
    connections: Vec<Connection>,
    rate: f64,
    seconds: f64,
    keys: u64,
    tally: &Rc<Tally>,
) -> Result<(), Fault> {
    let mut moments = dues(rate, seconds);
    let mut sent = 0_u64;
    while let Some(due) = moments.recv().await {
        let connection = connections[sent as usize % connections.len()].clone();
        let frame = proto::put(&(sent % keys).to_be_bytes(), &VALUE).framed();
        sent += 1;
        let tally = tally.clone();
        spawn_local(async move {
            if connection.call(PUT, frame).await.is_err() {
                tally.refused.set(tally.refused.get() + 1);
            }
            tally.note(tally.ns_of(due), tally.now_ns());
            tally.changed.notify_one();
        });
    }
    let all = async {
        while tally.done.get() < sent {
            tally.changed.notified().await;
        }
    };
    tokio::time::timeout(PATIENCE, all).await.map_err(|_| "answers did not come".into())
}
