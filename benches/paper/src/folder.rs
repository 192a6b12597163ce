//! Folders on the command line.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::builder::{PathBufValueParser, TypedValueParser};

/// Takes a folder that is there or can be made, and refuses another path before anything is done: what goes
/// there may be written after minutes.
#[must_use]
pub fn folder() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| match obstacle(&path) {
        Some(obstacle) => Err(format!("{obstacle}; name a folder, which is made if it is not there")),
        None => Ok(path),
    })
}

/// Takes a folder that is there. One that is made because a letter of a mounted disk's path is wrong would be
/// on another disk than the one that is to be measured.
#[must_use]
pub fn existing_folder() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| {
        let absence = || (!path.is_dir()).then(|| format!("{} is not there", path.display()));
        match obstacle(&path).or_else(absence) {
            Some(obstacle) => Err(format!("{obstacle}; name a folder that is there")),
            None => Ok(path),
        }
    })
}

/// What stands in the way of a folder at this path.
fn obstacle(path: &Path) -> Option<String> {
    for place in path.ancestors().filter(|place| !place.as_os_str().is_empty()) {
        match std::fs::metadata(place) {
            Ok(found) if found.is_dir() => return None,
            Ok(_) => return Some(format!("{} is no folder", place.display())),
            Err(error) if error.kind() == ErrorKind::NotFound && place.is_symlink() => {
                return Some(format!("{} is a link to what is not there", place.display()));
            }
            // It can be made in the folder above, if that is one.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
            Err(error) => return Some(format!("{} cannot be looked at: {error}", place.display())),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn obstacle_is_what_is_no_folder_on_the_way() {
        let folder = std::env::temp_dir().join(format!("cell-paper-folder-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (file, link) = (folder.join("file"), folder.join("link"));
        std::fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(folder.join("nothing"), &link).unwrap();
        let new = folder.join("new/inner");
        let found = [&folder, &new, &file, &file.join("inner"), &link].map(|path| obstacle(path));
        std::fs::remove_dir_all(&folder).unwrap();
        let is_no_folder = Some(format!("{} is no folder", file.display()));
        let leads_nowhere = Some(format!("{} is a link to what is not there", link.display()));
        assert_eq!(found, [None, None, is_no_folder.clone(), is_no_folder, leads_nowhere]);
        assert_eq!([obstacle(Path::new("a/b")), obstacle(Path::new("."))], [None, None]);
    }
}
