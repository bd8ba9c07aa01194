//! Reads the configuration again while the server runs.
//!
//! Invariant: if any part of the new configuration is not valid, nothing changes. Settings that need a restart are named in
//! the log and keep their value.

use std::sync::Arc;

use gate::{
    definitions::{self, DefineError},
    warn_of_differences,
};

use crate::{
    config::{Config, Sources},
    http::{admin::AdminState, public::PublicState, waiting_page::Pages},
    keys::{self, IfMissing, Keys},
    stores::{Logins, StoreSettings},
    tls::Certificates,
};

/// Takes over the zones, routes, keys, certificate, pages, tokens and passwords of the store of the configuration as it is now. Zones of a store are not changed, because the
/// store keeps them. Returns the new configuration, or none if something was not valid; the log says what.
pub(super) async fn reload(
    running: &Config,
    sources: &Sources,
    public: &PublicState,
    admin: &AdminState,
    (certificates, logins): (Option<&Certificates>, Option<&Logins>),
) -> Option<Config> {
    let new = sources
        .load()
        .inspect_err(|fault| tracing::error!("{fault} (the configuration stays as it was)"))
        .ok()?;
    for danger in new.dangers.iter().filter(|danger| !running.dangers.contains(danger)) {
        tracing::warn!("{danger}");
    }
    let mut pages = Pages::read(&new.wait)
        .inspect_err(|fault| tracing::error!("{fault} (the configuration stays as it was)"))
        .ok()?;
    let keys = Keys::read(&new.seal, &new.pass, &running.data_dir, IfMissing::Refuse)
        .inspect_err(|fault| tracing::error!("{fault} (the configuration stays as it was)"))
        .ok()?;
    let new_logins = match &new.store {
        StoreSettings::Memory => None,
        StoreSettings::Redis(redis) => Logins::read(redis)
            .map(Some)
            .inspect_err(|fault| tracing::error!("{fault} (the configuration stays as it was)"))
            .ok()?,
    };
    // A plain listener stays plain, and an encrypted one encrypted.
    let encrypted = certificates.zip(new.tls.as_ref());
    let certificate = encrypted
        .map(|(certificates, settings)| certificates.read(settings))
        .transpose()
        .inspect_err(|fault| tracing::error!("{fault} (the configuration stays as it was)"))
        .ok()?;
    let restart = running.needs_restart(&new);
    if !restart.is_empty() {
        tracing::warn!("changed in the configuration, and needs a restart: {}", restart.join(", "));
    }
    if admin.cells.is_empty() {
        match admin.editor.reload(new.zones.clone()).await {
            Ok(()) => {}
            Err(e @ DefineError::Disk(_)) => {
                tracing::error!("{e} (the zones stay as they were; send SIGHUP again)");
                return None;
            }
            // The editor has said which zone.
            Err(DefineError::Schedule(_)) => {
                tracing::error!("the configuration stays as it was");
                return None;
            }
            Err(e) => {
                tracing::error!("{e} (not every zone is as defined; send SIGHUP again)");
                return None;
            }
        }
    } else if new.has_file {
        let differ = definitions::differences(&new.zones, &admin.gate.definitions());
        if !differ.is_empty() {
            warn_of_differences(&differ);
        }
    }
    if let (Some((certificates, settings)), Some(read)) = (encrypted, &certificate) {
        certificates.take_over(settings, read);
    }
    if let Some((now, new)) = logins.zip(new_logins.as_ref())
        && now.take_over(new)
    {
        tracing::info!("new connections to the store use another password from now on");
    }
    for said in pages.note_unused(&admin.editor.list(), Some(&**public.pages.load())) {
        tracing::warn!("{said}");
    }
    public.pages.store(Arc::new(pages));
    public.routes.set_file(new.routes.clone());
    take_over(keys, public, !admin.cells.is_empty()).await;
    let guard = admin.guard.load().renewed(&new.admin_tokens, &new.admin_hosts);
    if guard.is_closed() {
        tracing::warn!(
            "the configuration has no [[admin_token]] any more: the admin API refuses everybody until there is one (`weir token \
             new`, then SIGHUP). After a restart without one, whoever reaches it from this machine is admin, without a token"
        );
    }
    admin.guard.store(Arc::new(guard));
    let file = sources.file().map_or_else(|| "(none)".to_owned(), |file| file.display().to_string());
    tracing::info!(file, zones = new.zones.len(), "the configuration was read again");
    Some(new)
}

/// Takes over the keys. Warns of what users lose by it. `shared` says whether other servers take the same tokens.
async fn take_over(Keys { seals, passes }: Keys, public: &PublicState, shared: bool) {
    let (old_seals, old_passes) = (public.gate.seals(), public.passes.load_full());
    for loss in keys::losses((&old_seals, &old_passes), (&seals, &passes), shared) {
        tracing::warn!("{loss}; see docs/operate/keys.md");
    }
    public.gate.set_seals(seals).await;
    public.passes.store(Arc::new(passes));
}
