//! Stores through `cell dump` and `cell load`: every format, packed in every way, by pipe and by file; and
//! what `load` reports and does not store. Dumps are read here by what docs/CLI.md says of them, not as
//! `load` reads.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Stdio;

use cell_client::{Client, ClientOptions, ScanRange};
use serde_json::Value;

use crate::harness::Dev;

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// Room for some values of the longest.
const ROOM: [&str; 2] = ["--extent-region-bytes=512MiB", "--log-segment-bytes=64MiB"];
/// The longest key of tree nodes of 1 KiB.
const KEY_BYTES_MAX: u8 = 178;
const VALUE_BYTES_MAX: usize = 16 << 20;

/// Keys and values of all byte values, of all lengths' extremes, and such as look like something else.
fn entries() -> Entries {
    let mut entries = Entries::new();
    for byte in 0..=u8::MAX {
        entries.insert(vec![byte], vec![byte, b'\t', !byte, b'\n', byte]);
        entries.insert(vec![b'k', byte, b'\t', byte, b'\n', !byte, b'\\', byte], (0..=byte).rev().collect());
    }
    for text in [
        "#cell-dump 1 tsv escaped",
        "#cell-dump 2 tsv",
        "#cell-dump end 1",
        r#"{"cell_dump":"end","entries":1,"version":1}"#,
        r#"{"key":"a","value":"b"}"#,
        "\u{feff}marked",
        "key\\tvalue",
        "a,b",
        "größe\u{85}\u{2028}\u{1f600}",
        "null",
    ] {
        entries.insert(text.into(), text.into());
    }
    entries.insert((0..KEY_BYTES_MAX).collect(), Vec::new());
    entries.insert((u8::MAX - KEY_BYTES_MAX + 1..=u8::MAX).collect(), (0..=u8::MAX).collect());
    let any = |at: usize| u8::try_from((at ^ (at >> 8) ^ (at >> 16)) & 0xff).unwrap();
    entries.insert(b"longest".to_vec(), (0..VALUE_BYTES_MAX).map(any).collect());
    entries
}

fn client(dev: &Dev) -> Client {
    let options = ClientOptions { deadline_ms: 120_000, ..ClientOptions::default() };
    Client::connect(&dev.address(), options).unwrap()
}

fn fill(dev: &Dev, entries: &Entries) {
    let mut client = client(dev);
    for (key, value) in entries {
        client.put(key, value).unwrap();
    }
}

fn stored(dev: &Dev) -> Entries {
    client(dev)
        .scan(ScanRange::default())
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.key, entry.value))
        .collect()
}

#[track_caller]
fn demand_equal(found: &Entries, expected: &Entries, what: &str) {
    for (key, value) in expected {
        let is_there = found.get(key);
        assert!(is_there == Some(value), "{what}: {} has another value or none", key.escape_ascii());
    }
    let foreign = found.keys().find(|key| !expected.contains_key(*key));
    assert!(
        foreign.is_none(),
        "{what}: {:?} is not an entry",
        foreign.map(|key| key.escape_ascii().to_string())
    );
}

fn unpack(packing: &str, bytes: Vec<u8>) -> Vec<u8> {
    let mut text = Vec::new();
    match packing {
        "gzip" => flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut text).map(drop).unwrap(),
        "zstd" => text = zstd::decode_all(&bytes[..]).unwrap(),
        _ => text = bytes,
    }
    text
}

fn parse(format: &str, text: &[u8]) -> Entries {
    let lines: Vec<_> = text.strip_suffix(b"\n").unwrap().split(|byte| *byte == b'\n').collect();
    let [heading, lines @ .., end] = &lines[..] else { panic!("no heading, no end") };
    let count = lines.len();
    if format == "json" {
        assert_eq!(*heading, br#"{"cell_dump":"begin","version":1}"#);
        let expected = format!(r#"{{"cell_dump":"end","entries":{count},"version":1}}"#);
        assert_eq!(*end, expected.as_bytes());
        return lines.iter().map(|line| parse_json(line)).collect();
    }
    assert_eq!(*heading, b"#cell-dump 1 tsv escaped");
    assert_eq!(*end, format!("#cell-dump end {count}").as_bytes());
    let entry = |line: &[u8]| {
        let columns: Vec<Vec<u8>> = line.split(|byte| *byte == b'\t').map(unescape).collect();
        <[Vec<u8>; 2]>::try_from(columns).unwrap().into()
    };
    lines.iter().map(|line| entry(line)).collect()
}

fn parse_json(line: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let object: Value = serde_json::from_slice(line).unwrap();
    let field = |name: &str, in_base64: &str| match object[name].as_str() {
        Some(text) => text.as_bytes().to_vec(),
        None => data_encoding::BASE64.decode(object[in_base64].as_str().unwrap().as_bytes()).unwrap(),
    };
    assert_eq!(object["version"], 1, "of the format");
    assert_eq!(object.as_object().unwrap().len(), 3, "a key, a value and the version, once each");
    (field("key", "key_base64"), field("value", "value_base64"))
}

fn unescape(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.iter().copied();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            assert!(!byte.is_ascii_control(), "{byte} stands there as it is");
            bytes.push(byte);
            continue;
        }
        bytes.push(match rest.next().unwrap() {
            b'\\' => b'\\',
            b't' => b'\t',
            b'n' => b'\n',
            b'r' => b'\r',
            b'0' => 0,
            b'x' => hex_digit(rest.next().unwrap()) << 4 | hex_digit(rest.next().unwrap()),
            other => panic!("an escape of {other}"),
        });
    }
    bytes
}

/// Not by what the library has for it: that takes a build that is not optimised seconds for a dump.
fn hex_digit(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        b'A'..=b'F' => digit - b'A' + 10,
        other => panic!("a digit of {other}"),
    }
}

fn load_from_a_pipe(from: &Dev, to: &Dev, flags: &[&str]) {
    let mut dump = from.command(&[&["dump"], flags].concat()).stdout(Stdio::piped()).spawn().unwrap();
    let load = to.command(&["load", "-"]).stdin(dump.stdout.take().unwrap()).output().unwrap();
    assert!(dump.wait().unwrap().success(), "{flags:?}");
    assert_eq!(load.status.code(), Some(0), "{flags:?}: {}", String::from_utf8_lossy(&load.stderr));
}

#[test]
fn dump_and_load_in_every_way_keep_every_byte() {
    let (from, to) = (Dev::start_with(&ROOM), Dev::start_with(&ROOM));
    let entries = entries();
    fill(&from, &entries);
    let file = from.beside("dump");
    let file = file.to_str().unwrap();
    for format in ["tsv", "json"] {
        let mut unpacked: Option<Vec<u8>> = None;
        for packing in ["none", "gzip", "zstd"] {
            let flags = ["--format", format, "--compress", packing];
            from.out(&[&["dump", file][..], &flags].concat());
            let text = unpack(packing, fs::read(file).unwrap());
            match &unpacked {
                // Packed in another way it is the same text, which takes seconds to read.
                Some(first) => assert!(text == *first, "the dump by {flags:?} is another one"),
                None => demand_equal(&parse(format, &text), &entries, &format!("the dump by {flags:?}")),
            }
            unpacked = Some(text);
            to.out(&["load", file]);
            demand_equal(&stored(&to), &entries, &format!("loaded from a file by {flags:?}"));
            to.out(&["verify", "--source", file, "--exact"]);
            to.out(&["del", "--all", "--yes"]);
            assert_eq!(to.out(&["count"]), "0\n");

            load_from_a_pipe(&from, &to, &flags);
            demand_equal(&stored(&to), &entries, &format!("loaded from a pipe by {flags:?}"));
            to.out(&["del", "--all", "--yes"]);
        }
    }
}

/// In JSON six bytes stand for each of these.
#[test]
fn dump_and_load_of_the_longest_value_in_its_longest_text() {
    let (from, to) = (Dev::start_with(&ROOM), Dev::start_with(&ROOM));
    let entries = Entries::from([(b"key".to_vec(), vec![1; VALUE_BYTES_MAX])]);
    fill(&from, &entries);
    load_from_a_pipe(&from, &to, &["--json"]);
    demand_equal(&stored(&to), &entries, "loaded");
}

/// What `load` said and how it ended, of an input on stdin.
fn load(dev: &Dev, input: &[u8]) -> (Option<i32>, String) {
    let output = dev.cell_with_input(&["load", "-"], input);
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn load_reports_what_is_no_record_and_stores_none_of_it() {
    let dev = Dev::start();
    let dump = b"#cell-dump 1 tsv escaped\nda\tv\\n\ndb\tcut o";
    let (code, said) = load(&dev, dump);
    assert!(code == Some(6) && said.contains("stdin: line 3: the dump is cut off"), "{said}");
    assert!(said.contains("stdin: the dump that begins at line 1 is incomplete: after 1 entry"), "{said}");
    assert!(said.contains("is in the store: 1 record\nnext: make the dump again"), "{said}");
    let surrogate = br#"{"key":"ja","value":"v"}
{"key":"jb","value":"\ud800"}
{"key":"jc","value":"\ud83d\ude00"}
"#;
    let (code, said) = load(&dev, surrogate);
    assert!(code == Some(6) && said.contains("stdin: line 2: the field `value` is no text"), "{said}");
    let (code, said) = load(&dev, b"ta\tv\ntb,v\n");
    assert!(code == Some(6) && said.contains("stdin: line 2: no column 2 for the value"), "{said}");
    let expected = [("da", "v\n"), ("ja", "v"), ("jc", "\u{1f600}"), ("ta", "v")];
    let expected = expected.map(|(key, value)| (key.into(), value.into()));
    demand_equal(&stored(&dev), &Entries::from(expected), "stored");
    let two = [
        &b"#cell-dump 1 tsv escaped\n2a\t\\\\\n#cell-dump end 1\n"[..],
        b"#cell-dump 1 tsv escaped\n2b\t\\t\n#cell-dump end 1\n",
    ]
    .concat();
    assert_eq!(load(&dev, &two).0, Some(0), "two dumps, one after the other");
    assert_eq!(dev.out(&["scan", "--prefix", "2", "--raw"]), "2a\t\\\n2b\t\t\n");
}

/// What `load` does with a source, by file and by pipe.
fn load_ways(dev: &Dev, path: &str, bytes: &[u8]) -> [(Option<i32>, String); 2] {
    fs::write(path, bytes).unwrap();
    let by_file = dev.cell(&["load", path]);
    let said = String::from_utf8(by_file.stderr).unwrap();
    [(by_file.status.code(), said), load(dev, bytes)]
}

fn pack(packing: &str, text: &[u8]) -> Vec<u8> {
    match packing {
        "gzip" => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(text).unwrap();
            encoder.finish().unwrap()
        }
        "zstd" => zstd::encode_all(text, 1).unwrap(),
        _ => text.to_vec(),
    }
}

/// A dump whose writer was killed, or whose disk was full, once loaded with exit code 0: nothing said that
/// there was to be more.
#[test]
fn load_and_verify_refuse_a_dump_that_ends_anywhere_before_its_end() {
    let dev = Dev::start();
    let entries: Entries = (0..40_u8).map(|n| (vec![b'k', n], vec![n; usize::from(n)])).collect();
    fill(&dev, &entries);
    let path = dev.beside("cut");
    let path = path.to_str().unwrap();
    for (format, packing) in ["tsv", "json"]
        .into_iter()
        .flat_map(|format| ["none", "gzip", "zstd"].map(|packing| (format, packing)))
    {
        let whole = dev.cell(&["dump", "--format", format, "--compress", packing]).stdout;
        // What a writer leaves that ends early in order: all lines but the last. And parts of the bytes.
        let mut text = unpack(packing, whole.clone());
        text.pop();
        text.truncate(text.iter().rposition(|byte| *byte == b'\n').unwrap() + 1);
        let without_end = pack(packing, &text);
        for cut in [&whole[..whole.len() - 1], &whole[..whole.len() / 2], &whole[..40]] {
            let what = format!("{format}, {packing}, {} of {} bytes", cut.len(), whole.len());
            for (code, said) in load_ways(&dev, path, cut) {
                assert!(code == Some(6) && said.contains("error: "), "{what}: {code:?}, {said}");
            }
            assert_eq!(dev.code(&["verify", "--source", path]), 7, "{what}");
        }
        for (code, said) in load_ways(&dev, path, &without_end) {
            assert_eq!(code, Some(6), "{format}, {packing}: {said}");
            assert!(said.contains("after 40 entries it has no end"), "{said}");
            assert!(said.contains("is in the store: 40 records\nnext: make the dump again"), "{said}");
        }
        let verified = dev.cell(&["verify", "--source", path]);
        assert_eq!(verified.status.code(), Some(7));
        let said = String::from_utf8(verified.stdout).unwrap();
        assert!(said.contains("source: FAILED: 40 acknowledged records, 0 missing"), "{said}");
        assert!(said.contains("after 40 entries it has no end"), "{said}");
        for (code, said) in load_ways(&dev, path, &whole) {
            assert_eq!(code, Some(0), "{format}, {packing}: {said}");
        }
    }
    let progress = dev.beside("progress");
    let resumed = ["load", path, "--progress", progress.to_str().unwrap()];
    fs::write(path, b"#cell-dump 1 tsv escaped\na\tb\n").unwrap();
    assert_eq!([dev.code(&resumed), dev.code(&resumed)], [6, 6], "also when there is nothing left to do");
}

#[test]
fn verify_fails_over_lines_that_it_cannot_read_and_names_the_first() {
    let dev = Dev::start();
    dev.out(&["put", "a", "1"]);
    dev.out(&["put", "b", "2"]);
    let path = dev.beside("source");
    let path = path.to_str().unwrap();
    fs::write(path, b"a\t1\nno column\nb\t2\n\n").unwrap();
    let verified = dev.cell(&["verify", "--source", path]);
    assert_eq!(verified.status.code(), Some(7));
    let said = String::from_utf8(verified.stdout).unwrap();
    assert!(
        said.contains("2 bad lines, which are not in the store; the first: line 2: no column 2"),
        "{said}"
    );
    let verified = dev.cell(&["verify", "--source", path, "--json"]);
    let document: Value = serde_json::from_slice(&verified.stdout).unwrap();
    let source = &document["source"];
    let found = (&source["ok"], &source["bad"], &source["first_bad"]["line"]);
    assert_eq!(found, (&false.into(), &2.into(), &2.into()));
    fs::write(path, b"a\t1\nb\t2\n").unwrap();
    assert_eq!(dev.code(&["verify", "--source", path]), 0);
}

/// To a command that shows entries a reader that has seen enough is no error; a dump is not whole then.
#[test]
fn dump_whose_reader_goes_away_is_an_error() {
    let dev = Dev::start();
    let value = "v".repeat(100_000);
    for n in 0..20 {
        dev.out(&["put", &format!("key{n}"), &value]);
    }
    let mut dump = dev.command(&["dump"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    drop(dump.stdout.take());
    assert_eq!(dump.wait().unwrap().code(), Some(1));
}

/// A dump replaced links and devices by files, and gave a file that was there another mode.
#[test]
fn dump_writes_into_what_is_no_file_and_behind_links_and_keeps_the_mode() {
    let dev = Dev::start();
    dev.out(&["put", "key", "value"]);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let dump = |name: &str| dev.cell(&["dump", path(name).to_str().unwrap()]);
    fs::write(path("file"), "old").unwrap();
    fs::set_permissions(path("file"), Permissions::from_mode(0o640)).unwrap();
    symlink("file", path("link")).unwrap();
    for name in ["file", "link"] {
        assert_eq!(dump(name).status.code(), Some(0), "{name}");
        let found = parse("tsv", &fs::read(path("file")).unwrap());
        assert_eq!(found, Entries::from([(b"key".to_vec(), b"value".to_vec())]));
        assert_eq!(fs::symlink_metadata(path("file")).unwrap().permissions().mode() & 0o777, 0o640);
    }
    symlink("/dev/full", path("full")).unwrap();
    let full = dump("full");
    assert_eq!(full.status.code(), Some(1), "the error of a device is reported");
    let said = String::from_utf8(full.stderr).unwrap();
    assert!(said.contains("cannot write"), "{said}");
    symlink("/dev/stdout", path("stdout")).unwrap();
    let piped = dump("stdout");
    assert!(piped.status.success() && parse("tsv", &piped.stdout).len() == 1);
    for name in ["link", "full", "stdout"] {
        assert!(path(name).is_symlink(), "{name} was replaced");
    }
}
