//! `cell load`: puts the records of a file into the store.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::{Args, value_parser};
use serde_json::json;

use crate::args::{Global, ServerArgs};
use crate::exit::{Exit, Failure};
use crate::input::open::{Consumed, Source};
use crate::input::record::LineError;
use crate::input::source::{Opened, SourceArgs};
use crate::load::loader::{Ended, Loader, Observer, Tally};
use crate::load::progress::{Fingerprint, Progress, ProgressFile};
use crate::load::puts::PendingPuts;
use crate::output::{bar, message, number};
use crate::signal;
use crate::store::Store;

/// Bad lines that are shown; more are only counted.
const BAD_LINES_SHOWN: u64 = 100;
/// How often the progress file is written.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);
/// How often the bar is moved.
const BAR_EVERY: Duration = Duration::from_millis(200);

/// Arguments of `cell load`.
#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    /// TSV or JSON lines, plain, gzip or zstd; `-` is stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    source: SourceArgs,
    /// Keep a record of the acknowledged lines here, and go on where it ends
    #[arg(long, value_name = "FILE")]
    progress: Option<PathBuf>,
    /// Stop at the first line that is not a record, with exit code 2
    #[arg(long)]
    strict: bool,
    /// Puts in flight
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = value_parser!(u16).range(1..=16384))]
    in_flight: u16,
    #[command(flatten)]
    server: ServerArgs,
}

/// Loads to the end, to the first error, or to a signal; what is acknowledged is recorded in each case.
pub(crate) fn run(global: &Global, arguments: &LoadArgs) -> anyhow::Result<Exit> {
    let opened = arguments.source.open(&arguments.file, Exit::Partial)?;
    let file = progress_file(arguments, &opened)?;
    let mut progress = match &file {
        Some(file) => file.read()?.unwrap_or_default(),
        None => Progress::default(),
    };
    if progress.settled.count() > 0 {
        message::note(&format!("going on after {} settled lines", number::count(progress.settled.count())));
    }
    // A load waits for a node that is being recovered: it is what `cell load` is left alone for.
    let in_flight = usize::from(arguments.in_flight);
    let mut store = Store::connect_with(&arguments.server, Duration::from_secs(120), in_flight)?;
    let mut watcher = Watcher::new(arguments, &opened, file.clone())?;
    let limits = store.limits();
    let flight = PendingPuts::new(&mut store);
    let loader = Loader::new(flight, &opened.parser, limits, in_flight, opened.skip, &mut progress);
    let mut lines = opened.lines.ahead().context("cannot start a thread")?;
    let result = loader.run(&mut lines, &mut watcher);
    watcher.bar.finish();
    if let Some(file) = &file {
        file.write(&progress)?;
    }
    let (ended, tally) = result?;
    report(global, &ended, &tally, watcher.started.elapsed())?;
    if tally.lines == 0 && matches!(ended, Ended::Complete) {
        let what = format!("{} is empty: nothing was loaded; a dump has at least a heading", watcher.source);
        message::warning(&what);
    }
    conclude(ended, &progress, &watcher, file.as_ref())
}

fn progress_file(arguments: &LoadArgs, opened: &Opened) -> anyhow::Result<Option<ProgressFile>> {
    let Some(path) = &arguments.progress else { return Ok(None) };
    if arguments.file.as_os_str() == "-" {
        let failure =
            Failure::usage("--progress needs a FILE: stdin cannot be read again from its beginning");
        return Err(failure.into());
    }
    let source = Fingerprint::of(&arguments.file, opened.format, &opened.columns, opened.skip)?;
    Ok(Some(ProgressFile::new(path.clone(), source)))
}

fn report(global: &Global, ended: &Ended, tally: &Tally, elapsed: Duration) -> anyhow::Result<()> {
    let per_second = number::per_second(tally.acknowledged, elapsed);
    if global.json {
        message::print_json(json!({
            "complete": matches!(ended, Ended::Complete),
            "lines": tally.lines,
            "acknowledged": tally.acknowledged,
            "bytes": tally.bytes,
            "bad": tally.bad,
            "resumed": tally.resumed,
            "seconds": elapsed.as_secs_f64(),
            "records_per_second": per_second,
        }))?;
    } else {
        message::note(&format!(
            "{} acknowledged ({}) in {}, {}; {}, {} settled before",
            number::counted(tally.acknowledged, "record", "records"),
            number::bytes(tally.bytes),
            number::time(elapsed),
            number::rate(per_second),
            number::counted(tally.bad, "bad line", "bad lines"),
            number::count(tally.resumed),
        ));
    }
    Ok(())
}

fn conclude(
    ended: Ended,
    progress: &Progress,
    watcher: &Watcher,
    file: Option<&ProgressFile>,
) -> anyhow::Result<Exit> {
    let resume = || match file {
        Some(file) => format!("the same command goes on; {} knows what is done", file.path().display()),
        None => "with --progress FILE, the same command would go on where it ended".into(),
    };
    match ended {
        // Those of earlier runs, too: they are not in the store either.
        Ended::Complete if progress.bad > 0 => {
            let bad = number::counted(progress.bad, "line", "lines");
            message::warning(&format!("{bad}, of earlier runs too, are no records, and not in the store"));
            Ok(Exit::Partial)
        }
        Ended::Complete => Ok(Exit::Ok),
        Ended::Incomplete(why) => {
            let stored = number::counted(progress.records, "record", "records");
            let what = format!("{}: {why}; what was read so far is in the store: {stored}", watcher.source);
            Err(Failure::new(Exit::Partial, what).next(why.next()).into())
        }
        Ended::Stopped => match watcher.strict_stop {
            Some(line) => {
                let what = format!("line {line} is not a record, and --strict was given");
                Err(Failure::usage(what).next(resume()).into())
            }
            None => Err(Failure::new(Exit::Interrupted, "interrupted").next(resume()).into()),
        },
        Ended::Refused { line, error } => {
            let (exit, _) = crate::exit::classify(&error);
            Err(Failure::new(exit, format!("line {line}: {error:#}")).next(resume()).into())
        }
    }
}

struct Watcher {
    source: Source,
    strict: bool,
    strict_stop: Option<u64>,
    bad_shown: u64,
    file: Option<ProgressFile>,
    stop: Arc<AtomicBool>,
    bar: bar::Bar,
    consumed: Consumed,
    started: Instant,
    calls: u32,
    bar_at: Instant,
    written_at: Instant,
}

impl Watcher {
    fn new(arguments: &LoadArgs, opened: &Opened, file: Option<ProgressFile>) -> anyhow::Result<Watcher> {
        let now = Instant::now();
        Ok(Watcher {
            source: Source::from(arguments.file.as_path()),
            strict: arguments.strict,
            strict_stop: None,
            bad_shown: 0,
            file,
            stop: signal::stop_flag()?,
            bar: bar::Bar::new("loading", opened.bytes_total, true),
            consumed: opened.consumed.clone(),
            started: now,
            calls: 0,
            bar_at: now,
            written_at: now,
        })
    }
}

impl Observer for Watcher {
    fn bad_line(&mut self, line: u64, error: &LineError) -> ControlFlow<()> {
        self.bad_shown += 1;
        match self.bad_shown {
            ..=BAD_LINES_SHOWN => self.bar.line(&format!("{}: line {line}: {error}", self.source)),
            shown if shown == BAD_LINES_SHOWN + 1 => self.bar.line("further bad lines are only counted"),
            _ => {}
        }
        if self.strict {
            self.strict_stop = Some(line);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn advanced(&mut self, tally: &Tally, progress: &Progress) -> anyhow::Result<ControlFlow<()>> {
        if self.stop.load(Ordering::Relaxed) {
            return Ok(ControlFlow::Break(()));
        }
        self.calls = self.calls.wrapping_add(1);
        if !self.calls.is_multiple_of(64) {
            return Ok(ControlFlow::Continue(()));
        }
        let now = Instant::now();
        if now.duration_since(self.bar_at) >= BAR_EVERY {
            self.bar_at = now;
            let rate = number::rate(number::per_second(tally.acknowledged, self.started.elapsed()));
            let text = format!("{} records, {rate}", number::count(tally.acknowledged));
            self.bar.set(self.consumed.bytes(), text);
        }
        if let Some(file) = &self.file
            && now.duration_since(self.written_at) >= PROGRESS_EVERY
        {
            file.write(progress)?;
            self.written_at = now;
        }
        Ok(ControlFlow::Continue(()))
    }
}
