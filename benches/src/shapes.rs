//! Keys of loads that fall onto the nodes of a cluster in different ways.

use std::path::Path;

use cell_random::Random;

use crate::data::{Batch, Dataset};
use crate::options::BenchError;

/// What all paths begin with.
const PREFIX: &str = "/srv/backup/production/machines/web-frontend-01.example.org/snapshots/2026-11-27";
/// Where real paths are found.
const ROOT: &str = "/usr";
/// A longer one is left out: with the prefix, keys of tree nodes of the default size have 178 bytes at most.
const PATH_BYTES_MAX: usize = 80;
/// Keys of which those are taken that divide a load in three.
const SAMPLE: u64 = 30_000;

/// How the keys of a load are made, and in which order they come.
pub(crate) enum Shape {
    /// Paths of this machine below one long prefix, in random order; copies of the tree, as many as it takes.
    Paths {
        /// The paths.
        paths: Vec<String>,
        /// Which one comes when.
        order: Vec<u32>,
    },
    /// The paper's keys.
    Uniform,
    /// Numbers, one after the other.
    Ascending,
}

/// What rows call the shapes, in the order in which they are measured.
pub(crate) const NAMES: [&str; 3] = ["paths", "uniform", "ascending"];

impl Shape {
    /// The shape of that name, for the entries of a dataset.
    ///
    /// # Errors
    /// The machine has no paths.
    pub(crate) fn of(name: &str, data: &Dataset) -> Result<Self, BenchError> {
        match name {
            "paths" => {
                let paths = paths_below(Path::new(ROOT), data.entries);
                if paths.is_empty() {
                    let words = format!("there is no file below {ROOT}");
                    return Err(BenchError::Io(std::io::Error::other(words)));
                }
                Ok(Self::Paths { paths, order: shuffled(data) })
            }
            "ascending" => Ok(Self::Ascending),
            _ => Ok(Self::Uniform),
        }
    }

    /// Appends the key that comes at this place.
    fn push_key(&self, data: &Dataset, place: u64, out: &mut Vec<u8>) {
        match self {
            Self::Uniform => data.push_key(place, out),
            Self::Ascending => out.extend(format!("{place:020}").into_bytes()),
            Self::Paths { paths, order } => {
                let place = usize::try_from(place).unwrap_or(usize::MAX);
                let nth = order.get(place).map_or(0, |nth| *nth as usize);
                let (copy, path) = (nth / paths.len(), &paths[nth % paths.len()]);
                out.extend(format!("{PREFIX}/copy-{copy:04}{path}").into_bytes());
            }
        }
    }

    /// The entries `[first, last)`, in the order in which they come.
    pub(crate) fn batch(&self, data: &Dataset, first: u64, last: u64) -> Batch {
        let mut batch = Batch::default();
        for place in first..last {
            batch.keys.push_with(|bytes| self.push_key(data, place, bytes));
            batch.values.push_with(|bytes| data.push_value(place, bytes));
        }
        batch
    }

    /// The keys that divide the load in so many equal parts, as `initial_split_keys` takes them.
    pub(crate) fn cuts(&self, data: &Dataset, parts: usize) -> String {
        let step = (data.entries / SAMPLE).max(1);
        let places = (0..data.entries).step_by(usize::try_from(step).unwrap_or(1));
        let mut keys: Vec<Vec<u8>> = places
            .map(|place| {
                let mut key = Vec::new();
                self.push_key(data, place, &mut key);
                key
            })
            .collect();
        keys.sort_unstable();
        // A comma separates two keys; what follows it is as good.
        let at = |part: usize| String::from_utf8_lossy(&keys[keys.len() * part / parts]).replace(',', "-");
        (1..parts).map(at).collect::<Vec<_>>().join(",")
    }
}

/// The numbers of all entries, in random order.
fn shuffled(data: &Dataset) -> Vec<u32> {
    let mut order: Vec<u32> = (0..u32::try_from(data.entries).unwrap_or(u32::MAX)).collect();
    let mut random = Random::new(data.seed ^ 0x7061_7468);
    for place in (1..order.len()).rev() {
        order.swap(place, random.index(place + 1));
    }
    order
}

/// At most so many files and folders below a folder; those that cannot be read, or whose names are no text,
/// are left out.
fn paths_below(root: &Path, most: u64) -> Vec<String> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let (mut paths, mut folders) = (Vec::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if paths.len() >= most {
                return paths;
            }
            let path = entry.path();
            // The link itself, not what it leads to: there may be circles.
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if let Some(text) = path.to_str().filter(|text| text.len() <= PATH_BYTES_MAX) {
                paths.push(text.to_owned());
            }
            if is_folder {
                folders.push(path);
            }
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const DATA: Dataset = Dataset { entries: 3_000, seed: 4 };

    fn few_paths() -> Shape {
        let paths = (0..700).map(|number| format!("/usr/share/doc/package-{number}")).collect();
        Shape::Paths { paths, order: shuffled(&DATA) }
    }

    #[test]
    fn keys_of_each_shape_are_as_many_as_there_are_entries() {
        for shape in [few_paths(), Shape::Uniform, Shape::Ascending] {
            let batch = shape.batch(&DATA, 0, DATA.entries);
            let keys: BTreeSet<&[u8]> = (0..batch.keys.len()).map(|at| batch.keys.get(at)).collect();
            assert_eq!(keys.len(), 3_000);
            if let Shape::Paths { .. } = shape {
                assert!(keys.iter().all(|key| key.starts_with(PREFIX.as_bytes())));
                assert!(!batch.keys.get(0).ends_with(b"/package-0"), "they are in random order");
            }
        }
    }

    #[test]
    fn thirds_divide_the_keys_in_three_equal_parts() {
        for shape in [few_paths(), Shape::Uniform, Shape::Ascending] {
            let thirds = shape.cuts(&DATA, 3);
            let (low, high) = thirds.split_once(',').expect("two keys");
            let batch = shape.batch(&DATA, 0, DATA.entries);
            let keys: Vec<&[u8]> = (0..batch.keys.len()).map(|at| batch.keys.get(at)).collect();
            let part = |wanted: fn(bool, bool) -> bool| {
                keys.iter().filter(|key| wanted(**key < low.as_bytes(), **key < high.as_bytes())).count()
            };
            let parts = [part(|low, _| low), part(|low, high| high && !low), part(|_, high| !high)];
            assert!(parts.iter().all(|part| (950..=1_050).contains(part)), "{parts:?}");
        }
    }

    #[test]
    fn paths_are_those_of_the_machine_and_no_more_than_wanted() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("a/b")).unwrap();
        std::fs::write(folder.path().join("a/b/c"), "").unwrap();
        std::os::unix::fs::symlink(folder.path(), folder.path().join("a/circle")).unwrap();
        let mut found = paths_below(folder.path(), 100);
        found.sort_unstable();
        let root = folder.path().to_str().unwrap();
        assert_eq!(found, ["a", "a/b", "a/b/c", "a/circle"].map(|name| format!("{root}/{name}")));
        assert_eq!(paths_below(folder.path(), 2).len(), 2);
    }
}
