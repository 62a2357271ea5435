//! TLS with Go's rules: of listeners, of clients, and who is trusted.

pub mod client;
pub mod server;
pub mod source;
mod trust;

pub use trust::ClientAuth;
