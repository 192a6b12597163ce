//! Entries as lines: TSV, or JSON lines.

use serde_json::{Map, Value};

use crate::encoding::{Encoding, insert_json};
use crate::output::message::JSON_VERSION;

/// Appends `KEY<tab>VALUE`, or the key alone.
pub(crate) fn tsv(encoding: Encoding, key: &[u8], value: Option<&[u8]>, out: &mut Vec<u8>) {
    encoding.encode(key, out);
    if let Some(value) = value {
        out.push(b'\t');
        encoding.encode(value, out);
    }
    out.push(b'\n');
}

/// Appends a JSON object with `key`, `value`, further fields and the version of them all.
pub(crate) fn json(key: &[u8], value: Option<&[u8]>, more: &[(&str, Value)], out: &mut Vec<u8>) {
    let mut object = Map::new();
    insert_json(&mut object, "key", key);
    if let Some(value) = value {
        insert_json(&mut object, "value", value);
    }
    object.insert("version".into(), JSON_VERSION.into());
    object.extend(more.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    out.extend_from_slice(Value::Object(object).to_string().as_bytes());
    out.push(b'\n');
}
