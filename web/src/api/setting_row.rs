//! A setting as the API shows it: what it takes, its value and where that is from.

use cell_cluster::TuningRow;
use cell_settings::Registry;
use cell_terms::setting::{Applies, Bounds, Setting, Settings, Source, Value};
use serde::Serialize;

/// A setting of the cluster.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct SettingRow {
    pub(crate) name: &'static str,
    /// The value in force, as people write it.
    pub(crate) value: String,
    /// The same as a number in the setting's unit.
    pub(crate) value_number: Option<serde_json::Value>,
    /// Written as `value` is.
    pub(crate) default: String,
    /// `default`, `file`, `environment`, `flag`; `admin`: the cluster was tuned to it.
    pub(crate) source: &'static str,
    /// `live`, `restart` or `creation`.
    pub(crate) applies: String,
    pub(crate) why_not_live: Option<&'static str>,
    #[serde(flatten)]
    pub(crate) limits: Limits,
    pub(crate) section: &'static str,
    pub(crate) meaning: &'static str,
    /// When a tuned value ends, in milliseconds since 1970.
    pub(crate) expires_unix_ms: Option<u64>,
    /// The series of `/api/v1/series` that it moves.
    pub(crate) series: Option<&'static str>,
}

/// What a setting takes.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Limits {
    pub(crate) unit: Option<&'static str>,
    pub(crate) kind: &'static str,
    /// A number, or text with a unit.
    pub(crate) min: Option<serde_json::Value>,
    pub(crate) max: Option<serde_json::Value>,
    /// It takes 0 besides, which is none.
    pub(crate) or_none: bool,
    pub(crate) choices: Option<Vec<&'static str>>,
}

/// What each setting moves, where that can be seen.
const SERIES: [(&str, &str); 10] = [
    ("client_selector_exploration", "one_sided_share"),
    ("client_selector_policy", "one_sided_share"),
    ("client_selector_wait_weight", "queue_estimate_us"),
    ("checkpoint_log_bytes_min", "log_bytes"),
    ("checkpoint_log_ratio", "log_bytes"),
    ("split_fill_percent", "splits_finished"),
    ("log_batch_bytes", "log_batches"),
    ("compaction_ratio", "tree_nodes"),
    ("scan_page_entries_max", "ops_scan"),
    ("memory_limit_bytes", "memory_used_bytes"),
];

impl Limits {
    /// Of a declaration.
    pub(crate) fn of(setting: &Setting) -> Limits {
        let none = |kind| Limits { unit: None, kind, min: None, max: None, or_none: false, choices: None };
        let texts = |kind, unit, [min, max]: [u64; 2]| {
            let text = |bound| Some(setting.format(&Value::Integer(bound)).into());
            Limits { unit: Some(unit), min: text(min), max: text(max), ..none(kind) }
        };
        match setting.bounds {
            Bounds::Integer { min, max } => {
                Limits { min: Some(min.into()), max: Some(max.into()), ..none("integer") }
            }
            Bounds::Real { min, max } => {
                Limits { min: Some(min.into()), max: Some(max.into()), ..none("real") }
            }
            Bounds::Bytes { min, max, .. } => texts("bytes", "bytes", [min, max]),
            Bounds::Milliseconds { min, max } => texts("time", "ms", [min, max]),
            Bounds::MillisecondsOrNone { min, max } => {
                Limits { or_none: true, ..texts("time", "ms", [min, max]) }
            }
            Bounds::Choice(words) => Limits { choices: Some(words.to_vec()), ..none("choice") },
            Bounds::Flag => Limits { choices: Some(vec!["true", "false"]), ..none("flag") },
            Bounds::Text { .. } | Bounds::Form(_) => none("text"),
        }
    }
}

/// Every setting with the value in force where a node was given `given` and the cluster is tuned to `row`.
pub(crate) fn rows(registry: Registry, given: &Settings, row: &TuningRow) -> Vec<SettingRow> {
    let settings = tuned_to(given, row);
    let known = |setting: &Setting| settings.get(setting.name).is_some();
    let declared = registry.declarations().filter(|(_, setting)| known(setting));
    declared.map(|(section, setting)| self::row(section, setting, &settings, row)).collect()
}

fn row(section: &'static str, setting: &Setting, settings: &Settings, tuning: &TuningRow) -> SettingRow {
    let name = setting.name;
    let value = settings.get(name);
    let or_none = |text: String| if text.is_empty() { "none".to_owned() } else { text };
    let default = setting.parse(setting.default).map(|value| setting.format(&value));
    SettingRow {
        name,
        value: or_none(settings.shown(name)),
        value_number: match value {
            Some((Value::Integer(number), _)) => Some((*number).into()),
            Some((Value::Real(number), _)) => Some((*number).into()),
            _ => None,
        },
        default: or_none(default.unwrap_or_default()),
        source: word(value.map_or(Source::Default, |(_, source)| source)),
        applies: setting.applies.to_string(),
        why_not_live: setting.applies.why_not_live(),
        limits: Limits::of(setting),
        section,
        meaning: setting.meaning,
        expires_unix_ms: tuning.values.get(name).and_then(|value| value.expires_unix_ms),
        series: SERIES.iter().find(|(setting, _)| *setting == name).map(|(_, series)| *series),
    }
}

/// The given values with those over them that the cluster is tuned to, as far as they can be taken.
pub(crate) fn tuned_to(given: &Settings, row: &TuningRow) -> Settings {
    let mut settings = given.clone();
    for setting in given.declarations().filter(|setting| setting.applies == Applies::Live) {
        if let Some(tuned) = row.values.get(setting.name) {
            // What cannot be read no node has taken.
            let _ = settings.overrule(setting.name, &tuned.text, Source::Admin);
        }
    }
    settings
}

/// Where a value is from.
pub(crate) const fn word(source: Source) -> &'static str {
    match source {
        Source::Default => "default",
        Source::File => "file",
        Source::Environment => "environment",
        Source::Flag => "flag",
        Source::Admin => "admin",
    }
}

#[cfg(test)]
mod tests {
    use cell_cluster::TunedValue;
    use cell_settings::Section;
    use serde_json::json;

    use super::*;

    const SETTINGS: &[Setting] = &[
        Setting {
            name: "checkpoint_age_ms",
            meaning: "An age.",
            default: "60 m",
            bounds: Bounds::Milliseconds { min: 1_000, max: 86_400_000 },
            applies: Applies::Live,
        },
        Setting {
            name: "name",
            meaning: "A name.",
            default: "",
            bounds: Bounds::Text { max: 9 },
            applies: Applies::Restart("It is sent once."),
        },
    ];
    const REGISTRY: Registry = Registry::new(&[Section { name: "node", settings: SETTINGS }]);

    fn tuned(name: &str, text: &str) -> TuningRow {
        let value =
            TunedValue { text: text.to_owned(), expires_unix_ms: Some(7), after: None, later: Vec::new() };
        TuningRow { revision: 1, values: [(name.to_owned(), value)].into() }
    }

    #[test]
    fn rows_have_what_the_console_shows_of_a_setting() {
        let rows = rows(REGISTRY, &REGISTRY.defaults(), &tuned("checkpoint_age_ms", "120 s"));
        assert_eq!(
            serde_json::to_value(rows).unwrap(),
            json!([
                {
                    "name": "checkpoint_age_ms", "value": "2 m", "value_number": 120_000, "default": "1 h",
                    "source": "admin", "applies": "live", "why_not_live": null, "unit": "ms", "kind": "time",
                    "min": "1 s", "max": "24 h", "or_none": false, "choices": null, "section": "node",
                    "meaning": "An age.", "expires_unix_ms": 7, "series": null,
                },
                {
                    "name": "name", "value": "none", "value_number": null, "default": "none",
                    "source": "default", "applies": "restart",
                    "why_not_live": "It is sent once.", "unit": null,
                    "kind": "text", "min": null, "max": null, "or_none": false, "choices": null,
                    "section": "node", "meaning": "A name.", "expires_unix_ms": null, "series": null,
                },
            ])
        );
    }

    /// The console said "From 10 s", where 0 is taken.
    #[test]
    fn limits_of_a_time_that_may_be_none_say_so() {
        let bounds = Bounds::MillisecondsOrNone { min: 10_000, max: 86_400_000 };
        let limits = Limits::of(&Setting { bounds, ..SETTINGS[0] });
        assert_eq!((limits.min, limits.max), (Some("10 s".into()), Some("24 h".into())));
        assert!(limits.or_none && !Limits::of(&SETTINGS[0]).or_none);
    }

    #[test]
    fn tuned_to_leaves_out_what_no_node_takes() {
        let given = REGISTRY.defaults();
        for row in [tuned("name", "x"), tuned("checkpoint_age_ms", "1"), tuned("unknown", "1")] {
            let settings = tuned_to(&given, &row);
            assert!(settings.declarations().all(|it| settings.get(it.name) == given.get(it.name)));
        }
    }
}
