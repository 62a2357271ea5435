//! The interface to Python of a server of gRPC and HTTP.
//!
//! Each call builds or reads plain lists of tuples at once. Nothing here waits while it
//! holds Python's lock.

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use crate::grpc::routes::{Kind, Route, Routes};
use crate::grpc::Status;
use crate::http::messages::HttpResponse;
use crate::id_map::IdMap;
use crate::kernels::fan_out::join;
use crate::python::options::{duration, limit, option, read_limits};
use crate::server::call_table::Options;
use crate::server::event_loop::{Address, Command, Loop};
use crate::server::inbox::{Arrivals, Inbox, Limits, Metadata};
use crate::server::listener::ListenAddress;
use crate::server::outbox::{Delivery, End, Outbox, Piece};
use crate::server::port::{Pings, PortLimits, Serves};
use crate::server::send_backlog::{SendBacklog, SendBacklogs};
use crate::tls::server::{Pair, Settings};
use crate::tls::source::Source;
use crate::tls::ClientAuth;
use crate::wakeup::Waited;

const STOP_SLACK: Duration = Duration::from_secs(5);
const BLOCK_BYTES_MAX: usize = 1 << 20; // of messages that are joined
const LARGE_TAIL_BYTES: usize = 64 << 10; // a tail that is not copied into them

/// A server: see `kvstore.transport.base.Transport`.
#[pyclass(frozen, module = "kvstack.component._native")]
pub struct Server {
    inbox: Arc<Inbox>,
    backlogs: Arc<SendBacklogs>,
    backlogged: Mutex<IdMap<u64, Arc<SendBacklog>>>,
    runner: Loop,
    send_bytes_max: usize,
}

/// (id, HTTP status, headers, body or None when deliveries bring it).
type ResponseColumn<'py> = (u64, u16, Vec<(String, String)>, Option<Bound<'py, PyBytes>>);

fn read_options(options: &Bound<'_, PyDict>) -> PyResult<(Options, PortLimits, Limits)> {
    let interval_s: f64 = option(options, "keepalive_interval_s")?;
    let keepalive_timeout_s: f64 = option(options, "keepalive_timeout_s")?;
    let pings = interval_s > 0.0 && keepalive_timeout_s > 0.0;
    let limits = read_limits(options)?;
    let port = PortLimits {
        whole_body_bytes_max: option(options, "http_body_bytes_max")?,
        header_bytes_max: option(options, "metadata_bytes_max")?,
        backlog_bytes_max: option(options, "stream_backlog_bytes_max")?,
        streams_max: option(options, "concurrent_streams_max")?,
        connections_max: usize::MAX,
        handshake_timeout: duration(option(options, "handshake_timeout_s")?),
        header_timeout: duration(option(options, "header_timeout_s")?),
        write_stall: limit(option(options, "write_stall_timeout_s")?),
        ping: pings.then(|| Pings {
            interval: duration(interval_s),
            timeout: duration(keepalive_timeout_s),
        }),
    };
    let options = Options {
        request_bytes_max: option(options, "request_bytes_max")?,
        connection_backlog_bytes_max: option(options, "connection_backlog_bytes_max")?,
        assembling_bytes_max: option(options, "assembling_bytes_max")?,
        connections_max: option(options, "connections_max")?,
        keepalive_min: duration(option(options, "keepalive_min_s")?),
        send_bytes_max: option(options, "send_bytes_max")?,
    };
    Ok((options, port, limits))
}

fn read_tls(options: &Bound<'_, PyDict>) -> PyResult<Settings> {
    let path = |name: &str| -> PyResult<Option<PathBuf>> {
        let text: String = option(options, name)?;
        Ok((!text.is_empty()).then(|| text.into()))
    };
    let file = |name: &str| Ok::<_, PyErr>(Source::File(path(name)?.unwrap_or_default()));
    let trusted = path("trusted_ca_file")?;
    Ok(Settings {
        pair: Pair { cert: file("cert_file")?, key: file("key_file")?, names: Vec::new() },
        others: Vec::new(),
        client_auth: match trusted {
            Some(_) => ClientAuth::RequireAndVerify,
            None => ClientAuth::None,
        },
        authorities: trusted.map(|path| (String::new(), Source::File(path))).into_iter().collect(),
        crl: path("crl_file")?.map(Source::File),
        http2: true,
        allowed_names: option(options, "allowed_names")?,
        allowed_hosts: option(options, "allowed_hosts")?,
        min_version: option(options, "min_version")?,
        max_version: option(options, "max_version")?,
        cipher_suites: option(options, "cipher_suites")?,
    })
}

#[pymethods]
impl Server {
    /// Bind and serve.
    ///
    /// addresses: (host, port, plain, TLS, what), for a unix socket (path, None, plain, TLS, what);
    /// what is served there: 0 all, 1 gRPC, 2 HTTP; routes: (path, method id, kind), kind 0 unary,
    /// 1 server stream, 2 bidi, 3 server stream without an end; options: all of them, by name.
    /// OSError carries errno, text and, as its file name, the index of the bad address.
    #[new]
    fn new(
        py: Python<'_>,
        addresses: Vec<(String, Option<u16>, bool, bool, u32)>,
        routes: Vec<(String, u32, u32)>,
        options: &Bound<'_, PyDict>,
        tls: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let tls: Vec<Settings> = tls.map(read_tls).transpose()?.into_iter().collect();
        let is_shared: bool = option(options, "reuse_port")?;
        let (options, port_limits, limits) = read_options(options)?;
        let addresses = addresses
            .into_iter()
            .map(|(name, port, is_plain, is_tls, what)| {
                let serves = match what {
                    0 => Serves::All,
                    1 => Serves::Grpc,
                    2 => Serves::Http,
                    other => {
                        let text = format!("{other} is nothing to serve");
                        return Err(PyValueError::new_err(text));
                    }
                };
                let bound_to = match port {
                    Some(port) => ListenAddress::Tcp { host: name, port, is_shared },
                    None => ListenAddress::Unix { path: name },
                };
                let tls = is_tls.then_some(0);
                Ok(Address {
                    bound_to,
                    is_plain,
                    tls,
                    serves,
                    limits: port_limits.clone(),
                    web: None,
                })
            })
            .collect::<PyResult<Vec<_>>>()?;
        let mut routes_by_path = Vec::with_capacity(routes.len());
        for (path, method, kind) in routes {
            let ends_by_itself = kind != 3;
            let kind = match kind {
                0 => Kind::Unary,
                1 | 3 => Kind::ServerStream,
                2 => Kind::Bidi,
                other => {
                    return Err(PyValueError::new_err(format!("{other} is no kind of method")))
                }
            };
            routes_by_path.push((path, Route { method, kind, ends_by_itself }));
        }
        let routes: Routes = routes_by_path.into_iter().collect();
        let inbox = Arc::new(Inbox::new(limits)?);
        let send_bytes_max = options.send_bytes_max;
        let backlogs = Arc::new(SendBacklogs::default());
        let (loop_inbox, loop_backlogs) = (inbox.clone(), backlogs.clone());
        let runner = py
            .detach(|| Loop::start(addresses, routes, options, tls, loop_inbox, loop_backlogs))
            .map_err(|bad| {
                let text = bad.error.to_string();
                PyOSError::new_err((bad.error.raw_os_error().unwrap_or(0), text, bad.address))
            })?;
        Ok(Server { inbox, backlogs, backlogged: Mutex::default(), runner, send_bytes_max })
    }

    /// The ports really bound, in the order of the addresses; 0 for unix sockets.
    #[getter]
    fn ports(&self) -> Vec<u16> {
        self.runner.ports.clone()
    }

    /// Wait for arrivals; return the columns of an Inbox:
    /// (calls, opened, frames, half closed, gone, backlog, metadata, requests, notices).
    fn poll<'py>(&self, py: Python<'py>, timeout_s: f64) -> PyResult<Bound<'py, PyTuple>> {
        if !self.inbox.is_pending() && timeout_s > 0.0 {
            self.wait(py, duration(timeout_s))?;
        }
        if let Some(reason) = self.inbox.failure() {
            return Err(PyRuntimeError::new_err(reason));
        }
        let arrivals = self.inbox.take();
        self.columns(py, arrivals)
    }

    /// For a caller that sleeps until other descriptors are readable, too: a descriptor that becomes
    /// readable on arrivals, between `arm` and `disarm`.
    fn descriptor(&self) -> PyResult<i32> {
        Ok(self.inbox.descriptor()?)
    }

    /// Begin such a sleep; false: a poll would return something now.
    fn arm(&self) -> bool {
        self.inbox.arm()
    }

    /// End it.
    fn disarm(&self) {
        self.inbox.disarm();
    }

    /// Send the columns of an Outbox.
    fn flush(
        &self,
        replies: &Bound<'_, PyList>,
        deliveries: &Bound<'_, PyList>,
        ends: &Bound<'_, PyList>,
        responses: Vec<ResponseColumn<'_>>,
    ) -> PyResult<()> {
        let mut outbox = Outbox::new(self.send_bytes_max);
        read_replies(replies, &mut outbox)?;
        self.read_deliveries(deliveries, &mut outbox)?;
        for end in ends.iter() {
            let (id, code, text) = read_answer(&end)?;
            let text = Bytes::copy_from_slice(text.as_bytes());
            outbox.ends.push(End { id, code, text });
        }
        for (id, status, headers, body) in responses {
            let body = body.map(|body| Bytes::copy_from_slice(body.as_bytes()));
            outbox.responses.push(HttpResponse::new(id, status, &headers, body));
        }
        // It fails only after the end of the loop; then there are no clients.
        let _ = self.runner.commands.send(Command::Flush(Box::new(outbox)));
        Ok(())
    }

    /// Make a waiting poll return.
    fn wake(&self) {
        self.inbox.wake();
    }

    /// The client's address of a call; None when it is no longer known.
    fn peer_of(&self, call_id: u64) -> Option<String> {
        self.inbox.peers.peer_of(call_id)
    }

    /// Begin to drain as `Transport.drain` says.
    fn drain(&self) {
        let _ = self.runner.commands.send(Command::Drain); // without effect after the end of the loop
    }

    /// Whether, since then, nothing is in flight.
    #[getter]
    fn is_drained(&self) -> bool {
        self.inbox.is_drained()
    }

    /// Stop as `Transport.stop` says; false when the thread does not end in time.
    fn stop(&self, py: Python<'_>, grace_s: f64) -> bool {
        let grace = duration(grace_s);
        let _ = self.runner.commands.send(Command::Stop { grace }); // a second stop has no effect
        py.detach(|| self.runner.wait_exit(grace.saturating_add(STOP_SLACK)))
    }
}

impl Server {
    fn wait(&self, py: Python<'_>, timeout: Duration) -> PyResult<()> {
        let begin = Instant::now();
        loop {
            let left = timeout.saturating_sub(begin.elapsed());
            match py.detach(|| self.inbox.wait(left))? {
                Waited::Interrupted => py.check_signals()?,
                Waited::Exit => return Ok(()),
            }
        }
    }

    fn columns<'py>(&self, py: Python<'py>, arrivals: Arrivals) -> PyResult<Bound<'py, PyTuple>> {
        let metadata = PyDict::new(py);
        let calls = PyList::empty(py);
        for call in arrivals.calls {
            if let Some(found) = call.metadata {
                metadata.set_item(call.id, metadata_of(py, found)?)?;
            }
            calls.append((call.id, call.method, PyBytes::new(py, &call.body)))?;
        }
        let opened = PyList::empty(py);
        for each in arrivals.opened {
            if let Some(found) = each.metadata {
                metadata.set_item(each.id, metadata_of(py, found)?)?;
            }
            opened.append((each.id, each.method))?;
        }
        let frames = PyList::empty(py);
        for (id, message) in arrivals.frames {
            frames.append((id, PyBytes::new(py, &message)))?;
        }
        let backlog = self.backlog(py)?;
        let requests = PyList::empty(py);
        for each in arrivals.requests {
            let body = each.body.map(|body| PyBytes::new(py, &body));
            requests.append((each.id, each.method, each.target, each.headers, body))?;
        }
        (
            calls,
            opened,
            frames,
            arrivals.half_closed,
            arrivals.gone,
            backlog,
            metadata,
            requests,
            arrivals.notices,
        )
            .into_pyobject(py)
    }

    /// The unsent bytes of each stream that has any.
    fn backlog<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let backlog = PyDict::new(py);
        let mut backlogged = self.backlogged.lock().unwrap_or_else(PoisonError::into_inner);
        if backlogged.is_empty() {
            return Ok(backlog);
        }
        let open = self.backlogs.lock();
        let mut waiting = Vec::new();
        backlogged.retain(|id, backlog| {
            backlog.drain_wanted.store(true, Ordering::SeqCst); // before the counts are read
            let queued = backlog.queued.load(Ordering::SeqCst);
            let bytes = queued.saturating_sub(backlog.sent.load(Ordering::SeqCst));
            let is_waiting = bytes > 0 && open.contains_key(id);
            if is_waiting {
                waiting.push((*id, bytes));
            } else {
                backlog.drain_wanted.store(false, Ordering::SeqCst);
            }
            is_waiting
        });
        drop(open);
        for (id, bytes) in waiting {
            backlog.set_item(id, bytes)?;
        }
        Ok(backlog)
    }

    fn read_deliveries(&self, deliveries: &Bound<'_, PyList>, outbox: &mut Outbox) -> PyResult<()> {
        if deliveries.is_empty() {
            return Ok(());
        }
        let mut backlogged = self.backlogged.lock().unwrap_or_else(PoisonError::into_inner);
        let open = self.backlogs.lock();
        let mut reader = Deliveries {
            outbox,
            last_tail: None,
            joined: HashMap::new(),
            send_bytes_max: self.send_bytes_max,
        };
        reader.outbox.deliveries.reserve(deliveries.len());
        for delivery in deliveries.iter() {
            let delivery = delivery.cast::<PyTuple>()?;
            let id: u64 = delivery.get_borrowed_item(0)?.extract()?;
            let Some(backlog) = open.get(&id) else { continue };
            let queued = match delivery.len() {
                4 => reader.read_many(id, delivery)?,
                _ => reader.read_one(id, delivery)?,
            };
            if queued > 0 {
                backlog.queued.fetch_add(queued as u64, Ordering::SeqCst);
                backlogged.entry(id).or_insert_with(|| backlog.clone());
            }
        }
        Ok(())
    }
}

/// Blocks in the outbox, and the size of their messages.
type Joined = (Range<usize>, usize);

/// Reads deliveries into an outbox; each returns how many bytes of messages are to be sent.
struct Deliveries<'a, 'py> {
    outbox: &'a mut Outbox,
    last_tail: Option<Bound<'py, PyAny>>,
    joined: HashMap<(usize, usize, usize), Joined>, // by the addresses of head, tail and middles
    send_bytes_max: usize,
}

impl<'py> Deliveries<'_, 'py> {
    /// (id, head, tail): one message.
    fn read_one(&mut self, id: u64, delivery: &Bound<'py, PyTuple>) -> PyResult<usize> {
        let head = delivery.get_item(1)?.cast_into::<PyBytes>()?;
        let head = head.as_bytes();
        let tail = self.add_tail(delivery.get_item(2)?)?;
        let size = head.len() + self.outbox.tails[tail].bytes.len();
        if self.is_unsendable(id, size) {
            return Ok(0);
        }
        self.outbox.add_delivery(id, &[head], tail);
        Ok(size)
    }

    /// (id, head, tail, middles): a message for each middle.
    fn read_many(&mut self, id: u64, delivery: &Bound<'py, PyTuple>) -> PyResult<usize> {
        let (head, tail) = (delivery.get_item(1)?, delivery.get_item(2)?);
        let middles = delivery.get_item(3)?.cast_into::<PyTuple>()?;
        let key = (head.as_ptr() as usize, tail.as_ptr() as usize, middles.as_ptr() as usize);
        if let Some((blocks, size)) = self.joined.get(&key).cloned() {
            self.outbox.deliveries.push(Delivery { id, what: Piece::Many { blocks } });
            return Ok(size);
        }
        let head = head.cast::<PyBytes>()?.as_bytes();
        let parts: Vec<Bound<'py, PyBytes>> = middles.extract()?;
        let parts: Vec<&[u8]> = parts.iter().map(|middle| middle.as_bytes()).collect();
        let tail_bytes = tail.cast::<PyBytes>()?.as_bytes();
        let longest = parts.iter().map(|middle| middle.len()).max().unwrap_or(0);
        if self.is_unsendable(id, head.len() + longest + tail_bytes.len()) {
            return Ok(0);
        }
        if tail_bytes.len() >= LARGE_TAIL_BYTES {
            let tail_index = self.add_tail(tail.clone())?;
            for middle in &parts {
                self.outbox.add_delivery(id, &[head, middle], tail_index);
            }
            let middle_bytes: usize = parts.iter().map(|middle| middle.len()).sum();
            return Ok((head.len() + tail_bytes.len()) * parts.len() + middle_bytes);
        }
        let begin = self.outbox.blocks.len();
        self.outbox.blocks.extend(join(head, tail_bytes, &parts, BLOCK_BYTES_MAX));
        let blocks = begin..self.outbox.blocks.len();
        let size = self.outbox.blocks[blocks.clone()].iter().map(|block| block.message_bytes).sum();
        self.joined.insert(key, (blocks.clone(), size));
        self.outbox.deliveries.push(Delivery { id, what: Piece::Many { blocks } });
        Ok(size)
    }

    /// Add a tail, unless it is the last one, which deliveries that follow one another share.
    fn add_tail(&mut self, tail: Bound<'py, PyAny>) -> PyResult<usize> {
        if !self.last_tail.as_ref().is_some_and(|last| last.is(&tail)) {
            self.outbox.add_tail(Bytes::copy_from_slice(tail.cast::<PyBytes>()?.as_bytes()));
            self.last_tail = Some(tail);
        }
        Ok(self.outbox.tails.len() - 1)
    }

    /// Return whether a message is too large to be sent; then its stream ends.
    fn is_unsendable(&mut self, id: u64, size: usize) -> bool {
        if size <= self.send_bytes_max {
            return false;
        }
        let Status { code, text } = Status::unsendable(size, self.send_bytes_max);
        self.outbox.cuts.push(End { id, code, text });
        true
    }
}

fn metadata_of<'py>(py: Python<'py>, metadata: Metadata) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (key, value) in metadata {
        dict.set_item(key, value)?;
    }
    Ok(dict)
}

fn read_replies(replies: &Bound<'_, PyList>, outbox: &mut Outbox) -> PyResult<()> {
    outbox.replies.reserve(replies.len());
    for reply in replies.iter() {
        let (id, code, body) = read_answer(&reply)?;
        outbox.add_reply(id, code, body.as_bytes());
    }
    Ok(())
}

fn read_answer<'py>(answer: &Bound<'py, PyAny>) -> PyResult<(u64, u32, Bound<'py, PyBytes>)> {
    let answer = answer.cast::<PyTuple>()?;
    let id = answer.get_borrowed_item(0)?.extract()?;
    let code = answer.get_borrowed_item(1)?.extract()?;
    let body = answer.get_item(2)?.cast_into::<PyBytes>()?;
    Ok((id, code, body))
}
