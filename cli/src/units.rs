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

#[cfg(test)]
mod tests {
    use super::seconds;

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
