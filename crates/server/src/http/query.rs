//! The query of an address, by the names of its fields.

use std::borrow::Cow;

use form_urlencoded::parse;

use super::problem::{MISSING_FIELD, Problem, UNKNOWN_FIELD, WRONG_TYPE};
use crate::fields::shown;

/// What happens to a field of a query whose name is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Others {
    /// It is ignored: libraries of apps and caches add fields of their own.
    Ignored,
    /// It is refused: an operator may have misspelled it.
    Refused,
}

/// The fields of a query, each at most once.
///
/// # Errors
/// A field that is there twice, or one of another name, if those are refused.
pub(super) fn fields<'a, const N: usize>(
    query: Option<&'a str>,
    names: [&str; N],
    others: Others,
) -> Result<[Option<Cow<'a, str>>; N], Problem> {
    let mut found = [const { None }; N];
    for (name, value) in parse(query.unwrap_or_default().as_bytes()) {
        let Some(at) = names.iter().position(|known| *known == name) else {
            if others == Others::Ignored {
                continue;
            }
            return Err(Problem::new(UNKNOWN_FIELD, format!("`{}`, in the address", shown(&name))));
        };
        if found[at].replace(value).is_some() {
            return Err(Problem::new(WRONG_TYPE, format!("`{name}` is there twice, in the address")));
        }
    }
    Ok(found)
}

/// A field of a query that must be there.
///
/// # Errors
/// It is missing.
pub(super) fn needed<'a>(field: Option<Cow<'a, str>>, name: &str) -> Result<Cow<'a, str>, Problem> {
    field.ok_or_else(|| Problem::new(MISSING_FIELD, format!("`{name}`, in the address")))
}
