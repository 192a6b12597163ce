//! Stores through `cell dump` and `cell load`: every format, packed in every way, by pipe and by file; and
//! what `load` reports and does not store. Dumps are read here by what docs/CLI.md says of them, not as
//! `load` reads.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
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
    let mut lines = text.strip_suffix(b"\n").unwrap().split(|byte| *byte == b'\n');
    if format == "json" {
        return lines.map(parse_json).collect();
    }
    assert_eq!(lines.next(), Some(&b"#cell-dump 1 tsv escaped"[..]));
    let entry = |line: &[u8]| {
        let columns: Vec<Vec<u8>> = line.split(|byte| *byte == b'\t').map(unescape).collect();
        <[Vec<u8>; 2]>::try_from(columns).unwrap().into()
    };
    lines.map(entry).collect()
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
            b'x' => {
                let digits = [rest.next().unwrap(), rest.next().unwrap()];
                u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
            }
            other => panic!("an escape of {other}"),
        });
    }
    bytes
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
    for (format, packing) in ["tsv", "json"]
        .into_iter()
        .flat_map(|format| ["none", "gzip", "zstd"].map(|packing| (format, packing)))
    {
        let flags = ["--format", format, "--compress", packing];
        from.out(&[&["dump", file][..], &flags].concat());
        let text = unpack(packing, fs::read(file).unwrap());
        demand_equal(&parse(format, &text), &entries, &format!("the dump by {flags:?}"));
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
    let two = [&b"#cell-dump 1 tsv escaped\n2a\t\\\\\n"[..], b"#cell-dump 1 tsv escaped\n2b\t\\t\n"].concat();
    assert_eq!(load(&dev, &two).0, Some(0), "two dumps, one after the other");
    assert_eq!(dev.out(&["scan", "--prefix", "2", "--raw"]), "2a\t\\\n2b\t\t\n");
}
