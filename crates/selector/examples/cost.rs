//! What a search in place costs at the selector: one decision and one sample. The argument is how many, so
//! that the difference of two runs under `valgrind --tool=callgrind` tells the instructions of each.

use cell_selector::{Question, Sample, SearchKind, SearchPath, Selector, SelectorSettings};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

fn main() {
    let count: u64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(100_000);
    let kind = SearchKind::Point;
    let mut selector = Selector::new(SelectorSettings::default(), Xoshiro256PlusPlus::seed_from_u64(1));
    let mut now_ns = 1;
    for at in 0..count {
        let question = Question { now_ns, kind, meganode: None, one_sided: Ok(()), in_hand: 0 };
        let (path, latency_ns) = (selector.decide(&question).path, 1_500 + at % 100);
        now_ns += latency_ns;
        selector.on_sample(
            now_ns,
            match path {
                SearchPath::Server => Sample::Server { kind, latency_ns: 20 * latency_ns },
                SearchPath::OneSided => Sample::InPlace { kind, latency_ns },
            },
        );
    }
    println!("{:?}", selector.decisions());
}
