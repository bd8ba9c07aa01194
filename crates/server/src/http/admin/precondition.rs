//! `If-Match`: which state a change is meant for. If two operators change a zone or the routes at once, the second one gets a
//! conflict.
//!
//! Invariant: a change without `If-Match` is refused. Tags are compared whole. A weak tag counts as the strong one, against
//! [RFC 9110, 13.1.1](https://www.rfc-editor.org/rfc/rfc9110#section-13.1.1): a proxy that compresses the replies makes the tags weak, and
//! each tag here names one state, whatever its bytes.

use admission::Definition;
use hyper::header::{HeaderMap, IF_MATCH};

use crate::http::problem::{PRECONDITION_REQUIRED, Problem, WRONG_TYPE};

/// The most tags that are read.
const MAX_TAGS: usize = 16;

/// What `If-Match` asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Any state.
    Any,
    /// A state with one of these tags.
    Tags(Vec<String>),
}

impl Wanted {
    /// Reads the header.
    ///
    /// # Errors
    /// [`PRECONDITION_REQUIRED`] if it is missing, [`WRONG_TYPE`] if it cannot be read.
    pub(super) fn read(headers: &HeaderMap) -> Result<Self, Problem> {
        let wrong = || Problem::new(WRONG_TYPE, "`If-Match` must be an ETag, in double quotes, or *");
        let mut tags = Vec::new();
        let mut is_any = false;
        for value in headers.get_all(IF_MATCH) {
            for part in value.to_str().map_err(|_| wrong())?.split(',').map(str::trim) {
                match part {
                    "*" => is_any = true,
                    tag => tags.push(read_tag(tag).ok_or_else(wrong)?.to_owned()),
                }
            }
        }
        match (is_any, tags.len()) {
            (false, 0) => {
                let what = "say `If-Match` with the ETag of what you change, or with * for whatever is there";
                Err(Problem::new(PRECONDITION_REQUIRED, what))
            }
            (true, 0) => Ok(Self::Any),
            (false, 1..=MAX_TAGS) => Ok(Self::Tags(tags)),
            _ => Err(wrong()),
        }
    }

    /// Whether the state with the tag `now` is wanted.
    pub(super) fn fits(&self, now: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Tags(tags) => tags.iter().any(|tag| tag == now),
        }
    }
}

/// Reads a tag in its quotes. None without quotes.
fn read_tag(text: &str) -> Option<&str> {
    let tag = text.strip_prefix("W/").unwrap_or(text).strip_prefix('"')?.strip_suffix('"')?;
    let is_tag = tag.bytes().all(|byte| byte == b'!' || (b'#'..=b'~').contains(&byte));
    is_tag.then_some(tag)
}

/// The value of `ETag` for a definition.
pub(super) fn etag(definition: &Definition) -> String {
    format!("\"{}\"", definition.etag())
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn read(values: &[&'static str]) -> Result<Wanted, Problem> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(IF_MATCH, HeaderValue::from_static(value));
        }
        Wanted::read(&headers)
    }

    #[test]
    fn tags_are_read() {
        let tags = |tags: &[&str]| Ok(Wanted::Tags(tags.iter().map(|&tag| tag.to_owned()).collect()));
        assert_eq!(read(&["*"]), Ok(Wanted::Any));
        assert_eq!(read(&["\"a1\""]), tags(&["a1"]));
        assert_eq!(read(&["\"a\", \"b\"", "\"c\""]), tags(&["a", "b", "c"]));
        assert_eq!(read(&["W/\"a\""]), tags(&["a"]), "a proxy that compresses makes tags weak");
        assert_eq!(read(&[]).expect_err("missing").code, PRECONDITION_REQUIRED);
        for wrong in ["", "a", "\"", "\"a", "*, \"a\"", "w/\"a\"", "\"a b\""] {
            assert_eq!(read(&[wrong]).expect_err(wrong).code, WRONG_TYPE, "{wrong}");
        }
        let now = Definition::default().etag();
        let own = Wanted::Tags(vec!["x".to_owned(), now.clone()]);
        assert!(own.fits(&now) && Wanted::Any.fits(&now));
        assert!(!Wanted::Tags(vec![now[1..].to_owned()]).fits(&now));
    }
}
