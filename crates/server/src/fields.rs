//! Fields of JSON objects that somebody sent: which one is missing, wrong or left over.
//!
//! Invariant: a problem names the field by its path, and shows at most 64 characters of a name that we do not know.

use serde_json::{Map, Value};

use crate::problem::{MISSING_FIELD, Problem, UNKNOWN_FIELD, WRONG_TYPE};

/// The fields of an object.
pub(crate) type Object = Map<String, Value>;

/// A field is missing.
pub(crate) fn missing(field: &str) -> Problem {
    Problem::new(MISSING_FIELD, format!("`{field}`"))
}

/// A field is something else than what is wanted.
pub(crate) fn wrong(field: &str, wanted: &str) -> Problem {
    Problem::new(WRONG_TYPE, format!("`{field}` must be {wanted}"))
}

/// Refuses fields that are left over. `of` stands before their names, as in `policy.`.
pub(crate) fn rest(fields: &Object, of: &str) -> Result<(), Problem> {
    match fields.keys().next() {
        None => Ok(()),
        Some(name) => Err(Problem::new(UNKNOWN_FIELD, format!("`{of}{}`", shown(name)))),
    }
}

/// The beginning of a name that somebody sent.
pub(crate) fn shown(name: &str) -> String {
    name.chars().take(64).collect()
}

/// A message of serde in which a type has a plain name.
pub(crate) fn plain_types(message: &str) -> String {
    message.replace("expected u32", "expected a whole number from 0 on")
}
