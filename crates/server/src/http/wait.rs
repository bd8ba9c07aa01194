//! The waiting page, what it is made of, and what operators tell those who wait.
//!
//! All of it is in the binary; operators may put templates, and what those show, in a directory of their own. Invariant:
//! a page of ours runs no script and asks no host but this server, and goes on to where the operator says and nowhere
//! else; its policy for the browser ([CSP](https://www.w3.org/TR/CSP3/)) says so.

pub mod language;
pub mod target;
pub mod template;

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use admission::{Notice, Policy, ZoneId};
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

use super::asset::Asset;
use crate::metrics::Route;
use language::Language;
use target::Target;
use template::{Filling, Template, Texts, Unfillable};

/// The template of zones that have none of their own, in the operator's directory.
const DEFAULT: &str = "default";

/// The longest template or asset of an operator's, in bytes.
const MAX_FILE: u64 = 512 << 10;

/// The most files in an operator's directory, and the most bytes.
const MAX_FILES: usize = 4_096;
const MAX_BYTES: usize = 64 << 20;

/// What an operator's templates may show, by the ending of its name.
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

/// Short: a new version of the server is a new version of these. Pages of ours name the version in the address.
const FOR_MINUTES: HeaderValue = HeaderValue::from_static("public, max-age=300");
const ASK_AGAIN: HeaderValue = HeaderValue::from_static("no-cache");

const FOR_SECONDS: HeaderValue = HeaderValue::from_static("public, max-age=5");

const ANY_ORIGIN: HeaderValue = HeaderValue::from_static("*");
/// The origin is sent, for services that ask for it against forged forms; a path or query of ours never.
const ORIGIN_ONLY: HeaderValue = HeaderValue::from_static("strict-origin");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// What is in the binary.
struct BuiltIn {
    library: Asset,
    assets: [(&'static str, Asset); 3],
    texts: [Texts; Language::ALL.len()],
    /// Changes with the assets.
    version: String,
}

static BUILT_IN: LazyLock<BuiltIn> = LazyLock::new(|| {
    let library = Asset::new(SCRIPT, lean(include_str!("wait/weir.js")));
    let assets = [
        ("icon.svg", Asset::new("image/svg+xml", &include_bytes!("wait/icon.svg")[..])),
        ("page.css", Asset::new("text/css; charset=utf-8", lean(include_str!("wait/page.css")))),
        ("page.js", Asset::new(SCRIPT, lean(include_str!("wait/page.js")))),
    ];
    let texts = [include_str!("wait/en.json"), include_str!("wait/ko.json")]
        .map(|json| Texts::read(json).expect("a test reads them"));
    let mut all = blake3::Hasher::new();
    for asset in std::iter::once(&library).chain(assets.iter().map(|(_, asset)| asset)) {
        all.update(asset.tag.as_bytes());
    }
    let version = all.finalize().to_hex()[..12].to_owned();
    BuiltIn { library, assets, texts, version }
});

/// Leaves out indentation and lines of comment: a third of what everybody who waits would load.
fn lean(source: &str) -> String {
    let lines =
        source.lines().map(str::trim_start).filter(|line| !line.is_empty() && !line.starts_with("//"));
    lines.fold(String::with_capacity(source.len()), |all, line| all + line + "\n")
}

/// What the operator decides about the pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitSettings {
    /// Where templates of the operator's are.
    pub templates_dir: Option<PathBuf>,
    /// Where people go on to; no two for the same zones.
    pub targets: Vec<Target>,
}

/// Why an operator's directory is no set of templates.
#[derive(Debug, thiserror::Error)]
pub enum PagesFault {
    /// It, or a file in it, can't be read.
    #[error("{0}: can't be read: {1}")]
    Unreadable(PathBuf, #[source] io::Error),
    /// A template has a gap that nothing fills.
    #[error("{0}: {1}")]
    Template(PathBuf, #[source] Unfillable),
    /// A file is not what belongs there.
    #[error("{0}: {1}")]
    Wrong(PathBuf, String),
}

/// The pages of all zones.
pub struct Pages {
    default: Template,
    by_zone: HashMap<ZoneId, Template>,
    assets: HashMap<String, Asset>,
    targets: Vec<Target>,
}

impl Pages {
    /// Reads them all.
    ///
    /// # Errors
    /// [`PagesFault`]; the first one.
    pub fn read(settings: &WaitSettings) -> Result<Self, PagesFault> {
        let texts = &BUILT_IN.texts[0];
        let default = Template::read(include_str!("wait/page.html"), texts).expect("a test reads it");
        let targets = settings.targets.clone();
        let mut pages = Self { default, by_zone: HashMap::new(), assets: HashMap::new(), targets };
        let Some(dir) = &settings.templates_dir else { return Ok(pages) };
        let mut left = MAX_BYTES;
        for (name, path) in files(dir)? {
            let wrong = |what: String| PagesFault::Wrong(path.clone(), what);
            let body = fs::read(&path).map_err(|e| PagesFault::Unreadable(path.clone(), e))?;
            let too_large = || wrong(format!("all files together have more than {MAX_BYTES} bytes"));
            left = left.checked_sub(body.len()).ok_or_else(too_large)?;
            let (stem, ending) = name.rsplit_once('.').unwrap_or((&name, ""));
            if ending == "html" {
                let html = String::from_utf8(body).map_err(|_| wrong("is no UTF-8".to_owned()))?;
                let template =
                    Template::read(&html, texts).map_err(|e| PagesFault::Template(path.clone(), e))?;
                if stem == DEFAULT {
                    pages.default = template;
                } else {
                    let zone = ZoneId::parse(stem).map_err(|e| wrong(format!("`{stem}` is no zone: {e}")))?;
                    pages.by_zone.insert(zone, template);
                }
            } else if let Some((_, kind)) = KINDS.iter().find(|(known, _)| *known == ending) {
                if BUILT_IN.assets.iter().any(|(known, _)| *known == name) {
                    return Err(wrong("has the name of an asset of Weir's; call it otherwise".to_owned()));
                }
                pages.assets.insert(name, Asset::new(kind, body));
            } else {
                let known = KINDS.map(|(known, _)| known).join(", ");
                return Err(wrong(format!(
                    "is no template (ZONE.html) and nothing they show ({known}); remove it"
                )));
            }
        }
        Ok(pages)
    }

    /// A zone's page. `policy` is the one in force, where the zone is served; where it is not and never will be by what is
    /// known, the `status` says so, and the page tells people.
    #[must_use]
    pub fn page(
        &self,
        zone: &ZoneId,
        policy: Option<Policy>,
        status: StatusCode,
        query: Option<&str>,
        headers: &HeaderMap,
    ) -> Response<Full<Bytes>> {
        let language = Language::choose(query, headers);
        let target = target::find(&self.targets, zone.as_str());
        let settings = Map::from_iter([
            ("idle_timeout_s".to_owned(), json!(policy.map(|policy| policy.idle_timeout_s))),
            (
                "target".to_owned(),
                target.map_or_else(|| json!(null), |to| json!({"url": to.url(), "by": to.by().as_str()})),
            ),
        ]);
        let built_in = &*BUILT_IN;
        let page = self.by_zone.get(zone).unwrap_or(&self.default).fill(&Filling {
            language,
            texts: &built_in.texts[language as usize],
            zone: zone.as_str(),
            version: &built_in.version,
            settings,
        });
        let may_post_to = target.map_or("'none'", Target::origin);
        let policy = format!(
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; \
             connect-src 'self'; form-action {may_post_to}; base-uri 'none'; frame-ancestors 'none'"
        );
        let mut response = Asset::new(HTML, page).reply(ASK_AGAIN, headers);
        if response.status() == StatusCode::OK {
            *response.status_mut() = status;
        }
        let said = response.headers_mut();
        said.insert(CONTENT_LANGUAGE, HeaderValue::from_static(language.tag()));
        said.insert(VARY, HeaderValue::from_static("accept-language"));
        said.insert(REFERRER_POLICY, ORIGIN_ONLY);
        let policy = HeaderValue::from_str(&policy).expect("a target's origin is a few plain characters");
        said.insert(CONTENT_SECURITY_POLICY, policy);
        response
    }

    /// `weir.js`, or what a page shows, by its path; none where there is no such thing.
    #[must_use]
    pub fn asset(&self, path: &str, headers: &HeaderMap) -> Option<Response<Full<Bytes>>> {
        let asset = match path.strip_prefix(ASSETS) {
            None => &BUILT_IN.library,
            Some(name) => match BUILT_IN.assets.iter().find(|(known, _)| *known == name) {
                Some((_, asset)) => asset,
                None => self.assets.get(name)?,
            },
        };
        let mut response = asset.reply(FOR_MINUTES, headers);
        // For pages of any origin, which may pin it by its digest.
        let said = response.headers_mut();
        said.insert(ACCESS_CONTROL_ALLOW_ORIGIN, ANY_ORIGIN);
        said.insert(RESOURCE_POLICY, HeaderValue::from_static("cross-origin"));
        Some(response)
    }
}

const PAGE: &str = "/wait/";
const ASSETS: &str = "/wait-assets/";

/// The route of a path that is none of apps' calls.
#[must_use]
pub fn route(path: &str) -> Route {
    if path.starts_with(PAGE) {
        Route::Page
    } else if path == "/traffic/notice" {
        Route::Notice
    } else if path == "/weir.js" || path.starts_with(ASSETS) {
        Route::Asset
    } else {
        Route::Other
    }
}

/// The zone that a page's path names; none where that is no zone's name.
#[must_use]
pub fn zone_of(path: &str) -> Option<ZoneId> {
    let name = percent_encoding::percent_decode_str(path.strip_prefix(PAGE)?).decode_utf8().ok()?;
    ZoneId::parse(&name).ok()
}

/// What operators tell those who wait, by language: `{"notice":{"en":"…"}}`.
#[must_use]
pub fn notice(notice: &Notice, headers: &HeaderMap) -> Response<Full<Bytes>> {
    let texts: Map<_, _> = notice.iter().map(|(tag, text)| (tag.to_owned(), Value::from(text))).collect();
    Asset::new("application/json", json!({ "notice": texts }).to_string()).reply(FOR_SECONDS, headers)
}

/// The files of a directory, by name; those whose names begin with a dot are left out.
fn files(dir: &Path) -> Result<Vec<(String, PathBuf)>, PagesFault> {
    let unreadable = |e| PagesFault::Unreadable(dir.to_owned(), e);
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let wrong = |what: String| PagesFault::Wrong(path.clone(), what);
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| wrong("has a name that is no UTF-8".to_owned()))?.to_owned();
        if name.starts_with('.') {
            continue;
        }
        let about = fs::metadata(&path).map_err(|e| PagesFault::Unreadable(path.clone(), e))?;
        if !about.is_file() {
            return Err(wrong("is no file; templates lie in the directory itself".to_owned()));
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
