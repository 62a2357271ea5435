//! What a load has seen: how many, how long each took, and what it cost this process itself.

use std::cell::{Cell, RefCell};
use std::fs;
use std::time::Instant;

use tokio::sync::Notify;

use crate::Fault;

pub const VALUE_BYTES: usize = 256;
const SAMPLES_MAX: usize = 20_000_000;

pub struct Tally {
    epoch: Instant,
    begin_ns: Cell<u64>,
    begin_cpu_ns: Cell<u64>,
    last_ns: Cell<u64>,
    pub done: Cell<u64>,
    pub refused: Cell<u64>,
    pub succeeded: Cell<u64>,
    latencies_us: RefCell<Vec<u32>>,
    pub changed: Notify,
    fault: RefCell<Option<String>>,
}

impl Tally {
    pub fn new() -> Self {
        Self {
            epoch: Instant::now(),
            begin_ns: Cell::new(0),
            begin_cpu_ns: Cell::new(0),
            last_ns: Cell::new(0),
            done: Cell::new(0),
            refused: Cell::new(0),
            succeeded: Cell::new(0),
            latencies_us: RefCell::new(Vec::new()),
            changed: Notify::new(),
            fault: RefCell::new(None),
        }
    }

    pub fn now_ns(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    pub fn ns_of(&self, moment: Instant) -> u64 {
        moment.duration_since(self.epoch).as_nanos() as u64
    }

    /// Forget what was; measure from now on.
    pub fn begin(&self) -> Result<(), Fault> {
        self.begin_ns.set(self.now_ns());
        self.begin_cpu_ns.set(cpu_ns()?);
        self.done.set(0);
        self.refused.set(0);
        self.succeeded.set(0);
        self.latencies_us.borrow_mut().clear();
        Ok(())
    }

    /// Note one that began, or was due, at start_ns.
    pub fn note(&self, start_ns: u64, now_ns: u64) {
        self.done.set(self.done.get() + 1);
        self.last_ns.set(now_ns);
        let mut latencies = self.latencies_us.borrow_mut();
        if latencies.len() < SAMPLES_MAX {
            latencies.push((now_ns.saturating_sub(start_ns) / 1000).min(u32::MAX.into()) as u32);
        }
    }

    /// End the load: a part of it failed.
    pub fn fail(&self, fault: &Fault) {
        self.fault.borrow_mut().get_or_insert_with(|| fault.to_string());
        self.changed.notify_waiters();
        self.changed.notify_one();
    }

    pub fn check(&self) -> Result<(), Fault> {
        self.fault.borrow().as_ref().map_or(Ok(()), |fault| Err(fault.clone().into()))
    }

    fn latencies_ms<const N: usize>(&self, shares: [f64; N]) -> [f64; N] {
        let mut latencies = self.latencies_us.borrow_mut();
        latencies.sort_unstable();
        let count = latencies.len();
        shares.map(|share| match count {
            0 => 0.0,
            _ => f64::from(latencies[((count as f64 * share) as usize).min(count - 1)]) / 1000.0,
        })
    }

    /// Return how many there were and how long they took, as a member of a JSON object.
    pub fn part(&self, name: &str) -> String {
        let [p50_ms, p99_ms] = self.latencies_ms([0.5, 0.99]);
        let done = self.done.get();
        format!(
            "\"{name}\": {{\"done\": {done}, \"p50_ms\": {p50_ms:.3}, \"p99_ms\": {p99_ms:.3}}}"
        )
    }

    /// Return the figures as one line of JSON; what: further fields.
    pub fn report(&self, what: &str) -> Result<String, Fault> {
        let wall_ns = self.last_ns.get().saturating_sub(self.begin_ns.get()).max(1) as f64;
        let own_ns = self.now_ns().saturating_sub(self.begin_ns.get()).max(1) as f64;
        let cpu_share = (cpu_ns()? - self.begin_cpu_ns.get()) as f64 / own_ns;
        let [p50_ms, p99_ms, max_ms] = self.latencies_ms([0.5, 0.99, 1.0]);
        Ok(format!(
            "{{\"done\": {}, \"refused\": {}, \"succeeded\": {}, \"seconds\": {:.6}, \"rate\": {:.3}, \
             \"p50_ms\": {:.3}, \"p99_ms\": {:.3}, \"max_ms\": {:.3}, \"cpu_share\": {:.4}{what}}}",
            self.done.get(),
            self.refused.get(),
            self.succeeded.get(),
            wall_ns / 1e9,
            self.done.get() as f64 / wall_ns * 1e9,
            p50_ms,
            p99_ms,
            max_ms,
            cpu_share,
        ))
    }
}

/// Return the CPU time of this thread, which does everything but sleep.
fn cpu_ns() -> Result<u64, Fault> {
    let text = fs::read_to_string("/proc/thread-self/schedstat")?;
    let first = text.split(' ').next().ok_or("an empty schedstat")?;
    Ok(first.parse()?)
}
