//! The certificate of the public listener: its files, and what happens when they change.
//!
//! Invariants: a pair that cannot be used, or is not valid now, never replaces one that is in force; no connection is closed for
//! a new certificate.

use std::{
    fs::{self, File},
    io::Read as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use blake3::Hash;
use edge::{Certificate, CertificateError, Tls};
use events::{Bus, Reloaded};
use tokio::{
    task::spawn_blocking,
    time::{MissedTickBehavior, interval},
};

use crate::{
    clock::unix_ms,
    failure::{self, Failure},
    keys::{KeyFault, read_key},
    metrics::Metrics,
};

/// How often the files are read. A renewed certificate has days to come into force.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// The most bytes of a chain. A key has its own limit.
const MAX_CHAIN: u64 = 256 << 10;

/// From this time before its end, a certificate expires soon. Renewal usually happens 30 days before.
pub const SOON: Duration = Duration::from_secs(14 * 24 * 3_600);

/// The files of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// The chain, PEM, the server's own certificate first.
    pub certificate: PathBuf,
    /// The key, PEM.
    pub key: PathBuf,
}

/// A certificate that was read, and a digest of its files.
pub struct Read {
    /// The certificate, with its key.
    pub certificate: Certificate,
    digest: Hash,
}

impl TlsSettings {
    /// Reads the files.
    ///
    /// # Errors
    /// A [`KeyFault`] that names the file.
    pub fn read(&self) -> Result<Read, KeyFault> {
        let (chain, key) = (read_chain(&self.certificate)?, read_key(&self.key)?);
        let certificate = self.pair(&chain, &key)?;
        let mut digest = blake3::Hasher::new();
        digest.update(&chain.len().to_le_bytes()).update(&chain).update(key.as_bytes());
        Ok(Read { certificate, digest: digest.finalize() })
    }

    /// Reads the texts of the files, for another library, which gets only a pair that fits.
    ///
    /// # Errors
    /// A [`KeyFault`] that names the file.
    pub fn read_pem(&self) -> Result<(Vec<u8>, String), KeyFault> {
        let (chain, key) = (read_chain(&self.certificate)?, read_key(&self.key)?);
        self.pair(&chain, &key)?;
        Ok((chain, key))
    }

    fn pair(&self, chain: &[u8], key: &str) -> Result<Certificate, KeyFault> {
        Certificate::from_pem(chain, key.as_bytes()).map_err(|fault| match fault {
            CertificateError::Chain(what) => KeyFault::Wrong { path: self.certificate.clone(), what },
            CertificateError::Key(what) => KeyFault::Wrong { path: self.key.clone(), what },
            CertificateError::NotAPair => {
                let what = format!(
                    "{fault} in {}; its own certificate comes first in that file, and both files must be of the same renewal",
                    self.certificate.display()
                );
                KeyFault::Wrong { path: self.key.clone(), what }
            }
        })
    }
}

fn read_chain(path: &Path) -> Result<Vec<u8>, KeyFault> {
    let unreadable = |why| KeyFault::Unreadable { path: path.to_owned(), why };
    let wrong = |what: String| KeyFault::Wrong { path: path.to_owned(), what };
    // Opening a pipe would wait for a writer.
    if !fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(wrong("is not a file; a certificate is read again when it changes".to_owned()));
    }
    let mut chain = Vec::new();
    File::open(path).and_then(|file| file.take(MAX_CHAIN + 1).read_to_end(&mut chain)).map_err(unreadable)?;
    if chain.len() as u64 > MAX_CHAIN {
        return Err(wrong(format!("is longer than {MAX_CHAIN} bytes; leave out all but the chain")));
    }
    Ok(chain)
}

/// The certificate in force, and its files.
pub struct Certificates {
    tls: Arc<Tls>,
    metrics: Arc<Metrics>,
    files: Mutex<Files>,
}

/// The files that are followed, and what was last seen in them.
struct Files {
    settings: TlsSettings,
    seen: Seen,
    /// The digest of the pair in force.
    in_force: Hash,
}

/// What is remembered of the files. Something that was seen before is not reported again.
#[derive(PartialEq, Eq)]
enum Seen {
    Pair(Hash),
    Fault(String),
}

impl Certificates {
    /// Serves with what was read from these files.
    ///
    /// # Errors
    /// If the system gives no random numbers.
    pub fn new(settings: &TlsSettings, read: &Read, metrics: Arc<Metrics>) -> Result<Arc<Self>, Failure> {
        let tls = Tls::new(&read.certificate).map_err(Failure::with(failure::UNAVAILABLE))?;
        let seen = Seen::Pair(read.digest);
        let files = Mutex::new(Files { settings: settings.clone(), seen, in_force: read.digest });
        let certificates = Self { tls, metrics, files };
        certificates.report(&read.certificate);
        Ok(Arc::new(certificates))
    }

    /// What the listener serves with.
    #[must_use]
    pub fn tls(&self) -> Arc<Tls> {
        Arc::clone(&self.tls)
    }

    /// Reads these files. A pair that is not the one in force must be valid now: clients refuse another one.
    ///
    /// # Errors
    /// A [`KeyFault`] that names the file.
    pub fn read(&self, settings: &TlsSettings) -> Result<Read, KeyFault> {
        let read = settings.read()?;
        let wrong =
            |what: &str| Err(KeyFault::Wrong { path: settings.certificate.clone(), what: what.to_owned() });
        match validity(&read.certificate) {
            _ if self.files().in_force == read.digest => Ok(read),
            Validity::Now => Ok(read),
            Validity::Later => wrong("is not valid yet; wait, or correct this machine's clock"),
            Validity::Expired => wrong("has expired; renew it, or correct this machine's clock"),
        }
    }

    /// Uses a certificate that was read from these files, and follows the files from now on.
    pub fn take_over(&self, settings: &TlsSettings, read: &Read) {
        let mut files = self.files();
        let seen = Seen::Pair(read.digest);
        if files.seen != seen {
            self.use_now(&read.certificate);
        }
        *files = Files { settings: settings.clone(), seen, in_force: read.digest };
    }

    /// Looks at the files now and then, and takes over what changed. Each change is reported once. Never ends.
    pub async fn follow(self: Arc<Self>, bus: Arc<Bus>) {
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            let settings = self.files().settings.clone();
            let (reading, from) = (Arc::clone(&self), settings.clone());
            // A disk may be slow.
            let Ok(read) = spawn_blocking(move || reading.read(&from)).await else { continue };
            if let Some(ok) = self.see(&settings, read) {
                bus.publish(Reloaded { ok });
            }
        }
    }

    /// Takes over what was read. Returns whether that went well, or none if nothing changed.
    fn see(&self, settings: &TlsSettings, read: Result<Read, KeyFault>) -> Option<bool> {
        let mut files = self.files();
        let seen = match &read {
            Ok(read) => Seen::Pair(read.digest),
            Err(fault) => Seen::Fault(fault.to_string()),
        };
        // A reload may have named other files meanwhile.
        if files.settings != *settings || files.seen == seen {
            return None;
        }
        files.seen = seen;
        match read {
            Ok(read) => {
                files.in_force = read.digest;
                self.use_now(&read.certificate);
            }
            Err(fault) => {
                tracing::error!("{fault} (the certificate that was in force stays)");
                return Some(false);
            }
        }
        Some(true)
    }

    fn use_now(&self, certificate: &Certificate) {
        self.tls.replace(certificate);
        tracing::info!(days_left = days_left(certificate), "another certificate is in force");
        self.report(certificate);
    }

    fn report(&self, certificate: &Certificate) {
        self.metrics.certificate_expires(certificate.expires_at_s());
        let days_left = days_left(certificate);
        match validity(certificate) {
            Validity::Later => tracing::warn!("the certificate is not valid yet, and clients refuse it"),
            Validity::Expired => {
                tracing::warn!("the certificate has expired, and clients refuse it; renew it");
            }
            Validity::Now if seconds_left(certificate) < SOON.as_secs() => {
                tracing::warn!(days_left, "the certificate expires soon; renew it");
            }
            Validity::Now => {}
        }
    }

    /// A panic cannot leave it half changed.
    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    /// It is.
    Now,
    /// Not yet.
    Later,
    /// Not any more.
    Expired,
}

/// Whether a certificate is valid now, by this machine's clock.
#[must_use]
pub fn validity(certificate: &Certificate) -> Validity {
    match unix_ms() / 1_000 {
        now_s if now_s < certificate.valid_from_s() => Validity::Later,
        now_s if now_s > certificate.expires_at_s() => Validity::Expired,
        _ => Validity::Now,
    }
}

/// How long a certificate is valid from now on, in seconds; 0 if it has expired.
#[must_use]
pub fn seconds_left(certificate: &Certificate) -> u64 {
    certificate.expires_at_s().saturating_sub(unix_ms() / 1_000)
}

/// The same in whole days.
#[must_use]
pub fn days_left(certificate: &Certificate) -> u64 {
    seconds_left(certificate) / (24 * 3_600)
}
