//! The properties of a connection, for the handlers of its requests.
//!
//! Created once, after the handshake, and shared by all requests of the connection.

use std::any::Any;
use std::sync::OnceLock;

/// No client can send it: `grpc::calls` takes only known keys.
pub const COMMON_NAME_KEY: &str = "tls-common-name";

/// The result of verifying a client's certificate.
#[derive(Debug, Default)]
pub struct Identity {
    pub chain: Vec<Vec<u8>>, // DER, the client's own first; empty: it sent none
    pub verified_by: Vec<String>, // names of the authorities that verify it
    pub error: Option<String>, // why none verifies it
}

#[derive(Default)]
pub struct ConnectionInfo {
    pub peer: String, // address and port, or the path of a unix socket
    pub listener: u32,
    pub is_tls: bool,
    pub protocol: Option<String>, // negotiated in the handshake (ALPN)
    pub server_name: Option<String>, // given by the client (SNI)
    pub identity: Identity,
    /// The object in Python; created by the driver's thread at the first request.
    pub shown: OnceLock<Box<dyn Any + Send + Sync>>,
}
