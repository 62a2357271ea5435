//! Floats as names of members, as upstream writes them: as few digits as identify one of 32 bits.

/// The name of a member whose key is a number.
pub fn name(number: f64) -> String {
    let single = number as f32;
    if single.is_nan() {
        return ".nan".to_owned();
    }
    if single.is_infinite() {
        return if single > 0.0 { ".inf" } else { "-.inf" }.to_owned();
    }
    let text = format!("{:e}", single.abs());
    let (mantissa, power) = text.split_once('e').unwrap_or((&text, "0"));
    let digits = mantissa.replace('.', "");
    let exponent: i32 = power.parse().unwrap_or_default();
    let sign = if single.is_sign_negative() { "-" } else { "" };
    if (-4..6).contains(&exponent) {
        return format!("{sign}{}", positional(&digits, exponent));
    }
    let (first, rest) = digits.split_at(1);
    let point = if rest.is_empty() { "" } else { "." };
    let (direction, size) = (if exponent < 0 { '-' } else { '+' }, exponent.abs());
    format!("{sign}{first}{point}{rest}e{direction}{size:02}")
}

fn positional(digits: &str, exponent: i32) -> String {
    let Ok(whole) = usize::try_from(exponent) else {
        return format!("0.{}{digits}", "0".repeat(exponent.unsigned_abs() as usize - 1));
    };
    match digits.split_at_checked(whole + 1) {
        Some((before, after)) if !after.is_empty() => format!("{before}.{after}"),
        _ => format!("{digits:0<width$}", width = whole + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn floats_are_named_as_upstream_names_them() {
        for (number, text) in [
            (1.5, "1.5"),
            (0.1, "0.1"),
            (-0.0, "-0"),
            (100_000.0, "100000"),
            (1_234_567.0, "1.234567e+06"),
            (123_456.7, "123456.7"),
            (1e-4, "0.0001"),
            (1.25e-5, "1.25e-05"),
            (1e38, "1e+38"),
            (1e39, ".inf"),
            (-1e39, "-.inf"),
            (f64::NAN, ".nan"),
        ] {
            assert_eq!(name(number), text);
        }
    }
}
