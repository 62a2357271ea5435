//! Rows of the database with their checksums, for Python: see `kvstore.storage.row_sums.RowSums`.
//!
//! A function that checks returns None if a row is not what was written.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::rows::{self, Checker, SUM_BYTES};

const FIELD_2: u8 = 0x12; // of a protobuf message, by length

/// What a database with checksums does to its rows; equal to `PythonSums`, and faster.
#[pyclass(frozen, module = "kvstack.component._native")]
pub struct RowSums;

#[pymethods]
impl RowSums {
    #[new]
    fn new() -> Self {
        RowSums
    }

    /// Rows of keys and values, as they are stored.
    fn seal<'py>(
        &self,
        py: Python<'py>,
        rows: &Bound<'py, PyList>,
    ) -> PyResult<Bound<'py, PyList>> {
        let sealed = PyList::empty(py);
        for row in rows.iter() {
            let (key, value) = pair(&row)?;
            let (key_bytes, value_bytes) = (key.as_bytes(), value.as_bytes());
            let size = value_bytes.len();
            let stored = PyBytes::new_with(py, size + SUM_BYTES, |out| {
                out[..size].copy_from_slice(value_bytes);
                out[size..].copy_from_slice(&rows::sum(key_bytes, value_bytes).to_le_bytes());
                Ok(())
            })?;
            sealed.append(PyTuple::new(py, [key, stored])?)?;
        }
        Ok(sealed)
    }

    /// The value of one row.
    fn value<'py>(
        &self,
        py: Python<'py>,
        key: &[u8],
        stored: &[u8],
    ) -> Option<Bound<'py, PyBytes>> {
        rows::checked(key, stored).map(|value| PyBytes::new(py, value))
    }

    /// The values of rows.
    fn values<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyList>,
        stored: &Bound<'py, PyList>,
    ) -> PyResult<Option<Bound<'py, PyList>>> {
        same_length(keys, stored)?;
        let values = PyList::empty(py);
        for (key, row) in keys.iter().zip(stored.iter()) {
            let Some(value) = rows::checked(bytes(&key)?.as_bytes(), bytes(&row)?.as_bytes())
            else {
                return Ok(None);
            };
            values.append(PyBytes::new(py, value))?;
        }
        Ok(Some(values))
    }

    /// Rows of keys and values.
    fn rows<'py>(
        &self,
        py: Python<'py>,
        rows: &Bound<'py, PyList>,
    ) -> PyResult<Option<Bound<'py, PyList>>> {
        let checked = PyList::empty(py);
        for row in rows.iter() {
            let (key, stored) = pair(&row)?;
            let Some(value) = rows::checked(key.as_bytes(), stored.as_bytes()) else {
                return Ok(None);
            };
            let value = PyBytes::new(py, value);
            checked.append(PyTuple::new(py, [key, value])?)?;
        }
        Ok(Some(checked))
    }

    /// `head`, the values of rows, each as field 2 of a message, and `tail`.
    fn fields<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyList>,
        stored: &Bound<'py, PyList>,
        head: &[u8],
        tail: &[u8],
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        same_length(keys, stored)?;
        let rows = stored
            .iter()
            .map(|row| Ok(row.cast_into::<PyBytes>()?))
            .collect::<PyResult<Vec<_>>>()?;
        let mut size = head.len() + tail.len();
        for row in &rows {
            let value_size = row.as_bytes().len().saturating_sub(SUM_BYTES);
            size += 1 + varint_size(value_size) + value_size;
        }
        let mut is_damaged = false;
        let fields = PyBytes::new_with(py, size, |mut out| {
            let mut checker = Checker::default();
            put(&mut out, head);
            for (key, row) in keys.iter().zip(&rows) {
                let row = row.as_bytes();
                checker.add(bytes(&key)?.as_bytes(), row);
                let value = &row[..row.len().saturating_sub(SUM_BYTES)];
                put_length(&mut out, value.len());
                put(&mut out, value);
            }
            put(&mut out, tail);
            is_damaged = !checker.are_intact();
            Ok(())
        })?;
        Ok((!is_damaged).then_some(fields))
    }
}

fn bytes<'a, 'py>(object: &'a Bound<'py, PyAny>) -> PyResult<&'a Bound<'py, PyBytes>> {
    Ok(object.cast::<PyBytes>()?)
}

fn pair<'py>(row: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
    let row = row.cast::<PyTuple>()?;
    Ok((row.get_item(0)?.cast_into::<PyBytes>()?, row.get_item(1)?.cast_into::<PyBytes>()?))
}

fn same_length(keys: &Bound<'_, PyList>, stored: &Bound<'_, PyList>) -> PyResult<()> {
    if keys.len() == stored.len() {
        return Ok(());
    }
    let text = format!("{} keys and {} rows", keys.len(), stored.len());
    Err(PyValueError::new_err(text))
}

fn varint_size(mut number: usize) -> usize {
    let mut size = 1;
    while number > 127 {
        number >>= 7;
        size += 1;
    }
    size
}

/// Write at the front of `out`, which then begins after it.
fn put(out: &mut &mut [u8], data: &[u8]) {
    let (front, rest) = std::mem::take(out).split_at_mut(data.len());
    front.copy_from_slice(data);
    *out = rest;
}

fn put_length(out: &mut &mut [u8], mut number: usize) {
    let mut head = [FIELD_2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut at = 1;
    while number > 127 {
        head[at] = number as u8 | 0x80;
        number >>= 7;
        at += 1;
    }
    head[at] = number as u8;
    put(out, &head[..=at]);
}
