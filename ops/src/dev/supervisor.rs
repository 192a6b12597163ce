//! Keeps a node running until a signal: starts it, says what happens to it, starts it again when it dies.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use serde_json::json;

use super::backoff::Backoff;
use super::child::{NodeChild, NodeSpec, in_words};
use super::link::Report;
use super::plan::Plan;
use crate::exit::{Exit, Failure};
use crate::output::message;

/// What the supervisor waits for.
#[derive(Debug)]
pub(crate) enum Event {
    /// The first signal.
    Stop,
    /// A node said something.
    Report {
        /// Which start of the node.
        life: u64,
        /// What it said.
        report: Report,
    },
    /// A node's process has ended.
    Ended {
        /// Which start of the node.
        life: u64,
    },
}

/// The supervisor of one node.
pub(crate) struct Supervisor {
    /// Addresses and folders.
    pub(crate) plan: Plan,
    /// The node.
    pub(crate) spec: NodeSpec,
    /// Whether a node that dies is started again.
    pub(crate) restart: bool,
    /// Whether events are JSON lines.
    pub(crate) json: bool,
}

/// What happened in one life of a node.
#[derive(Default)]
struct Attended {
    /// It was asked to stop.
    stopping: bool,
    /// It served at some time.
    served: bool,
}

/// The exit code of a node for which another start would end the same way.
fn final_exit(status: std::process::ExitStatus) -> Option<Exit> {
    [Exit::Usage, Exit::VerificationFailed].into_iter().find(|exit| status.code() == Some(*exit as i32))
}

impl Supervisor {
    /// Runs until a signal, or until a node is not to be started again.
    pub(crate) fn run(&self, events: &Receiver<Event>, sender: &Sender<Event>) -> anyhow::Result<Exit> {
        let mut backoff = Backoff::default();
        for life in 1.. {
            let mut child = NodeChild::spawn(&self.spec, life, sender.clone())?;
            let attended = self.attend(&mut child, life, events);
            let status = child.wait()?;
            if attended.stopping {
                return self.say_stopped(status);
            }
            let died = format!("node {} died: {}", self.spec.node, in_words(status));
            self.say("died", &died, &json!({"node": self.spec.node, "status": in_words(status)}));
            let last = final_exit(status);
            if !self.restart || last.is_some() {
                return Err(Failure::new(last.unwrap_or(Exit::Error), died)
                    .next("its messages above tell why; the data is kept, start again when it is mended")
                    .into());
            }
            let wait = backoff.wait(attended.served);
            let when = if wait.is_zero() { "now".to_owned() } else { format!("in {} ms", wait.as_millis()) };
            self.say("restarting", &format!("starting it again {when}"), &json!({}));
            if stop_within(events, wait) {
                return Ok(Exit::Ok);
            }
        }
        Ok(Exit::Ok)
    }

    /// Until the child's end.
    fn attend(&self, child: &mut NodeChild, life: u64, events: &Receiver<Event>) -> Attended {
        let mut attended = Attended::default();
        while let Ok(event) = events.recv() {
            match event {
                Event::Stop => {
                    attended.stopping = true;
                    self.say(
                        "stopping",
                        "stopping: last checkpoint (a second signal ends at once)",
                        &json!({}),
                    );
                    child.ask_to_stop();
                }
                Event::Report { life: of, report } if of == life => {
                    self.tell_report(child, life, &report, &mut attended.served);
                }
                Event::Ended { life: of } if of == life => break,
                Event::Report { .. } | Event::Ended { .. } => {} // of an earlier life
            }
        }
        attended
    }

    fn tell_report(&self, child: &NodeChild, life: u64, report: &Report, served: &mut bool) {
        let node = self.spec.node;
        if report.state == "serving" && !*served {
            *served = true;
            let took = child.started.elapsed();
            let details = json!({
                "node": node, "pid": child.pid(), "life": life,
                "start_ms": u64::try_from(took.as_millis()).ok(),
                "server": self.plan.fabric(node).to_string(), "http": self.plan.http(node).to_string(),
                "coordinator": self.plan.coordinator().to_string(), "dir": self.plan.dir(),
            });
            let text = if life == 1 { self.banner(child.pid()) } else { format!("node {node} serves again") };
            self.say("serving", &text, &details);
        } else if report.state != "serving" {
            let text = format!("node {node} is {}", report.detail);
            self.say(&report.state, &text, &json!({"node": node, "detail": report.detail}));
        }
    }

    fn banner(&self, pid: u32) -> String {
        let node = self.spec.node;
        let (fabric, http) = (self.plan.fabric(node), self.plan.http(node));
        let server = if fabric.port() == 7000 { String::new() } else { format!(" --server {fabric}") };
        format!(
            "cell {version} is up. Data in {dir}.

  node {node}        {fabric}   pid {pid}
  http          http://{http}/readyz?verbose
  coordinator   {coordinator}

Try in another terminal:
  cell put{server} greeting hello
  cell get{server} greeting
  cell status{server}
  kill -9 {pid}      the node comes back with everything that it acknowledged

Ctrl-C stops it; the data stays.",
            version = env!("CARGO_PKG_VERSION"),
            dir = self.plan.dir().display(),
            coordinator = self.plan.coordinator(),
        )
    }

    fn say_stopped(&self, status: std::process::ExitStatus) -> anyhow::Result<Exit> {
        if status.success() {
            self.say("stopped", "stopped; the data stays", &json!({}));
            return Ok(Exit::Ok);
        }
        let what = format!("node {} did not stop in order: {}", self.spec.node, in_words(status));
        Err(Failure::new(Exit::Error, what)
            .next("nothing acknowledged is lost: the next start recovers")
            .into())
    }

    fn say(&self, event: &str, text: &str, details: &serde_json::Value) {
        if self.json {
            let mut document = json!({"event": event});
            if let (Some(to), Some(from)) = (document.as_object_mut(), details.as_object()) {
                to.extend(from.clone());
            }
            let _ = message::print_json(document); // a closed stdout does not stop a cluster
        } else if !message::is_quiet() {
            let mut out = std::io::stdout().lock();
            let _ = std::io::Write::write_fmt(&mut out, format_args!("{text}\n"));
        }
    }
}

/// Waits; tells whether a stop came meanwhile.
fn stop_within(events: &Receiver<Event>, wait: Duration) -> bool {
    let until = Instant::now() + wait;
    loop {
        match events.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Event::Stop) => return true,
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return false,
        }
    }
}
