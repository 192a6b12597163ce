//! Ends what a test process has started once that process has ended itself, whatever ended it: a failed
//! assertion, a time-out, `kill -9`. A `Drop` runs in the first case alone.
//!
//! What is started carries a mark in its environment, which its own children inherit. A shell beside the test
//! process reads from a pipe whose other end the test process alone holds, and the kernel closes that with
//! the process. The shell then kills all that carries the mark, also processes that are stopped or whose
//! parent is gone. Through the pipe it is given names of folders, in which file systems may be mounted: those
//! that the test has left are unmounted and removed, too. Benches have what they start and write ended
//! likewise. The browser's children end by another way: `tests/browser/child.mjs`.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The variable that is the mark. Not `CELL_…`: those are settings of `cell`.
const VARIABLE: &str = "STARTED_BY_TEST";

const SCRIPT: &str = include_str!("reaper.sh");

/// Has a command, and all that it starts, killed when this process has ended.
///
/// # Panics
/// If there is no shell.
pub fn mark(command: &mut Command) {
    pipe();
    command.env(VARIABLE, value());
}

/// Has the folder of a test's own disk or of a bench's data removed once this process has ended, with what is
/// mounted in it, if it is still there. Its path is absolute, and its name is one of those that `reaper.sh`
/// knows; one of several lines is left.
///
/// # Panics
/// If there is no shell.
pub fn remove(folder: &Path) {
    let mut line = folder.as_os_str().as_encoded_bytes().to_vec();
    if line.contains(&b'\n') {
        return;
    }
    line.push(b'\n');
    let mut shell = pipe().lock().unwrap_or_else(PoisonError::into_inner);
    shell.write_all(&line).expect("the shell reads until this process ends");
}

/// The mark of what this process starts.
fn value() -> String {
    format!("{};", std::process::id())
}

/// The end of the pipe that this process holds.
fn pipe() -> &'static Mutex<ChildStdin> {
    static PIPE: OnceLock<Mutex<ChildStdin>> = OnceLock::new();
    PIPE.get_or_init(|| Mutex::new(start(&format!("{VARIABLE}={}", value()))))
}

/// Starts the shell; it lives until the pipe is closed. Who ends a test kills its process group: the shell
/// has its own.
fn start(mark: &str) -> ChildStdin {
    let mut command = Command::new("sh");
    // Its own environment is nobody's mark: another one's reaper must not end it before its work is done.
    command.args(["-c", SCRIPT, "reaper", mark]).env_remove(VARIABLE).process_group(0);
    let shell = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    shell.expect("a shell can be started").stdin.take().expect("its input is a pipe")
}
