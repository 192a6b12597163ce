//! `cell inspect image`: checkpoint images.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;

use cell_terms::PairId;
use cell_wal::folder::list_images;
use cell_wal::image::{BlockBuffer, ImageReader};
use cell_wal::{Storage, WalError};
use clap::Args;
use serde_json::{Value, json};

use crate::args::Global;
use crate::exit::Exit;
use crate::output::message::{self, print_json};
use crate::output::number;

/// Arguments of `cell inspect image`.
#[derive(Debug, Args)]
pub(crate) struct ImageArgs {
    /// A data folder, or a log root
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// The pair
    #[arg(long, value_name = "N", default_value_t = 1)]
    pair: u32,
    /// Do not read the blocks: only header, index and footer are checked
    #[arg(long)]
    index_only: bool,
}

/// What the blocks of one section hold.
#[derive(Clone, Copy, Default)]
struct Section {
    blocks: u64,
    items: u64,
    stored_bytes: u64,
    raw_bytes: u64,
}

/// Shows every image of the pair; exit code 7 if one is damaged.
pub(super) fn run(global: &Global, arguments: &ImageArgs) -> anyhow::Result<Exit> {
    let storage = super::storage(&arguments.dir)?;
    let pair = PairId(arguments.pair);
    let images = list_images(&*storage, pair)?;
    if images.is_empty() {
        message::note(&format!("{pair} has no images"));
    }
    let mut damaged = false;
    for image in images {
        let path = image.path(pair);
        let outcome = show(global, &*storage, &path, arguments.index_only);
        if let Err(error) = outcome {
            damaged = true;
            message::error(&error.context(path), global.json);
        }
    }
    Ok(if damaged { Exit::VerificationFailed } else { Exit::Ok })
}

fn show(global: &Global, storage: &dyn Storage, path: &str, index_only: bool) -> anyhow::Result<()> {
    let reader = ImageReader::open(storage, path)?;
    let sections = sections(&reader);
    let checked = if index_only { Ok(()) } else { check_blocks(&reader) };
    let (header, summary) = (reader.header(), reader.summary());
    if global.json {
        print_json(json!({
            "path": path, "pair": header.pair.0, "epoch": header.epoch.0, "base": header.base.0,
            "csn_max": summary.csn_max.0, "file_bytes": summary.file_bytes, "blocks": summary.blocks,
            "items": summary.items, "raw_bytes": summary.raw_bytes, "stored_bytes": summary.stored_bytes,
            "blocks_checked": !index_only, "sound": checked.is_ok(),
            "sections": sections.iter().map(section_json).collect::<Vec<_>>(),
        }))?;
    } else {
        let mut out = io::stdout().lock();
        writeln!(
            out,
            "{path}: {}, {}, base {}, highest {}, {} ({} raw) in {} blocks{}",
            header.pair,
            header.epoch,
            header.base,
            summary.csn_max,
            number::bytes(summary.file_bytes),
            number::bytes(summary.raw_bytes),
            number::count(summary.blocks.into()),
            if index_only {
                ""
            } else if checked.is_ok() {
                ", every block sound"
            } else {
                ", DAMAGED"
            },
        )?;
        for (number, section) in &sections {
            let items = number::count(section.items);
            let (stored, raw) = (number::bytes(section.stored_bytes), number::bytes(section.raw_bytes));
            writeln!(
                out,
                "  section {number}: {items} items in {} blocks, {stored} ({raw} raw)",
                section.blocks
            )?;
        }
    }
    Ok(checked?)
}

fn sections(reader: &ImageReader) -> BTreeMap<u16, Section> {
    let mut sections: BTreeMap<u16, Section> = BTreeMap::new();
    for block in reader.blocks() {
        let section = sections.entry(block.section).or_default();
        section.blocks += 1;
        section.items += u64::from(block.items);
        section.stored_bytes += u64::from(block.stored_bytes);
        section.raw_bytes += u64::from(block.raw_bytes);
    }
    sections
}

fn section_json((number, section): (&u16, &Section)) -> Value {
    json!({
        "section": number, "blocks": section.blocks, "items": section.items,
        "stored_bytes": section.stored_bytes, "raw_bytes": section.raw_bytes,
    })
}

fn check_blocks(reader: &ImageReader) -> Result<(), WalError> {
    let mut buffer = BlockBuffer::default();
    (0..reader.blocks().len()).try_for_each(|block| reader.read(block, &mut buffer).map(|_| ()))
}
