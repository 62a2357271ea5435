//! One server: dials it, with back-off, and holds the current connection.
//!
//! ```text
//! dial ──► connected ──► lost, or GOAWAY ──► dial at once
//!   └─ failed ──► pause (longer each time, up to BACKOFF_MAX) ──► dial
//! ```
//!
//! After a GOAWAY a connection is driven on until its calls have ended, beside the next connection. One
//! that is lost soon after it was made counts as a failed dial.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepidle, set_tcp_keepintvl};
use tokio::net::{lookup_host, TcpStream, UnixStream};
use tokio::sync::Notify;
use tokio::task::{spawn_local, JoinHandle};
use tokio::time::{sleep, timeout};
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;

use super::connection::{open, Connection, Driver, Exit, Names};
use super::environment::Environment;
use super::frame_watch::Carrier;
use crate::tasks::{caught, spawn_vital};

const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(3);
const BACKOFF_FACTOR: f64 = 1.6;
const JITTER: f64 = 0.2;
const SETTLED_AFTER: Duration = Duration::from_secs(1);
const AVOIDED_FOR: Duration = Duration::from_millis(500);
const TCP_KEEPALIVE: Duration = Duration::from_secs(15); // as Go's dialer has it
const KEEPALIVE_SLOWER: u32 = 2; // after a server's complaint

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DialTarget {
    Tcp { host: String, port: u16 },
    Unix { path: String },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    pub name: String, // for error texts
    pub target: DialTarget,
    pub is_tls: bool,
    pub authority: String,
    pub server_name: String, // required of its certificate
}

pub struct Endpoint {
    pub address: Address,
    name: Rc<str>,
    connection: RefCell<Option<Rc<Connection>>>,
    error: RefCell<Option<String>>, // why there is no connection
    avoided_until: Cell<Option<Instant>>,
    keepalive_slower: Cell<u32>,
    backoff: Cell<Duration>,
    retired: Notify,
    task: RefCell<Option<JoinHandle<()>>>,
}

impl Endpoint {
    /// Keep connected until the endpoint is closed; `on_connected` is called for each connection.
    pub fn start(
        environment: &Rc<Environment>,
        address: Address,
        on_connected: impl Fn() + 'static,
    ) -> Rc<Self> {
        let endpoint = Rc::new(Endpoint {
            name: address.name.as_str().into(),
            address,
            connection: RefCell::default(),
            error: RefCell::default(),
            avoided_until: Cell::new(None),
            keepalive_slower: Cell::new(1),
            backoff: Cell::new(BACKOFF_MIN),
            retired: Notify::new(),
            task: RefCell::default(),
        });
        let failing = environment.inbox.clone();
        let fail = move |text| failing.fail(text);
        let keeping = keep_connected(environment.clone(), endpoint.clone(), on_connected);
        let task = spawn_vital("keeps a connection", fail, keeping);
        *endpoint.task.borrow_mut() = Some(task);
        endpoint
    }

    /// Stop dialling; open calls go on to their end.
    pub fn close(&self) {
        if let Some(task) = self.task.borrow_mut().take() {
            task.abort();
        }
        *self.connection.borrow_mut() = None;
    }

    /// The connection for new calls.
    pub fn connection(&self) -> Option<Rc<Connection>> {
        self.connection.borrow().as_ref().filter(|each| each.is_usable()).cloned()
    }

    /// Prefer other endpoints for a moment, because this one is UNAVAILABLE.
    pub fn avoid(&self, now: Instant) {
        self.avoided_until.set(Some(now + AVOIDED_FOR));
    }

    pub fn is_avoided(&self, now: Instant) -> bool {
        self.avoided_until.get().is_some_and(|until| now < until)
    }

    /// Why it cannot be reached, if that is known.
    pub fn error(&self) -> Option<String> {
        let is_up = self.connection().is_some();
        self.error.borrow().as_ref().filter(|_| !is_up).map(|why| format!("{}: {why}", self.name))
    }

    /// Double the pause before the next dial and return it with jitter.
    fn next_pause(&self, environment: &Environment) -> Duration {
        let pause = self.backoff.get();
        self.backoff.set(pause.mul_f64(BACKOFF_FACTOR).min(BACKOFF_MAX));
        pause.mul_f64(1.0 + JITTER * environment.jitter())
    }
}

async fn keep_connected(
    environment: Rc<Environment>,
    endpoint: Rc<Endpoint>,
    on_connected: impl Fn() + 'static,
) {
    loop {
        let dialled =
            timeout(environment.options.dial_timeout, dial(&environment, &endpoint)).await;
        let error = match dialled {
            Ok(Ok(driver)) => {
                let since = Instant::now();
                serve_until_retired(&environment, &endpoint, driver, &on_connected).await;
                if since.elapsed() >= SETTLED_AFTER {
                    endpoint.backoff.set(BACKOFF_MIN);
                    continue;
                }
                None // the connection's driver has set it
            }
            Ok(Err(error)) => Some(error),
            Err(_) => Some(format!("not connected within {:?}", environment.options.dial_timeout)),
        };
        if let Some(error) = error {
            let is_news = endpoint.error.borrow().as_ref() != Some(&error);
            if is_news {
                environment
                    .inbox
                    .add_notice(format!("cannot connect to {}: {error}", endpoint.name));
            }
            *endpoint.error.borrow_mut() = Some(error);
        }
        sleep(endpoint.next_pause(&environment)).await;
    }
}

/// Offer a connection for new calls until it is retired.
async fn serve_until_retired(
    environment: &Rc<Environment>,
    endpoint: &Rc<Endpoint>,
    driver: Driver,
    on_connected: &impl Fn(),
) {
    let connection = driver.connection.clone();
    let weak = Rc::downgrade(endpoint);
    *driver.on_retired.borrow_mut() = Some(Box::new(move || {
        if let Some(endpoint) = weak.upgrade() {
            endpoint.retired.notify_one();
        }
    }));
    let (inbox, disconnected) = (environment.inbox.clone(), endpoint.clone());
    // A task of its own: its calls go on beside the next connection, or after a close.
    spawn_local(async move {
        let connection = driver.connection.clone();
        let Exit { reason, has_too_many_pings } = caught(driver).await.unwrap_or_else(|reason| {
            connection.give_up();
            disconnected.retired.notify_one();
            Exit { reason, has_too_many_pings: false }
        });
        if has_too_many_pings {
            disconnected
                .keepalive_slower
                .set(disconnected.keepalive_slower.get() * KEEPALIVE_SLOWER);
        }
        inbox.add_notice(format!("disconnected from {}: {reason}", disconnected.name));
        *disconnected.error.borrow_mut() = Some(reason);
    });
    *endpoint.error.borrow_mut() = None;
    *endpoint.connection.borrow_mut() = Some(connection);
    on_connected();
    endpoint.retired.notified().await;
    *endpoint.connection.borrow_mut() = None;
}

async fn dial(environment: &Rc<Environment>, endpoint: &Endpoint) -> Result<Driver, String> {
    let address = &endpoint.address;
    let (socket, scheme) = match (&address.target, address.is_tls) {
        (DialTarget::Tcp { host, port }, is_tls) => {
            let socket = connect(host, *port).await?;
            (secured(environment, address, socket, is_tls).await?, scheme_of(is_tls))
        }
        (DialTarget::Unix { path }, is_tls) => {
            let socket = UnixStream::connect(path).await.map_err(|error| error.to_string())?;
            (secured(environment, address, socket, is_tls).await?, scheme_of(is_tls))
        }
    };
    let names = Names { endpoint: &endpoint.name, scheme, authority: &address.authority };
    open(environment, names, socket, endpoint.keepalive_slower.get()).await
}

fn scheme_of(is_tls: bool) -> &'static str {
    if is_tls {
        "https"
    } else {
        "http"
    }
}

async fn connect(host: &str, port: u16) -> Result<TcpStream, String> {
    let found = lookup_host((host, port)).await.map_err(|error| error.to_string())?;
    let mut last_error = "the name has no address".to_owned();
    for address in found {
        match TcpStream::connect(address).await {
            Ok(socket) => {
                tune(&socket);
                return Ok(socket);
            }
            Err(error) => last_error = error.to_string(),
        }
    }
    Err(last_error)
}

/// Set socket options; if that fails the connection is slower, or a dead server is detected later.
fn tune(socket: &TcpStream) {
    let _ = socket.set_nodelay(true);
    let _ = set_socket_keepalive(socket, true);
    let _ = set_tcp_keepidle(socket, TCP_KEEPALIVE);
    let _ = set_tcp_keepintvl(socket, TCP_KEEPALIVE);
}

async fn secured<T: Carrier + 'static>(
    environment: &Environment,
    address: &Address,
    socket: T,
    is_tls: bool,
) -> Result<Box<dyn Carrier>, String> {
    if !is_tls {
        return Ok(Box::new(socket));
    }
    let config = environment.tls.config()?;
    let name = environment.tls.settings.server_name.as_ref().unwrap_or(&address.server_name);
    let server_name = ServerName::try_from(name.clone())
        .map_err(|error| format!("server name {name:?}: {error}"))?;
    let connector = TlsConnector::from(config);
    let secured =
        connector.connect(server_name, socket).await.map_err(|error| format!("TLS: {error}"))?;
    Ok(Box::new(secured))
}
