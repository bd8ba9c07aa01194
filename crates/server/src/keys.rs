//! Secrets on disk: the keys that seal tokens and sign passes.
//!
//! If no files are configured, the first start makes the keys in the data directory. Invariants: a key file is complete or
//! absent, even if the process is killed at any moment. No other user may read it.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use admission::{SealKey, Seals};

use crate::passes::{PassSettings, Passes, Signer};

/// The most bytes of a key file.
const MAX_LEN: u64 = 64 << 10;

/// The files of the keys that seal tokens.
#[derive(Clone, Debug)]
pub struct SealSettings {
    /// The key's file; `None` if the key is made in the data directory.
    pub key_file: Option<PathBuf>,
    /// The file of the key that sealed before.
    pub previous_key_file: Option<PathBuf>,
}

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFault {
    /// A key file cannot be read.
    #[error("{}: cannot be read: {why}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        why: io::Error,
    },
    /// A key file or its directory cannot be made.
    #[error("{}: cannot be made: {why}", path.display())]
    Unwritable {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        why: io::Error,
    },
    /// Other users may read or change the file.
    #[error("{0}: other users may read or change this key (mode {1:04o}); run: chmod 600 '{0}'")]
    Exposed(String, u32),
    /// The file does not contain a suitable key.
    #[error("{}: {what}", path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what to do.
        what: String,
    },
}

/// Makes the data directory, for this user only, if it does not exist.
///
/// # Errors
/// [`KeyFault::Unwritable`].
pub fn make_dir(dir: &Path) -> Result<(), KeyFault> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|why| KeyFault::Unwritable { path: dir.to_owned(), why })
}

/// Reads or makes the keys that seal tokens.
///
/// # Errors
/// A [`KeyFault`] that names the file.
pub fn seals(settings: &SealSettings, data_dir: &Path) -> Result<Seals, KeyFault> {
    let read = |path: &Path, text: &str| {
        let wrong = || KeyFault::Wrong {
            path: path.to_owned(),
            what: "is not a sealing key: write 64 hex digits, for example from `openssl rand -hex 32`"
                .to_owned(),
        };
        let digits = text.trim().as_bytes();
        if digits.len() != 64 {
            return Err(wrong());
        }
        let mut secret = [0; 32];
        for (byte, pair) in secret.iter_mut().zip(digits.chunks_exact(2)) {
            let value = |c: u8| char::from(c).to_digit(16).and_then(|d| u8::try_from(d).ok());
            *byte =
                value(pair[0]).zip(value(pair[1])).map(|(high, low)| high << 4 | low).ok_or_else(wrong)?;
        }
        // The id is public, so it is derived from a digest of the key.
        let id = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &secret).as_ref()[0];
        Ok(SealKey { id, secret })
    };
    let (path, text) = read_or_make(settings.key_file.as_deref(), data_dir, "seal.key", || {
        let mut secret = [0; 32];
        fill(&mut secret)?;
        Ok(secret
            .iter()
            .flat_map(|b| [b >> 4, b & 15])
            .filter_map(|d| char::from_digit(d.into(), 16))
            .collect())
    })?;
    let current = read(&path, &text)?;
    let previous = match &settings.previous_key_file {
        Some(path) => Some((path, read(path, &read_secret(path)?)?)),
        None => None,
    };
    if let Some((path, _)) = previous.as_ref().filter(|(_, key)| key.id == current.id) {
        let what = if previous.as_ref().is_some_and(|(_, key)| key.secret == current.secret) {
            "is the current sealing key itself; leave one out"
        } else {
            "cannot be told from the current sealing key (their one-byte names agree); make another current key"
        };
        return Err(KeyFault::Wrong { path: path.to_path_buf(), what: what.to_owned() });
    }
    Ok(Seals { current, previous: previous.map(|(_, key)| key) })
}

/// Reads or makes the keys that sign passes.
///
/// # Errors
/// A [`KeyFault`] that names the file.
pub fn passes(settings: &PassSettings, data_dir: &Path) -> Result<Passes, KeyFault> {
    let algorithm = settings.algorithm;
    let name = format!("pass-{}.pem", algorithm.as_str().to_lowercase());
    let made = || Signer::make(algorithm).map_err(io::Error::other);
    let (path, text) = read_or_make(settings.key_file.as_deref(), data_dir, &name, made)?;
    let wrong = |path: &Path, what: String| KeyFault::Wrong { path: path.to_owned(), what };
    let signer = Signer::read(&text).map_err(|e| wrong(&path, e.to_string()))?;
    if signer.algorithm() != algorithm {
        let what = format!(
            "is a key for {}, and pass.algorithm is {}; change one of them",
            signer.algorithm().as_str(),
            algorithm.as_str()
        );
        return Err(wrong(&path, what));
    }
    let previous = match &settings.previous_key_file {
        Some(path) => Some(Signer::read(&read_secret(path)?).map_err(|e| wrong(path, e.to_string()))?),
        None => None,
    };
    Ok(Passes::new(signer, previous.as_ref(), &settings.audience, settings.issuer.as_deref()))
}

fn fill(bytes: &mut [u8]) -> io::Result<()> {
    aws_lc_rs::rand::fill(bytes).map_err(|_| io::Error::other("the system gives no random numbers"))
}

fn read_or_make(
    configured: Option<&Path>,
    data_dir: &Path,
    name: &str,
    make: impl FnOnce() -> io::Result<String>,
) -> Result<(PathBuf, String), KeyFault> {
    if let Some(path) = configured {
        return Ok((path.to_owned(), read_secret(path)?));
    }
    let path = data_dir.join(name);
    match read_secret(&path) {
        Err(KeyFault::Unreadable { why, .. }) if why.kind() == io::ErrorKind::NotFound => {}
        other => return Ok((path, other?)),
    }
    let written = make().and_then(|text| write(data_dir, &path, &text));
    written.map_err(|why| KeyFault::Unwritable { path: path.clone(), why })?;
    let file = path.display();
    if data_dir.join("weir.redb").exists() {
        tracing::warn!(%file, "made a key beside an old journal: what the lost one signed or sealed is not accepted");
    } else {
        tracing::info!(%file, "made a key");
    }
    // Another server that started at the same moment may have written its key first. The key on disk counts.
    let text = read_secret(&path)?;
    Ok((path, text))
}

pub(crate) fn read_secret(path: &Path) -> Result<String, KeyFault> {
    let unreadable = |why| KeyFault::Unreadable { path: path.to_owned(), why };
    let file = File::open(path).map_err(unreadable)?;
    let about = file.metadata().map_err(unreadable)?;
    let mode = about.mode() & 0o7777;
    if is_exposed(mode, about.uid(), rustix::process::geteuid().as_raw()) {
        return Err(KeyFault::Exposed(path.display().to_string(), mode));
    }
    let mut text = String::new();
    file.take(MAX_LEN).read_to_string(&mut text).map_err(unreadable)?;
    Ok(text)
}

/// Whether users other than `me` and root may use a key that belongs to `owner`. Root may let a group read it: Kubernetes
/// and systemd pass secrets to a service in this way.
fn is_exposed(mode: u32, owner: u32, me: u32) -> bool {
    let from_root = owner == 0 && me != 0;
    mode & if from_root { 0o037 } else { 0o077 } != 0
}

/// Writes a file under another name, syncs it, and then renames it, unless the name is taken already.
fn write(dir: &Path, path: &Path, text: &str) -> io::Result<()> {
    let unfinished = path.with_extension(format!("unfinished-{}", std::process::id()));
    let _ = fs::remove_file(&unfinished);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
    let named = file.write_all(text.as_bytes()).and_then(|()| file.write_all(b"\n")).and_then(|()| {
        file.sync_all()?;
        match fs::hard_link(&unfinished, path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        }
    });
    fs::remove_file(&unfinished)?;
    named?;
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::passes::Algorithm;

    fn none() -> SealSettings {
        SealSettings { key_file: None, previous_key_file: None }
    }

    #[test]
    fn keys_are_made_once_and_for_this_user_only() {
        let dir = tempfile::tempdir().expect("a directory");
        let first = seals(&none(), dir.path()).expect("made");
        let again = seals(&none(), dir.path()).expect("read");
        assert_eq!((first.current.id, first.current.secret), (again.current.id, again.current.secret));
        let pass = PassSettings {
            algorithm: Algorithm::Es256,
            audience: "a".into(),
            issuer: None,
            key_file: None,
            previous_key_file: None,
        };
        let jwks = passes(&pass, dir.path()).expect("made").jwks();
        assert_eq!(passes(&pass, dir.path()).expect("read").jwks(), jwks);
        for entry in fs::read_dir(dir.path()).expect("listed") {
            let entry = entry.expect("an entry");
            assert_eq!(entry.metadata().expect("known").permissions().mode() & 0o777, 0o600, "{entry:?}");
        }
        assert_eq!(fs::read_dir(dir.path()).expect("listed").count(), 2, "no unfinished file is left");
    }

    #[test]
    fn a_key_that_others_may_read_is_refused_with_the_remedy() {
        let dir = tempfile::tempdir().expect("a directory");
        seals(&none(), dir.path()).expect("made");
        let path = dir.path().join("seal.key");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("changed");
        let message = seals(&none(), dir.path()).expect_err("refused").to_string();
        assert!(
            message.contains("mode 0640") && message.ends_with(&format!("chmod 600 '{}'", path.display())),
            "{message}"
        );
    }

    #[test]
    fn a_group_may_read_a_key_of_root_but_no_other() {
        let (root, weir) = (0, 65_532);
        for (mode, owner, me, exposed) in [
            (0o440, root, weir, false),
            (0o640, root, weir, false),
            (0o400, weir, weir, false),
            (0o440, weir, weir, true),
            (0o440, root, root, true),
            (0o460, root, weir, true),
            (0o444, root, weir, true),
        ] {
            assert_eq!(is_exposed(mode, owner, me), exposed, "{mode:o} of {owner}, read by {me}");
        }
    }

    #[test]
    fn wrong_and_equal_keys_are_refused_by_file_name() {
        let dir = tempfile::tempdir().expect("a directory");
        let put = |name: &str, text: &str| {
            let path = dir.path().join(name);
            write(dir.path(), &path, text).expect("written");
            path
        };
        let short = put("short", "abcd");
        let message =
            seals(&SealSettings { key_file: Some(short), ..none() }, dir.path()).expect_err("refused");
        assert!(
            message.to_string().contains("short: is not a sealing key: write 64 hex digits"),
            "{message}"
        );
        let one = put("one", &"ab".repeat(32));
        let same = SealSettings { key_file: Some(one.clone()), previous_key_file: Some(one) };
        assert!(seals(&same, dir.path()).expect_err("refused").to_string().contains("itself"));
        let old = put("old", &"cd".repeat(32));
        let new = put("new", &"ab".repeat(32));
        let both = seals(&SealSettings { key_file: Some(new), previous_key_file: Some(old) }, dir.path());
        assert_eq!(both.expect("two keys").previous.expect("accepted").secret, [0xCD; 32]);
    }
}
