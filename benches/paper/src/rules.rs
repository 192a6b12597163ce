//! Both rules of the selector against the model, and the model against what it was calibrated from. Simulated
//! time and seeds: a run is the same each time.

use crate::calibration::{Calibration, Clients, PIPELINED, SERVERS};
use crate::cluster::{Cluster, fixed, policy};
use crate::data::{DATA, PaperData};
use crate::figure5::of_many;
use crate::observed::Observed;
use crate::study::Study;

const RULES: [&str; 2] = ["paper", "adaptive"];

/// Settled, and a third of the time after that.
fn settled(cluster: &Cluster, rule: &str, ms: u64) -> Observed {
    cluster.with(&policy(rule)).lasting(ms * 2_000_000 / 3 / 5_000_000 * 5_000_000, ms * 1_000_000).run()
}

/// Four servers of the paper; or one, and a quarter of the clients.
fn servers(calibration: &Calibration, servers: usize, cores: usize) -> Cluster {
    let clients = Clients { processes: 10 * servers, in_hand: PIPELINED };
    calibration.cluster((servers, cores), clients, &fixed(1.0))
}

/// Of one study: its calibration takes longer than most of what is held with it.
#[test]
fn rules_do_what_the_paper_says_and_the_adaptive_one_reaches_the_best_fixed_share() {
    let study = Study::new(PaperData::parse(&DATA).unwrap(), 7, false);
    servers_alone_do_what_they_were_calibrated_from(&study);
    server_side_share_and_throughput_are_those_of_the_paper(&study);
    adaptive_rule_reaches_what_the_best_fixed_share_does(&study);
    with_few_clients_the_adaptive_rule_takes_the_nearer_path(&study);
    step_in_what_servers_can_do_is_followed_within_a_second(&study);
    one_server_stands_for_sixteen(&study);
}

fn servers_alone_do_what_they_were_calibrated_from(Study { data, calibration, .. }: &Study) {
    for (at, wanted_k) in data.inputs.server_only_k.iter().enumerate() {
        let part = calibration.server_only_k(at + 1) / wanted_k;
        assert!((part - 1.0).abs() < 0.02, "{} cores: {part} of {wanted_k}", at + 1);
    }
    let row = data.inputs.table1[0];
    let (card, readers) = (calibration.cards[0].1, calibration.readers());
    for (run, mops) in [
        (calibration.raw(card, readers, 0).run(), row.read_mops),
        (calibration.raw(card, 0, readers).run(), row.message_mops),
        (calibration.both(card), row.hybrid_mops),
    ] {
        assert!((0.94..1.02).contains(&(run.rate_k() / 1e3 / mops)), "{} of {mops}", run.rate_k());
    }
}

fn server_side_share_and_throughput_are_those_of_the_paper(study: &Study) {
    for rule in RULES {
        let mut shares = Vec::new();
        for cores in [1, 2, 4, 8] {
            let run = settled(&servers(&study.calibration, SERVERS, cores), rule, 300);
            let paper = study.data.table2[cores - 1];
            let (share, part) = (run.server_percent(), run.rate_k() / paper.cell_k);
            assert!((share - paper.server_side_percent).abs() < 10.0, "{rule}, {cores} cores: {share} %");
            assert!((part - 1.0).abs() < 0.12, "{rule}, {cores} cores: {part} of {}", paper.cell_k);
            shares.push(share);
        }
        assert!(shares.windows(2).all(|pair| pair[0] < pair[1] + 3.0), "{rule}: {shares:?}");
    }
}

fn adaptive_rule_reaches_what_the_best_fixed_share_does(study: &Study) {
    for (of, cores) in [(SERVERS, 1), (SERVERS, 4), (SERVERS, 8), (1, 1), (1, 4)] {
        let model = servers(&study.calibration, of, cores);
        let (best_k, best_share) = study.best_fixed(&model, &[]);
        let run = settled(&model, "adaptive", 300);
        let (part, share) = (run.rate_k() / best_k, run.server_percent());
        assert!(
            part > 0.94,
            "{of} servers, {cores} cores: {part} of {best_k} at {best_share} with {share} %"
        );
    }
}

fn with_few_clients_the_adaptive_rule_takes_the_nearer_path(study: &Study) {
    let clients = Clients { processes: 1, in_hand: 1 };
    let model = study.calibration.cluster((1, 8), clients, &fixed(1.0));
    let (best_k, _) = study.best_fixed(&model, &[]);
    assert!(settled(&model, "adaptive", 300).rate_k() > 0.97 * best_k);
}

fn step_in_what_servers_can_do_is_followed_within_a_second(study: &Study) {
    for (from, to) in [(8, 1), (1, 8)] {
        let clients = Clients { processes: 8, in_hand: 1 };
        let mut model = study.calibration.cluster((1, 8), clients, &fixed(1.0));
        model.machines[0].cores = to;
        let (best_k, _) = study.best_fixed(&model, &[]);
        model.machines[0].cores = from;
        let model = Cluster { step: Some((200_000_000, to)), ..model };
        // The last third begins 800 ms after the step.
        let run = model.with(&policy("adaptive")).lasting(1_000_000_000, 1_200_000_000).run();
        assert!(run.rate_k() > 0.94 * best_k, "{from} then {to} cores: {} of {best_k}", run.rate_k());
    }
}

/// Many servers that are alike are one of them. It does more than each of them, because the number of
/// its operations does not vary.
fn one_server_stands_for_sixteen(study: &Study) {
    let whole = servers(&study.calibration, 16, 2);
    for rule in RULES {
        let (all, one) = (settled(&whole, rule, 300), settled(&of_many(whole.clone()), rule, 300));
        let part = 16.0 * one.rate_k() / all.rate_k();
        assert!((0.98..1.13).contains(&part), "{rule}: {part} of {}", all.rate_k());
        assert!(
            (one.server_percent() - all.server_percent()).abs() < 7.0,
            "{rule}: {} and {}",
            one.server_percent(),
            all.server_percent()
        );
    }
}
