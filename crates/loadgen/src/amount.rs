//! Numbers of the command line, as people write them.
//!
//! Invariant: an error says how to write the number.

/// Reads a number of users from 1 on: `300000`, `300,000`, `300k` or `1.5M`.
pub(crate) fn users(text: &str) -> Result<u32, String> {
    let plain: String = text.chars().filter(|c| !matches!(c, ',' | '_')).collect();
    let (number, unit) = match plain.char_indices().last() {
        Some((at, 'k' | 'K')) => (&plain[..at], 1e3),
        Some((at, 'm' | 'M')) => (&plain[..at], 1e6),
        _ => (plain.as_str(), 1.0),
    };
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let users = is_number.then(|| number.parse::<f64>().ok()).flatten().map(|number| number * unit);
    users
        .filter(|users| *users >= 1.0 && *users <= f64::from(u32::MAX) && (users.fract() < f64::EPSILON))
        .map(whole)
        .ok_or_else(|| "write a whole number from 1 on, such as 300000 or 300k".to_owned())
}

/// A whole number within the range of `u32`.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the caller checked it")]
fn whole(number: f64) -> u32 {
    number.round() as u32
}

/// Reads a part or a factor: `0.35` or `35%`.
pub(crate) fn part(text: &str) -> Result<f64, String> {
    let (number, unit) = text.strip_suffix('%').map_or((text, 1.0), |percent| (percent, 100.0));
    let part = number.trim().parse::<f64>().ok().map(|number| number / unit);
    part.filter(|part| part.is_finite()).ok_or_else(|| "write a number such as 0.35 or 35%".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_read_as_people_write_them() {
        for (text, expected) in [
            ("300000", 300_000),
            ("300,000", 300_000),
            ("300_000", 300_000),
            ("300k", 300_000),
            ("1.5M", 1_500_000),
            ("0.001k", 1),
            ("4294967295", u32::MAX),
        ] {
            assert_eq!(users(text), Ok(expected), "{text}");
        }
        for wrong in
            ["", "k", "0", "-5", "1.5", "300 k", "300kk", "1e6", "inf", "NaN", "4294967296", "5000M", "."]
        {
            let said = users(wrong).expect_err(wrong);
            assert!(said.contains("300k"), "{wrong}: {said}");
        }
    }

    #[test]
    fn parts_may_be_percentages() {
        assert_eq!((part("0.35"), part("35%"), part("2 %")), (Ok(0.35), Ok(0.35), Ok(0.02)));
        for wrong in ["", "%", "a third", "inf", "NaN%"] {
            assert!(part(wrong).expect_err(wrong).contains("35%"), "{wrong}");
        }
    }
}
