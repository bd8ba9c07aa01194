//! A rule in words, in both languages: what is written here is what the program does.
//!
//! Invariant: both languages say the same sentences, in the same order.

use admission::{Definition, DrawTerms, Event, Mode, OnStoreFailure, Policy, RandomnessSource, instant_text};
use gate::DecidingDraw;

use super::Bypasses;
use crate::http::waiting_page::language::{Language, grouped};

/// The sentences. `draw` is the one that decides who enters first, if there is one; `in_force` is the policy of now, which an event may
/// have changed; `through` is how many requests were let through besides.
pub(super) fn sentences(
    language: Language,
    definition: &Definition,
    draw: Option<&DecidingDraw>,
    in_force: &Policy,
    bypasses: Bypasses,
    through: u64,
) -> Vec<String> {
    let say = |en: &str, ko: &str| match language {
        Language::English => en.to_owned(),
        Language::Korean => ko.to_owned(),
    };
    let mut all = vec![
        order(language, draw, in_force)
            + &say(
                " A person who is not there in time keeps the place, and the next person enters meanwhile.",
                " 차례가 되었을 때 응답이 없는 분은 순서를 유지하며, 그동안 다음 분이 입장합니다.",
            ),
        speed(language, in_force),
    ];
    if in_force.mode == Mode::Auto && in_force.max_active > 0 {
        let n = grouped(in_force.max_active.into());
        all.push(say(
            &format!("At most {n} people are inside at a time."),
            &format!("안에는 한 번에 최대 {n}명까지 있을 수 있습니다."),
        ));
    }
    if definition.policy.opens_at.unix_s > 0 {
        let at = instant_text(definition.policy.opens_at.unix_s);
        all.push(say(
            &format!("Nobody enters before {at}. Places that are taken before keep their order."),
            &format!("{at} 전에는 아무도 입장하지 않습니다. 그 전에 받은 순서는 그대로 유지됩니다."),
        ));
    }
    all.extend(definition.schedule.events().iter().map(|of| event(language, of, &definition.policy)));
    let s = in_force.idle_timeout_s;
    all.push(say(
        &format!("A person who is silent for {s} seconds loses the place."),
        &format!("{s}초 동안 응답이 없으면 순서를 잃습니다."),
    ));
    all.push(besides(language, bypasses, through));
    if in_force.on_store_failure == OnStoreFailure::Open {
        all.push(say(
            "If the store of the places does not answer for a while, everybody enters until it answers again.",
            "순서를 보관하는 저장소가 한동안 응답하지 않으면, 다시 응답할 때까지 모두 입장합니다.",
        ));
    }
    all
}

/// Who enters first.
fn order(language: Language, draw: Option<&DecidingDraw>, in_force: &Policy) -> String {
    let Some(DecidingDraw { event, has_begun, is_dealt }) = draw else {
        return match language {
            Language::English => "People enter in the order in which they took their places.",
            Language::Korean => "순서를 받은 차례대로 입장합니다.",
        }
        .to_owned();
    };
    let Event { prequeue_from, begins, .. } = event;
    let before = match language {
        _ if *has_begun || in_force.mode != Mode::Auto => String::new(),
        Language::English => {
            format!("Until {prequeue_from} people enter in the order in which they took their places. ")
        }
        Language::Korean => format!("{prequeue_from} 전에는 순서를 받은 차례대로 입장합니다. "),
    };
    // If the randomness does not come, a draw may fall back on the order of arrival: then nothing was drawn by lot.
    let then = match (language, is_dealt) {
        (Language::English, false) => format!(
            "The order of all who are in line at {begins} is drawn by lot, and they enter in that order. Whoever comes later enters after \
             them, in the order of arrival."
        ),
        (Language::English, true) => format!(
            "The draw put all who were in line at {begins} into an order, and they enter in that order. Whoever came later enters after \
             them, in the order of arrival."
        ),
        (Language::Korean, false) => format!(
            "{begins}에 줄에 있는 모든 분의 순서를 추첨하며, 추첨된 순서대로 입장합니다. 그 뒤에 오신 분은 도착한 차례대로 그 다음에 입장합니다."
        ),
        (Language::Korean, true) => format!(
            "{begins}에 줄에 있던 모든 분의 순서가 추첨 절차로 정해졌으며, 그 순서대로 입장합니다. 그 뒤에 오신 분은 도착한 차례대로 그 다음에 \
             입장합니다."
        ),
    };
    before + &then
}

fn speed(language: Language, policy: &Policy) -> String {
    let n = grouped(policy.admit_per_minute.into());
    let few = grouped(policy.admit_per_minute.div_ceil(policy.sub_windows.max(1)).into());
    // In tenths of a second.
    let tenths = 600_u32.div_ceil(policy.sub_windows.max(1));
    let seconds = match tenths % 10 {
        0 => (tenths / 10).to_string(),
        part => format!("{}.{part}", tenths / 10),
    };
    match (language, policy.mode) {
        (Language::English, Mode::Auto) => format!(
            "At most {n} people enter in any 60 seconds. While people wait, at most {few} of them enter in any {seconds} seconds."
        ),
        (Language::Korean, Mode::Auto) => format!(
            "어느 60초 동안에도 최대 {n}명이 입장합니다. 기다리는 분이 있는 동안에는 그중 최대 {few}명이 어느 {seconds}초 동안에 입장합니다."
        ),
        (Language::English, Mode::Hold) => {
            "At the moment nobody enters. Places can be taken, and are kept.".to_owned()
        }
        (Language::Korean, Mode::Hold) => {
            "지금은 아무도 입장하지 않습니다. 순서를 받을 수 있으며, 받은 순서는 유지됩니다.".to_owned()
        }
        (Language::English, Mode::Closed) => {
            "At the moment nobody enters, and nobody can take a place.".to_owned()
        }
        (Language::Korean, Mode::Closed) => {
            "지금은 아무도 입장하지 않으며, 새로 순서를 받을 수도 없습니다.".to_owned()
        }
        (Language::English, Mode::Open) => {
            "At the moment everybody enters at once, without a limit.".to_owned()
        }
        (Language::Korean, Mode::Open) => "지금은 제한 없이 모두 바로 입장합니다.".to_owned(),
    }
}

fn event(language: Language, event: &Event, usual: &Policy) -> String {
    let Event { prequeue_from, begins, ends, .. } = event;
    let Policy { admit_per_minute, max_active, .. } = event.policy(usual);
    let n = grouped(admit_per_minute.into());
    let inside = |en: &str, ko: &str| match (max_active, language) {
        (0, _) => String::new(),
        (most, Language::English) => format!("{en} {}", grouped(most.into())),
        (most, Language::Korean) => format!("{ko} {}명", grouped(most.into())),
    };
    if let Some(DrawTerms { randomness, .. }) = &event.draw {
        let (opens, by) = (
            DrawTerms::DRAW_S,
            match (randomness, language) {
                (RandomnessSource::Drand, Language::English) => {
                    "a round of drand that comes after that".to_owned()
                }
                (RandomnessSource::Drand, Language::Korean) => "그 뒤에 나오는 drand 라운드".to_owned(),
                (RandomnessSource::Stated(source), _) => source.to_string(),
            },
        );
        return match language {
            Language::English => format!(
                "From {prequeue_from} on, people take places. At {begins} the order of all who wait is drawn by lot, by {by}: coming early \
                 brings no advantage. From {opens} seconds later on they enter in that order, and whoever came later stands behind; at most \
                 {n} enter in any 60 seconds{}. It ends at {ends}.",
                inside(", and inside at a time at most", "")
            ),
            Language::Korean => format!(
                "{prequeue_from}부터 자리를 받습니다. {begins}에 대기 중인 모든 분의 순서를 추첨합니다(추첨 기준: {by}). 일찍 오셔도 유리하지 않습니다. \
                 {opens}초 뒤부터 추첨된 순서대로 입장하고, 나중에 오신 분은 그 뒤에 섭니다. 어느 60초 동안에도 최대 {n}명입니다{}. {ends}에 끝납니다.",
                inside("", ". 안에는 한 번에 최대")
            ),
        };
    }
    match language {
        Language::English => format!(
            "From {prequeue_from} on, people take places. From {begins} on, they enter in the order of their places, at most {n} in any 60 \
             seconds{}. It ends at {ends}.",
            inside(", and inside at a time at most", "")
        ),
        Language::Korean => format!(
            "{prequeue_from}부터 순서를 받습니다. {begins}부터 받은 순서대로 입장하며, 어느 60초 동안에도 최대 {n}명입니다{}. {ends}에 끝납니다.",
            inside("", ". 안에는 한 번에 최대")
        ),
    }
}

fn besides(language: Language, bypasses: Bypasses, through: u64) -> String {
    let Bypasses { routes, by_token } = bypasses;
    let through = grouped(through);
    match (language, routes) {
        (Language::English, 0) => "No rule of this server lets anybody past the line.".to_owned(),
        (Language::Korean, 0) => "이 서버에는 줄을 서지 않고 들여보내는 규칙이 없습니다.".to_owned(),
        (Language::English, _) => format!(
            "Rules that let requests past the line: {routes}, of which {by_token} need a token. Requests that this server let past since it \
             started: {through}."
        ),
        (Language::Korean, _) => format!(
            "줄을 서지 않고 들여보내는 규칙: {routes}개(그중 {by_token}개는 토큰이 필요합니다). 이 서버가 시작된 뒤 이렇게 들여보낸 요청: {through}건."
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn said(language: Language, policy: Policy, bypasses: Bypasses) -> Vec<String> {
        sentences(language, &policy.into(), None, &policy, bypasses, 1_234)
    }

    #[test]
    fn the_order_is_that_of_the_event_of_now() {
        const ARRIVAL: [&str; 2] = ["in which they took their places", "순서를 받은 차례대로"];
        let event = sample::event(serde_json::json!({
            "id": "sale", "prequeue_from": "2026-12-01T08:30:00Z", "begins": "2026-12-01T09:00:00Z", "ends": "2026-12-01T12:00:00Z",
            "order": "draw", "randomness": "drand", "fallback": "wait",
        }));
        let [held, auto] = [Mode::Hold, Mode::Auto].map(|mode| Policy { mode, ..Policy::default() });
        for language in Language::ALL {
            let first = |draw: Option<(bool, bool)>, policy: &Policy| {
                let draw = draw.map(|(has_begun, is_dealt)| {
                    let event = event.clone();
                    DecidingDraw { event, has_begun, is_dealt }
                });
                let definition = sample::zone_with(vec![event.clone()]);
                let all = sentences(language, &definition, draw.as_ref(), policy, Bypasses::default(), 0);
                all[0].clone()
            };
            let arrival = ARRIVAL[language as usize];
            assert!(first(None, &auto).contains(arrival));
            // While people enter before the pre-queue, both orders count, one after the other.
            let usual = first(Some((false, false)), &auto);
            assert!(usual.contains(arrival) && usual.contains("2026-12-01T08:30:00Z"), "{usual}");
            let (closed, undrawn) = (first(Some((false, false)), &held), first(Some((true, false)), &auto));
            assert_eq!(closed, undrawn);
            let drawn = first(Some((true, true)), &auto);
            for said in [&usual, &undrawn, &drawn] {
                assert!(said.contains("2026-12-01T09:00:00Z"), "{said}");
                assert!(
                    said.contains("by lot") || said.contains("draw put") || said.contains("추첨"),
                    "{said}"
                );
            }
            assert!(!undrawn.contains(arrival) && !drawn.contains(arrival) && drawn != undrawn, "{drawn}");
        }
    }

    #[test]
    fn the_numbers_are_those_of_the_policy_in_both_languages() {
        let policy =
            Policy { admit_per_minute: 1_201, sub_windows: 12, max_active: 5_000, ..Policy::default() };
        let some = Bypasses { routes: 3, by_token: 1 };
        let [en, ko] = Language::ALL.map(|language| said(language, policy, some));
        assert_eq!(en.len(), ko.len());
        for part in ["1,201", "101", "5 seconds", "5,000", "60 seconds loses", ": 3, of which 1", "1,234"] {
            assert!(en.iter().any(|said| said.contains(part)), "{part} in {en:?}");
        }
        for part in ["1,201명", "101명", "5초", "5,000명", "60초 동안", "3개(그중 1개", "1,234건"]
        {
            assert!(ko.iter().any(|said| said.contains(part)), "{part} in {ko:?}");
        }
        let odd = said(Language::English, Policy { sub_windows: 7, ..policy }, Bypasses::default());
        assert!(odd[1].contains("in any 8.6 seconds"), "{odd:?}");
        assert!(odd.iter().any(|said| said.contains("lets anybody past")), "{odd:?}");
    }

    #[test]
    fn each_mode_has_its_own_words() {
        for language in Language::ALL {
            let all = [Mode::Auto, Mode::Hold, Mode::Closed, Mode::Open].map(|mode| {
                let policy = Policy { mode, max_active: 9, ..Policy::default() };
                let all = said(language, policy, Bypasses::default());
                assert_eq!(
                    all.iter().any(|said| said.contains("9명") || said.contains("most 9 ")),
                    mode == Mode::Auto
                );
                all[1].clone()
            });
            let different: std::collections::BTreeSet<_> = all.iter().collect();
            assert_eq!(different.len(), 4, "{all:?}");
        }
    }
}
