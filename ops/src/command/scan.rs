//! `cell scan` and `cell count`: a range in order.

use std::io::{self, BufWriter, Write};
use std::time::Duration;

use cell_client::ScanRange;
use clap::Args;
use serde_json::{Value, json};

use crate::args::{EncodingArgs, Global, ServerArgs};
use crate::encoding::Encoding;
use crate::exit::Exit;
use crate::output::message::print_json;
use crate::output::{bar, entry, number};
use crate::range::RangeArgs;
use crate::store::Store;

/// Arguments of `cell scan`.
#[derive(Debug, Args)]
pub(crate) struct ScanArgs {
    #[command(flatten)]
    range: RangeArgs,
    /// From the last key to the first
    #[arg(long)]
    reverse: bool,
    /// At most so many entries
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// No values
    #[arg(long)]
    keys_only: bool,
    #[command(flatten)]
    encoding: EncodingArgs,
    /// Keys and values as they are, even if they hold tabs and line ends
    #[arg(long, group = "encoding", help_heading = "Encoding")]
    raw: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// Prints a line for each entry: KEY<tab>VALUE, escaped unless another encoding was chosen.
pub(crate) fn run_scan(global: &Global, arguments: &ScanArgs) -> anyhow::Result<Exit> {
    let range = ScanRange {
        reverse: arguments.reverse,
        keys_only: arguments.keys_only,
        limit: arguments.limit.unwrap_or(u64::MAX),
        ..arguments.range.range(arguments.encoding)?
    };
    let default = if arguments.raw { Encoding::Text } else { Encoding::Escaped };
    let encoding = arguments.encoding.output_or(default);
    let mut store = Store::connect(&arguments.server, Duration::from_secs(30))?;
    let mut out = BufWriter::new(io::stdout().lock());
    let mut line = Vec::new();
    store.scan(range, &mut |found| {
        line.clear();
        let value = (!arguments.keys_only).then_some(&found.value[..]);
        if global.json {
            let more: [(_, Value); 2] = [
                ("entry_version", found.version.to_string().into()),
                ("value_bytes", found.value_len.into()),
            ];
            entry::json(&found.key, value, &more, &mut line);
        } else {
            entry::tsv(encoding, &found.key, value, &mut line);
        }
        Ok(out.write_all(&line)?)
    })?;
    out.flush()?;
    Ok(Exit::Ok)
}

/// Arguments of `cell count`.
#[derive(Debug, Args)]
pub(crate) struct CountArgs {
    #[command(flatten)]
    range: RangeArgs,
    #[command(flatten)]
    encoding: EncodingArgs,
    #[command(flatten)]
    server: ServerArgs,
}

/// Prints how many entries a range has, by walking its keys.
pub(crate) fn run_count(global: &Global, arguments: &CountArgs) -> anyhow::Result<Exit> {
    let range = ScanRange { keys_only: true, ..arguments.range.range(arguments.encoding)? };
    let mut store = Store::connect(&arguments.server, Duration::from_secs(30))?;
    let bar = bar::Bar::new("counting", None, false);
    let mut seen = 0_u64;
    let count = store.scan(range, &mut |_| {
        seen += 1;
        if seen.is_multiple_of(4096) {
            bar.set(seen, number::count(seen));
        }
        Ok(())
    })?;
    bar.finish();
    if global.json {
        print_json(json!({"count": count}))?;
    } else {
        writeln!(io::stdout().lock(), "{count}")?;
    }
    Ok(Exit::Ok)
}
