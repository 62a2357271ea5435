//! A unary call that waits for its answer.

use std::rc::Rc;
use std::time::Instant;

use ::http::StatusCode;
use bytes::Bytes;
use h2::server::SendResponse;
use h2::Reason;
use tokio::task::spawn_blocking;

use crate::grpc::{self, Status, PREFIX_BYTES};
use crate::server::connection_state::{Conn, Payload};

const COMPRESSED_ELSEWHERE_BYTES: usize = 64 << 10;

pub type Respond = SendResponse<Payload>;

/// A unary call the driver has, or will have, to answer.
pub struct OpenCall {
    pub respond: Respond,
    pub conn: Rc<Conn>,
    pub deadline: Option<Instant>,
    pub is_gzip: bool,
}

impl OpenCall {
    pub fn send(mut self, body: Bytes) {
        // Each of these fails only when the client has disconnected.
        let head = grpc::ok_response(self.is_gzip);
        let Ok(mut send) = self.respond.send_response(head, false) else { return };
        if send.send_data(self.conn.payload(body), false).is_ok() {
            let _ = send.send_trailers(Status::new(grpc::OK, "").trailers());
        }
    }

    /// Compress the answer, a large one in another thread, and send it.
    pub fn send_compressed(self, body: Bytes) {
        if body.len() < COMPRESSED_ELSEWHERE_BYTES {
            return self.send(grpc::compress(&[&body[PREFIX_BYTES..]]));
        }
        tokio::task::spawn_local(async move {
            let work = spawn_blocking(move || grpc::compress(&[&body[PREFIX_BYTES..]]));
            match work.await {
                Ok(body) => self.send(body),
                Err(error) => refuse(self.respond, &Status::new(grpc::INTERNAL, error.to_string())),
            }
        });
    }
}

/// Refuse a stream as not processed, so that the client retries it elsewhere.
pub fn decline(mut respond: Respond) {
    respond.send_reset(Reason::REFUSED_STREAM);
}

/// Answer with a status alone. It fails only when the client has disconnected.
pub fn refuse(mut respond: Respond, status: &Status) {
    let _ = respond.send_response(status.response(StatusCode::OK), true);
}
