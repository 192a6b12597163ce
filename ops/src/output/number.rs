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

/// `node 1`, `nodes 1 and 2`, `nodes 1 to 63`, `nodes 1, 3 and 5 to 9`: of ascending numbers.
pub(crate) fn nodes(numbers: &[u32]) -> String {
    let mut words: Vec<String> = Vec::new();
    for row in numbers.chunk_by(|one, next| *next == one + 1) {
        match row {
            [first, _, .., last] => words.push(format!("{first} to {last}")),
            few => words.extend(few.iter().map(u32::to_string)),
        }
    }
    match (words.pop(), numbers.len()) {
        (Some(last), 1) => format!("node {last}"),
        (Some(last), _) if words.is_empty() => format!("nodes {last}"),
        (Some(last), _) => format!("nodes {} and {last}", words.join(", ")),
        (None, _) => "no node".to_owned(),
    }
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

/// A time: `12.3 us`, `4 min 5 s`. It is rounded, never cut.
pub(crate) fn time(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    if duration.as_nanos() < 1_000 {
        return format!("{} ns", duration.as_nanos());
    }
    for (part, unit) in [(1e6, "us"), (1e3, "ms")] {
        if seconds * part < 999.5 {
            return format!("{} {unit}", three_digits(seconds * part));
        }
    }
    let whole = rounded(duration, 1);
    let minutes = rounded(duration, 60);
    match whole {
        _ if seconds < 59.95 => format!("{} s", three_digits(seconds)),
        0..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", minutes / 60, minutes % 60),
    }
}

/// How much of a time is left, or for how long something was set: a part of a second counts as a whole one,
/// because some went by on the way.
pub(crate) fn remaining(left: Duration) -> String {
    match left.as_secs() + u64::from(left.subsec_nanos() > 0) {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds => time(Duration::from_secs(seconds)),
    }
}

/// In units of so many seconds.
fn rounded(duration: Duration, seconds: u64) -> u64 {
    (duration + Duration::from_millis(seconds * 500)).as_secs() / seconds
}

/// A moment of the wall clock: `2026-11-26 04:41:55 UTC`.
pub(crate) fn moment(unix_ms: u64) -> String {
    let (day, second) = (unix_ms / 86_400_000, unix_ms / 1_000 % 86_400);
    let (year, month, day) = date(day);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// Year, month and day of so many days after 1970.
fn date(days: u64) -> (u64, u64, u64) {
    // Years begin in March here: the day of leap years is their last. 400 years have as many days each time.
    const DAYS_OF_400_YEARS: u64 = 146_097;
    const FROM_MARCH_OF_YEAR_0: u64 = 719_468;
    let days = days + FROM_MARCH_OF_YEAR_0;
    let (era, day) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (400 * era + year + next, month, day)
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

    #[test]
    fn nodes_in_a_row_are_named_by_the_first_and_the_last() {
        assert_eq!([nodes(&[1]), nodes(&[1, 2]), nodes(&[])], ["node 1", "nodes 1 and 2", "no node"]);
        assert_eq!([nodes(&[1, 2, 3]), nodes(&[0, 2])], ["nodes 1 to 3", "nodes 0 and 2"]);
        assert_eq!(nodes(&[1, 3, 5, 6, 7, 9]), "nodes 1, 3, 5 to 7 and 9");
    }

    #[test]
    fn times_are_rounded_and_never_cut() {
        for (ms, said) in [
            (999, "999 ms"),
            (1_000, "1.00 s"),
            (59_949, "59.9 s"),
            (59_960, "1 min 0 s"),
            (119_400, "1 min 59 s"),
            (119_500, "2 min 0 s"),
            (3_599_499, "59 min 59 s"),
            (3_599_500, "1 h 0 min"),
            (7_169_999, "1 h 59 min"),
            (7_199_000, "2 h 0 min"),
        ] {
            assert_eq!(time(Duration::from_millis(ms)), said, "{ms}");
        }
        assert_eq!(time(Duration::from_nanos(999_600)), "1.00 ms");
        assert_eq!(time(Duration::from_nanos(999_700_000)), "1.00 s");
    }

    #[test]
    fn remaining_of_what_was_just_set_is_what_was_set() {
        for (ms, said) in [
            (0, "0 s"),
            (1, "1 s"),
            (29_001, "30 s"),
            (30_000, "30 s"),
            (59_990, "1 min 0 s"),
            (119_999, "2 min 0 s"),
        ] {
            assert_eq!(remaining(Duration::from_millis(ms)), said, "{ms}");
        }
    }

    #[test]
    fn moment_has_date_time_and_zone() {
        for (seconds, said) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_709_251_199, "2024-02-29 23:59:59 UTC"),
            (1_767_225_599, "2025-12-31 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(moment(seconds * 1_000 + 999), said);
        }
    }
}
