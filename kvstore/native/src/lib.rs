//! Sockets, HTTP/2 and gRPC framing for kvstore, in a thread without Python's lock.
//!
//! ```text
//! clients ◄──► connection, stream (loop thread) ──► inbox ──► Server.poll  ──► Python
//!                                   switchboard ◄── outbox ◄── Server.flush ◄──
//! ```
//!
//! Requests cross to Python in one call as lists of tuples, answers come back in one call. The crate
//! knows paths, numbers and bytes, and no meaning. No thread of its own ever takes Python's lock.

#![forbid(unsafe_code)]

mod authority;
mod bell;
mod callers;
mod calls;
mod connection;
mod crossing;
mod frames;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod grpc;
mod http;
mod http1;
mod http2;
mod inbox;
mod outbox;
mod outgoing;
mod serve;
mod stream;
mod switchboard;
mod tls;
pub mod wal;
mod wire;

pub use crossing::kvstore_native;
