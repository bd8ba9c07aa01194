//! The routes that operators set while servers run, as one text. What it means is not the gate's business.
//!
//! With a store that keeps the zones, its register has the text too, and every server of the store sees a change within a second.
//! Without such a store, it is `routes.json` in the data directory. Invariants: of changes that expect the same text, one succeeds;
//! the file on disk is always whole; a file that cannot be read is refused by name, and never taken for empty.

use std::sync::Arc;

use store::{RoutesDefined, Store};
use tokio::time::timeout;

use super::{
    change::DefineError,
    editor::{DefinitionStore, IN_FORCE_TIMEOUT, ZoneEditor, on_disk},
    overrides::Staged,
    routes_file::{NAME, ROUTES_MAX_LEN},
};

impl<S: Store> ZoneEditor<S> {
    /// The routes as last listed; `None` if there never were any.
    #[must_use]
    pub fn routes(&self) -> Option<Arc<str>> {
        self.gate.routes().borrow().clone()
    }

    /// Replaces the routes if they are as expected. The change is listed here on return, or as soon as the store answers. Run it to
    /// its end: a caller that goes away leaves it half known.
    ///
    /// # Errors
    /// See [`DefineError`]. Nothing is changed then, except perhaps with [`DefineError::Away`].
    ///
    /// # Panics
    /// If the text is longer than [`ROUTES_MAX_LEN`].
    pub async fn set_routes(
        &self,
        expected: Option<Arc<str>>,
        new: Arc<str>,
    ) -> Result<RoutesDefined, DefineError> {
        assert!(new.len() <= ROUTES_MAX_LEN, "routes of {} bytes", new.len());
        let refresh_of = match &self.kept_in {
            DefinitionStore::Configuration(overrides) => {
                // One change at a time.
                let overrides = overrides.lock().await;
                let now = self.routes();
                if now != expected {
                    return Ok(RoutesDefined::Otherwise(now));
                }
                let (dir, text) = (overrides.dir().to_owned(), Arc::clone(&new));
                on_disk(move || Staged::write(&dir, NAME, &text)?.commit()).await?;
                self.gate.routes().send_replace(Some(new));
                return Ok(RoutesDefined::Done);
            }
            DefinitionStore::Store(refresh_of) => refresh_of,
        };
        // The routes are where the zones without a tenant are.
        let refresh = refresh_of("").ok_or(DefineError::NoCell)?;
        let defined = self.gate.store().define_routes(expected.as_deref(), &new).await?;
        if defined == RoutesDefined::Done && timeout(IN_FORCE_TIMEOUT, refresh.wait()).await.is_err() {
            tracing::warn!("the routes are stored but not in force here yet: the store does not answer");
        }
        Ok(defined)
    }
}
