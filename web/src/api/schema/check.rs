//! Whether a value is as a schema says, and nothing else: for tests. Fields that no schema names are faults,
//! so that an answer cannot grow past the document. Only the keywords of `schema/build.rs` are known; another
//! one is a fault, so that the document cannot promise what nobody checks.

use std::collections::BTreeSet;

use serde_json::Value;

use super::build::{DECIMAL, HEX, HOST, MEGANODE, NODE_NAME, VERSION};

/// Keywords that say nothing about values.
const WORDS: [&str; 4] = ["description", "title", "default", "example"];

/// What was checked.
#[derive(Debug, Default)]
pub(crate) struct Seen(BTreeSet<String>);

/// A document, and what of its schemas was met by values.
pub(crate) struct Checker<'d> {
    document: &'d Value,
    pub(crate) seen: Seen,
    faults: Vec<String>,
}

impl<'d> Checker<'d> {
    /// Of a document.
    pub(crate) fn new(document: &'d Value) -> Checker<'d> {
        Checker { document, seen: Seen::default(), faults: Vec::new() }
    }

    /// What is wrong with a value. `name` is what paths of the schema begin with.
    pub(crate) fn faults(&mut self, name: &str, schema: &Value, value: &Value) -> Vec<String> {
        self.faults.clear();
        self.check(name, schema, "", value);
        std::mem::take(&mut self.faults)
    }

    fn fault(&mut self, at: &str, what: impl std::fmt::Display) {
        self.faults.push(format!("{at}: {what}"));
    }

    fn check(&mut self, path: &str, schema: &Value, at: &str, value: &Value) {
        let Some(keywords) = schema.as_object() else {
            if schema == &Value::Bool(false) {
                self.fault(at, "nothing is permitted here");
            }
            return;
        };
        self.seen.0.insert(path.to_owned());
        for (keyword, given) in keywords {
            match keyword.as_str() {
                "$ref" => {
                    let (path, target) = self.resolve(given);
                    self.check(&path, target, at, value);
                }
                "anyOf" => self.any_of(path, given, at, value),
                "type" => self.kind(given, at, value),
                "enum" if !given.as_array().is_some_and(|words| words.contains(value)) => {
                    self.fault(at, format!("{value} is none of {given}"));
                }
                "pattern" => self.pattern(given, at, value),
                "minimum" | "maximum" => self.bound(keyword, given, at, value),
                "minItems" | "maxItems" => self.count(keyword, given, at, value),
                "properties" => self.properties(path, schema, at, value),
                "additionalProperties" if schema.get("properties").is_none() => {
                    for (name, field) in value.as_object().into_iter().flatten() {
                        self.check(&format!("{path}/*"), given, &format!("{at}/{name}"), field);
                    }
                }
                "required" => self.required(given, at, value),
                "prefixItems" | "items" => self.items(keyword, path, schema, at, value),
                "enum" | "additionalProperties" => {}
                keyword if WORDS.contains(&keyword) => {}
                keyword => self.fault(at, format!("the schema has {keyword}, which is not checked")),
            }
        }
    }

    fn resolve(&mut self, reference: &Value) -> (String, &'d Value) {
        let name = reference.as_str().and_then(|text| text.strip_prefix("#/components/schemas/"));
        let name = name.unwrap_or_else(|| panic!("{reference} is no reference that is known"));
        let target = &self.document["components"]["schemas"][name];
        assert!(target.is_object(), "the document has no {name}");
        (name.to_owned(), target)
    }

    fn any_of(&mut self, path: &str, branches: &Value, at: &str, value: &Value) {
        let mut all = Vec::new();
        for (number, branch) in branches.as_array().expect("anyOf is a list").iter().enumerate() {
            let mut other = Checker::new(self.document);
            other.check(&format!("{path}/{number}"), branch, at, value);
            if other.faults.is_empty() {
                self.seen.0.append(&mut other.seen.0);
                return;
            }
            all.push(other.faults.join("; "));
        }
        self.fault(at, format!("it is none of these: ({})", all.join(") or (")));
    }

    fn kind(&mut self, given: &Value, at: &str, value: &Value) {
        let is = |name: &Value| match name.as_str() {
            Some("null") => value.is_null(),
            Some("boolean") => value.is_boolean(),
            Some("integer") => value.is_u64() || value.is_i64(),
            Some("number") => value.is_number(),
            Some("string") => value.is_string(),
            Some("array") => value.is_array(),
            Some("object") => value.is_object(),
            _ => panic!("{name} is no type"),
        };
        if !given.as_array().map_or_else(|| is(given), |names| names.iter().any(is)) {
            self.fault(at, format!("{value} is no {given}"));
        }
    }

    fn pattern(&mut self, given: &Value, at: &str, value: &Value) {
        let Some(text) = value.as_str() else { return };
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let fits = match given.as_str() {
            Some(DECIMAL) => digits(text),
            Some(HEX) => text.len().is_multiple_of(2) && hex(text),
            Some(MEGANODE) => text.split('.').count() == 2 && text.split('.').all(digits),
            Some(VERSION) => text.split('.').count() == 3 && text.split('.').all(digits),
            Some(NODE_NAME) => text.strip_prefix("node-").is_some_and(digits),
            Some(HOST) => text.len() == 65 && hex(&text.replacen('/', "", 1)),
            _ => panic!("{given} is no pattern that is known"),
        };
        if !fits {
            self.fault(at, format!("{value} is not as {given}"));
        }
    }

    fn bound(&mut self, keyword: &str, given: &Value, at: &str, value: &Value) {
        let (Some(bound), Some(number)) = (given.as_f64(), value.as_f64()) else { return };
        if (keyword == "minimum" && number < bound) || (keyword == "maximum" && number > bound) {
            self.fault(at, format!("{value} is past the {keyword} {given}"));
        }
    }

    fn count(&mut self, keyword: &str, given: &Value, at: &str, value: &Value) {
        let (Some(bound), Some(items)) = (given.as_u64(), value.as_array()) else { return };
        let count = items.len() as u64;
        if (keyword == "minItems" && count < bound) || (keyword == "maxItems" && count > bound) {
            self.fault(at, format!("{count} items are past the {keyword} {given}"));
        }
    }

    fn properties(&mut self, path: &str, schema: &Value, at: &str, value: &Value) {
        for (name, field) in value.as_object().into_iter().flatten() {
            match schema["properties"].get(name) {
                Some(schema) => self.check(&format!("{path}/{name}"), schema, &format!("{at}/{name}"), field),
                None => self.fault(at, format!("`{name}` is not in the document")),
            }
        }
    }

    fn required(&mut self, given: &Value, at: &str, value: &Value) {
        let Some(fields) = value.as_object() else { return };
        for name in given.as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !fields.contains_key(name) {
                self.fault(at, format!("`{name}` is missing"));
            }
        }
    }

    fn items(&mut self, keyword: &str, path: &str, schema: &Value, at: &str, value: &Value) {
        let first = schema["prefixItems"].as_array().map_or(0, Vec::len);
        for (number, item) in value.as_array().into_iter().flatten().enumerate() {
            let at = format!("{at}/{number}");
            match keyword {
                "prefixItems" if number < first => {
                    self.check(&format!("{path}/{number}"), &schema[keyword][number], &at, item);
                }
                "items" if number >= first => self.check(&format!("{path}/-"), &schema[keyword], &at, item),
                _ => {}
            }
        }
    }

    /// The paths of all that a schema says, as [`Seen`] has them, with those of the schemas that it names.
    pub(crate) fn paths(&self, path: &str, schema: &Value, all: &mut BTreeSet<String>) {
        if !schema.is_object() || !all.insert(path.to_owned()) {
            return;
        }
        if let Some(name) = schema["$ref"].as_str().and_then(|text| text.rsplit('/').next()) {
            self.paths(name, &self.document["components"]["schemas"][name], all);
        }
        for (number, item) in
            ["anyOf", "prefixItems"].into_iter().flat_map(|keyword| numbered(&schema[keyword]))
        {
            self.paths(&format!("{path}/{number}"), item, all);
        }
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            self.paths(&format!("{path}/{name}"), field, all);
        }
        self.paths(&format!("{path}/-"), &schema["items"], all);
        self.paths(&format!("{path}/*"), &schema["additionalProperties"], all);
    }

    /// Those of `all` that no value has met.
    pub(crate) fn unmet(&self, all: &BTreeSet<String>) -> Vec<String> {
        all.difference(&self.seen.0).cloned().collect()
    }
}

fn numbered(list: &Value) -> impl Iterator<Item = (usize, &Value)> {
    list.as_array().into_iter().flatten().enumerate()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::build::{
        about, anything, decimal, either, integer, list, map, object, or_null, pattern, share, shared, text,
        tuple, word,
    };
    use super::*;

    fn faults(schema: &Value, value: &Value) -> Vec<String> {
        let document = json!({"components": {"schemas": {"Pair": object([("pair", integer(""))])}}});
        Checker::new(&document).faults("x", schema, value)
    }

    #[test]
    fn values_that_fit_have_no_faults_and_others_name_the_place() {
        let schema = object([
            ("a", integer("")),
            ("b?", list(or_null(word(&["x", "y"], "")), "")),
            ("c?", map(shared("Pair"), "")),
            ("d?", tuple(&[text(""), share("")], "")),
            ("e?", either([decimal(""), integer("")])),
            ("f?", about(anything(""), "")),
            ("g?", or_null(pattern(HEX, ""))),
        ]);
        let good = json!({
            "a": 1, "b": ["x", null], "c": {"q": {"pair": 7}}, "d": ["", 0.5], "e": "12", "f": {"z": [1]},
            "g": null,
        });
        assert_eq!(faults(&schema, &good), [""; 0]);
        for (wrong, fault) in [
            (json!({}), ": `a` is missing"),
            (json!({"a": 1, "z": 1}), ": `z` is not in the document"),
            (json!({"a": null}), "/a: null is no"),
            (json!({"a": 1.0}), "/a: 1.0 is no"),
            (json!({"a": -1}), "/a: -1 is past the minimum"),
            (json!({"a": 1, "b": ["z"]}), "/b/0: it is none of these"),
            (json!({"a": 1, "b": {}}), "/b: {} is no"),
            (json!({"a": 1, "c": {"q": {}}}), "/c/q: `pair` is missing"),
            (json!({"a": 1, "c": {"q": {"pair": 1, "r": 1}}}), "/c/q: `r` is not"),
            (json!({"a": 1, "d": ["", 2]}), "/d/1: 2 is past the maximum"),
            (json!({"a": 1, "d": [""]}), "/d: 1 items"),
            (json!({"a": 1, "d": ["", 1, 1]}), "/d/2: nothing is permitted"),
            (json!({"a": 1, "e": "1x"}), "/e: it is none"),
            (json!({"a": 1, "g": "1"}), "/g: \"1\" is not as"),
        ] {
            let faults = faults(&schema, &wrong);
            assert!(faults.iter().any(|found| found.starts_with(fault)), "{wrong}: {faults:?}");
        }
        assert_eq!(
            faults(&json!({"maxLength": 1}), &json!("")),
            [": the schema has maxLength, which is not checked"]
        );
    }

    #[test]
    fn unmet_are_the_parts_of_a_schema_that_no_value_had() {
        let schema = object([("a?", list(or_null(shared("Pair")), "")), ("b?", text(""))]);
        let document = json!({"components": {"schemas": {"Pair": object([("pair", integer(""))])}}});
        let mut checker = Checker::new(&document);
        let mut all = BTreeSet::new();
        checker.paths("x", &schema, &mut all);
        assert_eq!(checker.faults("x", &schema, &json!({"a": [null]})), [""; 0]);
        assert_eq!(checker.unmet(&all), ["Pair", "Pair/pair", "x/a/-/0", "x/b"]);
        assert_eq!(checker.faults("x", &schema, &json!({"a": [{"pair": 1}], "b": ""})), [""; 0]);
        assert_eq!(checker.unmet(&all), [""; 0]);
    }
}
