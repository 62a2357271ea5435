//! What API servers of Kubernetes ask of their store: objects of 1 to 4 KB, changed by transactions
//! that expect the revision they last saw, read one by one and in pages, and a watch a kind.
//!
//!     /registry/<kind>/ns-<number>/obj-<number>          10 kinds, 20 namespaces each
//!
//!     of 100 calls  60 write: 8 delete, then create anew; the others update
//!                   39 read one object
//!                    1 reads a page of 500 objects of a kind
//!
//! Every object has one writer, so each transaction must succeed, each read must find the revision
//! its writer knows, and the watches must tell of every write once. What differs ends the load.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::task::spawn_local;

use crate::grpc::{Connection, Messages, Target};
use crate::options::Options;
use crate::proto::{self, bytes_of, number_of, Fields, Message, Value};
use crate::tally::Tally;
use crate::{started, Fault};

const RANGE: &str = "/etcdserverpb.KV/Range";
const TXN: &str = "/etcdserverpb.KV/Txn";
const WATCH: &str = "/etcdserverpb.Watch/Watch";
const REGISTRY: &str = "/registry/";
const KINDS: [&str; 10] = [
    "configmaps",
    "deployments",
    "endpointslices",
    "events",
    "leases",
    "nodes",
    "pods",
    "replicasets",
    "secrets",
    "services",
];
const NAMESPACES: usize = 20;
const BYTES_MIN: usize = 1024;
const BYTES_MAX: usize = 4096;
const WRITES: u64 = 60; // of 100
const DELETES: u64 = 8;
const PAGES: u64 = 1;
const PAGE_OBJECTS: u64 = 500;
const KEYS_PAGE: u64 = 10_000;
const PUT_OP: u64 = 2;
const DELETE_OP: u64 = 3;
const PATIENCE: Duration = Duration::from_secs(30);

struct Load {
    all: Tally,
    writes: Tally,
    reads: Tally,
    pages: Tally,
    delivery: Tally, // from the beginning of a call to its event
    watching: Cell<usize>,
    events: Cell<u64>,
}

pub async fn play(options: &Options) -> Result<String, Fault> {
    let target = Target::of(options)?;
    let connections = Connection::open_many(&target, options.count("connections")?).await?;
    let objects = options.count("objects")?;
    let count = connections.len() * options.count("in-flight")?;
    if objects < count {
        return Err(format!("{objects} objects are too few for {count} workers").into());
    }
    let load = Rc::new(Load {
        all: Tally::new(),
        writes: Tally::new(),
        reads: Tally::new(),
        pages: Tally::new(),
        delivery: Tally::new(),
        watching: Cell::new(0),
        events: Cell::new(0),
    });
    let workers = prepare(&connections, &load, objects, count).await?;
    watch(&target, &load).await?;
    for tally in [&load.writes, &load.reads, &load.pages, &load.delivery] {
        tally.begin()?;
    }
    started(&load.all)?;
    let end = Instant::now() + Duration::from_secs_f64(options.number("seconds")?);
    join(workers.into_iter().map(|worker| worker.work(end)).collect()).await?;
    load.until(|| load.events.get() >= load.writes.done.get(), "all events").await?;
    if load.events.get() > load.writes.done.get() {
        let (events, writes) = (load.events.get(), load.writes.done.get());
        return Err(format!("{events} events of {writes} writes").into());
    }
    let parts = [
        load.writes.part("writes"),
        load.reads.part("reads"),
        load.pages.part("pages"),
        load.delivery.part("delivery"),
    ];
    load.all.report(&format!(", \"parts\": {{{}}}", parts.join(", ")))
}

/// Return the workers, each with the objects it owns, which are all there.
async fn prepare(
    connections: &[Connection],
    load: &Rc<Load>,
    objects: usize,
    count: usize,
) -> Result<Vec<Worker>, Fault> {
    let revisions = found(&connections[0], objects).await?;
    let mut workers = Vec::new();
    for number in 0..count {
        let owned = (number..objects).step_by(count);
        workers.push(Worker {
            connection: connections[number % connections.len()].clone(),
            load: load.clone(),
            first: number,
            step: count,
            revisions: owned.map(|object| revisions[object]).collect(),
            deleted: None,
            dice: 0x9E37_79B9_7F4A_7C15 ^ (number as u64 + 1),
        });
    }
    join(workers.into_iter().map(Worker::create_absent).collect()).await
}

/// Return the revision each object was changed last at, 0: it is not there.
async fn found(connection: &Connection, objects: usize) -> Result<Vec<u64>, Fault> {
    let mut revisions = vec![0; objects];
    let (mut start, end) = (REGISTRY.as_bytes().to_vec(), end_of(REGISTRY));
    loop {
        let request = page(&start, &end, KEYS_PAGE).number(8, 1); // keys only
        let answer = connection.call(RANGE, request.framed()).await?;
        let mut last: &[u8] = &[];
        let (mut fields, mut more) = (Fields(&answer), false);
        while let Some((number, value)) = fields.next()? {
            match (number, value) {
                (2, Value::Bytes(object)) => {
                    last = bytes_of(object, 1)?;
                    if let Some(place) = object_of(last).and_then(|at| revisions.get_mut(at)) {
                        *place = number_of(object, 3)?;
                    }
                }
                (3, Value::Number(1)) => more = true,
                _ => {}
            }
        }
        if !more {
            return Ok(revisions);
        }
        start = [last, b"\0"].concat();
    }
}

/// Open a watch on each kind, and wait until they are there.
async fn watch(target: &Target, load: &Rc<Load>) -> Result<(), Fault> {
    let connections = Connection::open_many(target, 2).await?;
    for (number, kind) in KINDS.iter().enumerate() {
        let prefix = format!("{REGISTRY}{kind}/");
        let (response, mut send) = connections[number % 2].begin(WATCH).await?;
        let request = proto::watch_range(prefix.as_bytes(), &end_of(&prefix), true);
        send.send_data(request.framed(), false)?;
        let load = load.clone();
        spawn_local(async move {
            let ended = load.read(Messages::of(response)).await;
            drop(send); // it was open for as long as events were wanted
            load.all.fail(&ended.err().unwrap_or_else(|| "a watch stream ended".into()));
        });
    }
    load.until(|| load.watching.get() == KINDS.len(), "all watches").await
}

impl Load {
    async fn until(&self, is_done: impl Fn() -> bool, what: &str) -> Result<(), Fault> {
        let all = async {
            while !is_done() {
                self.all.check()?;
                self.all.changed.notified().await;
            }
            self.all.check()
        };
        match tokio::time::timeout(PATIENCE, all).await {
            Ok(result) => result,
            Err(_) => Err(format!("{what} did not come; {} did", self.events.get()).into()),
        }
    }

    async fn read(
        &self,
        messages: impl Future<Output = Result<Messages, Fault>>,
    ) -> Result<(), Fault> {
        let mut messages = messages.await?;
        while messages.take(|message| self.take(message)).await? {
            self.all.changed.notify_one();
        }
        Ok(())
    }

    fn take(&self, message: &[u8]) -> Result<(), Fault> {
        let (mut fields, now_ns) = (Fields(message), self.all.now_ns());
        while let Some((number, value)) = fields.next()? {
            match (number, value) {
                (3, Value::Number(1)) => self.watching.set(self.watching.get() + 1),
                (4, Value::Number(1)) => return Err("a watch was cancelled".into()),
                (11, Value::Bytes(event)) => {
                    self.events.set(self.events.get() + 1);
                    if let Some(stamp) = bytes_of(bytes_of(event, 2)?, 5)?.get(..8) {
                        self.delivery.note(u64::from_be_bytes(stamp.try_into()?), now_ns);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// The only writer of every step-th object from first on.
struct Worker {
    connection: Connection,
    load: Rc<Load>,
    first: usize,
    step: usize,
    revisions: Vec<u64>, // of each object's last change; 0: it is not there
    deleted: Option<usize>,
    dice: u64,
}

impl Worker {
    async fn create_absent(mut self) -> Result<Self, Fault> {
        for at in 0..self.revisions.len() {
            if self.revisions[at] == 0 {
                self.put(at).await?;
            }
        }
        Ok(self)
    }

    async fn work(mut self, end: Instant) -> Result<(), Fault> {
        let load = self.load.clone();
        while Instant::now() < end {
            load.all.check()?;
            let (throw, at) = (self.throw(100), self.throw(self.revisions.len() as u64) as usize);
            let start_ns = load.all.now_ns();
            let kind = if throw < WRITES {
                match self.deleted.take() {
                    Some(deleted) => self.put(deleted).await?,
                    None if throw < DELETES => self.delete(at).await?,
                    None => self.put(at).await?,
                }
                &load.writes
            } else if throw < WRITES + PAGES {
                self.page(at).await?;
                &load.pages
            } else {
                self.get(at).await?;
                &load.reads
            };
            let now_ns = load.all.now_ns();
            load.all.note(start_ns, now_ns);
            kind.note(start_ns, now_ns);
        }
        Ok(())
    }

    async fn put(&mut self, at: usize) -> Result<(), Fault> {
        let key = self.key(at);
        let stamp = self.load.all.now_ns();
        let request = proto::put(key.as_bytes(), &value(self.object(at), stamp));
        let revision = self.guarded(&key, at, PUT_OP, request).await?;
        self.revisions[at] = revision;
        Ok(())
    }

    async fn delete(&mut self, at: usize) -> Result<(), Fault> {
        let key = self.key(at);
        let request = Message::default().bytes(1, key.as_bytes());
        self.guarded(&key, at, DELETE_OP, request).await?;
        (self.revisions[at], self.deleted) = (0, Some(at));
        Ok(())
    }

    /// Do something to an object as this worker knows it; return the store's revision after.
    async fn guarded(
        &self,
        key: &str,
        at: usize,
        operation: u64,
        request: Message,
    ) -> Result<u64, Fault> {
        let frame = proto::guarded(key.as_bytes(), self.revisions[at], operation, request).framed();
        match proto::txn_outcome(&self.connection.call(TXN, frame).await?)? {
            (revision, true) => Ok(revision),
            _ => Err(format!("{key} was changed by nobody, and its transaction failed").into()),
        }
    }

    async fn get(&self, at: usize) -> Result<(), Fault> {
        let key = self.key(at);
        let answer = self.call(proto::range(key.as_bytes())).await?;
        match (number_of(bytes_of(&answer, 2)?, 3)?, self.revisions[at]) {
            (found, known) if found == known => Ok(()),
            (found, known) => Err(format!("{key}: revision {found}, not {known}").into()),
        }
    }

    async fn page(&self, at: usize) -> Result<(), Fault> {
        let kind = format!("{REGISTRY}{}/", KINDS[self.object(at) % KINDS.len()]);
        let request = page(kind.as_bytes(), &end_of(&kind), PAGE_OBJECTS);
        match number_of(&self.call(request).await?, proto::COUNT)? {
            0 => Err(format!("{kind} is empty").into()),
            _ => Ok(()),
        }
    }

    async fn call(&self, request: Message) -> Result<Bytes, Fault> {
        self.connection.call(RANGE, request.framed()).await
    }

    fn object(&self, at: usize) -> usize {
        self.first + at * self.step
    }

    fn key(&self, at: usize) -> String {
        let object = self.object(at);
        let (kind, namespace) = (object % KINDS.len(), object / KINDS.len() % NAMESPACES);
        format!("{REGISTRY}{}/ns-{namespace:02}/obj-{object:08}", KINDS[kind])
    }

    /// Return a number below `below`; the same run after run.
    fn throw(&mut self, below: u64) -> u64 {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        self.dice % below
    }
}

/// Return an object: always as large, with the moment it was written in front.
fn value(object: usize, stamp: u64) -> Vec<u8> {
    let mut value =
        vec![b'k'; BYTES_MIN + object.wrapping_mul(2_654_435_761) % (BYTES_MAX - BYTES_MIN + 1)];
    value[..8].copy_from_slice(&stamp.to_be_bytes());
    value
}

fn object_of(key: &[u8]) -> Option<usize> {
    std::str::from_utf8(key).ok()?.rsplit_once('-')?.1.parse().ok()
}

/// Return the end of the range of all keys that begin with a text that ends in a slash.
fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

fn page(start: &[u8], end: &[u8], limit: u64) -> Message {
    Message::default().bytes(1, start).bytes(2, end).number(3, limit)
}

/// Do all at once; the first fault ends it.
async fn join<T: 'static>(
    all: Vec<impl Future<Output = Result<T, Fault>> + 'static>,
) -> Result<Vec<T>, Fault> {
    let tasks: Vec<_> = all.into_iter().map(spawn_local).collect();
    let mut done = Vec::with_capacity(tasks.len());
    for task in tasks {
        done.push(task.await??);
    }
    Ok(done)
}
