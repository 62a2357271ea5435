//! Entries of the write-ahead log, encoded.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::wal;

/// Records of the log for entries (type, term, index, data) and then for a state, unless it is empty, and
/// the crc after the last.
#[pyfunction]
pub fn encode_entries<'py>(
    py: Python<'py>,
    entries: &Bound<'py, PyList>,
    state: &[u8],
    crc: u32,
) -> PyResult<(Bound<'py, PyBytes>, u32)> {
    let mut out = Vec::with_capacity(entries.len() * 512);
    let mut crc = crc;
    for entry in entries.iter() {
        let entry = entry.cast::<PyTuple>()?;
        let data = entry.get_item(3)?.cast_into::<PyBytes>()?;
        let parts = wal::Entry {
            kind: entry.get_borrowed_item(0)?.extract()?,
            term: entry.get_borrowed_item(1)?.extract()?,
            index: entry.get_borrowed_item(2)?.extract()?,
            data: data.as_bytes(),
        };
        crc = wal::append_entry(&mut out, &parts, crc);
    }
    if !state.is_empty() {
        crc = wal::append_state(&mut out, state, crc);
    }
    Ok((PyBytes::new(py, &out), crc))
}
