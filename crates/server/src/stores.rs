//! Opens the configured stores, limiters and transports.
//!
//! Invariant: passwords leave this module only to a store.

use std::{path::PathBuf, sync::Arc, time::Duration};

use gate::{
    cells::{Cell, Cells},
    limits::Buckets,
};
use limiter::{Limiter, OnFailure};
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use store::redis::{
    Durability, Redis,
    address::{Address, Identity, Library, Login, Password, Settings},
};

use crate::{
    fanout::{
        AnyTransport, FanoutSettings,
        nats::{Nats, Subject},
    },
    keys::{self, KeyFault},
    secret::Secret,
    tls::TlsSettings,
};

/// Where lines are kept.
#[derive(Clone, Debug)]
pub enum StoreSettings {
    /// In this process, journaled in the data directory.
    Memory,
    /// In Redis.
    Redis(Box<RedisSettings>),
}

/// A Redis that keeps the zones of some tenants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellSettings {
    /// Its name in logs and metrics.
    pub name: String,
    /// Its address.
    pub address: Address,
    /// The tenants whose zones it keeps; see [`Cell::new`].
    pub tenants: Vec<String>,
}

/// The cells in Redis, and the settings of their connections.
#[derive(Clone, Debug)]
pub struct RedisSettings {
    /// At least one; no two share a name or a tenant.
    pub cells: Vec<CellSettings>,
    /// The client library.
    pub library: Library,
    /// The user for addresses without one.
    pub user: Option<String>,
    /// The password for addresses without one.
    pub password: Option<Secret>,
    /// The file with that password, if it is not given itself.
    pub password_file: Option<PathBuf>,
    /// The user at the Sentinels.
    pub sentinel_user: Option<String>,
    /// The file with the password at the Sentinels, if they have their own.
    pub sentinel_password_file: Option<PathBuf>,
    /// Certificates to check Redis against, instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// The certificate that Redis asks for, and its key.
    pub identity: Option<TlsSettings>,
    /// When a call counts as done.
    pub durability: Durability,
    /// The most calls to a cell at the same time.
    pub max_in_flight: usize,
    /// How long a call may take.
    pub command_timeout: Duration,
}

/// The logins of connections, as far as the settings for all addresses have them. A reload replaces the passwords.
#[derive(Clone, Debug)]
pub struct Logins {
    servers: Option<Login>,
    sentinels: Option<Login>,
}

impl Logins {
    /// Reads the files.
    ///
    /// # Errors
    /// A [`KeyFault`] that names the file.
    pub fn read(redis: &RedisSettings) -> Result<Self, KeyFault> {
        let of_file = |path: &PathBuf| {
            let text = keys::read_key(path)?;
            match text.trim_end() {
                "" => Err(KeyFault::Wrong {
                    path: path.clone(),
                    what: "is empty; write the password into it".into(),
                }),
                text => Ok(Password::new(text)),
            }
        };
        let servers = match &redis.password {
            Some(password) => Some(Password::new(password.reveal())),
            None => redis.password_file.as_ref().map(of_file).transpose()?,
        };
        let sentinels = redis.sentinel_password_file.as_ref().map(of_file).transpose()?;
        let of = |user: &Option<String>, password| Login { user: user.clone(), password };
        Ok(Self {
            servers: servers.map(|password| of(&redis.user, password)),
            sentinels: sentinels.map(|password| of(&redis.sentinel_user, password)),
        })
    }

    /// Uses the passwords of `new` for connections that are opened from now on. Returns whether anything changed. Another user needs
    /// a restart, and the password belongs to the user.
    pub fn take_over(&self, new: &Self) -> bool {
        let mut changed = false;
        for pair in [(&self.servers, &new.servers), (&self.sentinels, &new.sentinels)] {
            if let (Some(now), Some(new)) = pair
                && now.user == new.user
                && now.password != new.password
            {
                now.password.replace(&new.password);
                changed = true;
            }
        }
        changed
    }
}

/// The connections to the cells that are configured. None of them is open yet.
pub struct Connections {
    settings: Settings,
    durability: Durability,
    /// Each cell, with the address that has its login.
    cells: Vec<(CellSettings, Address)>,
    logins: Logins,
}

impl Connections {
    /// Reads the passwords and certificates.
    ///
    /// # Errors
    /// A [`KeyFault`] if one of them cannot be used.
    pub fn read(redis: &RedisSettings) -> Result<Self, KeyFault> {
        let logins = Logins::read(redis)?;
        let identity = redis.identity.as_ref().map(TlsSettings::read_pem).transpose()?;
        let settings = Settings {
            library: redis.library,
            ca_pem: authorities(redis)?,
            identity: identity
                .map(|(certificate_pem, key)| Identity { certificate_pem, key_pem: key.into_bytes() }),
            sentinel: logins.sentinels.clone(),
            command_timeout: redis.command_timeout,
            max_in_flight: redis.max_in_flight,
            ..Settings::default()
        };
        let cells = redis.cells.iter().map(|cell| {
            let mut address = cell.address.clone();
            // The user and password of an address win over the settings for all addresses.
            address.user = address.user.or_else(|| redis.user.clone());
            address.password =
                address.password.or_else(|| logins.servers.clone().map(|login| login.password));
            (cell.clone(), address)
        });
        Ok(Self { settings, durability: redis.durability, cells: cells.collect(), logins })
    }

    /// The cells.
    #[must_use]
    pub fn cells(&self) -> Cells<Redis> {
        let cells = self.cells.iter().map(|(cell, address)| {
            let (address, settings, durability) = (address.clone(), self.settings.clone(), self.durability);
            Cell::new(&cell.name, cell.tenants.clone(), move || {
                let (address, settings) = (address.clone(), settings.clone());
                async move { Redis::connect(&address, &settings, durability).await }
            })
        });
        Cells::new(cells.collect())
    }

    /// The addresses of the cells, in their order, each with its login.
    pub fn addresses(&self) -> impl Iterator<Item = &Address> {
        self.cells.iter().map(|(_, address)| address)
    }

    /// The settings of all connections.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The logins of all connections.
    #[must_use]
    pub fn logins(&self) -> Logins {
        self.logins.clone()
    }

    /// The buckets of each cell. They have separate connections, so that a flood of joins does not delay the lines.
    #[must_use]
    pub fn buckets(&self) -> Vec<Arc<Buckets>> {
        // If Redis does not answer, nobody is limited, so the timeout is shorter than that of calls about the line.
        let limits = limiter::RedisSettings::default();
        let client = Settings {
            command_timeout: self.settings.command_timeout.min(limits.client.command_timeout),
            ..self.settings.clone()
        };
        let settings = limiter::RedisSettings { client, prefix: "weir:limit:".to_owned(), ..limits };
        let connect = |(cell, address): &(CellSettings, Address)| {
            let (settings, address, cell) = (settings.clone(), address.clone(), cell.name.clone());
            Arc::new(Buckets::new(move || {
                let (address, settings, cell) = (address.clone(), settings.clone(), cell.clone());
                async move {
                    let limiter = Limiter::in_redis(&address, &settings, OnFailure::Open).await;
                    limiter
                        .inspect_err(|error| tracing::warn!(cell, %error, "joins are not limited yet"))
                        .ok()
                }
            }))
        };
        self.cells.iter().map(connect).collect()
    }
}

/// What carries messages between the servers of each cell, in the order of the cells. Empty if the fan-out is off. Must be
/// called on a tokio runtime.
#[must_use]
pub fn transports(fanout: &FanoutSettings, cells: &Cells<Redis>) -> Vec<AnyTransport> {
    let cells = cells.all().iter();
    match fanout {
        FanoutSettings::None => Vec::new(),
        FanoutSettings::Redis => cells.map(|cell| AnyTransport::Redis(Arc::clone(cell))).collect(),
        FanoutSettings::Nats(address) => {
            let nats = Nats::start(address.clone());
            cells.map(|cell| AnyTransport::Nats(Subject::new(&nats, &cell.health().name))).collect()
        }
    }
}

/// The most bytes of a file of certificates. Those of all public authorities have some hundred thousand.
const MAX_AUTHORITIES: u64 = 4 << 20;

/// The certificates of the authorities that may sign those of Redis's servers, as PEM; none for those of the system.
///
/// # Errors
/// A [`KeyFault`] that names the file. A file without a certificate would trust nobody, and is refused.
pub fn authorities(redis: &RedisSettings) -> Result<Option<Vec<u8>>, KeyFault> {
    let Some(path) = &redis.ca_file else { return Ok(None) };
    let pem = shown::file::bytes(path, MAX_AUTHORITIES)
        .map_err(|why| KeyFault::Unreadable { path: path.clone(), why })?;
    let wrong = |what: &str| KeyFault::Wrong { path: path.clone(), what: what.to_owned() };
    let (mut roots, mut count) = (RootCertStore::empty(), 0);
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let added = certificate.ok().and_then(|certificate| roots.add(certificate).ok());
        added.ok_or_else(|| {
            wrong("holds something that is no certificate; it must be PEM, as Redis's --tls-ca-cert-file")
        })?;
        count += 1;
    }
    if count == 0 {
        return Err(wrong(
            "holds no certificate of an authority; it must be PEM, as Redis's --tls-ca-cert-file",
        ));
    }
    Ok(Some(pem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_taken_over_with_its_user_only() {
        let login =
            |user: &str, word| Some(Login { user: Some(user.to_owned()), password: Password::new(word) });
        let running = Logins { servers: login("weir", "before"), sentinels: None };
        let in_use = running.servers.clone().expect("it has one").password;
        for (new, changed, word) in [
            (Logins { servers: login("other", "now"), sentinels: None }, false, "before"),
            (Logins { servers: None, sentinels: login("weir", "now") }, false, "before"),
            (Logins { servers: login("weir", "before"), sentinels: None }, false, "before"),
            (Logins { servers: login("weir", "now"), sentinels: None }, true, "now"),
        ] {
            assert_eq!((running.take_over(&new), in_use.reveal().as_str()), (changed, word));
        }
    }
}
