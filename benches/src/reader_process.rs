//! A reader in a process of its own: `cell-benches reader`, which a bench starts. Turn by turn it takes
//! from its standard input what to read, answers with a line of JSON that it is ready, waits for one more
//! line, and answers when it has read. Between turns it is asked what memory it takes.

use std::io::{self, BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use cell_client::{Bound, Client, EntryValue, Scan, Transport};
use cell_tests::reaper;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::data::{EvenDataset, Packed};
use crate::lmdb;
use crate::options::{BenchError, ReaderEngine, ReaderOptions};
use crate::processor::monotonic_ns;
use crate::reads::{get_each, one_sided};
use crate::rollup::{Rollup, Taken};
use crate::shared_file::{Keys, ReadTransaction, SharedFile};
use crate::together::Stint;

/// Entries of one scan.
pub(crate) const SCAN_ENTRIES: u16 = 50;
/// The line at which a reader that is ready reads.
const GO: &str = "go";
/// The line at which it says what memory it takes.
const MEMORY: &str = "memory";

/// A kind of reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadKind {
    Get,
    Scan,
}

impl ReadKind {
    fn word(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Scan => "scan",
        }
    }
}

/// What a reader is to read in a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadOrder {
    pub(crate) kind: ReadKind,
    /// Each turn has keys of its own, until all have been read.
    pub(crate) turn: usize,
    /// Gets, or scans.
    pub(crate) reads: usize,
}

impl ReadOrder {
    fn line(self) -> String {
        format!("{} {} {}", self.kind.word(), self.turn, self.reads)
    }

    fn of_line(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let word = words.next()?;
        let kind = [ReadKind::Get, ReadKind::Scan].into_iter().find(|kind| kind.word() == word)?;
        let mut number = || words.next()?.parse::<usize>().ok();
        Some(Self { kind, turn: number()?, reads: number()? })
    }
}

/// What a reader did in a turn.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ReaderTurn {
    pub(crate) stint: Stint,
    /// Bytes of all that was read.
    pub(crate) bytes: u64,
}

/// A reader that runs.
pub(crate) struct ReaderProcess {
    child: Child,
    commands: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl ReaderProcess {
    /// Starts one and waits until it is ready. `at` is where its store is; `number` tells its keys from those
    /// of other readers, and it has so many of them.
    ///
    /// # Errors
    /// It does not start.
    pub(crate) fn start(
        engine: ReaderEngine,
        at: &str,
        number: u64,
        keys: usize,
        data: &EvenDataset,
    ) -> Result<Self, BenchError> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["reader", "--engine", engine.word(), "--at", at, "--number", &number.to_string()]);
        command.args(["--keys", &keys.to_string()]);
        command.args(["--entries", &data.entries.to_string(), "--seed", &data.seed.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        reaper::mark(&mut command);
        let mut child = command.spawn()?;
        let (Some(commands), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(BenchError::Engine);
        };
        let mut reader = Self { child, commands, answers: BufReader::new(answers).lines() };
        reader.end()?;
        Ok(reader)
    }

    /// Tells it what to read, and waits until it is ready to.
    ///
    /// # Errors
    /// It has ended.
    pub(crate) fn prepare(&mut self, order: ReadOrder) -> Result<(), BenchError> {
        self.say(&order.line())?;
        self.end().map(drop)
    }

    /// Has it read what it is ready for; [`Self::end`] waits for it.
    ///
    /// # Errors
    /// It has ended.
    pub(crate) fn begin(&mut self) -> Result<(), BenchError> {
        self.say(GO)
    }

    fn say(&mut self, line: &str) -> Result<(), BenchError> {
        writeln!(self.commands, "{line}")?;
        Ok(self.commands.flush()?)
    }

    /// Waits until it has read.
    ///
    /// # Errors
    /// It has ended, of which it has said the reason on standard error.
    pub(crate) fn end(&mut self) -> Result<ReaderTurn, BenchError> {
        self.hear()
    }

    /// What memory its store takes there, from before that was opened on: without its keys.
    ///
    /// # Errors
    /// It has ended.
    pub(crate) fn memory(&mut self) -> Result<Taken, BenchError> {
        self.say(MEMORY)?;
        self.hear()
    }

    fn hear<T: DeserializeOwned>(&mut self) -> Result<T, BenchError> {
        let line = self.answers.next().ok_or(io::ErrorKind::UnexpectedEof).map_err(io::Error::from)??;
        Ok(serde_json::from_str(&line)?)
    }
}

impl Drop for ReaderProcess {
    fn drop(&mut self) {
        // It reads only; one that has ended is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A store as a reader has it: one read after the other, of what is read all copied.
trait ReadStore {
    /// Returns how many bytes the values have.
    fn get(&mut self, keys: Keys<'_, '_>) -> Result<u64, BenchError>;

    /// Returns how many bytes keys and values have.
    fn scan(&mut self, keys: Keys<'_, '_>) -> Result<u64, BenchError>;
}

/// A node's memory.
struct NodeReader(Client);

impl ReadStore for NodeReader {
    fn get(&mut self, keys: Keys<'_, '_>) -> Result<u64, BenchError> {
        get_each(&mut self.0, keys)
    }

    fn scan(&mut self, keys: Keys<'_, '_>) -> Result<u64, BenchError> {
        let mut bytes = 0;
        for key in keys {
            bytes += scan_from(&mut self.0, key)?;
        }
        Ok(bytes)
    }
}

/// The entries from a key on, page by page: one that is not full need not be the last. A value that is too
/// large for its page is fetched: bytes count that were copied, as a file's reader copies them.
fn scan_from(client: &mut Client, key: &[u8]) -> Result<u64, BenchError> {
    let wanted = u32::from(SCAN_ENTRIES);
    let (mut left, mut bytes) = (wanted, 0);
    let scan = Scan { start: Bound::Included(key), limit_entries: wanted, ..Scan::default() };
    let mut page = client.scan_page(scan)?;
    loop {
        for entry in page.iter() {
            let value_len = match entry.value {
                EntryValue::Inline(value) => value.len(),
                EntryValue::Large { .. } => client.get(entry.key)?.map_or(0, |item| item.value.len()),
                // A scan of keys alone, which this is not, has not read them.
                EntryValue::Omitted { .. } => 0,
            };
            bytes += (entry.key.len() + value_len) as u64;
        }
        left = left.saturating_sub(u32::try_from(page.len()).unwrap_or(u32::MAX));
        if left == 0 || page.is_done() {
            return Ok(bytes);
        }
        page = client.scan_page(Scan { start: page.resume(), limit_entries: left, ..Scan::default() })?;
    }
}

/// A file that this process has open, too.
struct FileReader {
    file: Box<dyn SharedFile>,
    how: ReadTransaction,
    out: Vec<u8>,
}

impl ReadStore for FileReader {
    fn get(&mut self, keys: Keys<'_, '_>) -> Result<u64, BenchError> {
        self.file.get(self.how, keys, &mut self.out)
    }

    fn scan(&mut self, keys: Keys<'_, '_>) -> Result<u64, BenchError> {
        self.file.scan(self.how, keys, usize::from(SCAN_ENTRIES), &mut self.out)
    }
}

fn open(arguments: &ReaderOptions) -> Result<Box<dyn ReadStore>, BenchError> {
    let how = match arguments.engine {
        ReaderEngine::Cell => {
            let client = Client::connect(&arguments.at, one_sided(Transport::Shm, true))?;
            return Ok(Box::new(NodeReader(client)));
        }
        ReaderEngine::Lmdb => ReadTransaction::Started,
        ReaderEngine::LmdbRenewed => ReadTransaction::Renewed,
    };
    let opened = lmdb::open(Path::new(&arguments.at), arguments.options.entries)?;
    let file = opened.ok_or(BenchError::Engine)?;
    Ok(Box::new(FileReader { file, how, out: Vec::new() }))
}

/// The child: reads what it is asked for until its standard input ends.
///
/// # Errors
/// A store that cannot be read, or a command that is none.
pub fn run(arguments: &ReaderOptions, out: &mut dyn Write) -> Result<(), BenchError> {
    let data = EvenDataset { entries: arguments.options.entries, seed: arguments.options.seed };
    let before = Rollup::own()?.taken();
    let mut store = open(arguments)?;
    let opening = Rollup::own()?.taken().since(before);
    let keys = data.probes(arguments.keys, data.seed ^ (0x7265_6164 + arguments.number));
    let ready = Rollup::own()?.taken();
    answer(out, &ReaderTurn::default())?;
    let mut lines = io::stdin().lines();
    while let Some(line) = lines.next() {
        let line = line?;
        if line == MEMORY {
            answer(out, &Rollup::own()?.taken().since(ready).and(opening))?;
            continue;
        }
        let order = ReadOrder::of_line(&line).ok_or(BenchError::Engine)?;
        answer(out, &ReaderTurn::default())?;
        if lines.next().transpose()?.as_deref() != Some(GO) {
            return Err(BenchError::Engine);
        }
        answer(out, &read(&mut *store, &keys, order)?)?;
    }
    Ok(())
}

fn read(store: &mut dyn ReadStore, keys: &Packed, order: ReadOrder) -> Result<ReaderTurn, BenchError> {
    let ReadOrder { kind, turn, reads } = order;
    let first = turn * reads % keys.len();
    let places = (first..keys.len()).chain((0..keys.len()).cycle()).take(reads);
    let mut keys = places.map(|place| keys.get(place));
    let began_ns = monotonic_ns();
    let bytes = match kind {
        ReadKind::Get => store.get(&mut keys)?,
        ReadKind::Scan => store.scan(&mut keys)?,
    };
    let stint = Stint { operations: reads as u64, began_ns, ended_ns: monotonic_ns() };
    Ok(ReaderTurn { stint, bytes })
}

fn answer(out: &mut dyn Write, what: &impl Serialize) -> Result<(), BenchError> {
    serde_json::to_writer(&mut *out, what)?;
    writeln!(out)?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_of_its_line_is_the_same_and_of_another_line_there_is_none() {
        for kind in [ReadKind::Get, ReadKind::Scan] {
            let order = ReadOrder { kind, turn: 7, reads: 20_000 };
            assert_eq!(ReadOrder::of_line(&order.line()), Some(order));
        }
        for line in ["", GO, MEMORY, "get 7", "put 7 20000", "get 7 many"] {
            assert_eq!(ReadOrder::of_line(line), None, "{line}");
        }
    }

    /// A turn may have more reads than there are keys.
    #[test]
    fn turn_reads_on_where_the_one_before_ended_and_begins_anew_after_the_last_key() {
        struct Seen(Vec<u8>);
        impl ReadStore for Seen {
            fn get(&mut self, keys: Keys<'_, '_>) -> Result<u64, BenchError> {
                self.0 = keys.map(|key| key[0]).collect();
                Ok(self.0.len() as u64)
            }

            fn scan(&mut self, keys: Keys<'_, '_>) -> Result<u64, BenchError> {
                self.get(keys)
            }
        }
        let mut keys = Packed::default();
        (0..5).for_each(|number| keys.push_with(|bytes| bytes.push(number)));
        let mut seen = Seen(Vec::new());
        for (turn, reads, wanted) in
            [(0, 2, vec![0, 1]), (1, 3, vec![3, 4, 0]), (1, 7, vec![2, 3, 4, 0, 1, 2, 3])]
        {
            let done = read(&mut seen, &keys, ReadOrder { kind: ReadKind::Get, turn, reads }).unwrap();
            assert_eq!(seen.0, wanted);
            assert_eq!((done.stint.operations, done.bytes), (reads as u64, reads as u64));
            assert!(done.stint.began_ns > 0 && done.stint.ended_ns >= done.stint.began_ns);
        }
    }
}
