//! A draw of the order, judged from what its users were told and what a sample of them fetched.
//!
//! - **`draw_order`**: people enter in the order of the ranks that they were told after the draw. A rank is one more than the people
//!   ahead who are still in line, so it falls when they go. If at most `g` of the list may have gone by then, the place at the draw was
//!   between `rank` and `rank + g`. The search is that of [`super::order`], with these bounds in the place of times.
//! - **`draw_fairness`**: the drawn place does not depend on when a user came. Spearman's rank correlation of both, over all who came
//!   before the list was frozen. In a fair draw of `n` places it is nearly normal with the variance `1 / (n - 1)`. The check fails beyond
//!   [`MOST_SIGMA`]: one fair draw in a thousand. With fewer than [`LEAST_USERS`] it is open.
//! - **`draw_receipts`**: every receipt and checkpoint that was fetched verifies, with the same key and the same text; the receipt says what
//!   the user was told; and whoever came in time and kept polling is on the list, in line, and whoever came later is not.
//!
//! The list is frozen at a time that the checkpoint says by the server's clock. As the opening is known by both clocks, so is the freeze.

use std::collections::HashMap;

use super::{CLOCKS_MS, at, check, judged, name, opening::Opening, order};
use crate::{
    bilingual::{Bilingual, bilingual},
    format::{float, grouped},
    paper::{Kind, Paper, Published},
    receipt::{Checkpoint, Receipt},
    report::{Check, Draw, Judgement, Plan},
    story::{Call, End, Story},
};

/// How far the correlation may be from 0, in standard deviations: a significance of 0.1 %, both sides together.
const MOST_SIGMA: f64 = 3.29;
/// The least number of users for the test of independence: with them, even a weak advantage of early users (a correlation of 0.33) shows.
const LEAST_USERS: usize = 100;
/// The least number of receipts: one alone says nothing of the others.
const LEAST_RECEIPTS: u64 = 2;
/// Without a checkpoint, the list is frozen at the latest so long after the event began, milliseconds.
const FREEZE_MS: u32 = 2_000;

/// What a paper says, verified.
enum Verified {
    /// The published checkpoint, and the key that signed it.
    Published(String, Checkpoint),
    Receipt(Receipt),
}

impl Verified {
    fn checkpoint(&self) -> (&str, &Checkpoint) {
        match self {
            Self::Published(key, checkpoint) => (key, checkpoint),
            Self::Receipt(receipt) => (&receipt.key, &receipt.checkpoint),
        }
    }
}

/// The run's draw: when its list was frozen, and what was fetched of it.
pub(super) struct Drawn<'a> {
    draw: Draw,
    /// What was fetched; none where there was nothing to verify.
    papers: Vec<(&'a Paper, Option<Result<Verified, String>>)>,
    zone: String,
    /// Whoever had a place by then came in time.
    in_time_ms: u32,
    /// Whoever asked for a place after this time came later.
    frozen_by_ms: u32,
    /// When users may have gone, in order, of those who may be on the list.
    gone_ms: Vec<u32>,
}

/// What is wrong with a paper.
enum Fault {
    /// It does not verify; with the reason.
    Wrong(String),
    /// Another key or checkpoint than the first one.
    Differs,
    /// The draw is not that of the run.
    Foreign,
    /// The list was frozen before the event began.
    Early,
    /// A user who came in time and kept polling got none; with the status.
    Refused(u16),
    /// A user who came in time and kept polling is not in line.
    NotInLine,
    /// A user who came after the freeze is on the list.
    Late,
    /// The rank that was told does not fit the position.
    Rank { told: u32, position: u32 },
    /// Another user has the same place.
    Twice,
}

impl<'a> Drawn<'a> {
    /// None if the run was not made for a draw, or nobody was told when the zone opens.
    pub(super) fn of(plan: &Plan, stories: &[Story], papers: &'a [Paper]) -> Option<Self> {
        let draw = plan.opening.as_ref()?.draw.clone()?;
        let opening = Opening::told(stories)?;
        let before_ms = draw.frozen_before_ms();
        let in_time_ms = opening.earliest_ms.saturating_sub(before_ms).saturating_sub(CLOCKS_MS);
        let begins_by_ms = opening.latest_ms.saturating_sub(before_ms).saturating_add(CLOCKS_MS);
        let papers: Vec<_> = papers.iter().map(|paper| (paper, verified(paper))).collect();
        let frozen = papers.iter().find_map(|(_, paper)| Some(paper.as_ref()?.as_ref().ok()?.checkpoint().1));
        let frozen_by_ms = match frozen {
            None => begins_by_ms.saturating_add(FREEZE_MS),
            Some(checkpoint) => {
                let opens_s = i64::try_from(draw.opens_unix_s).unwrap_or(i64::MAX);
                let after_ms = checkpoint.frozen_unix_s.saturating_sub(opens_s).saturating_mul(1_000);
                let ms = i64::from(opening.latest_ms).saturating_add(after_ms).clamp(0, i64::from(u32::MAX));
                begins_by_ms.max(u32::try_from(ms).unwrap_or(u32::MAX).saturating_add(CLOCKS_MS))
            }
        };
        // Whoever fell silent this long before the freeze is not on the list.
        let since_ms = in_time_ms.saturating_sub(plan.idle_s.saturating_mul(1_000));
        let mut gone_ms: Vec<u32> = stories.iter().filter_map(gone_ms).filter(|ms| *ms >= since_ms).collect();
        gone_ms.sort_unstable();
        Some(Self { draw, papers, zone: plan.zone.clone(), in_time_ms, frozen_by_ms, gone_ms })
    }

    /// Whoever asked for a place after this time stands behind the list.
    pub(super) fn frozen_by_ms(&self) -> u32 {
        self.frozen_by_ms
    }

    /// The three checks, in a fixed order.
    pub(super) fn judge(&self, stories: &[Story]) -> [Check; 3] {
        [
            order::search("draw_order", stories, |story| self.place(story)),
            self.fairness(stories),
            self.receipts(stories),
        ]
    }

    fn came_in_time(&self, story: &Story) -> bool {
        story.arrived.is_some_and(|call| call.heard_ms <= self.in_time_ms)
    }

    /// The place at the draw: at least, and at most.
    fn place(&self, story: &Story) -> Option<Call> {
        let placed = story.placed?;
        let gone = self.gone_ms.partition_point(|ms| *ms <= placed.told.heard_ms);
        let most = placed.rank.saturating_add(u32::try_from(gone).unwrap_or(u32::MAX));
        Some(Call { sent_ms: placed.rank, heard_ms: most })
    }

    fn fairness(&self, stories: &[Story]) -> Check {
        let what = "draw_fairness";
        let mut people: Vec<(Call, u32)> = stories
            .iter()
            .filter(|story| self.came_in_time(story))
            .filter_map(|story| Some((story.arrived?, story.placed?.rank)))
            .collect();
        let (shown, least) = (grouped(people.len() as u64), grouped(LEAST_USERS as u64));
        let is_by_arrival = |paper: &Option<_>| matches!(paper, Some(Ok(Verified::Receipt(receipt))) if receipt.is_by_arrival);
        if self.papers.iter().any(|(_, paper)| is_by_arrival(paper)) {
            let note = bilingual!(
                "The announced randomness did not come, so the order is that of arrival: not judged.",
                "예고한 난수가 나오지 않아 도착 순서를 그대로 쓰므로 판정하지 않습니다."
            );
            return check(what, Judgement::Open, 0, None, note, None);
        }
        if people.len() < LEAST_USERS {
            let note = bilingual!(
                "Only {shown} users came before the list was frozen and were told a place afterwards: not judged. It takes at least {least} \
                 (--users).",
                "명단이 확정되기 전에 와서 순번을 안내받은 사용자가 {shown}명뿐이라 판정하지 않습니다. {least}명 이상이 필요합니다(--users)."
            );
            return check(what, Judgement::Open, 0, None, note, None);
        }
        people.sort_unstable_by_key(|&(call, _)| (call.sent_ms, call.heard_ms));
        let correlation = spearman(&people.iter().map(|&(_, rank)| rank).collect::<Vec<_>>());
        let sigma = correlation * float(people.len() as u64 - 1).sqrt();
        let good = sigma.abs() <= MOST_SIGMA;
        let (r, s, most) = (correlation, sigma, MOST_SIGMA);
        let note = if good {
            bilingual!(
                "Of {shown} users who came before the list was frozen, coming early made no difference: the correlation of arrival and drawn \
                 place is {r:+.3}, {s:+.1} standard deviations. Up to {most} are chance (significance 0.1 %).",
                "명단이 확정되기 전에 온 {shown}명에게 일찍 온 것은 영향이 없었습니다. 도착과 추첨 순번의 상관계수는 {r:+.3}, 표준편차의 \
                 {s:+.1}배이며 {most}배까지는 우연입니다(유의수준 0.1%)."
            )
        } else {
            let (who, who_ko) = if correlation > 0.0 { ("early", "일찍") } else { ("late", "늦게") };
            bilingual!(
                "Of {shown} users who came before the list was frozen, those who came {who} had better places: the correlation of arrival and \
                 drawn place is {r:+.3}, {s:+.1} standard deviations. Up to {most} are chance (significance 0.1 %).",
                "명단이 확정되기 전에 온 {shown}명 중 {who_ko} 온 사람의 순번이 앞섰습니다. 도착과 추첨 순번의 상관계수는 {r:+.3}, \
                 표준편차의 {s:+.1}배이며 {most}배까지는 우연입니다(유의수준 0.1%)."
            )
        };
        check(what, judged(good), u64::from(!good), Some(correlation), note, None)
    }

    fn receipts(&self, stories: &[Story]) -> Check {
        let what = "draw_receipts";
        let known: HashMap<(u16, u32), &Story> = stories.iter().map(|story| (story.who, story)).collect();
        let mut seen = Seen::default();
        let mut found: Vec<(&Paper, Fault)> = Vec::new();
        for (paper, verified) in &self.papers {
            let story = known.get(&paper.who).copied();
            let fault = self.fault(paper, verified.as_ref(), story, &mut seen);
            found.extend(fault.map(|fault| (*paper, fault)));
        }
        let (verified, published) = (grouped(seen.receipts), grouped(seen.before));
        if found.is_empty() && seen.receipts < LEAST_RECEIPTS {
            let note = bilingual!(
                "{verified} receipts were fetched: it takes at least {LEAST_RECEIPTS} users who are told their places after the draw (--users), \
                 and a run that lasts until then.",
                "확인한 추첨 증서가 {verified}장입니다. 추첨 뒤에 순번을 안내받은 사용자가 {LEAST_RECEIPTS}명 이상이고(--users) 그때까지 \
                 실행해야 합니다."
            );
            return check(what, Judgement::Open, 0, None, note, None);
        }
        if found.is_empty() {
            let (places, in_line) =
                seen.first.as_ref().map_or((0, 0), |(_, checkpoint)| (checkpoint.places, checkpoint.in_line));
            let (places, in_line) = (grouped(places.into()), grouped(in_line.into()));
            let note = bilingual!(
                "All {verified} receipts that were fetched verify against one checkpoint of {places} places, {in_line} of them in line. {published} \
                 users had saved it before the order was known.",
                "내려받은 추첨 증서 {verified}장이 모두 하나의 체크포인트로 검증됩니다(자리 {places}개, 그중 대기 {in_line}개). 순서가 \
                 정해지기 전에 {published}명이 그것을 저장해 두었습니다."
            );
            return check(what, Judgement::Good, 0, None, note, None);
        }
        let (count, of) = (grouped(found.len() as u64), grouped(self.papers.len() as u64));
        let note = bilingual!(
            "Of {of} receipts and checkpoints that were fetched, {count} are wrong.",
            "내려받은 추첨 증서와 체크포인트 {of}장 중 {count}장이 잘못되었습니다."
        );
        let worst = found.first().map(|(paper, fault)| {
            let story = known.get(&paper.who).copied();
            example(paper, fault, story)
        });
        check(what, Judgement::Bad, found.len() as u64, None, note, worst)
    }

    /// What is wrong with a paper.
    fn fault(
        &self,
        paper: &Paper,
        verified: Option<&Result<Verified, String>>,
        story: Option<&Story>,
        seen: &mut Seen,
    ) -> Option<Fault> {
        let kept_polling = story.filter(|story| self.came_in_time(story) && story.lapses == 0);
        if paper.kind == Kind::Receipt && paper.status != 200 {
            return kept_polling.map(|_| Fault::Refused(paper.status));
        }
        let verified = match verified? {
            Ok(verified) => verified,
            Err(why) => return Some(Fault::Wrong(why.clone())),
        };
        let (key, checkpoint) = verified.checkpoint();
        let (first_key, first) = seen.first.get_or_insert_with(|| (key.to_owned(), checkpoint.clone()));
        if (&**first_key, &first.text) != (key, &checkpoint.text) {
            return Some(Fault::Differs);
        }
        if !checkpoint.is_of(&self.zone, &self.draw.event) {
            return Some(Fault::Foreign);
        }
        if checkpoint.frozen_unix_s < i64::try_from(self.draw.begins_unix_s).unwrap_or(i64::MAX) {
            return Some(Fault::Early);
        }
        let Verified::Receipt(receipt) = verified else {
            let before =
                |story: &Story| story.placed.is_none_or(|placed| paper.call.heard_ms < placed.told.sent_ms);
            seen.before += u64::from(story.is_some_and(before));
            return None;
        };
        if !seen.places.insert(receipt.place) {
            return Some(Fault::Twice);
        }
        let fault = self.against_story(receipt, story, kept_polling.is_some());
        seen.receipts += u64::from(fault.is_none());
        fault
    }

    /// How a verified receipt contradicts what its user saw.
    fn against_story(&self, receipt: &Receipt, story: Option<&Story>, kept_polling: bool) -> Option<Fault> {
        let story = story?;
        let Some(position) = receipt.position else { return kept_polling.then_some(Fault::NotInLine) };
        if story.arrived.is_some_and(|call| call.sent_ms > self.frozen_by_ms) {
            return Some(Fault::Late);
        }
        let place = self.place(story)?;
        let fits = (place.sent_ms..=place.heard_ms).contains(&position);
        (!fits).then_some(Fault::Rank { told: place.sent_ms, position })
    }
}

/// What the papers had in common so far.
#[derive(Default)]
struct Seen {
    /// The key and the checkpoint of the first one.
    first: Option<(String, Checkpoint)>,
    places: std::collections::HashSet<u32>,
    /// Receipts that are right.
    receipts: u64,
    /// Users who saved the checkpoint before they were told a place.
    before: u64,
}

fn example(paper: &Paper, fault: &Fault, story: Option<&Story>) -> Bilingual {
    let who = story.map_or_else(|| format!("{}/{}", paper.who.0, paper.who.1), name);
    let at = at(paper.call.heard_ms);
    match fault {
        Fault::Wrong(why) => bilingual!(
            "What user {who} fetched at {at} does not verify: {why}.",
            "사용자 {who}가 {at}에 내려받은 것이 검증되지 않습니다."
        ),
        Fault::Differs => bilingual!(
            "User {who} saw another checkpoint or key at {at} than the others.",
            "사용자 {who}는 {at}에 다른 사람과 다른 체크포인트나 키를 보았습니다."
        ),
        Fault::Foreign => bilingual!(
            "What user {who} fetched at {at} is of another zone or event.",
            "사용자 {who}가 {at}에 내려받은 것은 다른 구역이나 행사의 것입니다."
        ),
        Fault::Early => bilingual!(
            "User {who} saw at {at} that the list was frozen before the event began.",
            "사용자 {who}가 {at}에 본 명단은 행사가 시작되기 전에 확정되었습니다."
        ),
        Fault::Refused(status) => bilingual!(
            "User {who} came before the list was frozen and kept polling, and was refused a receipt at {at} (status {status}).",
            "사용자 {who}는 명단이 확정되기 전에 와서 계속 확인했는데 {at}에 증서를 받지 못했습니다(상태 {status})."
        ),
        Fault::NotInLine => bilingual!(
            "User {who} came before the list was frozen and kept polling, but its receipt says that it had left.",
            "사용자 {who}는 명단이 확정되기 전에 와서 계속 확인했는데 증서에는 떠난 것으로 되어 있습니다."
        ),
        Fault::Late => bilingual!(
            "User {who} came after the list was frozen, but is on it.",
            "사용자 {who}는 명단이 확정된 뒤에 왔는데 명단에 있습니다."
        ),
        Fault::Rank { told, position } => bilingual!(
            "User {who} was told rank {told} after the draw, but its receipt says position {position}.",
            "사용자 {who}는 추첨 뒤에 {told}번이라고 안내받았는데 증서의 순번은 {position}번입니다."
        ),
        Fault::Twice => bilingual!(
            "The receipt of user {who} has the place of another user.",
            "사용자 {who}의 증서에 다른 사용자의 자리가 적혀 있습니다."
        ),
    }
}

/// From when on a user may not be in line any more; none if it never was.
fn gone_ms(story: &Story) -> Option<u32> {
    let last = story.last_waiting.or(story.arrived)?;
    Some(match (story.end, story.entered) {
        (End::Entered, Some(entered)) => entered.sent_ms,
        _ => last.sent_ms,
    })
}

/// What a paper says; none if it was refused, or says no checkpoint yet.
fn verified(paper: &Paper) -> Option<Result<Verified, String>> {
    match paper.kind {
        Kind::Published => {
            let Published { key, checkpoint, .. } = serde_json::from_str(&paper.text).ok()?;
            let checkpoint = Checkpoint::verify(&checkpoint?, &key);
            Some(checkpoint.map(|checkpoint| Verified::Published(key, checkpoint)))
        }
        Kind::Receipt if paper.status == 200 => Some(Receipt::verify(&paper.text).map(Verified::Receipt)),
        Kind::Receipt => None,
    }
}

/// Spearman's rank correlation of the order of `values` and their sizes, -1 to 1; 0 for fewer than two. Equal values keep their order.
fn spearman(values: &[u32]) -> f64 {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by_key(|&i| values[i]);
    let n = float(values.len() as u64);
    if n < 2.0 {
        return 0.0;
    }
    let off = |(rank, i): (usize, usize)| (float(rank as u64) - float(i as u64)).powi(2);
    1.0 - 6.0 * order.into_iter().enumerate().map(off).sum::<f64>() / (n * (n * n - 1.0))
}

#[cfg(test)]
mod tests;
