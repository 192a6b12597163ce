//! The twin of the folders' tests: built with `RUSTC_WORKSPACE_WRAPPER=tests/rustc-with-mutants`; empty
//! otherwise.
#![cfg(cell_mutants)]
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use cell_durable::{PowerCutSyncer, create_folders};
use cell_terms::mutant::{Mutant, plant};

fn is_there_after_a_power_cut() -> bool {
    let (before, after) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let syncer = PowerCutSyncer::new(before.path()).unwrap();
    create_folders(&syncer, &before.path().join("a/b")).unwrap();
    syncer.restore(after.path()).unwrap();
    after.path().join("a/b").is_dir()
}

#[test]
fn mutant_folder_names_unsynced_is_caught() {
    assert!(is_there_after_a_power_cut());
    plant(Some(Mutant::FolderNamesUnsynced));
    let is_there = is_there_after_a_power_cut();
    plant(None);
    assert!(!is_there);
    println!("mutant {} caught by cell-durable's power cut", Mutant::FolderNamesUnsynced.name());
}
