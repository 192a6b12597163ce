//! `cell dump`: a range as lines that `cell load` reads back.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context;
use cell_client::ScanRange;
use clap::{Args, ValueEnum};

use crate::args::{EncodingArgs, Global, ServerArgs};
use crate::encoding::Encoding;
use crate::exit::{Exit, Failure, is_broken_pipe};
use crate::input::format::Format;
use crate::output::message;
use crate::output::{bar, entry, file, number};
use crate::range::RangeArgs;
use crate::signal;
use crate::store::Store;

/// Arguments of `cell dump`.
#[derive(Debug, Args)]
pub(crate) struct DumpArgs {
    /// Where to; `-` is stdout. A file appears when it is complete; a device or a fifo is written to
    #[arg(default_value = "-", value_name = "FILE")]
    file: PathBuf,
    /// Lines of key and value: tsv with escapes, or JSON objects; tsv unless --json is given
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// How the output is packed
    #[arg(long, value_enum, default_value = "none")]
    compress: Packing,
    #[command(flatten)]
    range: RangeArgs,
    #[command(flatten)]
    encoding: EncodingArgs,
    #[command(flatten)]
    server: ServerArgs,
}

/// How output is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Packing {
    /// As it is.
    None,
    /// gzip.
    Gzip,
    /// zstd.
    Zstd,
}

/// Writes all entries of the range. What is written while the dump runs may be in it or not, entry by entry.
pub(crate) fn run(global: &Global, arguments: &DumpArgs) -> anyhow::Result<Exit> {
    let range = arguments.range.range(arguments.encoding)?;
    let format = arguments.format.unwrap_or(if global.json { Format::Json } else { Format::Tsv });
    let mut store = Store::connect(&arguments.server, Duration::from_secs(30))?;
    if arguments.file.as_os_str() == "-" {
        dump_to_stdout(&mut store, range, format, arguments.compress).map_err(reader_went_away)?;
    } else {
        let count = dump_to_file(&mut store, range, format, arguments.compress, &arguments.file)?;
        message::note(&format!("{} entries in {}", number::count(count), arguments.file.display()));
    }
    Ok(Exit::Ok)
}

fn dump_to_stdout(
    store: &mut Store,
    range: ScanRange,
    format: Format,
    compress: Packing,
) -> anyhow::Result<()> {
    let mut out = Packer::new(io::stdout().lock(), compress)?;
    write_entries(store, range, format, &mut out)?;
    out.finish()?.flush()?;
    Ok(())
}

fn dump_to_file(
    store: &mut Store,
    range: ScanRange,
    format: Format,
    compress: Packing,
    path: &Path,
) -> anyhow::Result<u64> {
    let written = file::write(path, |file| {
        let mut out = Packer::new(file, compress)?;
        let count = write_entries(store, range, format, &mut out)?;
        Ok((out.finish()?, count))
    });
    written.map_err(reader_went_away).with_context(|| format!("cannot write {}", path.display()))
}

/// To other commands a reader that has seen enough is no error.
fn reader_went_away(error: anyhow::Error) -> anyhow::Error {
    match is_broken_pipe(&error) {
        true => Failure::new(Exit::Error, "whoever reads the dump went away before its end").into(),
        false => error,
    }
}

fn write_entries(
    store: &mut Store,
    range: ScanRange,
    format: Format,
    out: &mut impl Write,
) -> anyhow::Result<u64> {
    out.write_all(format.heading())?;
    out.write_all(b"\n")?;
    let stop = signal::stop_flag()?;
    let bar = bar::Bar::new("dumping", None, false);
    let mut line = Vec::new();
    let mut count = 0_u64;
    let entries = store.scan(range, &mut |found| {
        if stop.load(Ordering::Relaxed) {
            return Err(Failure::new(Exit::Interrupted, "interrupted; the dump is not complete").into());
        }
        line.clear();
        match format {
            Format::Tsv => entry::tsv(Encoding::Escaped, &found.key, Some(&found.value), &mut line),
            Format::Json => entry::json(&found.key, Some(&found.value), &[], &mut line),
        }
        out.write_all(&line)?;
        count += 1;
        if count.is_multiple_of(4096) {
            bar.set(count, number::count(count));
        }
        Ok(())
    })?;
    // Whatever ends a dump before this leaves it without: `load` refuses it.
    out.write_all(format.end(entries).as_bytes())?;
    out.write_all(b"\n")?;
    Ok(entries)
}

/// A writer that may compress.
enum Packer<W: Write> {
    Plain(BufWriter<W>),
    Gzip(flate2::write::GzEncoder<BufWriter<W>>),
    Zstd(zstd::Encoder<'static, BufWriter<W>>),
}

impl<W: Write> Packer<W> {
    fn new(out: W, packing: Packing) -> io::Result<Packer<W>> {
        let out = BufWriter::with_capacity(256 << 10, out);
        Ok(match packing {
            Packing::None => Packer::Plain(out),
            Packing::Gzip => Packer::Gzip(flate2::write::GzEncoder::new(out, flate2::Compression::default())),
            Packing::Zstd => {
                let mut encoder = zstd::Encoder::new(out, 3)?;
                encoder.include_checksum(true)?;
                Packer::Zstd(encoder)
            }
        })
    }

    fn finish(self) -> io::Result<W> {
        let buffered = match self {
            Packer::Plain(out) => out,
            Packer::Gzip(encoder) => encoder.finish()?,
            Packer::Zstd(encoder) => encoder.finish()?,
        };
        buffered.into_inner().map_err(io::IntoInnerError::into_error)
    }
}

impl<W: Write> Write for Packer<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Packer::Plain(out) => out.write(bytes),
            Packer::Gzip(out) => out.write(bytes),
            Packer::Zstd(out) => out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Packer::Plain(out) => out.flush(),
            Packer::Gzip(out) => out.flush(),
            Packer::Zstd(out) => out.flush(),
        }
    }
}
