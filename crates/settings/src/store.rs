//! The values in force while a process runs. A change makes a revision; subscribers get each revision, in
//! order. Only settings that apply live can change.

use std::sync::{Mutex, MutexGuard, PoisonError};

use cell_terms::setting::{Applies, SettingError, Settings, Source};

use crate::rule::{Conflict, check_rules};

/// Who changed settings, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Author {
    /// A person, or what acts for one: `SIGHUP`.
    pub name: String,
    /// Milliseconds since 1970, by the caller's clock.
    pub at_unix_ms: u64,
}

/// One setting's change, as people write the values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingChange {
    /// The setting.
    pub name: &'static str,
    /// Its value before.
    pub old: String,
    /// Its value now.
    pub new: String,
    /// Where the new value is from.
    pub source: Source,
}

/// Settings that changed together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsRevision {
    /// Grows by one from revision to revision; 0 is what the process started with.
    pub number: u64,
    /// Who, and when.
    pub author: Author,
    /// At least one change.
    pub changes: Vec<SettingChange>,
}

/// A value that somebody wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedValue<'a> {
    /// The setting.
    pub name: &'a str,
    /// The value as people write it.
    pub text: &'a str,
    /// Where it is from.
    pub source: Source,
}

/// Why nothing was changed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum UpdateError {
    /// Somebody else was faster: read the settings again.
    #[error("the settings are at revision {current}, and the change was made for revision {expected}")]
    Stale {
        /// What the caller knew.
        expected: u64,
        /// What is in force.
        current: u64,
    },
    /// The setting is unknown, or its value out of bounds.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The setting cannot change while the process runs.
    #[error("`{name}` stays {old} and does not become {new}: a change {}", effect(*applies))]
    NotLive {
        /// The setting.
        name: &'static str,
        /// Its value.
        old: String,
        /// The value that is refused.
        new: String,
        /// When a change takes effect.
        applies: Applies,
    },
    /// The values contradict one another.
    #[error(transparent)]
    Conflict(#[from] Conflict),
}

fn effect(applies: Applies) -> &'static str {
    match applies {
        Applies::Live => "takes effect at once",
        Applies::Restart => "takes effect when the process starts again",
        Applies::Creation => "takes effect for regions that are made later, after a start",
    }
}

type Subscriber = Box<dyn FnMut(&SettingsRevision, &Settings) + Send>;

struct State {
    settings: Settings,
    revision: u64,
    subscribers: Vec<Subscriber>,
}

/// See the module's text.
pub struct SettingsStore {
    state: Mutex<State>,
}

/// What became of a new set of values.
#[derive(Clone, Debug, PartialEq)]
pub struct Reloaded {
    /// The revision, if anything changed.
    pub revision: Option<SettingsRevision>,
    /// Values that differ and do not apply live: they stay as they were.
    pub refused: Vec<UpdateError>,
}

impl SettingsStore {
    /// The values that a process starts with, as revision 0.
    #[must_use]
    pub fn new(settings: Settings) -> SettingsStore {
        SettingsStore { state: Mutex::new(State { settings, revision: 0, subscribers: Vec::new() }) }
    }

    /// The values in force and their revision.
    #[must_use]
    pub fn current(&self) -> (Settings, u64) {
        let state = self.state();
        (state.settings.clone(), state.revision)
    }

    /// Calls `subscriber` with each later revision and the values then in force, in order. It is called while
    /// the store is locked: it must neither wait nor call the store.
    pub fn subscribe(&self, subscriber: impl FnMut(&SettingsRevision, &Settings) + Send + 'static) {
        self.state().subscribers.push(Box::new(subscriber));
    }

    /// Changes some settings, all of them or none, if the revision is still the one that the caller knows.
    /// `None`: they have these values already.
    ///
    /// # Errors
    /// See [`UpdateError`].
    pub fn update(
        &self,
        expected: u64,
        author: Author,
        wanted: &[WantedValue<'_>],
    ) -> Result<Option<SettingsRevision>, UpdateError> {
        let mut state = self.state();
        if expected != state.revision {
            return Err(UpdateError::Stale { expected, current: state.revision });
        }
        let (next, changes) = state.plan(wanted)?;
        Ok(state.commit(author, next, changes))
    }

    /// Takes over what the same sources say now, `wanted`, as far as it applies live. A value that was set at
    /// run time stays.
    ///
    /// # Errors
    /// [`UpdateError::Conflict`]; nothing is changed then.
    pub fn reload(&self, author: Author, wanted: &Settings) -> Result<Reloaded, UpdateError> {
        let mut state = self.state();
        let mut refused = Vec::new();
        let mut live = Vec::new();
        for setting in wanted.declarations() {
            let (Some(old), Some(new)) = (state.settings.get(setting.name), wanted.get(setting.name)) else {
                continue;
            };
            if old.1 == Source::Admin || old.0 == new.0 {
                continue;
            }
            let (name, text, source) = (setting.name, wanted.shown(setting.name), new.1);
            match setting.applies {
                Applies::Live => live.push((name, text, source)),
                applies => {
                    let old = state.settings.shown(name);
                    refused.push(UpdateError::NotLive { name, old, new: text, applies });
                }
            }
        }
        let values = live.iter().map(|(name, text, source)| WantedValue { name, text, source: *source });
        let (next, changes) = state.plan(&values.collect::<Vec<_>>())?;
        Ok(Reloaded { revision: state.commit(author, next, changes), refused })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A subscriber that panicked leaves the values whole: they are replaced before it is called.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The values after a change, and what differs.
    fn plan(&self, wanted: &[WantedValue<'_>]) -> Result<(Settings, Vec<SettingChange>), UpdateError> {
        let mut next = self.settings.clone();
        let mut changes = Vec::new();
        for WantedValue { name, text, source } in wanted {
            let setting = next.overrule(name, text, *source)?;
            let name = setting.name;
            if self.settings.get(name).map(|old| old.0) == next.get(name).map(|new| new.0) {
                continue;
            }
            let (old, new) = (self.settings.shown(name), next.shown(name));
            if setting.applies != Applies::Live {
                return Err(UpdateError::NotLive { name, old, new, applies: setting.applies });
            }
            changes.push(SettingChange { name, old, new, source: *source });
        }
        check_rules(&next)?;
        Ok((next, changes))
    }

    fn commit(
        &mut self,
        author: Author,
        next: Settings,
        changes: Vec<SettingChange>,
    ) -> Option<SettingsRevision> {
        self.settings = next;
        if changes.is_empty() {
            return None;
        }
        self.revision += 1;
        let revision = SettingsRevision { number: self.revision, author, changes };
        for subscriber in &mut self.subscribers {
            subscriber(&revision, &self.settings);
        }
        Some(revision)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};

    use cell_terms::setting::{Bounds, Setting};

    use super::*;

    const LIVE: Setting = Setting {
        name: "age",
        meaning: "",
        default: "1 h",
        bounds: Bounds::Milliseconds { min: 1, max: 86_400_000 },
        applies: Applies::Live,
    };
    const DECLARED: &[Setting] = &[
        LIVE,
        Setting { name: "size", applies: Applies::Restart, ..LIVE },
        Setting { name: "more", ..LIVE },
    ];

    fn author() -> Author {
        Author { name: "test".to_owned(), at_unix_ms: 7 }
    }

    fn store() -> SettingsStore {
        SettingsStore::new(Settings::new(&[DECLARED]))
    }

    fn value<'a>(name: &'a str, text: &'a str) -> WantedValue<'a> {
        WantedValue { name, text, source: Source::Admin }
    }

    #[test]
    fn update_of_live_settings_makes_a_revision_that_subscribers_get() {
        let store = store();
        let (sender, heard) = mpsc::channel();
        store.subscribe(move |revision, settings| {
            sender.send((revision.clone(), settings.integer("age"))).unwrap();
        });
        let wanted = [value("age", "2 s"), value("more", "60 m")]; // the second is what it is
        let revision = store.update(0, author(), &wanted).unwrap().unwrap();
        let change =
            SettingChange { name: "age", old: "1 h".into(), new: "2 s".into(), source: Source::Admin };
        assert_eq!(revision, SettingsRevision { number: 1, author: author(), changes: vec![change] });
        assert_eq!(heard.try_recv(), Ok((revision, 2_000)));
        assert_eq!(store.update(1, author(), &wanted), Ok(None));
        assert!(heard.try_recv().is_err());
        assert_eq!(store.current().1, 1);
    }

    #[test]
    fn update_that_is_refused_changes_nothing() {
        let store = store();
        let stale = store.update(4, author(), &[value("age", "2 s")]);
        assert_eq!(stale, Err(UpdateError::Stale { expected: 4, current: 0 }));
        for (wanted, words) in [
            (
                [value("age", "2 s"), value("size", "2 s")],
                "`size` stays 1 h and does not become 2 s: a change",
            ),
            ([value("age", "2 s"), value("ages", "2 s")], "did you mean `age`"),
            ([value("age", "2 s"), value("more", "0")], "a time from 1 ms to 24 h"),
        ] {
            let error = store.update(0, author(), &wanted).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
            let (settings, revision) = store.current();
            assert_eq!((settings.integer("age"), revision), (3_600_000, 0));
        }
    }

    #[test]
    fn reload_takes_what_is_live_names_the_rest_and_leaves_what_was_set_at_run_time() {
        let store = store();
        store.update(0, author(), &[value("more", "5 s")]).unwrap();
        let mut wanted = Settings::new(&[DECLARED]);
        for (name, text) in [("age", "3 s"), ("size", "4 s"), ("more", "6 s")] {
            wanted.set(name, text, Source::File).unwrap();
        }
        let reloaded = store.reload(author(), &wanted).unwrap();
        let changes = reloaded.revision.unwrap().changes;
        assert_eq!(changes.iter().map(|change| change.name).collect::<Vec<_>>(), ["age"]);
        assert!(matches!(reloaded.refused.as_slice(), [UpdateError::NotLive { name: "size", .. }]));
        let (settings, revision) = store.current();
        assert_eq!((settings.integer("age"), settings.integer("more"), revision), (3_000, 5_000, 2));
        // A line that was taken out of the file again.
        let reloaded = store.reload(author(), &Settings::new(&[DECLARED])).unwrap();
        assert_eq!(reloaded.refused, []);
        assert_eq!(store.current().0.get("age").map(|(_, source)| source), Some(Source::Default));
    }

    #[test]
    fn update_by_many_at_once_loses_no_change_and_subscribers_see_one_unbroken_chain() {
        const THREADS: u64 = 4;
        const EACH: u64 = 200;
        let store = Arc::new(store());
        store.update(0, author(), &[value("age", "1")]).unwrap();
        let (sender, heard) = mpsc::channel();
        store.subscribe(move |revision, _| sender.send(revision.clone()).unwrap());
        let raise = |store: &SettingsStore| {
            loop {
                let (settings, revision) = store.current();
                let text = (settings.integer("age") + 1).to_string();
                match store.update(revision, author(), &[value("age", &text)]) {
                    Ok(_) => return,
                    Err(UpdateError::Stale { expected, current }) => assert!(current > expected),
                    Err(error) => panic!("{error}"),
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| (0..EACH).for_each(|_| raise(&store)));
            }
        });
        let (settings, revision) = store.current();
        assert_eq!((settings.integer("age"), revision), (1 + THREADS * EACH, 1 + THREADS * EACH));
        let chain: Vec<SettingsRevision> = heard.try_iter().collect();
        assert_eq!(chain.len() as u64, THREADS * EACH);
        for pair in chain.windows(2) {
            assert_eq!(pair[1].number, pair[0].number + 1);
            assert_eq!(pair[1].changes[0].old, pair[0].changes[0].new);
        }
    }
}
