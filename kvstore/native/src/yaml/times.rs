//! Which plain scalars are times: `2024-01-01`, `2024-01-01 12:30:00`, `2024-01-01T12:30:00.5+01:00`.

const MONTH_DAYS: [u32; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/// What is left of a text while it is read from the front.
struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    /// Take at least `least` and at most `most` digits.
    fn digits(&mut self, least: usize, most: usize) -> Option<u32> {
        let count = self.0.iter().take(most).take_while(|byte| byte.is_ascii_digit()).count();
        if count < least {
            return None;
        }
        let (digits, rest) = self.0.split_at(count);
        self.0 = rest;
        Some(digits.iter().fold(0, |number, digit| number * 10 + u32::from(digit - b'0')))
    }

    /// Take one of these bytes.
    fn one_of(&mut self, bytes: &[u8]) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        bytes.contains(first).then(|| {
            self.0 = rest;
            *first
        })
    }
}

pub fn is_time(text: &str) -> bool {
    parsed(&mut Cursor(text.as_bytes())).unwrap_or(false)
}

/// Whether the text is a time; None: it does not have the form of one.
fn parsed(text: &mut Cursor) -> Option<bool> {
    let year = text.digits(4, 4)?;
    text.one_of(b"-")?;
    let month = text.digits(1, 2)?;
    text.one_of(b"-")?;
    let day = text.digits(1, 2)?;
    let is_day = is_day(year, month, day);
    if text.0.is_empty() {
        return Some(is_day);
    }
    let has_zone = text.one_of(b"Tt").is_some();
    if !has_zone {
        text.one_of(b" ")?;
        while text.one_of(b" ").is_some() {}
    }
    let hour = text.digits(1, 2)?;
    text.one_of(b":")?;
    let minute = text.digits(1, 2)?;
    text.one_of(b":")?;
    let second = text.digits(1, 2)?;
    if text.one_of(b".,").is_some() {
        text.digits(1, 1)?;
        while text.digits(1, 1).is_some() {}
    }
    let mut is_zone = true;
    if has_zone && text.one_of(b"Z").is_none() {
        text.one_of(b"+-")?;
        let zone_hour = text.digits(2, 2)?;
        text.one_of(b":")?;
        is_zone = zone_hour <= 24 && text.digits(2, 2)? <= 60;
    }
    text.0.is_empty().then_some(is_day && hour <= 23 && minute <= 59 && second <= 59 && is_zone)
}

fn is_day(year: u32, month: u32, day: u32) -> bool {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = (month as usize).checked_sub(1).and_then(|at| MONTH_DAYS.get(at));
    days.is_some_and(|&days| (1..=days + u32::from(month == 2 && is_leap)).contains(&day))
}

#[cfg(test)]
mod tests {
    use super::is_time;

    #[test]
    fn times_are_recognized() {
        for text in [
            "2024-01-01",
            "2024-1-1",
            "2024-02-29",
            "2024-01-01 1:02:03",
            "2024-01-01   01:02:03.5",
            "2024-01-01T01:02:03Z",
            "2024-01-01t01:02:03,5+24:60",
        ] {
            assert!(is_time(text), "{text}");
        }
        for text in [
            "2024-13-01",
            "2024-00-01",
            "2023-02-29",
            "2024-01-32",
            "2024-01-00",
            "2024-01-01T01:02:03",
            "2024-01-01 01:02:03Z",
            "2024-01-01 24:00:00",
            "2024-01-01T01:02:03+25:00",
            "2024-01-01 ",
            "2024-01-01 1:02",
            "2024-01-01 1:02:03.",
            "24-01-01",
            "2024-01-011",
            "",
        ] {
            assert!(!is_time(text), "{text}");
        }
    }
}
