//! Where values come from besides flags: the configuration file and `CELL_*` variables.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use cell_terms::setting::{SettingError, Settings, Source};

/// Why a source is refused. Its text is the place; the cause is the error's source.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The file cannot be read.
    #[error("{}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// The file is no TOML.
    #[error("{}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Where and why.
        #[source]
        error: toml::de::Error,
    },
    /// A value in the file is a list or a table.
    #[error("{}: `{name}` must be a number, text or a flag", path.display())]
    Kind {
        /// The file.
        path: PathBuf,
        /// The setting.
        name: String,
    },
    /// A setting in the file is unknown or out of bounds.
    #[error("{}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Which, and what it takes.
        #[source]
        error: SettingError,
    },
    /// A variable's value is out of bounds.
    #[error("{variable}")]
    Variable {
        /// The variable.
        variable: String,
        /// What it takes.
        #[source]
        error: SettingError,
    },
    /// A variable's value is not UTF-8.
    #[error("{0} is not UTF-8")]
    NotUtf8(String),
}

/// Reads a configuration file: TOML, one `setting = value` a line.
///
/// # Errors
/// It cannot be read, or a line of it is wrong. `settings` may have taken some lines by then.
pub fn read_file(settings: &mut Settings, path: &Path) -> Result<(), SourceError> {
    let of_file = |error| SourceError::File { path: path.to_owned(), error };
    let text =
        std::fs::read_to_string(path).map_err(|error| SourceError::Read { path: path.to_owned(), error })?;
    let table: toml::Table =
        text.parse().map_err(|error| SourceError::Syntax { path: path.to_owned(), error })?;
    for (name, value) in table {
        let text = match value {
            toml::Value::String(text) => text,
            toml::Value::Integer(number) => number.to_string(),
            toml::Value::Float(number) => number.to_string(),
            toml::Value::Boolean(flag) => flag.to_string(),
            _ => return Err(SourceError::Kind { path: path.to_owned(), name }),
        };
        settings.set(&name, &text, Source::File).map_err(of_file)?;
    }
    Ok(())
}

/// Reads the variables that begin with `CELL_`, but for `reserved` ones, which are no settings. One that is
/// empty is as one that is not set.
///
/// Those that name no setting come back as warnings.
///
/// # Errors
/// A value is out of bounds or not UTF-8.
pub fn read_environment(
    settings: &mut Settings,
    environment: impl Iterator<Item = (OsString, OsString)>,
    reserved: &[&str],
) -> Result<Vec<String>, SourceError> {
    const PREFIX: &str = "CELL_";
    let mut warnings = Vec::new();
    for (variable, value) in environment {
        let Some(variable) = variable.to_str().filter(|name| name.starts_with(PREFIX)) else { continue };
        if reserved.contains(&variable) || value.is_empty() {
            continue;
        }
        let name = variable[PREFIX.len()..].to_ascii_lowercase();
        let value = value.to_str().ok_or_else(|| SourceError::NotUtf8(variable.to_owned()))?;
        match settings.set(&name, value, Source::Environment) {
            Ok(()) => {}
            Err(error @ SettingError::Unknown { .. }) => {
                warnings.push(format!("{variable} is ignored: {error}"));
            }
            Err(error) => return Err(SourceError::Variable { variable: variable.to_owned(), error }),
        }
    }
    Ok(warnings)
}
