//! Properties of the client for arbitrary bytes of a server, as in `crate::fuzzing`.

#![allow(clippy::expect_used, clippy::panic)] // a property that is violated panics

use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::{spawn_local, LocalSet};
use tokio::time::timeout;

use super::connection::{open, Names};
use super::decode::{Fields, Value};
use super::environment::{Environment, Options};
use super::exchange::{reply, Stream, StreamTask};
use super::frame_watch::Watch;
use super::inbox::Inbox;
use crate::tls::client::{Settings, Tls};

const SESSION_TIMEOUT: Duration = Duration::from_secs(3);
const DEPTH_MAX: usize = 4;
const PATHS: [&str; 2] = ["/p.A/U", "/p.A/B"];
const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";

/// Every field lies in its message, and reading comes to an end.
fn fields(message: &[u8], depth: usize) {
    let (mut fields_read, mut left) = (Fields::of(message), message.len());
    while let Ok(Some((number, value))) = fields_read.next() {
        assert!(number > 0 && left > 0, "a field without a byte");
        left -= 1;
        if let Value::Bytes(bytes) = value {
            assert!(bytes.len() <= left);
            left -= bytes.len();
            if depth > 0 {
                fields(bytes, depth - 1);
            }
        }
    }
}

/// Messages are read in place, whatever they are; what is observed of frames does not depend on cuts.
pub fn decode(data: &[u8]) {
    fields(data, DEPTH_MAX);
    let Some((&how, rest)) = data.split_first() else { return };
    let seen = |size: usize| {
        let mut watch = Watch::new();
        rest.chunks(size).for_each(|piece| watch.see(piece));
        (watch.has_settings, watch.last_stream, watch.has_too_many_pings)
    };
    assert_eq!(seen(usize::from(how) + 1), seen(rest.len().max(1)));
}

fn environment() -> Rc<Environment> {
    let options = Options {
        paths: PATHS.map(String::from).to_vec(),
        dial_timeout: SESSION_TIMEOUT,
        keepalive_interval: None,
        keepalive_timeout: SESSION_TIMEOUT,
        keeps_idle_alive: false,
        reach_timeout: None,
        response_bytes_max: 1 << 12,
        stream_ahead_bytes_max: 1 << 12,
    };
    let (cert, key, server_name) = (None, None, None);
    let settings = Settings { cert, key, ca: Vec::new(), is_unverified: false, server_name };
    let inbox = Arc::new(Inbox::new().expect("an inbox"));
    Rc::new(Environment::new(options, inbox, Tls::new(settings)))
}

async fn in_time<T>(what: &str, data: &[u8], work: impl Future<Output = T>) -> T {
    timeout(SESSION_TIMEOUT, work).await.unwrap_or_else(|_| panic!("{what}: {data:?}"))
}

/// A connection with any bytes of a server ends in order, and so do a call and a stream on it.
///
/// An even first byte lets the server's SETTINGS precede the rest.
pub fn session(data: &[u8]) {
    thread_local! {
        static RUNTIME: tokio::runtime::Runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
    }
    let (how, rest) = data.split_first().map_or((0, data), |(how, rest)| (*how, rest));
    RUNTIME.with(|runtime| LocalSet::new().block_on(runtime, talk(data, how, rest)));
}

async fn talk(data: &[u8], how: u8, rest: &[u8]) {
    let environment = environment();
    let (here, there) = UnixStream::pair().expect("two sockets");
    let (mut reading, mut writing) = there.into_split();
    let server = spawn_local(async move {
        let _ = reading.read_to_end(&mut Vec::new()).await; // it may be reset
    });
    let bytes = [if how & 1 == 0 { SETTINGS } else { b"" }, rest].concat();
    let size = usize::from(how >> 3) + 1;
    let sending = spawn_local(async move {
        for piece in bytes.chunks(size) {
            if writing.write_all(piece).await.is_err() {
                return; // the client has closed the connection
            }
            tokio::task::yield_now().await;
        }
    });
    let name: Rc<str> = "fuzz".into();
    let names = Names { endpoint: &name, scheme: "http", authority: "localhost" };
    let opened =
        in_time("no end of opening", data, open(&environment, names, Box::new(here), 1)).await;
    if let Ok(driver) = opened {
        let connection = driver.connection.clone();
        let driving = spawn_local(async move {
            driver.await;
        });
        let (mut calling, mut streaming) = (None, None);
        if let Ok((response, mut send)) = connection.begin(0, None, None) {
            let _ = send.send_data(Bytes::from_static(b"\0\0\0\0\0"), true); // an error: it has ended
            let running = connection.running();
            let (environment, connection) = (environment.clone(), connection.clone());
            calling = Some(spawn_local(async move {
                let _ = reply(&environment, &connection, response).await; // whatever it is
                drop(running);
            }));
        }
        if let Ok(halves) = connection.begin(1, None, None) {
            let stream = Rc::<Stream>::default();
            stream.take(1 << 20);
            let task = StreamTask::new(&environment, connection.clone(), 2, stream, halves);
            streaming = Some(spawn_local(async move {
                task.await;
            }));
        }
        in_time("the connection does not end", data, driving).await.expect("no panic");
        for task in calling.into_iter().chain(streaming) {
            in_time("a call does not end", data, task).await.expect("no panic");
        }
    }
    in_time("the server does not end", data, sending).await.expect("no panic");
    server.abort();
}
