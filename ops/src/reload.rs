//! What a node does at a SIGHUP: it reads its configuration file again, takes over what applies live, and
//! says what it took over and what it did not.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use cell_settings::{Author, SettingsRevision, SettingsStore, UpdateError};
use cell_terms::setting::Settings;

use crate::logging::{self, Filter};

/// The values in force, and what reads them anew.
pub(crate) struct Configuration {
    store: Arc<SettingsStore>,
    resolve: Box<dyn Fn() -> anyhow::Result<Settings>>,
}

impl Configuration {
    /// Of a process that started with these values. `resolve` makes them of the same sources as at the start;
    /// `filter` is that of the log.
    pub(crate) fn new(
        settings: Settings,
        filter: Filter,
        resolve: impl Fn() -> anyhow::Result<Settings> + 'static,
    ) -> Configuration {
        let store = Arc::new(SettingsStore::new(settings));
        store.subscribe(move |revision, settings| {
            if revision.changes.iter().any(|change| change.name == logging::FILTER) {
                filter.set(settings.text(logging::FILTER));
            }
        });
        Configuration { store, resolve: Box::new(resolve) }
    }

    /// For who follows the changes.
    pub(crate) fn store(&self) -> &Arc<SettingsStore> {
        &self.store
    }

    /// Reads the sources again. If they are wrong, nothing changes.
    pub(crate) fn reload(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at_unix_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let author = Author { name: "SIGHUP".to_owned(), at_unix_ms };
        let reloaded = (self.resolve)().and_then(|wanted| Ok(self.store.reload(author, &wanted)?));
        match reloaded {
            Ok(reloaded) => print_outcome(reloaded.revision.as_ref(), &reloaded.refused),
            Err(error) => {
                tracing::error!(
                    error = format!("{error:#}"),
                    "the configuration is wrong: all settings stay"
                );
            }
        }
    }
}

fn print_outcome(revision: Option<&SettingsRevision>, refused: &[UpdateError]) {
    for change in revision.iter().flat_map(|revision| &revision.changes) {
        tracing::info!(old = change.old, new = change.new, "`{}` is changed", change.name);
    }
    for refusal in refused {
        tracing::warn!("{refusal}");
    }
    let (changed, kept) = (revision.map_or(0, |revision| revision.changes.len()), refused.len());
    tracing::info!(changed, kept, "the configuration was read again");
}
