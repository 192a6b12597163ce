//! The variables of the environment. One that is empty is one that is not set, whatever reads it:
//! `CELL_SERVER="$UNSET"` asks whom `cell` asks without it, and `CELL_TOKENS_FILE="$UNSET"` does not take the
//! tokens of the configuration file away. Nothing else in this program reads the environment.

use std::ffi::{OsStr, OsString};

use clap::{Arg, Command};

/// A variable's value.
pub(crate) fn variable(name: impl AsRef<OsStr>) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// All variables.
pub(crate) fn variables() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os().filter(|(_, value)| !value.is_empty())
}

/// A command whose arguments have nothing of variables that are empty.
pub(crate) fn without_empty(command: Command) -> Command {
    let is_empty = |name: &OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
    let unset = |argument: Arg| match argument.get_env().is_some_and(is_empty) {
        true => argument.env(None::<&'static str>),
        false => argument,
    };
    command.mut_args(unset).mut_subcommands(without_empty)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;
    use std::path::Path;

    /// The files of this program's source, each with its text.
    pub(crate) fn sources() -> Vec<(String, String)> {
        let mut found = Vec::new();
        add_sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
        assert!(found.len() > 50);
        found
    }

    fn add_sources(folder: &Path, found: &mut Vec<(String, String)>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                add_sources(&path, found);
            } else {
                found.push((path.display().to_string(), fs::read_to_string(&path).unwrap()));
            }
        }
    }

    #[test]
    fn variables_are_read_here_alone() {
        let found = sources();
        let reads = |text: &str| text.contains("env::var");
        let readers: Vec<_> = found.iter().filter(|(_, text)| reads(text)).map(|(path, _)| path).collect();
        assert!(matches!(&readers[..], [only] if only.ends_with("environment.rs")), "{readers:?}");
    }
}
