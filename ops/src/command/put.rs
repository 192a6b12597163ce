//! `cell put`: writes one entry.

use std::fs;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use anyhow::Context;
use cell_protocol::Condition;
use cell_terms::Version;
use clap::Args;
use serde_json::json;

use crate::args::{EncodingArgs, Global, ServerArgs};
use crate::exit::{Exit, Failure};
use crate::output::message;
use crate::store::{Conditional, PATIENCE, Store};
use crate::version::parse_version;

/// Where a value comes from.
#[derive(Debug, Args)]
pub(crate) struct ValueArgs {
    /// The value; `-` reads it from stdin as it is
    #[arg(required_unless_present = "file", allow_hyphen_values = true)]
    value: Option<String>,
    /// Read the value from a file as it is
    #[arg(long, value_name = "FILE", conflicts_with = "value")]
    file: Option<PathBuf>,
}

/// Arguments of `cell put`.
#[derive(Debug, Args)]
pub(crate) struct PutArgs {
    /// The key
    key: String,
    #[command(flatten)]
    value: ValueArgs,
    /// Only if there is no entry
    #[arg(long, group = "condition")]
    if_absent: bool,
    /// Only if there is an entry
    #[arg(long, group = "condition")]
    if_present: bool,
    /// Only if the entry has this version, as put, get --json and scan --json print it
    #[arg(long, group = "condition", value_name = "VERSION", value_parser = parse_version)]
    if_version: Option<Version>,
    #[command(flatten)]
    encoding: EncodingArgs,
    #[command(flatten)]
    server: ServerArgs,
}

impl ValueArgs {
    /// The value's bytes. Arguments are decoded, streams are taken as they are.
    pub(crate) fn read(&self, encoding: EncodingArgs) -> anyhow::Result<Vec<u8>> {
        match (&self.file, self.value.as_deref()) {
            (Some(path), _) => fs::read(path).with_context(|| format!("cannot read {}", path.display())),
            (None, Some("-")) => {
                let mut value = Vec::new();
                io::stdin().lock().read_to_end(&mut value).context("cannot read stdin")?;
                Ok(value)
            }
            (None, Some(text)) => Ok(encoding.decode("VALUE", text)?.into_owned()),
            (None, None) => Err(Failure::usage("give a VALUE, `-` or --file").into()),
        }
    }
}

impl PutArgs {
    fn condition(&self) -> Condition {
        match self {
            PutArgs { if_absent: true, .. } => Condition::IfAbsent,
            PutArgs { if_present: true, .. } => Condition::IfPresent,
            PutArgs { if_version: Some(version), .. } => Condition::IfVersion(*version),
            _ => Condition::Always,
        }
    }
}

/// Writes the entry and prints its version.
pub(crate) fn run(global: &Global, arguments: &PutArgs) -> anyhow::Result<Exit> {
    let key = arguments.encoding.decode_key(&arguments.key)?;
    let value = arguments.value.read(arguments.encoding)?;
    let mut store = Store::connect(&arguments.server, PATIENCE)?;
    let outcome = store.put(&key, &value, arguments.condition())?;
    report(global, outcome)
}

/// Prints the version that was written, or why nothing was.
pub(crate) fn report(global: &Global, outcome: Conditional<Version>) -> anyhow::Result<Exit> {
    match outcome {
        Ok(version) if global.json => {
            message::print_json(json!({"written": true, "entry_version": version.to_string()}))?;
        }
        Ok(version) => writeln!(io::stdout().lock(), "{version}")?,
        Err(current) => return condition_failed(global, current),
    }
    Ok(Exit::Ok)
}

/// Prints which version is in the way.
pub(crate) fn condition_failed(global: &Global, current: Option<Version>) -> anyhow::Result<Exit> {
    let found = current.map(|version| version.to_string());
    if global.json {
        message::print_json(json!({"written": false, "current_version": found}))?;
    } else {
        let found =
            found.map_or("there is no entry".into(), |version| format!("the entry has version {version}"));
        message::note(&format!("not done, the condition does not hold: {found}"));
    }
    Ok(Exit::NotFound)
}
