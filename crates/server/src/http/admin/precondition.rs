//! What a change says that it is a change of: `If-Match`, so that of two who change the same thing, one hears of the other.
//!
//! Invariant: a change without it is refused; a tag is compared whole, and as strong ([RFC 9110, 13.1.1](https://www.rfc-editor.org/rfc/rfc9110#section-13.1.1)).

use admission::Definition;
use hyper::header::{HeaderMap, IF_MATCH};

use crate::http::problem::{PRECONDITION_REQUIRED, Problem, WRONG_TYPE};

/// The most tags that are read.
const MAX_TAGS: usize = 16;

/// What `If-Match` asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Whatever is there.
    Any,
    /// One of these.
    Tags(Vec<String>),
}

impl Wanted {
    /// Reads it.
    ///
    /// # Errors
    /// [`PRECONDITION_REQUIRED`] where it is missing, [`WRONG_TYPE`] where it can't be read.
    pub(super) fn read(headers: &HeaderMap) -> Result<Self, Problem> {
        let wrong = || Problem::new(WRONG_TYPE, "`If-Match` must be a zone's ETag, in double quotes, or *");
        let mut tags = Vec::new();
        let mut is_any = false;
        for value in headers.get_all(IF_MATCH) {
            for part in value.to_str().map_err(|_| wrong())?.split(',').map(str::trim) {
                match part {
                    "*" => is_any = true,
                    tag => tags.push(read_tag(tag).ok_or_else(wrong)?),
                }
            }
        }
        match (is_any, tags.len()) {
            (false, 0) => {
                let what = "say `If-Match` with the zone's ETag, or with * for whatever is there";
                Err(Problem::new(PRECONDITION_REQUIRED, what))
            }
            (true, 0) => Ok(Self::Any),
            (false, 1..=MAX_TAGS) => Ok(Self::Tags(tags.into_iter().flatten().collect())),
            _ => Err(wrong()),
        }
    }

    /// Whether `now` is what is wanted.
    pub(super) fn fits(&self, now: &Definition) -> bool {
        match self {
            Self::Any => true,
            Self::Tags(tags) => tags.contains(&now.etag()),
        }
    }
}

/// Reads a tag in its quotes: none where there are none, none inside for a weak one, which fits nothing.
fn read_tag(text: &str) -> Option<Option<String>> {
    let (weak, quoted) = text.strip_prefix("W/").map_or((false, text), |rest| (true, rest));
    let tag = quoted.strip_prefix('"')?.strip_suffix('"')?;
    let right = tag.bytes().all(|byte| byte == b'!' || (b'#'..=b'~').contains(&byte));
    right.then(|| (!weak).then(|| tag.to_owned()))
}

/// A definition's tag, as `ETag` has it.
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
    fn tags_are_read_as_they_stand() {
        let tags = |tags: &[&str]| Ok(Wanted::Tags(tags.iter().map(|&tag| tag.to_owned()).collect()));
        assert_eq!(read(&["*"]), Ok(Wanted::Any));
        assert_eq!(read(&["\"a1\""]), tags(&["a1"]));
        assert_eq!(read(&["\"a\", \"b\"", "\"c\""]), tags(&["a", "b", "c"]));
        assert_eq!(read(&["W/\"a\""]), tags(&[]), "a weak one fits nothing");
        assert_eq!(read(&[]).expect_err("missing").code, PRECONDITION_REQUIRED);
        for wrong in ["", "a", "\"", "\"a", "*, \"a\"", "w/\"a\"", "\"a b\""] {
            assert_eq!(read(&[wrong]).expect_err(wrong).code, WRONG_TYPE, "{wrong}");
        }
        let now = Definition::default();
        let own = Wanted::Tags(vec!["x".to_owned(), now.etag()]);
        assert!(own.fits(&now) && Wanted::Any.fits(&now));
        assert!(!Wanted::Tags(vec![now.etag()[1..].to_owned()]).fits(&now));
    }
}
