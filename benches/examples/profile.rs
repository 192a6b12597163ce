//! Temporary.
use cell_benches::{data::*, ours::*};
use cell_memory::HugePages;
fn main() {
    let n: u64 = 2_000_000;
    let what = std::env::args().nth(1).unwrap();
    let data = Dataset { entries: n, seed: 1 };
    let mut ours = Ours::new(Sizes::for_entries(n), HugePages::Auto).unwrap();
    let mut t = 0.0;
    for c in 0..n / 20000 {
        let b = data.batch(c * 20000, (c + 1) * 20000);
        let s = std::time::Instant::now();
        ours.populate().unwrap();
        ours.insert(&b).unwrap();
        t += s.elapsed().as_secs_f64();
    }
    println!("insert {:.0}/s", n as f64 / t);
    if what == "insert" {
        return;
    }
    let p = data.probes(Choice::Uniform, 100_000, 3);
    let mut r = ours.reader();
    let mut out = Vec::new();
    for _ in 0..6 {
        let s = std::time::Instant::now();
        let b = match what.as_str() {
            "scan" => r.scan(&p, 0, 100_000, 50, &mut out),
            _ => r.get(&p, 0, 100_000, &mut out),
        }
        .unwrap();
        println!("{what} {:.0}/s {b}", 100_000.0 / s.elapsed().as_secs_f64());
    }
}
