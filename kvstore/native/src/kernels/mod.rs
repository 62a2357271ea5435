//! Codec work over whole batches: functions of columns, for Python.
//!
//! ```text
//! calls ──► requests ──► entries ──► (Python decides) ──► key_values ──► responses
//! ```
//!
//! Nothing here has state or decides anything. Each function has a twin in Python, which is the
//! reference and runs where the crate was not built; tests compare the two. Only messages in the usual
//! encoding are recognized here; any other bytes are left to Python.

pub mod entries;
pub mod fan_out;
pub mod key_values;
pub mod protobuf;
pub mod requests;
pub mod responses;
