//! `cell doctor`: whether this host can run a node, and what to do where it cannot.

use std::path::PathBuf;

use cell_terms::setting::HOST_PORT;
use clap::{ArgMatches, Args};
use serde_json::{Value, json};

use crate::args::Global;
use crate::doctor::{self, Besides, Finding, Health};
use crate::exit::Exit;
use crate::output::message;
use crate::{environment, settings};

/// Arguments of `cell doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// The log root under another path of this host, through a mount of its own: is what is written to one
    /// seen in the other?
    #[arg(long, value_name = "DIR")]
    beside: Option<PathBuf>,
    /// Another node's fabric, as it is advertised: is it reached from here, does TLS come about, is it of
    /// this cluster, and how long does its hello take? It can be given several times
    #[arg(long = "peer", value_name = "HOST:PORT", value_parser = parse_peer)]
    peers: Vec<String>,
    /// A token of any role, where the cluster wants one: without it peers do not say of which cluster they
    /// are. It is sent over TLS, and without that to loopback alone
    #[arg(long, value_name = "TOKEN", env = "CELL_TOKEN", hide_env_values = true)]
    token: Option<String>,
}

fn parse_peer(text: &str) -> Result<String, String> {
    (HOST_PORT.check)(text).map(|()| text.to_owned())
}

/// Looks, and says what is there. The exit code is the worst of it: 0, 6 (doubtful), 5 (bad).
pub(crate) fn run(global: &Global, arguments: &DoctorArgs, matches: &ArgMatches) -> anyhow::Result<Exit> {
    let (settings, warnings) = settings::resolve(matches, environment::variables())?;
    warnings.iter().for_each(|warning| message::warning(warning));
    settings::check_rules(&settings)?;
    doctor::leave_nothing_on_signals(&settings)?;
    let DoctorArgs { beside, peers, token } = arguments;
    let besides = Besides { log_root: beside.as_deref(), peers, token: token.as_deref() };
    let findings = doctor::look(&settings, besides);
    let worst = worst(&findings);
    let rows: Vec<Value> = findings.iter().map(row).collect();
    message::print_document(global.json, json!({"worst": worst.word(), "checks": rows}), || {
        findings.iter().map(line).collect()
    })?;
    Ok(exit(worst))
}

fn worst(findings: &[Finding]) -> Health {
    findings.iter().map(|finding| finding.health).max().unwrap_or(Health::Well)
}

fn exit(worst: Health) -> Exit {
    match worst {
        Health::Well => Exit::Ok,
        Health::Doubtful => Exit::Partial,
        Health::Bad => Exit::Unhealthy,
    }
}

fn row(finding: &Finding) -> Value {
    let Finding { name, health, seen, next } = finding;
    json!({"name": name, "health": health.word(), "seen": seen, "next": next})
}

fn line(finding: &Finding) -> String {
    let Finding { name, health, seen, next } = finding;
    let next = next.map(|next| format!("\n    next: {next}")).unwrap_or_default();
    format!("[{}] {name}: {}{next}\n", health.word(), message::on_one_line(seen))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_is_that_of_the_worst() {
        let of = |health| Finding { name: "x", health, seen: "y".to_owned(), next: Some("z") };
        let all = [Health::Well, Health::Bad, Health::Doubtful].map(of);
        assert_eq!(exit(worst(&all)), Exit::Unhealthy);
        assert_eq!(exit(worst(&all[2..])), Exit::Partial);
        assert_eq!(exit(worst(&all[..1])), Exit::Ok);
        assert_eq!(line(&all[1]), "[bad] x: y\n    next: z\n");
    }
}
