//! The asynchronous client beside the blocking one, with the same gets.

use std::cell::RefCell;

use cell_client::{Search, Transport, aio};

use crate::contest::{self, Contender};
use crate::figure::{Figure, Goal, Report};
use crate::options::BenchError;
use crate::put::First;
use crate::reads::{Reads, agreed, get_each, options};
use crate::served::Served;

/// Adds the rows.
///
/// # Errors
/// A client or the runtime failed.
pub(crate) fn run(served: &Served, reads: &Reads, report: &mut Report<'_>) -> Result<(), BenchError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for (transport, search, path) in [
        (Transport::Shm, Search::Client, "one-sided"),
        (Transport::Shm, Search::Server, "server-side"),
        (Transport::Tcp, Search::Server, "server-side"),
    ] {
        let server = served.server.address().to_string();
        let connecting = aio::Client::connect(&server, options(transport, search));
        let asynchronous = runtime.block_on(connecting)?;
        let blocking = RefCell::new(served.client(options(transport, search))?);
        let first = First::default();
        let mut contenders = [
            Contender::new("asynchronous", |round| {
                let got = runtime.block_on(async {
                    let mut bytes = 0;
                    for key in reads.keys(round) {
                        bytes += asynchronous.get(key).await?.map_or(0, |item| item.value.len() as u64);
                    }
                    Ok(bytes)
                });
                first.proved(reads.size, got)
            }),
            Contender::new("blocking", |round| {
                first.proved(reads.size, get_each(&mut blocking.borrow_mut(), reads.keys(round)))
            }),
        ];
        let outcomes = contest::run(&mut contenders, 1, reads.rounds);
        drop(contenders);
        first.end()?;
        served.check_node()?;
        let outcomes = agreed(outcomes)?;
        runtime.block_on(asynchronous.close());
        let name = format!("onesided/asynchronous {path} get {transport}");
        let [ours, theirs] = [outcomes[0].rate(), outcomes[1].rate()];
        let goal = Goal::AtLeast(0.9);
        report.add(Figure::beside(name, "op/s", ours, "the blocking client", theirs, goal))?;
    }
    Ok(())
}
