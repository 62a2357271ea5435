//! The bodies of requests: read ahead to their end, or in frames as far as the inbox has room.

use std::future::poll_fn;
use std::task::{ready, Context, Poll};

use ::http::header::EXPECT;
use ::http::request::Parts;
use bytes::Bytes;
use tokio::time::timeout;

use crate::grpc::Reservation;
use crate::http::refusal::{Refusal, LATE, TOO_LARGE, TOO_MANY};
use crate::server::call_table::CallTable;
use crate::server::inbox::{Pause, ReadAhead};
use crate::server::outgoing::Outgoing;
use crate::server::port::Port;

/// A piece of a body, of any kind of connection.
pub type Piece = Poll<Option<Result<Bytes, ()>>>;

/// Why a body is not complete.
pub enum BodyError {
    Refused(Refusal),
    Gone,
}

/// Return whether a body of this length is read ahead; an error if it is too long.
pub fn comes_whole(port: &Port, parts: &Parts, size: Option<u64>) -> Result<bool, Refusal> {
    let Some(size) = size else { return Ok(false) };
    let fits = size <= port.limits.whole_body_bytes_max as u64;
    if port.web.is_none() {
        return if fits { Ok(true) } else { Err(TOO_LARGE) };
    }
    Ok(fits && (size == 0 || !parts.headers.contains_key(EXPECT)))
}

/// Read a body to its end, with a timeout.
pub async fn read_whole(
    table: &CallTable,
    port: &Port,
    mut next: impl FnMut(&mut Context<'_>) -> Piece,
) -> Result<Bytes, BodyError> {
    let mut body = WholeBody {
        bytes: Vec::new(),
        held: Reservation::new(&table.assembling),
        pause: Pause::default(),
    };
    let reading = poll_fn(|cx| body.poll(table, port, cx, &mut next));
    match &port.web {
        None => reading.await,
        Some(web) => {
            timeout(web.body_timeout, reading).await.unwrap_or(Err(BodyError::Refused(LATE)))
        }
    }
}

/// A body that is read to its end.
struct WholeBody {
    bytes: Vec<u8>,
    held: Reservation,
    pause: Pause,
}

impl WholeBody {
    fn poll(
        &mut self,
        table: &CallTable,
        port: &Port,
        cx: &mut Context<'_>,
        next: &mut impl FnMut(&mut Context<'_>) -> Piece,
    ) -> Poll<Result<Bytes, BodyError>> {
        loop {
            if !table.inbox.has_room(cx.waker(), &mut self.pause) {
                return Poll::Pending;
            }
            let chunk = match ready!(next(cx)) {
                None => return Poll::Ready(Ok(std::mem::take(&mut self.bytes).into())),
                Some(Err(())) => return Poll::Ready(Err(BodyError::Gone)),
                Some(Ok(chunk)) => chunk,
            };
            if self.bytes.len() + chunk.len() > port.limits.whole_body_bytes_max {
                return Poll::Ready(Err(BodyError::Refused(TOO_LARGE)));
            }
            if self.held.grow(chunk.len()).is_err() {
                return Poll::Ready(Err(BodyError::Refused(TOO_MANY)));
            }
            self.bytes.extend_from_slice(&chunk);
        }
    }
}

/// Reads a body, or the bytes after an upgrade, into the inbox.
#[derive(Default)]
pub struct BodyReader {
    ahead: ReadAhead,
    is_paused: bool,
    is_over: bool,
    discarded: usize, // bytes that came after the end
}

/// The result of reading.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken {
    Waits,
    All,
    Broken,
    TooMuch, // after the end
}

pub const DISCARDED_MAX: usize = 256 << 10; // as Go's servers read on

impl BodyReader {
    /// Read as far as the inbox has room.
    pub fn read(
        &mut self,
        table: &CallTable,
        id: u64,
        outgoing: &Outgoing,
        cx: &mut Context<'_>,
        mut next: impl FnMut(&mut Context<'_>) -> Piece,
    ) -> Taken {
        let inbox = &table.inbox;
        if self.is_over {
            return Taken::All;
        }
        if self.is_paused && inbox.is_paused(&self.ahead) {
            return Taken::Waits;
        }
        self.is_paused = false;
        let window = outgoing.backlog.window.as_ref();
        loop {
            if let Some(window) = window {
                if outgoing.is_ended() && window.is_held() {
                    return Taken::TooMuch; // the client waits for a 100 that is not sent
                }
                if !outgoing.is_ended() && !window.has_room() {
                    outgoing.watch_reader(cx);
                    return Taken::Waits;
                }
            }
            match next(cx) {
                Poll::Pending => return Taken::Waits,
                Poll::Ready(Some(Err(()))) => return Taken::Broken,
                Poll::Ready(None) => {
                    self.is_over = true;
                    if !outgoing.is_ended() {
                        inbox.add_half_closed(id);
                    }
                    return Taken::All;
                }
                Poll::Ready(Some(Ok(chunk))) if chunk.is_empty() => {}
                // Bytes after the end are discarded.
                Poll::Ready(Some(Ok(chunk))) if outgoing.is_ended() => {
                    self.discarded += chunk.len();
                    if window.is_some() && self.discarded > DISCARDED_MAX {
                        return Taken::TooMuch;
                    }
                }
                Poll::Ready(Some(Ok(chunk))) => {
                    if let Some(window) = window {
                        window.hand(chunk.len());
                    }
                    if !inbox.add_frame(id, chunk, &mut self.ahead, cx.waker()) {
                        self.is_paused = true;
                        return Taken::Waits;
                    }
                }
            }
        }
    }
}
