//! Every declaration in one place, and the table that is made of them.

use std::fmt::Write;

use cell_terms::setting::{Bounds, Setting, Settings, TextForm, Value};
use serde_json::json;

/// The settings that one crate declares, under the heading that they have in the table.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// The heading.
    pub name: &'static str,
    /// The crate's declarations.
    pub settings: &'static [Setting],
}

/// All declarations of a program.
#[derive(Clone, Copy, Debug)]
pub struct Registry(&'static [Section]);

impl Registry {
    /// The registry of these sections, which keep their order in the table.
    #[must_use]
    pub const fn new(sections: &'static [Section]) -> Registry {
        Registry(sections)
    }

    /// The values when nobody has set anything.
    ///
    /// # Panics
    /// As [`Settings::new`]: two crates declare one name, or a default is out of its bounds.
    #[must_use]
    pub fn defaults(self) -> Settings {
        let lists: Vec<_> = self.0.iter().map(|section| section.settings).collect();
        Settings::new(&lists)
    }

    /// Every declaration with the name of its section, in the table's order.
    pub fn declarations(self) -> impl Iterator<Item = (&'static str, &'static Setting)> {
        self.0.iter().flat_map(|section| section.settings.iter().map(|setting| (section.name, setting)))
    }

    /// The table in Markdown: a heading and a table for each section.
    #[must_use]
    pub fn markdown(self) -> String {
        let mut text = String::new();
        for Section { name, settings } in self.0 {
            let heading =
                "| setting | default | takes | applies | meaning | why not live |\n|---|---|---|---|---|---|";
            writeln!(text, "\n## {name}\n\n{heading}").expect("writing to a string");
            for setting in *settings {
                let (default, meaning) = (setting.default_or_none(), setting.meaning.replace('|', "\\|"));
                let Setting { name, bounds, applies, .. } = setting;
                let why = applies.why_not_live().unwrap_or("-");
                writeln!(text, "| `{name}` | {default} | {bounds} | {applies} | {meaning} | {why} |")
                    .expect("writing to a string");
            }
        }
        text
    }

    /// The table for programs: a row for each setting with its unit, its bounds and when a change applies.
    #[must_use]
    pub fn json(self) -> serde_json::Value {
        let rows = self.declarations().map(|(section, setting)| {
            let mut row = json!({
                "name": setting.name,
                "section": section,
                "default": setting.default,
                "default_value": default_value(setting),
                "takes": setting.bounds.to_string(),
                "unit": unit(&setting.bounds),
                "applies": setting.applies.to_string(),
                "why_not_live": setting.applies.why_not_live(),
                "meaning": setting.meaning,
            });
            add_bounds(&mut row, &setting.bounds);
            row
        });
        json!({"version": 1, "settings": rows.collect::<Vec<_>>()})
    }
}

/// What a number of the setting counts.
fn unit(bounds: &Bounds) -> Option<&'static str> {
    match bounds {
        Bounds::Bytes { .. } => Some("bytes"),
        Bounds::Milliseconds { .. } | Bounds::MillisecondsOrNone { .. } => Some("ms"),
        Bounds::Integer { .. } | Bounds::Real { .. } | Bounds::Choice(_) => None,
        Bounds::Flag | Bounds::Text { .. } | Bounds::Form(_) => None,
    }
}

/// The default as a number in the setting's unit, a flag or text.
fn default_value(setting: &Setting) -> serde_json::Value {
    match setting.parse(setting.default).expect("a default is within its bounds") {
        Value::Integer(number) => number.into(),
        Value::Real(number) => number.into(),
        Value::Flag(flag) => flag.into(),
        Value::Text(text) => text.into(),
    }
}

/// The kind of value, and what bounds it: numbers in the setting's unit.
fn add_bounds(row: &mut serde_json::Value, bounds: &Bounds) {
    let (kind, fields) = match *bounds {
        Bounds::Integer { min, max } => ("integer", json!({"min": min, "max": max})),
        Bounds::Bytes { min, max, power_of_two } => {
            ("bytes", json!({"min": min, "max": max, "power_of_two": power_of_two}))
        }
        Bounds::Milliseconds { min, max } => ("time", json!({"min": min, "max": max})),
        Bounds::MillisecondsOrNone { min, max } => ("time", json!({"min": min, "max": max, "or_none": true})),
        Bounds::Real { min, max } => ("real", json!({"min": min, "max": max})),
        Bounds::Choice(words) => ("choice", json!({"choices": words})),
        Bounds::Flag => ("flag", json!({})),
        Bounds::Text { max } | Bounds::Form(TextForm { max, .. }) => ("text", json!({"bytes_max": max})),
    };
    row["kind"] = kind.into();
    if let (Some(row), serde_json::Value::Object(fields)) = (row.as_object_mut(), fields) {
        row.extend(fields);
    }
}
