//! Settings that are changed for the whole cluster: for the revision that was seen, once, however often the
//! coordinator does not answer; by many at a time; for a while.

#![allow(clippy::unwrap_used, reason = "a helper of a test that fails fails the test")]

use std::collections::BTreeMap;
use std::sync::Arc;

use cell_cluster::{
    CHANGES_MAX, ClusterError, Fault, Sim, Tuned, Tuning, TuningChange, TuningRow, WantedTuning, Watch,
};

fn wanted(id: u64, values: &[(&str, Option<&str>)]) -> WantedTuning {
    let owned = |(name, text): &(&str, Option<&str>)| ((*name).to_owned(), text.map(str::to_owned));
    WantedTuning {
        id,
        at_unix_ms: 1_000 + id,
        who: "an operator".to_owned(),
        values: values.iter().map(owned).collect(),
        ..WantedTuning::default()
    }
}

fn tuning(sim: &Sim) -> Tuning {
    Tuning::new(Arc::new(sim.link()))
}

fn all(tuning: &Tuning) -> Vec<TuningChange> {
    tuning.changes(None, CHANGES_MAX).unwrap()
}

fn texts(row: &TuningRow) -> Vec<(&str, &str)> {
    row.values.iter().map(|(name, value)| (name.as_str(), value.text.as_str())).collect()
}

#[test]
fn change_of_the_revision_seen_is_in_force_and_reported_by_the_watch() {
    let sim = Sim::new(1);
    let tuning = tuning(&sim);
    let mut watch = Watch::new(Arc::new(sim.link()));
    watch.look().unwrap();
    assert_eq!((watch.view().tuning.revision, all(&tuning).len()), (0, 0));
    let first = wanted(1, &[("a", Some("1 s")), ("b", Some("2"))]);
    assert!(matches!(tuning.change(0, &first).unwrap(), Tuned::Changed(change) if change.revision == 1));
    assert_eq!(tuning.change(0, &wanted(2, &[("a", None)])).unwrap(), Tuned::Stale(1));
    assert_eq!(tuning.change(1, &wanted(2, &[("b", Some("2"))])).unwrap(), Tuned::Unchanged);
    let second = tuning.change(1, &wanted(3, &[("a", None), ("c", None)])).unwrap();
    let Tuned::Changed(second) = second else { panic!("{second:?}") };
    assert_eq!((second.revision, second.settings.len()), (2, 1));
    assert_eq!(second.settings[0].old.as_deref(), Some("1 s"));
    assert!(watch.look().unwrap().changed);
    assert_eq!((watch.view().tuning.revision, texts(&watch.view().tuning)), (2, vec![("b", "2")]));
    let mut late = Watch::new(Arc::new(sim.link()));
    late.look().unwrap();
    assert_eq!(late.view().tuning, tuning.current().unwrap());
    let revisions: Vec<_> = all(&tuning).iter().map(|change| change.revision).collect();
    assert_eq!(revisions, [2, 1]);
}

#[test]
fn change_whose_answer_is_lost_is_made_once_and_its_author_is_answered() {
    let faults = [
        vec![Fault::None, Fault::AnswerLost],
        vec![Fault::None, Fault::Lost],
        vec![Fault::None, Fault::Late],
        vec![Fault::None, Fault::Delayed { calls: 2 }],
        vec![Fault::None, Fault::AnswerLost, Fault::AnswerLost, Fault::None],
    ];
    for faults in faults {
        let sim = Sim::new(1);
        let link = sim.link();
        link.plan(faults.clone());
        let author = Tuning::new(Arc::new(link));
        // A read whose answer is lost is the author's to repeat.
        let change = loop {
            match author.change(0, &wanted(9, &[("a", Some("1"))])) {
                Ok(change) => break change,
                Err(error) => assert!(error.is_transient(), "{faults:?}: {error}"),
            }
        };
        assert!(matches!(change, Tuned::Changed(change) if change.id == 9), "{faults:?}");
        let row = tuning(&sim).current().unwrap();
        assert_eq!((row.revision, texts(&row)), (1, vec![("a", "1")]), "{faults:?}");
        assert_eq!(all(&tuning(&sim)).len(), 1, "{faults:?}");
    }
}

#[test]
fn change_whose_answer_is_lost_before_the_coordinator_goes_is_of_unknown_outcome() {
    let sim = Sim::new(1);
    let link = sim.link();
    link.plan([Fault::None, Fault::AnswerLost, Fault::NotReached]);
    let error = Tuning::new(Arc::new(link)).change(0, &wanted(9, &[("a", Some("1"))])).unwrap_err();
    assert!(matches!(error, ClusterError::OutcomeUnknown(_)), "{error}");
    assert_eq!(tuning(&sim).current().unwrap().revision, 1, "it was made");
}

#[test]
fn change_for_a_while_gives_back_what_was_before() {
    let sim = Sim::new(1);
    let tuning = tuning(&sim);
    tuning.change(0, &wanted(1, &[("a", Some("1"))])).unwrap();
    let until = |id, at, text| WantedTuning {
        expires_unix_ms: Some(at),
        ..wanted(id, &[("a", Some(text)), ("b", Some(text))])
    };
    tuning.change(1, &until(2, 5_000, "2")).unwrap();
    // Changed again before its time is over: it ends as it was to end.
    tuning.change(2, &until(3, 6_000, "3")).unwrap();
    let row = tuning.current().unwrap();
    assert_eq!((row.expired(5_999), texts(&row)), (None, vec![("a", "3"), ("b", "3")]));
    let back = row.expired(6_000).unwrap();
    let before = BTreeMap::from([("a".to_owned(), Some("1".to_owned())), ("b".to_owned(), None)]);
    assert_eq!((&back.values, back.ends.len()), (&before, 0));
    tuning.change(3, &WantedTuning { id: 4, ..back }).unwrap();
    let row = tuning.current().unwrap();
    assert_eq!((texts(&row), row.expired(u64::MAX)), (vec![("a", "1")], None));
}

/// The inner time to live once ended the outer one, too.
#[test]
fn change_for_a_while_within_another_gives_back_the_outer_value_with_its_end() {
    let sim = Sim::new(1);
    let tuning = tuning(&sim);
    tuning.change(0, &wanted(1, &[("a", Some("1"))])).unwrap();
    let until = |id, at, text| WantedTuning { expires_unix_ms: Some(at), ..wanted(id, &[("a", Some(text))]) };
    for (revision, at, text) in [(1, 9_000, "2"), (2, 7_000, "3"), (3, 5_000, "4")] {
        tuning.change(revision, &until(revision + 1, at, text)).unwrap();
    }
    let nested = tuning.current().unwrap();
    for (now, text, end) in [(5_000, "3", Some(7_000)), (7_000, "2", Some(9_000)), (9_000, "1", None)] {
        // A node that was away looks late: what ended meanwhile is passed over.
        let late = nested.expired(now).unwrap();
        assert_eq!(late.values["a"].as_deref(), Some(text), "{now}");
        let row = tuning.current().unwrap();
        assert_eq!(row.expired(now - 1), None, "{now}");
        tuning.change(row.revision, &WantedTuning { id: now, ..row.expired(now).unwrap() }).unwrap();
        let value = tuning.current().unwrap().values.remove("a").unwrap();
        assert_eq!((value.text.as_str(), value.expires_unix_ms), (text, end), "{now}");
    }
    let last = all(&tuning).remove(1).settings.remove(0);
    assert_eq!(last.new_expires_unix_ms, Some(9_000), "the history says until when the outer value holds");
}

#[test]
fn change_for_a_while_within_too_many_others_is_refused() {
    let sim = Sim::new(1);
    let tuning = tuning(&sim);
    let until = |revision: u64| {
        let text = revision.to_string();
        WantedTuning { expires_unix_ms: Some(9_000 - revision), ..wanted(revision, &[("a", Some(&text))]) }
    };
    let refused = (0..20).find_map(|revision| tuning.change(revision, &until(revision)).err());
    assert!(matches!(refused, Some(ClusterError::TooLong { .. })), "{refused:?}");
    let row = tuning.current().unwrap();
    assert!(tuning.change(row.revision, &wanted(99, &[("a", None)])).is_ok());
}

/// A value that was restored once had no end, so that what was for a while became permanent.
#[test]
fn reverted_value_has_the_end_that_it_had_or_is_what_was_to_follow() {
    let sim = Sim::new(1);
    let tuning = tuning(&sim);
    tuning.change(0, &wanted(1, &[("a", Some("1"))])).unwrap();
    let until = WantedTuning { expires_unix_ms: Some(5_000), ..wanted(2, &[("a", Some("2"))]) };
    tuning.change(1, &until).unwrap();
    let ended = tuning.current().unwrap();
    tuning.change(2, &wanted(3, &[("a", Some("3"))])).unwrap();
    let change = all(&tuning).remove(0).settings.remove(0);
    assert_eq!(change.clone().reverted(5_000), (Some("1".to_owned()), None), "its time has passed");
    let (value, end) = change.reverted(4_999);
    let mut back = wanted(4, &[("a", value.as_deref())]);
    back.ends = end.map(|end| ("a".to_owned(), end)).into_iter().collect();
    tuning.change(3, &back).unwrap();
    assert_eq!(tuning.current().unwrap().values, ended.values);
}

#[test]
fn change_for_a_while_that_takes_back_what_is_not_tuned_is_none() {
    let sim = Sim::new(1);
    let tuning = tuning(&sim);
    let back = WantedTuning { expires_unix_ms: Some(5_000), ..wanted(1, &[("a", None)]) };
    assert_eq!(tuning.change(0, &back).unwrap(), Tuned::Unchanged);
}

/// Two hundred changes were kept once: whoever made a change could flush it by as many others.
#[test]
fn changes_are_kept_by_the_thousands_and_read_a_page_at_a_time() {
    let sim = Sim::new(1);
    let tuning = tuning(&sim);
    let last = CHANGES_MAX + 7;
    for revision in 0..last {
        let value = revision.to_string();
        tuning.change(revision, &wanted(revision, &[("a", Some(&value))])).unwrap();
    }
    let (mut seen, mut before) = (Vec::new(), None);
    loop {
        let page = tuning.changes(before, 600).unwrap();
        let Some(oldest) = page.last() else { break };
        before = Some(oldest.revision);
        assert!(page.len() <= 600);
        seen.extend(page.iter().map(|change| change.revision));
    }
    assert!(seen.iter().copied().eq((8..=last).rev()), "{} changes from {:?}", seen.len(), seen.first());
    assert_eq!((tuning.change_of(8).unwrap().unwrap().id, tuning.change_of(7).unwrap()), (7, None));
}

#[test]
fn change_that_is_taken_back_names_by_which() {
    let sim = Sim::new(1);
    let tuning = tuning(&sim);
    tuning.change(0, &wanted(1, &[("a", Some("1"))])).unwrap();
    for (revision, text) in [(1, None), (2, Some("1")), (3, None)] {
        let reverts = text.is_none().then_some(1);
        let wanted = WantedTuning { reverts, ..wanted(revision + 1, &[("a", text)]) };
        tuning.change(revision, &wanted).unwrap();
    }
    let by: Vec<_> = all(&tuning).iter().map(|change| change.reverted_by).collect();
    assert_eq!(by, [None, None, None, Some(4)], "the last one that did");
}

#[test]
fn changes_are_kept_up_to_a_size() {
    let sim = Sim::new(1);
    let tuning = tuning(&sim);
    tuning.change(0, &wanted(0, &[("a", Some("0"))])).unwrap();
    let long = "x".repeat(40 << 10);
    let refused = tuning.change(1, &wanted(1, &[("a", Some(&long))]));
    assert!(matches!(refused, Err(ClusterError::TooLong { .. })), "{refused:?}");
    let mut wordy = wanted(1, &[("a", Some("1"))]);
    wordy.reason = Some("ä".repeat(2_000));
    let Tuned::Changed(change) = tuning.change(1, &wordy).unwrap() else { panic!("it is another value") };
    assert!(change.reason.is_some_and(|reason| reason.len() <= cell_cluster::WORDS_BYTES_MAX));
}

#[test]
fn change_by_many_at_a_time_loses_none() {
    const THREADS: u64 = 4;
    const EACH: u64 = 50;
    let sim = Sim::new(1);
    let count = |tuning: &Tuning, id: u64| loop {
        let row = tuning.current().unwrap();
        let known: u64 = row.values.get("count").map_or(0, |value| value.text.parse().unwrap());
        let next = (known + 1).to_string();
        match tuning.change(row.revision, &wanted(id, &[("count", Some(&next))])).unwrap() {
            Tuned::Changed(_) => return,
            Tuned::Stale(current) => assert!(current > row.revision),
            Tuned::Unchanged => panic!("every count is another value"),
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let tuning = tuning(&sim);
            scope.spawn(move || (0..EACH).for_each(|nth| count(&tuning, thread << 32 | nth)));
        }
    });
    let row = tuning(&sim).current().unwrap();
    assert_eq!((row.revision, texts(&row)), (THREADS * EACH, vec![("count", "200")]));
}

/// A row that somebody put there by hand, or another version.
#[test]
fn row_that_does_not_read_is_reported_and_the_last_good_one_stays_until_a_change_mends_it() {
    use cell_cluster::{Coordinator, Transaction};
    let sim = Sim::new(1);
    let tuning = tuning(&sim);
    let mut watch = Watch::new(Arc::new(sim.link()));
    watch.look().unwrap();
    tuning.change(0, &wanted(1, &[("a", Some("1 s")), ("b", Some("2"))])).unwrap();
    tuning.change(1, &wanted(2, &[("b", None), ("c", Some("3"))])).unwrap();
    watch.look().unwrap();
    let good = watch.view().tuning.clone();
    for garbage in ["", "{", r#"{"revision":"x"}"#, "[1]"] {
        sim.link().transact(Transaction::new().put("tuning/current", garbage)).unwrap();
        assert!(watch.look().unwrap().changed);
        assert_eq!(watch.view().tuning, good, "{garbage}");
        let why = &watch.view().unreadable["tuning/current"];
        assert!(why.contains("cannot read the tuning"), "{why}");
        // Who comes later has what the changes made.
        let mut late = Watch::new(Arc::new(sim.link()));
        late.look().unwrap();
        assert_eq!((&late.view().tuning, late.view().unreadable.len()), (&good, 1));
        assert_eq!(tuning.current().unwrap(), good);
    }
    let changed = tuning.change(2, &wanted(3, &[("c", Some("3"))])).unwrap();
    assert!(matches!(changed, Tuned::Changed(change) if change.revision == 3));
    assert!(watch.look().unwrap().changed);
    assert_eq!((texts(&watch.view().tuning), watch.view().tuning.revision), (texts(&good), 3));
    assert!(watch.view().unreadable.is_empty());
}

/// What follows when a restored value ends is not in the change that restored it.
#[test]
fn row_that_does_not_read_is_made_again_with_every_end_of_its_values() {
    use cell_cluster::{Coordinator, Transaction};
    let sim = Sim::new(1);
    let tuning = tuning(&sim);
    let until = |id, at, text| WantedTuning { expires_unix_ms: Some(at), ..wanted(id, &[("a", Some(text))]) };
    let step = |wanted: &WantedTuning| {
        let revision = tuning.current().unwrap().revision;
        assert!(matches!(tuning.change(revision, wanted), Ok(Tuned::Changed(_))));
        let (link, good) = (sim.link(), tuning.current().unwrap());
        let whole = link.read("tuning/current").unwrap().expect("it is there").value;
        link.transact(Transaction::new().put("tuning/current", "garbage")).unwrap();
        assert_eq!(tuning.current().unwrap(), good);
        link.transact(Transaction::new().put("tuning/current", whole)).unwrap();
        good
    };
    step(&wanted(1, &[("a", Some("1"))]));
    step(&until(2, 9_000, "2"));
    step(&until(3, 7_000, "3"));
    let nested = step(&until(4, 5_000, "4"));
    let over = step(&WantedTuning { id: 5, ..nested.expired(5_000).unwrap() });
    assert_eq!((over.values["a"].expires_unix_ms, over.values["a"].later.len()), (Some(7_000), 1));
    // The change that took the value back is taken back.
    let (value, end) = all(&tuning).remove(0).settings.remove(0).reverted(4_000);
    let ends = end.map(|end| ("a".to_owned(), end)).into_iter().collect();
    let back = WantedTuning { reverts: Some(5), ends, ..wanted(6, &[("a", value.as_deref())]) };
    assert_eq!(step(&back).values, nested.values);
    // One change that does not read costs the history that one alone.
    sim.link().transact(Transaction::new().put("tuning/change/0000000000000004", "garbage")).unwrap();
    let revisions = |before, limit| {
        let changes = tuning.changes(before, limit).unwrap();
        changes.iter().map(|change| change.revision).collect::<Vec<_>>()
    };
    assert_eq!((revisions(None, 3), revisions(Some(3), 3)), (vec![6, 5, 3], vec![2, 1]));
}

/// Ten thousand large ones are more than the coordinator takes: it refused each further change.
#[test]
fn changes_that_fill_what_there_is_for_them_make_room_by_their_bytes() {
    use cell_cluster::{Coordinator, CoordinatorRefusal, Transaction};
    let sim = Sim::new(1);
    let (tuning, link) = (tuning(&sim), sim.link());
    let key = |revision: u64| format!("tuning/change/{revision:016x}");
    // Small ones that were made first do not free enough by themselves.
    let mut revision = 0;
    let mut fill = |bytes: usize, most: u64| {
        for _ in 0..most {
            let row = format!("{{\"revision\":{},\"values\":{{}}}}", revision + 1);
            let change =
                Transaction::new().put("tuning/current", row).put(key(revision + 1), "x".repeat(bytes));
            match link.transact(change) {
                Ok(_) => revision += 1,
                Err(ClusterError::Refused(CoordinatorRefusal::Quota { .. })) => return revision,
                Err(error) => panic!("{error}"),
            }
        }
        revision
    };
    fill(100, 1_000);
    let full = fill(30 << 10, 9_000);
    assert!(full < CHANGES_MAX, "it is full before there are as many as may be: {full}");
    let text = "y".repeat(490);
    let names: Vec<String> = (0..24).map(|name| format!("{name:02}")).collect();
    for made in 0..40 {
        let text = (made % 2 == 0).then_some(text.as_str());
        let values: Vec<_> = names.iter().map(|name| (name.as_str(), text)).collect();
        let change = tuning.change(full + made, &wanted(made + 1, &values)).unwrap();
        assert!(
            matches!(&change, Tuned::Changed(change) if change.revision == full + made + 1),
            "{change:?}"
        );
    }
    let is_kept = |revision| link.read(&key(revision)).unwrap().is_some();
    assert!(!is_kept(1) && !is_kept(1_000) && is_kept(full), "the oldest go, and no more than have to");
    assert_eq!(tuning.changes(None, 40).unwrap().len(), 40);
    // One that takes back what is not kept any more is a change like any other.
    let gone = WantedTuning { reverts: Some(1), ..wanted(99, &[("x", Some("2"))]) };
    assert!(matches!(tuning.change(full + 40, &gone).unwrap(), Tuned::Changed(_)));
}

/// Of members, incidents and pairs the same.
#[test]
fn rows_of_every_kind_that_do_not_read_leave_what_was_known() {
    use cell_cluster::{Coordinator, MemberRow, Members, Transaction};
    let sim = Sim::new(1);
    let link = sim.link();
    let incarnation = link.grant(60_000).unwrap().lease;
    let row = MemberRow {
        incarnation,
        node: cell_terms::NodeId(3),
        fabric: "127.0.0.1:1".into(),
        http: String::new(),
        pid: 1,
        memory_limit_bytes: 0,
    };
    Members::new(Arc::new(link.clone())).enter(&row).unwrap();
    let mut watch = Watch::new(Arc::new(sim.link()));
    watch.look().unwrap();
    let key = format!("member/{:016x}", incarnation.0);
    let garbage = Transaction::new().put_leased(&key, "garbage", incarnation).put("incident/7", "garbage");
    link.transact(garbage).unwrap();
    assert!(watch.look().unwrap().changed);
    assert_eq!(watch.view().members[&incarnation], row);
    assert_eq!(watch.view().unreadable.keys().collect::<Vec<_>>(), ["incident/7", key.as_str()]);
    // A pair of which nothing is known is another matter: a node must know all of them.
    link.transact(Transaction::new().put("pair/00000001", "garbage")).unwrap();
    watch.look().unwrap();
    assert!(matches!(Watch::new(Arc::new(sim.link())).look(), Err(ClusterError::Unreadable { .. })));
}
