//! `cell del`: removes entries by key, or a range of them, or all, once that is confirmed.

use std::borrow::Cow;
use std::io::{self, BufRead, IsTerminal, Write};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cell_client::{Operation, Output, ScanRange};
use cell_protocol::Condition;
use cell_terms::Version;
use clap::Args;
use serde_json::{Map, json};

use super::put::condition_failed;
use crate::args::{EncodingArgs, Global, ServerArgs};
use crate::encoding::{display_key, insert_json};
use crate::exit::{Exit, Failure};
use crate::output::{bar, message, number};
use crate::range::RangeArgs;
use crate::signal;
use crate::store::{PATIENCE, Store};
use crate::version::parse_version;

/// Removals of a range that are in flight together: so many keys are read, then removed, and so on.
const IN_FLIGHT: u16 = 1024;

/// Arguments of `cell del`.
#[derive(Debug, Args)]
pub(crate) struct DelArgs {
    /// The keys
    #[arg(value_name = "KEY", conflicts_with_all = ["prefix", "from", "after", "to", "all"])]
    keys: Vec<String>,
    #[command(flatten)]
    range: RangeArgs,
    /// Every entry of the store
    #[arg(long, conflicts_with_all = ["prefix", "from", "after", "to"], help_heading = "Range")]
    all: bool,
    /// Remove a range, or all, without asking; what is not a terminal is not asked
    #[arg(long, short)]
    yes: bool,
    /// Only if the entry has this version
    #[arg(long, value_name = "VERSION", value_parser = parse_version)]
    if_version: Option<Version>,
    /// A missing entry is no failure
    #[arg(long)]
    ignore_missing: bool,
    #[command(flatten)]
    encoding: EncodingArgs,
    #[command(flatten)]
    server: ServerArgs,
}

/// Removes the entries.
pub(crate) fn run(global: &Global, arguments: &DelArgs) -> anyhow::Result<Exit> {
    let keys = arguments.keys.iter().map(|key| arguments.encoding.decode_key(key));
    let keys = keys.collect::<Result<Vec<_>, _>>()?;
    match (&keys[..], arguments.all || arguments.range.is_given()) {
        ([], false) => Err(Failure::usage("there is nothing to remove")
            .next("give keys, --prefix KEY, a range with --from, --after and --to, or --all")
            .into()),
        (keys, false) => remove_keys(global, arguments, keys),
        (_, true) => remove_range(global, arguments),
    }
}

fn remove_keys(global: &Global, arguments: &DelArgs, keys: &[Cow<'_, [u8]>]) -> anyhow::Result<Exit> {
    if arguments.if_version.is_some() && keys.len() > 1 {
        return Err(Failure::usage("--if-version takes one key: a version is one entry's").into());
    }
    let condition = arguments.if_version.map_or(Condition::Always, Condition::IfVersion);
    let mut store = Store::connect(&arguments.server, PATIENCE)?;
    let mut missing = 0;
    for key in keys {
        let existed = match store.delete(key, condition)? {
            Ok(existed) => existed,
            Err(current) => return condition_failed(global, current),
        };
        if global.json {
            let mut object = Map::new();
            insert_json(&mut object, "key", key);
            object.insert("deleted".into(), existed.into());
            message::print_json(object.into())?;
        } else if !existed {
            message::note(&format!("no entry: {}", display_key(key)));
        }
        missing += usize::from(!existed);
    }
    Ok(match missing {
        0 => Exit::Ok,
        _ if arguments.ignore_missing => Exit::Ok,
        all if all == keys.len() => Exit::NotFound,
        _ => Exit::Partial,
    })
}

/// Removes what is found in the range; what others write there meanwhile may stay.
fn remove_range(global: &Global, arguments: &DelArgs) -> anyhow::Result<Exit> {
    if arguments.if_version.is_some() {
        return Err(Failure::usage("--if-version takes one key: a version is one entry's").into());
    }
    let range = if arguments.all {
        ScanRange::default()
    } else {
        arguments.range.bounded_range(arguments.encoding)?
    };
    let range = ScanRange { keys_only: true, ..range };
    if !arguments.yes && !io::stdin().is_terminal() {
        let what = if arguments.all { "all entries are" } else { "a range is" };
        let failure = Failure::usage(format!("{what} to be removed, and nobody is there to confirm it"));
        let count = arguments.server.command("cell count");
        let same = if arguments.all { "" } else { " with the same bounds" };
        return Err(failure
            .next(format!("give --yes to remove it; {count}{same} shows how much it is"))
            .into());
    }
    let stop = signal::stop_flag()?;
    let mut store =
        Store::connect_unless(&stop, &arguments.server, Duration::from_secs(60), usize::from(IN_FLIGHT))?;
    let mut most = u64::MAX;
    if !arguments.yes {
        let count = store.scan(range.clone(), &mut |_| Ok(()))?;
        most = count;
        let question = format!("Remove {}?", number::counted(count, "entry", "entries"));
        if !confirms(&question, &mut io::stdin().lock())? {
            return Err(Failure::new(Exit::Error, "not confirmed; nothing was removed").into());
        }
    }
    let bar = bar::Bar::new("removing", None, false);
    let mut removed = 0;
    let result = remove_all(&mut store, range, most, &stop, &mut |count| {
        removed += count;
        bar.set(removed, number::count(removed));
    });
    bar.finish();
    result.map_err(|error| error.context(format!("{} removed before", number::count(removed))))?;
    if global.json {
        message::print_json(json!({"count": removed}))?;
    } else {
        message::note(&format!("{} removed", number::counted(removed, "entry", "entries")));
    }
    Ok(Exit::Ok)
}

/// Asks on stderr; `yes` is yes, and everything else, the end of the input too, is no.
fn confirms(question: &str, answers: &mut impl BufRead) -> io::Result<bool> {
    let mut err = io::stderr().lock();
    write!(err, "{question} Type yes to go on: ")?;
    err.flush()?;
    let mut line = String::new();
    answers.read_line(&mut line)?;
    Ok(line.trim() == "yes")
}

/// Calls `each` with how many were removed at a time. It removes no more than `most`: so many were confirmed.
fn remove_all(
    store: &mut Store,
    mut range: ScanRange,
    mut most: u64,
    stop: &AtomicBool,
    each: &mut dyn FnMut(u64),
) -> anyhow::Result<()> {
    loop {
        range.limit = most.clamp(1, IN_FLIGHT.into());
        let mut keys = Vec::new();
        store.scan(range.clone(), &mut |found| {
            keys.push(found.key.clone());
            Ok(())
        })?;
        let Some(last) = keys.last().cloned() else { return Ok(()) };
        if most == 0 {
            let what = "there are more entries than you confirmed: others were written meanwhile";
            return Err(Failure::new(Exit::Partial, what)
                .next("run it again to see how many are left")
                .into());
        }
        most = most.saturating_sub(u64::try_from(keys.len()).unwrap_or(u64::MAX));
        for key in &keys {
            store.submit(&Operation::Delete { key, condition: Condition::Always })?;
        }
        let mut failed = None;
        while let Some(completion) = store.poll(true) {
            match completion.outcome {
                Ok(Output::Deleted(existed)) => each(existed.into()),
                Ok(_) => {}
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if let Some(error) = failed {
            return Err(store.failure(&error));
        }
        if stop.load(Ordering::Relaxed) {
            return Err(Failure::new(Exit::Interrupted, "interrupted").into());
        }
        range.start = Bound::Excluded(last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn confirms_takes_yes_and_nothing_else() {
        for (answer, confirmed) in
            [("yes\n", true), (" yes \r\n", true), ("y\n", false), ("\n", false), ("", false)]
        {
            assert_eq!(confirms("Remove?", &mut answer.as_bytes()).unwrap(), confirmed, "{answer:?}");
        }
    }
}
