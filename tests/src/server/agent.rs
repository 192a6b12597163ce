//! A cluster whose nodes `cell agent` supervises in place of `cell dev`: its coordinator may be any, and
//! drills reach it over TCP, by a token.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::Server;
use crate::program;

/// A token of the role admin, and the line that knows it by its SHA-256.
const TOKEN: &str = "secret";
const TOKENS: &str = "admin test 2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b\n";
/// Where the agent listens, from the first port on: past the nodes' HTTP.
const AGENT_OFFSET: u16 = 200;

impl Server {
    /// Has `cell agent` supervise so many nodes from the next start on, with drills allowed. What goes over
    /// `drill.socket` is not there then, and clients show [`Self::token`].
    #[must_use]
    pub fn by_agent(mut self, nodes: u16) -> Self {
        self.agent_nodes = Some(nodes);
        self
    }

    /// What clients have to show; empty: nothing.
    pub fn token(&self) -> &'static str {
        if self.agent_nodes.is_some() { TOKEN } else { "" }
    }

    /// `cell drill` of this cluster, which allows drills, with its answer in JSON.
    pub fn drill_command(&self, arguments: &[&str]) -> Command {
        let mut command = program::command();
        command.args(["--json", "drill"]).args(arguments);
        match self.agent_nodes {
            None => command.arg("--dir").arg(&self.folder),
            Some(_) => command.args(["--agents", &self.local(AGENT_OFFSET)]).env("CELL_TOKEN", TOKEN),
        };
        command
    }

    /// Has a command run the agent.
    ///
    /// # Panics
    /// If the file of tokens cannot be written.
    pub(super) fn run_agent(&self, command: &mut Command, nodes: u16) {
        let (tokens, nodes) = (self.tokens(), nodes.to_string());
        fs::write(&tokens, TOKENS).expect("a file can be written beside the data folder");
        command.args(["agent", "--allow-drills", "--processes", &nodes, "--cluster-nodes", &nodes]);
        command.args(["--listen-address", &self.local(0), "--http-address", &self.local(80)]);
        command.args(["--agent-address", &self.local(AGENT_OFFSET)]);
        command.arg("--tokens-file").arg(tokens).arg("--data-dir").arg(&self.folder);
    }

    /// The file of tokens, beside the data folder.
    fn tokens(&self) -> PathBuf {
        let mut name = self.folder.file_name().expect("the data folder has a name").to_owned();
        name.push(".tokens");
        self.folder.with_file_name(name)
    }
}
