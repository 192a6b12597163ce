//! Which seeds a sweep runs: those that are kept because they failed once, then fresh ones. Fresh ones begin
//! at a number drawn from the commit's hash, because seeds that everybody ran before prove little.

use std::ops::Range;
use std::path::Path;
use std::process::Command;

/// See the file itself.
const KEPT: &str = include_str!("../seeds.txt");
/// Digits of the commit's hash that say where fresh seeds begin.
const HASH_DIGITS: usize = 8;

/// The seeds of a sweep, in the order in which they are started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seeds(Vec<Range<u64>>);

impl Seeds {
    /// Consecutive ones.
    #[must_use]
    pub fn consecutive(from: u64, count: u64) -> Seeds {
        Seeds(std::iter::once(from..from + count).collect())
    }

    /// Those of `seeds.txt`, then these.
    ///
    /// # Errors
    /// A line of the file that cannot be read.
    pub fn after_kept(self) -> Result<Seeds, String> {
        let mut all = parse(KEPT)?;
        all.extend(self.0);
        Ok(Seeds(all))
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }

    /// They are cut into pieces of at most so many consecutive ones.
    pub fn pieces(&self, at_most: u64) -> impl Iterator<Item = Range<u64>> {
        self.0.iter().flat_map(move |range| {
            let end = range.end;
            let step = usize::try_from(at_most.max(1)).unwrap_or(1);
            range.clone().step_by(step).map(move |from| from..end.min(from + at_most.max(1)))
        })
    }
}

fn parse(text: &str) -> Result<Vec<Range<u64>>, String> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let number = |text: &str| text.parse::<u64>().map_err(|_| format!("`{text}` is no seed"));
    lines
        .filter(|line| !line.is_empty())
        .map(|line| {
            let (first, last) = line.split_once('-').unwrap_or((line, line));
            let range = number(first)?..number(last)? + 1;
            if range.is_empty() { Err(format!("`{line}` has no seed")) } else { Ok(range) }
        })
        .collect()
}

/// Where the fresh seeds of a commit begin, by its hash; one if the hash is unknown.
#[must_use]
pub fn fresh_from(hash: &str) -> u64 {
    let digits = hash.get(..HASH_DIGITS).and_then(|digits| u64::from_str_radix(digits, 16).ok());
    digits.unwrap_or(0).max(1)
}

/// The whole hash of the commit that the sources are at; empty if that is unknown.
#[must_use]
pub fn commit_hash() -> String {
    git(&["rev-parse", "HEAD"]).unwrap_or_default()
}

/// The commit that the sources are at in short, and whether they were changed since.
#[must_use]
pub fn commit() -> String {
    git(&["describe", "--always", "--dirty", "--abbrev=12"]).unwrap_or("unknown".into())
}

fn git(arguments: &[&str]) -> Option<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new("git").args(arguments).current_dir(folder).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_seeds_are_a_few_hundred_and_each_is_there_once() {
        let kept = Seeds::default().after_kept().unwrap();
        let mut all: Vec<u64> = kept.pieces(7).flatten().collect();
        assert!(all.len() as u64 == kept.count() && (200..=1_000).contains(&all.len()), "{}", all.len());
        for once_failed in [15, 232, 287, 582, 4_490, 5_575, 631_755_981] {
            assert!(all.contains(&once_failed), "{once_failed}");
        }
        all.sort_unstable();
        assert!(all.windows(2).all(|two| two[0] < two[1]), "a seed is there twice");
    }

    #[test]
    fn pieces_cover_every_seed_in_order() {
        let seeds = Seeds(parse("3-9 # some\n\n# none\n20\n").unwrap());
        let pieces: Vec<Range<u64>> = seeds.pieces(4).collect();
        assert_eq!(pieces, [3..7, 7..10, 20..21]);
        assert_eq!(seeds.count(), 8);
        assert!(parse("x").is_err() && parse("5-4").is_err());
    }

    #[test]
    fn fresh_seeds_begin_where_the_hash_says() {
        assert_eq!(fresh_from("9a3c3cc1ffff"), 0x9a3c_3cc1);
        assert_ne!(fresh_from("9a3c3cc1ffff"), fresh_from("455deab2ffff"));
        assert_eq!([fresh_from(""), fresh_from("unknown"), fresh_from("00000000")], [1; 3]);
    }
}
