//! Times, sizes and tables as the program prints them.

/// Three digits with a unit.
pub fn seconds(s: f64) -> String {
    let (value, unit) = match s.abs() {
        a if a >= 1.0 => (s, "s"),
        a if a >= 1e-3 => (s * 1e3, "ms"),
        _ => (s * 1e6, "us"),
    };
    let digits = match value.abs() {
        a if a >= 100.0 => 0,
        a if a >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.digits$} {unit}")
}

/// Four digits at most with a unit.
pub fn bytes(count: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let large = units.into_iter().find(|(shift, _)| count >> shift > 0);
    large.map_or_else(
        || format!("{count} B"),
        |(shift, unit)| format!("{:.1} {unit}", count as f64 / (1u64 << shift) as f64),
    )
}

#[cfg(test)]
mod tests {
    use super::{bytes, seconds};

    #[test]
    fn a_size_has_a_unit() {
        for (count, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (3 << 29, "1.5 GiB"),
            (u64::MAX, "16777216.0 TiB"),
        ] {
            assert_eq!(bytes(count), text);
        }
    }

    #[test]
    fn a_time_has_three_digits_and_a_unit() {
        for (s, text) in [
            (0.0, "0.00 us"),
            (1.5e-6, "1.50 us"),
            (0.0123, "12.3 ms"),
            (0.4567, "457 ms"),
            (-0.002, "-2.00 ms"),
            (7.449, "7.45 s"),
            (123.4, "123 s"),
        ] {
            assert_eq!(seconds(s), text);
        }
    }
}
