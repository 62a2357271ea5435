//! The loop thread: binds, accepts, hands outboxes over, keeps deadlines, stops.

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

use crate::callers::NO_SLOT;
use crate::connection::{self, Arrived, Port, Serves};
use crate::inbox::Inbox;
use crate::outbox::Outbox;
use crate::switchboard::{Lags, Options, Route, Switchboard};
use crate::tls::{Settings, Tls};
use crate::wire::Carrier;

const LISTEN_BACKLOG: u32 = 4096;
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
const TCP_KEEPALIVE: Duration = Duration::from_secs(15); // as Go's listeners have it
const DRAIN_LOOK: Duration = Duration::from_millis(2);
const DISMISSED_WITHIN: Duration = Duration::from_secs(1); // who does not answer is not waited for
const LATEST: Duration = Duration::from_secs(1 << 30);

#[derive(Clone, Debug)]
pub enum Place {
    Tcp { host: String, port: u16, is_shared: bool }, // shared: with SO_REUSEPORT
    Unix { path: String },
}

/// A place to listen at, and what may be spoken there: plaintext, TLS or both.
#[derive(Clone, Debug)]
pub struct Address {
    pub place: Place,
    pub is_plain: bool,
    pub is_tls: bool,
    pub serves: Serves,
}

pub enum Command {
    Flush(Outbox),
    Drain,
    Stop { grace: Duration },
}

/// Why an address cannot be listened on.
pub struct BindError {
    pub address: usize, // its place in the list
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
    over: Arc<Over>,
}

#[derive(Default)]
struct Over {
    is_over: Mutex<bool>,
    changed: Condvar,
}

impl Over {
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
        tls: Option<Settings>,
        inbox: Arc<Inbox>,
        lags: Arc<Lags>,
    ) -> Result<Self, BindError> {
        let (commands, orders) = unbounded_channel();
        let (started, starting) = mpsc::channel();
        let over = Arc::new(Over::default());
        let thread_over = over.clone();
        let run = move || {
            let failing = inbox.clone();
            let result = catch_unwind(AssertUnwindSafe(|| {
                let tls = match tls.map(Tls::new).transpose() {
                    Ok(tls) => tls.map(Rc::new),
                    Err(text) => {
                        let address = addresses.iter().position(|each| each.is_tls);
                        let error = io::Error::other(text);
                        let _ =
                            started.send(Err(BindError { address: address.unwrap_or(0), error }));
                        return Ok(());
                    }
                };
                let board = Switchboard::new(options, routes, inbox, lags);
                serve(&addresses, tls, board, orders, &started)
            }));
            match result {
                Ok(Ok(())) => {}
                Ok(Err(error)) => failing.fail(error.to_string()),
                Err(panic) => failing.fail(panic_text(&*panic)),
            }
            thread_over.set();
        };
        let whole = |error| BindError { address: 0, error };
        thread::Builder::new().name("transport".into()).spawn(run).map_err(whole)?;
        match starting.recv() {
            Ok(Ok(ports)) => Ok(Loop { commands, ports, over }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(whole(io::Error::other("the loop did not start"))),
        }
    }

    /// Wait until the thread is over; false when it is not in time.
    pub fn wait_over(&self, time: Duration) -> bool {
        let is_over = self.over.is_over.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.over.changed.wait_timeout_while(is_over, time, |is_over| !*is_over);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("panic: {}", text.unwrap_or("of an unknown kind"))
}

fn serve(
    addresses: &[Address],
    tls: Option<Rc<Tls>>,
    board: Switchboard,
    orders: UnboundedReceiver<Command>,
    started: &mpsc::Sender<Result<Vec<u16>, BindError>>,
) -> io::Result<()> {
    let inbox = board.inbox.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .on_thread_park(move || inbox.ring_if_owed())
        .build()?;
    let local = LocalSet::new();
    local.block_on(&runtime, async move {
        let mut listeners = Vec::new();
        let mut ports = Vec::new();
        for (place, address) in addresses.iter().enumerate() {
            match bind(&address.place).await {
                Ok((socket, port)) => {
                    let tls = tls.clone().filter(|_| address.is_tls);
                    let Address { is_plain, serves, .. } = *address;
                    listeners
                        .push(Listener { socket, port: Rc::new(Port { serves, is_plain, tls }) });
                    ports.push(port);
                }
                Err(error) => {
                    let _ = started.send(Err(BindError { address: place, error }));
                    return;
                }
            }
        }
        let board = Rc::new(board);
        let accepting: Vec<JoinHandle<()>> = listeners
            .into_iter()
            .map(|listener| spawn_local(accept(board.clone(), listener)))
            .collect();
        let timing = spawn_local(keep_deadlines(board.clone()));
        if started.send(Ok(ports)).is_ok() {
            obey(&board, orders, accepting).await;
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

async fn accept(board: Rc<Switchboard>, listener: Listener) {
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
                if board.connections.borrow().len() >= board.options.connections_max {
                    let limit = board.options.connections_max;
                    board.inbox.add_notice(format!("connection refused: limit {limit}: {peer}"));
                    continue;
                }
                let id = board.next_id(NO_SLOT);
                let arrived = Arrived { carrier, port: listener.port.clone(), peer };
                spawn_local(connection::serve(board.clone(), id, arrived));
            }
            Err(error) => {
                if !std::mem::replace(&mut is_failing, true) {
                    board.inbox.add_notice(format!("cannot accept connections: {error}"));
                }
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Set what is wished for on a connection; where it cannot be, it is only slower, or a client that is
/// no more is noticed later.
fn tune(socket: &TcpStream) {
    let _ = socket.set_nodelay(true);
    let _ = set_socket_keepalive(socket, true);
    let _ = set_tcp_keepidle(socket, TCP_KEEPALIVE);
    let _ = set_tcp_keepintvl(socket, TCP_KEEPALIVE);
}

/// End what is past its deadline.
async fn keep_deadlines(board: Rc<Switchboard>) {
    loop {
        let now = Instant::now();
        let next = loop {
            let first = board.deadlines.borrow().first().copied();
            match first {
                Some((deadline, id)) if deadline <= now => {
                    board.deadlines.borrow_mut().pop_first();
                    board.expire(id);
                }
                Some((deadline, _)) => break deadline,
                None => break now + LATEST,
            }
        };
        tokio::select! {
            () = sleep_until(next.into()) => {}
            () = board.deadlines_changed.notified() => {}
        }
    }
}

async fn obey(
    board: &Rc<Switchboard>,
    mut orders: UnboundedReceiver<Command>,
    mut accepting: Vec<JoinHandle<()>>,
) {
    let mut draining_since = None;
    let grace = loop {
        let order = match draining_since {
            None => orders.recv().await,
            Some(since) => order_while_draining(board, &mut orders, since).await,
        };
        match order {
            Some(Command::Flush(outbox)) => board.dispatch(outbox),
            Some(Command::Drain) => {
                dismiss(board, &mut accepting).await;
                draining_since.get_or_insert_with(Instant::now);
            }
            Some(Command::Stop { grace }) => break grace,
            None => break Duration::ZERO, // the transport was dropped
        }
    };
    board.stopping.set(true);
    board.refuse_open();
    dismiss(board, &mut accepting).await;
    let drained = async {
        while !board.connections.borrow().is_empty() {
            board.connection_closed.notified().await;
        }
    };
    let _ = timeout(grace, drained).await; // whoever is not done by then is cut off
}

/// Close the listeners and tell every client to go once its calls are answered.
async fn dismiss(board: &Switchboard, accepting: &mut Vec<JoinHandle<()>>) {
    for task in accepting.drain(..) {
        task.abort();
        let _ = task.await; // it was cancelled
    }
    for conn in board.connections.borrow().values() {
        conn.stopping.set(true);
        conn.wake();
        conn.stopped.notify_one();
    }
}

/// Wait for an order, and meanwhile tell the driver's thread whether anything is in flight.
async fn order_while_draining(
    board: &Switchboard,
    orders: &mut UnboundedReceiver<Command>,
    since: Instant,
) -> Option<Command> {
    loop {
        let is_settled = since.elapsed() >= DISMISSED_WITHIN || !board.may_bring_more();
        board.inbox.set_drained(is_settled && board.calls_in_flight() == 0);
        if let Ok(order) = timeout(DRAIN_LOOK, orders.recv()).await {
            return order;
        }
    }
}
