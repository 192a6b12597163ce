//! What metrics show besides the node's own figures: what the HTTP server counts, how it finds the
//! coordinator and the disk, and the process under the names that all processes have.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use crate::certificate::CertificateLeft;
use crate::coordinator_watch::CoordinatorSeen;
use crate::disk_watch::DiskRoom;

/// As of now.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerFigures {
    pub(crate) certificates: Vec<CertificateLeft>,
    /// Answers by their status.
    pub(crate) answers: Vec<(u16, u64)>,
    pub(crate) failed_logins: u64,
    /// Of the fabric.
    pub(crate) fabric_failed_logins: u64,
    /// None: the server has none to ask.
    pub(crate) coordinator: Option<CoordinatorSeen>,
    /// What its last answer took; none: it does not answer.
    pub(crate) coordinator_answer: Option<Duration>,
    pub(crate) disk: Option<DiskRoom>,
    /// Pairs that the node is to serve and does not have.
    pub(crate) pairs_missing: usize,
    /// When the process started, in milliseconds since 1970.
    pub(crate) started_unix_ms: u64,
    /// What CLOCK_BOOTTIME shows now.
    pub(crate) boottime_ms: u64,
}

/// Statuses that are there before the first answer has them, so that their first one is an increase.
const KNOWN_STATUSES: [u16; 7] = [200, 400, 401, 403, 429, 500, 503];

/// Counts answers by their status.
pub(crate) struct AnswerCounts(Mutex<BTreeMap<u16, u64>>);

impl Default for AnswerCounts {
    fn default() -> AnswerCounts {
        AnswerCounts(Mutex::new(KNOWN_STATUSES.map(|status| (status, 0)).into()))
    }
}

impl AnswerCounts {
    pub(crate) fn count(&self, status: StatusCode) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(status.as_u16()).or_default() += 1;
    }

    pub(crate) fn all(&self) -> Vec<(u16, u64)> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.iter().map(|(status, count)| (*status, *count)).collect()
    }
}

/// Those of Cell.
pub(crate) fn encode(encoder: &mut DescriptorEncoder<'_>, figures: &ServerFigures) -> Result<(), fmt::Error> {
    let help = "Requests over HTTP, by the status of their answers";
    let mut family = encoder.encode_descriptor("http_requests", help, None, MetricType::Counter)?;
    for (status, count) in &figures.answers {
        let labels = [("status", status.to_string())];
        ConstCounter::new(*count).encode(family.encode_family(&labels)?)?;
    }
    let help = "Requests over HTTP with a token that is not known";
    let counter = encoder.encode_descriptor("http_logins_failed", help, None, MetricType::Counter)?;
    ConstCounter::new(figures.failed_logins).encode(counter)?;
    let help = "Clients that came to the fabric with a token that is not known";
    let counter = encoder.encode_descriptor("fabric_logins_failed", help, None, MetricType::Counter)?;
    ConstCounter::new(figures.fabric_failed_logins).encode(counter)?;
    encode_certificates(encoder, &figures.certificates)?;
    encode_coordinator(encoder, figures)?;
    let help = "Pairs that the node is to serve by the region table, and does not have";
    let gauge = encoder.encode_descriptor("node_pairs_missing", help, None, MetricType::Gauge)?;
    ConstGauge::new(u64::try_from(figures.pairs_missing).unwrap_or(u64::MAX)).encode(gauge)?;
    let Some(DiskRoom { free_bytes, all_bytes }) = figures.disk else { return Ok(()) };
    for (name, help, bytes) in [
        ("disk_free", "What the file system of the log root has left", free_bytes),
        ("disk_size", "Size of the file system of the log root", all_bytes),
    ] {
        let gauge = encoder.encode_descriptor(name, help, Some(&Unit::Bytes), MetricType::Gauge)?;
        ConstGauge::new(bytes).encode(gauge)?;
    }
    Ok(())
}

/// Of a server with TLS; others have none.
fn encode_certificates(
    encoder: &mut DescriptorEncoder<'_>,
    certificates: &[CertificateLeft],
) -> Result<(), fmt::Error> {
    if certificates.is_empty() {
        return Ok(());
    }
    let help = "Until the first certificate of a file of TLS ends; below 0 if it has";
    let unit = Some(&Unit::Seconds);
    let mut family = encoder.encode_descriptor("http_certificate_left", help, unit, MetricType::Gauge)?;
    for CertificateLeft { role, seconds } in certificates {
        ConstGauge::new(*seconds).encode(family.encode_family(&[("role", *role)])?)?;
    }
    Ok(())
}

fn encode_coordinator(
    encoder: &mut DescriptorEncoder<'_>,
    figures: &ServerFigures,
) -> Result<(), fmt::Error> {
    let Some(seen) = figures.coordinator else { return Ok(()) };
    let help = "1 if the coordinator has answered this node in the last three seconds";
    let gauge = encoder.encode_descriptor("coordinator_reachable", help, None, MetricType::Gauge)?;
    ConstGauge::new(u64::from(seen.reachable)).encode(gauge)?;
    let help = "What the last answer of the coordinator took; NaN: it did not answer the last question";
    let unit = Some(&Unit::Seconds);
    let gauge = encoder.encode_descriptor("coordinator_answer", help, unit, MetricType::Gauge)?;
    let took = figures.coordinator_answer.map_or(f64::NAN, |took| took.as_secs_f64());
    ConstGauge::new(took).encode(gauge)
}

/// Those of the process. What the system does not say is left out.
pub(crate) fn encode_process(
    encoder: &mut DescriptorEncoder<'_>,
    started_unix_ms: u64,
) -> Result<(), fmt::Error> {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let used = Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0));
    let (help, unit) = ("Processor time of the process", Some(&Unit::Seconds));
    let counter = encoder.encode_descriptor("process_cpu", help, unit, MetricType::Counter)?;
    ConstCounter::new(used.as_secs_f64()).encode(counter)?;
    let started = Duration::from_millis(started_unix_ms).as_secs_f64();
    let help = "When the process started, since 1970";
    let gauge = encoder.encode_descriptor("process_start_time", help, unit, MetricType::Gauge)?;
    ConstGauge::new(started).encode(gauge)?;
    if let Some([virtual_bytes, resident_bytes]) = memory() {
        for (name, help, bytes) in [
            ("process_virtual_memory", "Address space of the process", virtual_bytes),
            (
                "process_resident_memory",
                "Memory that the process has, shared memory included",
                resident_bytes,
            ),
        ] {
            let gauge = encoder.encode_descriptor(name, help, Some(&Unit::Bytes), MetricType::Gauge)?;
            ConstGauge::new(bytes).encode(gauge)?;
        }
    }
    let open = fs::read_dir("/proc/self/fd").ok().and_then(|files| u64::try_from(files.count()).ok());
    for (name, help, count) in [
        ("process_open_fds", "Open files and sockets of the process", open),
        ("process_max_fds", "How many may be open", getrlimit(Resource::Nofile).current),
    ] {
        if let Some(count) = count {
            let gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(count).encode(gauge)?;
        }
    }
    Ok(())
}

/// Address space and resident memory, in bytes.
fn memory() -> Option<[u64; 2]> {
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = text.split_ascii_whitespace().map(|pages| pages.parse::<u64>().ok());
    let page_bytes = u64::try_from(rustix::param::page_size()).ok()?;
    Some([pages.next()??.saturating_mul(page_bytes), pages.next()??.saturating_mul(page_bytes)])
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::test_snapshot::snapshot;

    #[test]
    fn encode_has_what_the_server_counts_and_sees() {
        let counts = AnswerCounts::default();
        [StatusCode::OK, StatusCode::OK, StatusCode::IM_A_TEAPOT].into_iter().for_each(|it| counts.count(it));
        let figures = ServerFigures {
            certificates: vec![CertificateLeft { role: "served", seconds: -5 }],
            answers: counts.all(),
            failed_logins: 3,
            fabric_failed_logins: 4,
            coordinator: Some(CoordinatorSeen { reachable: true, seen_ms_ago: Some(4) }),
            coordinator_answer: Some(Duration::from_millis(250)),
            disk: Some(DiskRoom { free_bytes: 5, all_bytes: 9 }),
            pairs_missing: 2,
            started_unix_ms: 1_500,
            boottime_ms: 0,
        };
        let text = crate::metrics::render(Arc::new(snapshot()), Duration::ZERO, figures).unwrap();
        for line in [
            "# TYPE cell_http_requests counter",
            "cell_http_requests_total{status=\"200\"} 2",
            "cell_http_requests_total{status=\"418\"} 1",
            "cell_http_requests_total{status=\"500\"} 0",
            "cell_http_logins_failed_total 3",
            "cell_fabric_logins_failed_total 4",
            "cell_http_certificate_left_seconds{role=\"served\"} -5",
            "cell_coordinator_reachable 1",
            "cell_coordinator_answer_seconds 0.25",
            "cell_disk_free_bytes 5",
            "cell_disk_size_bytes 9",
            "cell_node_pairs_missing 2",
            "process_start_time_seconds 1.5",
            "# TYPE process_cpu_seconds counter",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
        let away = ServerFigures {
            coordinator: Some(CoordinatorSeen { reachable: false, seen_ms_ago: Some(9_000) }),
            ..ServerFigures::default()
        };
        let away = crate::metrics::render(Arc::new(snapshot()), Duration::ZERO, away).unwrap();
        assert!(away.lines().any(|line| line == "cell_coordinator_answer_seconds NaN"), "{away}");
        let value = |name: &str| {
            let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            found.expect(name).parse::<f64>().unwrap()
        };
        assert!(value("process_resident_memory_bytes") >= 4_096.0);
        assert!(value("process_virtual_memory_bytes") >= value("process_resident_memory_bytes"));
        assert!((1.0..=value("process_max_fds")).contains(&value("process_open_fds")));
        assert!(value("process_cpu_seconds_total") > 0.0);
        assert!(text.ends_with("# EOF\n") && text.matches("# EOF").count() == 1);
    }
}
