//! The program under test, `cell`, and running one command of it.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use crate::reaper;

/// Variable that names a ready binary; `tests/run` sets it. Without it the binary is built once a test
/// process.
pub const VARIABLE: &str = "CELL_BIN";

static PATH: OnceLock<PathBuf> = OnceLock::new();

/// Has this program be `cell`: in tests whose own build says where it is, and in benches, which have looked.
pub fn is_at(path: impl Into<PathBuf>) {
    PATH.get_or_init(|| path.into());
}

/// Where `cell` is.
///
/// # Panics
/// If it cannot be built.
pub fn path() -> &'static Path {
    PATH.get_or_init(|| match std::env::var_os(VARIABLE) {
        Some(path) => path.into(),
        None => build().expect("cell is built"),
    })
}

/// Builds `cell` into the target folder that this test was built into, and in its profile.
///
/// # Errors
/// It does not build, of which cargo has said the reason on standard error.
///
/// # Panics
/// If this program is in no folder.
pub fn build() -> io::Result<PathBuf> {
    let test = std::env::current_exe()?;
    // <target>/<profile>/deps of a test, <target>/<profile> of a bench.
    let folder = test.ancestors().skip(1).find(|folder| !folder.ends_with("deps"));
    let folder = folder.expect("a program is in a folder");
    let target = folder.parent().expect("a profile's folder is in the target folder");
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(profile) => profile,
    };
    let features: &[&str] = if cfg!(feature = "verbs") { &["--features", "verbs"] } else { &[] };
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "-p", "cell-ops", "--profile", profile, "--target-dir"])
        .arg(target)
        .args(features)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .map_err(|why| io::Error::other(format!("{} cannot be started: {why}", env!("CARGO"))))?;
    if status.success() { Ok(folder.join("cell")) } else { Err(io::Error::other("cell does not build")) }
}

/// A command of `cell` that sees nothing of this process's `CELL_*` variables, and no input. It does not
/// outlive this process.
pub fn command() -> Command {
    quiet(Command::new(path()))
}

/// As [`command`], in the control group that is entered by writing to a file.
pub fn command_in(procs_file: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(procs_file).arg(path());
    quiet(command)
}

/// A command that sees no `CELL_*` variables of this process, gets no input, and does not outlive it.
pub(crate) fn quiet(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CELL_") {
            command.env_remove(name);
        }
    }
    reaper::mark(&mut command);
    command.env("NO_COLOR", "1").stdin(Stdio::null());
    command
}

/// What a command said and how it ended.
#[derive(Clone, Debug)]
pub struct Said {
    /// Its exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Runs `cell` with these arguments to its end.
///
/// # Panics
/// If it cannot be started.
pub fn run<S: AsRef<std::ffi::OsStr>>(arguments: &[S]) -> Said {
    command().args(arguments).output().expect("cell can be started").into()
}
