//! Whether two paths lead to the same file, however they are spelled.

use std::{fs::Metadata, os::unix::fs::MetadataExt as _, path::Path};

/// A file, by its device and its number there. Links and spellings of a path make no difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileId {
    device: u64,
    number: u64,
}

impl FileId {
    /// The file at `path`; none if there is none.
    pub(crate) fn at(path: &Path) -> Option<Self> {
        std::fs::metadata(path).ok().map(|metadata| Self::from(&metadata))
    }
}

impl From<&Metadata> for FileId {
    fn from(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), number: metadata.ino() }
    }
}
