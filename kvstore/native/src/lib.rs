//! Sockets, HTTP/2 and gRPC framing for kvstore, in a thread without Python's lock.
//!
//! ```text
//! clients ◄──► connection, stream (loop thread) ──► inbox ──► Server.poll  ──► Python
//!                                   call table  ◄── outbox ◄── Server.flush ◄──
//! ```
//!
//! Requests go to Python in one call as lists of tuples, answers come back in one call. The crate handles
//! paths, numbers and bytes and does not interpret them. Its own threads never take Python's lock.

#![forbid(unsafe_code)]

mod authority;
mod call_table;
mod calls;
mod client;
mod connection;
mod connection_info;
mod crossing;
mod date;
mod frames;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod grpc;
mod http;
mod http1;
mod http2;
mod http_crossing;
mod inbox;
mod outbox;
mod outgoing;
mod peer_table;
mod port;
mod serve;
mod shared_socket;
mod stream;
mod tls;
mod trust;
mod wakeup;
pub mod wal;
mod wire;

pub use crossing::kvstore_native;
