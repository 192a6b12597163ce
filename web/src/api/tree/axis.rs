//! The key axis of the whole cluster, from what the nodes report: meganodes in key order, without a gap and
//! without overlap. Nodes report different moments, so at a split two rows may overlap or leave a range out:
//! the left one is cut or goes on then. Where a pair is that nobody reports, a range is left out for good.

use std::collections::{BTreeMap, BTreeSet};

use cell_cluster::PairRow;

use super::part::{KeyRange, MeganodeRow};
use crate::peers::MissingPeer;

/// A range of keys, and who has it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Span {
    pub(crate) low: Vec<u8>,
    /// `None` for plus infinity.
    pub(crate) high: Option<Vec<u8>>,
    pub(crate) held: Held,
}

/// Who has a range.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Held {
    By(MeganodeRow),
    Unreported(Unreported),
}

/// Pairs that no node has reported, as the region table has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unreported {
    /// The node that serves them all, and did not answer.
    pub(crate) node: Option<u32>,
    /// If it is but one.
    pub(crate) pair: Option<u32>,
}

impl Unreported {
    /// What the table has and nobody reports; none if all is reported.
    pub(crate) fn of(
        table: &[PairRow],
        reported: &BTreeSet<u32>,
        missing: &[MissingPeer],
    ) -> Option<Unreported> {
        let unreported: Vec<_> = table.iter().filter(|row| !reported.contains(&row.pair.0)).collect();
        let first = unreported.first()?;
        let same = unreported.iter().all(|row| row.node == first.node && row.is_published());
        let silent = missing.iter().any(|peer| peer.node == first.node.0);
        let pair = (unreported.len() == 1).then_some(first.pair.0);
        Some(Unreported { node: (same && silent).then_some(first.node.0), pair })
    }
}

/// The spans of a range. `owners` says whose word counts where two nodes report one meganode.
pub(crate) fn axis(
    mut rows: Vec<MeganodeRow>,
    range: &KeyRange,
    unreported: Option<Unreported>,
    owners: &BTreeMap<u32, u32>,
) -> Vec<Span> {
    let owned = |row: &MeganodeRow| owners.get(&row.pair) == Some(&row.node);
    // The owner's rows come first of those that begin at one key.
    rows.sort_by(|one, other| one.low.cmp(&other.low).then_with(|| owned(other).cmp(&owned(one))));
    rows.dedup_by(|next, kept| next.low == kept.low);
    let mut spans: Vec<Span> = Vec::with_capacity(rows.len());
    let mut end = Some(range.from.clone());
    for mut row in rows {
        let ahead = end.as_ref().is_some_and(|end| row.low > *end);
        match (spans.last_mut(), unreported) {
            (_, Some(unreported)) if ahead => {
                let low = end.take().unwrap_or_default();
                spans.push(Span { low, high: Some(row.low.clone()), held: Held::Unreported(unreported) });
            }
            (Some(left), _) => left.high = Some(row.low.clone()),
            (None, _) if ahead => row.low = end.take().unwrap_or_default(),
            (None, _) => {}
        }
        end.clone_from(&row.high);
        spans.push(Span { low: row.low.clone(), high: row.high.clone(), held: Held::By(row) });
    }
    let short = end.as_ref().is_some_and(|end| range.to.as_ref().is_none_or(|to| end < to));
    match (spans.last_mut(), unreported) {
        (_, Some(unreported)) if short => {
            let low = end.unwrap_or_default();
            spans.push(Span { low, high: range.to.clone(), held: Held::Unreported(unreported) });
        }
        (Some(left), None) if short => left.high.clone_from(&range.to),
        _ => {}
    }
    spans
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn row(low: &[u8], high: Option<&[u8]>) -> MeganodeRow {
        MeganodeRow {
            low: low.to_vec(),
            high: high.map(<[u8]>::to_vec),
            node: 1,
            pair: 1,
            slot: 0,
            height: 2,
            tree_nodes: 30,
            tree_nodes_all: 100,
            entries: 7,
            bytes: 70,
            splitting: false,
            writes_per_second: Some(1.0),
            reads_per_second: None,
        }
    }

    /// The spans' bounds as text, `-` where nobody has reported; each begins where the one before it ends.
    fn spans(rows: Vec<MeganodeRow>, range: &KeyRange, unreported: Option<Unreported>) -> String {
        let spans = axis(rows, range, unreported, &BTreeMap::from([(1, 1)]));
        assert!(spans.windows(2).all(|pair| pair[0].high.as_ref() == Some(&pair[1].low)), "{spans:?}");
        let text = |span: &Span| {
            let low = String::from_utf8(span.low.clone()).unwrap();
            if matches!(span.held, Held::By(_)) { low } else { format!("-{low}") }
        };
        let last = spans.last().map(|last| String::from_utf8(last.high.clone().unwrap_or("!".into())));
        let mut words: Vec<_> = spans.iter().map(text).collect();
        words.extend(last.map(Result::unwrap));
        words.join(" ")
    }

    #[test]
    fn axis_of_moments_that_differ_has_no_gap_and_no_overlap() {
        let range = KeyRange::default();
        let of = |rows| spans(rows, &range, None);
        assert_eq!(of(vec![row(b"g", None), row(b"", Some(b"g"))]), " g !");
        assert_eq!(of(vec![row(b"", Some(b"d")), row(b"g", None)]), " g !", "cut, and not yet adopted");
        assert_eq!(of(vec![row(b"", None), row(b"g", None)]), " g !", "adopted, and not yet cut");
        assert_eq!(of(vec![row(b"", Some(b"g")), row(b"g", Some(b"k"))]), " g !");
        assert_eq!(of(vec![row(b"b", None)]), " !");
        assert_eq!(of(Vec::new()), "");
    }

    #[test]
    fn axis_with_a_pair_that_nobody_reports_shows_where_it_is() {
        let of = |rows, range: &KeyRange| spans(rows, range, Some(Unreported::default()));
        let all = KeyRange::default();
        let reported = || vec![row(b"b", Some(b"d")), row(b"g", Some(b"k"))];
        assert_eq!(of(reported(), &all), "- b -d g -k !");
        assert_eq!(of(Vec::new(), &all), "- !");
        let part = KeyRange { from: b"c".to_vec(), to: Some(b"j".to_vec()) };
        assert_eq!(of(reported(), &part), "b -d g k");
        let between = KeyRange { from: b"e".to_vec(), to: Some(b"f".to_vec()) };
        assert_eq!(of(Vec::new(), &between), "-e f");
    }

    #[test]
    fn axis_of_a_meganode_that_two_nodes_report_has_its_owners_word() {
        let stale = MeganodeRow { node: 2, entries: 1, ..row(b"", None) };
        let spans = axis(vec![stale, row(b"", None)], &KeyRange::default(), None, &BTreeMap::from([(1, 1)]));
        assert!(matches!(&*spans, [Span { held: Held::By(MeganodeRow { node: 1, entries: 7, .. }), .. }]));
    }
}
