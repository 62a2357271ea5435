//! The loop thread: binds, accepts, dispatches outboxes, enforces deadlines, stops.

use std::cell::Cell;
use std::collections::HashMap;
use std::io;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::rc::Rc;
use std::sync::{mpsc, Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepidle, set_tcp_keepintvl};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener};
use tokio::sync::mpsc::{unbounded_channel, UnboundedReceiver, UnboundedSender};
use tokio::task::{spawn_local, JoinHandle, LocalSet};
use tokio::time::{sleep, sleep_until, timeout};

use crate::call_table::{CallTable, Lags, Options, Route};
use crate::connection::{self, Arrived};
use crate::inbox::Inbox;
use crate::outbox::Outbox;
use crate::peer_table::NO_SLOT;
use crate::port::{Port, PortLimits, Serves, Web};
use crate::tls::{Settings, Tls};
use crate::wire::Carrier;

const LISTEN_BACKLOG: u32 = 4096;
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
const TCP_KEEPALIVE: Duration = Duration::from_secs(15); // as Go's listeners have it
const DRAIN_POLL: Duration = Duration::from_millis(2);
const GOAWAY_TIMEOUT: Duration = Duration::from_secs(1); // how long a drain waits for them
const LATEST: Duration = Duration::from_secs(1 << 30);

#[derive(Clone, Debug)]
pub enum Place {
    Tcp { host: String, port: u16, is_shared: bool }, // shared: with SO_REUSEPORT
    Unix { path: String },
}

/// An address to listen at, and its protocols: plaintext, TLS or both.
#[derive(Clone, Debug)]
pub struct Address {
    pub place: Place,
    pub is_plain: bool,
    pub tls: Option<usize>, // index of the settings
    pub serves: Serves,
    pub limits: PortLimits,
    pub web: Option<Web>,
}

pub enum Command {
    Flush(Box<Outbox>),
    Drain,
    Stop { grace: Duration },
}

/// The error of an address that cannot be bound.
pub struct BindError {
    pub address: usize, // its index in the list
    pub error: io::Error,
}

enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, String),
}

struct Listener {
    socket: Socket,
    port: Rc<Port>,
}

/// The running thread.
pub struct Loop {
    pub commands: UnboundedSender<Command>,
    /// Ports in the order of the addresses; 0 for unix sockets.
    pub ports: Vec<u16>,
    over: Arc<Exit>,
}

#[derive(Default)]
struct Exit {
    is_over: Mutex<bool>,
    changed: Condvar,
}

impl Exit {
    fn set(&self) {
        *self.is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }
}

impl Loop {
    /// Bind every address and serve in a thread of its own.
    pub fn start(
        addresses: Vec<Address>,
        routes: HashMap<String, Route>,
        options: Options,
        tls: Vec<Settings>,
        inbox: Arc<Inbox>,
        lags: Arc<Lags>,
    ) -> Result<Self, BindError> {
        let (commands, received) = unbounded_channel();
        let (started, starting) = mpsc::channel();
        let over = Arc::new(Exit::default());
        let thread_over = over.clone();
        let run = move || {
            let failing = inbox.clone();
            let result = catch_unwind(AssertUnwindSafe(|| {
                let mut loaded = Vec::new();
                for (place, settings) in tls.into_iter().enumerate() {
                    match Tls::new(settings) {
                        Ok(tls) => loaded.push(Rc::new(tls)),
                        Err(text) => {
                            let address = addresses.iter().position(|each| each.tls == Some(place));
                            let (address, error) = (address.unwrap_or(0), io::Error::other(text));
                            let _ = started.send(Err(BindError { address, error }));
                            return Ok(());
                        }
                    }
                }
                let table = CallTable::new(options, routes, inbox, lags);
                serve(&addresses, &loaded, table, received, &started)
            }));
            match result {
                Ok(Ok(())) => {}
                Ok(Err(error)) => failing.fail(error.to_string()),
                Err(panic) => failing.fail(panic_text(&*panic)),
            }
            thread_over.set();
            failing.wake();
        };
        let whole = |error| BindError { address: 0, error };
        thread::Builder::new().name("transport".into()).spawn(run).map_err(whole)?;
        match starting.recv() {
            Ok(Ok(ports)) => Ok(Loop { commands, ports, over }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(whole(io::Error::other("the loop did not start"))),
        }
    }

    /// Tell whether the thread has ended.
    pub fn is_over(&self) -> bool {
        *self.over.is_over.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wait for the end of the thread; false on a timeout.
    pub fn wait_exit(&self, time: Duration) -> bool {
        let is_over = self.over.is_over.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.over.changed.wait_timeout_while(is_over, time, |is_over| !*is_over);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("panic: {}", text.unwrap_or("of an unknown kind"))
}

fn serve(
    addresses: &[Address],
    tls: &[Rc<Tls>],
    table: CallTable,
    commands: UnboundedReceiver<Command>,
    started: &mpsc::Sender<Result<Vec<u16>, BindError>>,
) -> io::Result<()> {
    let inbox = table.inbox.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .on_thread_park(move || inbox.notify_if_due())
        .build()?;
    let local = LocalSet::new();
    local.block_on(&runtime, async move {
        let mut listeners = Vec::new();
        let mut ports = Vec::new();
        for (place, address) in addresses.iter().enumerate() {
            match bind(&address.place).await {
                Ok((socket, port)) => {
                    ports.push(port);
                    let port = Rc::new(Port {
                        serves: address.serves,
                        is_plain: address.is_plain,
                        tls: address.tls.and_then(|place| tls.get(place)).cloned(),
                        limits: address.limits.clone(),
                        web: address.web.clone(),
                        connections: Cell::new(0),
                    });
                    listeners.push(Listener { socket, port });
                }
                Err(error) => {
                    let _ = started.send(Err(BindError { address: place, error }));
                    return;
                }
            }
        }
        let table = Rc::new(table);
        let accepting: Vec<JoinHandle<()>> = listeners
            .into_iter()
            .map(|listener| spawn_local(accept(table.clone(), listener)))
            .collect();
        let timing = spawn_local(keep_deadlines(table.clone()));
        if started.send(Ok(ports)).is_ok() {
            run_commands(&table, commands, accepting).await;
        }
        timing.abort();
    });
    // Tasks of connections that did not end in time are dropped with the set, and close.
    Ok(())
}

async fn bind(place: &Place) -> io::Result<(Socket, u16)> {
    match place {
        Place::Unix { path } => {
            let listener = UnixListener::bind(path)?;
            Ok((Socket::Unix(listener, path.clone()), 0))
        }
        Place::Tcp { host, port, is_shared } => {
            let mut found = tokio::net::lookup_host((host.as_str(), *port)).await?;
            let address =
                found.next().ok_or_else(|| io::Error::other("the name has no address"))?;
            let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
            socket.set_reuseaddr(true)?;
            #[cfg(unix)]
            socket.set_reuseport(*is_shared)?;
            socket.bind(address)?;
            let listener = socket.listen(LISTEN_BACKLOG)?;
            let port = listener.local_addr()?.port();
            Ok((Socket::Tcp(listener), port))
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Socket::Unix(_, path) = self {
            let _ = std::fs::remove_file(path); // the next server takes a stale socket over
        }
    }
}

async fn accept(table: Rc<CallTable>, listener: Listener) {
    let mut is_failing = false;
    loop {
        let accepted = match &listener.socket {
            Socket::Tcp(listener) => listener.accept().await.map(|(socket, peer)| {
                tune(&socket);
                (Carrier::Tcp(socket), peer.to_string())
            }),
            Socket::Unix(listener, path) => {
                listener.accept().await.map(|(socket, _)| (Carrier::Unix(socket), path.clone()))
            }
        };
        match accepted {
            Ok((carrier, peer)) => {
                is_failing = false;
                let port = listener.port.clone();
                let limit = table.options.connections_max.min(port.limits.connections_max);
                if table.connections.borrow().len() >= table.options.connections_max
                    || port.connections.get() >= port.limits.connections_max
                {
                    table.inbox.add_notice(format!("connection refused: limit {limit}: {peer}"));
                    continue;
                }
                let id = table.next_id(NO_SLOT);
                port.connections.set(port.connections.get() + 1);
                let arrived = Arrived { carrier, port, peer };
                spawn_local(connection::serve(table.clone(), id, arrived));
            }
            Err(error) => {
                if !std::mem::replace(&mut is_failing, true) {
                    table.inbox.add_notice(format!("cannot accept connections: {error}"));
                }
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Set socket options; if that fails the connection is slower, or a dead client is detected later.
fn tune(socket: &TcpStream) {
    let _ = socket.set_nodelay(true);
    let _ = set_socket_keepalive(socket, true);
    let _ = set_tcp_keepidle(socket, TCP_KEEPALIVE);
    let _ = set_tcp_keepintvl(socket, TCP_KEEPALIVE);
}

/// End the calls and streams that are past their deadline.
async fn keep_deadlines(table: Rc<CallTable>) {
    loop {
        let now = Instant::now();
        let next = loop {
            let first = table.deadlines.borrow().first().copied();
            match first {
                Some((deadline, id)) if deadline <= now => {
                    table.deadlines.borrow_mut().pop_first();
                    table.expire(id);
                }
                Some((deadline, _)) => break deadline,
                None => break now + LATEST,
            }
        };
        tokio::select! {
            () = sleep_until(next.into()) => {}
            () = table.deadlines_changed.notified() => {}
        }
    }
}

async fn run_commands(
    table: &Rc<CallTable>,
    mut commands: UnboundedReceiver<Command>,
    mut accepting: Vec<JoinHandle<()>>,
) {
    let mut draining_since = None;
    let grace = loop {
        let order = match draining_since {
            None => commands.recv().await,
            Some(since) => command_while_draining(table, &mut commands, since).await,
        };
        match order {
            Some(Command::Flush(outbox)) => table.dispatch(*outbox).await,
            Some(Command::Drain) => {
                close_listeners(table, &mut accepting).await;
                draining_since.get_or_insert_with(Instant::now);
            }
            Some(Command::Stop { grace }) => break grace,
            None => break Duration::ZERO, // the transport was dropped
        }
    };
    table.stopping.set(true);
    table.refuse_open();
    close_listeners(table, &mut accepting).await;
    let _ = timeout(grace, table.all_closed()).await; // then the others are closed
}

/// Close the listeners and send GOAWAY to every client.
async fn close_listeners(table: &CallTable, accepting: &mut Vec<JoinHandle<()>>) {
    for task in accepting.drain(..) {
        task.abort();
        let _ = task.await; // it was cancelled
    }
    table.is_draining.set(true);
    for conn in table.connections.borrow().values() {
        conn.stop();
    }
}

/// Wait for a command, and meanwhile note whether anything is in flight.
async fn command_while_draining(
    table: &CallTable,
    commands: &mut UnboundedReceiver<Command>,
    since: Instant,
) -> Option<Command> {
    loop {
        let is_settled = since.elapsed() >= GOAWAY_TIMEOUT || !table.may_send_requests();
        table.inbox.set_drained(is_settled && table.calls_in_flight() == 0);
        if let Ok(command) = timeout(DRAIN_POLL, commands.recv()).await {
            return command;
        }
    }
}
