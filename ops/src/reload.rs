//! What a node does at a SIGHUP: it reads its configuration file again, takes over what applies live, and
//! says what it took over and what it did not.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use cell_fabric::NodeTls;
use cell_node::{AccessRules, ProcessWarnings, WarningSubject};
use cell_settings::{Author, SettingsRevision, SettingsStore, UpdateError};
use cell_terms::setting::{Applies, Settings};
use cell_terms::text::with_causes;

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
    /// read again and right; so it does of each value that does not take effect now, until the sources have
    /// the old one again.
    pub(crate) fn reload(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at_unix_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let author = Author { name: "SIGHUP".to_owned(), at_unix_ms };
        let reloaded = (self.resolve)().and_then(|wanted| Ok(self.store.reload(author, &wanted)?));
        let mut warnings = Vec::new();
        match reloaded {
            Ok(reloaded) => {
                print_outcome(reloaded.revision.as_ref(), &reloaded.refused);
                warnings.extend(reloaded.refused.iter().map(kept));
            }
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

/// Reads certificates again that were replaced.
pub(crate) fn certificates(tls: &NodeTls) {
    match tls.read_if_changed() {
        Ok(false) => {}
        Ok(true) => tracing::info!("certificates were read again"),
        Err(errors) => {
            for error in errors {
                let error = with_causes(&error);
                tracing::error!(error, "a file of TLS is wrong: what it said before counts on");
            }
        }
    }
}

/// Reads tokens again.
pub(crate) fn tokens(access: &AccessRules) {
    match access.read_again() {
        Ok(count) => tracing::info!(count, "the tokens were read again"),
        Err(error) => {
            let error = with_causes(&error);
            tracing::error!(error, "the file of tokens is wrong: all tokens stay what they were");
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

/// What of the sources is not in force, and until when.
fn kept(refused: &UpdateError) -> String {
    let words = match refused {
        UpdateError::NotLive { name, old, new, applies: Applies::Creation(_) } => format!(
            "`{name}` stays {old} until the process starts again, and the configuration has {new} since it was \
             read again: regions that are made after that start get it"
        ),
        UpdateError::NotLive { name, old, new, .. } => format!(
            "`{name}` stays {old} until the process starts again, and the configuration has {new} since it was \
             read again"
        ),
        other => format!("the configuration is not in force whole since it was read again: {other}"),
    };
    in_one_line(&words)
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
    use cell_terms::setting::{Bounds, Setting, Source};

    use super::*;

    #[test]
    fn value_that_waits_for_a_start_is_warned_of_until_it_is_taken_back() {
        const AGE: Setting = Setting {
            name: "age",
            meaning: "",
            default: "1 s",
            bounds: Bounds::Milliseconds { min: 1, max: 86_400_000 },
            applies: Applies::Restart("It is old."),
        };
        const DECLARED: &[Setting] =
            &[AGE, Setting { name: "size", applies: Applies::Creation("So."), ..AGE }];
        let store = SettingsStore::new(Settings::new(&[DECLARED]));
        let warnings = |age: &str, size: &str| -> Vec<String> {
            let mut wanted = store.given();
            wanted.set("age", age, Source::Flag).unwrap();
            wanted.set("size", size, Source::Flag).unwrap();
            let author = Author { name: "test".to_owned(), at_unix_ms: 7 };
            store.reload(author, &wanted).unwrap().refused.iter().map(kept).collect()
        };
        let waits = "`age` stays 1 s until the process starts again, and the configuration has 2 s since it was \
                     read again";
        assert_eq!(warnings("2 s", "1 s"), [waits]);
        let both = warnings("2 s", "3 s");
        assert_eq!((both.len(), &*both[0]), (2, waits));
        assert!(both[1].starts_with("`size` stays 1 s until") && both[1].ends_with(" get it"), "{both:?}");
        assert_eq!(warnings("1 s", "1 s"), [""; 0]);
    }

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
