//! `cell drill report`: what a drill found that was started over the admin API or in the console, as the API
//! returns it.

use cell_drill::DrillVerdict;
use clap::Args;
use serde::Deserialize;
use serde_json::Value;

use crate::api::{Api, ApiArgs, Missing, understand, warn_of_missing};
use crate::args::Global;
use crate::exit::{Exit, Failure};
use crate::output::{drill as output, message};

/// Arguments of `cell drill report`.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// The run's name, such as drill-1-00c0ffee; without it the newest that a node lists
    #[arg(value_name = "ID")]
    id: Option<String>,
    #[command(flatten)]
    api: ApiArgs,
}

/// What is read of `/api/v1/drills`: the newest run first.
#[derive(Debug, Deserialize)]
struct Runs {
    runs: Vec<Value>,
    missing: Vec<Missing>,
}

/// Prints a run and its report. The exit code is that of its verdict: 8 as long as there is none, 6 if it
/// passed and a node did not answer that may know of a newer one.
pub(crate) fn run(global: &Global, arguments: &ReportArgs) -> anyhow::Result<Exit> {
    let api = Api::new(&arguments.api)?;
    let (mut document, missing) = match &arguments.id {
        Some(id) => {
            let newest = || arguments.api.command("cell drill report");
            let path = path(id)
                .map_err(|failure| failure.next(format!("{} without a name prints the newest", newest())))?;
            (api.get(&path)?.document, None)
        }
        None => newest(&api, &arguments.api)?,
    };
    let run: output::ApiRun = understand(&document, "of the drill")?;
    if global.json {
        if let Some(missing) = &missing {
            document["missing"] = missing.clone();
        }
        message::print_json(document)?;
    } else {
        message::print_text(&output::text_of_run(&run))?;
    }
    let missing: Vec<Missing> = match &missing {
        Some(missing) => understand(missing, "who did not answer")?,
        None => Vec::new(),
    };
    let partial = warn_of_missing(&missing, "what was run by");
    Ok(match exit_of(&run.state) {
        Exit::Ok => partial,
        exit => exit,
    })
}

/// A run's name is letters, digits and hyphens: what else it may be is never part of an address.
fn path(id: &str) -> Result<String, Failure> {
    if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return Err(Failure::usage(format!("{id:?} is no name of a drill")));
    }
    Ok(format!("/api/v1/drills/{id}"))
}

/// The newest run, and who did not answer.
fn newest(api: &Api, named: &ApiArgs) -> Result<(Value, Option<Value>), Failure> {
    let document = api.get("/api/v1/drills?limit=1")?.document;
    let mut runs: Runs = understand(&document, "of drills")?;
    let missing = document["missing"].clone();
    if runs.runs.is_empty() {
        warn_of_missing(&runs.missing, "what was run by");
        let what = "no node that answers has run a drill since it was started";
        let run = named.command("cell drill run");
        let next = format!("begin one in the console, or run one with {run}, which prints its report itself");
        return Err(Failure::new(Exit::NotFound, what).next(next));
    }
    Ok((runs.runs.swap_remove(0), Some(missing)))
}

fn exit_of(state: &str) -> Exit {
    match state {
        "passed" => output::exit(DrillVerdict::Pass),
        "failed" => output::exit(DrillVerdict::Fail),
        _ => output::exit(DrillVerdict::Inconclusive),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_takes_no_name_that_could_be_more_than_a_name() {
        assert_eq!(path("drill-1-00c0ffee").unwrap(), "/api/v1/drills/drill-1-00c0ffee");
        for id in ["", "preview?x", "a/b", "drill-1-0:halt", ".."] {
            assert_eq!(path(id).unwrap_err().exit, Exit::Usage, "{id}");
        }
    }

    #[test]
    fn exit_of_a_run_without_a_verdict_is_inconclusive() {
        let states = ["passed", "failed", "inconclusive", "halted", "running", "verifying"];
        assert_eq!(states.map(|state| exit_of(state) as u8), [0, 7, 8, 8, 8, 8]);
    }
}
