//! The table of checks: what each promise says, and what the run found.

use crate::{
    bilingual::Bilingual,
    report::{Check, GENERATOR, Judgement},
};

/// A row of the table.
pub(super) struct Row<'a> {
    pub(super) check: &'a Check,
    /// The style class: `good`, `bad` or `open`.
    pub(super) class: &'static str,
    pub(super) mark: Bilingual,
    /// None for an objective, whose name is its title.
    pub(super) title: Option<Bilingual>,
    /// What holds where the check passes.
    pub(super) promise: Bilingual,
}

impl Row<'_> {
    /// The name of an objective.
    pub(super) fn goal(&self) -> &str {
        self.check.name.strip_prefix("slo:").unwrap_or(&self.check.name)
    }
}

/// The style class of a result.
pub(super) fn class(judgement: Judgement) -> &'static str {
    match judgement {
        Judgement::Good => "good",
        Judgement::Bad => "bad",
        Judgement::Open => "open",
    }
}

/// The rows, failed checks first.
pub(super) fn rows(checks: &[Check]) -> Vec<Row<'_>> {
    let mut rows: Vec<_> = checks.iter().map(row).collect();
    rows.sort_by_key(|row| match row.check.judgement {
        Judgement::Bad => 0,
        Judgement::Open => 1,
        Judgement::Good => 2,
    });
    rows
}

fn row(check: &Check) -> Row<'_> {
    let class = class(check.judgement);
    let mark = match check.judgement {
        Judgement::Good => Bilingual::fixed("✓ passed", "✓ 통과"),
        Judgement::Bad => Bilingual::fixed("✕ failed", "✕ 문제"),
        Judgement::Open => Bilingual::fixed("? open", "? 보류"),
    };
    let (title, promise) = match promise(&check.name) {
        Some((title, promise)) => (Some(title), promise),
        None => (None, Bilingual::fixed("An objective set for this run.", "이번 실행에 정해 둔 목표입니다.")),
    };
    Row { check, class, mark, title, promise }
}

/// The title of a check and what it promises; none for an objective.
fn promise(name: &str) -> Option<(Bilingual, Bilingual)> {
    let (title, title_ko, promise, promise_ko) = match name {
        "over_admission_60s" => (
            "Limit per minute",
            "1분 허용 인원",
            "In any 60 s, no more users enter than the policy allows.",
            "어느 60초를 보아도 허용 인원보다 많이 입장하지 않습니다.",
        ),
        "over_admission_sub_window" => (
            "Even admission",
            "고른 입장",
            "While people wait, each sub-window admits only its share, so the protected service sees no spikes.",
            "대기자가 있는 동안에는 1분을 나눈 구간마다 제 몫만큼만 입장시켜, 뒤의 서비스에 갑자기 몰리지 않습니다.",
        ),
        "order" => (
            "Order of entry",
            "입장 순서",
            "No user who keeps polling is overtaken by a user who came later.",
            "계속 확인하는 사람은 더 늦게 온 사람에게 추월당하지 않습니다.",
        ),
        "rank_rises" => (
            "Ranks only fall",
            "순번은 줄기만 함",
            "The rank that a user is shown never gets worse.",
            "화면에 보이는 순번이 뒤로 밀리지 않습니다.",
        ),
        "slot_use" => (
            "No slot wasted",
            "입장 자리 사용률",
            "While people wait, as many enter as the policy allows. Users who left do not hold up the others.",
            "대기자가 있는 동안에는 허용된 만큼 모두 입장합니다. 떠난 사람 때문에 자리가 비지 않습니다.",
        ),
        "entered_once" => (
            "One entry per user",
            "입장은 한 번",
            "No two users receive the same pass, and asking again returns the same pass, not a second one.",
            "서로 다른 사용자가 같은 입장권을 받지 않으며, 다시 물어도 두 번째 입장권이 아니라 같은 입장권을 받습니다.",
        ),
        "eta" => (
            "Expected wait",
            "예상 대기 시간",
            "How close the first expected wait was to the actual wait. The error is measured; an objective can judge it.",
            "처음 안내한 대기 시간이 실제와 얼마나 가까웠는지 잽니다. 합격 여부는 따로 정한 목표로 판정합니다.",
        ),
        "polling_period" => (
            "Time to ask again",
            "확인 주기",
            "Users are told to ask again within a third of the time after which a silent user loses the place, and within 60 s.",
            "다시 확인하라고 안내하는 시간은 확인을 멈추면 자리를 잃는 시간의 3분의 1과 60초를 넘지 않습니다.",
        ),
        "evictions" => (
            "No eviction of users who poll",
            "자리 유지",
            "A user who keeps polling keeps the place.",
            "계속 확인하는 사람은 자리를 잃지 않습니다.",
        ),
        "errors" => (
            "Everyone is served",
            "응답",
            "Every user receives a place or a pass, and answers until the end.",
            "찾아온 사용자는 모두 자리나 입장권을 받고, 끝까지 응답을 받습니다.",
        ),
        "opening" => (
            "The start",
            "개시",
            "Nobody enters before the start that users were told, and told waits reach until then.",
            "안내된 개시 시각 전에는 아무도 입장하지 않고, 안내된 대기 시간은 그때까지를 포함합니다.",
        ),
        "draw_order" => (
            "Order of the draw",
            "추첨 순서",
            "People enter in the order of the places that they were told after the draw.",
            "추첨 뒤에 안내받은 순번대로 입장합니다.",
        ),
        "draw_fairness" => (
            "Nobody is favoured for coming early",
            "일찍 와도 유불리 없음",
            "The drawn place does not depend on when a user came.",
            "추첨된 순번은 언제 왔는지와 관계가 없습니다.",
        ),
        "draw_receipts" => (
            "Receipts of the draw",
            "추첨 증서",
            "All users see one checkpoint, and each receipt verifies against it and says what the user was told.",
            "모두가 같은 체크포인트를 보고, 각자의 증서는 그것으로 검증되며 안내받은 순번과 맞습니다.",
        ),
        GENERATOR => (
            "The run itself",
            "실행 자체",
            "The load generator and all of its workers ran to the end.",
            "부하 생성기와 작업자가 모두 끝까지 정상으로 동작해야 합니다.",
        ),
        _ => return None,
    };
    Some((Bilingual::fixed(title, title_ko), Bilingual::fixed(promise, promise_ko)))
}
