//! JSON Schemas as the API's document has them, a function for each kind of value. Objects are open: fields
//! may come without a new version, and whoever reads an answer passes by what they do not know.

use serde_json::{Map, Value, json};

/// A field's name and its schema. A name that ends with `?` is of a field that may be left out.
pub(crate) type Field = (&'static str, Value);

/// What a whole number as text looks like: JavaScript's numbers are too small for it.
pub(crate) const DECIMAL: &str = "^[0-9]+$";
/// Bytes, two digits each.
pub(crate) const HEX: &str = "^([0-9a-fA-F]{2})*$";
/// A meganode's name.
pub(crate) const MEGANODE: &str = "^[0-9]+\\.[0-9]+$";
/// An entry's version.
pub(crate) const VERSION: &str = "^[0-9]+\\.[0-9]+\\.[0-9]+$";
/// What is typed to confirm a drill.
pub(crate) const NODE_NAME: &str = "^node-[0-9]+$";
/// A host, by its boot and its log root.
pub(crate) const HOST: &str = "^[0-9a-f]{32}/[0-9a-f]{32}$";

fn of_type(name: &str, meaning: &str) -> Value {
    json!({"type": name, "description": meaning})
}

/// Text.
pub(crate) fn text(meaning: &str) -> Value {
    of_type("string", meaning)
}

/// Text of a pattern.
pub(crate) fn pattern(pattern: &str, meaning: &str) -> Value {
    json!({"type": "string", "pattern": pattern, "description": meaning})
}

/// A whole number as text.
pub(crate) fn decimal(meaning: &str) -> Value {
    pattern(DECIMAL, meaning)
}

/// A whole number, not below 0.
pub(crate) fn integer(meaning: &str) -> Value {
    json!({"type": "integer", "minimum": 0, "description": meaning})
}

/// A number, not below 0.
pub(crate) fn number(meaning: &str) -> Value {
    json!({"type": "number", "minimum": 0, "description": meaning})
}

/// A part of a whole.
pub(crate) fn share(meaning: &str) -> Value {
    json!({"type": "number", "minimum": 0, "maximum": 1, "description": meaning})
}

/// True or false.
pub(crate) fn flag(meaning: &str) -> Value {
    of_type("boolean", meaning)
}

/// One of these words.
pub(crate) fn word(words: &[&str], meaning: &str) -> Value {
    json!({"type": "string", "enum": words, "description": meaning})
}

/// A value of one of several types.
pub(crate) fn one_type_of(names: &[&str], meaning: &str) -> Value {
    json!({"type": names, "description": meaning})
}

/// A list of any length.
pub(crate) fn list(items: Value, meaning: &str) -> Value {
    json!({"type": "array", "items": items, "description": meaning})
}

/// A list of so many values, each with a meaning of its own.
pub(crate) fn tuple(items: &[Value], meaning: &str) -> Value {
    let count = items.len();
    json!({
        "type": "array", "prefixItems": items, "items": false, "minItems": count, "maxItems": count,
        "description": meaning,
    })
}

/// An object whose fields are named by what they are of.
pub(crate) fn map(values: Value, meaning: &str) -> Value {
    json!({"type": "object", "additionalProperties": values, "description": meaning})
}

/// An object of which nothing is promised.
pub(crate) fn anything(meaning: &str) -> Value {
    json!({"type": "object", "additionalProperties": true, "description": meaning})
}

/// An object with these fields.
pub(crate) fn object(fields: impl IntoIterator<Item = Field>) -> Value {
    let (mut properties, mut required) = (Map::new(), Vec::new());
    for (name, schema) in fields {
        let known = name.trim_end_matches('?');
        if known == name {
            required.push(known);
        }
        properties.insert(known.to_owned(), schema);
    }
    json!({"type": "object", "required": required, "properties": properties})
}

/// The same with a meaning.
pub(crate) fn about(mut schema: Value, meaning: &str) -> Value {
    schema["description"] = meaning.into();
    schema
}

/// The same, or null.
pub(crate) fn or_null(mut schema: Value) -> Value {
    match schema["type"].as_str() {
        Some(name) if schema.get("enum").is_none() => {
            schema["type"] = json!([name, "null"]);
            schema
        }
        _ => json!({"anyOf": [schema, {"type": "null"}]}),
    }
}

/// One of these.
pub(crate) fn either(schemas: impl IntoIterator<Item = Value>) -> Value {
    json!({"anyOf": schemas.into_iter().collect::<Vec<_>>()})
}

/// What the document describes once, under this name.
pub(crate) fn shared(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}
