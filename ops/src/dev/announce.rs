//! What a supervisor prints for the person or program that started it.

use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use serde_json::{Value, json};

use super::backoff::Repeated;
use super::child::in_words;
use super::owners::Misfit;
use super::plan::Plan;
use crate::output::message;

/// The names of events, as docs/CLI.md lists them.
const EVENTS: [&str; 21] = [
    "added",
    "removed",
    "serving",
    "up",
    "starting",
    "recovering",
    "read_only",
    "silent",
    "stopping",
    "failed",
    "died",
    "reloading",
    "restarting",
    "given_up",
    "held_back",
    "nodes_without_pairs",
    "nodes_missing",
    "nodes_leaving",
    "drill",
    "coordinator_failed",
    "stopped",
];

/// Says what happens, as lines for people or as JSON.
pub(crate) struct Announcer {
    /// Whether events are JSON lines.
    pub(crate) json: bool,
}

impl Announcer {
    /// An event: its name, its words, and its details for programs.
    pub(crate) fn say(&self, event: &str, text: &str, details: &Value) {
        debug_assert!(EVENTS.contains(&event), "{event}");
        self.report(event, text, details);
    }

    /// As [`Announcer::say`], of what a node says of itself: `event` is its state.
    pub(crate) fn report(&self, event: &str, text: &str, details: &Value) {
        if self.json {
            let mut document = json!({"event": event});
            if let (Some(to), Some(from)) = (document.as_object_mut(), details.as_object()) {
                to.extend(from.clone());
            }
            let _ = message::print_json(document); // a closed stdout does not stop a cluster
        } else if !message::is_quiet() && !text.is_empty() {
            let mut out = std::io::stdout().lock();
            let _ = std::io::Write::write_fmt(&mut out, format_args!("{text}\n"));
        }
    }

    /// What an operator should know before the nodes are started.
    pub(crate) fn misfit(&self, misfit: &Misfit) {
        let Misfit { event, nodes, what, next } = misfit;
        tracing::warn!("{what}");
        if self.json {
            self.say(event, "", &json!({"nodes": nodes, "message": what, "next": next}));
        } else {
            message::warning_with_next(what, next);
        }
    }

    /// A node has ended by itself, with this as its last words; in the words that are also its failure, and
    /// the cause alone.
    pub(crate) fn died(&self, node: u32, status: ExitStatus, error: Option<String>) -> (String, String) {
        let why = error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
        let cause = format!("{}{why}", in_words(status));
        let died = format!("node {node} died: {cause}");
        self.say("died", &died, &json!({"node": node, "status": in_words(status), "error": error}));
        (died, cause)
    }

    /// The nodes read their configuration again, but for these settings.
    pub(crate) fn reloading(&self, stay: &[&str]) {
        let text = format!(
            "the nodes read their configuration again; until the supervisor is started again, each keeps what \
             that has set for it: {}",
            stay.join(", ")
        );
        tracing::info!("{text}");
        self.say("reloading", &text, &json!({"stay": stay}));
    }

    /// A node that ends the same way again and again is held back.
    pub(crate) fn held_back(&self, node: u32, repeated: &Repeated) {
        let text = format!("node {node} {}", repeated.words());
        tracing::error!("{text}");
        let wait_ms = u64::try_from(repeated.wait.as_millis()).ok();
        let details =
            json!({"node": node, "count": repeated.count, "cause": repeated.cause, "wait_ms": wait_ms});
        self.say("held_back", &text, &details);
    }

    /// A node gets another process after this wait; `not_started` is why there was none to be had.
    pub(crate) fn restarting(&self, node: u32, wait: Duration, not_started: Option<&str>) {
        let wait_ms = u64::try_from(wait.as_millis()).ok();
        let details = json!({"node": node, "wait_ms": wait_ms, "error": not_started});
        self.say("restarting", &restarting_text(node, wait, not_started), &details);
    }

    /// Every node has served: the cluster is up. `pids` has one a node; `tried` is the node that a first
    /// drill is done to; `messages` is the folder of their messages, if they have one.
    pub(crate) fn up(&self, plan: &Plan, pids: &[u32], tried: u16, messages: Option<&Path>) {
        let rows = || (0u16..).zip(pids);
        let row = |(node, pid): (u16, &u32)| {
            json!({"node": plan.id(node), "pid": pid, "server": plan.fabric(node).to_string(),
                "http": plan.http(node).to_string()})
        };
        let details = json!({
            "nodes": rows().map(row).collect::<Vec<_>>(),
            "coordinator": plan.coordinator(), "dir": plan.dir(),
            "console": plan.page(0, "/console/"),
            "drills": plan.allows_drills(), "messages": messages,
            "agent": plan.agent().map(|address| address.to_string()),
        });
        self.say("up", &banner(plan, pids, tried, messages), &details);
    }
}

fn restarting_text(node: u32, wait: Duration, not_started: Option<&str>) -> String {
    let when = if wait.is_zero() { "now".to_owned() } else { format!("in {} ms", wait.as_millis()) };
    match not_started {
        Some(why) => format!("node {node} cannot be started: {why}; it is tried again {when}"),
        None => format!("starting node {node} again {when}"),
    }
}

fn banner(plan: &Plan, pids: &[u32], tried: u16, messages: Option<&Path>) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let count = if pids.len() == 1 { String::new() } else { format!(", {} nodes", pids.len()) };
    let mut text = format!("cell {version} is up{count}. Data in {}.\n\n", plan.dir().display());
    let mut row = |name: &str, what: &str| text.push_str(&format!("  {name:<13} {what}\n"));
    row("console", &plan.page(0, "/console/"));
    for (node, pid) in (0u16..).zip(pids) {
        let (fabric, ready) = (plan.fabric(node), plan.page(node, "/readyz?verbose"));
        row(&format!("node {}", plan.id(node)), &format!("{fabric}   {ready}   pid {pid}"));
    }
    row("coordinator", &plan.coordinator().display().to_string());
    if let Some(messages) = messages {
        row("messages", &messages.display().to_string());
    }
    if plan.allows_drills() {
        row("drills", &plan.drill_socket().display().to_string());
    }
    if let Some(agent) = plan.agent() {
        row("agent", &agent.to_string());
    }
    if plan.is_of_machine() {
        text.push_str(
            "\nSIGTERM or Ctrl-C stops all of them in order, SIGHUP has them read their configuration again.",
        );
        return text;
    }
    let fabric = plan.fabric(0);
    let server = if fabric.port() == 7000 { String::new() } else { format!(" --server {fabric}") };
    text.push_str(&format!(
        "\nTry in another terminal:\n  cell put{server} greeting hello\n  cell get{server} greeting\n  cell status{server}\n"
    ));
    if plan.allows_drills() {
        let dir = plan.dir().display();
        text.push_str(&format!("  cell drill run kill --dir {dir} --node {tried}\n"));
    }
    let killed = pids[usize::from(tried)];
    let after = "the node comes back with everything that it acknowledged";
    text.push_str(&format!("  kill -9 {killed}      {after}\n\nCtrl-C stops it; the data stays."));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_listed_in_the_document() {
        let document = include_str!("../../../docs/CLI.md");
        let (_, list) = document.split_once("`--json` prints an event a line:").unwrap();
        let list = list.split("\n\n").next().unwrap();
        for event in EVENTS {
            assert!(
                list.contains(&format!("`{event}`")),
                "docs/CLI.md does not list `{event}` of `cell dev`"
            );
        }
    }

    #[test]
    fn restarting_says_when_and_why_there_was_no_process() {
        assert_eq!(restarting_text(8, Duration::ZERO, None), "starting node 8 again now");
        assert_eq!(
            restarting_text(8, Duration::from_millis(200), Some("cannot start cell")),
            "node 8 cannot be started: cannot start cell; it is tried again in 200 ms"
        );
    }

    /// Nobody is invited to try a kill where real work is done.
    #[test]
    fn banner_of_a_machine_lists_its_processes_by_their_numbers() {
        let at = |port| std::net::SocketAddr::from(([127, 0, 0, 1], port));
        let plan = Plan::of_machine("/d".into(), "/c.socket".into(), 8, (at(7000), at(7080)));
        let text = banner(&plan.with_agent(at(7090)), &[11, 12], 1, None);
        let agent = "agent         127.0.0.1:7090";
        for wanted in ["2 nodes", "node 9", "127.0.0.1:7001", "coordinator   /c.socket", agent, "SIGHUP"] {
            assert!(text.contains(wanted), "{wanted} is not in: {text}");
        }
        assert!(!text.contains("kill -9"), "{text}");
    }

    #[test]
    fn banner_lists_every_node_and_the_drills() {
        let plan = Plan::new("/data".into(), 7300).with_drills();
        let text = banner(&plan, &[11, 12, 13], 1, Some(Path::new("/data/messages")));
        for wanted in [
            "3 nodes",
            "127.0.0.1:7302",
            "http://127.0.0.1:7382",
            "console       http://127.0.0.1:7380/console/",
            "pid 13",
            "/data/drill.socket",
            "coordinator   /data/coordinator.socket",
            "messages      /data/messages",
            "--server 127.0.0.1:7300",
            "cell drill run kill --dir /data --node 1\n",
            "kill -9 12 ",
        ] {
            assert!(text.contains(wanted), "{wanted} is not in: {text}");
        }
        assert!(!banner(&Plan::new("/data".into(), 7000), &[1], 0, None).contains("--server"));
        let over_tls = banner(&plan.with_tls(), &[11], 0, None);
        assert!(over_tls.contains("https://127.0.0.1:7380/console/") && !over_tls.contains("http://"));
    }
}
