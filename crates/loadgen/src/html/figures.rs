//! Which charts the page shows.

use super::chart::{Chart, Curve, Figure, Scale};
use crate::{
    bilingual::Bilingual,
    format::float,
    report::{Report, Second},
};

pub(super) fn of(report: &Report) -> Vec<Figure> {
    let seconds = &report.seconds;
    [
        users(seconds),
        entries(seconds, report.plan.admit_per_minute),
        calls(seconds),
        latency(seconds),
        lag(seconds),
        cpu(seconds),
    ]
    .map(Chart::draw)
    .into()
}

fn solid(en: &'static str, ko: &'static str, seconds: &[Second], value: impl Fn(&Second) -> f64) -> Curve {
    Curve { name: Bilingual::fixed(en, ko), values: seconds.iter().map(value).collect(), dashed: false }
}

fn dashed(en: &'static str, ko: &'static str, seconds: &[Second], value: impl Fn(&Second) -> f64) -> Curve {
    Curve { dashed: true, ..solid(en, ko, seconds, value) }
}

fn users(seconds: &[Second]) -> Chart {
    Chart {
        id: "users",
        title: Bilingual::fixed("Users and the line", "사용자와 대기 줄"),
        explanation: Bilingual::fixed(
            "All users of the rehearsal, and those who wait with a place: the length of the line.",
            "리허설에 참여 중인 전체 사용자와, 그중 자리를 받고 입장을 기다리는 사람 수(줄의 길이)입니다.",
        ),
        unit: Bilingual::fixed("users", "명"),
        curves: vec![
            solid("users", "전체", seconds, |s| f64::from(s.users)),
            solid("waiting", "대기", seconds, |s| f64::from(s.waiting)),
        ],
        scale: Scale::Linear,
        digits: 0,
    }
}

fn entries(seconds: &[Second], limit: Option<u32>) -> Chart {
    let mut curves = vec![Curve {
        name: Bilingual::fixed("in the last 60 s", "최근 60초 입장"),
        values: entered_in_last_minute(seconds),
        dashed: false,
    }];
    curves.extend(limit.map(|limit| dashed("allowed", "허용 인원", seconds, |_| f64::from(limit))));
    Chart {
        id: "entered",
        title: Bilingual::fixed("Entries within a minute", "1분 동안의 입장"),
        explanation: Bilingual::fixed(
            "How many users entered in the 60 s before each moment, and how many are allowed.",
            "각 시점 직전 60초 동안 입장한 사람 수와 허용 인원입니다.",
        ),
        unit: Bilingual::fixed("users in 60 s", "60초당 명"),
        curves,
        scale: Scale::Linear,
        digits: 0,
    }
}

fn calls(seconds: &[Second]) -> Chart {
    let mut curves = vec![
        solid("answered", "응답", seconds, |s| f64::from(s.wait_calls) + f64::from(s.entry_calls)),
        dashed("due", "예정", seconds, |s| f64::from(s.due)),
    ];
    if seconds.iter().any(|second| second.errors > 0) {
        curves.push(solid("failed", "실패", seconds, |s| f64::from(s.errors)));
    }
    Chart {
        id: "calls",
        title: Bilingual::fixed("Calls per second", "초당 요청"),
        explanation: Bilingual::fixed(
            "Calls answered, and calls that would have been due if every reply had come at once. Where the two curves \
             part, users asked less often because replies were slow.",
            "응답한 요청과, 응답이 늦지 않았다면 왔을 요청입니다. 두 선이 벌어지면 응답이 느려 사용자가 덜 물어본 것입니다.",
        ),
        unit: Bilingual::fixed("calls/s", "요청/초"),
        curves,
        scale: Scale::Linear,
        digits: 0,
    }
}

fn latency(seconds: &[Second]) -> Chart {
    let percentile = |i: usize| move |second: &Second| f64::from(second.latency_us[i]) / 1_000.0;
    Chart {
        id: "latency",
        title: Bilingual::fixed("Latency", "응답 시간"),
        explanation: Bilingual::fixed(
            "From the time at which a call was due to its reply. p95 means that 95 of 100 calls were faster. Each grid \
             line is ten times the one below it.",
            "요청할 시점부터 응답까지 걸린 시간입니다. p95는 100건 중 95건이 이보다 빨랐다는 뜻이며, 눈금 한 칸은 10배입니다.",
        ),
        unit: Bilingual::fixed("ms, logarithmic", "밀리초(로그 눈금)"),
        curves: vec![
            solid("median", "중앙값", seconds, percentile(0)),
            dashed("p90", "p90", seconds, percentile(1)),
            solid("p95", "p95", seconds, percentile(2)),
            solid("p99", "p99", seconds, percentile(3)),
            dashed("maximum", "최댓값", seconds, percentile(4)),
        ],
        scale: Scale::Logarithmic,
        digits: 2,
    }
}

fn lag(seconds: &[Second]) -> Chart {
    Chart {
        id: "lag",
        title: Bilingual::fixed("Lag of the load generator", "부하 생성기 지연"),
        explanation: Bilingual::fixed(
            "The longest delay with which the generator itself sent a call. A large lag means that the machine that \
             makes the load is too small.",
            "부하 생성기가 요청을 예정보다 늦게 보낸 시간의 최댓값입니다. 크면 부하를 만드는 장비가 부족하다는 뜻입니다.",
        ),
        unit: Bilingual::fixed("ms", "밀리초"),
        curves: vec![solid("lag", "지연", seconds, |s| f64::from(s.lag_us) / 1_000.0)],
        scale: Scale::Linear,
        digits: 2,
    }
}

fn cpu(seconds: &[Second]) -> Chart {
    Chart {
        id: "cpu",
        title: Bilingual::fixed("CPU time of the load generator", "부하 생성기 CPU"),
        explanation: Bilingual::fixed(
            "CPU cores that all workers of the generator used together.",
            "부하 생성기의 모든 작업자가 사용한 CPU 코어 수입니다.",
        ),
        unit: Bilingual::fixed("cores", "코어"),
        curves: vec![solid("cores", "코어", seconds, |s| f64::from(s.cpu_millicores) / 1_000.0)],
        scale: Scale::Linear,
        digits: 2,
    }
}

/// How many users entered in the 60 s up to each second.
fn entered_in_last_minute(seconds: &[Second]) -> Vec<f64> {
    let mut sum = 0_u64;
    let mut sums = Vec::with_capacity(seconds.len());
    for (i, second) in seconds.iter().enumerate() {
        sum += u64::from(second.entered);
        if i >= 60 {
            sum -= u64::from(seconds[i - 60].entered);
        }
        sums.push(float(sum));
    }
    sums
}
