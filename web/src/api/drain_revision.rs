//! What somebody has been shown of drains before they change them: which nodes that was about, and how often
//! drains had been changed by then. A preview names it in its `ETag`, and the change in `If-Match`.

use std::fmt;

use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use cell_terms::NodeId;

use crate::problem::{FieldProblem, Problem};

/// After a change that was asked for of something else than there is.
const LOOK_AGAIN: &str = "look at what would be done now, with dry_run=1, and decide anew";

/// See the module's text. As text: the number of changes and the nodes, with points between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DrainRevision {
    pub(crate) changes: u64,
    pub(crate) nodes: Vec<NodeId>,
}

impl DrainRevision {
    /// What a preview shows.
    pub(crate) fn of(changes: u64, nodes: &[NodeId]) -> DrainRevision {
        DrainRevision { changes, nodes: nodes.to_vec() }
    }

    /// What the author of a request has seen.
    ///
    /// # Errors
    /// 428: they do not say. 400: it is none.
    pub(crate) fn in_headers(headers: &HeaderMap) -> Result<DrainRevision, Problem> {
        let next = "ask with ?dry_run=1: the ETag of that answer is the revision";
        let text = headers.get(header::IF_MATCH).map(|tag| tag.to_str().unwrap_or("?").trim());
        let Some(text) = text.filter(|text| !text.is_empty()) else {
            let detail = "A change needs If-Match with the revision of its preview.";
            let problem = Problem::new(StatusCode::PRECONDITION_REQUIRED, "precondition_required", detail);
            return Err(problem.next(next));
        };
        let revision = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
        revision.and_then(DrainRevision::parse).ok_or_else(|| {
            let detail = "it takes one revision as the ETag of a preview has it, such as \"7.3\"".to_owned();
            let pointer = "/header/if-match".to_owned();
            Problem::bad_request(FieldProblem { pointer, detail, ..FieldProblem::default() }).next(next)
        })
    }

    fn parse(text: &str) -> Option<DrainRevision> {
        let mut numbers = text.split('.');
        let changes = numbers.next()?.parse().ok()?;
        let nodes = numbers.map(|number| number.parse().ok().map(NodeId)).collect::<Option<Vec<_>>>()?;
        (!nodes.is_empty()).then_some(DrainRevision { changes, nodes })
    }

    /// Whether a change is still about the nodes of its preview.
    ///
    /// # Errors
    /// 412.
    pub(crate) fn check_nodes(&self, nodes: &[NodeId]) -> Result<(), Problem> {
        if self.nodes == nodes {
            return Ok(());
        }
        let (seen, now) = (named(&self.nodes), named(nodes));
        Err(stale(&format!("it was about {seen}, and would be about {now} now")))
    }

    /// The header that names it.
    pub(crate) fn etag(&self) -> [(HeaderName, String); 1] {
        [(header::ETAG, format!("\"{self}\""))]
    }
}

impl fmt::Display for DrainRevision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.changes)?;
        self.nodes.iter().try_for_each(|node| write!(f, ".{}", node.0))
    }
}

/// Nothing was done, because what was seen is not so any more.
pub(crate) fn stale(what: &str) -> Problem {
    let detail = format!("Nothing was done: {what}.");
    Problem::new(StatusCode::PRECONDITION_FAILED, "stale_preview", detail).next(LOOK_AGAIN)
}

/// `node-1, node-2`.
fn named(nodes: &[NodeId]) -> String {
    match nodes {
        [] => "no node".to_owned(),
        nodes => nodes.iter().map(NodeId::to_string).collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn read(text: &str) -> Result<DrainRevision, (u16, &'static str)> {
        let mut headers = HeaderMap::new();
        headers.insert(header::IF_MATCH, HeaderValue::from_str(text).unwrap());
        DrainRevision::in_headers(&headers).map_err(|problem| (problem.status.as_u16(), problem.code))
    }

    #[test]
    fn in_headers_reads_what_a_preview_named_and_nothing_else() {
        for nodes in [&[NodeId(3)][..], &[NodeId(0), NodeId(7), NodeId(1_023)]] {
            let revision = DrainRevision::of(u64::MAX, nodes);
            assert_eq!(read(&revision.etag()[0].1), Ok(revision));
        }
        for wrong in ["7.3", "\"7\"", "\"7.\"", "\".3\"", "\"7.x\"", "*", "\"7.3\", \"8.3\"", "W/\"7.3\""] {
            assert_eq!(read(wrong), Err((400, "bad_request")), "{wrong}");
        }
        let none = DrainRevision::in_headers(&HeaderMap::new()).unwrap_err();
        assert_eq!((none.status.as_u16(), none.code), (428, "precondition_required"));
        assert_eq!(read(" ").unwrap_err().0, 428);
    }
}
