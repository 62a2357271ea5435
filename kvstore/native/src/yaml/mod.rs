//! YAML as Kubernetes reads it: the first document of a text becomes a tree of values.
//!
//! ```text
//! bytes ──► windows ──► libyaml-safer ──► nodes ──► builder ──► values, keys that stand twice
//!           (UTF-8)        (events)
//! ```
//!
//! `kvstack.apimachinery.objects.text.yaml_text` has the twin in Python, which is the reference: it
//! reads libyaml's events. Values, errors and limits are the same. Nothing here needs Python's lock.
//!
//! libyaml-safer panics where a tag precedes a comma (`[!!str, a]`), and where a block scalar ends
//! in spaces at the end of a text. `try_read` catches that, and the twin reads such a text.

mod builder;
mod floats;
mod nodes;
mod scalars;
mod times;
mod windows;

use std::borrow::Cow;
use std::panic::{catch_unwind, AssertUnwindSafe};

pub use nodes::Nodes;
pub use scalars::Scalar;

/// What one text may ask for, whatever its bytes.
pub struct Limits {
    pub depth_max: usize,
    pub values_max: usize,
    /// Bytes of scalars that aliases repeat.
    pub repeated_bytes_max: usize,
    pub directives_max: usize,
}

/// What is at one position of an object, as it comes out of JSON.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    Scalar(Scalar<'a>),
    List(Vec<Value<'a>>),
    /// Members by their names, sorted.
    Object(Vec<(Cow<'a, str>, Value<'a>)>),
}

/// What a text holds.
#[derive(Debug, PartialEq)]
pub struct Document<'a> {
    pub value: Value<'a>,
    /// Lines and keys that stand twice.
    pub repeated: Vec<(u64, Scalar<'a>)>,
}

/// Why a text is refused.
#[derive(Debug, PartialEq)]
pub enum Refusal<'a> {
    /// In upstream's words.
    Text(String),
    /// It holds more values than it may: at least so many.
    Count(usize),
    /// A list or an object in the position of a key.
    InvalidKey(Value<'a>),
    /// JSON has no member of such a name; with the value that it had.
    UnsupportedKey(Scalar<'a>, Value<'a>),
}

/// Read the first document; `nodes` is empty, and holds the texts of what is returned.
fn read<'a>(
    data: &[u8],
    limits: &Limits,
    nodes: &'a mut Nodes,
) -> Result<Document<'a>, Refusal<'a>> {
    match nodes.compose(data, limits)? {
        None => Ok(Document { value: Value::Scalar(Scalar::Null), repeated: Vec::new() }),
        Some(root) => builder::build(nodes, root, limits),
    }
}

/// `read`, or None if the parser panics.
pub fn try_read<'a>(
    data: &[u8],
    limits: &Limits,
    nodes: &'a mut Nodes,
) -> Option<Result<Document<'a>, Refusal<'a>>> {
    let nodes = AssertUnwindSafe(nodes); // they are dropped if it panics
    catch_unwind(move || {
        let captured = nodes; // as a whole
        read(data, limits, captured.0)
    })
    .ok()
}

fn too_deep<'a>(line: u64, limits: &Limits) -> Refusal<'a> {
    Refusal::Text(format!("yaml: line {line}: exceeded max depth of {}", limits.depth_max))
}

#[cfg(test)]
mod tests;
