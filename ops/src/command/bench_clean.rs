//! `cell bench clean`: removes the records that `cell bench ycsb` has left in the store, and nothing else.

use std::sync::atomic::Ordering;
use std::time::Duration;

use cell_client::{Operation, Output};
use cell_protocol::Condition;
use clap::{Args, value_parser};
use serde_json::json;

use crate::args::{Global, ServerArgs};
use crate::bench::workload::key;
use crate::exit::{Exit, Failure};
use crate::output::{bar, message, number};
use crate::signal;
use crate::store::Store;

/// Keys that are removed at once.
const AT_ONCE: u64 = 1_000;

/// Arguments of `cell bench clean`.
#[derive(Debug, Args)]
pub(crate) struct CleanArgs {
    /// How many records there may be, as the benchmark says at its end: the keys of so many are removed
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    records: u64,
    #[command(flatten)]
    server: ServerArgs,
}

/// Runs the command. A range would take along what others have below the same prefix.
pub(crate) fn run(global: &Global, arguments: &CleanArgs) -> anyhow::Result<Exit> {
    let stop = signal::stop_flag()?;
    let at_once = usize::try_from(AT_ONCE)?;
    let mut store = Store::connect_unless(&stop, &arguments.server, Duration::from_secs(60), at_once)?;
    let bar = bar::Bar::new("removing", Some(arguments.records), false);
    let (mut removed, mut first) = (0, 0);
    while first < arguments.records {
        let end = first.saturating_add(AT_ONCE).min(arguments.records);
        remove(&mut store, first..end, &mut removed)
            .map_err(|error| error.context(format!("{} removed before", number::count(removed))))?;
        if stop.load(Ordering::Relaxed) {
            let what = format!("interrupted; {} removed before", number::count(removed));
            return Err(Failure::new(Exit::Interrupted, what).next("run it again for the rest").into());
        }
        bar.set(end, number::count(removed));
        first = end;
    }
    bar.finish();
    if global.json {
        message::print_json(json!({"count": removed}))?;
    } else {
        message::note(&format!("{} removed", number::counted(removed, "record", "records")));
    }
    Ok(Exit::Ok)
}

/// Removes the records of these numbers; counts those that were there.
fn remove(store: &mut Store, numbers: std::ops::Range<u64>, removed: &mut u64) -> anyhow::Result<()> {
    for number in numbers {
        store.submit(&Operation::Delete { key: &key(number), condition: Condition::Always })?;
    }
    let mut failed = None;
    while let Some(completion) = store.poll(true) {
        match completion.outcome {
            Ok(Output::Deleted(existed)) => *removed += u64::from(existed),
            Ok(_) => {}
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    failed.map_or(Ok(()), |error| Err(store.failure(&error)))
}
