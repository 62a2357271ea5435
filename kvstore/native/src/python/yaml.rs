//! YAML for Python: see `kvstack.apimachinery.objects.text.yaml_text`.
//!
//! A text is read without Python's lock, which is then held to make Python's objects: 100,000 values, the
//! most that a text may hold, take it for about 20 ms.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use crate::yaml::{try_read, Document, Limits, Nodes, Refusal, Scalar, Value};

/// So many bytes are read with Python's lock: it would take longer to have it back.
const LOCKED_BYTES_MAX: usize = 16 << 10;

/// Limits of one text: depth, values, bytes that aliases repeat, directives.
type LimitsArgument = (usize, usize, usize, usize);

/// The value of the first document, lines and keys that stand twice, and None; or None, nothing, and why
/// the text is refused: ("text", what is said), ("count", at least so many values), ("key", the value in
/// place of a key), ("name", the key that cannot be a member's name, the member's value) or ("unread", ""): the
/// twin has to read it.
#[pyfunction]
pub fn read_yaml<'py>(
    py: Python<'py>,
    data: &Bound<'py, PyBytes>,
    limits: LimitsArgument,
) -> PyResult<Bound<'py, PyTuple>> {
    let (depth_max, values_max, repeated_bytes_max, directives_max) = limits;
    let limits = Limits { depth_max, values_max, repeated_bytes_max, directives_max };
    let bytes = data.as_bytes();
    let mut nodes = Nodes::default();
    let read = if bytes.len() > LOCKED_BYTES_MAX {
        py.detach(|| try_read(bytes, &limits, &mut nodes))
    } else {
        try_read(bytes, &limits, &mut nodes)
    };
    let Some(read) = read else {
        return (py.None(), PyList::empty(py), ("unread", "")).into_pyobject(py);
    };
    match read {
        Ok(Document { value, repeated }) => {
            let keys = PyList::empty(py);
            for (line, key) in repeated {
                keys.append((line, scalar(py, &key)?))?;
            }
            (object(py, &value)?, keys, py.None()).into_pyobject(py)
        }
        Err(refusal) => (py.None(), PyList::empty(py), refused(py, refusal)?).into_pyobject(py),
    }
}

fn refused<'py>(py: Python<'py>, refusal: Refusal<'_>) -> PyResult<Bound<'py, PyTuple>> {
    match refusal {
        Refusal::Text(text) => ("text", text).into_pyobject(py),
        Refusal::Count(count) => ("count", count).into_pyobject(py),
        Refusal::InvalidKey(value) => ("key", object(py, &value)?).into_pyobject(py),
        Refusal::UnsupportedKey(key, value) => {
            ("name", scalar(py, &key)?, object(py, &value)?).into_pyobject(py)
        }
    }
}

fn object<'py>(py: Python<'py>, value: &Value<'_>) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Scalar(value) => scalar(py, value)?,
        Value::List(items) => {
            let objects =
                items.iter().map(|item| object(py, item)).collect::<PyResult<Vec<_>>>()?;
            PyList::new(py, objects)?.into_any()
        }
        Value::Object(members) => {
            let objects = PyDict::new(py);
            for (name, value) in members {
                objects.set_item(PyString::new(py, name), object(py, value)?)?;
            }
            objects.into_any()
        }
    })
}

fn scalar<'py>(py: Python<'py>, value: &Scalar<'_>) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Scalar::Null => py.None().into_bound(py),
        Scalar::Bool(value) => PyBool::new(py, *value).to_owned().into_any(),
        Scalar::Int(value) => PyInt::new(py, *value).into_any(),
        Scalar::Unsigned(value) => PyInt::new(py, *value).into_any(),
        Scalar::Float(value) => PyFloat::new(py, *value).into_any(),
        Scalar::Text(value) => PyString::new(py, value).into_any(),
    })
}
