//! Names of logs, segments and images below the log root.
//!
//! ```text
//! region-0000000a/epoch-00000003/segment-00000000.log     one log: a region's, written by one owner
//! region-0000000a/epoch-00000003/preparing-00000002.log   a segment that is being zero-filled
//! pair-00000005/image-00000003-00000000000004d2-00000000.cell      an image: epoch, base CSN, attempt
//! ```
//!
//! A segment's number is its *generation*: it is never used twice in a log, so a frame shows whether it was
//! written for this use of the file. A recycled file gets a new number, and with it a new name.
//!
//! An owner numbers its attempts at an image, because the name of an image that may be recorded is never used
//! again: (1) an image is recorded, and the answer is lost; (2) the owner begins another one with the same
//! base; (3) it is written over the recorded one, with another highest CSN; (4) a crash, and the row does not
//! fit the file.

use std::fmt;

use cell_terms::{Csn, Epoch, PairId, RegionId, RegionKind};

/// A pair's logs, written by one owner: what events are addressed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogId {
    /// The pair.
    pub pair: PairId,
    /// The owner's epoch.
    pub epoch: Epoch,
}

impl LogId {
    /// The log of one of the pair's regions.
    #[must_use]
    pub const fn log(self, kind: RegionKind) -> LogName {
        LogName { region: self.pair.region(kind), epoch: self.epoch }
    }
}

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.pair, self.epoch)
    }
}

/// One log: a region's, written by one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogName {
    /// The region.
    pub region: RegionId,
    /// The owner's epoch.
    pub epoch: Epoch,
}

impl LogName {
    /// The segment with this number.
    #[must_use]
    pub const fn segment(self, generation: u32) -> SegmentName {
        SegmentName { log: self, generation }
    }

    /// The log's folder, relative to the log root.
    #[must_use]
    pub fn folder(self) -> String {
        format!("{}/epoch-{:08x}", region_folder(self.region), self.epoch.0)
    }
}

/// One segment of a log. Displayed as its path below the log root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentName {
    /// The log.
    pub log: LogName,
    /// The segment's number.
    pub generation: u32,
}

impl SegmentName {
    /// The file, relative to the log root.
    #[must_use]
    pub fn path(self) -> String {
        format!("{}/segment-{:08x}.log", self.log.folder(), self.generation)
    }

    /// The file's name until it is zero-filled and synced.
    #[must_use]
    pub fn path_preparing(self) -> String {
        format!("{}/preparing-{:08x}.log", self.log.folder(), self.generation)
    }
}

impl fmt::Display for SegmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path())
    }
}

/// A place in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPlace {
    /// The file.
    pub segment: SegmentName,
    /// The byte in it.
    pub offset: u64,
}

impl fmt::Display for LogPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at offset {}", self.segment, self.offset)
    }
}

/// The folder of a region's logs, one folder an epoch in it.
#[must_use]
pub fn region_folder(region: RegionId) -> String {
    format!("region-{:08x}", region.0)
}

/// The folder of a pair's checkpoint images.
#[must_use]
pub fn image_folder(pair: PairId) -> String {
    format!("pair-{:08x}", pair.0)
}

/// A checkpoint image. Later ones of a pair are greater. Displayed as its file's name in the pair's folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageName {
    /// The epoch of the owner that writes it.
    pub epoch: Epoch,
    /// It holds everything up to here, and perhaps more.
    pub base: Csn,
    /// Which of its owner's attempts it is, from 0.
    pub attempt: u32,
}

impl ImageName {
    /// The file, relative to the log root.
    #[must_use]
    pub fn path(self, pair: PairId) -> String {
        format!("{}/{self}", image_folder(pair))
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "image-{:08x}-{:016x}-{:08x}.cell", self.epoch.0, self.base.0, self.attempt)
    }
}

/// The epoch that an entry of a region's folder is the folder of.
#[must_use]
pub fn parse_epoch(name: &str) -> Option<Epoch> {
    number(name.strip_prefix("epoch-")?).map(Epoch)
}

/// The generation that an entry of a log's folder is the segment of; `None` for what is still being prepared.
#[must_use]
pub fn parse_segment(name: &str) -> Option<u32> {
    number(name.strip_prefix("segment-")?.strip_suffix(".log")?)
}

/// The region that an entry of the log root is the folder of.
#[must_use]
pub fn parse_region(name: &str) -> Option<RegionId> {
    number(name.strip_prefix("region-")?).map(RegionId)
}

/// The image that an entry of a pair's image folder is; `None` for what is still being written.
#[must_use]
pub fn parse_image(name: &str) -> Option<ImageName> {
    let (epoch, rest) = name.strip_prefix("image-")?.strip_suffix(".cell")?.split_once('-')?;
    let (base, attempt) = rest.split_once('-')?;
    let base = (base.len() == 16 && is_lower_hex(base)).then(|| u64::from_str_radix(base, 16).ok())??;
    Some(ImageName { epoch: Epoch(number(epoch)?), base: Csn(base), attempt: number(attempt)? })
}

/// The image that an entry of a pair's image folder was to become, if it was not completed.
#[must_use]
pub fn parse_unfinished_image(name: &str) -> Option<ImageName> {
    parse_image(name.strip_suffix(UNFINISHED_SUFFIX)?)
}

/// What a file's name ends with while its image is written.
pub(crate) const UNFINISHED_SUFFIX: &str = ".writing";

fn number(digits: &str) -> Option<u32> {
    if digits.len() == 8 && is_lower_hex(digits) { u32::from_str_radix(digits, 16).ok() } else { None }
}

fn is_lower_hex(digits: &str) -> bool {
    digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back_and_near_misses_do_not() {
        let log = LogName { region: RegionId(10), epoch: Epoch(3) };
        let path = log.segment(0xbeef).path();
        assert_eq!(path, "region-0000000a/epoch-00000003/segment-0000beef.log");
        let parts: Vec<_> = path.split('/').collect();
        assert_eq!(parse_region(parts[0]), Some(RegionId(10)));
        assert_eq!(parse_epoch(parts[1]), Some(Epoch(3)));
        assert_eq!(parse_segment(parts[2]), Some(0xbeef));
        for wrong in
            ["segment-beef.log", "segment-0000BEEF.log", "segment-+000beef.log", "preparing-0000beef.log"]
        {
            assert_eq!(parse_segment(wrong), None, "{wrong}");
        }
        for attempt in [0, 0xbeef] {
            let image = ImageName { epoch: Epoch(3), base: Csn(1234), attempt };
            assert_eq!(parse_image(&image.to_string()), Some(image));
            assert_eq!(parse_unfinished_image(&format!("{image}.writing")), Some(image));
            assert_eq!(
                (parse_image(&format!("{image}.writing")), parse_unfinished_image(&image.to_string())),
                (None, None)
            );
        }
        let first = ImageName { epoch: Epoch(3), base: Csn(1234), attempt: 0 };
        assert_eq!(first.path(PairId(5)), "pair-00000005/image-00000003-00000000000004d2-00000000.cell");
        for wrong in [
            "image-00000003-00000000000004d2.cell",
            "image-00000003-00000000000004d2-0.cell",
            "image-00000003-00000000000004d2-.cell",
            "image-3-4.cell",
        ] {
            assert_eq!(parse_image(wrong), None, "{wrong}");
        }
        assert!(first < ImageName { attempt: 1, ..first });
    }
}
