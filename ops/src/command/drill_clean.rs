//! `cell drill clean`: removes entries that drills have left in the store, and nothing else. Those of a drill
//! that goes on stay: it would miss them.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cell_client::{Operation, Output, ScanRange};
use cell_drill::{
    RUNNING_PREFIX, STEMS_PREFIX, key_prefixes, run_of_key, run_of_key_at, run_that_goes_on, running_key,
    stem_of_entry, stem_prefix,
};
use cell_protocol::Condition;
use cell_terms::mutant::{Mutant, planted};
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
    /// It is over, though its mark says that it goes on: its process was killed
    #[arg(long, requires = "run")]
    ended: bool,
    #[command(flatten)]
    server: ServerArgs,
}

fn parse_run(text: &str) -> Result<u64, String> {
    let is_run = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let run = u64::from_str_radix(text, 16).ok().filter(|_| is_run);
    run.ok_or_else(|| "it takes the 16 hexadecimal digits of a drill's report".to_owned())
}

/// What becomes of the entries of drills.
#[derive(Debug, Default)]
struct Runs {
    /// That alone, if one was named.
    wanted: Option<u64>,
    /// Of which some were removed.
    removed: BTreeSet<u64>,
    /// Of which none were, because they go on.
    going_on: BTreeSet<u64>,
}

impl Runs {
    /// Which of these keys, each with its drill, are to be removed while the drills `marked` go on.
    fn choose(&mut self, keys: Vec<(u64, Vec<u8>)>, marked: &BTreeSet<u64>) -> Vec<Vec<u8>> {
        let mut chosen = Vec::new();
        for (run, key) in keys {
            if self.wanted.is_some_and(|wanted| wanted != run) {
                continue;
            }
            if marked.contains(&run) && !planted(Mutant::RunningDrillCleaned) {
                self.going_on.insert(run);
            } else {
                self.removed.insert(run);
                chosen.push(key);
            }
        }
        chosen
    }
}

/// A stem that a drill has added, and the key of the entry that says so.
struct AddedStem {
    run: u64,
    stem: Vec<u8>,
    entry: Vec<u8>,
}

/// What is under way.
struct Cleaning<'a> {
    store: &'a mut Store,
    stop: &'a AtomicBool,
    /// The drill that is over, whatever its mark says.
    ended: Option<u64>,
    runs: Runs,
    removed: u64,
}

impl Cleaning<'_> {
    /// The keys that all drills have.
    fn usual(&mut self) -> anyhow::Result<()> {
        for prefix in key_prefixes() {
            let keys = of_drills(keys_of(self.store, &prefix)?, run_of_key);
            // In this order: a drill has its mark before its first entry.
            let marked = self.marked()?;
            self.remove_of_drills(keys, &marked)?;
        }
        Ok(())
    }

    /// Those at stems that drills have added, then the entries of these, by which the keys were found.
    fn added(&mut self) -> anyhow::Result<()> {
        let stems = added_stems(self.store)?;
        for AddedStem { run, stem, entry } in stems {
            // In this order: a drill without a mark writes no more keys, and none is left without its entry.
            let marked = self.marked()?;
            let keys = keys_of(self.store, &stem_prefix(run, &stem))?;
            self.remove_of_drills(of_drills(keys, |key| run_at(run, &stem, key)), &marked)?;
            self.remove_of_drills(vec![(run, entry)], &marked)?;
        }
        Ok(())
    }

    /// The drills that go on.
    fn marked(&mut self) -> anyhow::Result<BTreeSet<u64>> {
        let mut marked = going_on(self.store)?;
        marked.retain(|run| Some(*run) != self.ended);
        let wanted = self.runs.wanted;
        let of = marked.iter().copied().filter(|run| wanted.is_none_or(|wanted| wanted == *run));
        self.runs.going_on.extend(of);
        Ok(marked)
    }

    /// Removes keys, each with its drill, but for those of drills that go on.
    fn remove_of_drills(&mut self, keys: Vec<(u64, Vec<u8>)>, marked: &BTreeSet<u64>) -> anyhow::Result<()> {
        for group in self.runs.choose(keys, marked).chunks(AT_ONCE) {
            let before = format!("{} removed before", number::count(self.removed));
            self.removed += remove(self.store, group).map_err(|error| error.context(before))?;
            if self.stop.load(Ordering::Relaxed) {
                let what = format!("interrupted; {} removed before", number::count(self.removed));
                return Err(Failure::new(Exit::Interrupted, what).next("run it again for the rest").into());
            }
        }
        Ok(())
    }
}

/// Runs the command. Exit code 6 if entries stay because their drill goes on.
pub(crate) fn run(global: &Global, arguments: &CleanArgs) -> anyhow::Result<Exit> {
    let stop = signal::stop_flag()?;
    let mut store = Store::connect_unless(&stop, &arguments.server, Duration::from_secs(60), AT_ONCE)?;
    let ended = arguments.run.filter(|_| arguments.ended);
    let runs = Runs { wanted: arguments.run, ..Runs::default() };
    let mut cleaning = Cleaning { store: &mut store, stop: &stop, ended, runs, removed: 0 };
    cleaning.usual()?;
    cleaning.added()?;
    let Cleaning { runs, removed, .. } = cleaning;
    if let Some(ended) = ended {
        remove(&mut store, &[running_key(ended)])?;
    }
    report(global, arguments, removed, &runs)
}

fn report(global: &Global, arguments: &CleanArgs, removed: u64, runs: &Runs) -> anyhow::Result<Exit> {
    let named = |runs: &BTreeSet<u64>| runs.iter().map(|run| format!("{run:016x}")).collect::<Vec<_>>();
    if global.json {
        let (of, going_on) = (named(&runs.removed), named(&runs.going_on));
        message::print_json(json!({"count": removed, "runs": of, "going_on": going_on}))?;
    } else {
        let drills = number::counted(runs.removed.len() as u64, "drill", "drills");
        message::note(&format!("{} of {drills} removed", number::counted(removed, "entry", "entries")));
    }
    for run in named(&runs.going_on) {
        let ended = arguments.server.command(&format!("cell drill clean --run {run} --ended"));
        message::warning_with_next(
            &format!("the drill {run} goes on: its entries stay"),
            &format!("wait for its end; if its process was killed, {ended} removes them"),
        );
    }
    Ok(if runs.going_on.is_empty() { Exit::Ok } else { Exit::Partial })
}

/// The drill that has added a stem, if it wrote a key that begins so.
fn run_at(run: u64, stem: &[u8], key: &[u8]) -> Option<u64> {
    let is_own = run_of_key_at(stem, key) == Some(run) || planted(Mutant::ForeignKeyCleaned);
    is_own.then_some(run)
}

/// Those of some keys that drills have, with the drills.
fn of_drills(keys: Vec<Vec<u8>>, run_of: impl Fn(&[u8]) -> Option<u64>) -> Vec<(u64, Vec<u8>)> {
    keys.into_iter().filter_map(|key| Some((run_of(&key)?, key))).collect()
}

/// The keys below a prefix.
fn keys_of(store: &mut Store, prefix: &[u8]) -> anyhow::Result<Vec<Vec<u8>>> {
    let mut keys = Vec::new();
    let range = ScanRange { keys_only: true, ..ScanRange::prefix(prefix) };
    store.scan(range, &mut |found| {
        keys.push(found.key.clone());
        Ok(())
    })?;
    Ok(keys)
}

/// The stems that drills have added, by their entries.
fn added_stems(store: &mut Store) -> anyhow::Result<Vec<AddedStem>> {
    let mut stems = Vec::new();
    store.scan(ScanRange::prefix(STEMS_PREFIX), &mut |found| {
        if let Some((run, stem)) = stem_of_entry(&found.key, &found.value) {
            stems.push(AddedStem { run, stem, entry: found.key.clone() });
        }
        Ok(())
    })?;
    Ok(stems)
}

/// The drills that go on by their marks.
fn going_on(store: &mut Store) -> anyhow::Result<BTreeSet<u64>> {
    let marks = keys_of(store, RUNNING_PREFIX)?;
    Ok(marks.iter().filter_map(|key| run_that_goes_on(key)).collect())
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

    const RUN: u64 = 0x00ab_0000_0000_0012;

    fn key(run: u64) -> Vec<u8> {
        format!("a-drill-{run:016x}-01-00000001").into_bytes()
    }

    /// The keys of two drills and one of a user.
    fn keys() -> Vec<(u64, Vec<u8>)> {
        of_drills(vec![key(RUN), key(7), b"a-drill-of-mine".to_vec()], run_of_key)
    }

    /// Whether the entries of a drill stay that goes on.
    fn stay() -> bool {
        let mut runs = Runs::default();
        let chosen = runs.choose(keys(), &BTreeSet::from([RUN]));
        runs.going_on == BTreeSet::from([RUN]) && chosen == [key(7)] && runs.removed == BTreeSet::from([7])
    }

    #[test]
    fn choose_leaves_what_a_drill_has_that_goes_on() {
        assert!(stay());
        let mut runs = Runs { wanted: Some(7), ..Runs::default() };
        assert_eq!(runs.choose(keys(), &BTreeSet::from([RUN])), [key(7)]);
        assert!(runs.going_on.is_empty(), "it was not asked for");
    }

    /// Whether keys stay that no drill writes, where a drill has added a stem.
    fn foreign_stay() -> bool {
        let key = |rest: &str| format!("user-7-drill-{RUN:016x}-{rest}").into_bytes();
        let keys = vec![key("01-00000001"), key("met-00-07"), key(""), key("notes"), key("01-00000001-copy")];
        let chosen = of_drills(keys, |key| run_at(RUN, b"user-7", key));
        chosen == [(RUN, key("01-00000001")), (RUN, key("met-00-07"))]
    }

    #[test]
    fn run_at_is_of_the_keys_that_the_drill_writes_alone() {
        assert!(foreign_stay());
        assert_eq!(run_at(7, b"user-7", format!("user-7-drill-{RUN:016x}-01-00000001").as_bytes()), None);
    }

    /// Plants a mutant by which something does not stay.
    #[cfg(debug_assertions)]
    fn catch(mutant: Mutant, stay: fn() -> bool) {
        cell_terms::mutant::in_own_process(|| {
            cell_terms::mutant::plant(Some(mutant));
            let stay = stay();
            cell_terms::mutant::plant(None);
            assert!(!stay);
            println!("mutant {} caught by cell-ops' cleaning", mutant.name());
        });
    }

    #[test]
    #[cfg(debug_assertions)]
    fn mutant_running_drill_cleaned_is_caught() {
        catch(Mutant::RunningDrillCleaned, stay);
    }

    #[test]
    #[cfg(debug_assertions)]
    fn mutant_foreign_key_cleaned_is_caught() {
        catch(Mutant::ForeignKeyCleaned, foreign_stay);
    }

    #[test]
    fn parse_run_takes_what_a_report_prints() {
        assert_eq!(parse_run("00ab000000000012"), Ok(0x00ab_0000_0000_0012));
        for text in ["", "12", "+0ab000000000012", "00ab0000000000123", "drill-1-00ab0000"] {
            assert!(parse_run(text).is_err(), "{text}");
        }
    }
}
