//! `cell get`: entries by key.

use std::borrow::Cow;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use anyhow::Context;
use cell_client::Item;
use clap::Args;
use serde_json::{Map, json};

use crate::args::{EncodingArgs, Global, ServerArgs};
use crate::encoding::{Encoding, display_key, insert_json};
use crate::exit::{Exit, Failure};
use crate::output::message;
use crate::store::{PATIENCE, Store};

/// Arguments of `cell get`.
#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// The keys; of one, the value alone is printed, of several a line KEY<tab>VALUE each
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<String>,
    /// Only whether there are entries; no value is sent
    #[arg(long, conflicts_with_all = ["raw", "output"])]
    exists: bool,
    /// The value as it is, without a line end; of several keys one after the other
    #[arg(long, conflicts_with_all = ["encoding", "json"])]
    raw: bool,
    /// The value of the one key as it is, into a file
    #[arg(long, short, value_name = "FILE", conflicts_with_all = ["encoding", "raw", "json"])]
    output: Option<PathBuf>,
    #[command(flatten)]
    encoding: EncodingArgs,
    #[command(flatten)]
    server: ServerArgs,
}

/// Prints what is there.
pub(crate) fn run(global: &Global, arguments: &GetArgs) -> anyhow::Result<Exit> {
    if arguments.output.is_some() && arguments.keys.len() > 1 {
        let what = format!("--output takes the value of one key, and {} were given", arguments.keys.len());
        return Err(Failure::usage(what).next("give one key for each file, or take --json on stdout").into());
    }
    let keys = arguments.keys.iter().map(|key| arguments.encoding.decode_key(key));
    let keys = keys.collect::<Result<Vec<_>, _>>()?;
    let mut store = Store::connect(&arguments.server, PATIENCE)?;
    let missing = if arguments.exists {
        print_existence(global, &mut store, &keys)?
    } else {
        print_entries(global, arguments, &mut store, &keys)?
    };
    Ok(match missing {
        0 => Exit::Ok,
        all if all == keys.len() => Exit::NotFound,
        _ => Exit::Partial,
    })
}

/// Returns how many are missing.
fn print_existence(global: &Global, store: &mut Store, keys: &[Cow<'_, [u8]>]) -> anyhow::Result<usize> {
    let mut missing = 0;
    for key in keys {
        let exists = store.exists(key)?;
        report_exists(global, key, exists)?;
        missing += usize::from(!exists);
    }
    Ok(missing)
}

/// Returns how many are missing.
fn print_entries(
    global: &Global,
    arguments: &GetArgs,
    store: &mut Store,
    keys: &[Cow<'_, [u8]>],
) -> anyhow::Result<usize> {
    let items = match keys {
        [key] => vec![store.get(key)?],
        keys => store.multi_get(&keys.iter().map(|key| &**key).collect::<Vec<_>>())?,
    };
    for (key, item) in keys.iter().zip(&items) {
        match (item, global.json) {
            (_, true) => message::print_json(document(key, item.as_ref()))?,
            (Some(item), false) => print_item(arguments, keys.len() > 1, key, item)?,
            (None, false) => message::note(&format!("no entry: {}", display_key(key))),
        }
    }
    Ok(items.iter().filter(|item| item.is_none()).count())
}

fn report_exists(global: &Global, key: &[u8], exists: bool) -> anyhow::Result<()> {
    if global.json {
        let mut object = Map::new();
        insert_json(&mut object, "key", key);
        object.insert("found".into(), exists.into());
        message::print_json(object.into())?;
    } else {
        writeln!(io::stdout().lock(), "{exists}")?;
    }
    Ok(())
}

fn document(key: &[u8], item: Option<&Item>) -> serde_json::Value {
    let mut object = Map::new();
    insert_json(&mut object, "key", key);
    object.insert("found".into(), item.is_some().into());
    if let Some(item) = item {
        insert_json(&mut object, "value", &item.value);
        object.insert("entry_version".into(), json!(item.version.to_string()));
    }
    object.into()
}

fn print_item(arguments: &GetArgs, several: bool, key: &[u8], item: &Item) -> anyhow::Result<()> {
    if let Some(path) = &arguments.output {
        return fs::write(path, &item.value).with_context(|| format!("cannot write {}", path.display()));
    }
    let mut out = io::stdout().lock();
    if arguments.raw {
        out.write_all(&item.value)?;
        return Ok(out.flush()?);
    }
    let mut line = Vec::with_capacity(item.value.len() + 1);
    if several {
        let encoding = arguments.encoding.output_or(Encoding::Escaped);
        encoding.encode(key, &mut line);
        line.push(b'\t');
        encoding.encode(&item.value, &mut line);
    } else {
        // On a terminal, bytes that are not text are escaped: they could be commands to it.
        let is_text = std::str::from_utf8(&item.value)
            .is_ok_and(|text| !text.chars().any(|c| c.is_control() && !"\n\t\r".contains(c)));
        let default = if out.is_terminal() && !is_text { Encoding::Escaped } else { Encoding::Text };
        arguments.encoding.output_or(default).encode(&item.value, &mut line);
    }
    line.push(b'\n');
    out.write_all(&line)?;
    Ok(out.flush()?)
}
