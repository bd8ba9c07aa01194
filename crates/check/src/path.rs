//! The path that routes are matched with.
//!
//! Invariant: a rule that lets people through uses a path only if it is plain, so that no spelling gets around the line.

use std::borrow::Cow;

/// A path without its query, as some server reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutePath<'a> {
    /// The path. Characters that a client may only send encoded are themselves in it: a space, all beyond ASCII.
    pub text: Cow<'a, str>,
    /// Whether all servers read this path, and read it in the same way.
    pub is_plain: bool,
}

/// The part of a target behind its host: the path and the query, as they were written.
#[must_use]
pub fn behind_host(target: &[u8]) -> &[u8] {
    match target.windows(3).position(|part| part == b"://") {
        Some(at) if target[..at].iter().all(u8::is_ascii_alphabetic) => {
            let rest = &target[at + 3..];
            rest.iter().position(|b| b"/?#".contains(b)).map_or(&[], |at| &rest[at..])
        }
        _ => target,
    }
}
