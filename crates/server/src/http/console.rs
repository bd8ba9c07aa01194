//! Serves the console: a page with its script and style sheet, embedded in the binary.
//!
//! The files contain no secrets and need no login; the page gets its data from the admin API. Invariants: the files are
//! those of `console/dist`, byte for byte; the page may load nothing from other hosts and run no inline script.

use std::sync::LazyLock;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Response,
    header::{CONTENT_SECURITY_POLICY, HeaderMap, HeaderValue, REFERRER_POLICY},
};

use super::asset::Asset;

/// The path of the page.
pub const ROOT: &str = "/admin";

const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
     frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
);

struct File {
    path: &'static str,
    asset: Asset,
}

macro_rules! file {
    ($path:literal, $kind:literal, $file:literal) => {{
        let bytes: &[u8] = include_bytes!(concat!("../../../../console/dist/", $file));
        File { path: $path, asset: Asset::new($kind, bytes) }
    }};
}

/// The paths that the console is served at.
pub(super) fn paths() -> impl Iterator<Item = &'static str> {
    ["/admin", "/admin/", "/admin/assets/console.js", "/admin/assets/console.css", "/admin/assets/icon.svg"]
        .into_iter()
}

static FILES: LazyLock<[File; 4]> = LazyLock::new(|| {
    [
        file!("", "text/html; charset=utf-8", "index.html"),
        file!("assets/console.js", "text/javascript; charset=utf-8", "assets/console.js"),
        file!("assets/console.css", "text/css; charset=utf-8", "assets/console.css"),
        file!("assets/icon.svg", "image/svg+xml", "assets/icon.svg"),
    ]
});

/// Whether the console has a file at `path`.
#[must_use]
pub fn is_here(path: &str) -> bool {
    file(path).is_some()
}

fn file(path: &str) -> Option<&'static File> {
    let rest = path.strip_prefix(ROOT)?;
    let name = if rest.is_empty() { "" } else { rest.strip_prefix('/')? };
    FILES.iter().find(|file| file.path == name)
}

/// The file at `path`, or "not modified" if the browser has it; `None` if there is no such file.
#[must_use]
pub fn reply(path: &str, headers: &HeaderMap) -> Option<Response<Full<Bytes>>> {
    // Browsers keep the file but ask each time, because another version of the server has another console.
    let mut response = file(path)?.asset.reply(HeaderValue::from_static("no-cache"), headers);
    response.headers_mut().insert(CONTENT_SECURITY_POLICY, POLICY);
    response.headers_mut().insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    Some(response)
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use hyper::{
        StatusCode,
        body::Body as _,
        header::{ETAG, IF_NONE_MATCH, X_CONTENT_TYPE_OPTIONS},
    };

    use super::*;

    fn text(path: &str) -> String {
        let file = file(path).unwrap_or_else(|| panic!("nothing is at {path}"));
        String::from_utf8(file.asset.body.to_vec()).expect("text")
    }

    #[tokio::test]
    async fn the_page_and_all_files_that_it_names_are_served() {
        let page = text("/admin");
        assert_eq!(page, text("/admin/"));
        let named: Vec<_> = page.split('"').filter(|part| part.starts_with('/')).collect();
        assert_eq!(named.len(), 3, "icon, style sheet and script: {named:?}");
        for path in named {
            let response = reply(path, &HeaderMap::new()).unwrap_or_else(|| panic!("nothing is at {path}"));
            let policy = response.headers()[CONTENT_SECURITY_POLICY].to_str().expect("text").to_owned();
            assert!(policy.starts_with("default-src 'none'; ") && !policy.contains("unsafe"), "{policy}");
            assert_eq!(response.headers()[X_CONTENT_TYPE_OPTIONS], "nosniff");
            assert_eq!(response.headers()[REFERRER_POLICY], "no-referrer");
            let body = response.into_body().collect().await.expect("whole").to_bytes();
            assert_eq!(body, text(path));
        }
    }

    #[test]
    fn no_other_path_is_served() {
        for path in
            ["/", "/adminx", "/admin/x", "/admin//", "/admin/assets/", "/admin/v1/zones", "/admin/../x"]
        {
            assert!(!is_here(path), "{path}");
        }
    }

    #[test]
    fn the_page_has_no_inline_code_and_loads_nothing_from_other_hosts() {
        let page = text("/admin");
        for inline in ["<style", " style=", " onload=", "<script>", "javascript:", "http://", "https://"] {
            assert!(!page.contains(inline), "{inline}");
        }
        assert_eq!(page.matches("<script ").count(), page.matches("<script src=").count());
    }

    #[test]
    fn a_file_that_the_browser_has_is_not_sent_again() {
        let first = reply("/admin/assets/console.js", &HeaderMap::new()).expect("it is here");
        let tag = first.headers()[ETAG].clone();
        for (tags, known) in [(tag.to_str().expect("text"), true), ("W/\"x\", *", true), ("\"other\"", false)]
        {
            let mut headers = HeaderMap::new();
            headers.insert(IF_NONE_MATCH, HeaderValue::from_str(tags).expect("text"));
            let again = reply("/admin/assets/console.js", &headers).expect("it is here");
            assert_eq!(again.status() == StatusCode::NOT_MODIFIED, known, "{tags}");
            assert_eq!(again.body().size_hint().exact() == Some(0), known, "{tags}");
            assert_eq!(again.headers()[ETAG], tag);
        }
    }
}
