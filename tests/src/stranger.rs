//! Another user of the machine, who has been given nothing.

use std::os::unix::process::CommandExt;

use crate::program::{self, Said};

/// The user `nobody`.
pub const NOBODY: u32 = 65_534;

/// Runs `cell` with these arguments as that user. None, and said so, where this test may not change users.
pub fn run(arguments: &[&str]) -> Option<Said> {
    match program::command().args(arguments).uid(NOBODY).gid(NOBODY).output() {
        Ok(output) => Some(output.into()),
        Err(error) => {
            println!("SKIPPED: a command of another user: {error}; it needs root");
            None
        }
    }
}
