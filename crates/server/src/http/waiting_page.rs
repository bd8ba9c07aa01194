//! The waiting page, its assets, the notice, and what is left.
//!
//! Everything is in the binary; operators may add a directory with templates and assets. Invariant: Weir's page runs no
//! inline script, contacts no other host, and goes on only to the target that the operator configured. Its content security
//! policy ([CSP](https://www.w3.org/TR/CSP3/)) enforces that.

pub mod language;
pub mod target;
pub mod template;

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use admission::{Definition, Notice, Policy, ZoneId};
use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Response, StatusCode,
    header::{
        ACCESS_CONTROL_ALLOW_ORIGIN, CONTENT_LANGUAGE, CONTENT_SECURITY_POLICY, HeaderMap, HeaderName,
        HeaderValue, REFERRER_POLICY, VARY,
    },
};
use serde_json::{Map, Value, json};
use shown::utf8;

use super::asset::Asset;
use crate::stock::InStock;
use language::Language;
use target::Target;
use template::{Filling, Template, Texts, UnknownPlaceholder};

/// The name of the operator's template for zones without one.
const DEFAULT: &str = "default";

/// Stands between a zone and its event in the name of a template. No id has it.
const OF_EVENT: char = '@';

/// The largest template or asset of an operator, in bytes.
const MAX_FILE: u64 = 512 << 10;

/// The most files in an operator's directory, and the most bytes of all together.
const MAX_FILES: usize = 4_096;
const MAX_BYTES: usize = 64 << 20;

/// The most templates that are named because nothing uses them; the others are counted.
const UNUSED_NAMED: usize = 20;

/// The types of an operator's assets, by file extension.
const KINDS: [(&str, &str); 6] = [
    ("css", "text/css; charset=utf-8"),
    ("jpg", "image/jpeg"),
    ("png", "image/png"),
    ("svg", "image/svg+xml"),
    ("webp", "image/webp"),
    ("woff2", "font/woff2"),
];

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Short, because a new version of the server has new assets. Weir's pages put the version into the address.
const FOR_MINUTES: HeaderValue = HeaderValue::from_static("public, max-age=300");
const ASK_AGAIN: HeaderValue = HeaderValue::from_static("no-cache");

const FOR_SECONDS: HeaderValue = HeaderValue::from_static("public, max-age=5");
const FOR_SECOND: HeaderValue = HeaderValue::from_static("public, max-age=1");

const ANY_ORIGIN: HeaderValue = HeaderValue::from_static("*");
/// Send the origin, because services check it against forged forms. Never send a path or query.
const ORIGIN_ONLY: HeaderValue = HeaderValue::from_static("strict-origin");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// The page's parts in the binary.
struct BuiltIn {
    library: Asset,
    assets: [(&'static str, Asset); 4],
    texts: [Texts; Language::ALL.len()],
    /// Changes when the assets change.
    version: String,
}

static BUILT_IN: LazyLock<BuiltIn> = LazyLock::new(|| {
    let library = Asset::new(SCRIPT, lean(include_str!("waiting_page/weir.js")));
    let assets = [
        ("icon.svg", Asset::new("image/svg+xml", &include_bytes!("waiting_page/icon.svg")[..])),
        ("page.css", Asset::new("text/css; charset=utf-8", lean(include_str!("waiting_page/page.css")))),
        ("page.js", Asset::new(SCRIPT, lean(include_str!("waiting_page/page.js")))),
        // It works alone: the page links it, and people may keep it.
        (
            "verify-draw.html",
            Asset::new(HTML, &include_bytes!("../../../../verifier/dist/verify-draw.html")[..]),
        ),
    ];
    let texts = [include_str!("waiting_page/en.json"), include_str!("waiting_page/ko.json")]
        .map(|json| Texts::read(json).expect("a test reads them"));
    let mut all = blake3::Hasher::new();
    for asset in std::iter::once(&library).chain(assets.iter().map(|(_, asset)| asset)) {
        all.update(asset.tag.as_bytes());
    }
    let version = all.finalize().to_hex()[..12].to_owned();
    BuiltIn { library, assets, texts, version }
});

/// The texts of a language.
pub(super) fn texts(language: Language) -> &'static Texts {
    &BUILT_IN.texts[language as usize]
}

/// Removes indentation and comment lines: a third of what every waiting browser would load.
pub(super) fn lean(source: &str) -> String {
    let lines =
        source.lines().map(str::trim_start).filter(|line| !line.is_empty() && !line.starts_with("//"));
    lines.fold(String::with_capacity(source.len()), |all, line| all + line + "\n")
}

/// The operator's settings for the pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitSettings {
    /// The directory of the operator's templates.
    pub templates_dir: Option<PathBuf>,
    /// Where people go after they entered. No two targets have the same zones.
    pub targets: Vec<Target>,
}

/// Why an operator's directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PagesFault {
    /// The directory or a file in it cannot be read.
    #[error("{0}: cannot be read: {1}")]
    Unreadable(PathBuf, #[source] io::Error),
    /// A template has an unknown placeholder.
    #[error("{0}: {1}")]
    Template(PathBuf, #[source] UnknownPlaceholder),
    /// A file does not belong there.
    #[error("{0}: {1}")]
    Wrong(PathBuf, String),
}

/// What a page is for.
#[derive(Clone, Copy, Debug)]
pub struct PageFor<'a> {
    /// The zone.
    pub zone: &'a ZoneId,
    /// The event of it that lasts.
    pub event: Option<&'a ZoneId>,
    /// The event of whose draw people get receipts.
    pub draw: Option<&'a ZoneId>,
    /// The policy in force; `None` if the zone is not served.
    pub policy: Option<Policy>,
}

/// The pages of all zones.
pub struct Pages {
    default: Template,
    by_zone: HashMap<ZoneId, Template>,
    /// By zone and event.
    by_event: HashMap<(ZoneId, ZoneId), Template>,
    assets: HashMap<String, Asset>,
    targets: Vec<Target>,
    /// What [`Pages::note_unused`] said.
    unused: Vec<String>,
}

impl Pages {
    /// Reads all templates and assets.
    ///
    /// # Errors
    /// The first [`PagesFault`].
    pub fn read(settings: &WaitSettings) -> Result<Self, PagesFault> {
        let texts = &BUILT_IN.texts[0];
        let default = Template::read(include_str!("waiting_page/page.html"), texts).expect("a test reads it");
        let targets = settings.targets.clone();
        let mut pages = Self {
            default,
            by_zone: HashMap::new(),
            by_event: HashMap::new(),
            assets: HashMap::new(),
            targets,
            unused: Vec::new(),
        };
        let Some(dir) = &settings.templates_dir else { return Ok(pages) };
        let mut left = MAX_BYTES;
        for (name, path) in files(dir)? {
            let wrong = |what: String| PagesFault::Wrong(path.clone(), what);
            let body = shown::file::bytes(&path, left as u64).map_err(|e| match e.kind() {
                io::ErrorKind::FileTooLarge => {
                    wrong(format!("all files together have more than {MAX_BYTES} bytes"))
                }
                _ => PagesFault::Unreadable(path.clone(), e),
            })?;
            left -= body.len();
            let (stem, ending) = name.rsplit_once('.').unwrap_or((&name, ""));
            if ending == "html" {
                let html = utf8::text(body).map_err(|why| wrong(format!("line {why}")))?;
                let template =
                    Template::read(&html, texts).map_err(|e| PagesFault::Template(path.clone(), e))?;
                let id = |text: &str, what: &str| {
                    ZoneId::parse(text).map_err(|e| wrong(format!("`{text}` is not {what}: {e}")))
                };
                match stem.split_once(OF_EVENT) {
                    None if stem == DEFAULT => pages.default = template,
                    None => drop(pages.by_zone.insert(id(stem, "a zone")?, template)),
                    Some((zone, event)) => {
                        let of = (id(zone, "a zone")?, id(event, "an event")?);
                        pages.by_event.insert(of, template);
                    }
                }
            } else if let Some((_, kind)) = KINDS.iter().find(|(known, _)| *known == ending) {
                if BUILT_IN.assets.iter().any(|(known, _)| *known == name) {
                    return Err(wrong("has the name of an asset of Weir; rename it".to_owned()));
                }
                pages.assets.insert(name, Asset::new(kind, body));
            } else {
                let known = KINDS.map(|(known, _)| known).join(", ");
                return Err(wrong(format!(
                    "is neither a template (ZONE.html, ZONE@EVENT.html) nor an asset ({known}); remove it"
                )));
            }
        }
        Ok(pages)
    }

    /// Says which templates are for zones and events that are not among `zones`, one sentence each: their names may be misspelled. At
    /// most 20 are named.
    #[must_use]
    pub fn unused(&self, zones: &[(ZoneId, Definition)]) -> Vec<String> {
        let definition = |zone: &ZoneId| zones.iter().find(|(id, _)| id == zone).map(|(_, of)| of);
        let no_zone = |file: String, zone: &ZoneId| {
            format!("wait.templates_dir: nobody sees {file}, because there is no zone {zone}")
        };
        let of_zones = self.by_zone.keys().filter(|zone| definition(zone).is_none());
        let of_zones = of_zones.map(|zone| no_zone(format!("{zone}.html"), zone));
        let of_events = self.by_event.keys().filter_map(|(zone, event)| {
            let file = format!("{zone}{OF_EVENT}{event}.html");
            match definition(zone) {
                None => Some(no_zone(file, zone)),
                Some(of) if of.schedule.get(event.as_str()).is_some() => None,
                Some(_) => Some(format!(
                    "wait.templates_dir: nobody sees {file}, because zone {zone} has no event {event}"
                )),
            }
        });
        let mut unused: Vec<String> = of_zones.chain(of_events).collect();
        unused.sort_unstable();
        let more = unused.len().saturating_sub(UNUSED_NAMED);
        unused.truncate(UNUSED_NAMED);
        if more > 0 {
            unused.push(format!("wait.templates_dir: nobody sees {more} more templates"));
        }
        unused
    }

    /// Notes the [`unused`](Self::unused) templates, and returns what the pages of `before` did not say already.
    pub fn note_unused(&mut self, zones: &[(ZoneId, Definition)], before: Option<&Self>) -> Vec<String> {
        self.unused = self.unused(zones);
        let is_news = |said: &&String| before.is_none_or(|before| !before.unused.contains(said));
        self.unused.iter().filter(is_news).cloned().collect()
    }

    /// A zone's page, while an event of it lasts with the template of the event, if it has one. If no such zone is known, `status` says so,
    /// and the page explains it.
    #[must_use]
    pub fn page(
        &self,
        PageFor { zone, event, draw, policy }: PageFor<'_>,
        status: StatusCode,
        query: Option<&str>,
        headers: &HeaderMap,
    ) -> Response<Full<Bytes>> {
        let language = Language::choose(query, headers);
        let target = target::find(&self.targets, zone.as_str());
        let built_in = &*BUILT_IN;
        let texts = &built_in.texts[language as usize];
        let settings = Map::from_iter([
            ("lang".to_owned(), language.tag().into()),
            ("texts".to_owned(), texts.for_script()),
            ("zone".to_owned(), zone.as_str().into()),
            ("draw".to_owned(), json!(draw.map(ZoneId::as_str))),
            ("idle_timeout_s".to_owned(), json!(policy.map(|policy| policy.idle_timeout_s))),
            (
                "target".to_owned(),
                target.map_or_else(|| json!(null), |to| json!({"url": to.url(), "by": to.by().as_str()})),
            ),
        ]);
        let of_event = event.and_then(|event| self.by_event.get(&(zone.clone(), event.clone())));
        let template = of_event.or_else(|| self.by_zone.get(zone)).unwrap_or(&self.default);
        let page = template.fill(&Filling {
            language,
            texts,
            zone: zone.as_str(),
            version: &built_in.version,
            settings,
            values: &[],
        });
        // A service that refuses a pass redirects the posted form back to this page, and browsers check redirects, too.
        let may_post_to = target.map_or("'none'".to_owned(), |to| format!("'self' {}", to.origin()));
        let policy = format!(
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; \
             connect-src 'self'; form-action {may_post_to}; base-uri 'none'; frame-ancestors 'none'"
        );
        let mut response = Asset::new(HTML, page).reply(ASK_AGAIN, headers);
        if response.status() == StatusCode::OK {
            *response.status_mut() = status;
        }
        let sent = response.headers_mut();
        sent.insert(CONTENT_LANGUAGE, HeaderValue::from_static(language.tag()));
        sent.insert(VARY, HeaderValue::from_static("accept-language"));
        sent.insert(REFERRER_POLICY, ORIGIN_ONLY);
        let policy = HeaderValue::from_str(&policy).expect("a target's origin is a few plain characters");
        sent.insert(CONTENT_SECURITY_POLICY, policy);
        response
    }

    /// The file of this name that a page shows; none where there is no such file.
    #[must_use]
    pub fn asset(&self, name: &str, headers: &HeaderMap) -> Option<Response<Full<Bytes>>> {
        let built_in = BUILT_IN.assets.iter().find(|(known, _)| *known == name).map(|(_, asset)| asset);
        Some(for_any_origin(built_in.or_else(|| self.assets.get(name))?, headers))
    }
}

/// The library `weir.js`.
#[must_use]
pub fn library(headers: &HeaderMap) -> Response<Full<Bytes>> {
    for_any_origin(&BUILT_IN.library, headers)
}

/// A file that pages of any origin may load. They may pin it by its digest.
fn for_any_origin(asset: &Asset, headers: &HeaderMap) -> Response<Full<Bytes>> {
    let mut response = asset.reply(FOR_MINUTES, headers);
    let said = response.headers_mut();
    said.insert(ACCESS_CONTROL_ALLOW_ORIGIN, ANY_ORIGIN);
    said.insert(RESOURCE_POLICY, HeaderValue::from_static("cross-origin"));
    response
}

/// A zone's notice by language: `{"notice":{"en":"…"}}`.
#[must_use]
pub fn notice(notice: &Notice, headers: &HeaderMap) -> Response<Full<Bytes>> {
    let texts: Map<_, _> = notice.iter().map(|(tag, text)| (tag.to_owned(), Value::from(text))).collect();
    Asset::new("application/json", json!({ "notice": texts }).to_string()).reply(FOR_SECONDS, headers)
}

/// What is left in a zone; none if nothing is told.
#[must_use]
pub fn stock(stock: Option<&InStock>, headers: &HeaderMap) -> Response<Full<Bytes>> {
    const NOTHING: &str = r#"{"remaining":null,"texts":"","tiers":[]}"#;
    let document = stock.map_or(Bytes::from_static(NOTHING.as_bytes()), |stock| stock.document.clone());
    Asset::new("application/json", document).reply(FOR_SECOND, headers)
}

/// The files of a directory, sorted by name. Names that start with a dot are left out.
fn files(dir: &Path) -> Result<Vec<(String, PathBuf)>, PagesFault> {
    let unreadable = |e| PagesFault::Unreadable(dir.to_owned(), e);
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let wrong = |what: String| PagesFault::Wrong(path.clone(), what);
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| wrong("has a name that is not UTF-8".to_owned()))?.to_owned();
        if name.starts_with('.') {
            continue;
        }
        let about = fs::metadata(&path).map_err(|e| PagesFault::Unreadable(path.clone(), e))?;
        if !about.is_file() {
            return Err(wrong("is not a file; put templates directly into the directory".to_owned()));
        }
        if about.len() > MAX_FILE {
            return Err(wrong(format!("has {} bytes, and {MAX_FILE} are the most", about.len())));
        }
        files.push((name, path));
        if files.len() > MAX_FILES {
            return Err(PagesFault::Wrong(dir.to_owned(), format!("has more than {MAX_FILES} files")));
        }
    }
    files.sort_unstable();
    Ok(files)
}

#[cfg(test)]
mod tests;
