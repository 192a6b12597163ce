//! Settings of a node's HTTP server. Where it listens is a setting of the process.

use cell_terms::setting::{Applies, Bounds, Setting, Settings, Value};

/// The file of tokens.
pub(crate) const TOKENS_FILE: &str = "http_tokens_file";
/// Whether changes are refused.
pub(crate) const READ_ONLY: &str = "http_read_only";

/// Declarations; see `cell settings`.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: TOKENS_FILE,
        meaning: "A file of the tokens that the admin API asks for, `ROLE NAME SHA256` a line: viewer, operator or \
                  admin, and the token's SHA-256 in hexadecimal digits. Without one every request from this \
                  machine has the role admin.",
        default: "",
        bounds: Bounds::Text { max: 4096 },
        applies: Applies::Restart,
    },
    Setting {
        name: READ_ONLY,
        meaning: "Whether this node's admin API refuses everything that changes something, whoever asks.",
        default: "false",
        bounds: Bounds::Flag,
        applies: Applies::Restart,
    },
];

/// The file of tokens, if there is one.
pub(crate) fn tokens_file(settings: &Settings) -> Option<&str> {
    match settings.get(TOKENS_FILE) {
        Some((Value::Text(path), _)) if !path.is_empty() => Some(path),
        _ => None,
    }
}

/// Whether changes are refused.
pub(crate) fn is_read_only(settings: &Settings) -> bool {
    matches!(settings.get(READ_ONLY), Some((Value::Flag(true), _)))
}
