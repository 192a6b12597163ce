//! Keys and values are any bytes; people, TSV and JSON want text. Here bytes become text and back, without
//! loss.
//!
//! | encoding | text of the bytes | read |
//! |---|---|---|
//! | `text` | the bytes themselves | any bytes |
//! | `escaped` | printable UTF-8 as it is; `\\ \t \n \r \0`, other bytes `\xNN` | the same, no other escape |
//! | `hex` | lower-case, two digits a byte | either case |
//! | `base64` | RFC 4648, padded | padding required |
//!
//! In JSON a field `key` holds the bytes if they are UTF-8; otherwise there is no `key` but a `key_base64`.

use std::borrow::Cow;

use clap::ValueEnum;
use data_encoding::{BASE64, HEXLOWER, HEXLOWER_PERMISSIVE};
use serde_json::{Map, Value};

/// How bytes are written as text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Encoding {
    /// As they are.
    #[default]
    Text,
    /// Backslash escapes for what is not printable UTF-8.
    Escaped,
    /// Two hexadecimal digits a byte.
    Hex,
    /// Base 64 with padding.
    Base64,
}

/// Text that is not of the encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DecodeError {
    /// An escape that does not exist or is cut short.
    #[error("wrong escape at byte {0}: known are \\\\ \\t \\n \\r \\0 \\xNN")]
    Escape(usize),
    /// Not hexadecimal.
    #[error("not hexadecimal at byte {0}: two digits a byte are needed")]
    Hex(usize),
    /// Not base 64.
    #[error("not base64 at byte {0}")]
    Base64(usize),
}

impl Encoding {
    /// The bytes that a text stands for.
    pub(crate) fn decode(self, text: &[u8]) -> Result<Cow<'_, [u8]>, DecodeError> {
        match self {
            Encoding::Text => Ok(Cow::Borrowed(text)),
            Encoding::Escaped => unescape(text),
            Encoding::Hex => match HEXLOWER_PERMISSIVE.decode(text) {
                Ok(bytes) => Ok(Cow::Owned(bytes)),
                Err(error) => Err(DecodeError::Hex(error.position)),
            },
            Encoding::Base64 => match BASE64.decode(text) {
                Ok(bytes) => Ok(Cow::Owned(bytes)),
                Err(error) => Err(DecodeError::Base64(error.position)),
            },
        }
    }

    /// Appends the text of the bytes.
    pub(crate) fn encode(self, bytes: &[u8], out: &mut Vec<u8>) {
        match self {
            Encoding::Text => out.extend_from_slice(bytes),
            Encoding::Escaped => escape(bytes, out),
            Encoding::Hex => out.extend_from_slice(HEXLOWER.encode(bytes).as_bytes()),
            Encoding::Base64 => out.extend_from_slice(BASE64.encode(bytes).as_bytes()),
        }
    }
}

/// A key for a message to a person: escaped, and cut when long.
pub(crate) fn display_key(key: &[u8]) -> String {
    const SHOWN: usize = 80;
    let mut text = Vec::new();
    escape(&key[..key.len().min(SHOWN)], &mut text);
    let mut text = String::from_utf8_lossy(&text).into_owned();
    if key.len() > SHOWN {
        text.push('…');
    }
    text
}

/// Adds the bytes to a JSON object: as text, or as base 64 under `name_base64`.
pub(crate) fn insert_json(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object.insert(name.to_owned(), Value::from(text)),
        Err(_) => object.insert(format!("{name}_base64"), Value::from(BASE64.encode(bytes))),
    };
}

fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            escape_char(c, out);
        }
        for byte in chunk.invalid() {
            escape_byte(*byte, out);
        }
    }
}

fn escape_char(c: char, out: &mut Vec<u8>) {
    let mut utf8 = [0; 4];
    let bytes = c.encode_utf8(&mut utf8).as_bytes();
    match c {
        '\\' => out.extend_from_slice(b"\\\\"),
        '\t' => out.extend_from_slice(b"\\t"),
        '\n' => out.extend_from_slice(b"\\n"),
        '\r' => out.extend_from_slice(b"\\r"),
        '\0' => out.extend_from_slice(b"\\0"),
        c if c.is_control() => bytes.iter().for_each(|byte| escape_byte(*byte, out)),
        _ => out.extend_from_slice(bytes),
    }
}

fn escape_byte(byte: u8, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.extend_from_slice(&[b'\\', b'x', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
}

fn unescape(text: &[u8]) -> Result<Cow<'_, [u8]>, DecodeError> {
    let Some(first) = memchr::memchr(b'\\', text) else { return Ok(Cow::Borrowed(text)) };
    let mut bytes = Vec::with_capacity(text.len());
    bytes.extend_from_slice(&text[..first]);
    let mut at = first;
    while at < text.len() {
        let (byte, length) = unescape_one(&text[at + 1..]).ok_or(DecodeError::Escape(at))?;
        bytes.push(byte);
        let rest = &text[at + 1 + length..];
        let plain = memchr::memchr(b'\\', rest).unwrap_or(rest.len());
        bytes.extend_from_slice(&rest[..plain]);
        at += 1 + length + plain;
    }
    Ok(Cow::Owned(bytes))
}

/// The byte after a backslash, and how long its escape is.
fn unescape_one(rest: &[u8]) -> Option<(u8, usize)> {
    Some(match rest.first()? {
        b'\\' => (b'\\', 1),
        b't' => (b'\t', 1),
        b'n' => (b'\n', 1),
        b'r' => (b'\r', 1),
        b'0' => (0, 1),
        b'x' => (hex_digit(*rest.get(1)?)? << 4 | hex_digit(*rest.get(2)?)?, 3),
        _ => return None,
    })
}

/// In either case.
fn hex_digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encode_any_bytes_decodes_to_the_same() {
        let all: Vec<u8> = (0..=255).collect();
        let texts = [&all[..], "größe\t\\x\n".as_bytes(), b"", b"\\", "\u{85}\u{2028}".as_bytes()];
        for encoding in [Encoding::Text, Encoding::Escaped, Encoding::Hex, Encoding::Base64] {
            for bytes in texts {
                let mut text = Vec::new();
                encoding.encode(bytes, &mut text);
                assert_eq!(encoding.decode(&text).unwrap(), bytes, "{encoding:?}");
            }
        }
    }

    #[test]
    fn decode_escaped_takes_digits_of_either_case_and_what_is_around() {
        let decoded = Encoding::Escaped.decode(b"a\\x0aB\\xFf\\xfF\\\\z").unwrap();
        assert_eq!(decoded, &b"a\nB\xff\xff\\z"[..]);
    }

    #[test]
    fn encode_escaped_holds_no_tab_or_newline() {
        let mut text = Vec::new();
        Encoding::Escaped.encode(b"a\tb\nc\rd\x00\xff\x1b", &mut text);
        assert_eq!(text, b"a\\tb\\nc\\rd\\0\\xff\\x1b");
    }

    #[test]
    fn decode_wrong_text_names_the_place() {
        assert_eq!(Encoding::Escaped.decode(b"ab\\q"), Err(DecodeError::Escape(2)));
        assert_eq!(Encoding::Escaped.decode(b"\\x1"), Err(DecodeError::Escape(0)));
        assert_eq!(Encoding::Escaped.decode(b"\\tab\\xFf\\xg0"), Err(DecodeError::Escape(8)));
        assert_eq!(Encoding::Escaped.decode(b"\\"), Err(DecodeError::Escape(0)));
        assert_eq!(Encoding::Hex.decode(b"0g"), Err(DecodeError::Hex(1)));
        assert!(matches!(Encoding::Base64.decode(b"a"), Err(DecodeError::Base64(_))));
    }

    #[test]
    fn insert_json_bytes_that_are_not_text_go_under_another_name() {
        let mut object = Map::new();
        insert_json(&mut object, "key", b"text");
        insert_json(&mut object, "value", b"\xff");
        assert_eq!(serde_json::to_string(&object).unwrap(), r#"{"key":"text","value_base64":"/w=="}"#);
    }
}
