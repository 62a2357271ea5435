//! The interface to Python. Nothing here waits while it holds Python's lock.

pub mod client;
pub mod decoder;
pub mod http_server;
pub mod kernels;
pub mod log;
pub mod module;
mod options;
pub mod rows;
pub mod server;
pub mod yaml;
