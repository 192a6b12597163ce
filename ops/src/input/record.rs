//! A line becomes a record of key and value: TSV by column, JSON lines by field.
//!
//! * TSV: columns are separated by one tab and taken as they are (no quotes, no escapes), except after a
//!   dump's heading or with `--escaped-columns`: then each column is in the `escaped`
//!   encoding. Lines end with LF; where the first one ends with CR LF, or a dump's does, all may. A line
//!   without the value's column has the default value, or is no record if none was given.
//! * JSON lines: an object a line. A string field gives its text, any other value its JSON text as written; a
//!   field `NAME_base64` stands in for `NAME`, and a line with both, or with one of them twice, is no record.
//!   The value `*` takes the whole line.
//! * Dumps: either of them between a heading and an end, every line with a line end. They may be several, one
//!   after the other.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::format::{Format, Mark};
use super::line::{InputLine, LINE_BYTES_MAX};
use crate::encoding::{DecodeError, Encoding};
use crate::exit::Failure;

/// The name of the whole line, as a value.
const WHOLE_LINE: &str = "*";

/// Which parts of a line are key and value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Columns {
    /// Column number from 1, or field name.
    pub(crate) key: Option<String>,
    /// The same; `*` is the whole line.
    pub(crate) value: Option<String>,
    /// The value of a line that has none.
    pub(crate) value_default: Option<Vec<u8>>,
    /// Whether TSV columns are escaped.
    pub(crate) escaped: bool,
}

/// A key and a value of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    /// The key, not empty.
    pub(crate) key: Cow<'a, [u8]>,
    /// The value.
    pub(crate) value: Cow<'a, [u8]>,
}

/// Why a line is not a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum LineError {
    /// No such column.
    #[error("no column {0}")]
    ColumnMissing(usize),
    /// No such column, and no default.
    #[error("no column {0} for the value; --value-default TEXT is for lines without one")]
    ValueMissing(usize),
    /// What is around it is not read as a dump's lines are.
    #[error("a dump's heading or end among other lines; load each dump by itself")]
    MarkInside,
    /// The last line of a dump has no end.
    #[error("the dump is cut off within this line")]
    CutOff,
    /// No such field.
    #[error("no field `{0}`")]
    FieldMissing(Box<str>),
    /// Which value counts is not known.
    #[error("the field `{0}` is given twice")]
    FieldTwice(Box<str>),
    /// Which of both counts is not known.
    #[error("the fields `{0}` and `{0}_base64` are both given; one of them is to be")]
    FieldBoth(Box<str>),
    /// Not JSON.
    #[error("not a JSON object (column {column} of the line)")]
    Json {
        /// Where parsing stopped, from 1.
        column: usize,
    },
    /// A string that is no text.
    #[error("the field `{0}` is no text (half a surrogate pair?); a field NAME_base64 takes any bytes")]
    JsonText(Box<str>),
    /// A column does not decode.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The store has no empty keys.
    #[error("the key is empty")]
    KeyEmpty,
    /// Beyond the store's limit.
    #[error("the key has {bytes} bytes; at most {bytes_max} are possible")]
    KeyTooLong {
        /// Of this line.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// Beyond the store's limit.
    #[error("the value has {bytes} bytes; at most {bytes_max} are possible")]
    ValueTooLong {
        /// Of this line.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// Beyond what is read.
    #[error("the line is longer than {} MiB", LINE_BYTES_MAX >> 20)]
    LineTooLong,
}

/// Reads records of one source.
#[derive(Clone, Debug)]
pub(crate) struct Parser {
    shape: Shape,
    value_default: Option<Vec<u8>>,
    /// Whether it is a dump by its heading.
    is_dump: bool,
    /// Whether a CR before a line's end is a part of that end.
    ends_with_cr: bool,
}

#[derive(Clone, Debug)]
enum Shape {
    Tsv { key: usize, value: TsvValue, escaped: bool },
    Json { key: String, value: String },
}

#[derive(Clone, Copy, Debug)]
enum TsvValue {
    Column(usize),
    WholeLine,
}

impl Parser {
    /// A parser for a format; TSV columns must be numbers.
    pub(crate) fn new(format: Format, columns: &Columns) -> Result<Parser, Failure> {
        let shape = match format {
            Format::Tsv => tsv_shape(columns)?,
            Format::Json => Shape::Json {
                key: columns.key.clone().unwrap_or_else(|| "key".into()),
                value: columns.value.clone().unwrap_or_else(|| "value".into()),
            },
        };
        let value_default = columns.value_default.clone();
        Ok(Parser { shape, value_default, is_dump: false, ends_with_cr: false })
    }

    /// The same for a dump, whose heading was seen: a CR of a column is escaped there.
    pub(crate) fn of_dump(self) -> Parser {
        Parser { is_dump: true, ends_with_cr: true, ..self }
    }

    /// The same for a source whose lines end with CR LF.
    pub(crate) fn ending_with_cr(self, ends_with_cr: bool) -> Parser {
        Parser { ends_with_cr, ..self }
    }

    /// The format of the dump that is read; none if the source is no dump.
    pub(crate) fn dump(&self) -> Option<Format> {
        self.is_dump.then(|| self.format())
    }

    fn format(&self) -> Format {
        match self.shape {
            Shape::Tsv { .. } => Format::Tsv,
            Shape::Json { .. } => Format::Json,
        }
    }

    /// The record of a line as it was read.
    pub(crate) fn record<'a>(&'a self, line: &InputLine<'a>) -> Result<Record<'a>, LineError> {
        match *line {
            InputLine::Text(text) => self.parse(text),
            InputLine::Unended(_) if self.is_dump => Err(LineError::CutOff),
            InputLine::Unended(text) => self.parse(text),
            InputLine::TooLong => Err(LineError::LineTooLong),
        }
    }

    /// The record of a line.
    pub(crate) fn parse<'a>(&'a self, line: &'a [u8]) -> Result<Record<'a>, LineError> {
        if !self.is_dump && matches!(self.format().mark_of(line), Some(Mark::Heading | Mark::End { .. })) {
            return Err(LineError::MarkInside);
        }
        let record = match &self.shape {
            Shape::Tsv { key, value, escaped } => self.parse_tsv(line, *key, *value, *escaped)?,
            Shape::Json { key, value } => self.parse_json(line, key, value)?,
        };
        if record.key.is_empty() { Err(LineError::KeyEmpty) } else { Ok(record) }
    }

    fn parse_tsv<'a>(
        &'a self,
        line: &'a [u8],
        key: usize,
        value: TsvValue,
        escaped: bool,
    ) -> Result<Record<'a>, LineError> {
        let line = line.strip_suffix(b"\r").filter(|_| self.ends_with_cr).unwrap_or(line);
        let encoding = if escaped { Encoding::Escaped } else { Encoding::Text };
        let decoded = |number| column(line, number).map(|text| encoding.decode(text)).transpose();
        let key = decoded(key)?.ok_or(LineError::ColumnMissing(key))?;
        if key.is_empty() {
            return Err(LineError::KeyEmpty); // what else an empty line lacks is of no interest
        }
        let value = match value {
            TsvValue::WholeLine => Cow::Borrowed(line),
            TsvValue::Column(number) => match (decoded(number)?, &self.value_default) {
                (Some(value), _) => value,
                (None, Some(value)) => Cow::Borrowed(&value[..]),
                (None, None) => return Err(LineError::ValueMissing(number)),
            },
        };
        Ok(Record { key, value })
    }

    fn parse_json<'a>(&'a self, line: &'a [u8], key: &str, value: &str) -> Result<Record<'a>, LineError> {
        let object: Fields<'a> =
            serde_json::from_slice(line).map_err(|error| LineError::Json { column: error.column() })?;
        let missing = |name: &str| LineError::FieldMissing(name.into());
        let key = field(&object, key)?.ok_or_else(|| missing(key))?;
        let value = if value == WHOLE_LINE {
            Cow::Borrowed(line.trim_ascii())
        } else {
            match (field(&object, value)?, &self.value_default) {
                (Some(value), _) => value,
                (None, Some(value)) => Cow::Borrowed(&value[..]),
                (None, None) => return Err(missing(value)),
            }
        };
        Ok(Record { key, value })
    }
}

fn tsv_shape(columns: &Columns) -> Result<Shape, Failure> {
    let number = |flag: &str, text: &str| match text.parse::<usize>() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(Failure::usage(format!("{flag} {text}: columns of a TSV are numbers from 1"))
            .next("give --format json if the lines are JSON objects")),
    };
    let key = columns.key.as_deref().map_or(Ok(1), |text| number("--key", text))?;
    let value = match columns.value.as_deref() {
        None => TsvValue::Column(key + 1),
        Some(WHOLE_LINE) => TsvValue::WholeLine,
        Some(text) => TsvValue::Column(number("--value", text)?),
    };
    Ok(Shape::Tsv { key, value, escaped: columns.escaped })
}

fn column(line: &[u8], number: usize) -> Option<&[u8]> {
    let mut start = 0;
    for _ in 1..number {
        start += memchr::memchr(b'\t', &line[start..])? + 1;
    }
    let rest = &line[start..];
    Some(&rest[..memchr::memchr(b'\t', rest).unwrap_or(rest.len())])
}

/// The fields of an object, which may have names twice that nobody asks for.
#[derive(Default)]
struct Fields<'a> {
    values: HashMap<Cow<'a, str>, &'a RawValue>,
    repeated: Vec<Cow<'a, str>>,
}

impl<'a> Fields<'a> {
    /// The one value of this name.
    fn get(&self, name: &str) -> Result<Option<&'a RawValue>, LineError> {
        match self.repeated.iter().any(|repeated| repeated == name) {
            true => Err(LineError::FieldTwice(name.into())),
            false => Ok(self.values.get(name).copied()),
        }
    }
}

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Fields<'de>, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
        let mut fields = Fields::default();
        while let Some((name, raw)) = map.next_entry::<Cow<'de, str>, &'de RawValue>()? {
            match fields.values.entry(name) {
                Entry::Vacant(vacant) => {
                    vacant.insert(raw);
                }
                Entry::Occupied(occupied) => fields.repeated.push(occupied.key().clone()),
            }
        }
        Ok(fields)
    }
}

fn field<'a>(object: &Fields<'a>, name: &str) -> Result<Option<Cow<'a, [u8]>>, LineError> {
    let in_base64 = format!("{name}_base64");
    let raw = match (object.get(name)?, object.get(&in_base64)?) {
        (Some(_), Some(_)) => return Err(LineError::FieldBoth(name.into())),
        (Some(raw), None) => return json_bytes(name, raw).map(Some),
        (None, Some(raw)) => raw,
        (None, None) => return Ok(None),
    };
    let name = in_base64;
    let bytes = Encoding::Base64.decode(&json_bytes(&name, raw)?)?.into_owned();
    Ok(Some(Cow::Owned(bytes)))
}

/// A string's text, or any other value's JSON as it was written.
fn json_bytes<'a>(name: &str, raw: &'a RawValue) -> Result<Cow<'a, [u8]>, LineError> {
    #[derive(serde::Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    match serde_json::from_str::<Text<'_>>(raw.get()) {
        Ok(Text(Cow::Borrowed(text))) => Ok(Cow::Borrowed(text.as_bytes())),
        Ok(Text(Cow::Owned(text))) => Ok(Cow::Owned(text.into_bytes())),
        // JSON permits `\ud800` alone, and no bytes are its text.
        Err(_) if raw.get().starts_with('"') => Err(LineError::JsonText(name.into())),
        Err(_) => Ok(Cow::Borrowed(raw.get().as_bytes())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(key: &str, value: &str) -> Columns {
        let name = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Columns { key: name(key), value: name(value), value_default: None, escaped: false }
    }

    fn tsv(key: &str, value: &str, line: &str) -> Result<(String, String), LineError> {
        parse(Format::Tsv, &columns(key, value), line)
    }

    fn json(key: &str, value: &str, line: &str) -> Result<(String, String), LineError> {
        parse(Format::Json, &columns(key, value), line)
    }

    fn parse(format: Format, columns: &Columns, line: &str) -> Result<(String, String), LineError> {
        let parser = Parser::new(format, columns).unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        parser.parse(line.as_bytes()).map(|record| (text(&record.key), text(&record.value)))
    }

    fn pair(key: &str, value: &str) -> Result<(String, String), LineError> {
        Ok((key.to_owned(), value.to_owned()))
    }

    #[test]
    fn parse_tsv_takes_columns_by_number() {
        assert_eq!(tsv("", "", "a\tb\tc"), pair("a", "b"));
        assert_eq!(tsv("2", "1", "a\tb\tc"), pair("b", "a"));
        assert_eq!(tsv("2", "", "a\tb\tc"), pair("b", "c"));
        assert_eq!(tsv("1", "*", "a\tb"), pair("a", "a\tb"));
        assert_eq!(tsv("1", "2", "a\t"), pair("a", ""));
    }

    #[test]
    fn parse_tsv_without_a_value_column_has_the_default_that_was_given() {
        assert_eq!(tsv("", "", "only"), Err(LineError::ValueMissing(2)));
        assert_eq!(tsv("3", "", "a\tb\tc"), Err(LineError::ValueMissing(4)));
        let with_default = Columns { value_default: Some(b"x".to_vec()), ..columns("", "") };
        assert_eq!(parse(Format::Tsv, &with_default, "only"), pair("only", "x"));
        let empty_default = Columns { value_default: Some(Vec::new()), ..columns("1", "2") };
        assert_eq!(parse(Format::Tsv, &empty_default, "only"), pair("only", ""));
        assert_eq!(tsv("1", "2", "only"), Err(LineError::ValueMissing(2)));
        assert_eq!(tsv("2", "1", "only"), Err(LineError::ColumnMissing(2)));
    }

    #[test]
    fn record_of_a_dump_has_an_end_and_marks_are_none() {
        for format in [Format::Tsv, Format::Json] {
            let plain = Parser::new(format, &columns("", "")).unwrap();
            for mark in [format.heading().to_vec(), format.end(3).into_bytes()] {
                assert_eq!(plain.record(&InputLine::Text(&mark)), Err(LineError::MarkInside));
            }
            assert_eq!(plain.dump(), None);
            assert_eq!(plain.of_dump().dump(), Some(format));
        }
        let plain = Parser::new(Format::Tsv, &columns("", "")).unwrap();
        assert!(plain.record(&InputLine::Unended(b"a\tb")).is_ok());
        let escaped = Columns { escaped: true, ..columns("", "") };
        let dump = Parser::new(Format::Tsv, &escaped).unwrap().of_dump();
        assert_eq!(dump.record(&InputLine::Unended(b"a\tval")), Err(LineError::CutOff));
        assert_eq!(dump.record(&InputLine::Text(b"a")), Err(LineError::ValueMissing(2)));
    }

    #[test]
    fn parse_json_a_lone_surrogate_is_no_text() {
        let text = |name: &str| Err(LineError::JsonText(name.into()));
        assert_eq!(json("", "", r#"{"key":"\ud800","value":"v"}"#), text("key"));
        assert_eq!(json("", "", r#"{"key":"a","value":"x\udc00y"}"#), text("value"));
        assert_eq!(json("", "", r#"{"key":"a","value_base64":"\ud83d"}"#), text("value_base64"));
        assert_eq!(json("", "", r#"{"key":"a","value":"\ud83d\ude00"}"#), pair("a", "\u{1f600}"));
        assert!(json("", "", r#"{"key":"a","value":"v","\udc00":1}"#).is_err());
    }

    /// The last one counted, and the text where there were both, without a word.
    #[test]
    fn parse_json_a_field_that_is_given_twice_is_refused() {
        let twice = |name: &str| Err(LineError::FieldTwice(name.into()));
        let both = |name: &str| Err(LineError::FieldBoth(name.into()));
        assert_eq!(json("", "", r#"{"key":"a","key":"a","value":"v"}"#), twice("key"));
        assert_eq!(json("", "", r#"{"key":"a","value":"v","v\u0061lue":"w"}"#), twice("value"));
        assert_eq!(json("", "", r#"{"key":"a","value_base64":"","value_base64":""}"#), twice("value_base64"));
        assert_eq!(json("", "", r#"{"key":"a","key_base64":"YQ==","value":"v"}"#), both("key"));
        assert_eq!(json("", "", r#"{"key":"a","value_base64":"Yg==","value":"v"}"#), both("value"));
        let other = r#"{"key":"a","other":1,"other":2,"value":"v"}"#;
        assert_eq!(json("", "", other), pair("a", "v"), "nobody asks for it");
    }

    #[test]
    fn parse_tsv_backslashes_are_plain_unless_escaped() {
        assert_eq!(tsv("", "", "a\\t\tb"), pair("a\\t", "b"));
        let escaped = Columns { escaped: true, ..columns("", "") };
        assert_eq!(parse(Format::Tsv, &escaped, "a\\tx\tb"), pair("a\tx", "b"));
        assert!(matches!(parse(Format::Tsv, &escaped, "a\\q\tb"), Err(LineError::Decode(_))));
    }

    #[test]
    fn parse_json_takes_fields_by_name() {
        assert_eq!(json("", "", r#"{"key":"a\n","value":"ü"}"#), pair("a\n", "ü"));
        assert_eq!(
            json("id", "doc", r#"{"id": 7, "doc": {"b": 1, "a": [2]}}"#),
            pair("7", r#"{"b": 1, "a": [2]}"#)
        );
        assert_eq!(json("id", "*", r#" {"id": "x"} "#), pair("x", r#"{"id": "x"}"#));
        assert_eq!(json("", "", r#"{"key_base64":"YQ==","value_base64":"Yg=="}"#), pair("a", "b"));
    }

    #[test]
    fn parse_bad_lines_say_why() {
        assert_eq!(json("", "", r#"{"key":"a"}"#), Err(LineError::FieldMissing("value".into())));
        assert!(matches!(json("", "", r#"["key"]"#), Err(LineError::Json { .. })));
        assert!(matches!(json("", "", ""), Err(LineError::Json { .. })));
        assert_eq!(tsv("", "", ""), Err(LineError::KeyEmpty));
        assert_eq!(tsv("", "", "\tvalue"), Err(LineError::KeyEmpty));
    }

    #[test]
    fn new_a_name_for_a_tsv_column_is_refused() {
        assert!(Parser::new(Format::Tsv, &columns("name", "")).unwrap_err().what.contains("numbers from 1"));
    }
}
