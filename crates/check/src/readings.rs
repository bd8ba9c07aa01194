//! The paths that servers read in the target of one request.
//!
//! A proxy, Weir and an app may read three paths in one target: `/%63heckout`, `//x/checkout`, `/x/..;/checkout` and `\checkout` are
//! `/checkout` to some servers, and another path to others. Weir cannot know which servers are behind it, so it collects every path
//! that a known kind of server reads, and the routes decide about all of them. The readings are a closure: each step of a known server
//! is applied to each reading, until no new reading comes.
//!
//! Invariants: the path as it was written is one of the readings. A target whose path is settled (see `is_settled`) has one reading,
//! and finding that out allocates nothing. There are at most [`MOST`] readings with [`MOST_LEN`] bytes altogether; a target with more
//! is [`Readings::TooMany`], and never the first few of them. Readings are bytes until the end, so invalid UTF-8 hides nothing.

use std::borrow::Cow;

use crate::path::{self, RoutePath};

/// The most readings of one target. The longest attacks in the tests have about 100.
pub const MOST: usize = 256;

/// The most bytes of all readings of one target. This bounds the time of a check.
pub const MOST_LEN: usize = 65_536;

/// The paths that servers read in a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readings<'a> {
    /// All servers read the same path.
    One(RoutePath<'a>),
    /// Servers read different paths. The first one is the path as it was written. None of them is plain.
    Several(Vec<RoutePath<'a>>),
    /// Servers read more paths than can be checked.
    TooMany,
}

impl<'a> Readings<'a> {
    /// Reads the target of a request, with or without a query: `/path`, `https://host/path`, or `*`.
    #[must_use]
    pub fn of(target: &'a [u8]) -> Self {
        let written = written(target);
        if is_settled(written)
            && let Ok(text) = std::str::from_utf8(written)
        {
            return Self::One(RoutePath { text: Cow::Borrowed(text), is_plain: true });
        }
        let first = unescaped(written).unwrap_or_else(|| written.to_vec());
        if is_settled(&first) && std::str::from_utf8(&first).is_ok() {
            return Self::One(RoutePath { text: text(first), is_plain: true });
        }
        let Some(found) = closure(first) else { return Self::TooMany };
        let mut found: Vec<_> =
            found.into_iter().map(|path| RoutePath { text: text(path), is_plain: false }).collect();
        match found.len() {
            1 => Self::One(found.remove(0)),
            _ => Self::Several(found),
        }
    }

    /// All of them; none if there are too many.
    #[must_use]
    pub fn all(&self) -> &[RoutePath<'a>] {
        match self {
            Self::One(path) => std::slice::from_ref(path),
            Self::Several(paths) => paths,
            Self::TooMany => &[],
        }
    }
}

fn text<'a>(path: Vec<u8>) -> Cow<'a, str> {
    Cow::Owned(
        String::from_utf8(path).unwrap_or_else(|wrong| String::from_utf8_lossy(wrong.as_bytes()).into()),
    )
}

/// The part of a target that is its path, as it was written. All servers take `http://host` away, if it is written in the usual way,
/// and what follows the first `?`.
fn written(target: &[u8]) -> &[u8] {
    let target = &target[..target.iter().position(|b| *b == b'?').unwrap_or(target.len())];
    let path = if target.starts_with(b"/") {
        target
    } else {
        let path = path::behind_host(target);
        let host = &target[..target.len() - path.len()];
        let host = host.iter().position(|b| *b == b':').map_or(&[][..], |at| &host[at + 3..]);
        let is_usual = |b: &u8| b.is_ascii_alphanumeric() || b"-._:[]".contains(b);
        if !host.is_empty() && host.iter().all(is_usual) { path } else { target }
    };
    if path.is_empty() { b"/" } else { path }
}

/// Bytes that some server takes for more than themselves: see [`STEPS`].
const SPECIAL: [bool; 256] = {
    let mut special = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        special[byte] = byte < 0x20 || byte == 0x7f;
        byte += 1;
    }
    let (signs, mut at) = (b"%;\\?#", 0);
    while at < signs.len() {
        special[signs[at] as usize] = true;
        at += 1;
    }
    special
};

/// Whether no step changes a path, so that all servers read it in the same way, if it is UTF-8.
fn is_settled(path: &[u8]) -> bool {
    let mut before = 0;
    for (at, &byte) in path.iter().enumerate() {
        if SPECIAL[usize::from(byte)] {
            return false;
        }
        if before == b'/'
            && matches!(
                (byte, &path[at + 1..]),
                (b'/', _) | (b'.', [] | [b'/', ..] | [b'.'] | [b'.', b'/', ..])
            )
        {
            return false;
        }
        // What Windows drops of a name.
        if byte == b'/' && b". ".contains(&before) || byte == b'$' && before == b':' {
            return false;
        }
        before = byte;
    }
    path.starts_with(b"/") && !b". ".contains(&before)
}

/// All readings of a path. None if there are too many.
fn closure(first: Vec<u8>) -> Option<Vec<Vec<u8>>> {
    let mut len = first.len();
    let mut found = vec![first];
    let mut next = 0;
    while next < found.len() {
        for step in STEPS {
            let Some(new) = step(&found[next]) else { continue };
            let new = unescaped(&new).unwrap_or(new);
            if !found.contains(&new) {
                len += new.len();
                if found.len() == MOST || len > MOST_LEN {
                    return None;
                }
                found.push(new);
            }
        }
        next += 1;
    }
    Some(found)
}

/// What some server makes of a path; nothing if it surely takes the path as it is.
type Step = fn(&[u8]) -> Option<Vec<u8>>;

/// What servers are known to do with a path. Each step is one of these things alone, because servers do them in different orders.
const STEPS: [Step; 17] = [
    without_scheme,
    without_host,
    with_slash,
    decoded_unreserved,
    decoded_but_slashes,
    decoded,
    decoded_overlong,
    decoded_wide,
    without_backslashes,
    without_parameters,
    with_merged_slashes,
    with_resolved_dots,
    |path| cut_at(path, b'?'),
    |path| cut_at(path, b'#'),
    // Fastify takes what follows the first `;` for the query.
    |path| cut_at(path, b';'),
    without_controls,
    as_windows_file,
];

/// `http:/checkout` is `/checkout` to `new URL(target, base)`.
fn without_scheme(path: &[u8]) -> Option<Vec<u8>> {
    let (name, behind) = path.split_at(path.iter().position(|b| *b == b':')?);
    let is_scheme = name.first().is_some_and(u8::is_ascii_alphabetic)
        && name.iter().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(b));
    is_scheme.then(|| behind[1..].to_vec())
}

/// `//x/checkout` and `/\x/checkout` are `/checkout` at the host `x` to readers of references: `new URL(target, base)`, `urlsplit`.
fn without_host(path: &[u8]) -> Option<Vec<u8>> {
    let at = path.iter().position(|b| !b"/\\".contains(b)).filter(|at| *at >= 2)?;
    let host = &path[at..];
    let end = host.iter().position(|b| b"/\\?#".contains(b));
    Some(end.map_or(b"/".to_vec(), |end| host[end..].to_vec()))
}

fn with_slash(path: &[u8]) -> Option<Vec<u8>> {
    (!path.starts_with(b"/")).then(|| [b"/", path].concat())
}

/// What RFC 3986 allows in a normal form: letters, digits, `-`, `.`, `_` and `~` are decoded.
fn decoded_unreserved(path: &[u8]) -> Option<Vec<u8>> {
    decoded_where(path, |byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte))
}

/// Apache with `AllowEncodedSlashes NoDecode`, and routers that split a path before they decode its segments.
fn decoded_but_slashes(path: &[u8]) -> Option<Vec<u8>> {
    decoded_where(path, |byte| !b"/\\".contains(&byte))
}

fn decoded(path: &[u8]) -> Option<Vec<u8>> {
    decoded_where(path, |_| true)
}

/// Old readers of UTF-8 take `C0 AF` for `/`, and `C0 AE` for `.`.
fn decoded_overlong(path: &[u8]) -> Option<Vec<u8>> {
    path.iter().position(|b| matches!(b, 0xc0 | 0xc1 | 0xe0))?;
    let (mut out, mut rest) = (Vec::with_capacity(path.len()), path);
    while let [byte, behind @ ..] = rest {
        let (new, behind) = match rest {
            [first @ 0xc0..=0xc1, second @ 0x80..=0xbf, behind @ ..]
            | [0xe0, first @ 0x80..=0x81, second @ 0x80..=0xbf, behind @ ..] => {
                ((first & 1) << 6 | second & 0x3f, behind)
            }
            _ => (*byte, behind),
        };
        out.push(new);
        rest = behind;
    }
    Some(out)
}

/// IIS reads `%u0061` as `a`.
fn decoded_wide(path: &[u8]) -> Option<Vec<u8>> {
    path.windows(2).position(|two| two.eq_ignore_ascii_case(b"%u"))?;
    let (mut out, mut rest) = (Vec::with_capacity(path.len()), path);
    while let [byte, behind @ ..] = rest {
        let code = match rest {
            [b'%', b'u' | b'U', digits @ ..] => digits.get(..4),
            _ => None,
        };
        let digits = code.and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
        match code.and_then(|code| char::from_u32(u32::from_str_radix(code, 16).ok()?)) {
            Some(character) => {
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                rest = &rest[6..];
            }
            None => {
                out.push(*byte);
                rest = behind;
            }
        }
    }
    Some(out)
}

fn without_backslashes(path: &[u8]) -> Option<Vec<u8>> {
    path.contains(&b'\\').then(|| path.iter().map(|b| if *b == b'\\' { b'/' } else { *b }).collect())
}

/// Java's servlets cut the parameters of each segment: `/x/..;a/checkout;b` is `/x/../checkout`.
fn without_parameters(path: &[u8]) -> Option<Vec<u8>> {
    let mut is_parameter = false;
    let mut is_kept = |b: &u8| {
        is_parameter = *b == b';' || is_parameter && *b != b'/';
        !is_parameter
    };
    path.contains(&b';').then(|| path.iter().copied().filter(|b| is_kept(b)).collect())
}

fn with_merged_slashes(path: &[u8]) -> Option<Vec<u8>> {
    path.windows(2).position(|two| two == b"//")?;
    let mut out = path.to_vec();
    out.dedup_by(|b, before| *b == b'/' && *before == b'/');
    Some(out)
}

/// `.` and `..` are resolved; above the root is the root. An empty segment is one, as RFC 3986 has it.
fn with_resolved_dots(path: &[u8]) -> Option<Vec<u8>> {
    let relative = path.strip_prefix(b"/")?;
    path.windows(2).position(|two| two == b"/.")?;
    let mut kept: Vec<&[u8]> = Vec::new();
    let mut is_open = false;
    for segment in relative.split(|b| *b == b'/') {
        is_open = matches!(segment, b"." | b"..");
        match segment {
            b"." => {}
            b".." => drop(kept.pop()),
            name => kept.push(name),
        }
    }
    if is_open {
        kept.push(b"");
    }
    let mut out = vec![b'/'];
    out.extend(kept.join(&b'/'));
    Some(out)
}

fn cut_at(path: &[u8], end: u8) -> Option<Vec<u8>> {
    path.iter().position(|b| *b == end).map(|end| path[..end].to_vec())
}

/// Readers in C end a path at a zero byte. `new URL(target, base)` drops tabs and line ends everywhere, and spaces at the ends.
fn without_controls(path: &[u8]) -> Option<Vec<u8>> {
    path.iter().position(|b| *b <= b' ' || *b == 0x7f)?;
    let mut kept = path[..path.iter().position(|b| *b == 0).unwrap_or(path.len())].to_vec();
    kept.retain(|b| !b"\t\r\n".contains(b));
    let is_text = |b: &u8| *b > b' ' && *b != 0x7f;
    let end = kept.iter().rposition(is_text).map_or(0, |last| last + 1);
    let start = kept.iter().position(is_text).unwrap_or(0);
    Some(kept[start..end.max(start)].to_vec())
}

/// Windows drops the dots and spaces at the end of a name. `name::$DATA` is the content of the file `name`, and
/// `name:$I30:$INDEX_ALLOCATION` is the directory `name`. So an app that serves files there reads `/checkout./1. ` as `/checkout/1`.
pub(crate) fn as_windows_file(path: &[u8]) -> Option<Vec<u8>> {
    fn name(segment: &[u8]) -> &[u8] {
        let stream = segment.windows(2).any(|two| two == b":$");
        let name = segment.split(|b| *b == b':').next().filter(|_| stream).unwrap_or(segment);
        let last = |dropped: &[u8]| name.iter().rposition(|b| !dropped.contains(b)).map_or(0, |at| at + 1);
        match &name[..last(b" ")] {
            step @ (b"." | b"..") => step,
            _ => &name[..last(b". ")],
        }
    }
    let names: Vec<_> = path.split(|b| *b == b'/').map(name).collect();
    let read = names.join(&b'/');
    (read != path).then_some(read)
}

/// A path in which those characters are themselves that no client may send as themselves: a space, `"`, `<`, `>`, `^`, a backtick,
/// `{`, `|`, `}`, and all beyond ASCII. This is how patterns are written. No server takes them for anything else, so that this makes
/// no new reading.
fn unescaped(path: &[u8]) -> Option<Vec<u8>> {
    decoded_where(path, |byte| byte >= 0x80 || b" \"<>^`{|}".contains(&byte))
}

/// Decodes `%XX` once, if `which` says so of the byte; nothing if there is no `%`. What is no valid code stays.
pub(crate) fn decoded_where(path: &[u8], which: impl Fn(u8) -> bool) -> Option<Vec<u8>> {
    let digit = |b: u8| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok());
    let start = path.iter().position(|b| *b == b'%')?;
    let (mut out, mut rest) = (Vec::with_capacity(path.len()), &path[start..]);
    out.extend_from_slice(&path[..start]);
    while let [byte, behind @ ..] = rest {
        let code = match rest {
            [b'%', high, low, ..] => digit(*high).zip(digit(*low)).map(|(high, low)| 16 * high + low),
            _ => None,
        };
        let code = code.filter(|code| which(*code));
        out.push(code.unwrap_or(*byte));
        rest = if code.is_some() { &rest[3..] } else { behind };
    }
    Some(out)
}

#[cfg(test)]
mod tests;
