//! `cell inspect log`: every log below a folder.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;

use cell_terms::text::with_causes;
use cell_terms::{Csn, Epoch, RegionId, RegionKind};
use cell_wal::folder::{list_epochs, list_images, list_regions, list_segments};
use cell_wal::frame::{FrameFault, FrameKind};
use cell_wal::inspect::{InspectedFrame, Walked, walk_log};
use cell_wal::{LogId, Storage};
use clap::Args;
use serde_json::{Value, json};

use super::record::in_words;
use crate::args::Global;
use crate::exit::Exit;
use crate::output::message::{self, print_json};
use crate::output::number;

/// Arguments of `cell inspect log`.
#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    /// A data folder, or a log root
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Only this region's logs
    #[arg(long, value_name = "N")]
    region: Option<u32>,
    /// Only this epoch's logs
    #[arg(long, value_name = "N")]
    epoch: Option<u32>,
    /// Show every frame
    #[arg(long)]
    frames: bool,
    /// Show every record
    #[arg(long)]
    records: bool,
}

/// What a log holds.
#[derive(Default)]
struct Summary {
    frames: u64,
    records: u64,
    payload_bytes: u64,
    csn_first: Option<u64>,
    csn_last: u64,
    csn_durable: u64,
    unreadable: u64,
}

/// Walks every log; exit code 7 if one has a sound frame beyond its end: then the end is damage, not a tear.
pub(super) fn run(global: &Global, arguments: &LogArgs) -> anyhow::Result<Exit> {
    let storage = super::storage(&arguments.dir)?;
    let mut damaged = false;
    let mut found = false;
    for region in list_regions(&*storage)? {
        if arguments.region.is_some_and(|wanted| wanted != region.0) {
            continue;
        }
        for epoch in list_epochs(&*storage, region)? {
            if arguments.epoch.is_none_or(|wanted| wanted == epoch.0) {
                found = true;
                damaged |= show_log(global, arguments, &storage, region, epoch)?;
            }
        }
    }
    if !found {
        message::note("there are no logs");
    }
    Ok(if damaged { Exit::VerificationFailed } else { Exit::Ok })
}

fn show_log(
    global: &Global,
    arguments: &LogArgs,
    storage: &Arc<dyn Storage>,
    region: RegionId,
    epoch: Epoch,
) -> anyhow::Result<bool> {
    let kind = kind_of(region);
    let id = LogId { pair: region.pair(), epoch };
    let images = list_images(&**storage, id.pair)?;
    let base = images.iter().map(|image| image.base).max().unwrap_or(Csn::ZERO);
    let segments = list_segments(&**storage, id.log(kind))?;
    let mut out = BufWriter::new(io::stdout().lock());
    let mut summary = Summary::default();
    let mut failed = None;
    let walked = walk_log(storage, id, kind, base, |frame| {
        summary.add(frame);
        if failed.is_none() && (arguments.frames || arguments.records) {
            failed = show_frame(global, arguments, kind, frame, &mut out).err();
        }
    });
    if let Some(error) = failed {
        return Err(error);
    }
    out.flush()?;
    drop(out);
    let walked = match walked {
        Ok(walked) => walked,
        Err(error) => {
            message::error(&anyhow::anyhow!("{region}, {epoch}: {}", with_causes(&error)), global.json);
            return Ok(true);
        }
    };
    report(global, (region, kind, epoch), segments.len(), &summary, &walked)?;
    Ok(walked.end.later.is_some() || summary.unreadable > 0)
}

fn kind_of(region: RegionId) -> RegionKind {
    if region == region.pair().node_region() { RegionKind::Node } else { RegionKind::Extent }
}

impl Summary {
    fn add(&mut self, frame: &InspectedFrame<'_>) {
        let header = &frame.header;
        self.frames += 1;
        self.records += u64::from(header.records);
        self.payload_bytes += u64::from(header.payload_bytes);
        self.csn_durable = self.csn_durable.max(header.csn_durable.0);
        if header.records > 0 {
            self.csn_first.get_or_insert(header.csn_first.0);
            self.csn_last = self.csn_last.max(header.csn_last.0);
        }
        self.unreadable += frame.records().filter(Result::is_err).count() as u64;
    }
}

fn show_frame(
    global: &Global,
    arguments: &LogArgs,
    kind: RegionKind,
    frame: &InspectedFrame<'_>,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let header = &frame.header;
    if global.json {
        let mut document = json!({
            "version": message::JSON_VERSION,
            "segment": frame.place.segment.to_string(), "offset": frame.place.offset,
            "kind": kind_word(header.kind), "sequence": header.sequence,
            "csn_first": header.csn_first.0, "csn_last": header.csn_last.0,
            "csn_durable": header.csn_durable.0, "records": header.records,
            "payload_bytes": header.payload_bytes,
        });
        if arguments.records {
            document["record"] = frame.records().map(|record| record_json(kind, record)).collect();
        }
        return Ok(writeln!(out, "{document}")?);
    }
    let (place, durable) = (frame.place, header.csn_durable.0);
    let range = format!("csn {}..{}", header.csn_first.0, header.csn_last.0);
    let size = format!("{} records in {} bytes", header.records, header.payload_bytes);
    writeln!(out, "{place}: {} {range}, durable {durable}, {size}", kind_word(header.kind))?;
    if arguments.records {
        for record in frame.records() {
            match record {
                Ok(record) => writeln!(out, "  {}: {}", record.csn, in_words(kind, record.payload))?,
                Err(error) => writeln!(out, "  UNREADABLE: {error}")?,
            }
        }
    }
    Ok(())
}

fn record_json(
    kind: RegionKind,
    record: Result<cell_wal::Record<'_>, cell_wal::record::RecordFault>,
) -> Value {
    match record {
        Ok(record) => {
            let says = in_words(kind, record.payload);
            json!({"csn": record.csn.0, "bytes": record.payload.len(), "says": says})
        }
        Err(error) => json!({"error": error.to_string()}),
    }
}

fn report(
    global: &Global,
    (region, kind, epoch): (RegionId, RegionKind, Epoch),
    segments: usize,
    summary: &Summary,
    Walked { end, skipped }: &Walked,
) -> anyhow::Result<()> {
    if global.json {
        print_json(json!({
            "region": region.0, "region_kind": kind.to_string(), "epoch": epoch.0, "segments": segments,
            "frames": summary.frames, "records": summary.records, "payload_bytes": summary.payload_bytes,
            "csn_first": summary.csn_first, "csn_last": summary.csn_last, "csn_durable": summary.csn_durable,
            "unreadable_records": summary.unreadable,
            "released_segment": skipped.map(|segment| segment.to_string()),
            "end": {
                "segment": end.place.segment.to_string(), "offset": end.place.offset,
                "fault": end.fault.to_string(), "later_frame": end.later.map(|place| place.to_string()),
            },
        }))?;
        return Ok(());
    }
    let range = match summary.csn_first {
        Some(first) => format!("csn {first}..{}", summary.csn_last),
        None => "no records".into(),
    };
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{region} ({kind}), {epoch}: {segments} segments, {} frames, {} records, {}, {range}, durable {}",
        number::count(summary.frames),
        number::count(summary.records),
        number::bytes(summary.payload_bytes),
        summary.csn_durable,
    )?;
    if summary.unreadable > 0 {
        writeln!(out, "  DAMAGED: {} frames have records that do not parse", summary.unreadable)?;
    }
    if let Some(segment) = skipped {
        writeln!(out, "  {segment} is not there: it was released, its records are in an image")?;
    }
    match end.later {
        Some(later) => {
            writeln!(out, "  DAMAGED at {}: {}; a sound frame follows at {later}", end.place, end.fault)?;
        }
        None if matches!(end.fault, FrameFault::Zeros | FrameFault::EndOfFile) => {
            writeln!(out, "  ends at {}", end.place)?;
        }
        // A tear, or what an earlier use left in a recycled file.
        None => {
            writeln!(out, "  ends at {}: what follows is no frame of this log ({})", end.place, end.fault)?
        }
    }
    Ok(())
}

fn kind_word(kind: FrameKind) -> &'static str {
    match kind {
        FrameKind::Batch { other: true } => "batch (both logs)",
        FrameKind::Batch { other: false } => "batch",
        FrameKind::Seal => "seal",
        FrameKind::Open => "open",
        FrameKind::Rotate { .. } => "rotate",
    }
}
