//! `cell region`: the regions of the cluster, as the admin API returns them.

use clap::{Args, Subcommand};
use serde::Deserialize;

use crate::api::{Api, ApiArgs, Missing, understand, warn_of_missing};
use crate::args::Global;
use crate::command::region_move::{self, Move, RegionMoveArgs};
use crate::exit::Exit;
use crate::output::{message, number, table};

/// Arguments of `cell region`.
#[derive(Debug, Args)]
pub(crate) struct RegionArgs {
    #[command(subcommand)]
    what: RegionCommand,
}

/// What to do with regions.
#[derive(Debug, Subcommand)]
enum RegionCommand {
    /// Print the two regions of each pair: owner, epoch, how full, whether it is served; and what moves
    Ls(RegionLsArgs),
    /// Let a pair move to another node while both live and it is read and written
    Move(RegionMoveArgs),
}

/// Arguments of `cell region ls`.
#[derive(Debug, Args)]
struct RegionLsArgs {
    #[command(flatten)]
    api: ApiArgs,
}

/// What is read of `/api/v1/regions`.
#[derive(Debug, Deserialize)]
struct Document {
    regions: Vec<Region>,
    total: u64,
    truncated: bool,
    missing: Vec<Missing>,
}

#[derive(Debug, Deserialize)]
struct Region {
    region: u32,
    kind: String,
    pair: u32,
    /// The node that owns it.
    node: Option<u32>,
    epoch: u64,
    bytes: u64,
    /// `None` while its owner does not report.
    used_bytes: Option<u64>,
    state: String,
    /// Why it is not served.
    what: Option<String>,
}

/// Runs the command.
pub(crate) fn run(global: &Global, arguments: &RegionArgs) -> anyhow::Result<Exit> {
    match &arguments.what {
        RegionCommand::Ls(arguments) => list(global, arguments),
        RegionCommand::Move(arguments) => region_move::run(global, arguments),
    }
}

/// Prints a row for each region, and a line for each move; exit code 6 if a node did not answer, or rows are
/// left out.
fn list(global: &Global, arguments: &RegionLsArgs) -> anyhow::Result<Exit> {
    let api = Api::new(&arguments.api)?;
    let document = api.get_anew(region_move::REGIONS_PATH)?.document;
    let parsed: Document = understand(&document, "of the regions")?;
    message::print_document(global.json, document, || text(&parsed))?;
    if !global.json {
        match region_move::under_way(&api) {
            Ok(moves) => message::print_text(&moves_text(&moves))?,
            Err(failure) => message::warning(&format!("what moves is not known: {}", failure.what)),
        }
    }
    if parsed.truncated {
        let shown = number::count(parsed.regions.len() as u64);
        message::warning(&format!("{shown} regions of {} are shown", number::count(parsed.total)));
    }
    let exit = warn_of_missing(&parsed.missing, "how full the regions are of");
    Ok(if parsed.truncated { Exit::Partial } else { exit })
}

/// A line for each move, below the regions.
fn moves_text(moves: &[Move]) -> String {
    let lines = moves.iter().map(|of| format!("moving: {}\n", of.line_since()));
    lines.collect()
}

fn text(document: &Document) -> String {
    let headings = ["region", "kind", "pair", "node", "epoch", "used", "of", "full", "state"];
    table::plain(&headings, &[0, 2, 3, 4, 5, 6, 7], document.regions.iter().map(row).collect())
}

fn row(region: &Region) -> Vec<String> {
    let known = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let full = |used: u64| format!("{} %", used.saturating_mul(100) / region.bytes.max(1));
    let state = match &region.what {
        Some(what) => format!("{} ({})", region.state, message::on_one_line(what)),
        None => region.state.clone(),
    };
    vec![
        region.region.to_string(),
        region.kind.clone(),
        region.pair.to_string(),
        known(region.node.map(|node| node.to_string())),
        region.epoch.to_string(),
        known(region.used_bytes.map(number::bytes)),
        number::bytes(region.bytes),
        known(region.used_bytes.map(full)),
        state,
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_has_dashes_for_what_an_owner_does_not_report() {
        let served = json!({
            "region": 2, "kind": "node", "pair": 1, "node": 0, "owner": "77", "epoch": 3, "bytes": 4_096,
            "used_bytes": 1_024, "state": "served", "what": null,
        });
        let orphaned = json!({
            "region": 5, "kind": "extent", "pair": 2, "node": null, "owner": "78", "epoch": 1,
            "bytes": 2_048, "used_bytes": null, "state": "unserved", "what": "orphaned: its owner has died",
        });
        let document = json!({
            "version": 1, "regions": [served, orphaned], "total": 2, "truncated": false, "missing": [],
        });
        let text = text(&understand(&document, "of the regions").unwrap());
        let words = |line: usize| text.lines().nth(line).unwrap().split_whitespace().collect::<Vec<_>>();
        assert_eq!(words(1).join(" "), "2 node 1 0 3 1.00 KiB 4.00 KiB 25 % served");
        let orphaned = "5 extent 2 - 1 - 2.00 KiB - unserved (orphaned: its owner has died)";
        assert_eq!(words(2).join(" "), orphaned);
    }
}
