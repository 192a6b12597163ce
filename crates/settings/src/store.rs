//! The values in force while a process runs: those that its sources gave, and over them those that the
//! cluster was tuned to. A change makes a revision; subscribers get each revision, in order. Only settings
//! that apply live can change.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cell_terms::setting::{Applies, Setting, SettingError, Settings, Source, Value};

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

/// Values that the cluster was tuned to, by the settings' names, as people write them.
pub type TunedValues = BTreeMap<String, String>;

/// Why nothing was changed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum UpdateError {
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
    /// The process cannot take so much any more.
    #[error("`{name}` does not become {new}: this process takes at most {most}, because {why}")]
    TooMuch {
        /// The setting.
        name: &'static str,
        /// The value that is refused.
        new: String,
        /// The largest that it takes.
        most: String,
        /// Half a sentence.
        why: &'static str,
    },
    /// The values contradict one another.
    #[error(transparent)]
    Conflict(#[from] Conflict),
}

fn effect(applies: Applies) -> String {
    match applies {
        Applies::Live => "takes effect at once".to_owned(),
        Applies::Restart(why) => format!("takes effect when the process starts again. {why}"),
        Applies::Creation(why) => {
            format!("takes effect for regions that are made later, after a start. {why}")
        }
    }
}

type Subscriber = Box<dyn FnMut(&SettingsRevision, &Settings) + Send>;

struct State {
    /// What the sources gave.
    given: Settings,
    tuned: TunedValues,
    /// What is in force: both.
    settings: Settings,
    revision: u64,
    subscribers: Vec<Subscriber>,
    bounds: Vec<ProcessBound>,
}

/// The most that this process takes of a setting, and why.
struct ProcessBound {
    name: &'static str,
    most: u64,
    why: &'static str,
}

/// See the module's text.
pub struct SettingsStore {
    state: Mutex<State>,
}

/// What became of a new set of values.
#[derive(Clone, Debug, PartialEq)]
pub struct Taken {
    /// The revision, if anything changed.
    pub revision: Option<SettingsRevision>,
    /// Values that are wrong, or do not apply live: those settings stay as they were.
    pub refused: Vec<UpdateError>,
}

impl SettingsStore {
    /// The values that a process starts with, as revision 0.
    #[must_use]
    pub fn new(given: Settings) -> SettingsStore {
        let settings = given.clone();
        let (tuned, subscribers, bounds) = (TunedValues::new(), Vec::new(), Vec::new());
        SettingsStore {
            state: Mutex::new(State { given, tuned, settings, revision: 0, subscribers, bounds }),
        }
    }

    /// Refuses changes of a number to more than this process takes, because of what it decided at its start.
    /// `why` is half a sentence.
    pub fn bound(&self, name: &'static str, most: u64, why: &'static str) {
        self.state().bounds.push(ProcessBound { name, most, why });
    }

    /// The values in force and their revision.
    #[must_use]
    pub fn current(&self) -> (Settings, u64) {
        let state = self.state();
        (state.settings.clone(), state.revision)
    }

    /// The values that the sources gave: what is in force where nothing is tuned.
    #[must_use]
    pub fn given(&self) -> Settings {
        self.state().given.clone()
    }

    /// Calls `subscriber` with each later revision and the values then in force, in order. It is called while
    /// the store is locked: it must neither wait nor call the store.
    pub fn subscribe(&self, subscriber: impl FnMut(&SettingsRevision, &Settings) + Send + 'static) {
        self.state().subscribers.push(Box::new(subscriber));
    }

    /// Whether the cluster can be tuned to these values, all of them; what would differ from the values in
    /// force.
    ///
    /// # Errors
    /// Everything that is wrong: a setting that is unknown or does not apply live, a value out of bounds; if
    /// each alone is right, a contradiction.
    pub fn check(&self, tuned: &TunedValues) -> Result<Vec<SettingChange>, Vec<UpdateError>> {
        let state = self.state();
        let (next, refused) = state.tuned_to(tuned);
        if !refused.is_empty() {
            return Err(refused);
        }
        check_rules(&next).map_err(|conflict| vec![conflict.into()])?;
        Ok(state.changes(&next))
    }

    /// Puts the values into force that the cluster is tuned to, and gives back those that it is no longer.
    /// What this process cannot take (the setting is unknown here, or does not apply live) it leaves out.
    ///
    /// # Errors
    /// [`UpdateError::Conflict`] with the values that this process was given; nothing is changed then.
    pub fn tune(&self, author: Author, tuned: &TunedValues) -> Result<Taken, UpdateError> {
        let mut state = self.state();
        let (next, refused) = state.tuned_to(tuned);
        check_rules(&next)?;
        state.tuned.clone_from(tuned);
        Ok(Taken { revision: state.commit(author, next), refused })
    }

    /// Takes over what the same sources say now, `wanted`, as far as it applies live. A value that the
    /// cluster was tuned to stays in force.
    ///
    /// # Errors
    /// [`UpdateError::Conflict`]; nothing is changed then.
    pub fn reload(&self, author: Author, wanted: &Settings) -> Result<Taken, UpdateError> {
        let mut state = self.state();
        let mut given = state.given.clone();
        let mut refused = Vec::new();
        for setting in wanted.declarations() {
            let name = setting.name;
            let (Some(old), Some(new)) = (state.given.get(name), wanted.get(name)) else { continue };
            if old.0 == new.0 {
                continue;
            }
            let (text, source) = (wanted.shown(name), new.1);
            match setting.applies {
                Applies::Live => match state.check_bound(setting, wanted) {
                    Ok(()) => drop(given.overrule(name, &text, source)?),
                    Err(error) => refused.push(error),
                },
                applies => {
                    let old = state.given.shown(name);
                    refused.push(UpdateError::NotLive { name, old, new: text, applies });
                }
            }
        }
        let before = std::mem::replace(&mut state.given, given);
        let next = state.tuned_to(&state.tuned).0;
        if let Err(conflict) = check_rules(&next) {
            state.given = before;
            return Err(conflict.into());
        }
        Ok(Taken { revision: state.commit(author, next), refused })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A subscriber that panicked leaves the values whole: they are replaced before it is called.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The given values with tuned ones over them, and what cannot be taken of those.
    fn tuned_to(&self, tuned: &TunedValues) -> (Settings, Vec<UpdateError>) {
        let mut next = self.given.clone();
        let mut refused = Vec::new();
        for (name, text) in tuned {
            let mut tried = next.clone();
            match tried.overrule(name, text, Source::Admin) {
                Ok(setting) if setting.applies == Applies::Live => match self.check_bound(setting, &tried) {
                    Ok(()) => next = tried,
                    Err(error) => refused.push(error),
                },
                Ok(setting) => refused.push(UpdateError::NotLive {
                    name: setting.name,
                    old: self.given.shown(setting.name),
                    new: tried.shown(setting.name),
                    applies: setting.applies,
                }),
                Err(error) => refused.push(error.into()),
            }
        }
        (next, refused)
    }

    /// Whether this process takes a setting's value.
    fn check_bound(&self, setting: &Setting, settings: &Settings) -> Result<(), UpdateError> {
        let Some((Value::Integer(number), _)) = settings.get(setting.name) else { return Ok(()) };
        let is_over = |bound: &&ProcessBound| bound.name == setting.name && *number > bound.most;
        let Some(ProcessBound { name, most, why }) = self.bounds.iter().find(is_over) else { return Ok(()) };
        let (new, most) = (settings.shown(name), setting.format(&Value::Integer(*most)));
        Err(UpdateError::TooMuch { name, new, most, why })
    }

    /// What differs from the values in force.
    fn changes(&self, next: &Settings) -> Vec<SettingChange> {
        let differs = |name| self.settings.get(name).map(|old| old.0) != next.get(name).map(|new| new.0);
        let names = next.declarations().map(|setting| setting.name).filter(|name| differs(name));
        let change = |name| SettingChange {
            name,
            old: self.settings.shown(name),
            new: next.shown(name),
            source: next.get(name).map_or(Source::Default, |new| new.1),
        };
        names.map(change).collect()
    }

    fn commit(&mut self, author: Author, next: Settings) -> Option<SettingsRevision> {
        let changes = self.changes(&next);
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

    use cell_terms::setting::Bounds;

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
        Setting { name: "size", applies: Applies::Restart("It is large."), ..LIVE },
        Setting { name: "more", ..LIVE },
        Setting { name: "client_retry_shortest", default: "1 s", ..LIVE },
        Setting { name: "client_retry_longest", default: "2 s", ..LIVE },
    ];

    fn author() -> Author {
        Author { name: "test".to_owned(), at_unix_ms: 7 }
    }

    fn store() -> SettingsStore {
        SettingsStore::new(Settings::new(&[DECLARED]))
    }

    fn values(values: &[(&str, &str)]) -> TunedValues {
        values.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn tune_of_live_settings_makes_a_revision_that_subscribers_get() {
        let store = store();
        let (sender, receiver) = mpsc::channel();
        store.subscribe(move |revision, settings| {
            sender.send((revision.clone(), settings.integer("age"))).unwrap();
        });
        let tuned = values(&[("age", "2 s"), ("more", "60 m")]); // the second is what it is
        assert_eq!(store.check(&tuned).unwrap().len(), 1);
        let taken = store.tune(author(), &tuned).unwrap();
        let revision = taken.revision.unwrap();
        let change =
            SettingChange { name: "age", old: "1 h".into(), new: "2 s".into(), source: Source::Admin };
        assert_eq!(revision, SettingsRevision { number: 1, author: author(), changes: vec![change] });
        assert_eq!((receiver.try_recv(), taken.refused), (Ok((revision, 2_000)), vec![]));
        assert_eq!(store.tune(author(), &tuned).unwrap().revision, None);
        assert!(receiver.try_recv().is_err());
        // What is no longer tuned goes back to what the process was given.
        assert_eq!(store.tune(author(), &values(&[])).unwrap().revision.unwrap().changes[0].new, "1 h");
        assert_eq!((store.current().0.integer("age"), store.current().1), (3_600_000, 2));
    }

    #[test]
    fn check_names_everything_that_is_wrong() {
        let store = store();
        let wrong = values(&[("age", "2 s"), ("ages", "2 s"), ("more", "0"), ("size", "2 s")]);
        let errors = store.check(&wrong).unwrap_err();
        let words: Vec<String> = errors.iter().map(ToString::to_string).collect();
        for (said, wanted) in words.iter().zip([
            "did you mean `age`",
            "a time from 1 ms to 24 h",
            "`size` stays 1 h and does not become 2 s: a change takes effect when the process starts again. It is",
        ]) {
            assert!(said.contains(wanted), "{said}");
        }
        let contrary = store.check(&values(&[("client_retry_shortest", "3 s")])).unwrap_err();
        assert!(matches!(contrary.as_slice(), [UpdateError::Conflict(_)]), "{contrary:?}");
        assert_eq!(store.current().1, 0);
    }

    #[test]
    fn tune_takes_what_it_can_and_names_the_rest() {
        let store = store();
        let taken = store.tune(author(), &values(&[("age", "2 s"), ("size", "2 s"), ("new", "1")])).unwrap();
        assert_eq!((taken.refused.len(), store.current().0.integer("age")), (2, 2_000));
        let contrary = store.tune(author(), &values(&[("client_retry_shortest", "3 s")]));
        assert!(matches!(contrary, Err(UpdateError::Conflict(_))));
        assert_eq!(store.current().0.integer("age"), 2_000, "nothing is changed");
    }

    #[test]
    fn value_past_what_the_process_takes_is_refused_with_the_reason_from_every_source() {
        let store = store();
        store.bound("age", 7_200_000, "it was decided");
        let tuned = values(&[("age", "3 h"), ("more", "5 s")]);
        let said = store.check(&tuned).unwrap_err()[0].to_string();
        assert_eq!(said, "`age` does not become 3 h: this process takes at most 2 h, because it was decided");
        let taken = store.tune(author(), &tuned).unwrap();
        assert!(matches!(taken.refused.as_slice(), [UpdateError::TooMuch { name: "age", .. }]));
        let mut wanted = Settings::new(&[DECLARED]);
        wanted.set("age", "4 h", Source::File).unwrap();
        assert_eq!(store.reload(author(), &wanted).unwrap().refused.len(), 1);
        assert_eq!(store.current().0.shown("age"), "1 h");
        store.tune(author(), &values(&[("age", "2 h")])).unwrap();
        assert_eq!(store.current().0.shown("age"), "2 h");
    }

    #[test]
    fn reload_takes_what_is_live_names_the_rest_and_leaves_what_the_cluster_is_tuned_to() {
        let store = store();
        store.tune(author(), &values(&[("more", "5 s")])).unwrap();
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
        // The file's value was kept for when the tuning ends.
        store.tune(author(), &values(&[])).unwrap();
        assert_eq!(store.current().0.integer("more"), 6_000);
        // A line that was taken out of the file again.
        let reloaded = store.reload(author(), &Settings::new(&[DECLARED])).unwrap();
        assert_eq!(reloaded.refused, []);
        assert_eq!(store.current().0.get("age").map(|(_, source)| source), Some(Source::Default));
    }

    #[test]
    fn tune_by_many_at_once_is_seen_as_one_unbroken_chain() {
        const THREADS: u64 = 4;
        const EACH: u64 = 200;
        let store = Arc::new(store());
        let (sender, receiver) = mpsc::channel();
        store.subscribe(move |revision, _| sender.send(revision.clone()).unwrap());
        std::thread::scope(|scope| {
            for thread in 1..=THREADS {
                let store = &store;
                scope.spawn(move || {
                    for nth in 1..=EACH {
                        let text = (thread * 1_000 + nth).to_string();
                        store.tune(author(), &values(&[("age", &text)])).unwrap();
                    }
                });
            }
        });
        let chain: Vec<SettingsRevision> = receiver.try_iter().collect();
        assert_eq!((chain.len() as u64, store.current().1), (THREADS * EACH, THREADS * EACH));
        for pair in chain.windows(2) {
            assert_eq!(pair[1].number, pair[0].number + 1);
            assert_eq!(pair[1].changes[0].old, pair[0].changes[0].new);
        }
    }
}
