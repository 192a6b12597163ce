//! `cell cas`: writes an entry if it is still what the caller believes.

use cell_protocol::Condition;
use cell_terms::Version;
use clap::Args;

use super::put::{ValueArgs, condition_failed, report};
use crate::args::{EncodingArgs, Global, ServerArgs};
use crate::exit::Exit;
use crate::store::{PATIENCE, Store};
use crate::version::parse_version;

/// Arguments of `cell cas`.
#[derive(Debug, Args)]
pub(crate) struct CasArgs {
    /// The key
    key: String,
    #[command(flatten)]
    value: ValueArgs,
    #[command(flatten)]
    belief: BeliefArgs,
    #[command(flatten)]
    encoding: EncodingArgs,
    #[command(flatten)]
    server: ServerArgs,
}

/// What the caller believes.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct BeliefArgs {
    /// The entry has this value
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true)]
    old: Option<String>,
    /// The entry has this version
    #[arg(long, value_name = "VERSION", value_parser = parse_version)]
    version_is: Option<Version>,
    /// There is no entry
    #[arg(long)]
    absent: bool,
}

/// Compares and sets. A value is compared here and held by its version at the server, so nothing comes
/// between.
pub(crate) fn run(global: &Global, arguments: &CasArgs) -> anyhow::Result<Exit> {
    let key = arguments.encoding.decode_key(&arguments.key)?;
    let value = arguments.value.read(arguments.encoding)?;
    let mut store = Store::connect(&arguments.server, PATIENCE)?;
    let condition = match &arguments.belief {
        BeliefArgs { version_is: Some(version), .. } => Condition::IfVersion(*version),
        BeliefArgs { old: Some(old), .. } => {
            let old = arguments.encoding.decode("--old", old)?;
            match store.get(&key)? {
                Some(item) if *item.value == *old => Condition::IfVersion(item.version),
                other => return condition_failed(global, other.map(|item| item.version)),
            }
        }
        _ => Condition::IfAbsent,
    };
    let outcome = store.put(&key, &value, condition)?;
    report(global, outcome)
}
