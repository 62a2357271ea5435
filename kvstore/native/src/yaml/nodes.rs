//! The nodes of the first document, in one vector.

use std::borrow::Cow;
use std::collections::HashMap;

use libyaml_safer::{Encoding, Error, ErrorKind, Event, EventData, Mark, Parser, ScalarStyle};

use super::windows::{count_directives, is_break, Windows, MARK_UTF8};
use super::{too_deep, Limits, Refusal};

const UNEXPECTED_END: &str = "found unexpected end of stream"; // of a quoted scalar, at its line
pub const STR: &str = "tag:yaml.org,2002:str";

/// The position of a node.
pub type Id = usize;

pub enum Content {
    /// Its tag in full; empty if its form decides, STR if it is quoted.
    Scalar {
        tag: String,
        text: String,
    },
    List(Vec<Id>),
    /// Keys and values in turn.
    Mapping(Vec<Id>),
    Alias {
        anchor: String,
        target: Id,
    },
}

pub struct Node {
    pub line: u64,
    pub content: Content,
}

/// All nodes of a document; it starts without any.
#[derive(Default)]
pub struct Nodes(Vec<Node>);

impl Nodes {
    pub fn get(&self, id: Id) -> &Node {
        &self.0[id]
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Make nodes of the first document and return its root; None: there is no document.
    pub(super) fn compose<'a>(
        &mut self,
        data: &[u8],
        limits: &Limits,
    ) -> Result<Option<Id>, Refusal<'a>> {
        let data = if data.is_empty() { b"\n" } else { data };
        let directives_max = limits.directives_max;
        if count_directives(data) > directives_max {
            let text = format!("yaml: a document may have at most {directives_max} directives");
            return Err(Refusal::Text(text));
        }
        let text = with_last_break(data);
        let mut parser = Parser::new();
        parser.set_encoding(Encoding::Utf8);
        parser.set_input(Windows::new(&text));
        Composer {
            parser,
            nodes: self,
            anchors: HashMap::new(),
            count: 0,
            limits,
            added_break: (text.len() > data.len()).then_some(data.len() as u64),
        }
        .compose()
    }

    fn add(&mut self, line: u64, content: Content) -> Id {
        self.0.push(Node { line, content });
        self.0.len() - 1
    }
}

/// A text that may end in a block scalar, with a line break at its end: libyaml-safer panics where a
/// line of one ends without. What comes of the break is taken back: see `Composer::added_break`.
fn with_last_break(data: &[u8]) -> Cow<'_, [u8]> {
    let Ok(text) = std::str::from_utf8(data) else { return data.into() };
    let last_line = text.rsplit(is_break).next().unwrap_or_default();
    let is_blank = last_line.trim_start_matches(' ').is_empty();
    if is_blank || data.starts_with(MARK_UTF8) || !text.contains(['|', '>']) {
        return data.into();
    }
    [data, b"\n"].concat().into()
}

struct Composer<'c> {
    parser: Parser<Windows<'c>>,
    nodes: &'c mut Nodes,
    anchors: HashMap<String, Id>,
    count: usize,
    limits: &'c Limits,
    added_break: Option<u64>, // its position
}

impl Composer<'_> {
    fn compose<'a>(mut self) -> Result<Option<Id>, Refusal<'a>> {
        self.next()?;
        if matches!(self.next()?.data, EventData::StreamEnd) {
            return Ok(None);
        }
        let event = self.next()?;
        let root = self.node(event, 0)?;
        self.next()?;
        Ok(Some(root))
    }

    fn next<'a>(&mut self) -> Result<Event, Refusal<'a>> {
        let added_break = self.added_break;
        self.parser.parse().map_err(|error| Refusal::Text(problem(error, added_break)))
    }

    fn node<'a>(&mut self, event: Event, depth: usize) -> Result<Id, Refusal<'a>> {
        self.count += 1;
        let count = self.count / 2; // a member is two nodes
        if count > self.limits.values_max {
            return Err(Refusal::Count(count));
        }
        let line = event.start_mark.line + 1;
        match event.data {
            EventData::Scalar { anchor, tag, mut value, plain_implicit, style, .. } => {
                let is_block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
                if is_block && is_behind(event.end_mark, self.added_break) && value.ends_with('\n')
                {
                    value.pop();
                }
                let given = if plain_implicit { "" } else { STR };
                let tag = tag.filter(|tag| !tag.is_empty()).unwrap_or_else(|| given.to_owned());
                let id = self.nodes.add(line, Content::Scalar { tag, text: value });
                self.note(anchor, id);
                Ok(id)
            }
            EventData::Alias { anchor } => match self.anchors.get(&anchor) {
                Some(&target) => Ok(self.nodes.add(line, Content::Alias { anchor, target })),
                None => Err(Refusal::Text(format!("yaml: unknown anchor '{anchor}' referenced"))),
            },
            EventData::SequenceStart { anchor, .. } => {
                self.children(line, anchor, Content::List, depth)
            }
            EventData::MappingStart { anchor, .. } => {
                self.children(line, anchor, Content::Mapping, depth)
            }
            // No other event comes where the parser expects a node.
            _ => Err(Refusal::Text("yaml: unknown problem parsing YAML content".to_owned())),
        }
    }

    fn note(&mut self, anchor: Option<String>, id: Id) {
        if let Some(anchor) = anchor {
            self.anchors.insert(anchor, id);
        }
    }

    /// The node of a list or a mapping that has begun.
    fn children<'a>(
        &mut self,
        line: u64,
        anchor: Option<String>,
        content: fn(Vec<Id>) -> Content,
        depth: usize,
    ) -> Result<Id, Refusal<'a>> {
        if depth >= self.limits.depth_max {
            return Err(too_deep(line, self.limits));
        }
        let id = self.nodes.add(line, content(Vec::new()));
        self.note(anchor, id);
        let mut ids = Vec::new();
        loop {
            let event = self.next()?;
            if matches!(event.data, EventData::SequenceEnd | EventData::MappingEnd) {
                break;
            }
            ids.push(self.node(event, depth + 1)?);
        }
        self.nodes.0[id].content = content(ids);
        Ok(id)
    }
}

fn is_behind(mark: Mark, added_break: Option<u64>) -> bool {
    added_break.is_some_and(|position| mark.index > position)
}

/// What upstream says of bad syntax; it counts lines in its own way.
fn problem(error: Error, added_break: Option<u64>) -> String {
    let kind = error.kind();
    if kind == ErrorKind::Io {
        return match std::io::Error::try_from(error) {
            Ok(error) => format!("yaml: {error}"),
            Err(error) => format!("yaml: {}", error.problem()),
        };
    }
    let mut line = error.problem_mark().map_or(0, |mark| {
        let is_next = error.problem() == UNEXPECTED_END && is_behind(mark, added_break);
        mark.line - u64::from(is_next)
    });
    if line > 0 {
        line += u64::from(kind == ErrorKind::Scanner);
    } else if let Some(mark) = error.context_mark() {
        line = mark.line;
    }
    let place = if line > 0 { format!("line {line}: ") } else { String::new() };
    format!("yaml: {place}{}", error.problem())
}
