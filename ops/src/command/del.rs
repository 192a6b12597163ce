//! `cell del`: removes one entry.

use std::time::Duration;

use cell_protocol::Condition;
use cell_terms::Version;
use clap::Args;
use serde_json::json;

use super::put::condition_failed;
use crate::args::{EncodingArgs, ServerArgs};
use crate::cli::Global;
use crate::encoding::display_key;
use crate::exit::Exit;
use crate::output::message;
use crate::store::Store;
use crate::version::parse_version;

/// Arguments of `cell del`.
#[derive(Debug, Args)]
pub(crate) struct DelArgs {
    /// The key
    key: String,
    /// Only if the entry has this version
    #[arg(long, value_name = "VERSION", value_parser = parse_version)]
    if_version: Option<Version>,
    /// A missing entry is no failure
    #[arg(long)]
    ignore_missing: bool,
    #[command(flatten)]
    encoding: EncodingArgs,
    #[command(flatten)]
    server: ServerArgs,
}

/// Removes the entry.
pub(crate) fn run(global: &Global, arguments: &DelArgs) -> anyhow::Result<Exit> {
    let key = arguments.encoding.decode_key(&arguments.key)?;
    let condition = arguments.if_version.map_or(Condition::Always, Condition::IfVersion);
    let mut store = Store::connect(&arguments.server, Duration::from_secs(10))?;
    let existed = match store.delete(&key, condition)? {
        Ok(existed) => existed,
        Err(current) => return condition_failed(global, current),
    };
    if global.json {
        message::print_json(json!({"deleted": existed}))?;
    } else if !existed {
        message::note(&format!("no entry: {}", display_key(&key)));
    }
    Ok(if existed || arguments.ignore_missing { Exit::Ok } else { Exit::NotFound })
}
