//! What a node is asked for while it runs: by its operator, with signals, and by its supervisor, if it has
//! one.

use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use cell_drill::wire::PartitionWay;
use cell_fabric::Partition;
use cell_wal::DiskDelay;

use super::link::{self, Word};
use super::memory_wish::MemoryWish;
use crate::exit::Exit;
use crate::output::message;
use crate::signal::{self, Hangup};

/// What a drill switches in this process.
#[derive(Clone, Default)]
pub(crate) struct FaultSwitches {
    pub(crate) partition: Partition,
    pub(crate) disk_delay: DiskDelay,
}

impl FaultSwitches {
    /// As they are at the start.
    pub(crate) fn of(partitioned: Option<PartitionWay>, slow_disk_ms: u64) -> FaultSwitches {
        let faults = FaultSwitches::default();
        faults.partition.set(link::blocked(partitioned));
        faults.disk_delay.set(Duration::from_millis(slow_disk_ms));
        faults
    }
}

/// What its operator or its supervisor wants of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Stop in good order.
    Stop,
    /// Read the configuration again.
    Reload,
}

/// Listens to signals, and to the supervisor if there is one.
///
/// # Errors
/// The system's.
pub(crate) fn receive_wishes(
    supervised: bool,
    faults: &FaultSwitches,
    memory: &MemoryWish,
) -> anyhow::Result<Receiver<Wish>> {
    let (sender, wishes) = mpsc::channel();
    if supervised {
        let (sender, faults, memory) = (sender.clone(), faults.clone(), memory.clone());
        link::listen(move |word| match word {
            Word::Gone => {
                // The coordinator went with the supervisor: there is no lease to be had, and nothing to wait
                // for.
                message::warning("the supervisor is gone; exiting");
                std::process::exit(i32::from(Exit::Error as u8));
            }
            Word::Partition(way) => faults.partition.set(link::blocked(way)),
            Word::SlowDisk(ms) => faults.disk_delay.set(Duration::from_millis(ms)),
            Word::MemoryLimit(bytes) => memory.set(bytes),
            Word::Stop => sender.send(Wish::Stop).unwrap_or_default(),
        })?;
    }
    let hangup = sender.clone();
    signal::on_hangup(move || hangup.send(Wish::Reload).unwrap_or_default())?;
    signal::on_signals(Hangup::Apart, move || sender.send(Wish::Stop).unwrap_or_default())?;
    Ok(wishes)
}
