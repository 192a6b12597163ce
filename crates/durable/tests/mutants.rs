//! The twin of the folders' tests. Debug builds alone have it.
#![cfg(debug_assertions)]
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
    cell_terms::mutant::in_own_process(|| {
        assert!(is_there_after_a_power_cut());
        plant(Some(Mutant::FolderNamesUnsynced));
        let is_there = is_there_after_a_power_cut();
        plant(None);
        assert!(!is_there);
        println!("mutant {} caught by cell-durable's power cut", Mutant::FolderNamesUnsynced.name());
    });
}
