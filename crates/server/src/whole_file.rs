//! Small files of the data directory that are written whole, and read at the start.
//!
//! Invariants: a reader finds the file of before or the new one, never a part of one, also after a crash and where several processes write
//! it. Nobody else may read it.

use std::{
    fs::{self, File, OpenOptions},
    hash::{BuildHasher as _, RandomState},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

/// The text of a file of at most `max_len` bytes; none if there is no such file. Blocks.
///
/// # Errors
/// The system's error, or [`io::ErrorKind::FileTooLarge`].
pub(crate) fn read(path: &Path, max_len: u64) -> io::Result<Option<String>> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Ok(about) if about.len() > max_len => {
            let what = format!("has {} bytes, and {max_len} are the most", about.len());
            Err(io::Error::new(io::ErrorKind::FileTooLarge, what))
        }
        _ => fs::read_to_string(path).map(Some),
    }
}

/// The name of a file that is not in its place yet. It is random, because servers over Redis may share a directory.
pub(crate) fn unfinished(path: &Path) -> PathBuf {
    let random = RandomState::new().hash_one(0);
    path.with_extension(format!("unfinished-{random:016x}"))
}

/// Writes a file beside the one in use, and puts it in its place. Blocks.
///
/// # Errors
/// The system's error. The file of before stays in use then.
pub(crate) fn write(path: &Path, text: &str) -> io::Result<()> {
    let unfinished = unfinished(path);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut file = options.open(&unfinished)?;
    // Otherwise a loss of power could leave an empty file in its place.
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_data());
    if let Err(why) = written.and_then(|()| fs::rename(&unfinished, path)) {
        // A full disk is not filled further by what is left. The first error is the one to tell of.
        let _ = fs::remove_file(&unfinished);
        return Err(why);
    }
    // The file is in use even if this fails. A loss of power may bring back the file of before.
    let dir = path.parent().map(File::open).transpose();
    if let Err(why) = dir.and_then(|dir| dir.map_or(Ok(()), |dir| dir.sync_all())) {
        tracing::error!(file = %path.display(), %why, "the directory cannot be synced");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_a_file_that_is_too_long_is_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("x.json");
        assert_eq!(read(&path, 9).expect("no file"), None);
        for text in ["first", "second"] {
            write(&path, text).expect("written");
            assert_eq!(read(&path, 9).expect("a file").as_deref(), Some(text));
        }
        assert!(read(&path, 5).is_err());
        let writers = (0..4).map(|i| {
            let path = path.clone();
            std::thread::spawn(move || (0..50).try_for_each(|_| write(&path, &format!("by {i}"))))
        });
        let writers: Vec<_> = writers.collect();
        for writer in writers {
            writer.join().expect("no panic").expect("written beside others");
        }
        assert!(read(&path, 9).expect("a file").expect("a text").starts_with("by "));
        assert_eq!(fs::read_dir(dir.path()).expect("a directory").count(), 1, "nothing unfinished is left");
    }
}
