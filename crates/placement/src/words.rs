//! Sizes and times as people read them.

/// `1.5 GiB`, `640 B`.
pub(crate) fn size(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.into_iter().find(|(_, shift)| bytes >> shift > 0) {
        Some((unit, shift)) => format!("{:.1} {unit}", bytes as f64 / (1_u64 << shift) as f64),
        None => format!("{bytes} B"),
    }
}

/// `12 s`: whole seconds, a part of one counts as one.
pub(crate) fn seconds(ms: u64) -> String {
    format!("{} s", ms.div_ceil(1000))
}

/// A part of the mean in percent.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float's cast saturates")]
pub(crate) fn percent(share: f64) -> u32 {
    (share * 100.0).round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_short() {
        assert_eq!([0, 640, 1 << 20, 3 << 29].map(size), ["0 B", "640 B", "1.0 MiB", "1.5 GiB"]);
        assert_eq!([0, 1, 12_000].map(seconds), ["0 s", "1 s", "12 s"]);
        assert_eq!([0.0, 1.249, f64::INFINITY].map(percent), [0, 125, u32::MAX]);
    }
}
