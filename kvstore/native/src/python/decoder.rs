//! Converts answers of a store to Python tuples, without message objects.
//!
//! ```text
//! RangeResponse  ──► RangeResult(revision, [KeyValue], more, count)
//! TxnResponse    ──► TxnResult(revision, succeeded, [PutResult | DeleteResult | RangeResult | TxnResult])
//! WatchResponse  ──► (revision, watch id, flags, compact revision, reason, [Event])
//! ```
//!
//! Equal to `kvstore.client.codec.decode`, several times as fast; a test compares the two.

use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple, PyType};

use crate::client::decode::{revision_of, walk, KeyValue};

/// An invalid answer, or an error of Python.
enum DecodeError {
    Bytes(&'static str),
    Python(PyErr),
}

impl From<&'static str> for DecodeError {
    fn from(text: &'static str) -> Self {
        DecodeError::Bytes(text)
    }
}

impl From<PyErr> for DecodeError {
    fn from(error: PyErr) -> Self {
        DecodeError::Python(error)
    }
}

impl From<DecodeError> for PyErr {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::Bytes(text) => PyValueError::new_err(text),
            DecodeError::Python(error) => error,
        }
    }
}

const CREATED: u32 = 1;
const CANCELED: u32 = 2;
const FRAGMENT: u32 = 4;
const NESTED_MAX: usize = 64;

/// Creates values of the given classes, which are named tuples.
#[pyclass(frozen, module = "kvstack.component._native")]
pub struct Decoder {
    tuple_new: Py<PyAny>,
    key_value: Py<PyType>,
    event: Py<PyType>,
    range: Py<PyType>,
    put: Py<PyType>,
    delete: Py<PyType>,
    txn: Py<PyType>,
}

#[pymethods]
impl Decoder {
    #[new]
    fn new(
        py: Python<'_>,
        key_value: Py<PyType>,
        event: Py<PyType>,
        range: Py<PyType>,
        put: Py<PyType>,
        delete: Py<PyType>,
        txn: Py<PyType>,
    ) -> PyResult<Self> {
        let tuple_new = py.get_type::<PyTuple>().getattr(intern!(py, "__new__"))?.unbind();
        Ok(Decoder { tuple_new, key_value, event, range, put, delete, txn })
    }

    /// Read a RangeResponse; ValueError if it is invalid.
    fn range<'py>(&self, py: Python<'py>, body: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.range_result(py, body)?)
    }

    /// Read a PutResponse.
    fn put<'py>(&self, py: Python<'py>, body: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.put_result(py, body)?)
    }

    /// Read a DeleteRangeResponse.
    fn delete<'py>(&self, py: Python<'py>, body: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.delete_result(py, body)?)
    }

    /// Read a TxnResponse.
    fn txn<'py>(&self, py: Python<'py>, body: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.txn_result(py, body, 0)?)
    }

    /// Read a WatchResponse: (revision, watch id, flags, compact revision, reason, events).
    #[allow(clippy::type_complexity)]
    fn watch<'py>(
        &self,
        py: Python<'py>,
        body: &[u8],
    ) -> PyResult<(i64, i64, u32, i64, Bound<'py, PyString>, Bound<'py, PyList>)> {
        let (mut revision, mut id, mut flags, mut compact) = (0, 0, 0, 0);
        let mut reason = &b""[..];
        let events = PyList::empty(py);
        walk(body, |field, value| {
            let mut flag = |bit: u32| {
                flags = if value.number() != 0 { flags | bit } else { flags & !bit };
            };
            match field {
                1 => revision = revision_of(value.bytes())?,
                2 => id = value.number(),
                3 => flag(CREATED),
                4 => flag(CANCELED),
                5 => compact = value.number(),
                6 => reason = value.bytes(),
                7 => flag(FRAGMENT),
                11 => events.append(self.event(py, value.bytes())?)?,
                _ => {}
            }
            Ok::<_, DecodeError>(())
        })?;
        let reason = PyString::new(py, &String::from_utf8_lossy(reason));
        Ok((revision, id, flags, compact, reason, events))
    }
}

impl Decoder {
    /// Create a named tuple directly; its own constructor is a Python function.
    fn make<'py>(
        &self,
        py: Python<'py>,
        class: &Py<PyType>,
        fields: Bound<'py, PyTuple>,
    ) -> Result<Bound<'py, PyAny>, DecodeError> {
        Ok(self.tuple_new.bind(py).call1((class.bind(py), fields))?)
    }

    fn key_value<'py>(
        &self,
        py: Python<'py>,
        body: &[u8],
    ) -> Result<Bound<'py, PyAny>, DecodeError> {
        let kv = KeyValue::parse(body)?;
        let fields = (
            PyBytes::new(py, kv.key),
            PyBytes::new(py, kv.value),
            kv.create_revision,
            kv.mod_revision,
            kv.version,
            kv.lease,
        );
        self.make(py, &self.key_value, fields.into_pyobject(py)?)
    }

    fn event<'py>(&self, py: Python<'py>, body: &[u8]) -> Result<Bound<'py, PyAny>, DecodeError> {
        let (mut kind, mut kv, mut prev) = (0, &b""[..], None);
        walk(body, |field, value| {
            match field {
                1 => kind = value.number(),
                2 => kv = value.bytes(),
                3 => prev = Some(value.bytes()),
                _ => {}
            }
            Ok::<_, DecodeError>(())
        })?;
        let prev = prev.map(|body| self.key_value(py, body)).transpose()?;
        let fields = (kind, self.key_value(py, kv)?, prev);
        self.make(py, &self.event, fields.into_pyobject(py)?)
    }

    fn range_result<'py>(
        &self,
        py: Python<'py>,
        body: &[u8],
    ) -> Result<Bound<'py, PyAny>, DecodeError> {
        let (mut revision, mut more, mut count) = (0, false, 0);
        let kvs = PyList::empty(py);
        walk(body, |field, value| {
            match field {
                1 => revision = revision_of(value.bytes())?,
                2 => kvs.append(self.key_value(py, value.bytes())?)?,
                3 => more = value.number() != 0,
                4 => count = value.number(),
                _ => {}
            }
            Ok::<_, DecodeError>(())
        })?;
        self.make(py, &self.range, (revision, kvs, more, count).into_pyobject(py)?)
    }

    fn put_result<'py>(
        &self,
        py: Python<'py>,
        body: &[u8],
    ) -> Result<Bound<'py, PyAny>, DecodeError> {
        let (mut revision, mut prev) = (0, None);
        walk(body, |field, value| {
            match field {
                1 => revision = revision_of(value.bytes())?,
                2 => prev = Some(self.key_value(py, value.bytes())?),
                _ => {}
            }
            Ok::<_, DecodeError>(())
        })?;
        self.make(py, &self.put, (revision, prev).into_pyobject(py)?)
    }

    fn delete_result<'py>(
        &self,
        py: Python<'py>,
        body: &[u8],
    ) -> Result<Bound<'py, PyAny>, DecodeError> {
        let (mut revision, mut deleted) = (0, 0);
        let prev_kvs = PyList::empty(py);
        walk(body, |field, value| {
            match field {
                1 => revision = revision_of(value.bytes())?,
                2 => deleted = value.number(),
                3 => prev_kvs.append(self.key_value(py, value.bytes())?)?,
                _ => {}
            }
            Ok::<_, DecodeError>(())
        })?;
        self.make(py, &self.delete, (revision, deleted, prev_kvs).into_pyobject(py)?)
    }

    fn txn_result<'py>(
        &self,
        py: Python<'py>,
        body: &[u8],
        depth: usize,
    ) -> Result<Bound<'py, PyAny>, DecodeError> {
        if depth > NESTED_MAX {
            return Err("transactions are nested too deep".into());
        }
        let (mut revision, mut succeeded) = (0, false);
        let results = PyList::empty(py);
        walk(body, |field, value| {
            match field {
                1 => revision = revision_of(value.bytes())?,
                2 => succeeded = value.number() != 0,
                3 => results.append(self.op_result(py, value.bytes(), depth)?)?,
                _ => {}
            }
            Ok::<_, DecodeError>(())
        })?;
        self.make(py, &self.txn, (revision, succeeded, results).into_pyobject(py)?)
    }

    fn op_result<'py>(
        &self,
        py: Python<'py>,
        body: &[u8],
        depth: usize,
    ) -> Result<Bound<'py, PyAny>, DecodeError> {
        let mut found = None;
        walk(body, |field, value| {
            if (1..=4).contains(&field) {
                found = Some((field, value.bytes()));
            }
            Ok::<_, DecodeError>(())
        })?;
        match found {
            Some((1, body)) => self.range_result(py, body),
            Some((2, body)) => self.put_result(py, body),
            Some((3, body)) => self.delete_result(py, body),
            Some((_, body)) => self.txn_result(py, body, depth + 1),
            None => Err("an operation's answer is missing".into()),
        }
    }
}
