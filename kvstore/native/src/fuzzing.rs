//! Properties of the framing for arbitrary bytes. The fuzzer and the tests here use them.
//!
//! Each takes bytes as from a socket and panics where a property is violated. The first byte
//! decides how the rest is cut into pieces, since no result may depend on that.

#![allow(clippy::expect_used, clippy::panic)] // a property that is violated panics

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::{spawn_local, yield_now, LocalSet};
use tokio::time::timeout;

use crate::grpc::routes::{Kind, Route, Routes};
use crate::grpc::{AssemblyBudget, Deframer, Encoding, Status};
use crate::http::authority::AuthorityPatch;
use crate::http::frames::FrameObserver;
use crate::http::header_paths::PathPatch;
use crate::http::messages::HttpResponse;
use crate::http::request_lines::{Line, RequestLine};
use crate::server::call_table::{CallTable, Options};
use crate::server::connection::{serve, Arrived};
use crate::server::connection_state::Conn;
use crate::server::inbox::{Inbox, Limits};
use crate::server::outbox::{End, Outbox, Write};
use crate::server::port::{Port, PortLimits, Serves, Web};
use crate::server::send_backlog::SendBacklogs;
use crate::socket::raw::Carrier;
use crate::yaml;

const MESSAGE_MAX: usize = 1 << 12;
const BUDGET: usize = 1 << 20;
const SESSION_TIMEOUT: Duration = Duration::from_secs(3);

/// Cut into pieces of sizes that the first byte decides.
fn pieces(data: &[u8]) -> (u8, Vec<&[u8]>) {
    let Some((&how, rest)) = data.split_first() else { return (0, Vec::new()) };
    (how, rest.chunks(usize::from(how >> 3) + 1).collect())
}

fn deframed(pieces: &[&[u8]], encoding: Encoding) -> (Vec<Bytes>, Option<Status>, bool) {
    let budget = AssemblyBudget::new(BUDGET);
    let mut deframer = Deframer::new(MESSAGE_MAX, encoding, &budget);
    let mut messages = Vec::new();
    for piece in pieces {
        deframer.push(Bytes::copy_from_slice(piece));
        loop {
            match deframer.next_message() {
                Ok(Some(message)) => {
                    assert!(message.len() <= MESSAGE_MAX);
                    messages.push(message);
                }
                Ok(None) => break,
                Err(status) => return (messages, Some(status), false),
            }
        }
    }
    let is_incomplete = deframer.is_incomplete();
    drop(deframer);
    assert_eq!(budget.held(), 0);
    (messages, None, is_incomplete)
}

/// Messages do not depend on how their bytes are split, and no memory stays reserved.
pub fn deframe(data: &[u8]) {
    let (how, cut) = pieces(data);
    let encoding = if how & 1 == 0 { Encoding::Identity } else { Encoding::Gzip };
    assert_eq!(deframed(&cut, encoding), deframed(&[&data[data.len().min(1)..]], encoding));
}

/// Any bytes as YAML: a value or a refusal, within the limits; the second reading is the first.
pub fn yaml(data: &[u8]) {
    let limits = yaml::Limits {
        depth_max: 20,
        values_max: 500,
        repeated_bytes_max: 1 << 12,
        directives_max: 10,
    };
    let (mut one, mut other) = (yaml::Nodes::default(), yaml::Nodes::default());
    // Nothing: the parser panicked, which is caught.
    let (first, second) =
        (yaml::try_read(data, &limits, &mut one), yaml::try_read(data, &limits, &mut other));
    assert_eq!(format!("{first:?}"), format!("{second:?}"));
}

fn watched(pieces: &[&[u8]], preface: usize) -> (u32, Vec<u32>, bool, u64, bool) {
    let mut watch = FrameObserver::new(preface);
    pieces.iter().for_each(|piece| watch.see(piece));
    let is_between = watch.is_between_frames();
    (watch.pings, watch.resets, watch.carried, watch.data_bytes, is_between)
}

fn patched(pieces: &[&[u8]]) -> Vec<u8> {
    let mut patch = AuthorityPatch::new();
    let mut out = Vec::new();
    let mut take = |patch: &mut AuthorityPatch| {
        let count = patch.readable().len();
        out.extend_from_slice(patch.readable());
        patch.consume(count);
    };
    for piece in pieces {
        patch.buffer().extend_from_slice(piece);
        take(&mut patch);
    }
    patch.finish();
    take(&mut patch);
    out
}

/// What is observed and changed of frames does not depend on how they are split.
pub fn watch(data: &[u8]) {
    let (how, cut) = pieces(data);
    let whole = [&data[data.len().min(1)..]];
    let preface = usize::from(how & 7) * 4;
    assert_eq!(watched(&cut, preface), watched(&whole, preface));
    let out = patched(&cut);
    assert_eq!(out.len(), whole[0].len());
    assert_eq!(out, patched(&whole));
}

fn heads(pieces: &[&[u8]]) -> (Vec<u8>, Vec<u8>) {
    let (mut line, mut out) = (RequestLine::default(), Vec::new());
    for piece in pieces {
        if !line.is_awaited(0) {
            out.extend_from_slice(piece);
            continue;
        }
        match line.see(piece, 0, usize::MAX) {
            Line::Plain => out.extend_from_slice(piece),
            Line::Incomplete => {}
            Line::Whole(bytes, _) => out.extend_from_slice(&bytes),
        }
    }
    out.extend_from_slice(&line.give_up(0));
    let conn = Rc::new(Conn::new("fuzz".into(), 0, port(Some(web()))));
    let (mut patch, mut blocks) = (PathPatch::new(conn), Vec::new());
    let mut take = |patch: &mut PathPatch| {
        let count = patch.readable().len();
        blocks.extend_from_slice(patch.readable());
        patch.consume(count);
    };
    for piece in pieces {
        patch.buffer().extend_from_slice(piece);
        take(&mut patch);
    }
    patch.finish();
    take(&mut patch);
    (out, blocks)
}

/// What becomes of request lines and of header blocks does not depend on how they are split.
pub fn targets(data: &[u8]) {
    let (_, cut) = pieces(data);
    let whole = [&data[data.len().min(1)..]];
    assert_eq!(heads(&cut), heads(&whole));
}

fn options() -> Options {
    Options {
        request_bytes_max: MESSAGE_MAX,
        connection_backlog_bytes_max: 1 << 20,
        assembling_bytes_max: BUDGET,
        connections_max: 10,
        keepalive_min: Duration::from_secs(5),
        send_bytes_max: 1 << 16,
    }
}

pub(crate) fn port(web: Option<Web>) -> Rc<Port> {
    let limits = PortLimits {
        whole_body_bytes_max: MESSAGE_MAX,
        header_bytes_max: 1 << 14,
        backlog_bytes_max: 1 << 16,
        streams_max: 100,
        connections_max: 10,
        handshake_timeout: SESSION_TIMEOUT,
        header_timeout: SESSION_TIMEOUT,
        write_stall: Some(SESSION_TIMEOUT),
        ping: None,
    };
    let serves = if web.is_some() { Serves::Http } else { Serves::All };
    let connections = Cell::new(1);
    Rc::new(Port { serves, is_plain: true, tls: None, limits, web, connections })
}

fn web() -> Web {
    Web {
        listener: 0,
        window_bytes: 1 << 12,
        body_timeout: SESSION_TIMEOUT,
        idle_timeout: SESSION_TIMEOUT,
    }
}

pub(crate) fn table() -> Rc<CallTable> {
    let limits = Limits {
        calls_max: 8,
        bytes_max: 1 << 13,
        waiting_calls_max: 64,
        waiting_bytes_max: 1 << 14,
        stream_frames_max: 4,
        stream_bytes_max: 1 << 12,
    };
    let kinds = [("/p.A/U", Kind::Unary), ("/p.A/S", Kind::ServerStream), ("/p.A/B", Kind::Bidi)];
    let routes: Routes = (0u32..)
        .zip(kinds)
        .map(|(method, (path, kind))| {
            (path.to_owned(), Route { method, kind, ends_by_itself: true })
        })
        .collect();
    let inbox = Inbox::new(limits).expect("an inbox");
    Rc::new(CallTable::new(options(), routes, Arc::new(inbox), Arc::new(SendBacklogs::default())))
}

/// Answer all that arrived, each id in its own way.
async fn answer(table: &Rc<CallTable>) {
    let arrivals = table.inbox.take();
    let mut outbox = Outbox::new(table.options.send_bytes_max);
    outbox.add_tail(Bytes::from_static(&[b't'; 10_000]));
    for call in arrivals.calls {
        outbox.add_reply(call.id, u32::try_from(call.id % 5).unwrap_or(0), &call.body);
    }
    for request in arrivals.requests {
        let is_upgrade = request.headers.iter().any(|(name, _)| name == "upgrade");
        let status = if is_upgrade { 101 } else { 200 };
        let body = (request.id % 2 == 0).then(|| Bytes::from_static(b"whole"));
        let is_streamed = body.is_none();
        outbox.responses.push(HttpResponse::new(request.id, status, &[], body));
        if is_streamed && request.body.is_some() {
            outbox.add_delivery(request.id, &[], 0);
            outbox.ends.push(End { id: request.id, code: 0, text: Bytes::new() });
        }
    }
    for arrival in arrivals.arrived {
        let body =
            (arrival.id % 2 == 0 && !arrival.may_upgrade).then(|| Bytes::from_static(b"whole"));
        let status = if arrival.may_upgrade { 101 } else { 200 };
        if let Some(window) =
            table.backlogs.lock().get(&arrival.id).and_then(|backlog| backlog.window.as_ref())
        {
            if window.take(0) {
                outbox.resumed.push(arrival.id);
            }
        }
        if body.is_none() && arrival.body.is_some() {
            outbox.writes.push(Write::All { ids: vec![arrival.id], tail: 0 });
            outbox.writes.push(Write::One { id: arrival.id, tail: 0 });
            outbox.ends.push(End { id: arrival.id, code: 0, text: Bytes::new() });
        }
        outbox.responses.push(HttpResponse::new(arrival.id, status, &[], body));
    }
    for (id, frame) in arrivals.frames {
        if let Some(window) =
            table.backlogs.lock().get(&id).and_then(|backlog| backlog.window.as_ref())
        {
            if window.take(frame.len() as u64) {
                outbox.resumed.push(id);
            }
        }
        outbox.add_delivery(id, &[&frame], 0);
    }
    for id in arrivals.half_closed {
        outbox.ends.push(End { id, code: u32::try_from(id % 3).unwrap_or(0), text: Bytes::new() });
    }
    table.dispatch(outbox).await;
}

/// A connection with any bytes of a client ends in order, and frees everything.
///
/// The first byte decides what precedes the rest: nothing, or the beginning of HTTP/2.
pub fn connection(data: &[u8]) {
    session(data, None);
}

/// The same of a port of HTTP alone.
pub fn web_connection(data: &[u8]) {
    session(data, Some(web()));
}

fn session(data: &[u8], web: Option<Web>) {
    const BEGINNING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    thread_local! {
        static RUNTIME: tokio::runtime::Runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
    }
    let (how, cut) = pieces(data);
    let beginning = if how & 1 == 0 { &b""[..] } else { BEGINNING };
    RUNTIME.with(|runtime| {
        LocalSet::new().block_on(runtime, async {
            let table = table();
            let (here, there) = UnixStream::pair().expect("two sockets");
            let (mut reading, mut writing) = there.into_split();
            let port = port(web);
            let arrived = Arrived { carrier: Carrier::Unix(here), port, peer: "fuzz".into() };
            let served = spawn_local(serve(table.clone(), 1, arrived));
            let client = spawn_local(async move {
                let _ = reading.read_to_end(&mut Vec::new()).await; // it may be reset
            });
            // Each of these fails only when the server has closed the connection.
            let _ = writing.write_all(beginning).await;
            for piece in cut {
                let _ = writing.write_all(piece).await;
                answer(&table).await;
                if how & 2 == 0 {
                    yield_now().await;
                }
            }
            drop(writing);
            let over = async {
                while !served.is_finished() || table.has_open() {
                    answer(&table).await;
                    yield_now().await;
                }
            };
            let ended = timeout(SESSION_TIMEOUT, over).await;
            assert!(ended.is_ok(), "the connection does not end: {data:?}");
            timeout(SESSION_TIMEOUT, client).await.expect("the client ends").expect("no panic");
            served.await.expect("no panic");
            assert!(table.connections.open.borrow().is_empty());
            assert_eq!(table.assembling.held(), 0);
        });
    });
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;
    use crate::client;

    /// A small random generator: the same bytes at every run.
    struct Rng(u64);

    impl Rng {
        fn below(&mut self, sides: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 33) as usize % sides
        }

        fn mutate(&mut self, seed: &[u8]) -> Vec<u8> {
            let mut data = BytesMut::from(seed);
            for _ in 0..self.below(6) {
                let at = self.below(data.len());
                match self.below(4) {
                    0 => data[at] = self.below(256) as u8,
                    1 => data[at] ^= 1 << self.below(8),
                    2 => data.truncate(at + 1),
                    _ => {
                        let copy = data[at..].to_vec();
                        data.extend_from_slice(&copy[..copy.len().min(64)]);
                    }
                }
            }
            data.to_vec()
        }
    }

    fn run_mutated(target: fn(&[u8]), seeds: &[&[u8]], rounds: usize) {
        let mut random_state = Rng(0x9e37_79b9_7f4a_7c15);
        target(b"");
        for seed in seeds {
            target(seed);
            for _ in 0..rounds {
                target(&random_state.mutate(seed));
            }
        }
    }

    const SESSIONS: [&[u8]; 4] = [
        include_bytes!("../fuzz/seeds/connection/grpc"),
        include_bytes!("../fuzz/seeds/connection/http1"),
        include_bytes!("../fuzz/seeds/connection/http2"),
        include_bytes!("../fuzz/seeds/connection/websocket"),
    ];

    #[test]
    fn any_bytes_are_deframed() {
        run_mutated(deframe, &[b"\x20\0\0\0\0\x03one\0\0\0\0\0\x01\0\0\0\x01x", SESSIONS[0]], 3000);
    }

    #[test]
    fn any_bytes_are_watched() {
        run_mutated(watch, &SESSIONS, 2000);
    }

    #[test]
    fn any_targets_are_found() {
        let framed =
            |session: &[u8]| [&b"\x20PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &session[1..]].concat();
        let odd: &[u8] = b"\x20\0\0\x08\x01\x05\0\0\0\x01\x82\x86\x44\x04/a>1";
        let seeds = [
            framed(SESSIONS[2]),
            framed(odd),
            b"\x40GET /a>1 HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        ];
        let seeds: Vec<&[u8]> = seeds.iter().map(Vec::as_slice).collect();
        run_mutated(targets, &seeds, 3000);
        run_mutated(targets, &SESSIONS, 1000);
    }

    #[test]
    fn any_bytes_of_a_server_are_decoded() {
        let seeds: [&[u8]; 3] = [
            b"\x0a\x03abc\x10\x07\x1a\x04\x0a\x02xy",
            b"\x20\0\0\0\x04\0\0\0\0\0\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\0",
            ANSWER,
        ];
        run_mutated(client::fuzzing::decode, &seeds, 5000);
    }

    #[test]
    fn any_session_with_a_server_ends() {
        run_mutated(client::fuzzing::session, &[ANSWER, SESSIONS[2], SESSIONS[0]], 1000);
    }

    /// Of a server: an acknowledgement of settings, and an answer with a message and its trailers.
    const ANSWER: &[u8] = include_bytes!("../fuzz/seeds/client/answer");

    #[test]
    fn any_bytes_are_read_as_yaml() {
        let seeds: [&[u8]; 3] = [
            b"a: &x {b: [1, 'c'], <<: {d: *x}}\n---\nb\n",
            b"- |\n  a\n- >-\n  b\n  c\n- \"d\\u00e9\"\n- !!int 0x1F\n",
            b"%YAML 1.1\n%TAG !e! tag:e:\n--- !e!f\n? a\n: ~ # b\n",
        ];
        run_mutated(yaml, &seeds, 5000);
    }

    #[test]
    fn any_session_ends() {
        run_mutated(connection, &SESSIONS, 1500);
    }

    #[test]
    fn any_session_on_a_port_of_http_alone_ends() {
        run_mutated(web_connection, &SESSIONS, 1500);
    }
}
