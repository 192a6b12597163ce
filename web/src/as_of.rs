//! Of when a document is to be. Documents are kept for a second, and nodes look at the cluster now and then:
//! who has just changed something may not find it in them. A request with `Cache-Control: no-cache` waits,
//! for a while, until the node that is asked, and those that it asks, have seen all that the coordinator's
//! rows say then. Which revision that is a node tells those that it asks. From anybody else no revision is
//! heeded, because it could be one that nobody will ever see.

use std::time::Duration;

use axum::http::header::{self, HeaderMap, HeaderValue};

/// From node to node: the revision of the coordinator that is to have been seen.
pub(crate) const AS_OF_HEADER: &str = "x-cell-as-of";
/// How long a look that shows it is waited for. A node shows what it has seen once a second.
pub(crate) const SEEN_PATIENCE: Duration = Duration::from_millis(1_500);

/// See the module's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AsOf {
    /// What is kept will do.
    Kept,
    /// All that the rows say now.
    Now,
    /// All that they said at this revision.
    Revision(u64),
}

impl AsOf {
    /// As the headers of a request say; whether a peer has sent it is asked if it matters.
    pub(crate) fn in_headers(headers: &HeaderMap, is_peer: impl FnOnce() -> bool) -> AsOf {
        if let Some(revision) = headers.get(AS_OF_HEADER).and_then(|value| text(value).parse().ok())
            && is_peer()
        {
            return AsOf::Revision(revision);
        }
        let mut words =
            headers.get_all(header::CACHE_CONTROL).iter().flat_map(|value| text(value).split(','));
        if words.any(|word| word.trim() == "no-cache") { AsOf::Now } else { AsOf::Kept }
    }
}

fn text(value: &HeaderValue) -> &str {
    value.to_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use cell_cluster::{Coordinator, DrainAuthor, DrainRow, Drains, newest_change};
    use cell_node::ClusterSnapshot;
    use cell_terms::NodeId;

    use super::*;
    use crate::Sources;
    use crate::test_cluster::{TestAnswer, TestCluster, TestRequest};

    #[test]
    fn as_of_now_is_what_no_cache_means_and_a_revision_comes_first() {
        let of = |pairs: &[(&'static str, &'static str)]| {
            let pairs = pairs.iter().map(|&(name, value)| {
                (header::HeaderName::from_static(name), HeaderValue::from_static(value))
            });
            AsOf::in_headers(&pairs.collect(), || true)
        };
        assert_eq!(of(&[]), AsOf::Kept);
        assert_eq!(of(&[("cache-control", "max-age=0")]), AsOf::Kept);
        assert_eq!(of(&[("cache-control", "max-age=0, no-cache")]), AsOf::Now);
        let both = [("cache-control", "no-cache"), (AS_OF_HEADER, "7")];
        assert_eq!(of(&both), AsOf::Revision(7));
        assert_eq!(of(&[(AS_OF_HEADER, "x")]), AsOf::Kept);
    }

    /// What a node shows of the drains.
    #[derive(Default)]
    struct Shown {
        /// How often it was looked at.
        looks: u32,
        drains: Vec<DrainRow>,
        revision: u64,
    }

    /// A node that shows what there was some looks ago, as one does that looks at its cluster now and then.
    fn late(sources: Sources) -> Sources {
        const EVERY: u32 = 20;
        let inner = Arc::clone(&sources.snapshots);
        let coordinator: Arc<dyn Coordinator> = sources.coordinator.clone().unwrap();
        let shown = Mutex::new(Shown::default());
        let look = move || {
            let mut shown = shown.lock().unwrap();
            if shown.looks.is_multiple_of(EVERY) {
                shown.drains = Drains::new(Arc::clone(&coordinator)).list().unwrap();
                shown.revision = newest_change(&coordinator).unwrap().max(1);
            }
            shown.looks += 1;
            let mut node = (*inner.snapshot()).clone();
            let (drains, revision) = (shown.drains.clone(), shown.revision);
            node.cluster = Arc::new(ClusterSnapshot { drains, revision, ..(*node.cluster).clone() });
            Arc::new(node)
        };
        Sources { snapshots: Arc::new(look), ..sources }
    }

    fn ask(cluster: &TestCluster, path: &str) -> TestAnswer {
        cluster.send(0, &TestRequest::new("GET", path).header("cache-control", "no-cache"))
    }

    /// Right after a change the lists of nodes, regions and events were as before it, for up to two seconds.
    #[test]
    fn document_without_what_is_kept_shows_what_was_changed_just_now() {
        let cluster = TestCluster::start_with(2, &[], late);
        let drains = Drains::new(Arc::new(cluster.nodes[0].link.clone()));
        let author = DrainAuthor { who: "ann", why: None, now_unix_ms: 1 };
        let removed = || {
            let listed = ask(&cluster, "/api/v1/drains").body;
            let nodes = listed["drains"].as_array().unwrap().iter();
            nodes.map(|row| row["node"].as_u64().unwrap()).collect::<Vec<_>>()
        };
        let is_logged = |text: &str| {
            let listed = ask(&cluster, "/api/v1/events?kind=drain").body;
            listed["events"]
                .as_array()
                .unwrap()
                .iter()
                .any(|event| event["text"].as_str().unwrap().contains(text))
        };
        assert_eq!(removed(), [0_u64; 0]);
        for node in [7, 8] {
            drains.remove(NodeId(node), &author).unwrap();
            assert_eq!(removed(), [u64::from(node)]);
            assert!(is_logged(&format!("node-{node} was removed from the cluster")), "{node}");
            drains.end(&[NodeId(node)]).unwrap();
            assert_eq!(removed(), [0_u64; 0], "its end leaves no row");
            assert!(is_logged(&format!("node-{node} may join again")), "{node}");
        }
    }

    /// The node that is asked had seen it, and the one that it asked had not.
    #[test]
    fn part_of_another_node_is_as_of_what_the_first_one_has_seen() {
        let cluster = TestCluster::start_with(2, &[], late);
        let drains = Drains::new(Arc::new(cluster.nodes[0].link.clone()));
        let author = DrainAuthor { who: "ann", why: None, now_unix_ms: 1 };
        for removed in [true, false, true] {
            match removed {
                true => drop(drains.remove(NodeId(1), &author).unwrap()),
                false => drop(drains.end(&[NodeId(1)]).unwrap()),
            }
            let listed = ask(&cluster, "/api/v1/nodes").body;
            let nodes = listed["nodes"].as_array().unwrap();
            let is_draining = |node: u64| {
                nodes.iter().find(|row| row["node"] == node).map(|row| row["draining"].as_bool().unwrap())
            };
            assert_eq!((is_draining(0), is_draining(1)), (Some(false), Some(removed)), "{listed}");
        }
    }
}
