//! The `cell` that benches start: the one that `CELL_BIN` names. Without that one is built, but only for who
//! is in the workspace that the benches were built from: elsewhere nobody has asked for that.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cell_tests::program::{self, VARIABLE};

use crate::figure::note;
use crate::options::BenchError;

/// Chooses it for this process, before anything else is done.
///
/// # Errors
/// [`BenchError::Program`] or [`BenchError::NoProgram`]; or what building says.
pub fn choose() -> Result<(), BenchError> {
    let named = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
    program::is_at(named.map_or_else(build, of_name)?);
    Ok(())
}

/// What the variable names, if that is a `cell`.
fn of_name(name: OsString) -> Result<PathBuf, BenchError> {
    // Servers are started in folders of their own.
    let path = std::path::absolute(name)?;
    let said = Command::new(&path).arg("--version").stdin(Stdio::null()).output();
    let why = match said {
        Ok(said) if said.stdout.starts_with(b"cell ") => return Ok(path),
        Ok(_) => io::Error::other("it is another program"),
        Err(why) => why,
    };
    Err(BenchError::Program { path, why })
}

/// One of this workspace, for who is in it.
fn build() -> Result<PathBuf, BenchError> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let workspace = package.parent().unwrap_or(package);
    if !is_within(&std::env::current_dir()?, workspace) {
        return Err(BenchError::NoProgram { workspace: workspace.to_owned() });
    }
    note(&format!("{VARIABLE} is not set: building cell of {}", workspace.display()));
    Ok(program::build()?)
}

/// Whether a folder is another one, or below it.
fn is_within(folder: &Path, other: &Path) -> bool {
    match (folder.canonicalize(), other.canonicalize()) {
        (Ok(folder), Ok(other)) => folder.starts_with(other),
        // One that is gone, as where the benches were built on another machine.
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_is_within_itself_and_those_above_and_in_none_that_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let (above, inner) = (folder.path().join("a"), folder.path().join("a/b"));
        std::fs::create_dir_all(&inner).unwrap();
        let beside = folder.path().join("ab");
        std::fs::create_dir(&beside).unwrap();
        assert!(is_within(&above, &above) && is_within(&inner, &above));
        assert!(!is_within(&above, &inner) && !is_within(&beside, &above));
        assert!(!is_within(&inner, &folder.path().join("gone")));
    }
}
