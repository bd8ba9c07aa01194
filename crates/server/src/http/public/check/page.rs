//! What a visitor of a proxy sees who may not go on yet: a page at the address that was asked for, or JSON.
//!
//! Both say the same in the same words, and the page's script shows the words of the JSON. The page works without a script: then it is
//! loaded anew when the line says so. Invariants: the page loads nothing, runs only its own script, and sends nobody to another
//! address. It holds nothing about the visitor but the place and the wait.

use std::{fmt::Write as _, sync::LazyLock};

use admission::{DrawTerms, Stock, Tier};
use aws_lc_rs::digest::{SHA256, digest};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use gate::{Reason, WaitStatus};
use http_body_util::Full;
use hyper::{
    Response, StatusCode,
    header::{
        CONTENT_LANGUAGE, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, VARY,
    },
};
use serde_json::{Map, Value, json};

use crate::{
    http::{
        problem::{
            DENIED, NO_COOKIE, NO_PLACE, Problem, TOO_MANY_REQUESTS, UNKNOWN_ZONE, ZONE_CLOSED, ZONE_FULL,
        },
        reply::{Common, is_beyond, write_waiting},
        waiting_page::{
            language::{Language, grouped},
            lean,
            template::{Filling, Template, Texts},
            texts,
        },
    },
    stock::InStock,
};

/// The names of the values in the page.
const VALUES: [&str; 20] = [
    "title",
    "heading",
    "notice",
    "rank",
    "eta",
    "reason",
    "stock",
    "beyond",
    "explanation",
    "no_script",
    "go",
    "style",
    "script",
    "refresh",
    "no_script_hidden",
    "notice_hidden",
    "place_hidden",
    "reason_hidden",
    "stock_hidden",
    "beyond_hidden",
];

const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");

/// The parts that are the same for everybody.
struct BuiltIn {
    template: Template,
    style: String,
    script: String,
    policy: HeaderValue,
}

static BUILT_IN: LazyLock<BuiltIn> = LazyLock::new(|| {
    let template = Template::of_weir(include_str!("page.html"), texts(Language::English), &VALUES);
    let (style, script) = (lean(include_str!("../../waiting_page/page.css")), lean(include_str!("page.js")));
    let source =
        |text: &str| format!("'sha256-{}'", BASE64_STANDARD.encode(digest(&SHA256, text.as_bytes())));
    let policy = format!(
        "default-src 'none'; script-src {}; style-src {}; img-src data:; connect-src 'self'; form-action 'none'; \
         base-uri 'none'; frame-ancestors 'none'",
        source(&script),
        source(&style)
    );
    let policy = HeaderValue::try_from(policy).expect("printable ASCII");
    BuiltIn { template: template.expect("a test reads it"), style, script, policy }
});

/// Why somebody may not go on.
#[derive(Clone, Copy, Debug)]
pub(super) enum Why<'a> {
    /// There are people ahead.
    Waiting {
        status: WaitStatus,
        /// Whether the order was drawn by lot, or is to be.
        is_drawn: bool,
    },
    /// The call was refused.
    Refused(&'a Problem),
}

/// Somebody who may not go on yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocked<'a> {
    pub(super) why: Why<'a>,
    pub(super) language: Language,
    /// Whether the request had no effect but to show something, so that a browser may repeat it by itself.
    pub(super) is_safe: bool,
    /// How long a silent place is kept, in seconds.
    pub(super) idle_timeout_s: Option<u32>,
    /// The operators' notice, in the page's language.
    pub(super) notice: &'a str,
    /// What is left in the zone, if that is told.
    pub(super) stock: Option<&'a InStock>,
    /// The zones whose cookie the browser was given and has not sent back yet, see `poll`; none if they are as before.
    pub(super) given: Option<&'a [&'a str]>,
}

/// What the page says.
struct Words {
    title: String,
    heading: String,
    rank: String,
    eta: String,
    reason: String,
    /// What is left: one line for each tier.
    stock: String,
    /// That everything may be sold out before the visitor's turn.
    beyond: String,
    explanation: String,
    announcement: String,
}

impl Blocked<'_> {
    /// When to ask again, in milliseconds.
    fn period_ms(&self) -> u32 {
        match self.why {
            Why::Waiting { status, .. } => status.polling_period_ms,
            Why::Refused(problem) => {
                // Rules of operators seldom change.
                let usual_s = if problem.code == DENIED { 60 } else { 10 };
                problem.retry_after_s.unwrap_or(usual_s).saturating_mul(1_000).clamp(1_000, 60_000)
            }
        }
    }

    /// Whether the page stands in place of the reply to another site's form.
    fn is_first(&self) -> bool {
        matches!(self.why, Why::Refused(problem) if problem.code == NO_PLACE)
    }

    /// How long a silent place is kept, in words.
    fn kept(&self, texts: &Texts) -> String {
        self.idle_timeout_s.map_or_else(|| texts.get("a_while").to_owned(), |s| kept_for(texts, s))
    }

    fn words(&self) -> Words {
        let texts = texts(self.language);
        let kept = self.kept(texts);
        let say = |name: &str| texts.get(name).replace("{idle}", &kept);
        match self.why {
            Why::Waiting { status, is_drawn } => {
                let WaitStatus { rank, eta, reason, stale, opens_in_ms, .. } = status;
                // Before a draw nobody has a rank.
                let is_undrawn = reason == Some(Reason::Draw);
                let rank = if is_undrawn { say("rank_undrawn") } else { grouped(rank) };
                let eta = eta.map_or_else(|| say("eta_unknown"), |eta| range(texts, eta.low_s, eta.high_s));
                let reason = match (reason, stale) {
                    _ if opens_in_ms > 0 => {
                        let opens = until(texts, opens_in_ms.div_ceil(1_000));
                        let early = match (is_undrawn, is_drawn) {
                            (true, _) if opens_in_ms <= DrawTerms::DRAW_S * 1_000 => "reason_frozen",
                            (true, _) => "reason_draw",
                            (false, true) => "reason_drawn",
                            (false, false) => "reason_early",
                        };
                        fill(texts.get(early), &[("opens", &opens), ("rank", &rank)])
                    }
                    (Some(Reason::Draw), _) => say("reason_drawing"),
                    (Some(Reason::Held), _) => say("reason_held"),
                    (_, true) => say("reason_stale"),
                    (Some(reason), _) => say(&format!("reason_{}", reason.as_str())),
                    (None, false) => String::new(),
                };
                Words {
                    title: fill(
                        texts.get("title_waiting"),
                        &[("rank", &rank), ("title", texts.get("title"))],
                    ),
                    heading: say("heading_waiting"),
                    announcement: match is_undrawn {
                        true => reason.clone(),
                        false => fill(texts.get("announce_waiting"), &[("rank", &rank), ("eta", &eta)]),
                    },
                    explanation: say(if self.is_safe {
                        "gate_explanation_waiting"
                    } else {
                        "gate_explanation_send"
                    }),
                    stock: self.stock.map_or_else(String::new, |of| left(texts, self.language, &of.stock)),
                    beyond: self.beyond(texts),
                    rank,
                    eta,
                    reason,
                }
            }
            Why::Refused(problem) => {
                let (heading, explanation) = match problem.code {
                    ZONE_CLOSED => ("heading_closed", "explanation_closed"),
                    ZONE_FULL => ("heading_full", "explanation_full"),
                    UNKNOWN_ZONE => ("heading_unknown", "explanation_unknown"),
                    TOO_MANY_REQUESTS => ("gate_heading_away", "gate_explanation_too_many_requests"),
                    DENIED => ("gate_heading_denied", "gate_explanation_denied"),
                    NO_COOKIE => ("gate_heading_no_cookie", "gate_explanation_no_cookie"),
                    NO_PLACE if !self.is_safe => ("heading_connecting", "gate_explanation_send"),
                    _ => ("gate_heading_away", "gate_explanation_away"),
                };
                let (heading, explanation) = (say(heading), say(explanation));
                Words {
                    title: format!("{heading} · {}", texts.get("title")),
                    announcement: format!("{heading}. {explanation}"),
                    heading,
                    explanation,
                    rank: String::new(),
                    eta: String::new(),
                    reason: String::new(),
                    stock: String::new(),
                    beyond: String::new(),
                }
            }
        }
    }

    /// What somebody is told before whose turn everything may be sold out; empty for others.
    fn beyond(&self, texts: &Texts) -> String {
        let (Why::Waiting { status, .. }, Some(stock)) = (self.why, self.stock) else {
            return String::new();
        };
        match stock.stock.total() {
            _ if !is_beyond(self.stock, &status) => String::new(),
            Some(total) if total > 0 => fill(texts.get("beyond"), &[("n", &grouped(total))]),
            _ => texts.get("beyond_all").to_owned(),
        }
    }

    /// The page.
    pub(super) fn page(&self) -> Response<Full<Bytes>> {
        let (built_in, texts, words) = (&*BUILT_IN, texts(self.language), self.words());
        let hidden = |is_hidden: bool| if is_hidden { "hidden" } else { "" };
        // A browser without scripts loads the page anew. What was sent with a form, only its sender can send again: the page says so.
        let refresh_s = self.period_ms().div_ceil(1_000).max(2);
        let refresh = if self.is_safe {
            format!("<noscript><meta http-equiv=\"refresh\" content=\"{refresh_s}\"></noscript>\n")
        } else {
            String::new()
        };
        let kept = self.kept(texts);
        let no_script =
            if self.is_safe { String::new() } else { texts.get("gate_no_script").replace("{idle}", &kept) };
        let for_script = ["gate_entered", "gate_resend", "trouble_offline"];
        let named = for_script.map(|name| {
            let short = name.rsplit('_').next().unwrap_or_default();
            (short.to_owned(), Value::from(texts.get(name).replace("{idle}", &kept)))
        });
        let settings = Map::from_iter([
            ("period_ms".to_owned(), json!(self.period_ms())),
            ("resend".to_owned(), json!(!self.is_safe)),
            ("first".to_owned(), json!(self.is_first())),
            ("given".to_owned(), json!(self.given.unwrap_or_default())),
            ("texts".to_owned(), Value::from(Map::from_iter(named))),
        ]);
        let values = [
            ("title", words.title.as_str()),
            ("heading", &words.heading),
            ("notice", self.notice),
            ("rank", &words.rank),
            ("eta", &words.eta),
            ("reason", &words.reason),
            ("stock", &words.stock),
            ("beyond", &words.beyond),
            ("explanation", &words.explanation),
            ("no_script", &no_script),
            ("no_script_hidden", hidden(self.is_safe)),
            ("go", texts.get("gate_go")),
            ("style", &built_in.style),
            ("script", &built_in.script),
            ("refresh", &refresh),
            ("notice_hidden", hidden(self.notice.is_empty())),
            ("place_hidden", hidden(words.rank.is_empty())),
            ("reason_hidden", hidden(words.reason.is_empty())),
            ("stock_hidden", hidden(words.stock.is_empty())),
            ("beyond_hidden", hidden(words.beyond.is_empty())),
        ];
        let language = self.language;
        let page = built_in.template.fill(&Filling {
            language,
            texts,
            zone: "",
            version: "",
            settings,
            values: &values,
        });
        let mut response = Response::new(Full::new(Bytes::from(page)));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HTML);
        headers.insert(CONTENT_LANGUAGE, HeaderValue::from_static(language.tag()));
        headers.insert(CONTENT_SECURITY_POLICY, built_in.policy.clone());
        self.finish(response)
    }

    /// The same as a problem document, with what the page's script shows.
    pub(super) fn document(&self, problem: Problem) -> Response<Full<Bytes>> {
        let Words { title, heading, rank, eta, reason, stock, beyond, explanation, announcement } =
            self.words();
        let shown = json!({
            "title": title, "heading": heading, "rank": rank, "eta": eta, "reason": reason, "explanation": explanation,
            "announcement": announcement, "stock": stock, "beyond": beyond, "notice": self.notice, "period_ms": self.period_ms(), "given": self.given,
        });
        let waiting = match self.why {
            Why::Waiting { status, .. } => {
                let mut text = String::new();
                write_waiting(&mut text, &status, Common::of(&status, self.stock), self.stock);
                serde_json::from_str(&text).expect("it is JSON")
            }
            Why::Refused(_) => Value::Null,
        };
        let problem = problem.with([("canEnter", false.into()), ("waiting", waiting), ("shown", shown)]);
        self.finish(problem.into_reply())
    }

    fn finish(&self, mut response: Response<Full<Bytes>>) -> Response<Full<Bytes>> {
        let status = match self.why {
            Why::Waiting { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Why::Refused(problem) => {
                StatusCode::from_u16(problem.code.status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE)
            }
        };
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(RETRY_AFTER, self.period_ms().div_ceil(1_000).max(1).into());
        headers.insert(VARY, HeaderValue::from_static("accept, accept-language, cookie"));
        // Old caches of proxies that do not know `no-store`.
        headers.insert(HeaderName::from_static("expires"), HeaderValue::from_static("0"));
        response
    }
}

/// What is left: one line for each tier, as in `Floor (GBP 40.00–95.50): 12 left`.
fn left(texts: &Texts, language: Language, stock: &Stock) -> String {
    let line = |tier: &Tier| {
        let said = |tag: &str| tier.label.iter().find(|(of, _)| *of == tag).map(|(_, text)| text);
        let any = || tier.label.iter().next().map(|(_, text)| text);
        let label = said(language.tag()).or_else(|| said("en")).or_else(any).unwrap_or_default();
        let price = tier.price.as_ref().map_or_else(String::new, |price| {
            let to = if price.from() == price.to() { String::new() } else { format!("–{}", price.to()) };
            format!(" ({} {}{to})", price.currency(), price.from())
        });
        match tier.remaining {
            None => format!("{label}{price}"),
            Some(0) => format!("{label}{price}: {}", texts.get("sold_out")),
            Some(n) => format!("{label}{price}: {}", fill(texts.get("left"), &[("n", &grouped(n.into()))])),
        }
    };
    stock.tiers().iter().map(line).collect::<Vec<_>>().join("\n")
}

fn fill(text: &str, values: &[(&str, &str)]) -> String {
    values.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
}

fn count(texts: &Texts, unit: &str, number: u32) -> String {
    let name = if number == 1 { format!("{unit}_one") } else { unit.to_owned() };
    fill(texts.get(&name), &[("n", &grouped(number.into()))])
}

/// Minutes in words.
fn span(texts: &Texts, minutes: u32) -> String {
    let mut out = String::new();
    for (unit, number) in [("hours", minutes / 60), ("minutes", minutes % 60)] {
        if number > 0 {
            let written =
                write!(out, "{}{}", if out.is_empty() { "" } else { " " }, count(texts, unit, number));
            debug_assert!(written.is_ok(), "writing to a String does not fail");
        }
    }
    out
}

fn kept_for(texts: &Texts, seconds: u32) -> String {
    if seconds > 60 && seconds.is_multiple_of(60) {
        span(texts, seconds / 60)
    } else {
        count(texts, "seconds", seconds)
    }
}

/// How long something takes still, in words, as `until` of the waiting page's script says it.
fn until(texts: &Texts, seconds: u32) -> String {
    if seconds > 120 { span(texts, seconds.div_ceil(60)) } else { count(texts, "seconds", seconds) }
}

/// A range of seconds in words, as `words` of the waiting page's script says it: the words get coarser only as the range grows.
fn range(texts: &Texts, low_s: u32, high_s: u32) -> String {
    if high_s <= 60 {
        return texts.get("eta_soon").to_owned();
    }
    let say = |name: &str, values: &[(&str, &str)]| fill(texts.get(name), values);
    if high_s < 120 {
        return match (low_s / 10 * 10, high_s.div_ceil(10) * 10) {
            (0, to) => say("eta_up_to", &[("high", &kept_for(texts, to))]),
            (from, to) if from == to => say("eta_about", &[("high", &kept_for(texts, to))]),
            (from, to) => say("eta_seconds_range", &[("low", &from.to_string()), ("high", &to.to_string())]),
        };
    }
    // Beyond an hour, minutes are rounded to tens.
    let step = |s: u32| if s > 3_600 { 600 } else { 60 };
    let from = low_s / step(low_s) * step(low_s) / 60;
    let to = high_s.div_ceil(step(high_s)) * step(high_s) / 60;
    if from < 1 {
        say("eta_up_to", &[("high", &span(texts, to))])
    } else if from == to {
        say("eta_about", &[("high", &span(texts, to))])
    } else if to < 60 {
        say("eta_minutes_range", &[("low", &from.to_string()), ("high", &to.to_string())])
    } else {
        say("eta_range", &[("low", &span(texts, from)), ("high", &span(texts, to))])
    }
}

#[cfg(test)]
mod tests {
    use gate::Eta;

    use super::*;
    use crate::http::problem::{STORE_AWAY, WAITING};

    fn blocked(why: Why<'_>) -> Blocked<'_> {
        let idle_timeout_s = Some(60);
        Blocked {
            why,
            language: Language::English,
            is_safe: true,
            idle_timeout_s,
            notice: "",
            stock: None,
            given: None,
        }
    }

    const HELD: WaitStatus = WaitStatus {
        rank: 1,
        eta: None,
        reason: None,
        stale: false,
        polling_period_ms: 3_000,
        opens_in_ms: 0,
    };

    fn waiting() -> Why<'static> {
        let eta = Some(Eta { seconds: 200, low_s: 150, high_s: 270 });
        Why::Waiting { status: WaitStatus { rank: 1_202, eta, ..HELD }, is_drawn: false }
    }

    fn text(response: Response<Full<Bytes>>) -> String {
        use hyper::body::Body as _;
        let (mut body, waker) = (response.into_body(), std::task::Waker::noop());
        let mut context = std::task::Context::from_waker(waker);
        let std::task::Poll::Ready(Some(Ok(frame))) = std::pin::Pin::new(&mut body).poll_frame(&mut context)
        else {
            panic!("a whole body");
        };
        String::from_utf8(frame.into_data().expect("data").to_vec()).expect("UTF-8")
    }

    #[test]
    fn a_page_says_place_and_wait_in_both_languages() {
        let page = text(blocked(waiting()).page());
        for part in [
            "<dd data-weir=\"rank\">1,202</dd>",
            "about 2 to 5 minutes",
            "content=\"3\"",
            "1,202 · Waiting room",
        ] {
            assert!(page.contains(part), "{part} in {page}");
        }
        assert!(!page.contains("{{") && !page.contains("{idle}"), "{page}");
        let korean = text(Blocked { language: Language::Korean, ..blocked(waiting()) }.page());
        assert!(korean.contains("<html lang=\"ko\">") && korean.contains("1,202"), "{korean}");
    }

    #[test]
    fn a_visitor_is_told_of_a_draw_before_and_after_it() {
        let said = |reason: Option<Reason>, opens_in_ms: u32, is_drawn: bool, language: Language| {
            let why =
                Why::Waiting { status: WaitStatus { rank: 600, reason, opens_in_ms, ..HELD }, is_drawn };
            let document = text(Blocked { language, ..blocked(why) }.document(WAITING.into()));
            let shown = serde_json::from_str::<Value>(&document).expect("JSON")["shown"].clone();
            ["rank", "reason", "announcement"].map(|part| shown[part].as_str().expect("text").to_owned())
        };
        let (en, ko) = (Language::English, Language::Korean);
        let [rank, reason, announcement] = said(Some(Reason::Draw), 90_000, true, en);
        assert_eq!(rank, "by lot");
        assert!(reason.contains("drawn by lot") && reason.contains("90 seconds"), "{reason}");
        assert_eq!(announcement, reason);
        let [.., announcement] = said(Some(Reason::Draw), 30_000, true, ko);
        assert!(
            announcement.contains("추첨하고 있습니다") && announcement.contains("30초"),
            "{announcement}"
        );
        let [rank, reason, announcement] = said(None, 18_000, true, en);
        assert!(reason.contains("draw has taken place") && reason.contains("is 600."), "{reason}");
        assert!(rank == "600" && announcement.starts_with("Place 600 in line."), "{announcement}");
        assert!(said(None, 18_000, true, ko)[1].contains("추첨이 끝났습니다"));
        assert!(said(None, 18_000, false, en)[1].contains("You have your place already"));
    }

    #[test]
    fn a_visitor_is_told_what_is_left_in_both_languages() {
        let of = |floor: u64| {
            let tiers = json!({ "tiers": [
                { "id": "floor", "label": {"en": "<Floor>", "ko": "스탠딩"}, "remaining": floor,
                  "price": {"currency": "GBP", "from": "40.00", "to": "95.00"} },
                { "id": "seat", "label": {"en": "Seat"}, "remaining": 0 },
            ] });
            InStock::new(crate::stock::json::stock(tiers).expect("a stock"), 1)
        };
        let (few, enough, none) = (of(1_201), of(1_202), of(0));
        let said = |stock: &InStock, language: Language| {
            let blocked = Blocked { stock: Some(stock), language, ..blocked(waiting()) };
            let page = text(blocked.page());
            let document = text(blocked.document(WAITING.into()));
            (page, serde_json::from_str::<Value>(&document).expect("JSON"))
        };
        let (page, document) = said(&few, Language::English);
        assert!(page.contains("&lt;Floor&gt; (GBP 40.00–95.00): 1,201 left\nSeat: sold out"), "{page}");
        assert!(page.contains("Only 1,201 left"), "{page}");
        assert_eq!(document["waiting"]["stock"]["remaining"], json!({ "floor": 1_201, "seat": 0 }));
        assert_eq!(document["waiting"]["beyondStock"], true);
        let (page, document) = said(&enough, Language::Korean);
        assert!(page.contains("스탠딩 (GBP 40.00–95.00): 1,202개 남음") && page.contains("매진"), "{page}");
        assert!(page.contains("data-weir=\"beyond\" hidden"), "{page}");
        assert_eq!(document["waiting"]["beyondStock"], Value::Null);
        assert!(said(&none, Language::English).0.contains("Everything is sold out."));
        let status = WaitStatus { rank: 1_202, reason: Some(Reason::Draw), ..HELD };
        let why = Why::Waiting { status, is_drawn: true };
        let undrawn = text(Blocked { stock: Some(&few), ..blocked(why) }.document(WAITING.into()));
        let undrawn: Value = serde_json::from_str(&undrawn).expect("JSON");
        let told = (&undrawn["waiting"]["beyondStock"], &undrawn["shown"]["beyond"]);
        assert_eq!(told, (&Value::Null, &"".into()), "nobody has a rank before the draw");
        let without = text(blocked(waiting()).document(WAITING.into()));
        assert!(!without.contains("Stock") && !without.contains("remaining"), "{without}");
    }

    #[test]
    fn a_page_and_its_script_hear_which_cookies_they_were_given() {
        for (given, shown) in [(None, json!(null)), (Some(&["A", "B"][..]), json!(["A", "B"]))] {
            let blocked = Blocked { given, ..blocked(waiting()) };
            let document: Value =
                serde_json::from_str(&text(blocked.document(WAITING.into()))).expect("JSON");
            assert_eq!(document["shown"]["given"], shown);
            let list = json!(given.unwrap_or_default());
            assert!(text(blocked.page()).contains(&format!("\"given\":{list}")));
        }
    }

    #[test]
    fn a_denied_visitor_is_told_so_and_asks_rarely() {
        let problem = Problem::from(DENIED);
        for (language, heading) in [
            (Language::English, "You cannot continue here"),
            (Language::Korean, "여기서는 계속할 수 없습니다"),
        ] {
            let blocked = Blocked { language, ..blocked(Why::Refused(&problem)) };
            let reply = blocked.document(problem.clone());
            assert_eq!(reply.status(), 403);
            let document: Value = serde_json::from_str(&text(reply)).expect("JSON");
            assert_eq!(
                (&document["code"], &document["shown"]["heading"]),
                (&"denied".into(), &heading.into())
            );
            assert_eq!(document["shown"]["period_ms"], 60_000);
        }
    }

    #[test]
    fn a_form_is_not_sent_again_by_itself() {
        let page = text(Blocked { is_safe: false, ..blocked(waiting()) }.page());
        assert!(!page.contains("http-equiv") && page.contains("\"resend\":true"), "{page}");
        assert!(page.contains("What you sent was not delivered"), "{page}");
    }

    #[test]
    fn an_operators_notice_cannot_change_the_page() {
        let page = text(Blocked { notice: "<script>&", ..blocked(waiting()) }.page());
        assert!(page.contains("&lt;script&gt;&amp;") && !page.contains("<script>&"), "{page}");
    }

    #[test]
    fn the_policy_allows_the_pages_own_script_and_style_only() {
        let response = blocked(waiting()).page();
        let policy = response.headers()[CONTENT_SECURITY_POLICY].to_str().expect("text").to_owned();
        let page = text(response);
        let part = |from: &str, to: &str| {
            let start = page.find(from).expect(from) + from.len();
            page[start..start + page[start..].find(to).expect(to)].to_owned()
        };
        for inline in [part("<style>", "</style>"), part("<script>", "</script>")] {
            let source = BASE64_STANDARD.encode(digest(&SHA256, inline.as_bytes()));
            assert!(policy.contains(&source), "{policy}");
        }
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    }

    #[test]
    fn a_refusal_is_explained_and_says_when_to_try_again() {
        let problem = Problem::from(STORE_AWAY).retry_after(7);
        let response = blocked(Why::Refused(&problem)).page();
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers()[RETRY_AFTER], "7");
        let page = text(response);
        assert!(
            page.contains("cannot answer right now") && page.contains("data-weir=\"place\" hidden"),
            "{page}"
        );
        let document = text(blocked(Why::Refused(&problem)).document(problem.clone()));
        let document: Value = serde_json::from_str(&document).expect("JSON");
        assert_eq!((&document["code"], &document["canEnter"]), (&"store_away".into(), &false.into()));
        assert_eq!(document["shown"]["period_ms"], 7_000);
    }

    /// The words of the other page's script, for the same ranges: see `words` in `waiting_page/page.js`.
    #[test]
    fn ranges_are_said_as_on_the_other_page() {
        let texts = texts(Language::English);
        for (low, high, words) in [
            (0, 60, "less than a minute"),
            (55, 65, "about 50 to 70 seconds"),
            (0, 62, "up to 70 seconds"),
            (9, 115, "up to 2 minutes"),
            (90, 90, "about 90 seconds"),
            (20, 119, "about 20 to 120 seconds"),
            (20, 121, "up to 3 minutes"),
            (61, 120, "about 1 to 2 minutes"),
            (120, 120, "about 2 minutes"),
            (3_000, 3_500, "about 50 to 59 minutes"),
            (3_500, 4_300, "about 58 minutes to 1 hour 20 minutes"),
            (7_300, 9_000, "about 2 hours to 2 hours 30 minutes"),
        ] {
            assert_eq!(range(texts, low, high), words, "{low} to {high}");
        }
        assert_eq!(kept_for(texts, 90), "90 seconds");
        assert_eq!(kept_for(texts, 120), "2 minutes");
        assert_eq!(
            (grouped(7), grouped(1_000), grouped(1_234_567)),
            ("7".into(), "1,000".into(), "1,234,567".into())
        );
    }
}
