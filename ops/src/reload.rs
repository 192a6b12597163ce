//! What a node does at a SIGHUP: it reads its configuration file again, takes over what applies live, and
//! says what it took over and what it did not.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use cell_node::{ProcessWarnings, WarningSubject};
use cell_settings::{Author, SettingsRevision, SettingsStore, UpdateError};
use cell_terms::setting::Settings;

use crate::logging::{self, Filter};
use crate::output::message;

/// The values in force, and what reads them anew.
pub(crate) struct Configuration {
    store: Arc<SettingsStore>,
    warnings: Arc<ProcessWarnings>,
    resolve: Box<dyn Fn() -> anyhow::Result<Settings>>,
}

impl Configuration {
    /// Of a process that started with these values. `resolve` makes them of the same sources as at the start;
    /// `filter` is that of the log; `warnings` get what is wrong with them.
    pub(crate) fn new(
        settings: Settings,
        filter: Filter,
        warnings: Arc<ProcessWarnings>,
        resolve: impl Fn() -> anyhow::Result<Settings> + 'static,
    ) -> Configuration {
        let store = Arc::new(SettingsStore::new(settings));
        store.subscribe(move |revision, settings| {
            if revision.changes.iter().any(|change| change.name == logging::FILTER) {
                filter.set(settings.text(logging::FILTER));
            }
        });
        Configuration { store, warnings, resolve: Box::new(resolve) }
    }

    /// For who follows the changes.
    pub(crate) fn store(&self) -> &Arc<SettingsStore> {
        &self.store
    }

    /// Reads the sources again. If they are wrong, nothing changes, and the node warns of that until they are
    /// read again and right.
    pub(crate) fn reload(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at_unix_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let author = Author { name: "SIGHUP".to_owned(), at_unix_ms };
        let reloaded = (self.resolve)().and_then(|wanted| Ok(self.store.reload(author, &wanted)?));
        let mut warnings = Vec::new();
        match reloaded {
            Ok(reloaded) => print_outcome(reloaded.revision.as_ref(), &reloaded.refused),
            Err(error) => {
                tracing::error!(
                    error = format!("{error:#}"),
                    "the configuration is wrong: all settings stay"
                );
                let why = in_one_line(&message::in_words(&error));
                let what =
                    "the configuration is wrong since it was read again, and the settings before it hold";
                warnings.push(format!("{what}: {why}"));
            }
        }
        self.warnings.set(WarningSubject::Configuration, warnings);
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

/// A text without the lines that show a file's: an error of TOML has some below its place.
fn in_one_line(text: &str) -> String {
    let is_of_the_file = |line: &&str| {
        let line = line.trim_start_matches(|digit: char| digit.is_ascii_digit() || digit == ' ');
        line.starts_with('|')
    };
    let lines = text.lines().filter(|line| !is_of_the_file(line)).map(str::trim);
    lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use cell_settings::read_file;

    use super::*;

    #[test]
    fn in_one_line_an_error_of_toml_has_its_place_and_its_reason() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "# one\nlease_ms = = 1\n").unwrap();
        let error = read_file(&mut Settings::new(&[]), file.path()).unwrap_err();
        let said = in_one_line(&message::in_words(&error.into()));
        let begin = format!("{}: TOML parse error at line 2, column ", file.path().display());
        assert!(said.starts_with(&begin), "{said}");
        assert!(!said.contains(['|', '\n']) && said.matches(": ").count() > 1, "{said}");
        assert_eq!(in_one_line("a: b"), "a: b");
    }
}
