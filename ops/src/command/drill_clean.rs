//! `cell drill clean`: removes entries that drills have left in the store, and nothing else.

use std::collections::BTreeSet;
use std::time::Duration;

use cell_client::{Operation, Output, ScanRange};
use cell_drill::{key_prefixes, run_of_key};
use cell_protocol::Condition;
use clap::Args;
use serde_json::json;

use crate::args::{Global, ServerArgs};
use crate::exit::{Exit, Failure};
use crate::output::{message, number};
use crate::signal;
use crate::store::Store;

/// Keys that are removed at once.
const AT_ONCE: usize = 1_000;

/// Arguments of `cell drill clean`.
#[derive(Debug, Args)]
pub(crate) struct CleanArgs {
    /// Remove the entries of this drill alone: its number, as its report and its keys have it
    #[arg(long, value_name = "RUN", value_parser = parse_run)]
    run: Option<u64>,
    #[command(flatten)]
    server: ServerArgs,
}

fn parse_run(text: &str) -> Result<u64, String> {
    let is_run = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let run = u64::from_str_radix(text, 16).ok().filter(|_| is_run);
    run.ok_or_else(|| "it takes the 16 hexadecimal digits of a drill's report".to_owned())
}

/// Runs the command.
pub(crate) fn run(global: &Global, arguments: &CleanArgs) -> anyhow::Result<Exit> {
    let stop = signal::stop_flag()?;
    let mut store = Store::connect_with(&arguments.server, Duration::from_secs(60), AT_ONCE)?;
    let (mut removed, mut runs) = (0, BTreeSet::new());
    for prefix in key_prefixes() {
        let mut keys = Vec::new();
        let range = ScanRange { keys_only: true, ..ScanRange::prefix(&prefix) };
        store.scan(range, &mut |found| {
            let run = run_of_key(&found.key).filter(|run| arguments.run.is_none_or(|wanted| wanted == *run));
            runs.extend(run);
            keys.extend(run.map(|_| found.key.clone()));
            Ok(())
        })?;
        for group in keys.chunks(AT_ONCE) {
            removed += remove(&mut store, group)
                .map_err(|error| error.context(format!("{} removed before", number::count(removed))))?;
            if stop.load(std::sync::atomic::Ordering::Relaxed) {
                let what = format!("interrupted; {} removed before", number::count(removed));
                return Err(Failure::new(Exit::Interrupted, what).next("run it again for the rest").into());
            }
        }
    }
    if global.json {
        let runs: Vec<_> = runs.iter().map(|run| format!("{run:016x}")).collect();
        message::print_json(json!({"count": removed, "runs": runs}))?;
    } else {
        let drills = number::counted(runs.len() as u64, "drill", "drills");
        message::note(&format!("{} of {drills} removed", number::counted(removed, "entry", "entries")));
    }
    Ok(Exit::Ok)
}

/// Removes these; how many were there.
fn remove(store: &mut Store, keys: &[Vec<u8>]) -> anyhow::Result<u64> {
    for key in keys {
        store.submit(&Operation::Delete { key, condition: Condition::Always })?;
    }
    let (mut removed, mut failed) = (0, None);
    while let Some(completion) = store.poll(true) {
        match completion.outcome {
            Ok(Output::Deleted(existed)) => removed += u64::from(existed),
            Ok(_) => {}
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    failed.map_or(Ok(removed), |error| Err(store.failure(&error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_run_takes_what_a_report_prints() {
        assert_eq!(parse_run("00ab000000000012"), Ok(0x00ab_0000_0000_0012));
        for text in ["", "12", "+0ab000000000012", "00ab0000000000123", "drill-1-00ab0000"] {
            assert!(parse_run(text).is_err(), "{text}");
        }
    }
}
