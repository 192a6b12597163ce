//! A reader in a process of its own: `cell-benches reader`, which a bench starts. It is told turn by turn on
//! its standard input what to read, and answers with a line of JSON each time.

use std::io::{self, BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use cell_client::{Bound, Client, EntryValue, Scan, Transport};
use cell_tests::reaper;
use serde::{Deserialize, Serialize};

use crate::data::{EvenDataset, Packed};
use crate::lmdb;
use crate::options::{BenchError, ReaderEngine, ReaderOptions};
use crate::paced::now;
use crate::reads::{get_each, one_sided};
use crate::shared_file::{Keys, ReadTransaction, SharedFile};

/// Entries of one scan.
pub(crate) const SCAN_ENTRIES: u16 = 50;
/// A reader has keys for so many turns; then it begins anew.
const WINDOWS: usize = 4;

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

/// Reads of a turn, by kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TurnSizes {
    pub(crate) gets: usize,
    /// No more than there are gets: they are of the same keys.
    pub(crate) scans: usize,
}

/// What a reader did in a turn.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ReaderTurn {
    pub(crate) reads: u64,
    pub(crate) ns: u64,
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
    /// of other readers.
    ///
    /// # Errors
    /// It does not start.
    pub(crate) fn start(
        engine: ReaderEngine,
        at: &str,
        number: u64,
        sizes: TurnSizes,
        data: &EvenDataset,
    ) -> Result<Self, BenchError> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["reader", "--engine", engine.word(), "--at", at, "--number", &number.to_string()]);
        command.args(["--gets", &sizes.gets.to_string(), "--scans", &sizes.scans.to_string()]);
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

    /// Has it read; [`Self::end`] waits for it.
    ///
    /// # Errors
    /// It has ended.
    pub(crate) fn begin(&mut self, kind: ReadKind, turn: usize) -> Result<(), BenchError> {
        writeln!(self.commands, "{} {turn}", kind.word())?;
        Ok(self.commands.flush()?)
    }

    /// Waits until it has read.
    ///
    /// # Errors
    /// It has ended, of which it has said the reason on standard error.
    pub(crate) fn end(&mut self) -> Result<ReaderTurn, BenchError> {
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

/// The entries from a key on, page by page: one that is not full need not be the last.
fn scan_from(client: &mut Client, key: &[u8]) -> Result<u64, BenchError> {
    let wanted = u32::from(SCAN_ENTRIES);
    let (mut left, mut bytes) = (wanted, 0);
    let scan = Scan { start: Bound::Included(key), limit_entries: wanted, ..Scan::default() };
    let mut page = client.scan_page(scan)?;
    loop {
        for entry in page.iter() {
            let value_len = match entry.value {
                EntryValue::Inline(value) => value.len() as u64,
                EntryValue::Large { value_len } | EntryValue::Omitted { value_len } => u64::from(value_len),
            };
            bytes += entry.key.len() as u64 + value_len;
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
        ReaderEngine::Lmdb => ReadTransaction::Begun,
        ReaderEngine::LmdbRenewed => ReadTransaction::Renewed,
    };
    let opened = lmdb::open(Path::new(&arguments.at), arguments.options.entries)?;
    let file = opened.ok_or(BenchError::Engine)?;
    Ok(Box::new(FileReader { file, how, out: Vec::new() }))
}

/// The child: reads what it is told to until its standard input ends.
///
/// # Errors
/// A store that cannot be read, or a command that is none.
pub fn run(arguments: &ReaderOptions, out: &mut dyn Write) -> Result<(), BenchError> {
    let data = EvenDataset { entries: arguments.options.entries, seed: arguments.options.seed };
    let keys = data.probes(arguments.gets * WINDOWS, data.seed ^ (0x7265_6164 + arguments.number));
    let mut store = open(arguments)?;
    answer(out, ReaderTurn::default())?;
    for line in io::stdin().lines() {
        let line = line?;
        let told = line.split_once(' ').and_then(|(kind, turn)| Some((kind, turn.parse::<usize>().ok()?)));
        let (kind, turn) = told.ok_or(BenchError::Engine)?;
        let kind = [ReadKind::Get, ReadKind::Scan].into_iter().find(|known| known.word() == kind);
        answer(out, read(&mut *store, &keys, arguments, kind.ok_or(BenchError::Engine)?, turn)?)?;
    }
    Ok(())
}

fn read(
    store: &mut dyn ReadStore,
    keys: &Packed,
    arguments: &ReaderOptions,
    kind: ReadKind,
    turn: usize,
) -> Result<ReaderTurn, BenchError> {
    let count = match kind {
        ReadKind::Get => arguments.gets,
        ReadKind::Scan => arguments.scans.min(arguments.gets),
    };
    let first = turn % WINDOWS * arguments.gets;
    let mut keys = (first..first + count).map(|index| keys.get(index));
    let began = now();
    let bytes = match kind {
        ReadKind::Get => store.get(&mut keys)?,
        ReadKind::Scan => store.scan(&mut keys)?,
    };
    let ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    Ok(ReaderTurn { reads: count as u64, ns, bytes })
}

fn answer(out: &mut dyn Write, turn: ReaderTurn) -> Result<(), BenchError> {
    serde_json::to_writer(&mut *out, &turn)?;
    writeln!(out)?;
    Ok(out.flush()?)
}
