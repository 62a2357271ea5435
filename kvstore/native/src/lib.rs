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

#[cfg(not(fuzzing))]
mod client;
#[cfg(fuzzing)]
pub mod client;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod grpc;
mod http;
mod id_map;
mod kernels;
mod python;
mod rows;
mod server;
mod socket;
mod tasks;
mod tls;
mod wakeup;
pub mod wal;
#[cfg(not(fuzzing))]
mod yaml;
#[cfg(fuzzing)]
pub mod yaml;

pub use python::module::kvstore_native;
