//! Which users were overtaken.
//!
//! B certainly came after A if B asked for a place after A had received one. B certainly entered while A had to wait if
//! B received the pass [`TOLERANCE_MS`] before A sent a call that was answered "not yet". Three cases are not a fault:
//!
//! - **A was absent.** A user who is silent for longer than two polling periods and half a second may be taken for
//!   absent, and holds no slot meanwhile. So the check looks only at the times in which A was certainly present: B must
//!   have asked for the pass in the same time as A was last told "not yet".
//! - **Slots became free together.** If B takes one of `m` free slots although A is ahead, A is also among the first `m`
//!   present users and can take another slot, in any order. But then A's next call is answered "enter". So B's entry
//!   alone is not a fault; a later "not yet" for A is.
//! - **A user came back.** Only a user ahead of A who was absent and returns can take that slot from A. A return moves
//!   the first `m` by one position, and so delays one user. So the run may have as many overtaken users as lapses, and one
//!   more is a fault. And none may be overtaken if nobody came back between B's entry and A's last "not yet", as long after
//!   an outage for all.
//!
//! Replies that are stale or late excuse that a user was taken for absent, too, but not for as long as they go on: whoever asks as told
//! and is answered has the right to enter, whatever the server behind the answer knows. A user who asks in this way for
//! [`EXCUSED_MS`] after somebody who came later had entered, while [`MANY`] did, is *left behind*, and that is a fault. The others of
//! them are named. If more than one in a hundred of those who waited still wait like this when the run ends, the check is open.
//!
//! If the order is drawn by lot, everybody who came before the list was frozen has the same claim, and the check says whether somebody
//! entered who came after them. The drawn places have the same search.
//!
//! The check is good only if it could have failed: somebody entered, and somebody came later than a user who still had to
//! wait [`TOLERANCE_MS`] afterwards.
//!
//! The tolerance covers polls that are answered from a view of up to a second ago, and differences between clocks.
//!
//! It takes O(n log n): from the last arrival back, with the later arrivals in a tree by the time of their pass.

use std::collections::HashSet;

use super::{at, check, hindrance, judged, line, name, ranks::Ranks};
use crate::{
    bilingual::{Bilingual, bilingual},
    format::grouped,
    report::{Check, Judgement},
    story::{Call, Excused, Story},
};

/// A "not yet" for A counts if it was asked for this long after B's pass, milliseconds: a polling period.
pub(super) const TOLERANCE_MS: u32 = 3_000;

/// Stale or late replies excuse that a user is overtaken for this long, milliseconds: the idle time after which people lose their places
/// by default.
pub(super) const EXCUSED_MS: u32 = 60_000;

/// A user whose replies are stale or late is left behind by this many later users. In a line that moves slowly, chance may let one or
/// two of them enter first each time.
const MANY: u32 = 10;

/// An overtaken user, the time of the last "not yet", and how many later users had entered by then, since the user was present.
struct Overtaken<'a> {
    who: &'a Story,
    from_ms: u32,
    kept_at_ms: u32,
    by: u32,
}

/// `frozen_by_ms` is the time after which nobody came before the list of a draw was frozen; none if the run knows no draw.
pub(super) fn judge(stories: &[Story], frozen_by_ms: Option<u32>) -> Check {
    if frozen_by_ms.is_none() && stories.iter().any(|story| story.undrawn_ms.is_some()) {
        let unknown = bilingual!(
            "The order was drawn by lot, and the run does not know for whom: rehearse it with --profile sale.",
            "추첨으로 순서를 정했는데 누가 추첨에 들었는지 알 수 없습니다. --profile sale로 실행해야 판정할 수 있습니다."
        );
        return check("order", Judgement::Open, 0, None, unknown, None);
    }
    // All who came before the list was frozen have the same claim; whoever came later stands behind them.
    let frozen_ms = frozen_by_ms.unwrap_or(0);
    let claim = |story: &Story| {
        let call = story.arrived?;
        Some(Call { sent_ms: call.sent_ms, heard_ms: call.heard_ms.max(frozen_ms) })
    };
    search("order", stories, claim)
}

/// The check of the order in which `claim` puts the users: a user comes certainly before another one whose claim is `sent` after the
/// own one was `heard`.
pub(super) fn search(what: &str, stories: &[Story], claim: impl Fn(&Story) -> Option<Call>) -> Check {
    let mut came: Vec<(Call, Call)> =
        stories.iter().filter_map(|story| Some((claim(story)?, story.entered?))).collect();
    came.sort_unstable_by_key(|(arrived, _)| arrived.sent_ms);
    let passes = Passes::of(&came);
    let claims = || stories.iter().filter_map(|story| Some((story, claim(story)?)));
    let kept = sorted(claims().flat_map(|(who, claim)| {
        let presences = line::presences(who, line::AGAIN_MS);
        presences.map(move |(from_ms, at_ms)| Kept { claim, from_ms, at_ms, who })
    }));
    let mut excused = Excuses::of(&came, &passes, claims());
    if kept.is_empty() && excused.behind == 0 {
        let nobody = bilingual!(
            "Nobody waited and kept polling, so nobody could be overtaken. It takes more users than may enter in a minute \
             (--users).",
            "기다리며 계속 확인한 사용자가 없어 추월 여부를 판정할 수 없습니다. 1분 허용 인원보다 많은 사용자로(--users) \
             실행해야 합니다."
        );
        return check(what, Judgement::Open, 0, None, hindrance::or(stories, nobody), None);
    }

    let could_show = could_show(stories, &kept, &claim);
    let returns = Returns::of(stories);
    let (mut overtaken, mut for_sure) = (HashSet::new(), HashSet::new());
    let mut worst = excused.worst.take();
    each_with_later(&came, &passes, &kept, |&Kept { from_ms, at_ms: kept_at_ms, who, .. }, later| {
        let until_ms = kept_at_ms.saturating_sub(TOLERANCE_MS);
        let by = later.entered(from_ms, until_ms);
        if by == 0 {
            return;
        }
        overtaken.insert(who.who);
        if later.entered(from_ms.max(returns.over_ms(kept_at_ms)), until_ms) > 0 {
            for_sure.insert(who.who);
        }
        if by > worst.as_ref().map_or(0, |w| w.by) {
            worst = Some(Overtaken { who, from_ms, kept_at_ms, by });
        }
    });

    let lapses: u64 = stories.iter().map(|story| u64::from(story.lapses)).sum();
    let (overtaken, for_sure) = (whole(overtaken.len()), whole(for_sure.len()));
    let kept_order = for_sure == 0 && overtaken <= lapses;
    let good = kept_order && excused.behind == 0;
    if good && !could_show {
        let tolerance = TOLERANCE_MS / 1_000;
        let note = bilingual!(
            "Nobody could be overtaken: it takes a user who enters, and one who came later and entered or waited while \
             another had waited for more than {tolerance} s. Let more users come (--users), and let the run last until \
             some of those who wait enter.",
            "추월이 일어날 수 없었습니다. 입장한 사용자와, 다른 사람이 {tolerance}초 넘게 기다리는 동안 더 늦게 온 \
             사용자가 있어야 합니다. 더 많은 사용자로(--users), 기다리던 사람이 입장할 때까지 실행해야 합니다."
        );
        return check(what, Judgement::Open, 0, None, hindrance::or(stories, note), None);
    }
    let users: HashSet<_> = kept.iter().map(|kept| kept.who.who).collect();
    let explained = lapses.min(overtaken - for_sure);
    let (shown, of) = (grouped(overtaken), grouped(whole(users.len())));
    let note = if overtaken == 0 {
        bilingual!(
            "None of the {of} users who waited and kept polling was overtaken.",
            "기다리며 계속 확인하던 사용자 {of}명 중 추월당한 사람은 없습니다."
        )
    } else if explained == 0 {
        bilingual!(
            "Of {of} users who waited and kept polling, {shown} were overtaken by a user who came later.",
            "계속 확인하던 사용자 {of}명 중 {shown}명이 더 늦게 온 사람에게 추월당했습니다."
        )
    } else {
        let excused = grouped(explained);
        bilingual!(
            "Of {of} users who waited and kept polling, {shown} were overtaken by a user who came later. Users who were \
             absent and came back to their places can explain at most {excused} of them.",
            "계속 확인하던 사용자 {of}명 중 {shown}명이 더 늦게 온 사람에게 추월당했습니다. 자리를 비웠다가 제 순서로 \
             돌아온 사람들 때문에 생길 수 있는 경우는 {excused}명까지입니다."
        )
    };
    let note = excused.added_to(note);
    if good && excused.still > 0 && excused.still * 100 > whole(waited(stories)) {
        return check(what, Judgement::Open, 0, None, note, None);
    }
    let example = worst.filter(|_| !good).map(|worst| {
        let b = first_overtaker(stories, &worst, &claim);
        let (a, place) = (name(worst.who), at(worst.who.arrived.map_or(0, |call| call.heard_ms)));
        let (kept, by) = (at(worst.kept_at_ms), grouped(u64::from(worst.by)));
        let (b, came, pass) = b.map_or_else(Default::default, |(story, came, pass)| {
            (name(story), at(came.sent_ms), at(pass.heard_ms))
        });
        bilingual!(
            "User {a} had a place at {place} and still had to wait at {kept}, when {by} users who came later had entered. \
             The first of them, user {b}, came at {came} and entered at {pass}.",
            "사용자 {a}는 {place}에 자리를 받고 {kept}에도 기다리라는 답을 받았는데, 그때 이미 더 늦게 온 {by}명이 \
             들어가 있었습니다. 그중 가장 먼저 들어간 사용자 {b}는 {came}에 와서 {pass}에 입장했습니다."
        )
    });
    let count = if kept_order { 0 } else { overtaken } + excused.behind;
    check(what, judged(good), count, None, note, example)
}

/// How many users had to wait.
fn waited(stories: &[Story]) -> usize {
    stories.iter().filter(|story| story.arrived.is_some() && story.arrived != story.entered).count()
}

/// The users who were overtaken while their replies were stale or late.
struct Excuses<'a> {
    /// For so long that nothing excuses it.
    behind: u64,
    /// For a shorter time.
    excused: u64,
    /// Those of them who were never let in.
    still: u64,
    /// The one of those left behind whom most overtook.
    worst: Option<Overtaken<'a>>,
}

impl<'a> Excuses<'a> {
    fn of(came: &[(Call, Call)], passes: &Passes, claims: impl Iterator<Item = (&'a Story, Call)>) -> Self {
        let times = sorted(claims.filter_map(|(who, claim)| {
            let Excused { from_ms, to_ms } = who.excused?;
            Some(Kept { claim, from_ms, at_ms: to_ms, who })
        }));
        let mut found = Self { behind: 0, excused: 0, still: 0, worst: None };
        each_with_later(came, passes, &times, |&Kept { from_ms, at_ms, who, .. }, later| {
            let by = later.entered(from_ms, at_ms.saturating_sub(TOLERANCE_MS));
            if by == 0 {
                return;
            }
            if by < MANY || later.entered(from_ms, at_ms.saturating_sub(EXCUSED_MS)) == 0 {
                found.excused += 1;
                let is_last = who.last_waiting.is_none_or(|last| last.sent_ms <= at_ms);
                found.still += u64::from(who.entered.is_none() && is_last);
                return;
            }
            found.behind += 1;
            if by > found.worst.as_ref().map_or(0, |worst| worst.by) {
                found.worst = Some(Overtaken { who, from_ms, kept_at_ms: at_ms, by });
            }
        });
        found
    }

    /// The sentence of the check, and what there is to say of these users.
    fn added_to(&self, mut note: Bilingual) -> Bilingual {
        let (minute, behind) = (EXCUSED_MS / 1_000, grouped(self.behind));
        let (excused, still) = (grouped(self.excused), grouped(self.still));
        let mut add = |more: Bilingual| {
            note = Bilingual {
                en: format!("{} {}", note.en, more.en).into(),
                ko: format!("{} {}", note.ko, more.ko).into(),
            };
        };
        if self.behind > 0 {
            add(bilingual!(
                "{behind} users asked as they were told and got only stale or late replies, for {minute} s and longer after users who came \
                 later had entered.",
                "안내대로 계속 확인한 사용자 {behind}명은 더 늦게 온 사람이 들어간 뒤로도 {minute}초 넘게 오래된 정보(stale)로 표시되거나 늦은 \
                 응답만 받았습니다."
            ));
        }
        if self.excused > 0 {
            add(bilingual!(
                "{excused} users were overtaken while their replies were stale or late, which is excused for {minute} s; {still} of them were \
                 not let in any more.",
                "사용자 {excused}명은 오래된 정보(stale)로 표시되거나 늦은 응답을 받는 동안 추월당했는데 {minute}초까지는 문제로 보지 않습니다. \
                 그중 {still}명은 끝내 입장하지 못했습니다."
            ));
        }
        note
    }
}

/// The times, by the claims of their users.
fn sorted<'a>(times: impl Iterator<Item = Kept<'a>>) -> Vec<Kept<'a>> {
    let mut times: Vec<_> = times.collect();
    times.sort_by_key(|kept| kept.claim.heard_ms);
    times
}

/// Calls `visit` with each of the times, which are in the order of their claims, and with the passes of the users who came later. `came`
/// is in the order of arrival.
fn each_with_later<'a>(
    mut came: &[(Call, Call)],
    passes: &Passes,
    times: &[Kept<'a>],
    mut visit: impl FnMut(&Kept<'a>, &Later<'_>),
) {
    let mut later = Later::new(passes);
    for kept in times.iter().rev() {
        while let Some((&(b, pass), before)) = came.split_last()
            && b.sent_ms > kept.claim.heard_ms
        {
            later.add(pass);
            came = before;
        }
        visit(kept, &later);
    }
}

/// A time in which a user was certainly present, or was excused.
struct Kept<'a> {
    claim: Call,
    from_ms: u32,
    /// When the last call of it was sent that was answered "not yet".
    at_ms: u32,
    who: &'a Story,
}

/// When the calls were sent and heard that were answered with a pass, each in order.
struct Passes {
    sent_ms: Vec<u32>,
    heard_ms: Vec<u32>,
}

impl Passes {
    fn of(came: &[(Call, Call)]) -> Self {
        let sorted = |time: fn(&Call) -> u32| {
            let mut times: Vec<u32> = came.iter().map(|(_, pass)| time(pass)).collect();
            times.sort_unstable();
            times
        };
        Self { sent_ms: sorted(|pass| pass.sent_ms), heard_ms: sorted(|pass| pass.heard_ms) }
    }
}

/// The passes of the users who came later.
struct Later<'a> {
    passes: &'a Passes,
    sent: Ranks,
    heard: Ranks,
}

impl<'a> Later<'a> {
    fn new(passes: &'a Passes) -> Self {
        let ranks = || Ranks::new(passes.sent_ms.len());
        Self { passes, sent: ranks(), heard: ranks() }
    }

    fn add(&mut self, pass: Call) {
        self.sent.add(position(&self.passes.sent_ms, pass.sent_ms));
        self.heard.add(position(&self.passes.heard_ms, pass.heard_ms));
    }

    /// How many certainly entered from `from_ms` on and before `until_ms`, or fewer.
    fn entered(&self, from_ms: u32, until_ms: u32) -> u32 {
        let heard = self.heard.below(position(&self.passes.heard_ms, until_ms));
        heard.saturating_sub(self.sent.below(position(&self.passes.sent_ms, from_ms)))
    }
}

/// How many of the times, which are in order, are before this one.
fn position(times: &[u32], time_ms: u32) -> usize {
    times.partition_point(|&time| time < time_ms)
}

/// When users who had been absent came back: from when on each, and by when all until then are there.
struct Returns(Vec<(u32, u32)>);

impl Returns {
    fn of(stories: &[Story]) -> Self {
        // The server may have noted a call that was never answered, and nobody knows whether its user was absent before.
        let unanswered = |story: &Story| Some((story.unanswered_since_ms?, story.ended_ms));
        let mut returns: Vec<(u32, u32)> = stories
            .iter()
            .flat_map(|story| {
                let silences =
                    story.silences.iter().map(|silence| (silence.ended.sent_ms, silence.ended.heard_ms));
                silences.chain(unanswered(story))
            })
            .collect();
        // A file of an earlier version does not say when.
        if stories.iter().any(|story| story.lapses > 0 && story.silences.is_empty()) {
            returns.push((0, u32::MAX));
        }
        returns.sort_unstable();
        let mut by_ms = 0;
        for (_, heard_ms) in &mut returns {
            by_ms = by_ms.max(heard_ms.saturating_add(line::AGAIN_MS));
            *heard_ms = by_ms;
        }
        Self(returns)
    }

    /// From when on nobody came back until `until_ms`.
    fn over_ms(&self, until_ms: u32) -> u32 {
        let next = self.0.partition_point(|&(from_ms, _)| from_ms <= until_ms);
        next.checked_sub(1).map_or(0, |last| self.0[last].1)
    }
}

/// Whether an overtaken user would have been seen: somebody entered, and somebody came after a user in `kept` who still
/// had to wait long enough afterwards.
fn could_show(stories: &[Story], kept: &[Kept<'_>], claim: impl Fn(&Story) -> Option<Call>) -> bool {
    let mut came: Vec<(Call, u32)> =
        stories.iter().filter_map(|story| Some((claim(story)?, story.arrived?.heard_ms))).collect();
    came.sort_unstable_by_key(|(call, _)| call.sent_ms);
    // Of those who came at or after each one, the first who had a place.
    let mut first_ms = vec![u32::MAX; came.len() + 1];
    for (i, &(_, heard_ms)) in came.iter().enumerate().rev() {
        first_ms[i] = first_ms[i + 1].min(heard_ms);
    }
    let was_followed = |kept: &Kept<'_>| {
        let next = came.partition_point(|(call, _)| call.sent_ms <= kept.claim.heard_ms);
        first_ms[next].max(kept.from_ms) < kept.at_ms.saturating_sub(TOLERANCE_MS)
    };
    stories.iter().any(|story| story.entered.is_some()) && kept.iter().any(was_followed)
}

fn whole(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

fn first_overtaker<'a>(
    stories: &'a [Story],
    worst: &Overtaken<'_>,
    claim: impl Fn(&Story) -> Option<Call>,
) -> Option<(&'a Story, Call, Call)> {
    let after = claim(worst.who)?.heard_ms;
    stories
        .iter()
        .filter(|story| claim(story).is_some_and(|call| call.sent_ms > after))
        .filter_map(|story| Some((story, story.arrived?, story.entered?)))
        .filter(|(_, _, pass)| pass.sent_ms >= worst.from_ms)
        .min_by_key(|(_, _, pass)| pass.heard_ms)
}
