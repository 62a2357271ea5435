//! Tests of the hub with a small HTTP/2 server made with h2, on unix sockets and in the same thread.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::http::{HeaderMap, HeaderName, HeaderValue, Response};
use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use tokio::net::UnixListener;
use tokio::task::{spawn_local, LocalSet};
use tokio::time::{sleep, timeout};

use super::endpoint::{Address, DialTarget};
use super::environment::Options;
use super::exchange::MESSAGE_COST;
use super::hub::Hub;
use super::inbox::{End, Inbox, Item};
use super::requests::{Call, Open, Requests};
use crate::grpc;
use crate::tls::client::{Settings, Tls};

const PATHS: [&str; 2] = ["/a.A/Echo", "/a.A/Stream"];
const TIMEOUT: Duration = Duration::from_secs(20);

/// A server that echoes calls, unless their message says otherwise.
struct Server {
    path: std::path::PathBuf,
    calls: Rc<Cell<usize>>,
    timeouts: Rc<RefCell<Vec<String>>>,
}

impl Server {
    fn start(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("kv-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let calls: Rc<Cell<usize>> = Rc::default();
        let timeouts: Rc<RefCell<Vec<String>>> = Rc::default();
        let (counted, kept) = (calls.clone(), timeouts.clone());
        spawn_local(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let (counted, kept) = (counted.clone(), kept.clone());
                spawn_local(async move {
                    let Ok(mut connection) = h2::server::handshake(socket).await else { return };
                    while let Some(Ok((request, respond))) = connection.accept().await {
                        counted.set(counted.get() + 1);
                        if let Some(given) = request.headers().get("grpc-timeout") {
                            kept.borrow_mut().push(given.to_str().unwrap().into());
                        }
                        spawn_local(answer(request.into_body(), respond));
                    }
                });
            }
        });
        Server { path, calls, timeouts }
    }

    fn address(&self) -> Address {
        Address {
            name: self.path.display().to_string(),
            target: DialTarget::Unix { path: self.path.display().to_string() },
            is_tls: false,
            authority: "localhost".into(),
            server_name: "localhost".into(),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

async fn answer(mut body: RecvStream, mut respond: SendResponse<Bytes>) {
    let first = body.data().await.unwrap().unwrap();
    match &first[grpc::PREFIX_BYTES..] {
        b"refuse" => return respond.send_reset(Reason::REFUSED_STREAM),
        b"silence" => return sleep(TIMEOUT).await,
        _ => {}
    }
    let head = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
    let mut send = respond.send_response(head, false).unwrap();
    if first.ends_with(b"many") {
        for _ in 0..100 {
            send.send_data(framed(&[7; 1000]), false).unwrap();
        }
    } else {
        send.send_data(first, false).unwrap();
    }
    let status = (HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"));
    send.send_trailers(HeaderMap::from_iter([status])).unwrap();
}

fn framed(body: &[u8]) -> Bytes {
    Requests::default().frame(body)
}

struct World {
    hub: Rc<Hub>,
    inbox: Arc<Inbox>,
}

impl World {
    fn new(reach_timeout: Option<Duration>, stream_ahead_bytes_max: usize) -> Self {
        let inbox = Arc::new(Inbox::new().unwrap());
        let options = Options {
            paths: PATHS.map(String::from).to_vec(),
            dial_timeout: TIMEOUT,
            keepalive_interval: None,
            keepalive_timeout: TIMEOUT,
            keeps_idle_alive: false,
            reach_timeout,
            response_bytes_max: 1 << 20,
            stream_ahead_bytes_max,
        };
        let settings = Settings {
            cert: None,
            key: None,
            ca: Vec::new(),
            is_unverified: false,
            server_name: None,
        };
        let hub = Hub::new(options, inbox.clone(), Tls::new(settings));
        World { hub, inbox }
    }

    fn call(&self, id: u64, body: &[u8], limit: Duration) {
        let mut requests = Requests::default();
        let message = requests.frame(body);
        let deadline = Some(Instant::now() + limit);
        requests.calls.push(Call { id, method: 0, message, deadline, metadata: None });
        self.hub.dispatch(requests);
    }

    fn open(&self, id: u64, body: &[u8]) {
        let mut requests = Requests::default();
        requests.opened.push(Open { id, method: 1, metadata: None });
        let message = requests.frame(body);
        requests.frames.push((id, message));
        self.hub.dispatch(requests);
    }

    /// The next so many items, as texts.
    async fn items(&self, count: usize) -> Vec<String> {
        let mut found = Vec::new();
        let taking = async {
            while found.len() < count {
                self.hub.expire(Instant::now());
                for item in self.inbox.take().items {
                    found.push(match item {
                        Item::Reply(id, body) => format!("{id} {}", String::from_utf8_lossy(&body)),
                        Item::Frame(id, message) => format!("{id} +{}", message.len()),
                        Item::End(End { id, code, was_sent, .. }) => {
                            format!("{id} !{code} {}", if was_sent { "sent" } else { "unsent" })
                        }
                    });
                }
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(TIMEOUT, taking).await.expect("what is waited for does not come");
        found
    }
}

fn run(scenario: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, scenario);
}

#[test]
fn calls_wait_for_a_connection_and_are_answered() {
    run(async {
        let server = Server::start("echo");
        let world = World::new(None, 1 << 20);
        world.call(1, b"one", TIMEOUT);
        world.hub.set_endpoints(vec![server.address()]);
        assert_eq!(world.items(1).await, ["1 one"]);
        (2..50).for_each(|id| world.call(id, b"more", TIMEOUT));
        assert_eq!(world.items(48).await.len(), 48);
        assert_eq!(server.calls.get(), 49);
        assert!(server.timeouts.borrow().iter().all(|given| given.ends_with('m')));
    });
}

#[test]
fn who_never_was_sent_says_so() {
    run(async {
        let world = World::new(None, 1 << 20);
        let mut address = Server::start("gone").address(); // the server is dropped with its socket
        address.name = "gone".into();
        world.hub.set_endpoints(vec![address]);
        world.call(1, b"one", Duration::from_millis(50));
        assert_eq!(world.items(1).await, ["1 !14 unsent"]);

        let patient = World::new(Some(Duration::from_millis(30)), 1 << 20);
        patient.call(1, b"one", TIMEOUT);
        patient.open(2, b"two");
        let mut ends = patient.items(2).await;
        ends.sort();
        assert_eq!(ends, ["1 !14 unsent", "2 !14 unsent"]);
    });
}

#[test]
fn deadlines_refusals_and_what_is_given_up() {
    run(async {
        let server = Server::start("odd");
        let world = World::new(None, 1 << 20);
        world.hub.set_endpoints(vec![server.address()]);
        world.call(1, b"refuse", TIMEOUT);
        assert_eq!(world.items(1).await, ["1 !14 unsent"]);
        world.call(2, b"silence", Duration::from_millis(50));
        assert_eq!(world.items(1).await, ["2 !4 sent"]);
        world.call(3, b"silence", TIMEOUT);
        world.call(4, b"heard", TIMEOUT);
        let gone = Requests::new(Vec::new(), vec![3], Vec::new());
        world.hub.dispatch(gone);
        assert_eq!(world.items(1).await, ["4 heard"]);
        world.call(5, b"still", TIMEOUT);
        assert_eq!(world.items(1).await, ["5 still"]);
    });
}

#[test]
fn a_stream_waits_for_its_reader() {
    run(async {
        let server = Server::start("stream");
        let world = World::new(None, 10 * (1000 + MESSAGE_COST));
        world.hub.set_endpoints(vec![server.address()]);
        world.open(1, b"many");
        let first = world.items(10).await;
        assert_eq!(first, vec!["1 +1000"; 10]);
        sleep(Duration::from_millis(50)).await;
        assert!(world.inbox.take().items.is_empty());
        let mut seen = 10;
        while seen < 100 {
            let taken = vec![(1, 10 * (1000 + MESSAGE_COST))];
            world.hub.dispatch(Requests::new(Vec::new(), Vec::new(), taken));
            seen += world.items(10).await.len();
        }
        let taken = vec![(1, 10 * (1000 + MESSAGE_COST))];
        world.hub.dispatch(Requests::new(Vec::new(), Vec::new(), taken));
        assert_eq!(world.items(1).await, ["1 !0 sent"]);
    });
}

#[test]
fn endpoints_take_turns_and_can_be_replaced() {
    run(async {
        let servers = [Server::start("t1"), Server::start("t2")];
        let world = World::new(None, 1 << 20);
        world.hub.set_endpoints(servers.iter().map(Server::address).collect());
        world.call(1, b"warm", TIMEOUT);
        world.items(1).await;
        while servers.iter().any(|each| each.calls.get() == 0) {
            world.call(1, b"warm", TIMEOUT);
            world.items(1).await;
        }
        let before: Vec<_> = servers.iter().map(|each| each.calls.get()).collect();
        for id in 2..22 {
            world.call(id, b"one", TIMEOUT);
        }
        world.items(20).await;
        for (server, before) in servers.iter().zip(before) {
            assert_eq!(server.calls.get() - before, 10);
        }
        world.hub.set_endpoints(vec![servers[1].address()]);
        let first = servers[0].calls.get();
        (30..40).for_each(|id| world.call(id, b"one", TIMEOUT));
        world.items(10).await;
        assert_eq!(servers[0].calls.get(), first);
    });
}
