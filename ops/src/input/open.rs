//! Opens a file or stdin; gzip and zstd are recognised by content, never by name.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;

use crate::exit::Failure;

/// Where data comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Stdin,
    File(PathBuf),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Stdin => f.write_str("stdin"),
            Source::File(path) => path.display().fmt(f),
        }
    }
}

impl From<&Path> for Source {
    fn from(path: &Path) -> Source {
        if path.as_os_str() == "-" { Source::Stdin } else { Source::File(path.to_owned()) }
    }
}

/// How the bytes are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compression {
    /// As they are.
    Plain,
    /// One or several gzip members.
    Gzip,
    /// One or several zstd frames, skippable ones too.
    Zstd,
}

/// What other packers begin a file with: its bytes would be taken for keys.
const OTHER_PACKERS: [(&str, &[u8]); 4] = [
    ("xz", b"\xfd7zXZ\0"),
    ("bzip2", b"BZh91AY&SY"),
    ("lz4", &[0x04, 0x22, 0x4d, 0x18]),
    ("zip", b"PK\x03\x04"),
];
/// The longest of them, and of those that are read.
const HEAD_BYTES: usize = 10;

/// Counts the (compressed) bytes that were taken from a source; the reader that counts is elsewhere.
#[derive(Clone, Debug, Default)]
pub(crate) struct Consumed(Arc<AtomicU64>);

impl Consumed {
    /// Bytes so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// An opened input.
pub(crate) struct Input {
    /// The bytes, unpacked.
    pub(crate) reader: Box<dyn BufRead + Send>,
    /// Size of the source in (compressed) bytes, where it is known.
    pub(crate) bytes_total: Option<u64>,
    /// What has been read of it.
    pub(crate) consumed: Consumed,
}

/// Opens a source and looks at its first bytes.
pub(crate) fn open(source: &Source) -> anyhow::Result<Input> {
    let (raw, bytes_total): (Box<dyn Read + Send>, _) = match source {
        Source::Stdin => (Box::new(io::stdin()), None),
        Source::File(path) => {
            let (file, bytes_total) = open_file(path)?;
            (Box::new(file), bytes_total)
        }
    };
    unpack(raw, bytes_total).with_context(|| format!("cannot read {source}"))
}

fn open_file(path: &Path) -> anyhow::Result<(File, Option<u64>)> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let metadata = file.metadata().with_context(|| format!("cannot look at {}", path.display()))?;
    anyhow::ensure!(!metadata.is_dir(), "{} is a folder", path.display());
    Ok((file, metadata.is_file().then_some(metadata.len())))
}

fn unpack(raw: Box<dyn Read + Send>, bytes_total: Option<u64>) -> anyhow::Result<Input> {
    const BUFFER_BYTES: usize = 256 << 10;
    let consumed = Consumed::default();
    let mut counted = Counted { inner: raw, consumed: consumed.clone() };
    let head = read_head(&mut counted)?;
    if let Some((packer, _)) = OTHER_PACKERS.iter().find(|(_, magic)| head.starts_with(magic)) {
        let failure = Failure::usage(format!("it is packed with {packer}"));
        return Err(failure.next("unpack it first: what is read is plain, gzip or zstd").into());
    }
    let compression = detect(&head);
    let peeked = BufReader::with_capacity(BUFFER_BYTES, io::Cursor::new(head).chain(counted));
    let reader: Box<dyn BufRead + Send> = match compression {
        Compression::Plain => Box::new(peeked),
        Compression::Gzip => {
            Box::new(BufReader::with_capacity(BUFFER_BYTES, flate2::bufread::MultiGzDecoder::new(peeked)))
        }
        Compression::Zstd => Box::new(BufReader::with_capacity(
            BUFFER_BYTES,
            zstd::stream::read::Decoder::with_buffer(peeked)?,
        )),
    };
    Ok(Input { reader, bytes_total, consumed })
}

/// The first bytes, or all if there are fewer: a pipe may hand them out one by one. A short line may be all
/// that comes for a while, and no packer's first bytes have a line's end in them.
fn read_head(reader: &mut impl Read) -> io::Result<Vec<u8>> {
    let (mut head, mut part) = (Vec::with_capacity(HEAD_BYTES), [0; HEAD_BYTES]);
    while head.len() < HEAD_BYTES && !head.ends_with(b"\n") {
        let left = HEAD_BYTES - head.len();
        match reader.read(&mut part[..left]) {
            Ok(0) => break,
            Ok(read) => head.extend_from_slice(&part[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(head)
}

fn detect(head: &[u8]) -> Compression {
    match head {
        [0x1f, 0x8b, ..] => Compression::Gzip,
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Compression::Zstd,
        _ => Compression::Plain,
    }
}

struct Counted {
    inner: Box<dyn Read + Send>,
    consumed: Consumed,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.consumed.0.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn read_all(bytes: Vec<u8>) -> (Compression, String) {
        let compression = detect(&bytes);
        let mut input = unpack(Box::new(io::Cursor::new(bytes)), None).unwrap();
        let mut text = String::new();
        input.reader.read_to_string(&mut text).unwrap();
        (compression, text)
    }

    fn gzip(text: &str) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn open_packed_bytes_are_recognised_by_content() {
        assert_eq!(read_all(b"plain".to_vec()), (Compression::Plain, "plain".into()));
        assert_eq!(read_all(Vec::new()), (Compression::Plain, String::new()));
        assert_eq!(read_all(gzip("one")), (Compression::Gzip, "one".into()));
        let frame = zstd::encode_all(&b"two"[..], 1).unwrap();
        assert_eq!(read_all(frame.clone()), (Compression::Zstd, "two".into()));
        let skippable = [&[0x53, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, 7][..], &frame].concat();
        assert_eq!(read_all(skippable), (Compression::Zstd, "two".into()));
    }

    #[test]
    fn open_line_that_is_shorter_than_a_packers_first_bytes_is_enough() {
        struct Once(Option<&'static [u8]>);
        impl Read for Once {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let line = self.0.take().expect("more may come in an hour");
                buffer[..line.len()].copy_from_slice(line);
                Ok(line.len())
            }
        }
        assert_eq!(read_head(&mut Once(Some(b"a\tb\n"))).unwrap(), b"a\tb\n");
    }

    #[test]
    fn open_what_another_packer_made_is_refused_by_its_name() {
        for (packer, magic) in OTHER_PACKERS {
            assert!(magic.len() <= HEAD_BYTES, "{packer}");
            let bytes = [magic, b"\tbytes that would be keys and values\n"].concat();
            let error = unpack(Box::new(io::Cursor::new(bytes)), None).map(drop).unwrap_err();
            assert!(error.to_string().contains(packer), "{error}");
        }
    }

    #[test]
    fn open_several_members_are_one_stream() {
        assert_eq!(read_all([gzip("a"), gzip("b")].concat()), (Compression::Gzip, "ab".into()));
        let frame = |t: &str| zstd::encode_all(t.as_bytes(), 1).unwrap();
        assert_eq!(read_all([frame("a"), frame("b")].concat()), (Compression::Zstd, "ab".into()));
    }

    #[test]
    fn open_what_was_packed_and_cut_is_an_error_not_an_end() {
        let text = "text ".repeat(1000);
        for mut bytes in [gzip(&text), zstd::encode_all(text.as_bytes(), 1).unwrap()] {
            bytes.truncate(bytes.len() - 3);
            let mut input = unpack(Box::new(io::Cursor::new(bytes)), None).unwrap();
            assert!(input.reader.read_to_end(&mut Vec::new()).is_err());
        }
    }
}
