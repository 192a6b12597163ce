//! `cell verify`: the server checks its tree, the whole store is walked in order, and a source is proven
//! present.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cell_client::ScanRange;
use cell_protocol::CheckReport;
use clap::Args;
use serde_json::{Map, Value, json};

use crate::args::{Global, ServerArgs};
use crate::encoding::{display_key, insert_json};
use crate::exit::{Exit, Failure};
use crate::input::content::Content;
use crate::input::source::{Opened, SourceArgs};
use crate::load::loader::record_of;
use crate::load::lookups::Lookups;
use crate::load::progress::{Fingerprint, Progress, ProgressFile};
use crate::load::proof::{Claim, Finding, ProofVerdict, Prover, What};
use crate::members::needed_members;
use crate::output::{bar, message, number};
use crate::signal;
use crate::store::Store;

/// Keys that are looked up at a time.
const IN_FLIGHT: usize = 2048;

/// How long the server may check.
const CHECK_MAX: Duration = Duration::from_secs(3600);

/// Arguments of `cell verify`.
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// Prove that the records of this file are in the store
    #[arg(long = "source", value_name = "FILE")]
    file: Option<PathBuf>,
    /// Only the lines that this progress file of `cell load` names as acknowledged must be there; others may
    #[arg(long, value_name = "FILE", requires = "file")]
    progress: Option<PathBuf>,
    /// Nothing but the source's records may be in the store
    #[arg(long, requires = "file")]
    exact: bool,
    #[command(flatten)]
    source: SourceArgs,
    /// At most so many findings are listed; all are counted
    #[arg(long, value_name = "N", default_value_t = 20)]
    findings: usize,
    #[command(flatten)]
    server: ServerArgs,
}

/// What each part found.
#[derive(Default)]
struct Findings {
    documents: Map<String, Value>,
    lines: Vec<String>,
    failed: bool,
}

impl Findings {
    fn add(&mut self, name: &str, holds: bool, words: String, mut document: Value) {
        document["ok"] = holds.into();
        self.documents.insert(name.to_owned(), document);
        let sign = if holds { "ok" } else { "FAILED" };
        self.lines.push(format!("{name}: {sign}: {words}"));
        self.failed |= !holds;
    }
}

/// Verifies; exit code 7 if anything is missing or wrong.
pub(crate) fn run(global: &Global, arguments: &VerifyArgs) -> anyhow::Result<Exit> {
    let stop = signal::stop_flag()?;
    let mut store = Store::connect_unless(&stop, &arguments.server, Duration::from_secs(600), IN_FLIGHT)?;
    let mut findings = Findings::default();
    let nodes = needed_members(&arguments.server, Duration::from_secs(60))?;
    let stores: anyhow::Result<Vec<Store>> = nodes.into_iter().map(|node| node.store).collect();
    let mut nodes = stores?;
    let before = durable(&mut nodes)?;
    let entries_checked = check_tree(&mut nodes, &mut findings)?;
    let source_keys = match &arguments.file {
        Some(file) if arguments.exact => Some(keys_of(&mut store, arguments, file, &stop)?),
        _ => None,
    };
    let scanned = scan_all(&mut store, source_keys.as_ref(), arguments.findings, &mut findings, &stop)?;
    let is_quiet = before == durable(&mut nodes)?;
    compare_counts(scanned, entries_checked, is_quiet, &mut findings);
    if let Some(file) = &arguments.file {
        prove_source(&mut store, arguments, file, &mut findings, &stop)?;
    }
    if global.json {
        let mut document = findings.documents;
        document.insert("ok".into(), (!findings.failed).into());
        message::print_json(document.into())?;
    } else {
        let mut out = io::stdout().lock();
        for line in &findings.lines {
            writeln!(out, "{line}")?;
        }
    }
    Ok(if findings.failed { Exit::VerificationFailed } else { Exit::Ok })
}

/// The durable watermarks, to see whether the store was written to meanwhile.
fn durable(nodes: &mut [Store]) -> anyhow::Result<Vec<(u32, u32, u64)>> {
    let mut durable = Vec::new();
    for node in nodes {
        let status = node.status()?;
        let pairs = status.report().pairs;
        durable.extend(pairs.iter().map(|pair| (pair.pair.0, pair.epoch.0, pair.durable.0)));
    }
    durable.sort_unstable();
    Ok(durable)
}

/// What all nodes' checks found together, one after the other.
fn check_nodes(nodes: &mut [Store]) -> anyhow::Result<(CheckReport<'static>, String)> {
    let (mut sum, mut violation) = (CheckReport::default(), String::new());
    for node in nodes {
        let kept = node.check(CHECK_MAX)?;
        let report = kept.report();
        sum.meganodes += report.meganodes;
        sum.tree_nodes += report.tree_nodes;
        sum.entries += report.entries;
        sum.extent_bytes += report.extent_bytes;
        sum.violations += report.violations;
        sum.duration_us += report.duration_us;
        if violation.is_empty() {
            report.first_violation.clone_into(&mut violation);
        }
    }
    Ok((sum, violation))
}

fn check_tree(nodes: &mut [Store], findings: &mut Findings) -> anyhow::Result<u64> {
    message::note("asking the servers to check their trees and every extent");
    let (report, violation) = check_nodes(nodes)?;
    let report = CheckReport { first_violation: &violation, ..report };
    let words = if report.violations == 0 {
        format!(
            "{} entries in {} tree nodes of {} meganodes, {} of extents against their checksums, {}",
            number::count(report.entries),
            number::count(report.tree_nodes),
            number::count(report.meganodes),
            number::bytes(report.extent_bytes),
            number::time(Duration::from_micros(report.duration_us)),
        )
    } else {
        format!("{} violations; the first: {}", number::count(report.violations), report.first_violation)
    };
    let document = json!({
        "meganodes": report.meganodes, "tree_nodes": report.tree_nodes, "entries": report.entries,
        "extent_bytes": report.extent_bytes, "violations": report.violations,
        "first_violation": report.first_violation, "duration_us": report.duration_us,
    });
    findings.add("tree", report.violations == 0, words, document);
    Ok(report.entries)
}

fn scan_all(
    store: &mut Store,
    source_keys: Option<&KeySet>,
    findings_max: usize,
    findings: &mut Findings,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<u64> {
    let bar = bar::Bar::new("scanning", None, false);
    let mut last: Option<Vec<u8>> = None;
    let mut unordered = None;
    let (mut bytes, mut seen, mut foreign) = (0_u64, 0_u64, 0_u64);
    let mut foreign_keys = Vec::new();
    let count = store.scan(ScanRange::default(), &mut |found| {
        interrupted(stop)?;
        if last.as_deref().is_some_and(|last| last >= &found.key[..]) && unordered.is_none() {
            unordered = Some(found.key.clone());
        }
        if source_keys.is_some_and(|keys| !keys.contains(&found.key)) {
            foreign += 1;
            if foreign_keys.len() < findings_max {
                foreign_keys.push(found.key.clone());
            }
        }
        let last = last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(&found.key);
        bytes += found.key.len() as u64 + u64::from(found.value_len);
        seen += 1;
        if seen.is_multiple_of(4096) {
            bar.set(seen, format!("{} entries", number::count(seen)));
        }
        Ok(())
    })?;
    bar.finish();
    let mut document = json!({"entries": count, "bytes": bytes});
    let mut words = format!("{} entries, {}, in order", number::count(count), number::bytes(bytes));
    if let Some(key) = &unordered {
        words = format!("the key {} does not follow the one before it", display_key(key));
        document["unordered_key"] = display_key(key).into();
    }
    findings.add("scan", unordered.is_none(), words, document);
    if source_keys.is_some() {
        let listed: Vec<_> = foreign_keys.iter().map(|key| display_key(key)).collect();
        let words = format!("{} keys are not in the source {}", number::count(foreign), listed.join(", "));
        let document = json!({"foreign": foreign, "keys": listed});
        findings.add("exact", foreign == 0, words.trim_end().to_owned(), document);
    }
    Ok(count)
}

fn compare_counts(scanned: u64, checked: u64, is_quiet: bool, findings: &mut Findings) {
    if !is_quiet {
        message::note("the store was written to meanwhile: the counts of check and scan are not compared");
        return;
    }
    let words =
        format!("the scan met {} entries, the check {}", number::count(scanned), number::count(checked));
    findings.add("count", scanned == checked, words, json!({"scanned": scanned, "checked": checked}));
}

fn prove_source(
    store: &mut Store,
    arguments: &VerifyArgs,
    file: &Path,
    findings: &mut Findings,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<()> {
    let mut opened = open_file(arguments, file)?;
    let progress = read_progress(arguments, file, &opened)?;
    let limits = store.limits();
    let claim = Claim {
        parser: &opened.parser,
        limits,
        skip: opened.skip,
        acknowledged: progress.as_ref().map(|progress| &progress.settled),
    };
    let mut prover = Prover::new(Lookups::new(store), claim, IN_FLIGHT, arguments.findings);
    let bar = bar::Bar::new("proving", opened.bytes_total, true);
    let consumed = opened.consumed.clone();
    prover.look_up(&mut opened.lines, &mut |line| {
        if line.is_multiple_of(1024) {
            bar.set(consumed.bytes(), format!("{} lines", number::count(line)));
        }
        interrupted(stop)
    })?;
    if prover.has_suspects() {
        let mut again = open_file(arguments, file)?;
        prover.judge(&mut again.lines, &mut |_| interrupted(stop))?;
    }
    bar.finish();
    report_source(&prover.into_verdict(), progress.as_ref(), findings);
    Ok(())
}

fn report_source(verdict: &ProofVerdict, progress: Option<&Progress>, findings: &mut Findings) {
    let mut words = format!(
        "{} acknowledged records, {} missing, {} wrong; {} not acknowledged, {} bad lines",
        number::count(verdict.acknowledged),
        number::count(verdict.missing),
        number::count(verdict.wrong),
        number::count(verdict.unknown),
        number::count(verdict.bad),
    );
    if let Some((line, why)) = &verdict.first_bad {
        words.push_str(&format!(", which are not in the store; the first: line {line}: {why}"));
    }
    if let Some(incomplete) = &verdict.incomplete {
        words.push_str(&format!("; {incomplete}"));
    }
    // The progress file counts what was acknowledged; a source that yields fewer was not read as it was
    // loaded.
    let recorded = progress.map(|progress| progress.records);
    let all_found = recorded.is_none_or(|recorded| recorded == verdict.acknowledged);
    if let (false, Some(recorded)) = (all_found, recorded) {
        words.push_str(&format!("; the progress file counts {} acknowledged", number::count(recorded)));
    }
    for finding in &verdict.findings {
        words.push_str("\n  ");
        words.push_str(&in_words(finding));
    }
    let first_bad = verdict.first_bad.as_ref();
    let first_bad = first_bad.map(|(line, why)| json!({"line": line, "why": why.to_string()}));
    let document = json!({
        "lines": verdict.lines, "acknowledged": verdict.acknowledged, "recorded": recorded,
        "unknown": verdict.unknown, "bad": verdict.bad, "missing": verdict.missing, "wrong": verdict.wrong,
        "first_bad": first_bad,
        "incomplete": verdict.incomplete.as_ref().map(ToString::to_string),
        "findings": verdict.findings.iter().map(finding_document).collect::<Vec<_>>(),
    });
    findings.add("source", verdict.holds() && all_found, words, document);
}

fn in_words(finding: &Finding) -> String {
    let key = display_key(&finding.key);
    match finding.what {
        What::Missing => format!("line {}: {key} is missing", finding.line),
        What::WrongValue { expected_bytes, found_bytes } => format!(
            "line {}: {key} has another value, {found_bytes} bytes in place of {expected_bytes} bytes",
            finding.line
        ),
    }
}

fn finding_document(finding: &Finding) -> Value {
    let mut object = Map::new();
    object.insert("line".into(), finding.line.into());
    insert_json(&mut object, "key", &finding.key);
    match finding.what {
        What::Missing => {
            object.insert("what".into(), "missing".into());
        }
        What::WrongValue { expected_bytes, found_bytes } => {
            object.insert("what".into(), "wrong_value".into());
            object.insert("expected_bytes".into(), expected_bytes.into());
            object.insert("found_bytes".into(), found_bytes.into());
        }
    }
    object.into()
}

fn open_file(arguments: &VerifyArgs, file: &Path) -> anyhow::Result<Opened> {
    if file.as_os_str() == "-" {
        return Err(Failure::usage("--source needs a file: it may have to be read twice").into());
    }
    arguments.source.open(file, Exit::VerificationFailed)
}

fn read_progress(arguments: &VerifyArgs, file: &Path, opened: &Opened) -> anyhow::Result<Option<Progress>> {
    let Some(path) = &arguments.progress else { return Ok(None) };
    let source = Fingerprint::of(file, opened.format, &opened.columns, opened.skip)?;
    let progress = ProgressFile::new(path.clone(), source).read()?;
    let missing = || Failure::usage(format!("there is no progress file {}", path.display()));
    Ok(Some(progress.ok_or_else(missing)?))
}

/// Keys of a source, as hashes: a set of strings would be several times as large, and a collision (one in
/// 2^64 a pair of keys) can only hide one foreign key.
struct KeySet {
    hashes: HashSet<u64>,
    hasher: RandomState,
}

impl KeySet {
    fn contains(&self, key: &[u8]) -> bool {
        self.hashes.contains(&self.hasher.hash_one(key))
    }
}

fn keys_of(
    store: &mut Store,
    arguments: &VerifyArgs,
    file: &Path,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<KeySet> {
    let mut opened = open_file(arguments, file)?;
    let limits = store.limits();
    let mut keys = KeySet { hashes: HashSet::new(), hasher: RandomState::new() };
    let mut content = Content::new(&mut opened.lines, &opened.parser, opened.skip);
    // Of a source that is not whole, the proof says so: it reads it once more.
    while let Ok(Some((_, line))) = content.next() {
        interrupted(stop)?;
        if let Some(line) = line
            && let Ok(record) = record_of(&line, &opened.parser, &limits)
        {
            keys.hashes.insert(keys.hasher.hash_one(&*record.key));
        }
    }
    Ok(keys)
}

fn interrupted(stop: &AtomicBool) -> anyhow::Result<()> {
    if stop.load(Ordering::Relaxed) {
        return Err(Failure::new(Exit::Interrupted, "interrupted; nothing is proven").into());
    }
    Ok(())
}
