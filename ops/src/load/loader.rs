//! Loads records with many puts in flight and knows at each moment which lines are acknowledged.
//!
//! Lines with one key are kept in order: a line waits until no earlier line of its key is in flight. So the
//! acknowledged lines of a key are always a prefix of its lines, also across resumed loads, and the last one
//! wins. A line that the server refuses stops the load (what is in flight is awaited), because going on would
//! let a later retry of it overwrite its successors.

use std::collections::{HashMap, HashSet};
use std::io::BufRead;
use std::ops::ControlFlow;
use std::time::Duration;

use super::progress::Progress;
use crate::input::ahead::Arriving;
use crate::input::content::{Content, Incomplete};
use crate::input::line::{InputLine, Lines};
use crate::input::record::{LineError, Parser, Record};

/// Where records go. The client in production, a model in tests.
pub(crate) trait Sink {
    /// Starts a put. `line` names it in [`Sink::poll`].
    fn submit(&mut self, line: u64, key: &[u8], value: &[u8]) -> anyhow::Result<()>;

    /// Sends all that was submitted and does what else is due, without waiting. Outcomes of puts that ended.
    fn step(&mut self, outcomes: &mut Vec<(u64, anyhow::Result<()>)>) -> anyhow::Result<()>;

    /// Outcomes of puts that ended. With `wait` it returns at least one, unless none is in flight.
    fn poll(&mut self, wait: bool, outcomes: &mut Vec<(u64, anyhow::Result<()>)>) -> anyhow::Result<()>;
}

/// How long the source is waited for until the sink is stepped again: while puts are in flight, and while
/// none are. The observer is called as often.
const SOURCE_WAITS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(10)];

/// Whoever watches a load.
pub(crate) trait Observer {
    /// A line is not a record. Break stops the load.
    fn bad_line(&mut self, line: u64, error: &LineError) -> ControlFlow<()>;

    /// Called often. Break stops the load.
    fn advanced(&mut self, tally: &Tally, progress: &Progress) -> anyhow::Result<ControlFlow<()>>;
}

/// What this run has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) lines: u64,
    /// Records acknowledged in this run.
    pub(crate) acknowledged: u64,
    /// Bytes of their keys and values.
    pub(crate) bytes: u64,
    /// Lines that were settled by an earlier run.
    pub(crate) resumed: u64,
    /// Bad lines met in this run.
    pub(crate) bad: u64,
}

/// Limits of a record in the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) key_bytes_max: usize,
    pub(crate) value_bytes_max: usize,
}

impl Limits {
    /// Whether a record fits.
    pub(crate) fn check(&self, record: &Record<'_>) -> Result<(), LineError> {
        let (bytes, bytes_max) = (record.key.len(), self.key_bytes_max);
        if bytes > bytes_max {
            return Err(LineError::KeyTooLong { bytes, bytes_max });
        }
        let (bytes, bytes_max) = (record.value.len(), self.value_bytes_max);
        if bytes > bytes_max {
            return Err(LineError::ValueTooLong { bytes, bytes_max });
        }
        Ok(())
    }
}

/// How a load ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The source is at its end, all its records acknowledged.
    Complete,
    /// The source is not whole; what was read of it is acknowledged.
    Incomplete(Incomplete),
    /// The observer stopped it; what was in flight has been awaited.
    Stopped,
    /// The server refused a line; what was in flight has been awaited.
    Refused {
        /// The first such line.
        line: u64,
        error: anyhow::Error,
    },
}

/// A load in progress.
pub(crate) struct Loader<'a, S> {
    sink: S,
    parser: &'a Parser,
    limits: Limits,
    in_flight_max: usize,
    skip: u64,
    progress: &'a mut Progress,
    tally: Tally,
    in_flight: HashMap<u64, InFlight>,
    keys_in_flight: HashSet<Box<[u8]>>,
    outcomes: Vec<(u64, anyhow::Result<()>)>,
    refused: Option<(u64, anyhow::Error)>,
}

struct InFlight {
    key: Box<[u8]>,
    bytes: usize,
}

impl<'a, S: Sink> Loader<'a, S> {
    /// A load of a source whose first `skip` lines are not records.
    pub(crate) fn new(
        sink: S,
        parser: &'a Parser,
        limits: Limits,
        in_flight_max: usize,
        skip: u64,
        progress: &'a mut Progress,
    ) -> Loader<'a, S> {
        Loader {
            sink,
            parser,
            limits,
            in_flight_max,
            skip,
            progress,
            tally: Tally::default(),
            in_flight: HashMap::new(),
            keys_in_flight: HashSet::new(),
            outcomes: Vec::new(),
            refused: None,
        }
    }

    /// Loads to the end. On an error of the connection, what the progress says is still true.
    pub(crate) fn run<R: BufRead + Arriving>(
        mut self,
        lines: &mut Lines<R>,
        observer: &mut impl Observer,
    ) -> anyhow::Result<(Ended, Tally)> {
        let mut content = Content::new(lines, self.parser, self.skip);
        let (mut stopped, mut incomplete) = (false, None);
        while !stopped && self.refused.is_none() {
            stopped = self.await_line(&mut content, observer)?.is_break();
            if stopped || self.refused.is_some() {
                break;
            }
            let (number, line) = match content.next() {
                Ok(Some(next)) => next,
                Ok(None) => break,
                Err(error) => {
                    incomplete = Some(error);
                    break;
                }
            };
            self.tally.lines += 1;
            stopped = self.take(number, line, observer)?.is_break()
                || observer.advanced(&self.tally, self.progress)?.is_break();
        }
        while !self.in_flight.is_empty() {
            self.settle(true)?;
            stopped |= observer.advanced(&self.tally, self.progress)?.is_break();
        }
        let ended = match self.refused {
            Some((line, error)) => Ended::Refused { line, error },
            None if stopped => Ended::Stopped,
            None => incomplete.map_or(Ended::Complete, Ended::Incomplete),
        };
        Ok((ended, self.tally))
    }

    /// Until the next line is there, what was read before it is sent and acknowledged, and the session kept:
    /// a source's pauses are not the server's.
    fn await_line<R: Arriving>(
        &mut self,
        content: &mut Content<'_, R>,
        observer: &mut impl Observer,
    ) -> anyhow::Result<ControlFlow<()>> {
        let [busy, idle] = SOURCE_WAITS;
        let mut within = Duration::ZERO;
        while self.refused.is_none() && !content.is_next_here(within) {
            self.sink.step(&mut self.outcomes)?;
            self.take_outcomes();
            if observer.advanced(&self.tally, self.progress)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            within = if self.in_flight.is_empty() { idle } else { busy };
        }
        Ok(ControlFlow::Continue(()))
    }

    fn take(
        &mut self,
        number: u64,
        line: Option<InputLine<'_>>,
        observer: &mut impl Observer,
    ) -> anyhow::Result<ControlFlow<()>> {
        if self.progress.settled.contains(number) {
            self.tally.resumed += 1;
            return Ok(ControlFlow::Continue(()));
        }
        let Some(line) = line else {
            self.progress.settled.insert(number);
            return Ok(ControlFlow::Continue(()));
        };
        match record_of(&line, self.parser, &self.limits) {
            Ok(record) => self.submit(number, &record).map(|()| ControlFlow::Continue(())),
            Err(error) => {
                let flow = observer.bad_line(number, &error);
                self.tally.bad += 1;
                // A line that stops the load is not settled: the same command begins with it, mended or not.
                if flow.is_continue() {
                    self.progress.settled.insert(number);
                    self.progress.bad += 1;
                }
                Ok(flow)
            }
        }
    }

    fn submit(&mut self, number: u64, record: &Record<'_>) -> anyhow::Result<()> {
        self.settle(false)?;
        while self.in_flight.len() >= self.in_flight_max || self.keys_in_flight.contains(&*record.key) {
            self.settle(true)?;
        }
        if self.refused.is_some() {
            return Ok(()); // this line stays unsettled: it is not in the store
        }
        self.sink.submit(number, &record.key, &record.value)?;
        let key: Box<[u8]> = record.key.as_ref().into();
        self.keys_in_flight.insert(key.clone());
        self.in_flight.insert(number, InFlight { key, bytes: record.key.len() + record.value.len() });
        Ok(())
    }

    fn settle(&mut self, wait: bool) -> anyhow::Result<()> {
        self.sink.poll(wait, &mut self.outcomes)?;
        self.take_outcomes();
        Ok(())
    }

    fn take_outcomes(&mut self) {
        for (line, outcome) in self.outcomes.drain(..) {
            let put = self.in_flight.remove(&line).expect("the sink ends only puts that it was given, once");
            self.keys_in_flight.remove(&put.key);
            match outcome {
                Ok(()) => {
                    self.progress.settled.insert(line);
                    self.progress.records += 1;
                    self.tally.acknowledged += 1;
                    self.tally.bytes += put.bytes as u64;
                }
                Err(error) if self.refused.as_ref().is_none_or(|(first, _)| line < *first) => {
                    self.refused = Some((line, error));
                }
                Err(_) => {}
            }
        }
    }
}

/// The record of a line that fits the store.
pub(crate) fn record_of<'a>(
    line: &InputLine<'a>,
    parser: &'a Parser,
    limits: &Limits,
) -> Result<Record<'a>, LineError> {
    let record = parser.record(line)?;
    limits.check(&record)?;
    Ok(record)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::BTreeMap;
    use std::io::{self, Cursor, Read};
    use std::rc::Rc;

    use super::*;
    use crate::input::format::Format;
    use crate::input::record::Columns;

    /// A store that ends puts in a scrambled order, applies at the end of a put, and may refuse a key or fail
    /// whole.
    #[derive(Default)]
    struct Model {
        entries: BTreeMap<Vec<u8>, Vec<u8>>,
        waiting: Vec<(u64, Vec<u8>, Vec<u8>)>,
        refuses: Option<Vec<u8>>,
        polls_before_failure: Option<u32>,
        in_flight_highest: usize,
        acknowledged: Rc<Cell<u64>>,
        state: u64,
    }

    impl Sink for &mut Model {
        fn submit(&mut self, line: u64, key: &[u8], value: &[u8]) -> anyhow::Result<()> {
            assert!(self.waiting.iter().all(|(_, other, _)| other != key), "two puts of one key in flight");
            self.waiting.push((line, key.to_vec(), value.to_vec()));
            self.in_flight_highest = self.in_flight_highest.max(self.waiting.len());
            Ok(())
        }

        fn step(&mut self, outcomes: &mut Vec<(u64, anyhow::Result<()>)>) -> anyhow::Result<()> {
            self.poll(false, outcomes)
        }

        fn poll(&mut self, wait: bool, outcomes: &mut Vec<(u64, anyhow::Result<()>)>) -> anyhow::Result<()> {
            if let Some(left) = &mut self.polls_before_failure {
                *left = left.checked_sub(1).ok_or_else(|| anyhow::anyhow!("connection lost"))?;
            }
            self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let pick = usize::try_from(self.state >> 40).unwrap();
            if self.waiting.is_empty() || (!wait && pick % 3 != 0) {
                return Ok(());
            }
            let (line, key, value) = self.waiting.swap_remove(pick % self.waiting.len());
            if self.refuses.as_ref() == Some(&key) {
                outcomes.push((line, Err(anyhow::anyhow!("refused"))));
            } else {
                self.entries.insert(key, value);
                self.acknowledged.set(self.acknowledged.get() + 1);
                outcomes.push((line, Ok(())));
            }
            Ok(())
        }
    }

    impl<T> Arriving for Cursor<T> {
        fn is_line_here(&mut self, _: Duration) -> bool {
            true
        }
    }

    /// A source each of whose lines comes once those before it are acknowledged.
    struct Live {
        text: Cursor<String>,
        come: u64,
        acknowledged: Rc<Cell<u64>>,
    }

    impl Arriving for Live {
        fn is_line_here(&mut self, _: Duration) -> bool {
            let is_here = self.acknowledged.get() == self.come;
            self.come += u64::from(is_here);
            is_here
        }
    }

    impl Read for Live {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            self.text.read(to)
        }
    }

    impl BufRead for Live {
        fn fill_buf(&mut self) -> io::Result<&[u8]> {
            self.text.fill_buf()
        }

        fn consume(&mut self, bytes: usize) {
            self.text.consume(bytes);
        }
    }

    #[derive(Default)]
    struct Watcher {
        bad: Vec<u64>,
        strict: bool,
        stop_after: Option<u64>,
    }

    impl Observer for Watcher {
        fn bad_line(&mut self, line: u64, _: &LineError) -> ControlFlow<()> {
            self.bad.push(line);
            if self.strict { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }

        fn advanced(&mut self, tally: &Tally, _: &Progress) -> anyhow::Result<ControlFlow<()>> {
            let stop = self.stop_after.is_some_and(|n| tally.acknowledged >= n);
            Ok(if stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        }
    }

    fn source(lines: u64) -> String {
        (1..=lines).map(|n| format!("key{}\tvalue{n}\n", n % 37)).collect()
    }

    fn load(
        text: &str,
        model: &mut Model,
        progress: &mut Progress,
        watcher: &mut Watcher,
    ) -> anyhow::Result<(Ended, Tally)> {
        let columns = Columns { key: None, value: None, value_default: None, escaped: false };
        let parser = Parser::new(Format::Tsv, &columns).unwrap();
        let parser = if text.starts_with('#') { parser.of_dump() } else { parser };
        let limits = Limits { key_bytes_max: 10, value_bytes_max: 100 };
        let loader = Loader::new(model, &parser, limits, 16, 0, progress);
        loader.run(&mut Lines::new(Cursor::new(text)), watcher)
    }

    fn expected(text: &str) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let pair = |line: &str| line.split_once('\t').map(|(k, v)| (k.into(), v.into()));
        text.lines().filter_map(pair).collect()
    }

    #[test]
    fn run_duplicate_keys_the_last_line_wins() {
        let text = source(500);
        let (mut model, mut progress) = (Model::default(), Progress::default());
        let (ended, tally) = load(&text, &mut model, &mut progress, &mut Watcher::default()).unwrap();
        assert!(matches!(ended, Ended::Complete));
        assert_eq!(model.entries, expected(&text));
        assert_eq!((tally.acknowledged, progress.settled.contiguous(), progress.records), (500, 500, 500));
        assert!(model.in_flight_highest > 4 && model.in_flight_highest <= 16, "{}", model.in_flight_highest);
    }

    /// What was read stayed behind until the source went on, and its time was over by then.
    #[test]
    fn run_a_source_that_waits_for_its_lines_to_be_acknowledged_is_loaded() {
        let columns = Columns { key: None, value: None, value_default: None, escaped: false };
        let parser = Parser::new(Format::Tsv, &columns).unwrap();
        let limits = Limits { key_bytes_max: 10, value_bytes_max: 100 };
        let (mut model, mut progress) = (Model::default(), Progress::default());
        let acknowledged = Rc::clone(&model.acknowledged);
        let live = Live { text: Cursor::new(source(100)), come: 0, acknowledged };
        let loader = Loader::new(&mut model, &parser, limits, 16, 0, &mut progress);
        let (ended, tally) = loader.run(&mut Lines::new(live), &mut Watcher::default()).unwrap();
        assert!(matches!(ended, Ended::Complete));
        assert_eq!((tally.acknowledged, model.in_flight_highest), (100, 1));
        assert_eq!(model.entries, expected(&source(100)));
    }

    #[test]
    fn run_connection_lost_anywhere_then_resumed_equals_one_load() {
        let text = source(200);
        for polls in (0..400).step_by(7) {
            let (mut model, mut progress) = (Model::default(), Progress::default());
            model.polls_before_failure = Some(polls);
            let first = load(&text, &mut model, &mut progress, &mut Watcher::default());
            model.polls_before_failure = None;
            let unknown = std::mem::take(&mut model.waiting);
            for (line, key, value) in unknown {
                if line % 2 == 0 {
                    model.entries.insert(key, value); // it reached the store, its answer did not arrive
                }
            }
            let (ended, tally) = load(&text, &mut model, &mut progress, &mut Watcher::default()).unwrap();
            assert!(matches!(ended, Ended::Complete));
            assert_eq!(model.entries, expected(&text), "{first:?}");
            assert_eq!(tally.resumed + tally.acknowledged, 200);
        }
    }

    #[test]
    fn run_bad_lines_are_reported_and_skipped_or_stop_a_strict_load() {
        let text = format!("a\t1\n\n{}\t2\nb\t3\n", "k".repeat(11));
        let (mut model, mut progress) = (Model::default(), Progress::default());
        let mut watcher = Watcher::default();
        load(&text, &mut model, &mut progress, &mut watcher).unwrap();
        assert_eq!(watcher.bad, [2, 3]);
        assert_eq!((progress.settled.contiguous(), progress.records, progress.bad), (4, 2, 2));

        let (mut model, mut progress) = (Model::default(), Progress::default());
        let mut watcher = Watcher { strict: true, ..Watcher::default() };
        let (ended, tally) = load(&text, &mut model, &mut progress, &mut watcher).unwrap();
        assert!(matches!(ended, Ended::Stopped));
        assert_eq!((watcher.bad, progress.settled.contiguous()), (vec![2], 1));
        assert_eq!((tally.bad, progress.bad), (1, 0), "it is reported, and not settled");
    }

    #[test]
    fn run_a_dump_that_is_not_whole_is_no_complete_load_however_often_it_goes_on() {
        let entries = source(300);
        let whole = format!("#cell-dump 1 tsv escaped\n{entries}#cell-dump end 300\n");
        let (mut model, mut progress) = (Model::default(), Progress::default());
        let cut = &whole[..whole.len() - "#cell-dump end 300\n".len()];
        for resumed in [0, 301] {
            let (ended, tally) = load(cut, &mut model, &mut progress, &mut Watcher::default()).unwrap();
            let wanted = matches!(ended, Ended::Incomplete(Incomplete::NoEnd { begins: 1, read: 300 }));
            assert!(wanted && model.waiting.is_empty(), "{ended:?}");
            assert_eq!((tally.resumed, progress.records, progress.bad), (resumed, 300, 0));
        }
        assert_eq!(model.entries, expected(&entries), "what was read is there");
        let (ended, _) = load(&whole, &mut model, &mut progress, &mut Watcher::default()).unwrap();
        assert!(matches!(ended, Ended::Complete), "{ended:?}");
    }

    #[test]
    fn run_a_refused_line_stops_the_load_and_stays_unsettled() {
        let text = "a\t1\nb\t2\nb\t3\nc\t4\n".repeat(20);
        let (mut model, mut progress) = (Model::default(), Progress::default());
        model.refuses = Some(b"b".to_vec());
        let (ended, _) = load(&text, &mut model, &mut progress, &mut Watcher::default()).unwrap();
        assert!(matches!(ended, Ended::Refused { line: 2, .. }), "{ended:?}");
        assert!(!progress.settled.contains(2) && !progress.settled.contains(3));
        model.refuses = None;
        load(&text, &mut model, &mut progress, &mut Watcher::default()).unwrap();
        assert_eq!(model.entries, expected(&text));
    }

    #[test]
    fn run_stopped_by_the_observer_awaits_what_is_in_flight() {
        let text = source(300);
        let (mut model, mut progress) = (Model::default(), Progress::default());
        let mut watcher = Watcher { stop_after: Some(100), ..Watcher::default() };
        let (ended, tally) = load(&text, &mut model, &mut progress, &mut watcher).unwrap();
        assert!(matches!(ended, Ended::Stopped));
        assert!(model.waiting.is_empty() && tally.acknowledged < 300);
        assert_eq!(progress.settled.count(), tally.acknowledged);
    }
}
