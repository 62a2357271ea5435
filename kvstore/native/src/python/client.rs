//! The client's interface to Python.
//!
//! Each call builds or reads plain lists of tuples at once. Nothing here waits while it
//! holds Python's lock.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::http::{HeaderName, HeaderValue};
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};

use crate::client::endpoint::{Address, DialTarget};
use crate::client::environment::Options;
use crate::client::inbox::{Inbox, Item};
use crate::client::requests::{Call, Metadata, Open, Requests};
use crate::client::thread::{Command, Thread};
use crate::python::options::{duration, option};
use crate::tls::client::Settings;

const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// (name, host or path, port or None for a unix socket, TLS, authority, server name).
type AddressColumn = (String, String, Option<u16>, bool, String, String);

/// The client thread: see `kvstore.client.channels.native`.
#[pyclass(frozen, module = "kvstack.component._native")]
pub struct Client {
    inbox: Arc<Inbox>,
    thread: Thread,
}

fn addresses_of(columns: Vec<AddressColumn>) -> Vec<Address> {
    let address = |(name, host, port, is_tls, authority, server_name): AddressColumn| {
        let target = match port {
            Some(port) => DialTarget::Tcp { host, port },
            None => DialTarget::Unix { path: host },
        };
        Address { name, target, is_tls, authority, server_name }
    };
    columns.into_iter().map(address).collect()
}

fn read_options(options: &Bound<'_, PyDict>, paths: Vec<String>) -> PyResult<Options> {
    let interval_s: f64 = option(options, "keepalive_interval_s")?;
    let reach_s: f64 = option(options, "reach_s")?;
    Ok(Options {
        paths,
        dial_timeout: duration(option(options, "dial_timeout_s")?),
        keepalive_interval: (interval_s > 0.0).then(|| duration(interval_s)),
        keepalive_timeout: duration(option(options, "keepalive_timeout_s")?),
        keeps_idle_alive: option(options, "keeps_idle_alive")?,
        reach_timeout: (reach_s > 0.0).then(|| duration(reach_s)),
        response_bytes_max: option(options, "response_bytes_max")?,
        stream_ahead_bytes_max: option(options, "stream_ahead_bytes_max")?,
    })
}

fn read_tls(options: &Bound<'_, PyDict>) -> PyResult<Settings> {
    let text = |name: &str| -> PyResult<Option<String>> {
        let text: String = option(options, name)?;
        Ok((!text.is_empty()).then_some(text))
    };
    let files: Vec<String> = option(options, "trusted_ca_files")?;
    Ok(Settings {
        cert: text("cert_file")?.map(PathBuf::from),
        key: text("key_file")?.map(PathBuf::from),
        ca: files.into_iter().map(PathBuf::from).collect(),
        is_unverified: option(options, "is_unverified")?,
        server_name: text("server_name")?,
    })
}

fn metadata_of(pairs: &Bound<'_, PyAny>) -> PyResult<Metadata> {
    let pairs: Vec<(String, String)> = pairs.extract()?;
    let bad = |name: &str| PyValueError::new_err(format!("metadata {name:?} cannot be sent"));
    let header = |(name, value): (String, String)| {
        let found = HeaderName::try_from(name.as_str()).map_err(|_| bad(&name))?;
        let value = HeaderValue::try_from(value).map_err(|_| bad(&name))?;
        Ok((found, value))
    };
    Ok(Arc::new(pairs.into_iter().map(header).collect::<PyResult<_>>()?))
}

/// The metadata read last, because consecutive calls often share it.
#[derive(Default)]
struct LastMetadata<'py>(Option<(Bound<'py, PyAny>, Metadata)>);

impl<'py> LastMetadata<'py> {
    fn read(&mut self, pairs: Bound<'py, PyAny>) -> PyResult<Option<Metadata>> {
        if pairs.is_none() {
            return Ok(None);
        }
        if let Some((of, metadata)) = &self.0 {
            if of.is(&pairs) {
                return Ok(Some(metadata.clone()));
            }
        }
        let metadata = metadata_of(&pairs)?;
        self.0 = Some((pairs, metadata.clone()));
        Ok(Some(metadata))
    }
}

#[pymethods]
impl Client {
    /// Start the thread; it does not connect before set_endpoints.
    #[new]
    fn new(
        paths: Vec<String>,
        options: &Bound<'_, PyDict>,
        tls: &Bound<'_, PyDict>,
    ) -> PyResult<Self> {
        let options = read_options(options, paths)?;
        let tls = read_tls(tls)?;
        let inbox = Arc::new(Inbox::new()?);
        let thread = Thread::start(options, tls, inbox.clone())
            .map_err(|error| PyOSError::new_err(error.to_string()))?;
        Ok(Client { inbox, thread })
    }

    /// Use these endpoints: (name, host or path, port or None, TLS, authority, server name).
    fn set_endpoints(&self, addresses: Vec<AddressColumn>) {
        // It fails only after the end of the thread; then poll reports that.
        let _ = self.thread.commands.send(Command::Endpoints(addresses_of(addresses)));
    }

    /// Readable when poll would return something.
    fn descriptor(&self) -> i32 {
        self.inbox.descriptor()
    }

    /// Send: calls (id, method, body, seconds or None, metadata or None), streams to open
    /// (id, method, metadata or None), frames (id, message), half-closed ids, cancelled ids, and
    /// (id, bytes) that a stream's reader has consumed.
    fn flush(
        &self,
        calls: &Bound<'_, PyList>,
        opened: &Bound<'_, PyList>,
        frames: &Bound<'_, PyList>,
        half_closed: Vec<u64>,
        gone: Vec<u64>,
        taken: Vec<(u64, usize)>,
    ) -> PyResult<()> {
        let now = Instant::now();
        let mut requests = Requests::new(half_closed, gone, taken);
        let mut last = LastMetadata::default();
        requests.calls.reserve(calls.len());
        for call in calls.iter() {
            let call = call.cast::<PyTuple>()?;
            let body = call.get_borrowed_item(2)?;
            let message = requests.frame(body.cast::<PyBytes>()?.as_bytes());
            let limit_s: Option<f64> = call.get_borrowed_item(3)?.extract()?;
            let id = call.get_borrowed_item(0)?.extract()?;
            let deadline = limit_s.and_then(|limit_s| now.checked_add(duration(limit_s)));
            let method = call.get_borrowed_item(1)?.extract()?;
            match last.read(call.get_item(4)?) {
                Ok(metadata) => {
                    requests.calls.push(Call { id, method, message, deadline, metadata });
                }
                Err(error) => requests.refused.push((id, error.to_string())),
            }
        }
        for open in opened.iter() {
            let open = open.cast::<PyTuple>()?;
            let id = open.get_borrowed_item(0)?.extract()?;
            let method = open.get_borrowed_item(1)?.extract()?;
            match last.read(open.get_item(2)?) {
                Ok(metadata) => requests.opened.push(Open { id, method, metadata }),
                Err(error) => requests.refused.push((id, error.to_string())),
            }
        }
        for frame in frames.iter() {
            let frame = frame.cast::<PyTuple>()?;
            let body = frame.get_borrowed_item(1)?;
            let message = requests.frame(body.cast::<PyBytes>()?.as_bytes());
            requests.frames.push((frame.get_borrowed_item(0)?.extract()?, message));
        }
        let _ = self.thread.commands.send(Command::Flush(requests)); // as above
        Ok(())
    }

    /// Take a batch: (replies (id, body), frames (id, message), ends (id, code, text,
    /// was sent), notices). RuntimeError once the thread has failed.
    fn poll<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        if let Some(reason) = self.inbox.failure() {
            return Err(PyRuntimeError::new_err(reason));
        }
        let taken = self.inbox.take();
        let (replies, frames, ends) = (PyList::empty(py), PyList::empty(py), PyList::empty(py));
        for item in taken.items {
            match item {
                Item::Reply(id, body) => replies.append((id, PyBytes::new(py, &body)))?,
                Item::Frame(id, message) => frames.append((id, PyBytes::new(py, &message)))?,
                Item::End(end) => {
                    let text = PyString::new(py, &String::from_utf8_lossy(&end.text));
                    ends.append((end.id, end.code, text, end.was_sent))?;
                }
            }
        }
        (replies, frames, ends, taken.notices).into_pyobject(py)
    }

    /// Cancel everything, close all connections and end the thread; false on a timeout.
    fn close(&self, py: Python<'_>) -> bool {
        let _ = self.thread.commands.send(Command::Stop); // a second one has no effect
        py.detach(|| self.thread.wait_exit(STOP_TIMEOUT))
    }
}
