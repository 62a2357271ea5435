//! The dispatch of an outbox to the calls and streams. Loop thread only.

use std::rc::Rc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tokio::task::yield_now;

use crate::grpc::open_call::{refuse, OpenCall};
use crate::grpc::{self, Status};
use crate::server::call_table::CallTable;
use crate::server::outbox::{Outbox, Piece, Tail, Write};
use crate::server::outgoing::Outgoing;

const DIRECT_WRITES_MAX: usize = 32;

impl CallTable {
    /// Send every answer to its call; answers without a call are dropped.
    pub async fn dispatch(&self, outbox: Outbox) {
        for reply in outbox.replies {
            match self.take_call(reply.id) {
                Some(call) => self.answer(call, reply.code, reply.body),
                None => self.reply_to_stream(reply.id, reply.code, reply.body),
            }
        }
        for response in outbox.responses {
            let found = self.streams.borrow().get(&response.id).cloned();
            if let Some(outgoing) = found {
                outgoing.begin(response);
            }
        }
        for write in &outbox.writes {
            match write {
                Write::One { id, tail } => self.write(*id, &outbox.tails[*tail], true).await,
                Write::All { ids, tail } => {
                    for id in ids {
                        self.write(*id, &outbox.tails[*tail], false).await;
                    }
                }
            }
        }
        let mut current: Option<(u64, Rc<Outgoing>)> = None;
        for delivery in outbox.deliveries {
            if current.as_ref().is_none_or(|(id, _)| *id != delivery.id) {
                let found = self.streams.borrow().get(&delivery.id).cloned();
                current = found.map(|outgoing| (delivery.id, outgoing));
            }
            let Some((id, outgoing)) = &current else { continue };
            let limit = outgoing.conn.port.limits.backlog_bytes_max;
            let queued = match delivery.what {
                Piece::One { head, tail } => {
                    outgoing.deliver(&outbox.heads[head], &outbox.tails[tail].bytes, limit)
                }
                Piece::Many { blocks } => outgoing.deliver_blocks(&outbox.blocks[blocks], limit),
            };
            if let Err(status) = queued {
                self.cut(*id, status);
                current = None;
            }
        }
        for id in outbox.resumed {
            if let Some(outgoing) = self.streams.borrow().get(&id) {
                outgoing.wake_reader();
            }
        }
        for cut in outbox.cuts {
            self.cut(cut.id, Status::new(cut.code, cut.text));
        }
        for id in outbox.cuts_now {
            self.cut_now(id);
        }
        for end in outbox.ends {
            let found = self.streams.borrow().get(&end.id).cloned();
            if let Some(outgoing) = found {
                outgoing.end(Status::new(end.code, end.text));
            } else if let Some(call) = self.take_call(end.id) {
                refuse(call.respond, &Status::new(end.code, end.text));
            }
        }
    }

    /// Send bytes of an answer, or queue them; is_counted: they are already counted as queued.
    async fn write(&self, id: u64, tail: &Tail, is_counted: bool) {
        let found = self.streams.borrow().get(&id).cloned();
        let Some(outgoing) = found.filter(|outgoing| !outgoing.is_ended()) else { return };
        let size = tail.bytes.len() as u64;
        if outgoing.send_at_once(&self.direct_writes, tail, is_counted) {
            if self.direct_writes.get() >= DIRECT_WRITES_MAX {
                self.direct_writes.set(0);
                yield_now().await; // so that other connections are polled, too
            }
            return;
        }
        if !is_counted {
            outgoing.backlog.queued.fetch_add(size, Ordering::SeqCst);
            self.backlogs.behind().insert(id, outgoing.backlog.clone());
        }
        let limit = outgoing.conn.port.limits.backlog_bytes_max;
        if let Err(status) = outgoing.deliver(&[], &tail.bytes, limit) {
            self.cut(id, status);
        }
    }

    fn answer(&self, call: OpenCall, code: u32, body: Bytes) {
        if code != grpc::OK {
            return refuse(call.respond, &Status::new(code, body));
        }
        let conn = &call.conn;
        if conn.held.get() > self.options.connection_backlog_bytes_max {
            if !conn.is_broken_off.get() {
                self.inbox.add_notice(format!(
                    "connection closed: {} bytes of answers wait unread, limit {}: {}",
                    conn.held.get(),
                    self.options.connection_backlog_bytes_max,
                    conn.peer,
                ));
                conn.break_off();
            }
            return;
        }
        if call.is_gzip {
            call.send_compressed(body);
        } else {
            call.send(body);
        }
    }

    fn reply_to_stream(&self, id: u64, code: u32, body: Bytes) {
        let found = self.streams.borrow().get(&id).cloned();
        let Some(outgoing) = found else { return };
        if !outgoing.is_grpc() {
            self.inbox.add_notice(format!("a gRPC reply to the HTTP request {id}"));
            return outgoing.end(Status::new(grpc::INTERNAL, ""));
        }
        if code == grpc::OK {
            outgoing.deliver_framed(body);
            outgoing.end(Status::new(grpc::OK, ""));
        } else {
            outgoing.end(Status::new(code, body));
        }
    }
}
