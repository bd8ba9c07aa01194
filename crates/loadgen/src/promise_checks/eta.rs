//! The expected wait compared with the actual wait.
//!
//! This check never fails: an objective sets how wrong an expected wait may be. The actual wait runs from the reply with
//! the first expected wait to the reply "enter", which is the wait that a user experiences.

use super::{check, least_eta_error::least_eta_error, name};
use crate::{
    bilingual::bilingual,
    format::{float, grouped},
    report::{Check, Eta, EtaGroup, Judgement, MEASURES},
    story::Story,
};

/// The least divisor, because an expected wait has whole seconds.
const LEAST_S: f64 = 1.0;

/// At most so many groups of users who were told about the same wait.
const MOST_GROUPS: usize = 30;

pub(super) fn judge(stories: &[Story]) -> (Eta, Check) {
    let (mut ratios, mut waits) = (Vec::new(), Vec::new());
    let (mut bias, mut relative, mut off, mut waited, mut covered) = (0.0, 0.0, 0.0, 0.0, 0_u64);
    let mut worst: Option<(f64, &Story, f64)> = None;
    for story in stories {
        let (Some(entered), Some(told)) = (story.entered, story.first_told) else { continue };
        let actual = f64::from(entered.heard_ms.saturating_sub(told.at_ms)) / 1_000.0;
        let error = actual - f64::from(told.eta_s);
        bias += error;
        off += error.abs();
        waited += actual;
        relative += error.abs() / actual.max(LEAST_S);
        // The ends of the range are whole seconds, so the wait is rounded in favour of the server.
        let (low, high) = told.range_s;
        covered += u64::from(f64::from(low) <= actual.ceil() && actual.floor() <= f64::from(high));
        ratios.push(actual.max(LEAST_S) / f64::from(told.eta_s).max(LEAST_S));
        waits.push((f64::from(told.eta_s), actual));
        if worst.is_none_or(|(most, ..)| error.abs() > most) {
            worst = Some((error.abs(), story, actual));
        }
    }
    let users = ratios.len() as u64;
    let Some((_, story, actual)) = worst else {
        let note = bilingual!(
            "No user was told a wait and then entered.",
            "예상 대기 시간을 듣고 입장한 사용자가 없습니다."
        );
        return (Eta::default(), check(MEASURES, Judgement::Open, 0, None, note, None));
    };
    ratios.sort_unstable_by(f64::total_cmp);
    let percentile = |tenths: usize| ratios[(ratios.len() - 1) * tenths / 10];
    let of = float(users);
    let eta = Eta {
        users,
        bias_s: bias / of,
        mape: relative / of,
        error: off / waited.max(LEAST_S),
        coverage: float(covered) / of,
        ratio: [percentile(1), percentile(5), percentile(9)],
        floor: least_eta_error(stories).unwrap_or_default(),
        groups: groups(waits),
    };
    let (who, told) = (name(story), story.first_told.map_or(0, |told| told.eta_s));
    let (shown, inside, off) = (grouped(users), 100.0 * eta.coverage, 100.0 * eta.error);
    let (bias, least) = (eta.bias_s, 100.0 * eta.floor);
    let note = bilingual!(
        "Of {shown} users who were told a wait, {inside:.1} % waited within the range told. On average the actual wait \
         was {bias:+.1} s from the expected one. The mean error is {off:.1} % of the mean wait; who leaves by chance makes \
         {least:.1} % unavoidable.",
        "예상 대기 시간을 들은 사용자 {shown}명 중 {inside:.1}%가 안내된 범위 안에서 기다렸습니다. 실제 대기는 \
         안내보다 평균 {bias:+.1}초였고, 평균 오차는 평균 대기의 {off:.1}%였으며, 누가 떠날지는 우연이라 \
         {least:.1}%는 피할 수 없습니다."
    );
    let example = bilingual!(
        "User {who} was told {told} s and waited {actual:.1} s.",
        "사용자 {who}는 {told}초라고 들었지만 {actual:.1}초를 기다렸습니다."
    );
    let check = check(MEASURES, Judgement::Good, users - covered, Some(eta.coverage), note, Some(example));
    (eta, check)
}

/// Groups of equally many users, by what they were told. `waits` are told and actual waits, in seconds.
fn groups(mut waits: Vec<(f64, f64)>) -> Vec<EtaGroup> {
    waits.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let group = |same: &[(f64, f64)]| {
        let users = same.len() as u64;
        let mut actual: Vec<f64> = same.iter().map(|&(_, actual)| actual).collect();
        actual.sort_unstable_by(f64::total_cmp);
        EtaGroup {
            users,
            told_s: same.iter().map(|&(told, _)| told).sum::<f64>() / float(users),
            actual_s: [1, 5, 9].map(|tenths| actual[(actual.len() - 1) * tenths / 10]),
        }
    };
    waits.chunks(waits.len().div_ceil(MOST_GROUPS).max(1)).map(group).collect()
}
