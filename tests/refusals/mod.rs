//! What a person does wrong, what a disk does wrong: a clear error each, nothing lost.

mod command;
mod coordinator;
mod folder;
mod full;
mod joining;
mod memory;

use cell_tests::program::Said;

/// Asserts how a command ended, that it says these words, and nothing on standard output.
#[track_caller]
fn assert_refused(said: &Said, code: i32, words: &[&str]) {
    assert_eq!(said.code, Some(code), "{said:?}");
    for word in words {
        assert!(said.err.contains(word), "the message lacks `{word}`: {}", said.err);
    }
    assert!(said.out.is_empty(), "{said:?}");
    assert!(!said.err.contains("panicked") && !said.err.contains("RUST_BACKTRACE"), "{said:?}");
}
