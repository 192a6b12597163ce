//! The nodes of a cluster, each with a client of its own: for what is about nodes and not about keys.

use std::time::Duration;

use cell_terms::NodeId;

use crate::args::ServerArgs;
use crate::store::Store;

/// A node.
pub(crate) struct Member {
    /// Where it is.
    pub(crate) server: String,
    /// Its number, as far as the region table tells it.
    pub(crate) node: Option<NodeId>,
    /// Its client, or why there is none.
    pub(crate) store: anyhow::Result<Store>,
}

/// Every node that the region table names, and every server that the user named, by node number. A node that
/// cannot be reached is a member too.
///
/// # Errors
/// None of the servers that the user named can be reached.
pub(crate) fn members(arguments: &ServerArgs, timeout: Duration) -> anyhow::Result<Vec<Member>> {
    let mut door = Store::connect(arguments, timeout)?;
    let mut places: Vec<(Option<NodeId>, String)> = Vec::new();
    for (node, server) in door.places()? {
        if !places.iter().any(|(_, known)| *known == server) {
            places.push((Some(node), server));
        }
    }
    let named: Vec<&str> = arguments.server.split(',').map(str::trim).collect();
    if places.len() <= 1 && named.len() == 1 {
        let node = places.first().and_then(|(node, _)| *node);
        return Ok(vec![Member { server: arguments.server.clone(), node, store: Ok(door) }]);
    }
    for server in named {
        if !places.iter().any(|(_, known)| known == server) {
            places.push((None, server.to_owned()));
        }
    }
    let connect = |(node, server): (Option<NodeId>, String)| {
        let store = Store::connect(&ServerArgs { server: server.clone(), ..arguments.clone() }, timeout);
        // Two names may be one node's.
        let met = store.as_ref().ok().and_then(Store::node);
        Member { server, node: met.or(node), store }
    };
    let mut members: Vec<Member> = places.into_iter().map(connect).collect();
    members.sort_by_key(|member| (member.node.is_none(), member.node));
    members.dedup_by(|later, first| later.node.is_some() && later.node == first.node && later.store.is_ok());
    Ok(members)
}
