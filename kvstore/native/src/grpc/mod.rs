//! gRPC over HTTP/2: statuses, framing, and the calls and streams of a server.

pub mod calls;
mod framing;
pub mod open_call;
pub mod routes;
mod status;
pub mod stream;

pub use framing::*;
pub use status::*;
