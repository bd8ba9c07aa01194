//! Why users who had to wait are no evidence: their calls failed, they got only stale replies, or they were silent.
//!
//! A check that stays open says what a run must be like to show more. More users or a longer run do not help if it is for one of these
//! reasons, so it names that one instead.

use super::at;
use crate::{
    bilingual::{Bilingual, bilingual},
    format::grouped,
    story::Story,
};

/// What a check says that stays open: what hindered most users who did not enter at once, or else `otherwise`.
pub(super) fn or(stories: &[Story], otherwise: Bilingual) -> Bilingual {
    hindrance(stories).unwrap_or(otherwise)
}

fn hindrance(stories: &[Story]) -> Option<Bilingual> {
    let had_to_wait = |story: &&Story| story.arrived.is_none() || story.arrived != story.entered;
    let waited: Vec<&Story> = stories.iter().filter(had_to_wait).collect();
    let most = |is_hindered: fn(&Story) -> bool| {
        let count = waited.iter().filter(|story| is_hindered(story)).count();
        (count > 0 && 2 * count >= waited.len()).then(|| grouped(count as u64))
    };
    let of = grouped(waited.len() as u64);
    if let Some(failed) = most(|story| story.entered.is_none() && story.unanswered_since_ms.is_some()) {
        return Some(bilingual!(
            "Of {of} users who did not enter at once, {failed} got no answer any more, so the run does not show it.",
            "바로 입장하지 못한 사용자 {of}명 중 {failed}명이 끝내 응답을 받지 못해 판정할 수 없습니다."
        ));
    }
    if let Some(stale) = most(|story| story.arrived.is_some() && story.last_waiting.is_none()) {
        return Some(bilingual!(
            "Of {of} users who did not enter at once, {stale} got only replies marked stale, which do not show how the line moves.",
            "바로 입장하지 못한 사용자 {of}명 중 {stale}명이 오래된 정보(stale)로 표시된 응답만 받아 줄이 어떻게 움직였는지 알 수 없습니다."
        ));
    }
    let silent = most(|story| story.lapses > 0)?;
    let until =
        at(waited.iter().flat_map(|story| &story.silences).map(|s| s.ended.heard_ms).max().unwrap_or(0));
    Some(bilingual!(
        "Of {of} users who did not enter at once, {silent} were silent for longer than two polling periods, because they paused or their \
         calls failed, and may have counted as absent. The last silence ended at {until}. Order and windows are judged from then on, \
         slots from a minute later: the run must go on for longer.",
        "바로 입장하지 못한 사용자 {of}명 중 {silent}명이 스스로 멈추거나 요청이 실패해 확인 주기의 두 배보다 오래 조용했으므로, 자리를 \
         비운 것으로 여겨졌을 수 있습니다. 마지막 침묵은 {until}에 끝났습니다. 순서와 허용 인원은 그때부터, 입장 자리는 1분 뒤부터 다시 \
         판정하므로 더 오래 실행해야 합니다."
    ))
}
