//! Balance as metrics. Only the node that balances knows how far nodes are off the mean.

use std::fmt;

use cell_node::BalanceSnapshot;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

pub(crate) fn encode(
    encoder: &mut DescriptorEncoder<'_>,
    balance: &BalanceSnapshot,
) -> Result<(), fmt::Error> {
    let gauges = [
        ("balance_enabled", "1 if pairs move by themselves", balance.on),
        ("balancer", "1 at the node that balances", balance.look.is_some()),
    ];
    for (name, help, value) in gauges {
        let gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        ConstGauge::new(u64::from(value)).encode(gauge)?;
    }
    let moves = balance.moves;
    let help = "Moves of pairs that this node has begun as the balancer, by why";
    let mut family = encoder.encode_descriptor("balance_moves", help, None, MetricType::Counter)?;
    let counts = [
        ("above", moves.above),
        ("below", moves.below),
        ("drain", moves.drain),
        ("fresh", moves.fresh),
        ("full", moves.full),
    ];
    for (why, count) in counts {
        let labels = [("why", why)];
        ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
    }
    let help = "Moves that this node has cancelled as the balancer, for a drain, a drill or a full node";
    let counter = encoder.encode_descriptor("balance_moves_cancelled", help, None, MetricType::Counter)?;
    ConstCounter::new(moves.cancelled).encode(counter)?;
    let Some(look) = &balance.look else { return Ok(()) };
    let nodes = look.explain().nodes;
    let most =
        |percents: Vec<Option<u32>>| f64::from(percents.into_iter().flatten().max().unwrap_or(0)) / 100.0;
    let imbalances = [
        (
            "balance_bytes_largest_ratio",
            "What the node with the most bytes has, by the mean; 0 while there are too few to count",
            most(nodes.iter().map(|node| node.bytes_percent).collect()),
        ),
        (
            "balance_load_largest_ratio",
            "What the node with the most load has, by the mean; 0 while there is too little to count",
            most(nodes.iter().map(|node| node.load_percent).collect()),
        ),
    ];
    for (name, help, value) in imbalances {
        let gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        ConstGauge::new(value).encode(gauge)?;
    }
    Ok(())
}
