//! The kernels for Python: columns in, columns out. See `kvstack.component.crate` for their twins.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use crate::kernels::entries::{unwrapped, Wrapping};
use crate::kernels::fan_out;
use crate::kernels::key_values::{revision_key, KeyValue};
use crate::kernels::protobuf::Writer;
use crate::kernels::requests::{self, Put, Swap};
use crate::kernels::responses::{HeaderParts, Swapped};

/// Revision keys and KeyValues, in step.
type Records<'py> = (Bound<'py, PyList>, Bound<'py, PyList>);

/// See `HeaderParts`.
type HeaderArgument<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>);

/// The position of the first call that is left, runs, gets, serializable gets.
type Recognized<'py> = (usize, Bound<'py, PyList>, Bound<'py, PyList>, Bound<'py, PyList>);

/// Recognizes the calls that most calls are; see `kvstore.node.plain_calls`.
#[pyclass(frozen, module = "kvstack.component._native")]
pub struct PlainCalls {
    put: Method,
    range: u32,
    txn: Method,
    overhead_bytes: u64, // of a key, in the estimate of what a write costs
}

/// A method that writes: its id, and its field in InternalRaftRequest.
#[derive(Clone, Copy)]
struct Method {
    id: u32,
    field: u32,
}

/// Columns of calls of one method that follow one another.
struct Run<'py> {
    method: Method,
    call_ids: Bound<'py, PyList>,
    bodies: Bound<'py, PyList>,
    datas: Bound<'py, PyList>,
    keys: Bound<'py, PyList>, // of puts; of swaps: the swaps
    values: Bound<'py, PyList>,
}

impl<'py> Run<'py> {
    fn new(py: Python<'py>, method: Method) -> Self {
        let empty = || PyList::empty(py);
        Run {
            method,
            call_ids: empty(),
            bodies: empty(),
            datas: empty(),
            keys: empty(),
            values: empty(),
        }
    }

    fn columns(self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let Run { method, call_ids, bodies, datas, keys, values } = self;
        (method.field, call_ids, bodies, datas, keys, values).into_pyobject(py)
    }
}

/// What is done with recognized calls.
struct Limits {
    room_bytes: u64,
    data_bytes_max: usize,
}

#[pymethods]
impl PlainCalls {
    /// Methods and fields: see `Method`.
    #[new]
    fn new(put: (u32, u32), range_: u32, txn: (u32, u32), overhead_bytes: u64) -> Self {
        let method = |(id, field)| Method { id, field };
        PlainCalls { put: method(put), range: range_, txn: method(txn), overhead_bytes }
    }

    /// Calls from `start` on, up to the first that is not recognized, or that costs `room_bytes` or more,
    /// or whose entry takes more than `data_bytes_max`. The ids of the entries are prefix | suffix + 1 and
    /// so on, where the suffix has 48 bits.
    ///
    /// A run is (field, call ids, bodies, entries' data, keys, values), of swaps the swaps are instead of
    /// keys.
    fn recognize<'py>(
        &self,
        py: Python<'py>,
        calls: &Bound<'py, PyList>,
        start: usize,
        limits: (u64, usize),
        last_id: (u64, u64),
    ) -> PyResult<Recognized<'py>> {
        let limits = Limits { room_bytes: limits.0, data_bytes_max: limits.1 };
        let (id_prefix, id_suffix) = last_id;
        let (gets, local_gets, runs) = (PyList::empty(py), PyList::empty(py), PyList::empty(py));
        let mut run: Option<Run<'py>> = None;
        let mut suffix = id_suffix;
        let end = calls.len();
        let mut at = start;
        while at < end {
            let call = calls.get_item(at)?;
            let call = call.cast::<PyTuple>()?;
            let method: u32 = call.get_borrowed_item(1)?.extract()?;
            let body = call.get_item(2)?.cast_into::<PyBytes>()?;
            if method == self.range {
                let Some(get) = requests::get(body.as_bytes()) else { break };
                let found = (call.get_borrowed_item(0)?, PyBytes::new(py, get.key));
                if get.is_serializable { &local_gets } else { &gets }.append(found)?;
                at += 1;
                continue;
            }
            let kind = match method {
                each if each == self.put.id => self.put,
                each if each == self.txn.id => self.txn,
                _ => break,
            };
            let id = id_prefix | suffix.wrapping_add(1) & ((1 << 48) - 1);
            if run.as_ref().is_some_and(|run| run.method.id != kind.id) {
                if let Some(run) = run.take() {
                    runs.append(run.columns(py)?)?;
                }
            }
            let is_added = {
                let run = run.get_or_insert_with(|| Run::new(py, kind));
                if kind.id == self.put.id {
                    self.add_put(py, run, &body, id, &limits)?
                } else {
                    self.add_swap(py, run, &body, id, &limits)?
                }
            };
            if !is_added {
                break;
            }
            if let Some(run) = &run {
                run.call_ids.append(call.get_borrowed_item(0)?)?;
                run.bodies.append(body)?;
            }
            suffix += 1;
            at += 1;
        }
        if let Some(run) = run.filter(|run| !run.call_ids.is_empty()) {
            runs.append(run.columns(py)?)?;
        }
        Ok((at, runs, gets, local_gets))
    }

    /// The plain puts in entries from `start` on, up to the first other entry: keys and values.
    fn puts_of_entries<'py>(
        &self,
        py: Python<'py>,
        entries: &Bound<'py, PyList>,
        start: usize,
    ) -> PyResult<(Bound<'py, PyList>, Bound<'py, PyList>)> {
        let (keys, values) = (PyList::empty(py), PyList::empty(py));
        for at in start..entries.len() {
            let entry = entries.get_item(at)?;
            let entry = entry.cast::<PyTuple>()?;
            let kind: u64 = entry.get_borrowed_item(0)?.extract()?;
            let data = entry.get_item(3)?.cast_into::<PyBytes>()?;
            let body = unwrapped(self.put.field, data.as_bytes()).filter(|_| kind == 0);
            let Some(put) = body.and_then(requests::put) else { break };
            keys.append(PyBytes::new(py, put.key))?;
            values.append(PyBytes::new(py, put.value))?;
        }
        Ok((keys, values))
    }
}

impl PlainCalls {
    fn add_put<'py>(
        &self,
        py: Python<'py>,
        run: &Run<'py>,
        body: &Bound<'py, PyBytes>,
        id: u64,
        limits: &Limits,
    ) -> PyResult<bool> {
        let bytes = body.as_bytes();
        let Some(Put { key, value }) = requests::put(bytes) else { return Ok(false) };
        if bytes.len() as u64 + self.overhead_bytes >= limits.room_bytes {
            return Ok(false);
        }
        let Some(data) = wrapped(py, run.method.field, bytes, id, limits)? else {
            return Ok(false);
        };
        run.datas.append(data)?;
        run.keys.append(PyBytes::new(py, key))?;
        run.values.append(PyBytes::new(py, value))?;
        Ok(true)
    }

    fn add_swap<'py>(
        &self,
        py: Python<'py>,
        run: &Run<'py>,
        body: &Bound<'py, PyBytes>,
        id: u64,
        limits: &Limits,
    ) -> PyResult<bool> {
        let bytes = body.as_bytes();
        let Some(swap) = requests::swap(bytes) else { return Ok(false) };
        let Swap { compared, number_at, relation, number, key, value, lease, otherwise } = swap;
        if (key.len() + value.len()) as u64 + self.overhead_bytes >= limits.room_bytes {
            return Ok(false);
        }
        let Some(data) = wrapped(py, run.method.field, bytes, id, limits)? else {
            return Ok(false);
        };
        run.datas.append(data)?;
        let new_key = PyBytes::new(py, key);
        // The same key in all places is one object.
        let same = |other: &[u8]| match other == key {
            true => new_key.clone(),
            false => PyBytes::new(py, other),
        };
        let (compared, otherwise) = (same(compared), same(otherwise));
        run.keys.append((compared, number_at, relation, number, new_key, lease, otherwise))?;
        run.values.append(PyBytes::new(py, value))?;
        Ok(true)
    }
}

fn wrapped<'py>(
    py: Python<'py>,
    field: u32,
    body: &[u8],
    id: u64,
    limits: &Limits,
) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let wrapping = Wrapping::new(field, body, id);
    let Some(wrapping) = wrapping.filter(|each| each.size() <= limits.data_bytes_max) else {
        return Ok(None);
    };
    let data = PyBytes::new_with(py, wrapping.size(), |out| {
        wrapping.write(out);
        Ok(())
    })?;
    Ok(Some(data))
}

/// Functions of columns; `kvstore.wire.columns` has the same ones.
#[pyclass(frozen, module = "kvstack.component._native")]
pub struct Kernels;

#[pymethods]
impl Kernels {
    #[new]
    fn new() -> Self {
        Kernels
    }

    /// The revision keys and KeyValues of puts at consecutive main revisions from `first` on; leases: None
    /// if no key has one.
    fn encode_puts<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyList>,
        values: &Bound<'py, PyList>,
        leases: Option<&Bound<'py, PyList>>,
        numbers: (Bound<'py, PyList>, Bound<'py, PyList>),
        first: u64,
    ) -> PyResult<Records<'py>> {
        let (creates, versions) = numbers;
        let count = keys.len();
        let others = [values, &creates, &versions];
        if others.iter().any(|each| each.len() != count) || leases.is_some_and(|l| l.len() != count)
        {
            return Err(PyValueError::new_err(format!("columns of {count} keys differ in length")));
        }
        let (revision_keys, kvs) = (PyList::empty(py), PyList::empty(py));
        for (at, modified) in (0..count).zip(first..) {
            let (key, value) = (keys.get_item(at)?, values.get_item(at)?);
            let lease: i64 = leases.map_or(Ok(0), |leases| leases.get_item(at)?.extract())?;
            let kv = KeyValue {
                key: key.cast::<PyBytes>()?.as_bytes(),
                create: creates.get_item(at)?.extract()?,
                modified,
                version: versions.get_item(at)?.extract()?,
                value: value.cast::<PyBytes>()?.as_bytes(),
                lease: lease as u64, // two's complement, as protobuf has it
            };
            kvs.append(PyBytes::new_with(py, kv.size(), |out| {
                kv.write(out);
                Ok(())
            })?)?;
            revision_keys.append(PyBytes::new(py, &revision_key(modified)))?;
        }
        Ok((revision_keys, kvs))
    }

    /// Replies to puts at consecutive revisions from `first` on; head and tail: see `HeaderParts`.
    fn put_replies<'py>(
        &self,
        py: Python<'py>,
        call_ids: &Bound<'py, PyList>,
        header: HeaderArgument<'py>,
        first: u64,
    ) -> PyResult<Bound<'py, PyList>> {
        let header = HeaderParts { head: header.0.as_bytes(), tail: header.1.as_bytes() };
        let replies = PyList::empty(py);
        for (call_id, revision) in call_ids.iter().zip(first..) {
            let response = PyBytes::new_with(py, header.size(revision), |out| {
                header.write(&mut Writer::new(out), revision);
                Ok(())
            })?;
            replies.append((call_id, 0u8, response))?;
        }
        Ok(replies)
    }

    /// Replies to swaps, each at its revision. How each ended is a byte of `outcomes`: 0 put, 1 nothing, 2 a
    /// get of a key that is absent, 3 a get of the next of `kvs`.
    fn swap_replies<'py>(
        &self,
        py: Python<'py>,
        call_ids: &Bound<'py, PyList>,
        outcomes: &[u8],
        revisions: &Bound<'py, PyList>,
        kvs: &Bound<'py, PyList>,
        header: HeaderArgument<'py>,
    ) -> PyResult<Bound<'py, PyList>> {
        let header = HeaderParts { head: header.0.as_bytes(), tail: header.1.as_bytes() };
        let replies = PyList::empty(py);
        let mut read = 0;
        if call_ids.len() != outcomes.len() || call_ids.len() != revisions.len() {
            return Err(PyValueError::new_err("columns of swaps differ in length"));
        }
        for (at, outcome) in outcomes.iter().enumerate() {
            let revision: u64 = revisions.get_item(at)?.extract()?;
            let kv;
            let swapped = match outcome {
                0 => Swapped::Done,
                1 => Swapped::Not,
                2 => Swapped::Got(None),
                3 => {
                    kv = kvs.get_item(read)?.cast_into::<PyBytes>()?;
                    read += 1;
                    Swapped::Got(Some(kv.as_bytes()))
                }
                other => return Err(PyValueError::new_err(format!("{other} is no outcome"))),
            };
            let response = PyBytes::new_with(py, swapped.size(&header, revision), |out| {
                swapped.write(out, &header, revision);
                Ok(())
            })?;
            replies.append((call_ids.get_item(at)?, 0u8, response))?;
        }
        Ok(replies)
    }

    /// Replies to gets, (call id, key), whose KeyValues are known (None: there is none), with one header field.
    fn get_replies<'py>(
        &self,
        py: Python<'py>,
        gets: &Bound<'py, PyList>,
        kvs: &Bound<'py, PyList>,
        header: &Bound<'py, PyBytes>,
    ) -> PyResult<Bound<'py, PyList>> {
        if gets.len() != kvs.len() {
            let text = format!("{} gets and {} KeyValues", gets.len(), kvs.len());
            return Err(PyValueError::new_err(text));
        }
        let replies = PyList::empty(py);
        for (get, kv) in gets.iter().zip(kvs.iter()) {
            let call_id = get.cast::<PyTuple>()?.get_item(0)?;
            let response = if kv.is_none() {
                header.clone()
            } else {
                let (head, kv) = (header.as_bytes(), kv.cast::<PyBytes>()?.as_bytes());
                let size = head.len() + 1 + crate::kernels::protobuf::bytes_size(kv.len()) + 2;
                PyBytes::new_with(py, size, |out| {
                    let mut out = Writer::new(out);
                    out.bytes(head);
                    out.bytes_field(0x12, kv);
                    out.bytes(b"\x20\x01"); // the count
                    Ok(())
                })?
            };
            replies.append((call_id, 0u8, response))?;
        }
        Ok(replies)
    }

    /// The messages of a fan-out with gRPC's prefixes, joined into blocks; see `fan_out`.
    fn join_messages<'py>(
        &self,
        py: Python<'py>,
        head: &[u8],
        tail: &[u8],
        middles: Vec<Bound<'py, PyBytes>>,
        block_bytes_max: usize,
    ) -> PyResult<Bound<'py, PyList>> {
        let middles: Vec<&[u8]> = middles.iter().map(|middle| middle.as_bytes()).collect();
        let blocks = fan_out::join(head, tail, &middles, block_bytes_max);
        PyList::new(py, blocks.iter().map(|block| PyBytes::new(py, &block.bytes)))
    }

    /// How many tuples have each number at position 1, and how many bytes are at position 2.
    fn tally<'py>(
        &self,
        py: Python<'py>,
        tuples: &Bound<'py, PyList>,
    ) -> PyResult<(Bound<'py, PyDict>, usize)> {
        let mut counts: Vec<(i64, usize)> = Vec::new();
        let mut bytes = 0;
        for each in tuples.iter() {
            let each = each.cast::<PyTuple>()?;
            let number: i64 = each.get_borrowed_item(1)?.extract()?;
            bytes += each.get_item(2)?.cast::<PyBytes>()?.as_bytes().len();
            match counts.iter_mut().find(|(known, _)| *known == number) {
                Some((_, count)) => *count += 1,
                None => counts.push((number, 1)),
            }
        }
        let found = PyDict::new(py);
        for (number, count) in counts {
            found.set_item(number, count)?;
        }
        Ok((found, bytes))
    }
}
