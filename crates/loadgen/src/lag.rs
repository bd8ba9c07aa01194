//! Detects that the generator, not the server, limited the run.
//!
//! The rule: in three seconds in a row the generator was more than 100 ms late in sending a call or in closing a second.
//! Waiting for a connection does not count, because the server may cause it.

use crate::report::{Bottleneck, Second};

/// Only a longer lag counts, microseconds.
const LAG_US: u32 = 100_000;
/// The number of seconds in a row.
const SECONDS: usize = 3;

/// The first second in which the generator was the bottleneck, with the evidence.
#[must_use]
pub fn bottleneck(seconds: &[Second]) -> Option<Bottleneck> {
    let first = seconds.windows(SECONDS).position(|run| run.iter().all(|second| second.lag_us > LAG_US))?;
    let worst = seconds[first..].iter().map(|second| second.lag_us).max().unwrap_or(0);
    let cores =
        f64::from(seconds[first..first + SECONDS].iter().map(|second| second.cpu_millicores).sum::<u32>())
            / 1000.0
            / SECONDS as f64;
    let (limit_ms, worst_ms) = (LAG_US / 1000, worst / 1000);
    Some(Bottleneck {
        from_s: u32::try_from(first).unwrap_or(u32::MAX),
        why: format!(
            "it was late by more than {limit_ms} ms in {SECONDS} seconds in a row (at worst {worst_ms} ms) and used {cores:.1} \
             cores; later latencies include delays of the generator"
        ),
        why_ko: format!(
            "{SECONDS}초 연속으로 {limit_ms}ms 넘게 늦었습니다(최대 {worst_ms}ms, CPU 코어 {cores:.1}개 사용). 그 뒤의 지연 \
             시간이 모두 서버 때문은 아닙니다."
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(lags_ms: &[u32]) -> Vec<Second> {
        lags_ms.iter().map(|ms| Second { lag_us: ms * 1000, ..Second::default() }).collect()
    }

    #[test]
    fn three_late_seconds_in_a_row_are_needed() {
        assert!(bottleneck(&seconds(&[0, 200, 200, 0, 200, 100, 200])).is_none());
        let late = bottleneck(&seconds(&[0, 200, 0, 101, 150, 900, 0])).expect("late");
        assert_eq!(late.from_s, 3);
        assert!(late.why.contains("at worst 900 ms") && late.why_ko.contains("900ms"), "{late:?}");
        assert!(bottleneck(&[]).is_none());
    }
}
