//! What the admin API of a cluster shows. A node that has much to do may leave a question unanswered: it is
//! asked again.

use cell_tests::server::Server;
use serde_json::Value;

use crate::options::BenchError;
use crate::patience;

/// A document of the first node, if it answers just now.
pub(crate) fn document(server: &Server, path: &str) -> Option<Value> {
    let (_, body) = server.http(path).filter(|(status, _)| *status == 200)?;
    serde_json::from_str(&body).ok()
}

/// Where a pair is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PairAt {
    pub(crate) pair: u64,
    pub(crate) node: u64,
    /// What is used of its extent region; none while its owner does not say.
    pub(crate) used_bytes: Option<u64>,
}

/// The pairs, without those that nobody has who lives.
pub(crate) fn pairs(server: &Server) -> Result<Vec<PairAt>, BenchError> {
    patience::until_some("the pairs are shown", || Some(pairs_now(server)).filter(|pairs| !pairs.is_empty()))
}

/// The pair with most in it, once it is known how much each has.
pub(crate) fn largest_pair(server: &Server) -> Result<u64, BenchError> {
    patience::until_some("it is known how much is in each pair", || {
        let pairs = pairs_now(server);
        let are_known = pairs.iter().all(|at| at.used_bytes.is_some());
        pairs.into_iter().filter(|_| are_known).max_by_key(|at| at.used_bytes).map(|at| at.pair)
    })
}

fn pairs_now(server: &Server) -> Vec<PairAt> {
    let document = document(server, "/api/v1/regions?limit=65536").unwrap_or_default();
    pairs_of(&document)
}

fn pairs_of(document: &Value) -> Vec<PairAt> {
    let rows = document["regions"].as_array().map_or(&[][..], Vec::as_slice);
    let extents = rows.iter().filter(|row| row["kind"] == "extent");
    let at = |row: &Value| {
        let (pair, node) = (row["pair"].as_u64()?, row["node"].as_u64()?);
        Some(PairAt { pair, node, used_bytes: row["used_bytes"].as_u64() })
    };
    extents.filter_map(at).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pairs_of_a_document_are_those_that_somebody_has() {
        let row = |pair: u64, kind: &str, node: Option<u64>, used: Option<u64>| json!({"pair": pair, "kind": kind, "node": node, "used_bytes": used});
        let rows = [
            row(1, "node", Some(0), Some(9)),
            row(1, "extent", Some(0), Some(7)),
            row(2, "extent", None, None),
            row(3, "extent", Some(2), None),
        ];
        let at = |pair, node, used_bytes| PairAt { pair, node, used_bytes };
        assert_eq!(pairs_of(&json!({"regions": rows})), [at(1, 0, Some(7)), at(3, 2, None)]);
        assert_eq!(pairs_of(&json!({"title": "nobody answered"})), []);
    }
}
