//! Secrets on disk: the keys that seal tokens and sign passes.
//!
//! If no files are configured, the first start makes the keys in the data directory. Invariants: a key file is complete or
//! absent, even if the process is killed at any moment. No other user may read it, but the group of a file that root owns. A running server
//! makes no keys: a file that is missing at a reload is a mistake, and a new key would cost everybody the place.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use admission::{SealKey, Seals};
use shown::utf8;

use crate::{
    passes::{PassSettings, Passes, Signer},
    whole_file,
};

/// The most bytes of a key file.
const MAX_LEN: u64 = 64 << 10;

/// The files of the keys that seal tokens.
#[derive(Clone, Debug)]
pub struct SealSettings {
    /// The key's file; `None` if the key is made in the data directory.
    pub key_file: Option<PathBuf>,
    /// The file of the key that will seal next.
    pub next_key_file: Option<PathBuf>,
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
    #[error(
        "{path}: other users may read or change this key (mode {mode:04o}); run: chmod {allowed:o} '{path}'"
    )]
    Exposed {
        /// The file.
        path: String,
        /// Its permissions.
        mode: u32,
        /// The most that they may be.
        allowed: u32,
    },
    /// No file is configured, and the data directory has none.
    #[error("{}: does not exist, and only a starting server makes keys; bring the file back, or name another one", .0.display())]
    NotMade(PathBuf),
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

/// The keys of a server.
pub struct Keys {
    /// Those that seal tokens.
    pub seals: Seals,
    /// Those that sign passes.
    pub passes: Passes,
}

/// What happens if no file is configured for a key, and the data directory has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfMissing {
    /// The key is made.
    Make,
    /// It is a fault.
    Refuse,
}

impl Keys {
    /// Reads the keys.
    ///
    /// # Errors
    /// A [`KeyFault`] that names the file.
    pub fn read(
        seal: &SealSettings,
        pass: &PassSettings,
        data_dir: &Path,
        if_missing: IfMissing,
    ) -> Result<Self, KeyFault> {
        Ok(Self { seals: seals(seal, data_dir, if_missing)?, passes: passes(pass, data_dir, if_missing)? })
    }
}

/// What names the keys of which tokens are accepted, the one that seals first: 16 hex digits each, from which nobody learns the key.
#[must_use]
pub fn fingerprints(seals: &Seals) -> Vec<String> {
    let keys = [Some(&seals.current), seals.next.as_ref(), seals.previous.as_ref()];
    let digest = |key: &SealKey| blake3::derive_key("weir 2026-11 fingerprint of a seal key", &key.secret);
    keys.into_iter()
        .flatten()
        .map(|key| digest(key)[..8].iter().map(|byte| format!("{byte:02x}")).collect())
        .collect()
}

/// What users lose when keys replace others at once. Empty for each step of a rotation, if the steps are taken in order.
/// `shared` says whether servers of other processes take the same tokens.
#[must_use]
pub fn losses(before: (&Seals, &Passes), now: (&Seals, &Passes), shared: bool) -> Vec<&'static str> {
    let ((old_seals, old_passes), (seals, passes)) = (before, now);
    let found = [
        (
            !seals.accepts(old_seals),
            "the key that sealed the tokens until now is in no setting any more: all users who hold a token lose their place",
        ),
        (
            shared && !old_seals.accepts(seals),
            "seal.key_file is a key that was not announced in seal.next_key_file: servers that do not know it yet refuse the \
             tokens of this one",
        ),
        (
            !passes.publishes(old_passes),
            "the key that signed the passes until now is in no setting any more: services refuse its passes",
        ),
        (
            !old_passes.publishes(passes),
            "pass.key_file is a key that was not announced in pass.next_key_file: services that keep a copy of the JWKS \
             refuse the passes of this server until they read it again",
        ),
    ];
    found.into_iter().filter_map(|(is_lost, what)| is_lost.then_some(what)).collect()
}

fn wrong(path: &Path, what: impl Into<String>) -> KeyFault {
    KeyFault::Wrong { path: path.to_owned(), what: what.into() }
}

/// Reads or makes the keys that seal tokens.
fn seals(settings: &SealSettings, data_dir: &Path, if_missing: IfMissing) -> Result<Seals, KeyFault> {
    let (path, text) = read_or_make(settings.key_file.as_deref(), data_dir, "seal.key", if_missing, || {
        let mut secret = [0; 32];
        fill(&mut secret)?;
        Ok(secret
            .iter()
            .flat_map(|b| [b >> 4, b & 15])
            .filter_map(|d| char::from_digit(d.into(), 16))
            .collect())
    })?;
    let current = seal_key(&path, &text)?;
    let [next, previous] = [&settings.next_key_file, &settings.previous_key_file].map(Option::as_deref);
    let read = |path: &Path| seal_key(path, &read_key(path)?);
    let seals =
        Seals { current, next: next.map(read).transpose()?, previous: previous.map(read).transpose()? };
    let keys = [
        (Some(&*path), Some(&seals.current)),
        (next, seals.next.as_ref()),
        (previous, seals.previous.as_ref()),
    ];
    let keys: Vec<_> = keys.into_iter().filter_map(|(path, key)| path.zip(key)).collect();
    refuse_twice(&keys, "seal", |one, other| one.secret == other.secret)?;
    match twice(&keys, |one, other| one.id == other.id) {
        Some((path, other)) => Err(wrong(
            path,
            format!(
                "cannot be told from the key in {} (their one-byte ids agree); make another new key",
                other.display()
            ),
        )),
        None => Ok(seals),
    }
}

/// Reads a key that seals tokens.
fn seal_key(path: &Path, text: &str) -> Result<SealKey, KeyFault> {
    let not_a_key =
        || wrong(path, "is not a sealing key: write 64 hex digits, for example from `openssl rand -hex 32`");
    let digits = text.trim().as_bytes();
    if digits.len() != 64 {
        return Err(not_a_key());
    }
    let mut secret = [0; 32];
    for (byte, pair) in secret.iter_mut().zip(digits.chunks_exact(2)) {
        let value = |c: u8| char::from(c).to_digit(16).and_then(|d| u8::try_from(d).ok());
        *byte =
            value(pair[0]).zip(value(pair[1])).map(|(high, low)| high << 4 | low).ok_or_else(not_a_key)?;
    }
    // The id is public, so it is derived from a digest of the key.
    let id = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &secret).as_ref()[0];
    Ok(SealKey { id, secret })
}

/// Reads or makes the keys that sign passes.
fn passes(settings: &PassSettings, data_dir: &Path, if_missing: IfMissing) -> Result<Passes, KeyFault> {
    let algorithm = settings.algorithm;
    let name = format!("pass-{}.pem", algorithm.as_str().to_lowercase());
    let made = || Signer::make(algorithm).map_err(io::Error::other);
    let (path, text) = read_or_make(settings.key_file.as_deref(), data_dir, &name, if_missing, made)?;
    let signer = |path: &Path, text: &str| Signer::read(text).map_err(|e| wrong(path, e.to_string()));
    let current = signer(&path, &text)?;
    if current.algorithm() != algorithm {
        let what = format!(
            "is a key for {}, and pass.algorithm is {}; change one of them",
            current.algorithm().as_str(),
            algorithm.as_str()
        );
        return Err(wrong(&path, what));
    }
    let (mut keys, mut others) = (vec![(&*path, current.kid())], Vec::new());
    for path in [&settings.next_key_file, &settings.previous_key_file].into_iter().flatten() {
        let other = signer(path, &read_key(path)?)?;
        keys.push((path, other.kid()));
        others.push(other);
    }
    refuse_twice(&keys, "pass", |one, other| one == other)?;
    Ok(Passes::new(current, &others, &settings.audience, settings.issuer.as_deref()))
}

/// The files of the first two keys that are the same, the later one first.
fn twice<'a, K>(keys: &[(&'a Path, K)], is_same: impl Fn(&K, &K) -> bool) -> Option<(&'a Path, &'a Path)> {
    let of = |(at, (path, key)): (usize, &(&'a Path, K))| {
        let (earlier, _) = keys[..at].iter().find(|(_, other)| is_same(key, other))?;
        Some((*path, *earlier))
    };
    keys.iter().enumerate().find_map(of)
}

/// Refuses two settings of `table` that name the same key. Usually a step of a rotation is half done then.
fn refuse_twice<K>(
    keys: &[(&Path, K)],
    table: &str,
    is_same: impl Fn(&K, &K) -> bool,
) -> Result<(), KeyFault> {
    let Some((path, other)) = twice(keys, is_same) else { return Ok(()) };
    let what = format!(
        "has the same key as {}; {table}.key_file, {table}.next_key_file and {table}.previous_key_file must be different \
         keys: leave one out",
        other.display()
    );
    Err(wrong(path, what))
}

fn fill(bytes: &mut [u8]) -> io::Result<()> {
    aws_lc_rs::rand::fill(bytes).map_err(|_| io::Error::other("the system gives no random numbers"))
}

fn read_or_make(
    configured: Option<&Path>,
    data_dir: &Path,
    name: &str,
    if_missing: IfMissing,
    make: impl FnOnce() -> io::Result<String>,
) -> Result<(PathBuf, String), KeyFault> {
    if let Some(path) = configured {
        return Ok((path.to_owned(), read_key(path)?));
    }
    let path = data_dir.join(name);
    match read_key(&path) {
        Err(KeyFault::Unreadable { why, .. }) if why.kind() == io::ErrorKind::NotFound => {}
        other => return Ok((path, other?)),
    }
    if if_missing == IfMissing::Refuse {
        return Err(KeyFault::NotMade(path));
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
    let text = read_key(&path)?;
    Ok((path, text))
}

/// Reads a key. Opening a pipe would wait for a writer, and a reload that waits would keep the server from stopping.
pub(crate) fn read_key(path: &Path) -> Result<String, KeyFault> {
    let about = fs::metadata(path).map_err(|why| KeyFault::Unreadable { path: path.to_owned(), why })?;
    if !about.is_file() {
        return Err(wrong(path, "is not a file; a key is read again at each reload"));
    }
    read_secret(path)
}

/// Reads a file that only this user, or root for this user, may read.
pub(crate) fn read_secret(path: &Path) -> Result<String, KeyFault> {
    let unreadable = |why| KeyFault::Unreadable { path: path.to_owned(), why };
    let file = File::open(path).map_err(unreadable)?;
    let about = file.metadata().map_err(unreadable)?;
    if about.is_dir() {
        return Err(wrong(path, "is a directory"));
    }
    let (mode, forbidden) = (about.mode() & 0o7777, forbidden(about.uid()));
    if mode & forbidden != 0 {
        return Err(KeyFault::Exposed {
            path: path.display().to_string(),
            mode,
            allowed: 0o677 & !forbidden,
        });
    }
    let mut bytes = Vec::new();
    file.take(MAX_LEN).read_to_end(&mut bytes).map_err(unreadable)?;
    utf8::text(bytes).map_err(|fault| wrong(path, format!("line {fault}")))
}

/// The permissions that nobody may have for a key that belongs to `owner`. Root may let a group read it: Kubernetes and systemd pass
/// secrets to a service in this way, and root looks at the same files with `weir doctor`.
fn forbidden(owner: u32) -> u32 {
    if owner == 0 { 0o037 } else { 0o077 }
}

/// Writes a file under another name, syncs it, and then renames it, unless the name is taken already.
fn write(dir: &Path, path: &Path, text: &str) -> io::Result<()> {
    let unfinished = whole_file::unfinished(path);
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
        SealSettings { key_file: None, next_key_file: None, previous_key_file: None }
    }

    fn seals(settings: &SealSettings, data_dir: &Path) -> Result<Seals, KeyFault> {
        super::seals(settings, data_dir, IfMissing::Make)
    }

    fn no_pass_files() -> PassSettings {
        PassSettings {
            algorithm: Algorithm::Es256,
            audience: "a".into(),
            issuer: None,
            key_file: None,
            next_key_file: None,
            previous_key_file: None,
        }
    }

    fn passes(settings: &PassSettings, data_dir: &Path) -> Result<Passes, KeyFault> {
        super::passes(settings, data_dir, IfMissing::Make)
    }

    #[test]
    fn keys_are_made_once_and_for_this_user_only() {
        let dir = tempfile::tempdir().expect("a directory");
        let first = seals(&none(), dir.path()).expect("made");
        let again = seals(&none(), dir.path()).expect("read");
        assert_eq!((first.current.id, first.current.secret), (again.current.id, again.current.secret));
        let pass = no_pass_files();
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
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("changed");
        let message = seals(&none(), dir.path()).expect_err("refused").to_string();
        let remedy = if rustix::process::geteuid().is_root() { "640" } else { "600" };
        let end = format!("(mode 0644); run: chmod {remedy} '{}'", path.display());
        assert!(message.ends_with(&end), "{message}");
    }

    #[test]
    fn a_key_that_is_not_a_file_is_refused_at_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let pipe = dir.path().join("pipe");
        let made = std::process::Command::new("mkfifo").args(["-m", "600"]).arg(&pipe).status();
        assert!(made.expect("coreutils have it").success());
        for path in [dir.path(), &pipe] {
            let message = read_key(path).expect_err("refused").to_string();
            assert!(message.starts_with(&format!("{}: is not a file", path.display())), "{message}");
        }
    }

    #[test]
    fn a_group_may_read_a_key_of_root_but_no_other() {
        let (root, weir) = (0, 65_532);
        for (mode, owner, exposed) in [
            (0o440, root, false),
            (0o640, root, false),
            (0o400, weir, false),
            (0o440, weir, true),
            (0o460, root, true),
            (0o444, root, true),
        ] {
            assert_eq!(mode & forbidden(owner) != 0, exposed, "{mode:o} of {owner}");
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
        let same_elsewhere = put("same", &format!("{}\n", "AB".repeat(32)));
        for other in [&one, &same_elsewhere] {
            let key_file = Some(one.clone());
            for same in [
                SealSettings { key_file: key_file.clone(), next_key_file: Some(other.clone()), ..none() },
                SealSettings { key_file: key_file.clone(), previous_key_file: Some(other.clone()), ..none() },
            ] {
                let message = seals(&same, dir.path()).expect_err("refused").to_string();
                let told =
                    format!("{}: has the same key as {}; seal.key_file", other.display(), one.display());
                assert!(message.starts_with(&told) && !message.contains("abab"), "{message}");
            }
        }
        let (old, next) = (put("old", &"cd".repeat(32)), put("next", &"ef".repeat(32)));
        let settings =
            SealSettings { key_file: Some(one), next_key_file: Some(next), previous_key_file: Some(old) };
        let three = seals(&settings, dir.path()).expect("three keys");
        assert_eq!(three.current.secret, [0xAB; 32]);
        assert_eq!(three.next.expect("accepted").secret, [0xEF; 32]);
        assert_eq!(three.previous.expect("accepted").secret, [0xCD; 32]);
        let missing = SealSettings { next_key_file: Some(dir.path().join("no such")), ..none() };
        let message = seals(&missing, dir.path()).expect_err("refused").to_string();
        assert!(message.contains("no such: cannot be read: No such file"), "{message}");
    }

    #[test]
    fn a_key_that_signs_passes_is_in_one_setting_only() {
        let dir = tempfile::tempdir().expect("a directory");
        passes(&no_pass_files(), dir.path()).expect("made");
        let made = Some(dir.path().join("pass-es256.pem"));
        for same in [
            PassSettings { next_key_file: made.clone(), ..no_pass_files() },
            PassSettings { previous_key_file: made.clone(), ..no_pass_files() },
        ] {
            let message = passes(&same, dir.path()).err().expect("refused").to_string();
            assert!(
                message.contains("pass-es256.pem: has the same key as ")
                    && message.contains("; pass.key_file")
            );
        }
    }

    #[test]
    fn a_running_server_makes_no_keys() {
        let dir = tempfile::tempdir().expect("a directory");
        let read = |if_missing| Keys::read(&none(), &no_pass_files(), dir.path(), if_missing).map(drop);
        read(IfMissing::Make).expect("made");
        read(IfMissing::Refuse).expect("both are there");
        for file in ["seal.key", "pass-es256.pem"] {
            fs::rename(dir.path().join(file), dir.path().join("away")).expect("moved");
            let message = read(IfMissing::Refuse).expect_err("refused").to_string();
            assert!(message.contains(&format!("{file}: does not exist, and only a starting")), "{message}");
            fs::rename(dir.path().join("away"), dir.path().join(file)).expect("moved");
        }
    }

    #[test]
    fn a_step_of_a_rotation_that_is_left_out_is_reported() {
        let key = |id| SealKey { id, secret: [id; 32] };
        let pems = [(); 2].map(|()| Signer::make(Algorithm::Es256).expect("made"));
        let signer = |at: usize| Signer::read(&pems[at]).expect("read back");
        let steps = [
            (Seals::only(key(0)), Passes::new(signer(0), &[], "a", None)),
            (
                Seals { next: Some(key(1)), ..Seals::only(key(0)) },
                Passes::new(signer(0), &[signer(1)], "a", None),
            ),
            (
                Seals { previous: Some(key(0)), ..Seals::only(key(1)) },
                Passes::new(signer(1), &[signer(0)], "a", None),
            ),
            (Seals::only(key(1)), Passes::new(signer(1), &[], "a", None)),
        ];
        let lost = |from: usize, to: usize, shared: bool| {
            let at = |step: usize| (&steps[step].0, &steps[step].1);
            losses(at(from), at(to), shared).len()
        };
        for (from, to) in [(0, 1), (1, 2), (2, 3), (3, 2), (2, 1), (1, 0)] {
            assert_eq!(lost(from, to, true), 0, "from step {from} to {to}");
        }
        assert_eq!((lost(0, 2, true), lost(0, 2, false)), (2, 1), "without the announcement");
        assert_eq!((lost(0, 3, true), lost(0, 3, false)), (4, 3), "at once");
        assert_eq!(lost(1, 3, true), 2, "announced, and then forgotten at once");
    }
}
