//! What the connections, calls and streams of a client share. Client thread only.

use std::cell::Cell;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::inbox::Inbox;
use crate::grpc::AssemblyBudget;
use crate::tls::client::Tls;

#[derive(Clone, Debug)]
pub struct Options {
    pub paths: Vec<String>, // by method
    pub dial_timeout: Duration,
    pub keepalive_interval: Option<Duration>,
    pub keepalive_timeout: Duration,
    pub keeps_idle_alive: bool, // pings also while nothing is open
    pub reach_timeout: Option<Duration>, // how long a call may wait for a connection
    pub response_bytes_max: usize,
    pub stream_ahead_bytes_max: usize,
}

pub struct Environment {
    pub options: Options,
    pub inbox: Arc<Inbox>,
    pub tls: Tls,
    pub assembling: Rc<AssemblyBudget>,
    random_state: RandomState,
    draws: Cell<u64>,
}

impl Environment {
    pub fn new(options: Options, inbox: Arc<Inbox>, tls: Tls) -> Self {
        Environment {
            options,
            inbox,
            tls,
            assembling: AssemblyBudget::new(usize::MAX), // each call has its own limit
            random_state: RandomState::new(),
            draws: Cell::new(0),
        }
    }

    /// A random number from -1 to 1.
    pub fn jitter(&self) -> f64 {
        self.draws.set(self.draws.get() + 1);
        let mut hasher = self.random_state.build_hasher();
        hasher.write_u64(self.draws.get());
        let share = hasher.finish() >> 11; // 53 bits
        share as f64 / (1u64 << 52) as f64 - 1.0
    }
}
