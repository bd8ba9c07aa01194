//! The file of the routes that operators set, where no store keeps them.
//!
//! Invariant: a file that cannot be read is refused by name, and never taken for empty.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
    sync::Arc,
};

use super::overrides::OverridesFault;

/// The name in the data directory.
pub(super) const NAME: &str = "routes.json";

/// The longest text, in bytes. A store reads all of it when a zone or the routes change.
pub const ROUTES_MAX_LEN: usize = 28 << 10;

/// Reads the routes of the data directory; `None` if there never were any.
pub(super) fn read(dir: &Path) -> Result<Option<Arc<str>>, OverridesFault> {
    let path = dir.join(NAME);
    let mut text = String::new();
    let most = ROUTES_MAX_LEN as u64 + 1;
    match File::open(&path).and_then(|file| file.take(most).read_to_string(&mut text)) {
        Ok(_) => Ok(Some(text.into())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(why) => Err(OverridesFault::Io { path, doing: "read", why }),
    }
}
