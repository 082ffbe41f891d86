//! Times as text.

use std::fmt::Write as _;

use mainspring_api::Timestamp;

/// RFC 3339 in UTC with the fewest of 0, 3, 6 or 9 fraction digits that are exact.
#[must_use]
pub fn rfc3339(ts: Timestamp) -> String {
    let (days, second) = (ts.seconds.div_euclid(86_400), ts.seconds.rem_euclid(86_400));
    // Days to a proleptic Gregorian date, counting years from 1 March so that
    // the leap day is the last of its year.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let mut text = format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}",
        second / 3600,
        second / 60 % 60,
        second % 60
    );
    let nanos = ts.nanos;
    let _ = match nanos {
        0 => Ok(()),
        n if n % 1_000_000 == 0 => write!(text, ".{:03}", n / 1_000_000),
        n if n % 1_000 == 0 => write!(text, ".{:06}", n / 1_000),
        n => write!(text, ".{n:09}"),
    };
    text.push('Z');
    text
}
