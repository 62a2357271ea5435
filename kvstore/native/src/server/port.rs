//! What is served at an address, and its limits.
//!
//! A server of gRPC has ports of one kind, and their HTTP requests are in `inbox.requests`. A server of
//! HTTP alone (`web`) gives its driver more details of each connection and request, and allows any
//! upgrade; its driver sets how much of a body is read ahead.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use crate::tls::server::Tls;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serves {
    All,
    Grpc,
    Http,
}

/// Limits of one connection, and of the connections of one port.
#[derive(Clone, Debug)]
pub struct PortLimits {
    pub whole_body_bytes_max: usize, // of a body that is read ahead
    pub header_bytes_max: u32,       // of one request
    pub backlog_bytes_max: usize,    // unsent on one stream
    pub streams_max: u32,            // open at once on one connection
    pub connections_max: usize,
    pub handshake_timeout: Duration,
    pub header_timeout: Duration, // HTTP/1.1: from one request to the headers of the next
    pub write_stall: Option<Duration>, // the socket takes nothing although bytes wait
    pub ping: Option<Pings>,
}

/// Keep-alive by pings of HTTP/2.
#[derive(Clone, Debug)]
pub struct Pings {
    pub interval: Duration, // of silence
    pub timeout: Duration,
}

/// Additional settings of a port of an HTTP server.
#[derive(Clone, Debug)]
pub struct Web {
    pub listener: u32,          // its index in the server's list
    pub window_bytes: u64,      // of one body, delivered and not read yet
    pub body_timeout: Duration, // of a body that is read ahead
    pub idle_timeout: Duration, // HTTP/2: without a request
}

pub struct Port {
    pub serves: Serves,
    pub is_plain: bool,
    pub tls: Option<Rc<Tls>>,
    pub limits: PortLimits,
    pub web: Option<Web>,
    pub connections: Cell<usize>,
}
