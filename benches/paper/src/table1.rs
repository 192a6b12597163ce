//! Table 1: what cards do of reads, of messages and of both, beside what they were calibrated from.

use serde_json::Value;

use crate::cluster::Cluster;
use crate::sheet::{Sheet, error, number};
use crate::study::{Outcome, Study};

pub(crate) fn outcome(study: &Study) -> Outcome {
    let columns =
        ["servers", "kind", "mops", "us", "paper_mops", "paper_us", "mops_error_percent", "us_error_percent"];
    let title = "1 KB reads over 1 GB, two-way messages of 128 bytes, and both (inputs: the card's rates, the first \
         row's latency)";
    let mut sheet = Sheet::new("table1", title, &columns);
    let calibration = &study.calibration;
    let readers = calibration.readers();
    for (at, row) in study.data.inputs.table1.iter().enumerate() {
        let card = calibration.cards[at].1;
        let seeded = |model: Cluster| Cluster { seed: study.seed, ..model }.run();
        let kinds = [
            ("reads", seeded(calibration.raw(card, readers, 0)), row.read_mops, row.read_us),
            ("messages", seeded(calibration.raw(card, 0, readers)), row.message_mops, row.message_us),
            ("both", calibration.both(card), row.hybrid_mops, row.hybrid_us),
        ];
        for (kind, observed, paper_mops, paper_us) in kinds {
            let (mops, us) = (observed.rate_k() * row.servers / 1e3, observed.total().latencies.mean_us());
            sheet.add(vec![
                number(row.servers),
                Value::from(kind),
                number(mops),
                number(us),
                number(paper_mops),
                number(paper_us),
                error(mops, paper_mops),
                error(us, paper_us),
            ]);
        }
    }
    sheet.note(format!(
        "Calibrated: {:.1} us there and back. One server's card: a message takes its processing {:.0} ns, a \
         read {:.0} ns; memory {:.0} and {:.0} ns (over 64 MB {:.0} ns). A core's search: {} us with 1 to 8 \
         cores, {:.2} us on a server that stands alone. A card has room for {:.0} connections; without it a \
         request takes {:.0} ns more.",
        calibration.wire_ns / 1e3,
        calibration.cards[0].1.message_processing_ns,
        calibration.cards[0].1.read_processing_ns,
        calibration.cards[0].1.message_memory_ns,
        calibration.cards[0].1.read_memory_ns,
        calibration.cards[0].1.read_memory_ns * calibration.areas.of_bytes(0.0),
        calibration.cpu_ns.iter().map(|ns| format!("{:.2}", ns / 1e3)).collect::<Vec<_>>().join(", "),
        calibration.single_cpu_ns / 1e3,
        calibration.connections_max,
        calibration.state_ns,
    ));
    (vec![sheet], Vec::new())
}
