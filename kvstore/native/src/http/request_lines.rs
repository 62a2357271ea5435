//! Request lines of HTTP/1.1 whose targets hyper would refuse: see `targets`.
//!
//! ```text
//! "GET /a>1 HTTP/1.1\r\nHost: x…"  ──►  "GET / HTTP/1.1\r\nHost: x…"  and the target "/a>1"
//! ```
//!
//! A line is looked at where a head begins: when every request before has been answered, and hyper holds
//! no part of the head (`HyperIo::splits_head`). The line of a request that is sent before that (pipelined)
//! passes as it is, and hyper may refuse it. An incomplete line is kept here, up to the limit of a head;
//! then hyper gets what there is, and refuses it.

use bytes::{Bytes, BytesMut};

use crate::http::targets::{is_plain, shown};

/// The line of the next request of one connection.
#[derive(Default)]
pub struct RequestLine {
    begun: BytesMut,
    seen: u64, // lines, so far
}

/// What becomes of bytes.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    Plain,                        // they pass as they are
    Incomplete,                   // they are kept
    Whole(Bytes, Option<String>), // these instead, with the real target
}

impl RequestLine {
    /// Return whether the next byte begins a head, or continues its line, after so many requests.
    pub fn is_awaited(&self, requests: u64) -> bool {
        self.seen <= requests
    }

    /// Look at bytes that arrived while a line is awaited.
    pub fn see(&mut self, arrived: &[u8], requests: u64, bytes_max: usize) -> Line {
        if self.begun.is_empty() && is_whole_and_plain(arrived) {
            self.seen = requests + 1;
            return Line::Plain;
        }
        self.begun.extend_from_slice(arrived);
        let start = self.begun.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        let searched = self.begun.len().saturating_sub(arrived.len()).max(start);
        let end = self.begun[searched..].iter().position(|byte| *byte == b'\n');
        if end.is_none() && self.begun.len() <= bytes_max {
            return Line::Incomplete;
        }
        self.seen = requests + 1;
        let line = start..end.map_or(self.begun.len(), |end| searched + end);
        let is_served = end.is_some() && line.len() <= bytes_max;
        let replaced = is_served.then(|| replace(&self.begun[line.clone()])).flatten();
        let bytes = self.begun.split();
        match replaced {
            None => Line::Whole(bytes.freeze(), None),
            Some((new, target)) => {
                let rest = &bytes[line.end..];
                let whole = Bytes::from([&new[..], rest].concat());
                Line::Whole(whole, Some(target))
            }
        }
    }

    /// Give up a line that is not complete, after so many requests: return its bytes.
    pub fn give_up(&mut self, requests: u64) -> Bytes {
        self.seen = requests + 1;
        self.begun.split().freeze()
    }
}

/// Return whether bytes have a line to its end that passes as it is.
pub fn is_whole_and_plain(bytes: &[u8]) -> bool {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return false };
    match target_in(&bytes[..end]) {
        Some((first, last)) => is_plain(&bytes[first..last]),
        None => end > 0 && bytes[0] != b'\r', // no line of a request: hyper refuses it
    }
}

/// Where the target begins and ends: between the first space and the last.
fn target_in(line: &[u8]) -> Option<(usize, usize)> {
    let first = line.iter().position(|byte| *byte == b' ')? + 1;
    let last = line.iter().rposition(|byte| *byte == b' ')?;
    (first < last).then_some((first, last))
}

/// The line with another target, and the real one; none if it is to pass as it is.
fn replace(line: &[u8]) -> Option<(Vec<u8>, String)> {
    let (first, last) = target_in(line)?;
    let target = &line[first..last];
    if is_plain(target) {
        return None;
    }
    Some(([&line[..first], b"/", &line[last..]].concat(), shown(target)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &[u8] = b"GET /a>1 HTTP/1.1\r\nHost: x\r\n\r\n";

    fn seen(line: &mut RequestLine, bytes: &[u8], size: usize) -> (Vec<u8>, Option<String>) {
        let (mut out, mut target) = (Vec::new(), None);
        for piece in bytes.chunks(size) {
            if !line.is_awaited(0) {
                out.extend_from_slice(piece);
                continue;
            }
            match line.see(piece, 0, 64) {
                Line::Plain => out.extend_from_slice(piece),
                Line::Incomplete => {}
                Line::Whole(whole, real) => {
                    out.extend_from_slice(&whole);
                    target = real;
                }
            }
        }
        out.extend_from_slice(&line.give_up(0));
        (out, target)
    }

    #[test]
    fn a_target_is_replaced_whatever_the_cut() {
        for size in 1..=HEAD.len() {
            let (out, target) = seen(&mut RequestLine::default(), HEAD, size);
            assert_eq!(out, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
            assert_eq!(target.as_deref(), Some("/a>1"));
        }
    }

    #[test]
    fn everything_else_passes() {
        let long = [&b"GET /"[..], &[b'<'; 100], b" HTTP/1.1\r\n\r\n"].concat();
        let heads: [&[u8]; 6] = [
            b"GET /a HTTP/1.1\r\n\r\n",
            b"\r\n\r\nGET /a HTTP/1.1\r\n\r\n",
            b"x\n",
            b"GET",
            b"GET /a b<\t HTTP/1.1\r\n",
            &long,
        ];
        for head in heads {
            for size in 1..=head.len() {
                let (out, target) = seen(&mut RequestLine::default(), head, size);
                assert_eq!((&out[..], target), (head, None));
            }
        }
    }

    #[test]
    fn a_line_is_awaited_once_a_request() {
        let mut line = RequestLine::default();
        assert!(line.is_awaited(0));
        assert_eq!(line.see(b"GET / HTTP/1.1\r\n", 0, 64), Line::Plain);
        assert!(!line.is_awaited(0) && line.is_awaited(1));
    }
}
