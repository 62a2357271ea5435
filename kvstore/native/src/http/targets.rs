//! Request targets that Go's servers serve and the `http` crate refuses.
//!
//! ```text
//! "/pods?labelSelector=a>1"          a character that should be escaped:  served as it is
//! "/pods?x=\xff"                     no UTF-8:                            served as "/pods?x=%FF"
//! "/pods?fieldSelector=…500 KB…"     longer than 65,534 bytes:            served as it is
//! "/a b", "/\x7f"                    refused by both
//! ```
//!
//! hyper and h2 get a target that `http` accepts instead; the real one is passed beside it, in
//! `Conn.targets`, and in the request's extensions.

use std::collections::VecDeque;
use std::fmt::Write;
use std::rc::Rc;

/// The real target of a request.
#[derive(Clone, Debug)]
pub struct RealTarget(pub String);

const WAITING_MAX: usize = 4096;
const WAITING_BYTES_MAX: usize = 16 << 20; // what one connection's socket may hold at once
pub const PLAIN_BYTES_MAX: usize = 32 << 10; // far below what `http` accepts

/// The targets of one connection whose requests are not announced yet, in the order of their streams.
#[derive(Default)]
pub struct Targets {
    waiting: VecDeque<(u32, Rc<str>)>,
    bytes: usize,
    pub has_lost: bool, // some were dropped: the connection must end, or a stand-in would be served
}

impl Targets {
    pub fn add(&mut self, stream: u32, target: Rc<str>) {
        self.bytes += target.len();
        self.waiting.push_back((stream, target));
        if self.waiting.len() > WAITING_MAX || self.bytes > WAITING_BYTES_MAX {
            self.has_lost = true;
            self.waiting.clear();
            self.bytes = 0;
        }
    }

    pub fn take(&mut self, stream: u32) -> Option<RealTarget> {
        while let Some((of, target)) = self.waiting.front().filter(|(of, _)| *of <= stream) {
            let (of, target) = (*of, target.clone());
            self.bytes -= target.len();
            self.waiting.pop_front();
            if of == stream {
                return Some(RealTarget(target.to_string()));
            } // else its stream was refused, and is never announced
        }
        None
    }
}

/// Return whether `http` takes a target as it is; one that it refuses rightly is plain, too.
pub fn is_plain(target: &[u8]) -> bool {
    if target.first() != Some(&b'/') {
        return true; // a URL, a host, `*`: left to `http`
    }
    target.len() <= PLAIN_BYTES_MAX && target.iter().all(|byte| is_accepted(*byte))
}

const fn is_accepted(byte: u8) -> bool {
    // Those that `http` accepts both in paths and in queries.
    matches!(byte, b'!' | b'$'..=b';' | b'=' | b'?'..=b'_' | b'a'..=b'z' | b'|' | b'~')
}

/// Return the target as handlers see it; none if Go's servers refuse it.
pub fn shown(target: &[u8]) -> Option<String> {
    if target.iter().any(|byte| byte.is_ascii_control() || *byte == b' ') {
        return None;
    }
    let is_utf8 = std::str::from_utf8(target).is_ok();
    let mut shown = String::with_capacity(target.len());
    for chunk in target.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '#' => shown.push_str("%23"), // no fragment: Go's servers know none
                character if is_utf8 || character.is_ascii() => shown.push(character),
                character => escape(character.encode_utf8(&mut [0; 4]).as_bytes(), &mut shown),
            }
        }
        escape(chunk.invalid(), &mut shown);
    }
    Some(shown)
}

fn escape(bytes: &[u8], out: &mut String) {
    for byte in bytes {
        let _ = write!(out, "%{byte:02X}"); // to a string: it cannot fail
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_wait_for_their_streams_and_go_with_them() {
        let mut targets = Targets::default();
        for stream in [1, 3, 7] {
            targets.add(stream, format!("/{stream}").into());
        }
        let mut taken = |stream| targets.take(stream).map(|real| real.0);
        assert_eq!((taken(1), taken(5), taken(7)), (Some("/1".into()), None, Some("/7".into())));
        assert!(targets.waiting.is_empty() && targets.bytes == 0 && !targets.has_lost);
        for stream in 0..17 {
            targets.add(2 * stream + 1, "x".repeat(1 << 20).into());
        }
        assert!(targets.has_lost && targets.waiting.is_empty());
    }

    #[test]
    fn what_is_plain_is_accepted_and_what_is_not_is_shown() {
        for byte in 0..=255u8 {
            let target = [b"/p?q=a", &[byte][..], b"1"].concat();
            let accepted = ::http::uri::PathAndQuery::try_from(&target[..]);
            let path = [b"/p", &[byte][..], b"1"].concat();
            let in_path = ::http::uri::PathAndQuery::try_from(&path[..]);
            if is_plain(&target) {
                assert_eq!(accepted.unwrap().as_str().as_bytes(), target);
                assert_eq!(in_path.unwrap().as_str().as_bytes(), path);
            } else {
                let refused = byte <= b' ' || byte == 0x7f;
                assert_eq!(shown(&target).is_none(), refused, "{byte:#x}");
            }
        }
        assert_eq!(shown(b"/a<\">b").as_deref(), Some("/a<\">b"));
        assert_eq!(shown("/ü#x".as_bytes()).as_deref(), Some("/ü%23x"));
        assert_eq!(shown(b"/\xc3\xbc\xff").as_deref(), Some("/%C3%BC%FF"));
        assert!(is_plain(b"*") && is_plain(b"http://x/<"));
        assert!(!is_plain(&[b'/'; PLAIN_BYTES_MAX + 1]));
    }
}
