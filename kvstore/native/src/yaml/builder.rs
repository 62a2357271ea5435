//! Values of nodes, as upstream makes them on the way from YAML over JSON to an object.

use std::borrow::Cow;
use std::collections::HashSet;

use super::nodes::{Content, Id, Node, Nodes};
use super::scalars::{resolve, Scalar, MERGE};
use super::{floats, too_deep, Document, Limits, Refusal, Value};

/// From so many nodes on, fewer of them may come from aliases; up to so many.
const ALIASES_LOW: f64 = 400_000.0;
const ALIASES_HIGH: f64 = 4_000_000.0;
const EXCESSIVE: &str = "yaml: document contains excessive aliasing";
const NO_MAPPING: &str = "yaml: map merge requires map or sequence of maps as the value";

type Built<'a, T> = Result<T, Refusal<'a>>;
type Members<'a> = Vec<(Cow<'a, str>, Value<'a>)>;

/// A key for the detection of duplicates.
#[derive(Hash, PartialEq, Eq)]
enum Key<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Unsigned(u64),
    Float(u64),
    Text(Cow<'a, str>),
}

pub fn build<'a>(nodes: &'a Nodes, root: Id, limits: &Limits) -> Built<'a, Document<'a>> {
    let mut builder = Builder {
        nodes,
        limits,
        repeated: Vec::new(),
        refusal: None,
        is_followed: vec![false; nodes.len()],
        following: 0,
        count: 0,
        count_by_alias: 0,
        bytes_by_alias: 0,
    };
    let value = builder.build(root, 0)?;
    match builder.refusal {
        Some(refusal) => Err(refusal),
        None => Ok(Document { value, repeated: builder.repeated }),
    }
}

struct Builder<'a, 'l> {
    nodes: &'a Nodes,
    limits: &'l Limits,
    repeated: Vec<(u64, Scalar<'a>)>,
    /// Why JSON cannot represent it, if so; YAML errors are reported first.
    refusal: Option<Refusal<'a>>,
    is_followed: Vec<bool>, // by the ids of aliases
    following: usize,
    count: usize,
    count_by_alias: usize,
    bytes_by_alias: usize,
}

impl<'a> Builder<'a, '_> {
    fn build(&mut self, id: Id, depth: usize) -> Built<'a, Value<'a>> {
        let node = self.nodes.get(id);
        self.visit(node, depth)?;
        match &node.content {
            Content::Scalar { tag, text } => {
                let scalar = resolve(tag, text).map_err(Refusal::Text)?;
                Ok(Value::Scalar(self.number(scalar)))
            }
            Content::List(children) => {
                let mut items = Vec::with_capacity(children.len());
                for &child in children {
                    items.push(self.build(child, depth + 1)?);
                }
                Ok(Value::List(items))
            }
            Content::Alias { anchor, target } => {
                self.follow(id, anchor)?;
                let value = self.build(*target, depth)?;
                self.leave(id);
                Ok(value)
            }
            Content::Mapping(children) => {
                let mut members = Vec::with_capacity(children.len() / 2);
                self.fill(&mut members, &mut HashSet::new(), children, depth)?;
                Ok(Value::Object(sorted(members)))
            }
        }
    }

    /// Add the members that a mapping has; later ones replace earlier ones.
    fn fill(
        &mut self,
        members: &mut Members<'a>,
        keys: &mut HashSet<Key<'a>>,
        children: &'a [Id],
        depth: usize,
    ) -> Built<'a, ()> {
        for pair in children.chunks_exact(2) {
            let (key, value) = (pair[0], pair[1]);
            if is_merge(self.nodes.get(key)) {
                self.merge(members, keys, value, depth)?;
                continue;
            }
            let name = self.key(key, depth)?;
            let built = self.build(value, depth + 1)?;
            if !keys.insert(typed(&name)) {
                self.repeated.push((self.nodes.get(value).line, name.clone()));
            }
            match member_name(name) {
                Ok(name) => members.push((name, built)),
                Err(name) => {
                    self.refusal.get_or_insert(Refusal::UnsupportedKey(name, built));
                }
            }
        }
        Ok(())
    }

    /// A scalar as it comes out of JSON.
    fn number(&mut self, scalar: Scalar<'a>) -> Scalar<'a> {
        match scalar {
            Scalar::Unsigned(number) => Scalar::Float(number as f64),
            Scalar::Float(number) if !number.is_finite() => {
                let shown = match number {
                    number if number.is_nan() => "NaN",
                    number if number > 0.0 => "+Inf",
                    _ => "-Inf",
                };
                let text = format!("json: unsupported value: {shown}");
                self.refusal.get_or_insert(Refusal::Text(text));
                scalar
            }
            Scalar::Float(number) if number.fract() == 0.0 && is_small(number) => {
                Scalar::Int(number as i64)
            }
            _ => scalar,
        }
    }

    fn key(&mut self, id: Id, depth: usize) -> Built<'a, Scalar<'a>> {
        let node = self.nodes.get(id);
        self.visit(node, depth)?;
        match &node.content {
            Content::Alias { anchor, target } => {
                self.follow(id, anchor)?;
                self.leave(id);
                self.key(*target, depth + 1)
            }
            Content::Scalar { tag, text } => resolve(tag, text).map_err(Refusal::Text),
            _ => {
                let value = self.build(id, depth)?;
                Err(Refusal::InvalidKey(value))
            }
        }
    }

    /// Take over the members of the mappings that stand after a `<<`.
    fn merge(
        &mut self,
        members: &mut Members<'a>,
        keys: &mut HashSet<Key<'a>>,
        id: Id,
        depth: usize,
    ) -> Built<'a, ()> {
        let single = [id];
        let merged = match &self.nodes.get(id).content {
            Content::List(children) => children,
            _ => &single[..],
        };
        // Of several the first counts most, so it comes last.
        for &each in merged.iter().rev() {
            let node = self.nodes.get(each);
            self.visit(node, depth)?;
            let content = match &node.content {
                Content::Alias { anchor, target } => {
                    self.follow(each, anchor)?;
                    let target = self.nodes.get(*target);
                    self.visit(target, depth + 1)?;
                    &target.content
                }
                content => content,
            };
            let Content::Mapping(children) = content else {
                return Err(Refusal::Text(NO_MAPPING.to_owned()));
            };
            self.fill(members, keys, children, depth + 1)?;
            self.leave(each);
        }
        Ok(())
    }

    /// Note that an alias is followed, until it is left.
    fn follow(&mut self, id: Id, anchor: &str) -> Built<'a, ()> {
        if std::mem::replace(&mut self.is_followed[id], true) {
            let text = format!("yaml: anchor '{anchor}' value contains itself");
            return Err(Refusal::Text(text));
        }
        self.following += 1;
        Ok(())
    }

    fn leave(&mut self, id: Id) {
        if std::mem::take(&mut self.is_followed[id]) {
            self.following -= 1;
        }
    }

    /// Count a node, unless too many come from aliases, or they nest too deep.
    fn visit(&mut self, node: &Node, depth: usize) -> Built<'a, ()> {
        if depth > self.limits.depth_max {
            return Err(too_deep(node.line, self.limits));
        }
        self.count += 1;
        if self.following > 0 {
            self.count_by_alias += 1;
            if let Content::Scalar { text, .. } = &node.content {
                self.bytes_by_alias += text.len();
            }
        }
        let share = self.count_by_alias as f64 / self.count as f64;
        let is_excessive =
            self.count_by_alias > 100 && self.count > 1000 && share > allowed_share(self.count);
        if is_excessive || self.bytes_by_alias > self.limits.repeated_bytes_max {
            return Err(Refusal::Text(EXCESSIVE.to_owned()));
        }
        let values = self.count / 2; // a member is two nodes
        if values > self.limits.values_max {
            return Err(Refusal::Count(values));
        }
        Ok(())
    }
}

fn is_merge(key: &Node) -> bool {
    let Content::Scalar { tag, text } = &key.content else { return false };
    text == "<<" && (tag.is_empty() || tag == MERGE)
}

/// Which share of so many nodes may come from aliases.
fn allowed_share(count: usize) -> f64 {
    let part = (count as f64 - ALIASES_LOW) / (ALIASES_HIGH - ALIASES_LOW);
    0.99 - 0.89 * part.clamp(0.0, 1.0)
}

/// Whether an integer fits into 64 bits.
fn is_small(number: f64) -> bool {
    (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&number)
}

fn typed<'a>(key: &Scalar<'a>) -> Key<'a> {
    match key {
        Scalar::Null => Key::Null,
        Scalar::Bool(is_true) => Key::Bool(*is_true),
        Scalar::Int(number) => Key::Int(*number),
        Scalar::Unsigned(number) => Key::Unsigned(*number),
        Scalar::Float(number) => Key::Float((number + 0.0).to_bits()), // 0 is -0
        Scalar::Text(text) => Key::Text(text.clone()),
    }
}

/// The name of the member that a key of a mapping becomes, or the key, which becomes none.
fn member_name<'a>(key: Scalar<'a>) -> Result<Cow<'a, str>, Scalar<'a>> {
    Ok(match key {
        Scalar::Text(text) => text,
        Scalar::Bool(true) => "true".into(),
        Scalar::Bool(false) => "false".into(),
        Scalar::Int(number) => number.to_string().into(),
        Scalar::Float(number) => floats::name(number).into(),
        Scalar::Null | Scalar::Unsigned(_) => return Err(key),
    })
}

/// Members in the order of their names, of several with one name the last.
fn sorted(mut members: Members<'_>) -> Members<'_> {
    members.sort_by(|(left, _), (right, _)| left.cmp(right)); // stable
    members.dedup_by(|later, earlier| {
        let is_same = later.0 == earlier.0;
        if is_same {
            std::mem::swap(later, earlier);
        }
        is_same
    });
    members
}
