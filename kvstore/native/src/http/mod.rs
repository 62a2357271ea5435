//! HTTP/1.1 and HTTP/2 of a server: requests that are not gRPC, and what hyper and h2 do not do.

pub mod authority;
pub mod body;
pub mod date;
pub mod exchange;
pub mod frames;
pub mod header_paths;
pub mod hpack;
pub mod http1;
pub mod http1_socket;
pub mod http2;
pub mod messages;
pub mod refusal;
pub mod request_lines;
pub mod targets;
