//! The loop thread: binds, accepts, dispatches outboxes, enforces deadlines, stops.

use std::cell::Cell;
use std::io;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::rc::Rc;
use std::sync::{mpsc, Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{unbounded_channel, UnboundedReceiver, UnboundedSender};
use tokio::task::{spawn_local, yield_now, JoinHandle, LocalSet};
use tokio::time::{sleep, sleep_until, timeout};

use crate::grpc::routes::Routes;
use crate::server::call_table::{CallTable, Options};
use crate::server::connection::Arrived;
use crate::server::connections::Connections;
use crate::server::descriptors::Shortage;
use crate::server::inbox::Inbox;
use crate::server::listener::{bind, ListenAddress, Listening};
use crate::server::outbox::Outbox;
use crate::server::peer_table::NO_SLOT;
use crate::server::port::{Port, PortLimits, Serves, Web};
use crate::server::send_backlog::SendBacklogs;
use crate::server::{connection, descriptors};
use crate::tasks::{panic_text, spawn_vital};
use crate::tls::server::{Settings, Tls};

const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
const SHED_AT_ONCE: usize = 64; // connections
const DRAIN_POLL: Duration = Duration::from_millis(2);
const GOAWAY_TIMEOUT: Duration = Duration::from_secs(1); // how long a drain waits for them
const LATEST: Duration = Duration::from_secs(1 << 30);

/// An address to listen at, and its protocols: plaintext, TLS or both.
#[derive(Clone, Debug)]
pub struct Address {
    pub bound_to: ListenAddress,
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

struct Listener {
    listening: Listening,
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
        routes: Routes,
        options: Options,
        tls: Vec<Settings>,
        inbox: Arc<Inbox>,
        backlogs: Arc<SendBacklogs>,
    ) -> Result<Self, BindError> {
        let (commands, received) = unbounded_channel();
        let (started, starting) = mpsc::channel();
        let over = Arc::new(Exit::default());
        let thread_over = over.clone();
        let run = move || {
            let failing = inbox.clone();
            let result = catch_unwind(AssertUnwindSafe(|| {
                let mut loaded = Vec::new();
                for (index, settings) in tls.into_iter().enumerate() {
                    match Tls::new(settings) {
                        Ok(tls) => loaded.push(Rc::new(tls)),
                        Err(text) => {
                            let address = addresses.iter().position(|each| each.tls == Some(index));
                            let (address, error) = (address.unwrap_or(0), io::Error::other(text));
                            let _ = started.send(Err(BindError { address, error }));
                            return Ok(());
                        }
                    }
                }
                let table = CallTable::new(options, routes, inbox, backlogs);
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

    /// Return whether the thread has ended.
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
        .on_thread_park(move || inbox.before_park())
        .build()?;
    let local = LocalSet::new();
    local.block_on(&runtime, async move {
        let mut listeners = Vec::new();
        let mut ports = Vec::new();
        for (index, address) in addresses.iter().enumerate() {
            match bind(&address.bound_to).await {
                Ok((listening, port)) => {
                    ports.push(port);
                    let port = Rc::new(Port {
                        serves: address.serves,
                        is_plain: address.is_plain,
                        tls: address.tls.and_then(|index| tls.get(index)).cloned(),
                        limits: address.limits.clone(),
                        web: address.web.clone(),
                        connections: Cell::new(0),
                    });
                    listeners.push(Listener { listening, port });
                }
                Err(error) => {
                    let _ = started.send(Err(BindError { address: index, error }));
                    return;
                }
            }
        }
        let table = Rc::new(table);
        let failing = || {
            let inbox = table.inbox.clone();
            move |text| inbox.fail(text)
        };
        let accepting: Vec<JoinHandle<()>> = listeners
            .into_iter()
            .map(|listener| {
                spawn_vital("accepts connections", failing(), accept(table.clone(), listener))
            })
            .collect();
        let timing = spawn_vital("keeps deadlines", failing(), keep_deadlines(table.clone()));
        let giving = give_descriptors_back(table.clone());
        let giving = spawn_vital("gives descriptors back", failing(), giving);
        if started.send(Ok(ports)).is_ok() {
            run_commands(&table, commands, accepting).await;
        }
        timing.abort();
        giving.abort();
    });
    // Tasks of connections that did not end in time are dropped with the set, and close.
    Ok(())
}

async fn accept(table: Rc<CallTable>, listener: Listener) {
    let Listener { listening, port } = listener;
    let mut is_failing = false;
    loop {
        match listening.accept().await {
            Ok((carrier, peer)) => {
                is_failing = false;
                let is_short = descriptors::are_short_with(&carrier);
                if may_have_another(&table, &port, &peer) {
                    let id = table.next_id(NO_SLOT);
                    port.connections.set(port.connections.get() + 1);
                    let arrived = Arrived { carrier, port: port.clone(), peer };
                    spawn_local(connection::serve(table.clone(), id, arrived));
                }
                if is_short {
                    wait_for_descriptors(&table).await;
                }
            }
            Err(error) => {
                if !std::mem::replace(&mut is_failing, true) {
                    table.inbox.add_notice(format!("cannot accept connections: {error}"));
                }
                sleep(ACCEPT_PAUSE).await;
                wait_for_descriptors(&table).await;
            }
        }
    }
}

/// Return whether the limits of connections allow another one.
fn may_have_another(table: &CallTable, port: &Port, peer: &str) -> bool {
    let (all, own) = (table.options.connections_max, port.limits.connections_max);
    if table.connections.open.borrow().len() < all && port.connections.get() < own {
        return true;
    }
    table.inbox.add_notice(format!("connection refused: limit {}: {peer}", all.min(own)));
    false
}

/// Return when descriptors are left: connections that have sent nothing are closed, the oldest first, then
/// those that are idle; where there are none, the end of others is waited for.
async fn wait_for_descriptors(table: &CallTable) {
    let mut is_logged = false;
    while descriptors::are_short() {
        yield_now().await; // new connections are silent once their tasks have begun
        if close_some(&table.connections, &table.inbox) {
            yield_now().await; // its task closes it
            continue;
        }
        descriptors::announce_shortage();
        if !std::mem::replace(&mut is_logged, true) {
            let (limit, reserve) = (descriptors::limit().unwrap_or(0), descriptors::RESERVE);
            table.inbox.add_notice(format!(
                "no connections are accepted while fewer than {reserve} descriptors are left, limit {limit}"
            ));
        }
        sleep(ACCEPT_PAUSE).await;
    }
}

/// Close connections that are of no use to anybody now; false if there are none.
fn close_some(connections: &Connections, inbox: &Inbox) -> bool {
    connections.close_oldest_silent(inbox) || connections.close_idle(inbox)
}

/// Close silent and idle connections when another server of the process runs short of descriptors.
async fn give_descriptors_back(table: Rc<CallTable>) {
    let shortage = Shortage::subscribe();
    loop {
        shortage.announced().await;
        for _ in 0..SHED_AT_ONCE {
            if !table.connections.close_oldest_silent(&table.inbox) {
                table.connections.close_idle(&table.inbox);
                break;
            }
        }
    }
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
    let _ = timeout(grace, table.connections.all_closed()).await; // then the others are closed
}

/// Close the listeners and send GOAWAY to every client.
async fn close_listeners(table: &CallTable, accepting: &mut Vec<JoinHandle<()>>) {
    for task in accepting.drain(..) {
        task.abort();
        let _ = task.await; // it was cancelled
    }
    table.is_draining.set(true);
    for conn in table.connections.open.borrow().values() {
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
        let is_settled =
            since.elapsed() >= GOAWAY_TIMEOUT || !table.connections.may_send_requests();
        table.inbox.set_drained(is_settled && table.calls_in_flight() == 0);
        if let Ok(command) = timeout(DRAIN_POLL, commands.recv()).await {
            return command;
        }
    }
}
