//! How logs are synced: what the setting `log_flush` and what is known of the disk make of it.

use std::sync::Arc;

use crate::error::WalError;
use crate::flush_ground::FlushGround;
use crate::flush_unfit::FlushUnfit;

/// How the writes of logs reach stable storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushWay {
    /// Each write is a data-sync write.
    PerWrite,
    /// Writes are plain ones, and one flush of the device covers those of all logs that had completed.
    PerDevice,
}

impl FlushWay {
    /// As the setting has it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            FlushWay::PerWrite => "per_write",
            FlushWay::PerDevice => "per_device",
        }
    }
}

/// What was chosen, and why, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlushChoice {
    /// The way.
    pub way: FlushWay,
    /// Why.
    pub why: Arc<str>,
}

impl FlushChoice {
    /// A choice.
    #[must_use]
    pub fn new(way: FlushWay, why: &str) -> FlushChoice {
        FlushChoice { way, why: why.into() }
    }
}

/// What follows from setting and disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlushDecision {
    /// It is clear.
    Chosen(FlushChoice),
    /// Each write is synced itself until a trial has shown what is faster here.
    Try(FlushGround),
}

impl FlushDecision {
    /// Of `log_flush` in this log root.
    ///
    /// # Errors
    /// [`WalError::FlushUnsure`]: one flush for all is demanded where it may not cover all.
    pub fn new(
        log_flush: &str,
        root: &str,
        ground: &Result<FlushGround, FlushUnfit>,
    ) -> Result<FlushDecision, WalError> {
        let chosen = |way, why: &str| Ok(FlushDecision::Chosen(FlushChoice::new(way, why)));
        match (log_flush, ground) {
            ("per_write", _) => chosen(FlushWay::PerWrite, "log_flush is per_write"),
            ("per_device", Ok(_)) => chosen(FlushWay::PerDevice, "log_flush is per_device"),
            ("per_device", Err(why)) => Err(WalError::FlushUnsure { root: root.into(), why: why.clone() }),
            (_, Ok(FlushGround { shares_blocks: true, file_system, .. })) => {
                let why = format!(
                    "files of this {file_system} can share blocks (reflink), and a copy of a log that does \
                     would take its writes out of what one flush covers"
                );
                chosen(FlushWay::PerWrite, &why)
            }
            (_, Ok(ground)) => Ok(FlushDecision::Try(*ground)),
            (_, Err(why)) => chosen(FlushWay::PerWrite, &why.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUND: FlushGround = FlushGround { device: 7, file_system: "ext4", shares_blocks: false };

    fn decided(setting: &str, ground: &Result<FlushGround, FlushUnfit>) -> Option<FlushWay> {
        match FlushDecision::new(setting, "/logs", ground).unwrap() {
            FlushDecision::Chosen(choice) => Some(choice.way),
            FlushDecision::Try(_) => None,
        }
    }

    #[test]
    fn decision_tries_where_one_flush_surely_covers_all_and_nowhere_else() {
        let (fit, unfit) = (Ok(GROUND), Err(FlushUnfit::PageCache));
        let sharing = Ok(FlushGround { shares_blocks: true, file_system: "xfs", ..GROUND });
        for (setting, ground, expected) in [
            ("auto", &fit, None),
            ("auto", &sharing, Some(FlushWay::PerWrite)),
            ("auto", &unfit, Some(FlushWay::PerWrite)),
            ("per_write", &fit, Some(FlushWay::PerWrite)),
            ("per_write", &unfit, Some(FlushWay::PerWrite)),
            ("per_device", &fit, Some(FlushWay::PerDevice)),
            ("per_device", &sharing, Some(FlushWay::PerDevice)),
        ] {
            assert_eq!(decided(setting, ground), expected, "{setting}, {ground:?}");
        }
    }

    #[test]
    fn demand_that_is_unsure_is_refused_with_what_why_and_what_next() {
        let unfit = Err(FlushUnfit::FileSystem { name: "nfs4".to_owned() });
        let said = FlushDecision::new("per_device", "/logs", &unfit).unwrap_err().to_string();
        for part in ["`log_flush` is per_device", "/logs", "nfs4", "auto", "per_write"] {
            assert!(said.contains(part), "{said}");
        }
    }
}
