//! Versions of entries on the command line: `PAIR.EPOCH.CSN`, as everything prints them.

use cell_terms::{Csn, Epoch, PairId, Version};

/// Reads a version.
pub(crate) fn parse_version(text: &str) -> Result<Version, String> {
    let wrong = || "takes a version as `cell put` prints it, three numbers: PAIR.EPOCH.CSN".to_owned();
    let mut parts = text.split('.');
    let mut next = || parts.next().ok_or_else(wrong);
    let (pair, epoch, csn) = (next()?, next()?, next()?);
    if parts.next().is_some() {
        return Err(wrong());
    }
    Ok(Version {
        pair: PairId(pair.parse().map_err(|_| wrong())?),
        epoch: Epoch(epoch.parse().map_err(|_| wrong())?),
        csn: Csn(csn.parse().map_err(|_| wrong())?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_version_reads_what_is_printed() {
        let version = Version { pair: PairId(1), epoch: Epoch(20), csn: Csn(300) };
        assert_eq!(parse_version(&version.to_string()), Ok(version));
        for wrong in ["", "1", "1.2", "1.2.3.4", "a.b.c", "1.2.-3"] {
            assert!(parse_version(wrong).is_err(), "{wrong}");
        }
    }
}
