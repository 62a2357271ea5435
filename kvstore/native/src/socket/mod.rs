//! Sockets: buffered for h2, raw with their notes, and the layers of a server's.

pub mod buffered;
pub mod layers;
pub mod raw;
pub mod stall;
