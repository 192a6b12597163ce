//! `cell tree locate`: where a key is, as the admin API returns it.

use clap::Args;
use data_encoding::HEXLOWER;
use serde::Deserialize;

use crate::api::{Api, ApiArgs, understand};
use crate::args::{EncodingArgs, Global};
use crate::exit::Exit;
use crate::output::{message, number, table};

/// Arguments of `cell tree locate`.
#[derive(Debug, Args)]
pub(crate) struct LocateArgs {
    /// The key
    #[arg(value_name = "KEY")]
    key: String,
    #[command(flatten)]
    encoding: EncodingArgs,
    #[command(flatten)]
    api: ApiArgs,
}

/// What is read of `/api/v1/tree/locate`.
#[derive(Debug, Deserialize)]
struct Located {
    key: Key,
    /// Whether there is such an entry.
    found: bool,
    node: u32,
    pair: u32,
    meganode: String,
    path: Vec<Step>,
    /// Of the value.
    bytes: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Key {
    text: String,
}

#[derive(Debug, Deserialize)]
struct Step {
    index: u32,
    level: u8,
}

/// Prints the place of a key; exit code 3 if no entry has it: the place is where it would be.
pub(crate) fn run(global: &Global, arguments: &LocateArgs) -> anyhow::Result<Exit> {
    let key = arguments.encoding.decode_key(&arguments.key)?;
    let api = Api::new(&arguments.api)?;
    let document = api.get(&format!("/api/v1/tree/locate?key={}", HEXLOWER.encode(&key)))?.document;
    let located: Located = understand(&document, "where a key is")?;
    message::print_document(global.json, document, || text(&located))?;
    Ok(if located.found { Exit::Ok } else { Exit::NotFound })
}

fn text(located: &Located) -> String {
    let Located { key, node, pair, meganode, .. } = located;
    let entry = match located.bytes {
        Some(bytes) if located.found => format!("an entry with a value of {}", number::bytes(bytes)),
        _ if located.found => "an entry".to_owned(),
        _ => "no entry; it would be here".to_owned(),
    };
    let head = format!("{}: {entry}\nnode {node}, pair {pair}, meganode {meganode}\n\n", key.text);
    let kind = |level| if level == 0 { "leaf" } else { "inner" };
    let row = |step: &Step| vec![step.level.to_string(), step.index.to_string(), kind(step.level).to_owned()];
    head + &table::plain(&["level", "tree node", "kind"], &[0, 1], located.path.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_has_the_way_from_the_root_to_the_leaf() {
        let document = |found: bool| {
            json!({
                "version": 1, "key": {"text": "a\\x00", "hex": "6100"}, "found": found, "node": 2, "pair": 3,
                "meganode": "3.1", "path": [{"index": 0, "level": 1}, {"index": 7, "level": 0}],
                "bytes": if found { json!(1_536) } else { json!(null) }, "searched": "server",
            })
        };
        let words = |found| {
            let located: Located = understand(&document(found), "where a key is").unwrap();
            text(&located).split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let path = "node 2, pair 3, meganode 3.1 LEVEL TREE NODE KIND 1 0 inner 0 7 leaf";
        assert_eq!(words(true), format!("a\\x00: an entry with a value of 1.50 KiB {path}"));
        assert_eq!(words(false), format!("a\\x00: no entry; it would be here {path}"));
    }
}
