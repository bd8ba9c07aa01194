//! The changes of one zone that a log has, with their authors: for reports.
//!
//! It trusts the log as it is; [`verify`](crate::verify) says whether it was changed. Invariants: nothing is written; memory stays bounded,
//! whatever a file contains.

use std::{collections::VecDeque, fs::File, io::BufReader, path::Path};

use serde_json::Value;

use super::{
    fault::{LogFault, io_fault},
    files::list,
    reader::{Read, read_line, read_rest},
};

/// The most changes that are returned: the last ones.
pub const CHANGES_MAX: usize = 1_000;

/// A change of a zone.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The number of the line.
    pub line: u64,
    /// When it was made, in milliseconds since 1970.
    pub at_ms: u64,
    /// The author's name.
    pub name: String,
    /// The author's role.
    pub role: String,
    /// The definition before; null for a new zone.
    pub before: Value,
    /// The definition after; null for a deleted zone.
    pub after: Value,
}

/// The last changes of `zone` in the log in `dir`, the oldest first.
///
/// # Errors
/// A [`LogFault`] if there is no log, or it cannot be read.
pub fn changes(dir: &Path, zone: &str) -> Result<Vec<Change>, LogFault> {
    let files = list(dir)?;
    if files.is_empty() {
        return Err(io_fault(dir)(std::io::Error::other("there is no audit log here")));
    }
    let mut changes = VecDeque::new();
    for (_, path) in files {
        let mut reader = BufReader::with_capacity(1 << 16, File::open(&path).map_err(io_fault(&path))?);
        let mut line = Vec::new();
        loop {
            match read_line(&mut reader, &mut line).map_err(io_fault(&path))? {
                Read::End => break,
                Read::Line => {
                    if let Some(change) = read(&line, zone) {
                        if changes.len() == CHANGES_MAX {
                            changes.pop_front();
                        }
                        changes.push_back(change);
                    }
                }
                Read::Fragment => drop(read_rest(&mut reader, &line).map_err(io_fault(&path))?),
            }
        }
    }
    Ok(changes.into())
}

/// The change of `zone` that a line has, if it is one.
fn read(line: &[u8], zone: &str) -> Option<Change> {
    const EVENT: &[u8] = br#""event":"change""#;
    // Most lines are entries of people, and are not parsed.
    line.windows(EVENT.len()).any(|part| part == EVENT).then_some(())?;
    let mut fields: Value = serde_json::from_slice(line).ok()?;
    (fields["event"] == "change" && fields["zone"] == zone).then_some(())?;
    let text = |name: &str| fields[name].as_str().unwrap_or_default().to_owned();
    let (name, role) = (text("name"), text("role"));
    let (line, at_ms) = (fields["n"].as_u64()?, fields["at_ms"].as_u64()?);
    Some(Change { line, at_ms, name, role, before: fields["before"].take(), after: fields["after"].take() })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_changes_of_a_zone_are_found() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(changes(dir.path(), "Z").is_err(), "no log");
        let change = |n: u64, zone: &str| {
            format!(
                r#"{{"n":{n},"at_ms":{n},"event":"change","zone":"{zone}","name":"otto","role":"admin","from":null,"before":null,"after":{{"policy":{{}}}}}}"#
            )
        };
        let entered = r#"{"n":9,"at_ms":9,"event":"entered","zone":"Z"}"#;
        let first: String = (0..CHANGES_MAX as u64 + 5)
            .map(|n| format!("{}\n{}\n{entered}\n", change(n, "Z"), change(n, "Y")))
            .collect();
        fs::write(dir.path().join("audit-0000000001.jsonl"), format!("{first}{{\"event\":\"change\""))
            .expect("writes");
        fs::write(dir.path().join("audit-0000000002.jsonl"), format!("{}\n", change(7_777, "Z")))
            .expect("writes");
        let found = changes(dir.path(), "Z").expect("reads");
        let last = found.last().expect("some");
        assert_eq!((found.len(), found[0].line, last.line), (CHANGES_MAX, 6, 7_777));
        assert_eq!((last.name.as_str(), last.role.as_str()), ("otto", "admin"));
        assert!(last.before.is_null() && last.after["policy"].is_object());
    }
}
