//! Proves that what a progress file says is acknowledged is in the store, with the right value.
//!
//! For each key of the source: the loader keeps lines of one key in order, so its acknowledged lines are a
//! prefix of its lines, and the store must hold the value of the last acknowledged one. A line that is not
//! acknowledged may have been in flight when the load ended; so the value of any later, unacknowledged line
//! of the key is right too, and a key without any acknowledged line may be there or not.
//!
//! First pass: each acknowledged line's key is looked up and compared. A key that is absent is missing,
//! whatever else the source says. A key with another value is a suspect: the second pass collects what the
//! source says of suspects and judges. Memory is bounded by the number of suspects, which is small: keys that
//! the source repeats.

use std::collections::HashMap;
use std::io::BufRead;

use anyhow::Context;
use cell_terms::mutant::{Mutant, planted};

use super::acknowledged::LineSet;
use super::loader::{Limits, record_of};
use crate::input::content::{Content, Incomplete};
use crate::input::line::Lines;
use crate::input::record::{LineError, Parser, Record};

/// Suspects that are kept for the second pass; more are counted as wrong without a second look.
const SUSPECTS_MAX: usize = 4_000_000;

/// Outcome of one lookup: the token and the value, if there is an entry.
pub(crate) type LookupAnswer = (u64, anyhow::Result<Option<Vec<u8>>>);

/// Where keys are looked up. The client in production, a map in tests.
pub(crate) trait Lookup {
    /// Starts a get. `token` names it in [`Lookup::poll`].
    fn submit(&mut self, token: u64, key: &[u8]) -> anyhow::Result<()>;

    /// Answers of gets that ended. With `wait` it returns at least one, unless none is in flight.
    fn poll(&mut self, wait: bool, answers: &mut Vec<LookupAnswer>) -> anyhow::Result<()>;
}

/// What must be there.
pub(crate) struct Claim<'a> {
    /// How lines are read.
    pub(crate) parser: &'a Parser,
    /// What fits the store; other lines are bad.
    pub(crate) limits: Limits,
    /// Leading lines that are not records.
    pub(crate) skip: u64,
    /// Which lines are acknowledged; all of them without a progress file.
    pub(crate) acknowledged: Option<&'a LineSet>,
}

/// Something that is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The line that was acknowledged.
    pub(crate) line: u64,
    pub(crate) key: Vec<u8>,
    /// What is wrong.
    pub(crate) what: What,
}

/// What is wrong with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// There is no entry.
    Missing,
    /// The entry has a value that no line explains.
    WrongValue {
        /// Length of the value that was acknowledged.
        expected_bytes: usize,
        /// Length of the value found.
        found_bytes: usize,
    },
}

/// What the proof found.
#[derive(Debug, Default)]
pub(crate) struct ProofVerdict {
    /// Lines of the source.
    pub(crate) lines: u64,
    /// Acknowledged records that were looked up.
    pub(crate) acknowledged: u64,
    /// Records that are not acknowledged: their fate is unknown.
    pub(crate) unknown: u64,
    /// Lines that are not records: they are not in the store.
    pub(crate) bad: u64,
    /// The first of them.
    pub(crate) first_bad: Option<(u64, LineError)>,
    /// Why there may be more than was read.
    pub(crate) incomplete: Option<Incomplete>,
    /// Acknowledged lines whose key is absent.
    pub(crate) missing: u64,
    /// Keys with a value that no line explains.
    pub(crate) wrong: u64,
    /// The first findings.
    pub(crate) findings: Vec<Finding>,
}

impl ProofVerdict {
    /// Whether everything is as it must be.
    pub(crate) fn holds(&self) -> bool {
        let all_read = self.bad == 0 && self.incomplete.is_none();
        self.missing == 0 && self.wrong == 0 && (all_read || planted(Mutant::UnreadPasses))
    }
}

struct Pending {
    line: u64,
    key: Box<[u8]>,
    value: Box<[u8]>,
}

/// What the source says of a suspect.
struct Suspect {
    /// The last acknowledged line and its value.
    line: u64,
    value: Box<[u8]>,
    /// Values of lines that may have been in flight.
    unknown: Vec<Box<[u8]>>,
}

/// A proof in progress.
pub(crate) struct Prover<'a, L> {
    lookup: L,
    claim: Claim<'a>,
    in_flight_max: usize,
    findings_max: usize,
    verdict: ProofVerdict,
    pending: HashMap<u64, Pending>,
    suspects: HashMap<Box<[u8]>, Option<Suspect>>,
    answers: Vec<LookupAnswer>,
}

impl<'a, L: Lookup> Prover<'a, L> {
    /// Begins a proof; at most `findings_max` findings are kept, all are counted.
    pub(crate) fn new(
        lookup: L,
        claim: Claim<'a>,
        in_flight_max: usize,
        findings_max: usize,
    ) -> Prover<'a, L> {
        Prover {
            lookup,
            claim,
            in_flight_max,
            findings_max,
            verdict: ProofVerdict::default(),
            pending: HashMap::new(),
            suspects: HashMap::new(),
            answers: Vec::new(),
        }
    }

    /// The first pass over the source. `each_line` is called with the progress and may stop the proof with an
    /// error.
    pub(crate) fn look_up<R: BufRead>(
        &mut self,
        lines: &mut Lines<R>,
        each_line: &mut dyn FnMut(u64) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        self.verdict.lines = self.each_record(lines, each_line, Self::look_up_one)?;
        while !self.pending.is_empty() {
            self.settle(true)?;
        }
        Ok(())
    }

    /// Takes all lines that are to be records, in order, and notes if there may be more than was read; how
    /// many lines the source has.
    fn each_record<R: BufRead>(
        &mut self,
        lines: &mut Lines<R>,
        each_line: &mut dyn FnMut(u64) -> anyhow::Result<()>,
        take: fn(&mut Self, u64, Result<Record<'_>, LineError>) -> anyhow::Result<()>,
    ) -> anyhow::Result<u64> {
        let Claim { parser, limits, skip, .. } = self.claim;
        let mut content = Content::new(lines, parser, skip);
        let mut count = 0;
        loop {
            let (number, line) = match content.next() {
                Ok(Some(next)) => next,
                Ok(None) => break,
                Err(incomplete) => {
                    self.verdict.incomplete.get_or_insert(incomplete);
                    break;
                }
            };
            count += 1;
            each_line(number)?;
            if let Some(line) = line {
                take(self, number, record_of(&line, parser, &limits))?;
            }
        }
        Ok(count)
    }

    fn look_up_one(&mut self, number: u64, record: Result<Record<'_>, LineError>) -> anyhow::Result<()> {
        let record = match record {
            Ok(record) => record,
            Err(error) => {
                self.verdict.bad += 1;
                self.verdict.first_bad.get_or_insert((number, error));
                return Ok(());
            }
        };
        if !self.is_acknowledged(number) {
            self.verdict.unknown += 1;
            return Ok(());
        }
        self.verdict.acknowledged += 1;
        self.settle(false)?;
        while self.pending.len() >= self.in_flight_max {
            self.settle(true)?;
        }
        self.lookup.submit(number, &record.key)?;
        let pending =
            Pending { line: number, key: record.key.as_ref().into(), value: record.value.as_ref().into() };
        self.pending.insert(number, pending);
        Ok(())
    }

    /// Whether a second pass is needed.
    pub(crate) fn has_suspects(&self) -> bool {
        !self.suspects.is_empty()
    }

    /// The second pass: what the source says of suspects, then the judgement.
    pub(crate) fn judge<R: BufRead>(
        &mut self,
        lines: &mut Lines<R>,
        each_line: &mut dyn FnMut(u64) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        self.each_record(lines, each_line, |prover, number, record| {
            if let Ok(record) = record {
                prover.note_suspect(number, &record);
            }
            Ok(())
        })?;
        let mut suspects: Vec<_> = std::mem::take(&mut self.suspects).into_iter().collect();
        suspects.sort_by_key(|(_, suspect)| suspect.as_ref().map(|suspect| suspect.line));
        for (key, suspect) in suspects {
            let suspect = suspect.context("the source has changed while it was proven")?;
            self.judge_one(&key, &suspect)?;
        }
        Ok(())
    }

    /// What a line says of a suspect, if its key is one.
    fn note_suspect(&mut self, number: u64, record: &Record<'_>) {
        let acknowledged = self.is_acknowledged(number);
        let Some(suspect) = self.suspects.get_mut(&*record.key) else { return };
        let value: Box<[u8]> = record.value.as_ref().into();
        match suspect {
            _ if acknowledged => *suspect = Some(Suspect { line: number, value, unknown: Vec::new() }),
            Some(suspect) => suspect.unknown.push(value),
            None => {} // an unacknowledged line before any acknowledged one explains nothing
        }
    }

    /// What was found.
    pub(crate) fn into_verdict(self) -> ProofVerdict {
        self.verdict
    }

    fn judge_one(&mut self, key: &[u8], suspect: &Suspect) -> anyhow::Result<()> {
        self.lookup.submit(suspect.line, key)?;
        while self.answers.is_empty() {
            self.lookup.poll(true, &mut self.answers)?;
        }
        let (_, answer) = self.answers.pop().expect("one was waited for");
        match answer? {
            None => self.report(suspect.line, key, What::Missing),
            Some(found) if *found == *suspect.value => {}
            Some(found) if suspect.unknown.iter().any(|value| **value == *found) => {}
            Some(found) => {
                let (expected_bytes, found_bytes) = (suspect.value.len(), found.len());
                self.report(suspect.line, key, What::WrongValue { expected_bytes, found_bytes });
            }
        }
        Ok(())
    }

    fn is_acknowledged(&self, line: u64) -> bool {
        self.claim.acknowledged.is_none_or(|lines| lines.contains(line))
    }

    fn settle(&mut self, wait: bool) -> anyhow::Result<()> {
        self.lookup.poll(wait, &mut self.answers)?;
        for (token, answer) in std::mem::take(&mut self.answers) {
            let pending = self.pending.remove(&token).expect("answers are to what was asked, once");
            match answer? {
                None => self.report(pending.line, &pending.key, What::Missing),
                Some(found) if *found == *pending.value => {}
                Some(_) if self.suspects.len() < SUSPECTS_MAX => {
                    self.suspects.insert(pending.key, None);
                }
                Some(found) => {
                    let (expected_bytes, found_bytes) = (pending.value.len(), found.len());
                    self.report(pending.line, &pending.key, What::WrongValue { expected_bytes, found_bytes });
                }
            }
        }
        Ok(())
    }

    fn report(&mut self, line: u64, key: &[u8], what: What) {
        match what {
            What::Missing => self.verdict.missing += 1,
            What::WrongValue { .. } => self.verdict.wrong += 1,
        }
        if self.verdict.findings.len() < self.findings_max {
            self.verdict.findings.push(Finding { line, key: key.to_vec(), what });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Cursor;

    use super::*;
    use crate::input::format::Format;
    use crate::input::record::Columns;

    struct Map {
        entries: BTreeMap<Vec<u8>, Vec<u8>>,
        waiting: Vec<(u64, Vec<u8>)>,
    }

    impl Lookup for &mut Map {
        fn submit(&mut self, token: u64, key: &[u8]) -> anyhow::Result<()> {
            self.waiting.push((token, key.to_vec()));
            Ok(())
        }

        fn poll(&mut self, wait: bool, answers: &mut Vec<LookupAnswer>) -> anyhow::Result<()> {
            if wait && let Some((token, key)) = self.waiting.pop() {
                answers.push((token, Ok(self.entries.get(&key).cloned())));
            }
            Ok(())
        }
    }

    fn prove(source: &str, acknowledged: &[u64], entries: &[(&str, &str)]) -> ProofVerdict {
        let columns = Columns { key: None, value: None, value_default: None, escaped: false };
        let parser = Parser::new(Format::Tsv, &columns).unwrap();
        let parser = if source.starts_with('#') { parser.of_dump() } else { parser };
        let mut lines = LineSet::default();
        acknowledged.iter().for_each(|line| lines.insert(*line));
        let claim = Claim {
            parser: &parser,
            limits: Limits { key_bytes_max: 100, value_bytes_max: 100 },
            skip: 0,
            acknowledged: Some(&lines),
        };
        let bytes = |(key, value): &(&str, &str)| (key.as_bytes().to_vec(), value.as_bytes().to_vec());
        let mut map = Map { entries: entries.iter().map(bytes).collect(), waiting: Vec::new() };
        let mut prover = Prover::new(&mut map, claim, 8, 10);
        prover.look_up(&mut Lines::new(Cursor::new(source)), &mut |_| Ok(())).unwrap();
        if prover.has_suspects() {
            prover.judge(&mut Lines::new(Cursor::new(source)), &mut |_| Ok(())).unwrap();
        }
        prover.into_verdict()
    }

    #[test]
    fn prove_everything_acknowledged_is_there() {
        let verdict = prove("a\t1\nb\t2\nc\t3\n", &[1, 2, 3], &[("a", "1"), ("b", "2"), ("c", "3")]);
        assert!(verdict.holds());
        assert_eq!((verdict.lines, verdict.acknowledged, verdict.bad), (3, 3, 0));
    }

    /// Sources of which a line cannot be read, or which are not whole, and where all else is in the store.
    const UNREAD: [&str; 4] = [
        "a\t1\n\nb\t2\nc\n",
        "#cell-dump 1 tsv\na\t1\n",
        "#cell-dump 1 tsv escaped\na\t1\nb\t2\n",
        "#cell-dump 1 tsv escaped\na\t1\nb\t2\n#cell-dump end 3\n",
    ];

    fn passing() -> usize {
        let there = [("a", "1"), ("b", "2")];
        UNREAD.iter().filter(|source| prove(source, &[1, 2, 3, 4], &there).holds()).count()
    }

    /// Such a source once passed: what could not be read was not looked for.
    #[test]
    fn prove_what_cannot_be_read_is_not_proven() {
        assert_eq!(passing(), 0);
        let there = [("a", "1"), ("b", "2")];
        let verdict = prove(UNREAD[0], &[1, 2, 3, 4], &there);
        assert_eq!((verdict.acknowledged, verdict.bad, verdict.missing), (2, 2, 0));
        assert_eq!(verdict.first_bad, Some((2, LineError::KeyEmpty)));
        let verdict = prove(UNREAD[2], &[1, 2, 3], &there);
        assert!(matches!(verdict.incomplete, Some(Incomplete::NoEnd { begins: 1, read: 2 })));
        assert_eq!((verdict.acknowledged, verdict.bad), (2, 0), "what was read is looked for");
    }

    #[test]
    #[cfg(debug_assertions)]
    fn mutant_unread_passes_is_caught() {
        cell_terms::mutant::in_own_process(|| {
            cell_terms::mutant::plant(Some(Mutant::UnreadPasses));
            let passed = passing();
            cell_terms::mutant::plant(None);
            assert!(passed > 0);
            println!("mutant {} caught by cell-ops' proof", Mutant::UnreadPasses.name());
        });
    }

    #[test]
    fn prove_a_missing_acknowledged_line_is_named() {
        let verdict = prove("a\t1\nb\t2\n", &[1, 2], &[("a", "1")]);
        assert!(!verdict.holds());
        assert_eq!(verdict.findings, [Finding { line: 2, key: b"b".to_vec(), what: What::Missing }]);
    }

    #[test]
    fn prove_an_unacknowledged_line_may_be_there_or_not() {
        assert!(prove("a\t1\nb\t2\n", &[1], &[("a", "1")]).holds());
        let verdict = prove("a\t1\nb\t2\n", &[1], &[("a", "1"), ("b", "2")]);
        assert!(verdict.holds() && verdict.unknown == 1);
    }

    #[test]
    fn prove_of_repeated_keys_the_last_acknowledged_line_wins() {
        let source = "a\t1\na\t2\na\t3\n";
        assert!(prove(source, &[1, 2, 3], &[("a", "3")]).holds());
        assert_eq!(prove(source, &[1, 2, 3], &[("a", "2")]).wrong, 1);
        assert!(prove(source, &[1, 2], &[("a", "2")]).holds());
        assert!(prove(source, &[1, 2], &[("a", "3")]).holds(), "line 3 may have been in flight");
        let verdict = prove(source, &[1, 2], &[("a", "1")]);
        assert_eq!((verdict.wrong, verdict.findings[0].line), (1, 2));
        assert_eq!(prove(source, &[1], &[]).missing, 1);
    }

    #[test]
    fn prove_a_value_that_no_line_explains_is_wrong() {
        let verdict = prove("a\t1\n", &[1], &[("a", "other")]);
        let what = What::WrongValue { expected_bytes: 1, found_bytes: 5 };
        assert_eq!(verdict.findings, [Finding { line: 1, key: b"a".to_vec(), what }]);
    }
}
