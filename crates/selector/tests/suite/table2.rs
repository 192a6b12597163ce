//! The selector against the model of the paper's Table 2.

use crate::model::{Model, PAPER_SHARE, Window, best_fixed, settings};
use cell_selector::SelectorSettings;

const UNTIL_NS: u64 = 150_000_000;

/// Rate in thousands a second and server-side percentage of the last third.
fn steady(model: &Model, settings: SelectorSettings) -> (f64, f64) {
    let windows = Model { settings, ..model.clone() }.run(UNTIL_NS);
    let late = &windows[windows.len() * 2 / 3..];
    (Window::rate_k(late, model.window_ns), Window::share(late))
}

#[test]
fn server_side_share_rises_with_cores_as_in_the_paper() {
    for policy in ["paper", "adaptive"] {
        let mut shares = Vec::new();
        for cores in [1, 2, 4, 5, 7, 8] {
            let model = Model::of_the_paper(cores, settings(policy, 0.5));
            let (share, paper) = (steady(&model, settings(policy, 0.5)).1, PAPER_SHARE[cores - 1]);
            assert!((share - paper as f64).abs() < 12.0, "{policy}, {cores} cores: {share} for {paper} %");
            shares.push(share);
        }
        assert!(shares.windows(2).all(|pair| pair[0] < pair[1] + 3.0), "{policy}: {shares:?}");
    }
}

/// What each policy reaches at least of the best fixed share, on four servers and on one. Where all clients
/// talk to one server alone the paper's rule makes them change sides together.
const PARTS_MIN: [(&str, [f64; 2]); 2] = [("paper", [0.95, 0.80]), ("adaptive", [0.95, 0.95])];

#[test]
fn throughput_is_that_of_the_best_fixed_share() {
    for cores in [1, 4, 8] {
        for (at, of_size) in [Model::of_the_paper, Model::of_one_server].into_iter().enumerate() {
            let model = of_size(cores, settings("fixed", 1.0));
            let (best_k, best_share) = best_fixed(&model, UNTIL_NS / 3);
            for (policy, parts_min) in PARTS_MIN {
                let (rate_k, share) = steady(&model, settings(policy, 0.5));
                let part = rate_k / best_k;
                assert!(
                    part > parts_min[at],
                    "{policy}, {cores} cores: {part} of {best_k} at {best_share} with {share} %"
                );
            }
        }
    }
}

#[test]
fn with_few_clients_the_adaptive_policy_takes_the_nearer_path() {
    let model = Model { clients: 2, ..Model::of_one_server(8, settings("fixed", 1.0)) };
    let (best_k, _) = best_fixed(&model, UNTIL_NS);
    assert!(steady(&model, settings("adaptive", 0.5)).0 > 0.97 * best_k);
}

#[test]
fn a_step_in_load_is_followed_within_a_second() {
    for (from, to) in [(8, 1), (1, 8)] {
        let (best_k, _) = best_fixed(&Model::of_the_paper(to, settings("fixed", 1.0)), UNTIL_NS / 3);
        for policy in ["paper", "adaptive"] {
            let model = Model::of_the_paper(from, settings(policy, 0.5));
            let model = Model { step: Some((UNTIL_NS, to)), ..model };
            let windows = model.run(UNTIL_NS + 1_000_000_000);
            let last = &windows[windows.len() - 20..];
            let rate_k = Window::rate_k(last, model.window_ns);
            assert!(rate_k > 0.95 * best_k, "{policy}, {from} then {to} cores: {rate_k} of {best_k}");
        }
    }
}

#[test]
fn run_of_one_seed_is_the_same_each_time() {
    let model = Model::of_one_server(2, settings("adaptive", 0.5));
    let counts = |seed| {
        let windows = Model { seed, ..model.clone() }.run(20_000_000);
        windows.iter().map(|window| (window.searches, window.server_side)).collect::<Vec<_>>()
    };
    assert_eq!(counts(1), counts(1));
    assert_ne!(counts(1), counts(2));
}
