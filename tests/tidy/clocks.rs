//! Nothing that decides anything goes by the wall clock, which is set back and forth: leases and trust are
//! counted by CLOCK_BOOTTIME. Who shows a time to people reads it, and stands here.

use crate::demand_none;
use crate::source::code;
use crate::tree::sources;

const READS: [&str; 3] = ["SystemTime::now", "ClockId::Realtime", "CLOCK_REALTIME"];
/// Production files that read it, and what for.
const READERS: [(&str, &str); 7] = [
    ("node/src/control.rs", "when incidents and moves were, and when a value came into force, for people"),
    ("ops/src/command/certificates.rs", "from when to when a certificate holds"),
    ("ops/src/dev/scale_wire.rs", "when a cluster was asked to grow, for people"),
    ("ops/src/doctor/host.rs", "whether the wall clock was set meanwhile"),
    ("ops/src/doctor/reach.rs", "how many days a certificate has left"),
    ("ops/src/reload.rs", "when settings were read again, for people"),
    ("web/src/clock.rs", "times of events and figures, for people"),
];
/// What has no production code.
const OTHERS: [&str; 2] = ["tests/", "benches/"];

#[test]
fn wall_clock_is_read_by_those_alone_who_show_it() {
    let mut violations = Vec::new();
    let mut met = Vec::new();
    for source in sources() {
        if OTHERS.iter().any(|folder| source.path.starts_with(folder)) || source.path.contains("/tests/") {
            continue;
        }
        let production = source.text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let reads = production.lines().any(|line| READS.iter().any(|read| code(line).contains(read)));
        let is_known = READERS.iter().any(|(path, _)| *path == source.path);
        if reads && !is_known {
            violations.push(format!("{} reads the wall clock", source.path));
        }
        if reads {
            met.push(source.path.clone());
        }
    }
    let gone = READERS.iter().filter(|(path, _)| !met.iter().any(|met| met == path));
    violations.extend(gone.map(|(path, _)| format!("{path} stands in the list and reads no wall clock")));
    demand_none("who reads the wall clock", &violations);
}
