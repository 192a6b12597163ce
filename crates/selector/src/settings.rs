//! The selector's constants, with their bounds.

use std::fmt;
use std::str::FromStr;

use cell_terms::setting::{Applies, Bounds, Setting, SettingError, Settings, Value};

/// By which rule the selector decides; the crate's text says what each optimises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// The rule of the paper.
    Paper,
    /// The rule that goes by what an operation costs all clients.
    #[default]
    Adaptive,
    /// A fixed share of the searches goes to the server.
    Fixed,
}

impl Policy {
    const NAMES: &'static [&'static str] = &["paper", "adaptive", "fixed"];

    /// The name, as settings have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Policy::Paper => "paper",
            Policy::Adaptive => "adaptive",
            Policy::Fixed => "fixed",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Policy {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Policy, SelectorError> {
        [Policy::Paper, Policy::Adaptive, Policy::Fixed]
            .into_iter()
            .find(|policy| policy.name() == text)
            .ok_or_else(|| SelectorError::UnknownPolicy { name: text.into() })
    }
}

/// Why constants were refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectorError {
    /// No policy has this name.
    #[error("there is no selector policy `{name}`; there are paper, adaptive and fixed")]
    UnknownPolicy {
        /// What was given.
        name: Box<str>,
    },
    /// A constant is out of its bounds.
    #[error("`{name}` cannot be {value}: it takes a number from {min} to {max}")]
    OutOfBounds {
        /// The setting's name.
        name: &'static str,
        /// What was given.
        value: f64,
        /// Smallest permitted.
        min: f64,
        /// Largest permitted.
        max: f64,
    },
}

/// Most samples that a moving average can have.
const WINDOW_MAX: u32 = 10_000;

/// The selector's settings.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "client_selector_policy",
        meaning: "By which rule `client_search = auto` decides who searches: by what an operation costs all \
                  clients (adaptive), by the shorter queue as the paper of Cell has it (paper), or by a \
                  fixed share (fixed).",
        default: "adaptive",
        bounds: Bounds::Choice(Policy::NAMES),
        applies: Applies::Live,
    },
    Setting {
        name: "client_selector_fixed_share",
        meaning: "Share of the searches that go to the server with the policy `fixed`.",
        default: "0.5",
        bounds: Bounds::Real { min: 0.0, max: 1.0 },
        applies: Applies::Live,
    },
    Setting {
        name: "client_selector_exploration",
        meaning: "How much of the searches goes to the path that is estimated to be the worse one (paper), or \
                  how much of their time is lost by that (adaptive).",
        default: "0.01",
        bounds: Bounds::Real { min: 0.0, max: 0.5 },
        applies: Applies::Live,
    },
    Setting {
        name: "client_selector_idle",
        meaning: "What was measured on a connection is forgotten when nothing was searched by it for so long.",
        default: "3 s",
        bounds: Bounds::Milliseconds { min: 1, max: 3_600_000 },
        applies: Applies::Live,
    },
    Setting {
        name: "client_selector_reads",
        meaning: "One-sided reads that a search is expected to need as long as none was measured.",
        default: "5",
        bounds: Bounds::Real { min: 1.0, max: 64.0 },
        applies: Applies::Live,
    },
    Setting {
        name: "client_selector_samples",
        meaning: "Samples of a moving average of the policy `paper`.",
        default: "100",
        bounds: Bounds::Integer { min: 10, max: WINDOW_MAX as u64 },
        applies: Applies::Live,
    },
    Setting {
        name: "client_selector_outlier",
        meaning: "The policy `paper` discards a sample that is off its average by so many standard deviations.",
        default: "3",
        bounds: Bounds::Real { min: 1.0, max: 1000.0 },
        applies: Applies::Live,
    },
    Setting {
        name: "client_selector_interval",
        meaning: "How often the policy `adaptive` changes the share of the searches that go to the server.",
        default: "5 ms",
        bounds: Bounds::Milliseconds { min: 1, max: 1000 },
        applies: Applies::Live,
    },
    Setting {
        name: "client_selector_wait_weight",
        meaning: "How much the policy `adaptive` counts the time that a search waits at the server or at its \
                  network card, beside the time that it travels: 1 is a search's own wait, more counts the \
                  wait that it adds to others.",
        default: "4",
        bounds: Bounds::Real { min: 1.0, max: 1000.0 },
        applies: Applies::Live,
    },
    Setting {
        name: "client_selector_read_cpu_ns",
        meaning: "Nanoseconds of the client's processor that each read of a search after the first takes (the \
                  first takes what a message to the server would); counted once for each other operation \
                  that the client has in hand. At most half of the lowest read latency counts, so that over \
                  RDMA it is less.",
        default: "1500",
        bounds: Bounds::Integer { min: 0, max: 1_000_000 },
        applies: Applies::Live,
    },
];

/// [`SETTINGS`] as the selector uses them.
#[derive(Clone, Debug, PartialEq)]
pub struct SelectorSettings {
    /// The rule.
    pub policy: Policy,
    /// Share of [`Policy::Fixed`] that goes to the server, from 0 to 1.
    pub fixed_share: f64,
    /// `p` of the paper.
    pub exploration: f64,
    /// History is dropped after so long without a search.
    pub idle_ns: u64,
    /// `m` before anything was measured.
    pub reads_initial: f64,
    /// `n` of the paper.
    pub samples: u32,
    /// `K` of the paper.
    pub outlier_deviations: f64,
    /// Time between two changes of the share of [`Policy::Adaptive`].
    pub interval_ns: u64,
    /// Weight of a wait in a queue.
    pub wait_weight: f64,
    /// The client's processor time of one read.
    pub read_cpu_ns: f64,
}

impl SelectorSettings {
    /// The settings in force.
    ///
    /// # Panics
    /// If [`SETTINGS`] are not among the declarations.
    #[must_use]
    pub fn from_settings(settings: &Settings) -> SelectorSettings {
        let milliseconds = |name| settings.integer(name).saturating_mul(1_000_000);
        let policy = settings.text("client_selector_policy");
        SelectorSettings {
            policy: policy.parse().expect("a choice is one of the policies"),
            fixed_share: settings.real("client_selector_fixed_share"),
            exploration: settings.real("client_selector_exploration"),
            idle_ns: milliseconds("client_selector_idle"),
            reads_initial: settings.real("client_selector_reads"),
            samples: u32::try_from(settings.integer("client_selector_samples")).unwrap_or(WINDOW_MAX),
            outlier_deviations: settings.real("client_selector_outlier"),
            interval_ns: milliseconds("client_selector_interval"),
            wait_weight: settings.real("client_selector_wait_weight"),
            read_cpu_ns: settings.integer("client_selector_read_cpu_ns") as f64,
        }
    }

    /// Sets one constant from the text that people write. False: no setting of the selector has this name.
    ///
    /// # Errors
    /// The text is not of the setting's kind, or out of its bounds; nothing is changed then.
    pub fn set(&mut self, name: &str, text: &str) -> Result<bool, SettingError> {
        let Some(setting) = SETTINGS.iter().find(|setting| setting.name == name) else { return Ok(false) };
        let number = match setting.parse(text)? {
            Value::Integer(number) => number,
            Value::Real(number) => {
                match setting.name {
                    "client_selector_fixed_share" => self.fixed_share = number,
                    "client_selector_exploration" => self.exploration = number,
                    "client_selector_reads" => self.reads_initial = number,
                    "client_selector_outlier" => self.outlier_deviations = number,
                    "client_selector_wait_weight" => self.wait_weight = number,
                    _ => return Ok(false),
                }
                return Ok(true);
            }
            Value::Text(policy) => {
                self.policy = policy.parse().expect("a choice is one of the policies");
                return Ok(true);
            }
            Value::Flag(_) => return Ok(false),
        };
        match setting.name {
            "client_selector_idle" => self.idle_ns = number.saturating_mul(1_000_000),
            "client_selector_interval" => self.interval_ns = number.saturating_mul(1_000_000),
            "client_selector_samples" => self.samples = u32::try_from(number).unwrap_or(WINDOW_MAX),
            "client_selector_read_cpu_ns" => self.read_cpu_ns = number as f64,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Checks constants that did not come from [`Settings`], which checks them itself.
    ///
    /// # Errors
    /// The first constant that is out of its bounds.
    pub fn check(&self) -> Result<(), SelectorError> {
        let given: [(&'static str, f64); 9] = [
            ("client_selector_fixed_share", self.fixed_share),
            ("client_selector_exploration", self.exploration),
            ("client_selector_idle", self.idle_ns as f64 / 1e6),
            ("client_selector_reads", self.reads_initial),
            ("client_selector_samples", f64::from(self.samples)),
            ("client_selector_outlier", self.outlier_deviations),
            ("client_selector_interval", self.interval_ns as f64 / 1e6),
            ("client_selector_wait_weight", self.wait_weight),
            ("client_selector_read_cpu_ns", self.read_cpu_ns),
        ];
        for (name, value) in given {
            let (min, max) = bounds_of(name);
            if !(min..=max).contains(&value) {
                return Err(SelectorError::OutOfBounds { name, value, min, max });
            }
        }
        Ok(())
    }
}

/// Bounds of a declared number; of a time in milliseconds.
fn bounds_of(name: &str) -> (f64, f64) {
    let setting = SETTINGS.iter().find(|setting| setting.name == name);
    match setting.map(|setting| setting.bounds) {
        Some(Bounds::Real { min, max }) => (min, max),
        Some(Bounds::Integer { min, max } | Bounds::Milliseconds { min, max }) => (min as f64, max as f64),
        _ => unreachable!("`{name}` is declared above as a number"),
    }
}

impl Default for SelectorSettings {
    fn default() -> SelectorSettings {
        SelectorSettings::from_settings(&Settings::new(&[SETTINGS]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_the_papers_constants() {
        let settings = SelectorSettings::default();
        assert_eq!(settings.check(), Ok(()));
        assert_eq!((settings.samples, settings.outlier_deviations), (100, 3.0));
        assert_eq!(
            (settings.exploration, settings.idle_ns, settings.reads_initial),
            (0.01, 3_000_000_000, 5.0)
        );
    }

    #[test]
    fn set_of_each_declared_setting_is_what_the_settings_would_give() {
        let others = [
            ("client_selector_policy", "paper"),
            ("client_selector_fixed_share", "0.25"),
            ("client_selector_exploration", "0.1"),
            ("client_selector_idle", "1 s"),
            ("client_selector_reads", "2.5"),
            ("client_selector_samples", "50"),
            ("client_selector_outlier", "4"),
            ("client_selector_interval", "9 ms"),
            ("client_selector_wait_weight", "2"),
            ("client_selector_read_cpu_ns", "77"),
        ];
        assert_eq!(
            others.map(|(name, _)| name).as_slice(),
            SETTINGS.iter().map(|s| s.name).collect::<Vec<_>>()
        );
        for (name, text) in others {
            let mut declared = Settings::new(&[SETTINGS]);
            declared.set(name, text, cell_terms::setting::Source::Admin).unwrap();
            let mut set = SelectorSettings::default();
            assert_eq!(set.set(name, text), Ok(true));
            assert_eq!(set, SelectorSettings::from_settings(&declared), "{name}");
            assert_ne!(set, SelectorSettings::default(), "{name}");
            let before = set.clone();
            assert!(set.set(name, "-3").is_err() && set == before, "{name}");
        }
        assert_eq!(SelectorSettings::default().set("client_selector_luck", "1"), Ok(false));
    }

    #[test]
    fn constant_out_of_bounds_is_named_with_its_bounds() {
        let wrong = SelectorSettings { exploration: 0.7, ..SelectorSettings::default() };
        let text = wrong.check().unwrap_err().to_string();
        assert_eq!(text, "`client_selector_exploration` cannot be 0.7: it takes a number from 0 to 0.5");
        let wrong = SelectorSettings { fixed_share: f64::NAN, ..SelectorSettings::default() };
        assert!(wrong.check().is_err());
        let wrong = SelectorSettings { samples: 0, ..SelectorSettings::default() };
        assert!(wrong.check().unwrap_err().to_string().contains("client_selector_samples"));
    }

    #[test]
    fn unknown_policy_is_refused_with_those_that_there_are() {
        let error = "best".parse::<Policy>().unwrap_err().to_string();
        assert_eq!(error, "there is no selector policy `best`; there are paper, adaptive and fixed");
        for name in Policy::NAMES {
            assert_eq!(name.parse::<Policy>().unwrap().to_string(), *name);
        }
    }
}
