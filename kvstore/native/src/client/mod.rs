//! gRPC as a client: calls and streams of one Python thread, over few HTTP/2 connections.
//!
//! ```text
//! Python ── Client.flush ──► hub ──► endpoint ──► connection ──► server       (client thread)
//! Python ◄── Client.poll ─── inbox ◄── exchange (a task a call or stream) ◄──
//! ```
//!
//! Invariant: every flushed call or stream ends exactly once in the inbox, with its reply or its end,
//! unless it is cancelled. An end says whether the server may have seen the call. Nothing is retried here:
//! the caller decides about that.
//!
//! It handles paths, numbers and bytes and does not interpret them. The thread never takes Python's lock.

mod connection;
pub mod decode;
pub mod endpoint;
pub mod environment;
mod exchange;
mod frame_watch;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod hub;
pub mod inbox;
pub mod requests;
mod status;
#[cfg(test)]
mod tests;
pub mod thread;
