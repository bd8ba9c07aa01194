//! The wait told against the wait had.
//!
//! No judgement of its own: how wrong a told wait may be is for an SLO to say, so no server is accused here. The wait
//! had runs from the reply that told it first to the reply that said "enter", which is what a user feels.

use super::{check, name};
use crate::{
    bilingual::bilingual,
    format::{float, grouped},
    report::{Check, Eta, Judgement},
    story::Story,
};

/// Waits below a second are taken for one when they divide: a told wait is in whole seconds.
const LEAST_S: f64 = 1.0;

pub(super) fn judge(stories: &[Story]) -> (Eta, Check) {
    let mut ratios = Vec::new();
    let (mut bias, mut relative, mut covered) = (0.0, 0.0, 0_u64);
    let mut worst: Option<(f64, &Story, f64)> = None;
    for story in stories {
        let (Some(entered), Some(told)) = (story.entered, story.first_told) else { continue };
        let had = f64::from(entered.heard_ms.saturating_sub(told.at_ms)) / 1_000.0;
        let error = had - f64::from(told.eta_s);
        bias += error;
        relative += error.abs() / had.max(LEAST_S);
        // The ends are whole seconds, so is the wait that is held against them.
        let (low, high) = told.range_s;
        covered += u64::from(f64::from(low) <= had.ceil() && had.floor() <= f64::from(high));
        ratios.push(had.max(LEAST_S) / f64::from(told.eta_s).max(LEAST_S));
        if worst.is_none_or(|(most, ..)| error.abs() > most) {
            worst = Some((error.abs(), story, had));
        }
    }
    let users = ratios.len() as u64;
    let Some((_, story, had)) = worst else {
        let note = bilingual!(
            "Nobody was told a wait and got in.",
            "예상 대기 시간을 듣고 입장한 사용자가 없습니다."
        );
        return (Eta::default(), check("eta", Judgement::Open, 0, None, note, None));
    };
    ratios.sort_unstable_by(f64::total_cmp);
    let percentile = |tenths: usize| ratios[(ratios.len() - 1) * tenths / 10];
    let of = float(users);
    let eta = Eta {
        users,
        bias_s: bias / of,
        mape: relative / of,
        coverage: float(covered) / of,
        ratio: [percentile(1), percentile(5), percentile(9)],
    };
    let (who, told) = (name(story), story.first_told.map_or(0, |told| told.eta_s));
    let (shown, inside, off) = (grouped(users), 100.0 * eta.coverage, 100.0 * eta.mape);
    let bias = eta.bias_s;
    let note = bilingual!(
        "Of {shown} users who were told a wait, {inside:.1} % had one in the range told. On average it was \
         {bias:+.1} s from the one told, and {off:.0} % of the wait wrong.",
        "예상 대기 시간을 들은 사용자 {shown}명 중 {inside:.1}%가 안내된 범위 안에서 기다렸습니다. 실제 대기는 \
         안내보다 평균 {bias:+.1}초였고, 오차는 실제 대기의 평균 {off:.0}%였습니다."
    );
    let example = bilingual!(
        "User {who} was told {told} s, and waited {had:.1} s.",
        "사용자 {who}는 {told}초라고 들었지만 {had:.1}초를 기다렸습니다."
    );
    (eta, check("eta", Judgement::Good, users - covered, Some(eta.coverage), note, Some(example)))
}
