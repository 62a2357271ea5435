//! One open gRPC stream over h2: the task that sends and reads.
//!
//! ```text
//! Outgoing ──► StreamTask ──► h2 (as far as the window allows)
//! h2 ──► StreamTask ──► Inbox.add_frame ... (as far as the inbox has room)
//! ```

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use ::http::StatusCode;
use h2::{RecvStream, SendStream};

use crate::grpc::open_call::Respond;
use crate::grpc::{self, Deframer, Status};
use crate::server::call_table::CallTable;
use crate::server::connection_state::Payload;
use crate::server::inbox::ReadAhead;
use crate::server::outgoing::{Outgoing, Sent};

/// The reading half of a bidi stream.
pub struct Incoming {
    body: RecvStream,
    deframer: Deframer,
    ahead: ReadAhead,
    is_paused: bool,
}

impl Incoming {
    pub fn new(body: RecvStream, deframer: Deframer) -> Self {
        Incoming { body, deframer, ahead: ReadAhead::default(), is_paused: false }
    }
}

/// Sends and reads until the end.
pub struct StreamTask {
    pub table: Rc<CallTable>,
    pub id: u64,
    pub outgoing: Rc<Outgoing>,
    pub incoming: Option<Incoming>,
    pub respond: Respond,
    pub send: Option<SendStream<Payload>>,
}

impl Future for StreamTask {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        this.table.inbox.note_poll();
        this.outgoing.watch(cx);
        if this.outgoing.is_abandoned() {
            return Poll::Ready(());
        }
        this.read(cx);
        match this.write(cx) {
            Sent::Waits => Poll::Pending,
            Sent::All => {
                this.table.take_stream(this.id);
                Poll::Ready(())
            }
            Sent::Broken => {
                this.table.client_disconnected(this.id);
                Poll::Ready(())
            }
        }
    }
}

impl Drop for StreamTask {
    fn drop(&mut self) {
        self.table.client_disconnected(self.id); // without effect after an orderly end
    }
}

impl StreamTask {
    fn read(&mut self, cx: &mut Context<'_>) {
        let Some(incoming) = &mut self.incoming else { return };
        let inbox = &self.table.inbox;
        if incoming.is_paused && inbox.is_paused(&incoming.ahead) {
            return;
        }
        incoming.is_paused = false;
        loop {
            match incoming.deframer.next_message() {
                Ok(Some(message)) => {
                    if self.outgoing.is_ended() {
                        continue; // the node has ended it; discard the rest
                    }
                    if !inbox.add_frame(self.id, message, &mut incoming.ahead, cx.waker()) {
                        incoming.is_paused = true;
                        return;
                    }
                    continue;
                }
                Ok(None) => {}
                Err(status) => {
                    self.incoming = None;
                    return self.table.cut(self.id, status);
                }
            }
            match incoming.body.poll_data(cx) {
                Poll::Pending => return,
                Poll::Ready(Some(Ok(chunk))) => {
                    // It fails only for more than was received.
                    let _ = incoming.body.flow_control().release_capacity(chunk.len());
                    incoming.deframer.push(chunk);
                }
                Poll::Ready(Some(Err(_))) => {
                    self.incoming = None;
                    return self.table.client_disconnected(self.id);
                }
                Poll::Ready(None) => {
                    let is_incomplete = incoming.deframer.is_incomplete();
                    self.incoming = None;
                    if is_incomplete {
                        let status = Status::new(grpc::UNKNOWN, "unexpected EOF");
                        return self.table.cut(self.id, status);
                    }
                    if !self.outgoing.is_ended() {
                        inbox.add_half_closed(self.id);
                    }
                    return;
                }
            }
        }
    }

    /// Send queued messages and the end.
    fn write(&mut self, cx: &mut Context<'_>) -> Sent {
        let outgoing = &self.outgoing;
        if outgoing.is_abandoned() {
            return Sent::Broken;
        }
        if outgoing.has_queued() {
            let send = match &mut self.send {
                Some(send) => send,
                None => {
                    match self.respond.send_response(grpc::ok_response(outgoing.is_gzip), false) {
                        Ok(send) => self.send.insert(send),
                        Err(_) => return Sent::Broken,
                    }
                }
            };
            match outgoing.send(&self.table.inbox, send, cx) {
                Sent::All => {}
                other => return other,
            }
        }
        self.finish()
    }

    fn finish(&mut self) -> Sent {
        let Some(status) = self.outgoing.status() else { return Sent::Waits };
        let sent = match (&mut self.send, status.code) {
            (Some(send), _) => send.send_trailers(status.trailers()).is_ok(),
            (None, grpc::OK) => {
                match self.respond.send_response(grpc::ok_response(self.outgoing.is_gzip), false) {
                    Ok(mut send) => send.send_trailers(status.trailers()).is_ok(),
                    Err(_) => false,
                }
            }
            (None, _) => self.respond.send_response(status.response(StatusCode::OK), true).is_ok(),
        };
        if sent {
            Sent::All
        } else {
            Sent::Broken
        }
    }
}
