//! Keys and values for people: text as far as they are text.

use std::fmt::Write as _;

use data_encoding::HEXLOWER;
use serde::Serialize;

/// A key, as people read it and as requests name it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Key {
    /// See [`escaped`].
    pub(crate) text: String,
    /// Two digits a byte.
    pub(crate) hex: String,
}

impl Key {
    /// Of these bytes.
    pub(crate) fn new(bytes: &[u8]) -> Key {
        Key { text: escaped(bytes), hex: HEXLOWER.encode(bytes) }
    }

    /// About how long it is in JSON.
    pub(crate) fn json_bytes(&self) -> usize {
        let escaped_again = self.text.bytes().filter(|byte| matches!(byte, b'\\' | b'"')).count();
        self.text.len() + escaped_again + self.hex.len() + r#"{"text":"","hex":""}"#.len()
    }
}

/// Printable UTF-8 as it is, a backslash as `\\`, any other byte as `\xNN`: bytes that differ are text that
/// differs.
pub(crate) fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    let byte = |text: &mut String, byte: u8| {
        let _ = write!(text, "\\x{byte:02x}"); // a String takes all
    };
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '\\' => text.push_str(r"\\"),
                letter if letter.is_control() => {
                    let mut utf8 = [0; 4];
                    letter.encode_utf8(&mut utf8).bytes().for_each(|one| byte(&mut text, one));
                }
                letter => text.push(letter),
            }
        }
        chunk.invalid().iter().for_each(|one| byte(&mut text, *one));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_of_any_bytes_is_text_that_names_them() {
        let key = Key::new(b"a\\\x00\xc3\xa9\xff\n");
        assert_eq!((&*key.text, &*key.hex), (r"a\\\x00é\xff\x0a", "615c00c3a9ff0a"));
        let json = serde_json::to_string(&key).unwrap();
        assert_eq!(key.json_bytes(), json.len());
    }
}
