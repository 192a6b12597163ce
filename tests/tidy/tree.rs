//! The source tree: where it is, and its files.

use std::fs;
use std::path::{Path, PathBuf};

/// The workspace's folder.
pub(crate) fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("tests/ is in the workspace").to_owned()
}

/// A Rust source file.
pub(crate) struct Source {
    /// Its path from the workspace's folder, with forward slashes.
    pub path: String,
    /// What it holds.
    pub text: String,
}

/// Every Rust source of the workspace, in order of path.
pub(crate) fn sources() -> Vec<Source> {
    let root = root();
    let mut found = Vec::new();
    collect(&root, &root, &mut found);
    found.sort_by(|left, right| left.path.cmp(&right.path));
    assert!(found.len() > 30, "the walk lost its way: {} files", found.len());
    found
}

fn collect(root: &Path, folder: &Path, found: &mut Vec<Source>) {
    for entry in fs::read_dir(folder).expect("a folder of the workspace can be listed") {
        let path = entry.expect("its entries too").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if !name.starts_with('.') && !name.starts_with("target") && name != "node_modules" {
                collect(root, &path, found);
            }
        } else if name.ends_with(".rs") {
            let text = fs::read_to_string(&path).expect("sources are UTF-8");
            let relative = path.strip_prefix(root).expect("found below the root");
            found.push(Source { path: relative.to_string_lossy().into_owned(), text });
        }
    }
}
