//! A wanted change of settings: read from a merge patch, and checked against what each setting takes and what
//! must hold between several.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use axum::http::StatusCode;
use cell_cluster::TuningRow;
use cell_settings::{SettingsStore, TunedValues, UpdateError};
use cell_terms::setting::{Applies, Setting, SettingError, Settings};
use serde::Deserializer;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use crate::api::setting_row::Limits;
use crate::problem::{FieldProblem, Problem};

/// By the settings' names; none: what each node was started with.
pub(crate) type Patch = BTreeMap<String, Option<String>>;

/// Reads a JSON body that is an object.
///
/// # Errors
/// It is no JSON, or no object, or it has a field twice.
pub(crate) fn object(body: &[u8]) -> Result<serde_json::Map<String, Value>, Problem> {
    let parsed = serde_json::from_slice(body).map_err(|error| {
        let detail = format!("The body is not JSON: {error}.");
        Problem::new(StatusCode::BAD_REQUEST, "bad_json", detail)
    })?;
    match parsed {
        Value::Object(fields) => match repeated(body) {
            None => Ok(fields),
            Some(name) => {
                let detail = "it is given twice".to_owned();
                let error = FieldProblem { pointer: pointer(&name), detail, ..FieldProblem::default() };
                Err(Problem::bad_request(error).next("give each field once"))
            }
        },
        _ => {
            let detail = "The body has to be a JSON object.".to_owned();
            Err(Problem::bad_request(FieldProblem { detail, ..FieldProblem::default() }))
        }
    }
}

/// The first field that an object has twice. What reads the object keeps the last value alone.
fn repeated(object: &[u8]) -> Option<String> {
    serde_json::Deserializer::from_slice(object).deserialize_map(FieldNames).ok().flatten()
}

/// Looks for a name that comes twice.
struct FieldNames;

impl<'de> Visitor<'de> for FieldNames {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Option<String>, A::Error> {
        let (mut names, mut found) = (BTreeSet::new(), None);
        while let Some((name, IgnoredAny)) = map.next_entry::<String, IgnoredAny>()? {
            if names.contains(&name) {
                found = found.or(Some(name));
            } else {
                names.insert(name);
            }
        }
        Ok(found)
    }
}

/// Reads a merge patch: the settings' names, each with its value as text, number or flag, or null.
///
/// # Errors
/// All values that are none of these.
pub(crate) fn parse(body: &[u8]) -> Result<Patch, Problem> {
    let (mut patch, mut errors) = (Patch::new(), Vec::new());
    for (name, value) in object(body)? {
        let text = match value {
            Value::Null => None,
            Value::String(text) => Some(text),
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(flag) => Some(flag.to_string()),
            Value::Array(_) | Value::Object(_) => {
                let detail = "It takes text, a number, a flag, or null to take its value back.".to_owned();
                errors.push(FieldProblem { pointer: pointer(&name), detail, ..FieldProblem::default() });
                continue;
            }
        };
        patch.insert(name, text);
    }
    if errors.is_empty() { Ok(patch) } else { Err(invalid(errors)) }
}

/// Checks each value alone; gives them as they are to be kept, in the form that people are shown.
///
/// # Errors
/// Everything that is wrong: names that are unknown, settings that do not change live, values out of bounds.
pub(crate) fn check_each(store: &SettingsStore, row: &TuningRow, patch: &Patch) -> Result<Patch, Problem> {
    let given = store.given();
    let (mut checked, mut errors) = (Patch::new(), Vec::new());
    for (name, text) in patch {
        match check_one(&given, row, name, text.as_deref()) {
            Ok(text) => drop(checked.insert(name.clone(), text)),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { Ok(checked) } else { Err(invalid(errors)) }
}

fn check_one(
    given: &Settings,
    row: &TuningRow,
    name: &str,
    text: Option<&str>,
) -> Result<Option<String>, FieldProblem> {
    let wrong = |detail| FieldProblem { pointer: pointer(name), detail, ..FieldProblem::default() };
    let Some(setting) = declared(given, name) else {
        // A value of a version that knew the setting can be taken back.
        if text.is_none() && row.values.contains_key(name) {
            return Ok(None);
        }
        let unknown = given.clone().overrule(name, "", cell_terms::setting::Source::Admin);
        return Err(wrong(unknown.map_or_else(|error| sentence(&error.to_string()), |_| String::new())));
    };
    if let Some(why) = setting.applies.why_not_live() {
        if text.is_none() && row.values.contains_key(name) {
            return Ok(None);
        }
        return Err(wrong(format!("It does not change while nodes run. {why}")));
    }
    let Some(text) = text else { return Ok(None) };
    match setting.parse(text) {
        Ok(value) => Ok(Some(setting.format(&value))),
        Err(error) => {
            let takes = match error {
                SettingError::Invalid { expected, .. } => expected,
                _ => setting.bounds.to_string(),
            };
            Err(bounded(setting, format!("It takes {takes}, not `{}`.", text.escape_debug())))
        }
    }
}

/// Checks what must hold between several values, with all that the cluster would be tuned to.
///
/// # Errors
/// The first contradiction, at each setting of it that the patch changes.
pub(crate) fn check_together(store: &SettingsStore, after: &TuningRow, patch: &Patch) -> Result<(), Problem> {
    let given = store.given();
    let is_taken = |name: &str, text: &str| {
        let setting = declared(&given, name).filter(|setting| setting.applies == Applies::Live);
        setting.is_some_and(|setting| setting.parse(text).is_ok())
    };
    let values = after.values.iter().filter(|(name, value)| is_taken(name, &value.text));
    let values: TunedValues = values.map(|(name, value)| (name.clone(), value.text.clone())).collect();
    let Err(refused) = store.check(&values) else { return Ok(()) };
    let mut errors = Vec::new();
    for error in refused {
        let UpdateError::Conflict(conflict) = &error else {
            let detail = sentence(&error.to_string());
            let at = match &error {
                UpdateError::TooMuch { name, .. } => pointer(name),
                _ => String::new(),
            };
            errors.push(FieldProblem { pointer: at, detail, ..FieldProblem::default() });
            continue;
        };
        let detail = format!("{} {}", sentence(&conflict.to_string()), sentence(conflict.next));
        let changed = conflict.settings.iter().filter(|name| patch.contains_key(**name));
        let at = |name: &&str| declared(&given, name).map(|setting| bounded(setting, detail.clone()));
        errors.extend(changed.filter_map(at));
    }
    Err(invalid(errors))
}

fn declared(settings: &Settings, name: &str) -> Option<&'static Setting> {
    settings.declarations().find(|setting| setting.name == name)
}

fn bounded(setting: &Setting, detail: String) -> FieldProblem {
    let Limits { min, max, unit, .. } = Limits::of(setting);
    let text = |bound: Value| bound.as_str().map_or_else(|| bound.to_string(), str::to_owned);
    FieldProblem { pointer: pointer(setting.name), detail, min: min.map(text), max: max.map(text), unit }
}

fn pointer(name: &str) -> String {
    format!("/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// Words as a sentence: with a capital letter and an end.
fn sentence(words: &str) -> String {
    let mut letters = words.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
    let end = if words.ends_with(['.', '?', '!']) { "" } else { "." };
    format!("{first}{}{end}", letters.as_str())
}

fn invalid(errors: Vec<FieldProblem>) -> Problem {
    let detail = "The change was not made: some values cannot be taken.";
    let problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", detail);
    Problem { errors, ..problem }.next("correct them; nothing was changed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_takes_values_as_people_and_as_programs_write_them() {
        let patch = parse(br#"{"a": "1 s", "b": 0.25, "c": 7, "d": true, "e": null}"#).unwrap();
        let texts: Vec<_> = patch.values().map(Option::as_deref).collect();
        assert_eq!(texts, [Some("1 s"), Some("0.25"), Some("7"), Some("true"), None]);
        assert!(parse(b"{}").unwrap().is_empty());
    }

    #[test]
    fn parse_what_is_no_patch_says_where() {
        let code = |body: &[u8]| {
            let problem = parse(body).unwrap_err();
            (problem.status.as_u16(), problem.code)
        };
        assert_eq!(code(b"{"), (400, "bad_json"));
        assert_eq!(code(b""), (400, "bad_json"));
        assert_eq!(code(b"[1]"), (400, "bad_request"));
        assert_eq!(
            parse(b"[]").unwrap_err().detail,
            "The body has to be a JSON object.",
            "no name, no colon"
        );
        let twice = parse(br#"{"b": 1, "a/b": 1, "\u0061/b": 2, "b": 1}"#).unwrap_err();
        assert_eq!((twice.status.as_u16(), &*twice.detail), (400, "/a~1b: it is given twice"));
        let problem = parse(br#"{"a/b": [], "c": {}, "d": 1}"#).unwrap_err();
        let pointers: Vec<_> = problem.errors.iter().map(|error| error.pointer.as_str()).collect();
        assert_eq!((problem.status.as_u16(), pointers), (422, vec!["/a~1b", "/c"]));
    }
}
