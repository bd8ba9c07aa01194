//! Opens the configured stores, limiters and transports.
//!
//! Invariant: passwords leave this module only to a store.

use std::{fs, path::PathBuf, sync::Arc, time::Duration};

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
    address::{Address, Library, Settings},
};

use crate::{
    fanout::{
        AnyTransport, FanoutSettings,
        nats::{Nats, Subject},
    },
    keys::{self, KeyFault},
    secret::Secret,
};

/// Where lines are kept.
#[derive(Clone, Debug)]
pub enum StoreSettings {
    /// In this process, journaled in the data directory.
    Memory,
    /// In Redis.
    Redis(RedisSettings),
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
    /// Certificates to check Redis against, instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// When a call counts as done.
    pub durability: Durability,
    /// The most calls to a cell at the same time.
    pub max_in_flight: usize,
    /// How long a call may take.
    pub command_timeout: Duration,
}

/// The cells that are configured. None of them is connected yet.
///
/// # Errors
/// A [`KeyFault`] if the password or the certificates cannot be read.
pub fn cells(redis: &RedisSettings) -> Result<Cells<Redis>, KeyFault> {
    let (settings, addresses) = connections(redis)?;
    let cells = redis.cells.iter().zip(addresses).map(|(cell, address)| {
        let (settings, durability) = (settings.clone(), redis.durability);
        Cell::new(&cell.name, cell.tenants.clone(), move || {
            let (address, settings) = (address.clone(), settings.clone());
            async move { Redis::connect(&address, &settings, durability).await }
        })
    });
    Ok(Cells::new(cells.collect()))
}

/// The address of a cell, with its login, and the settings of connections to it. None if there is no such cell.
///
/// # Errors
/// As [`cells`].
pub fn connection(redis: &RedisSettings, cell: &str) -> Result<Option<(Address, Settings)>, KeyFault> {
    let (settings, addresses) = connections(redis)?;
    let found = redis.cells.iter().zip(addresses).find(|(of, _)| of.name == cell);
    Ok(found.map(|(_, address)| (address, settings)))
}

/// The buckets of each cell. They have separate connections, so that a flood of joins does not delay the lines.
///
/// # Errors
/// As [`cells`].
pub fn buckets(redis: &RedisSettings) -> Result<Vec<Arc<Buckets>>, KeyFault> {
    let (client, addresses) = connections(redis)?;
    // If Redis does not answer, nobody is limited, so the timeout is shorter than that of calls about the line.
    let limits = limiter::RedisSettings::default();
    let client =
        Settings { command_timeout: client.command_timeout.min(limits.client.command_timeout), ..client };
    let settings = limiter::RedisSettings { client, prefix: "weir:limit:".to_owned(), ..limits };
    let connect = |(address, cell): (Address, &CellSettings)| {
        let (settings, cell) = (settings.clone(), cell.name.clone());
        Arc::new(Buckets::new(move || {
            let (address, settings, cell) = (address.clone(), settings.clone(), cell.clone());
            async move {
                let limiter = Limiter::in_redis(&address, &settings, OnFailure::Open).await;
                limiter.inspect_err(|error| tracing::warn!(cell, %error, "joins are not limited yet")).ok()
            }
        }))
    };
    Ok(addresses.into_iter().zip(&redis.cells).map(connect).collect())
}

/// The settings of all connections, and the address of each cell.
fn connections(redis: &RedisSettings) -> Result<(Settings, Vec<Address>), KeyFault> {
    let password = match (&redis.password, &redis.password_file) {
        (Some(password), _) => Some(password.reveal().to_owned()),
        (None, Some(path)) => Some(keys::read_secret(path)?.trim_end().to_owned()),
        (None, None) => None,
    };
    let ca_pem = authorities(redis)?;
    let settings = Settings {
        library: redis.library,
        ca_pem,
        command_timeout: redis.command_timeout,
        max_in_flight: redis.max_in_flight,
        ..Settings::default()
    };
    let addresses = redis.cells.iter().map(|cell| {
        let mut address = cell.address.clone();
        // The user and password of an address win over the settings for all addresses.
        address.user = address.user.or_else(|| redis.user.clone());
        address.password = address.password.or_else(|| password.clone());
        address
    });
    Ok((settings, addresses.collect()))
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

/// The certificates of the authorities that may sign those of Redis's servers, as PEM; none for those of the system.
///
/// # Errors
/// A [`KeyFault`] that names the file. A file without a certificate would trust nobody, and is refused.
pub fn authorities(redis: &RedisSettings) -> Result<Option<Vec<u8>>, KeyFault> {
    let Some(path) = &redis.ca_file else { return Ok(None) };
    let pem = fs::read(path).map_err(|why| KeyFault::Unreadable { path: path.clone(), why })?;
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
