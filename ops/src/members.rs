//! The nodes of a cluster, each with a client of its own: for what is about nodes and not about keys.

use std::time::Duration;

use cell_terms::{NodeId, PairId};

use crate::args::ServerArgs;
use crate::output::message;
use crate::side_by_side::side_by_side;
use crate::store::Store;

pub(crate) struct Member {
    /// Where it is.
    pub(crate) server: String,
    /// Its number, as far as the region table has it.
    pub(crate) node: Option<NodeId>,
    /// The pairs that the region table says it has.
    pub(crate) pairs: Vec<PairId>,
    /// Its client, or why there is none.
    pub(crate) store: anyhow::Result<Store>,
}

impl Member {
    /// Nobody is there, and nothing is missed: no pair is, by the region table. The user named it, or it is a
    /// node that was emptied and stopped.
    pub(crate) fn is_superfluous(&self) -> bool {
        self.store.is_err() && self.pairs.is_empty()
    }
}

/// The same nodes without those that nobody misses, which a warning names.
///
/// # Errors
/// As for [`members`].
pub(crate) fn needed_members(arguments: &ServerArgs, timeout: Duration) -> anyhow::Result<Vec<Member>> {
    let all = members(arguments, timeout)?;
    let (left_out, needed): (Vec<_>, Vec<_>) = all.into_iter().partition(Member::is_superfluous);
    for member in left_out {
        if let Err(error) = &member.store {
            message::warning(&format!("{} is left out, no pair is there: {error:#}", member.server));
        }
    }
    Ok(needed)
}

/// Every node that the region table names, and every server that the user named, by node number. A node that
/// cannot be reached is a member too.
///
/// # Errors
/// None of the servers that the user named can be reached.
pub(crate) fn members(arguments: &ServerArgs, timeout: Duration) -> anyhow::Result<Vec<Member>> {
    let mut store = Store::connect_at_once(arguments, timeout)?;
    let mut places: Vec<MemberAddress> = Vec::new();
    for (node, server, pair) in store.places()? {
        let known = places.iter().position(|place| place.server == server);
        let at = known.unwrap_or_else(|| {
            places.push(MemberAddress { node: Some(node), server, pairs: Vec::new() });
            places.len() - 1
        });
        places[at].pairs.extend(pair);
    }
    let named: Vec<&str> = arguments.server.split(',').map(str::trim).collect();
    if places.len() <= 1 && named.len() == 1 {
        let MemberAddress { node, pairs, .. } = places.pop().unwrap_or_default();
        return Ok(vec![Member { server: arguments.server.clone(), node, pairs, store: Ok(store) }]);
    }
    for server in named {
        if !places.iter().any(|place| place.server == server) {
            places.push(MemberAddress { server: server.to_owned(), ..MemberAddress::default() });
        }
    }
    let connect = |MemberAddress { node, server, pairs }: MemberAddress| {
        let store =
            Store::connect_at_once(&ServerArgs { server: server.clone(), ..arguments.clone() }, timeout);
        // Two names may be one node's.
        let met = store.as_ref().ok().and_then(Store::node);
        Member { server, node: met.or(node), pairs, store }
    };
    let mut members = side_by_side(places, connect);
    members.sort_by_key(|member| (member.node.is_none(), member.node));
    members.dedup_by(|later, first| later.node.is_some() && later.node == first.node && later.store.is_ok());
    Ok(members)
}

/// Where the region table says that a node is, or the user that one may be.
#[derive(Default)]
struct MemberAddress {
    node: Option<NodeId>,
    server: String,
    pairs: Vec<PairId>,
}
