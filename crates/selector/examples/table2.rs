//! The paper's Table 2 by the model of `tests/model`: both policies beside the best fixed share.
//!
//! `cargo run --release -p cell-selector --example table2`

#[path = "../tests/suite/model/mod.rs"]
mod model;

use model::{Model, PAPER_SHARE, Window, best_fixed, settings};

/// The paper's figures by cores, in thousands a second: by the server alone, and by its selector.
const SERVER_ONLY_K: [u64; 8] = [505, 991, 1447, 1831, 2145, 2478, 2901, 2543];
const PAPER_K: [u64; 8] = [1842, 2142, 2456, 2573, 2687, 2845, 2901, 2812];

const UNTIL_NS: u64 = 400_000_000;

fn main() {
    println!(
        "four servers; searches in thousands a second (share of server-side ones); half of the time counts"
    );
    println!("cores | paper: server  selector      | model: best fixed    paper policy   adaptive policy");
    for cores in 1..=8 {
        let model = Model::of_the_paper(cores, settings("fixed", 1.0));
        let (best_k, best_share) = best_fixed(&model, UNTIL_NS);
        let of_policy = |name| {
            let windows = Model { settings: settings(name, 0.5), ..model.clone() }.run(UNTIL_NS);
            let late = &windows[windows.len() / 2..];
            let (rate_k, share) = (Window::rate_k(late, model.window_ns), Window::share(late));
            format!("{rate_k:5.0} ({share:3.0} %) {:4.1} %", 100.0 * rate_k / best_k)
        };
        let (server_k, paper_k, paper_share) =
            (SERVER_ONLY_K[cores - 1], PAPER_K[cores - 1], PAPER_SHARE[cores - 1]);
        println!(
            "{cores:5} | {server_k:13}  {paper_k:5} ({paper_share:3} %) | {best_k:10.0} ({:3.0} %)  {}  {}",
            100.0 * best_share,
            of_policy("paper"),
            of_policy("adaptive"),
        );
    }
    println!("\none server of eight cores, to which 24 clients talk alone");
    let one = Model::of_one_server(8, settings("fixed", 1.0));
    beside_best(&one);
    println!("\nfour clients alone, eight cores: searches in thousands a second");
    let light = Model { clients: 4, ..Model::of_the_paper(8, settings("fixed", 1.0)) };
    beside_best(&light);
    println!("\nafter a step in the servers' cores");
    for (from, to) in [(8, 1), (1, 8), (4, 2)] {
        let stepped = |name, share| {
            let model = Model::of_the_paper(from, settings(name, share));
            let model = Model { step: Some((UNTIL_NS, to)), ..model };
            (model.run(UNTIL_NS + 1_000_000_000), model.window_ns)
        };
        let (best_k, _) = best_fixed(&Model::of_the_paper(to, settings("fixed", 1.0)), UNTIL_NS);
        for name in ["paper", "adaptive"] {
            let (windows, window_ns) = stepped(name, 0.5);
            let after = &windows[usize::try_from(UNTIL_NS / window_ns).expect("64 bits")..];
            // Back once 50 ms together are within 5 % of the new best.
            let within = |slice: &[Window]| Window::rate_k(slice, window_ns) >= 0.95 * best_k;
            let back = after.windows(10).position(within);
            let back = back.map(|at| format!("{} ms", (at as u64 + 10) * window_ns / 1_000_000));
            let end_k = Window::rate_k(&after[after.len() / 2..], window_ns);
            println!(
                "{from} cores, then {to}: {name:8} within 5 % of the new best ({best_k:.0}) after {}; at the end {end_k:.0}",
                back.unwrap_or("never".to_owned())
            );
        }
    }
}

/// Both policies beside the best fixed share.
fn beside_best(model: &Model) {
    let (best_k, best_share) = best_fixed(model, UNTIL_NS);
    println!("best fixed {best_k:.0} ({:.0} %)", 100.0 * best_share);
    for name in ["paper", "adaptive"] {
        let windows = Model { settings: settings(name, 0.5), ..model.clone() }.run(UNTIL_NS);
        let late = &windows[windows.len() / 2..];
        println!("{name:8} {:.0} ({:.0} %)", Window::rate_k(late, model.window_ns), Window::share(late));
    }
}
