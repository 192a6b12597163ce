//! Why a drill could not be run.

use std::path::PathBuf;

use cell_client::ClientError;

/// Why a drill could not be run, or not to its end. That data was lost is no error: the report shows it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DrillError {
    /// The cluster has no such node.
    #[error("there is no node {node}: there is {}", numbers(nodes))]
    NoSuchNode {
        /// What was asked for.
        node: u16,
        /// The numbers of those that there are, in order.
        nodes: Vec<u16>,
    },
    /// The cluster is not healthy, so a drill would show nothing.
    #[error("a drill begins with a healthy cluster, but node {node} is {state}")]
    Unhealthy {
        /// The first node that is not.
        node: u16,
        /// How it is, in a word.
        state: String,
    },
    /// There is no supervisor that does faults.
    #[error("no drill without {}: {why}", path.display())]
    NoSupervisor {
        /// Its socket.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The supervisor refused.
    #[error("{what}")]
    Refused {
        /// What it refused and why.
        what: String,
        /// What to do next.
        next: String,
    },
    /// The supervisor stops, or its coordinator does not answer.
    #[error("{what}")]
    Away {
        /// What was not done and why.
        what: String,
        /// What to do next.
        next: String,
    },
    /// The supervisor ended, or says nothing that can be understood.
    #[error("the supervisor {0}")]
    Supervisor(String),
    /// An agent is not reached, has ended, or says nothing that can be understood.
    #[error("the agent at {agent} {why}")]
    AgentAway {
        /// Where it is, or was.
        agent: String,
        /// What it does not do.
        why: String,
    },
    /// An agent lets nobody in with this token.
    #[error("the agent at {agent} does not let this drill in: {what}")]
    NotLetIn {
        /// Where it is.
        agent: String,
        /// Why not.
        what: String,
        /// What to do next.
        next: String,
    },
    /// Agents of two clusters were named.
    #[error("the agents at {} and {} are of two clusters", agents[0], agents[1])]
    TwoClusters {
        /// Where they are.
        agents: Box<[String; 2]>,
    },
    /// Two agents have a node of the same number, or one agent was named twice.
    #[error("the agents at {} and {} both have a node {node}", agents[0], agents[1])]
    SameNode {
        /// The number.
        node: u16,
        /// Where they are.
        agents: Box<[String; 2]>,
    },
    /// Nobody who was named can say how a node of the cluster is.
    #[error("node {node} of the cluster has no agent among those that are named")]
    NoAgent {
        /// Its number.
        node: u32,
    },
    /// A client failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Whoever ran it has stopped it. The fault is taken back.
    #[error("interrupted")]
    Interrupted,
}

/// Numbers in order, in words.
fn numbers(nodes: &[u16]) -> String {
    let is_row = nodes.windows(2).all(|two| two[0] + 1 == two[1]);
    match nodes {
        [] => "none".to_owned(),
        [only] => format!("node {only} alone"),
        [first, .., last] if is_row => format!("node {first} to node {last}"),
        [others @ .., last] => {
            let others: Vec<String> = others.iter().map(|node| format!("node {node}")).collect();
            format!("{} and node {last}", others.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_said_as_a_row_where_they_are_one() {
        let said = [&[][..], &[3], &[1, 2, 3], &[1, 3, 8]].map(numbers);
        assert_eq!(said, ["none", "node 3 alone", "node 1 to node 3", "node 1, node 3 and node 8"]);
    }
}
