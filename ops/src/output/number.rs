//! Numbers for people: counts with separators, bytes, rates and times with three digits that matter.

use std::time::Duration;

pub(crate) use cell_terms::text::{count, counted};

/// Bytes in binary units: `1.50 MiB`.
pub(crate) fn bytes(number: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if number < 1024 {
        return format!("{number} B");
    }
    let mut value = real(number);
    let mut unit = "B";
    for next in UNITS {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    format!("{} {unit}", three_digits(value))
}

/// How many a second; zero for no time at all.
pub(crate) fn per_second(number: u64, elapsed: Duration) -> f64 {
    let seconds = elapsed.as_secs_f64();
    if seconds > 0.0 { real(number) / seconds } else { 0.0 }
}

/// A rate: `12.3 k/s`.
pub(crate) fn rate(per_second: f64) -> String {
    let (value, unit) = match per_second {
        r if r >= 1e6 => (r / 1e6, " M/s"),
        r if r >= 1e3 => (r / 1e3, " k/s"),
        r => (r, " /s"),
    };
    format!("{}{unit}", three_digits(value))
}

/// A time: `12.3 us`, `4 min 5 s`.
pub(crate) fn time(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    match duration.as_secs() {
        0 if seconds < 1e-6 => format!("{} ns", duration.as_nanos()),
        0 if seconds < 1e-3 => format!("{} us", three_digits(seconds * 1e6)),
        0 => format!("{} ms", three_digits(seconds * 1e3)),
        1..60 => format!("{} s", three_digits(seconds)),
        whole @ 60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        whole => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

/// When in the day a moment of the wall clock was: `04:41:55 UTC`.
pub(crate) fn time_of_day(unix_ms: u64) -> String {
    let second = unix_ms / 1_000 % 86_400;
    format!("{:02}:{:02}:{:02} UTC", second / 3_600, second / 60 % 60, second % 60)
}

/// A count as a real number; beyond 2^53 it is rounded, which no one who reads a rate minds.
#[allow(clippy::cast_precision_loss, reason = "beyond 2^53 it is rounded, as said")]
pub(crate) const fn real(number: u64) -> f64 {
    number as f64
}

fn three_digits(value: f64) -> String {
    let decimals = match value {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_carry_their_unit() {
        assert_eq!([count(0), count(999), count(1000), count(1_234_567)], ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            [counted(1, "entry", "entries"), counted(2, "entry", "entries")],
            ["1 entry", "2 entries"]
        );
        assert_eq!([bytes(1023), bytes(1536), bytes(64 << 20)], ["1023 B", "1.50 KiB", "64.0 MiB"]);
        assert_eq!([rate(3.0), rate(12_345.0), rate(2.5e6)], ["3.00 /s", "12.3 k/s", "2.50 M/s"]);
        assert_eq!(time(Duration::from_nanos(850)), "850 ns");
        assert_eq!(time(Duration::from_nanos(12_345)), "12.3 us");
        assert_eq!(time(Duration::from_millis(1500)), "1.50 s");
        assert_eq!(time(Duration::from_secs(245)), "4 min 5 s");
        assert_eq!(per_second(5, Duration::ZERO), 0.0);
    }
}
