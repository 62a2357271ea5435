//! The interface to Python of a server of HTTP alone.
//!
//! ```text
//! loop thread ──► inbox ──► HttpServer.poll ──► lists of tuples
//!             ◄── outbox ◄── flush ◄── respond, write, write_all, end, take ...
//! ```
//!
//! Responses are gathered here and passed to the loop's thread with one `flush`. Heads of requests stay
//! as they were parsed: a header becomes a string when it is read. Large bodies are shared with Python,
//! not copied. Nothing here waits.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ::http::header::HOST;
use ::http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Version};
use bytes::Bytes;
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};

use crate::grpc;
use crate::grpc::routes::Routes;
use crate::http::messages::{Arrival, HttpResponse};
use crate::http::targets::RealTarget;
use crate::id_map::IdMap;
use crate::python::options::{duration, limit, option, read_limits};
use crate::server::call_table::Options;
use crate::server::connection_info::ConnectionInfo;
use crate::server::event_loop::{Address, Command, Loop};
use crate::server::inbox::{Arrivals, Inbox};
use crate::server::listener::ListenAddress;
use crate::server::outbox::{End, Outbox, Write};
use crate::server::port::{Pings, PortLimits, Serves, Web};
use crate::server::send_backlog::SendBacklogs;
use crate::tls::server::{Pair, Settings};
use crate::tls::source::Source;
use crate::tls::ClientAuth;

const SHARED_BYTES: usize = 16 << 10; // from here on bytes are shared with Python
const COUNTED_BYTES: usize = 4 << 10; // from here on a whole answer is counted before it is flushed

/// (host or path of a unix socket, port, plain, which TLS, limits)
type AddressColumn<'py> = (String, Option<u16>, bool, Option<usize>, Bound<'py, PyDict>);
/// (is a file, path or PEM)
type SourceColumn = (bool, Vec<u8>);
/// (certificate, key, names)
type PairColumn = (SourceColumn, SourceColumn, Vec<String>);

fn read_address(index: u32, column: AddressColumn<'_>) -> PyResult<Address> {
    let (name, port, is_plain, tls, limits) = column;
    let interval_s: f64 = option(&limits, "ping_interval_s")?;
    let ping = (interval_s > 0.0).then_some(()).map(|()| {
        let timeout = duration(option(&limits, "ping_timeout_s")?);
        Ok::<_, PyErr>(Pings { interval: duration(interval_s), timeout })
    });
    Ok(Address {
        bound_to: match port {
            Some(port) => ListenAddress::Tcp { host: name, port, is_shared: false },
            None => ListenAddress::Unix { path: name },
        },
        is_plain,
        tls,
        serves: Serves::Http,
        limits: PortLimits {
            whole_body_bytes_max: option(&limits, "whole_body_bytes_max")?,
            header_bytes_max: option(&limits, "header_bytes_max")?,
            backlog_bytes_max: option(&limits, "backlog_bytes_max")?,
            streams_max: option(&limits, "streams_max")?,
            connections_max: option(&limits, "connections_max")?,
            handshake_timeout: duration(option(&limits, "handshake_timeout_s")?),
            header_timeout: duration(option(&limits, "idle_timeout_s")?),
            write_stall: limit(option(&limits, "write_stall_timeout_s")?),
            ping: ping.transpose()?,
        },
        web: Some(Web {
            listener: index,
            window_bytes: option(&limits, "window_bytes")?,
            body_timeout: duration(option(&limits, "body_timeout_s")?),
            idle_timeout: duration(option(&limits, "idle_timeout_s")?),
        }),
    })
}

fn read_source((is_file, bytes): SourceColumn) -> PyResult<Source> {
    if !is_file {
        return Ok(Source::Memory(bytes));
    }
    let path =
        String::from_utf8(bytes).map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(Source::File(path.into()))
}

fn read_pair((cert, key, names): PairColumn) -> PyResult<Pair> {
    Ok(Pair { cert: read_source(cert)?, key: read_source(key)?, names })
}

fn read_tls(options: &Bound<'_, PyDict>) -> PyResult<Settings> {
    let others: Vec<PairColumn> = option(options, "others")?;
    let authorities: Vec<(String, SourceColumn)> = option(options, "authorities")?;
    let client_auth: u32 = option(options, "client_auth")?;
    Ok(Settings {
        pair: read_pair(option(options, "pair")?)?,
        others: others.into_iter().map(read_pair).collect::<PyResult<_>>()?,
        client_auth: match client_auth {
            0 => ClientAuth::None,
            1 => ClientAuth::Request,
            2 => ClientAuth::VerifyIfGiven,
            3 => ClientAuth::RequireAndVerify,
            other => return Err(PyValueError::new_err(format!("{other} is no client auth"))),
        },
        authorities: authorities
            .into_iter()
            .map(|(name, source)| Ok((name, read_source(source)?)))
            .collect::<PyResult<_>>()?,
        crl: None,
        http2: option(options, "http2")?,
        allowed_names: Vec::new(),
        allowed_hosts: Vec::new(),
        min_version: option(options, "min_version")?,
        max_version: option(options, "max_version")?,
        cipher_suites: option(options, "cipher_suites")?,
    })
}

/// A server of HTTP alone: see `kvstack.component.http.serving.native`.
#[pyclass(frozen, module = "kvstack.component._native")]
pub struct HttpServer {
    inbox: Arc<Inbox>,
    backlogs: Arc<SendBacklogs>,
    runner: Loop,
    outbox: Mutex<Outbox>,
    seen: Mutex<IdMap<u64, (u64, Instant)>>, // of `stalled`: answers with unsent bytes, and since when
    make_connection: Py<PyAny>,
}

#[pymethods]
impl HttpServer {
    /// Bind and serve.
    ///
    /// make_connection is called with the properties of a connection at its first request:
    /// (listener, peer, is TLS, ALPN protocol, server name, chain, verified by, error).
    /// OSError carries errno, text and, as its file name, the index of the bad address.
    #[new]
    fn new(
        py: Python<'_>,
        addresses: Vec<AddressColumn<'_>>,
        tls: Vec<Bound<'_, PyDict>>,
        options: &Bound<'_, PyDict>,
        make_connection: Py<PyAny>,
    ) -> PyResult<Self> {
        let addresses = (0u32..)
            .zip(addresses)
            .map(|(index, column)| read_address(index, column))
            .collect::<PyResult<Vec<_>>>()?;
        let tls = tls.iter().map(read_tls).collect::<PyResult<Vec<_>>>()?;
        let inbox = Arc::new(Inbox::waking_for_notices(read_limits(options)?)?);
        let options = Options {
            request_bytes_max: 0, // of gRPC, which is not served
            connection_backlog_bytes_max: 0,
            assembling_bytes_max: option(options, "assembling_bytes_max")?,
            connections_max: usize::MAX,
            keepalive_min: duration(0.0),
            send_bytes_max: usize::MAX,
        };
        let backlogs = Arc::new(SendBacklogs::default());
        let (loop_inbox, loop_backlogs) = (inbox.clone(), backlogs.clone());
        let runner = py
            .detach(|| {
                Loop::start(addresses, Routes::default(), options, tls, loop_inbox, loop_backlogs)
            })
            .map_err(|bad| {
                let text = bad.error.to_string();
                PyOSError::new_err((bad.error.raw_os_error().unwrap_or(0), text, bad.address))
            })?;
        let outbox = Mutex::new(Outbox::new(usize::MAX));
        let seen = Mutex::default();
        Ok(HttpServer { inbox, backlogs, runner, outbox, seen, make_connection })
    }

    /// The ports really bound, in the order of the addresses; 0 for unix sockets.
    #[getter]
    fn ports(&self) -> Vec<u16> {
        self.runner.ports.clone()
    }

    /// Becomes readable, between `arm` and `disarm`, when a poll would return something.
    fn descriptor(&self) -> PyResult<i32> {
        Ok(self.inbox.descriptor()?)
    }

    /// Begin to sleep; false: a poll would return something now.
    fn arm(&self) -> bool {
        self.inbox.arm()
    }

    fn disarm(&self) {
        self.inbox.disarm();
    }

    /// Take what arrived:
    /// ((id, connection, method, target, version, head, body, may upgrade), frames, half closed, gone,
    /// roomy, notices).
    fn poll<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        if let Some(reason) = self.inbox.failure() {
            return Err(PyRuntimeError::new_err(reason));
        }
        let Arrivals { arrived, frames, half_closed, gone, writable, notices, .. } =
            self.inbox.take();
        let requests = PyList::empty(py);
        for arrival in arrived {
            requests.append(self.request(py, arrival)?)?;
        }
        let pieces = PyList::empty(py);
        for (id, piece) in frames {
            pieces.append((id, PyBytes::new(py, &piece)))?;
        }
        (requests, pieces, half_closed, gone, writable, notices).into_pyobject(py)
    }

    /// Answer: with the whole body, in any number of parts, or (None) with a head whose body is written.
    #[pyo3(signature = (id, status, headers, body, *rest))]
    fn respond(
        &self,
        id: u64,
        status: u16,
        headers: &Bound<'_, PyAny>,
        body: Option<Bound<'_, PyBytes>>,
        rest: &Bound<'_, PyTuple>,
    ) -> PyResult<()> {
        let head = Ok(read_head(status, headers)?);
        let mut parts = Vec::with_capacity(rest.len());
        for part in rest.iter() {
            parts.push(shared(part.cast_into::<PyBytes>()?));
        }
        let body = body.map(shared);
        let is_counted = body.as_ref().is_some_and(|body| {
            let size = body.len() + parts.iter().map(Bytes::len).sum::<usize>();
            size >= COUNTED_BYTES && self.count(id, size as u64)
        });
        let response = HttpResponse { id, head, body, rest: parts, is_counted };
        self.outbox().responses.push(response);
        Ok(())
    }

    /// Send bytes of a body, or after a 101; return how many are unsent, None if disconnected.
    fn write(&self, id: u64, data: Bound<'_, PyBytes>) -> Option<u64> {
        let size = data.as_bytes().len() as u64;
        let open = self.backlogs.lock();
        let backlog = open.get(&id)?;
        backlog.queued.fetch_add(size, Ordering::SeqCst);
        let unsent = backlog.unsent();
        drop(open);
        let outbox = &mut *self.outbox();
        let tail = outbox.add_tail(shared(data));
        outbox.writes.push(Write::One { id, tail });
        Some(unsent)
    }

    /// Send the same bytes to many; return those that had more than so many bytes unsent.
    fn write_all(
        &self,
        ids: &Bound<'_, PyList>,
        data: Bound<'_, PyBytes>,
        unsent_bytes_max: u64,
    ) -> PyResult<Vec<u64>> {
        let ids: Vec<u64> = ids.iter().map(|id| id.extract()).collect::<PyResult<_>>()?;
        let mut behind = self.backlogs.behind();
        let mut backlogged = Vec::new();
        if !behind.is_empty() {
            behind.retain(|_, backlog| backlog.unsent() > 0);
            let is_far = |id: &&u64| {
                behind.get(id).is_some_and(|backlog| backlog.unsent() > unsent_bytes_max)
            };
            backlogged.extend(ids.iter().filter(is_far));
        }
        drop(behind);
        let outbox = &mut *self.outbox();
        let tail = outbox.add_tail(shared(data));
        outbox.writes.push(Write::All { ids, tail });
        Ok(backlogged)
    }

    /// End an answer after what was written; if it is not complete, the client sees an error.
    fn end(&self, id: u64, is_whole: bool) {
        let code = if is_whole { grpc::OK } else { grpc::INTERNAL };
        self.outbox().ends.push(End { id, code, text: Bytes::new() });
    }

    /// Note that bytes of a body were read, or (0) that its reader begins.
    fn take(&self, id: u64, bytes: u64) {
        let open = self.backlogs.lock();
        let window = open.get(&id).and_then(|backlog| backlog.window.as_ref());
        if window.is_some_and(|window| window.take(bytes)) {
            drop(open);
            self.outbox().resumed.push(id);
        }
    }

    /// Request a `writable` event once at most so many bytes are unsent; true if they are now.
    fn notify_writable(&self, id: u64, bytes: u64) -> bool {
        self.backlogs.lock().get(&id).is_none_or(|backlog| backlog.notify_writable(bytes))
    }

    /// End an answer at once: nothing more of it is sent, and its client sees an error.
    fn cut(&self, id: u64) {
        self.outbox().cuts_now.push(id);
    }

    /// How many bytes of each of these answers are unsent.
    fn unsent(&self, ids: Vec<u64>) -> Vec<u64> {
        let open = self.backlogs.lock();
        ids.iter().map(|id| open.get(id).map_or(0, |backlog| backlog.unsent())).collect()
    }

    /// The answers whose client gives no window of HTTP/2 for so many seconds although bytes wait, as far
    /// as calls of this method have seen it.
    fn stalled(&self, limit_s: f64) -> Vec<u64> {
        let (now, limit) = (Instant::now(), duration(limit_s));
        let seen = &mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let (before, mut stalled) = (std::mem::take(seen), Vec::new());
        for (id, backlog) in
            self.backlogs.lock().iter().filter(|(_, backlog)| backlog.waits_for_window())
        {
            let sent = backlog.sent.load(Ordering::SeqCst);
            let since = match before.get(id) {
                Some((count, since)) if *count == sent => *since,
                _ => now,
            };
            if now.duration_since(since) >= limit {
                stalled.push(*id);
            }
            seen.insert(*id, (sent, since));
        }
        stalled
    }

    /// Send everything gathered since the last flush.
    fn flush(&self) {
        let mut outbox = self.outbox();
        if !outbox.is_empty() {
            let outbox = std::mem::replace(&mut *outbox, Outbox::new(usize::MAX));
            // It fails only after the end of the loop; then there are no clients.
            let _ = self.runner.commands.send(Command::Flush(Box::new(outbox)));
        }
    }

    /// Close the listeners and send GOAWAY; open requests are still to be answered.
    fn drain(&self) {
        let _ = self.runner.commands.send(Command::Drain); // without effect after the end of the loop
    }

    #[getter]
    fn is_drained(&self) -> bool {
        self.inbox.is_drained()
    }

    /// Begin to end everything open, and the loop after up to so many seconds.
    fn stop(&self, grace_s: f64) {
        let grace = duration(grace_s);
        let _ = self.runner.commands.send(Command::Stop { grace }); // a second stop has no effect
    }

    /// Whether the loop has ended; its end wakes the poller.
    #[getter]
    fn is_over(&self) -> bool {
        self.runner.is_over()
    }
}

impl HttpServer {
    fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Count bytes as queued for an answer; false: its client has disconnected.
    fn count(&self, id: u64, bytes: u64) -> bool {
        let open = self.backlogs.lock();
        let Some(backlog) = open.get(&id) else { return false };
        backlog.queued.fetch_add(bytes, Ordering::SeqCst);
        true
    }

    fn request<'py>(&self, py: Python<'py>, arrival: Arrival) -> PyResult<Bound<'py, PyTuple>> {
        let Arrival { id, info, parts, body, may_upgrade } = arrival;
        let real = parts.extensions.get::<RealTarget>().map(|real| real.0.as_str());
        let target = match real.or(parts.uri.path_and_query().map(|target| target.as_str())) {
            Some(target) => target,
            None => parts.uri.authority().map_or("/", |authority| authority.as_str()),
        };
        let authority = match parts.headers.contains_key(HOST) {
            true => None,
            false => parts.uri.authority().map(ToString::to_string),
        };
        (
            id,
            self.connection(py, &info)?,
            method_name(py, &parts.method),
            target,
            version_name(py, parts.version),
            Head { headers: parts.headers, authority },
            body.map(|body| PyBytes::new(py, &body)),
            may_upgrade,
        )
            .into_pyobject(py)
    }

    /// The Connection object in Python; created once.
    fn connection<'py>(
        &self,
        py: Python<'py>,
        info: &ConnectionInfo,
    ) -> PyResult<Bound<'py, PyAny>> {
        let shown = info.shown.get().and_then(|shown| shown.downcast_ref::<Py<PyAny>>());
        if let Some(shown) = shown {
            return Ok(shown.bind(py).clone());
        }
        let ConnectionInfo { listener, peer, is_tls, protocol, server_name, identity, .. } = info;
        let chain: Vec<_> = identity.chain.iter().map(|each| PyBytes::new(py, each)).collect();
        let known = (
            *listener,
            peer,
            *is_tls,
            protocol.as_deref().unwrap_or_default(),
            server_name.as_deref().unwrap_or_default(),
            PyTuple::new(py, chain)?,
            PyTuple::new(py, &identity.verified_by)?,
            identity.error.as_deref().unwrap_or_default(),
        );
        let made = self.make_connection.bind(py).call1(known)?;
        let _ = info.shown.set(Box::new(made.clone().unbind())); // this thread alone sets it
        Ok(made)
    }
}

/// Share large bytes with Python, copy small ones.
fn shared(data: Bound<'_, PyBytes>) -> Bytes {
    if data.as_bytes().len() < SHARED_BYTES {
        return Bytes::copy_from_slice(data.as_bytes());
    }
    Bytes::from_owner(PyBackedBytes::from(data))
}

fn read_head(status: u16, headers: &Bound<'_, PyAny>) -> PyResult<Response<()>> {
    let mut head = Response::new(());
    *head.status_mut() =
        StatusCode::from_u16(status).map_err(|error| PyValueError::new_err(error.to_string()))?;
    let map = head.headers_mut();
    for header in headers.try_iter()? {
        let header = header?.cast_into::<PyTuple>()?;
        let name = header.get_item(0)?.cast_into::<PyString>()?;
        let name = name.to_cow()?;
        let value = header.get_item(1)?.cast_into::<PyString>()?;
        let value = value.to_cow()?;
        let bad = |error: &dyn std::fmt::Display| {
            PyValueError::new_err(format!("header {name:?}: {error}"))
        };
        let key = HeaderName::from_bytes(name.as_bytes()).map_err(|error| bad(&error))?;
        let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|error| bad(&error))?;
        map.append(key, value);
    }
    Ok(head)
}

fn method_name<'py>(py: Python<'py>, method: &Method) -> Bound<'py, PyString> {
    match method.as_str() {
        "GET" => intern!(py, "GET").clone(),
        "PUT" => intern!(py, "PUT").clone(),
        "POST" => intern!(py, "POST").clone(),
        "PATCH" => intern!(py, "PATCH").clone(),
        "DELETE" => intern!(py, "DELETE").clone(),
        other => PyString::new(py, other),
    }
}

fn version_name(py: Python<'_>, version: Version) -> Bound<'_, PyString> {
    match version {
        Version::HTTP_2 => intern!(py, "HTTP/2.0").clone(),
        Version::HTTP_11 => intern!(py, "HTTP/1.1").clone(),
        _ => intern!(py, "HTTP/1.0").clone(),
    }
}

/// The headers of a request, as they were parsed.
#[pyclass(frozen, module = "kvstack.component._native")]
pub struct Head {
    headers: HeaderMap,
    authority: Option<String>, // of HTTP/2, where there is no host
}

#[pymethods]
impl Head {
    /// The first value of a header, None if there is none; `host` is the authority of HTTP/2.
    fn get<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Option<Bound<'py, PyString>>> {
        match self.headers.get(name) {
            Some(value) => text(py, value).map(Some),
            None if name.eq_ignore_ascii_case("host") => {
                Ok(self.authority.as_ref().map(|name| PyString::new(py, name)))
            }
            None => Ok(None),
        }
    }

    /// All values of a header, in order.
    fn get_all<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyList>> {
        let found = PyList::empty(py);
        for value in self.headers.get_all(name) {
            found.append(text(py, value)?)?;
        }
        Ok(found)
    }

    /// Whether there is a header whose name begins so; the prefix is in lower case.
    fn has_prefix(&self, prefix: &str) -> bool {
        self.headers.keys().any(|name| name.as_str().starts_with(prefix))
            || (self.authority.is_some() && "host".starts_with(prefix))
    }

    /// All headers with their names in lower case, those of one name together.
    fn items<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let items = PyList::empty(py);
        if let Some(authority) = &self.authority {
            items.append(("host", authority))?;
        }
        for (name, value) in &self.headers {
            items.append((name.as_str(), text(py, value)?))?;
        }
        Ok(items)
    }
}

/// A value as text; invalid UTF-8 is escaped as Python does in file names.
fn text<'py>(py: Python<'py>, value: &HeaderValue) -> PyResult<Bound<'py, PyString>> {
    match std::str::from_utf8(value.as_bytes()) {
        Ok(text) => Ok(PyString::new(py, text)),
        Err(_) => {
            let bytes = PyBytes::new(py, value.as_bytes());
            PyString::from_encoded_object(&bytes, Some(c"utf-8"), Some(c"surrogateescape"))
        }
    }
}
