//! Base and path to one address.

use reqwest::Url;

use crate::config::HttpModelConfigError;

/// Joins them with one slash. The queries of both are kept, the base's first.
pub(crate) fn join(base: &str, path: &str) -> Result<Url, HttpModelConfigError> {
    let refuse = |why| Err(HttpModelConfigError::Url { why });
    let Ok(mut url) = Url::parse(base) else {
        return refuse("it is not an absolute url");
    };
    if !matches!(url.scheme(), "http" | "https") {
        return refuse("its scheme is not http or https");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return refuse("it has user info; a key has its own option");
    }
    if url.fragment().is_some() || path.contains('#') {
        return refuse("it has a fragment");
    }
    let (path, path_query) = match path.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (path, None),
    };
    let tail = path.trim_start_matches('/');
    let joined = match (url.path().trim_end_matches('/'), tail) {
        (base, "") => base.to_owned(),
        (base, tail) => format!("{base}/{tail}"),
    };
    url.set_path(&joined);
    let queries: Vec<&str> =
        url.query().into_iter().chain(path_query).filter(|q| !q.is_empty()).collect();
    let query = queries.join("&");
    url.set_query(Some(query.as_str()).filter(|query| !query.is_empty()));
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w04_base_and_path_meet_in_one_slash_and_keep_their_queries() {
        for (base, path, joined) in [
            ("http://h:1/v1", "/chat/completions", "http://h:1/v1/chat/completions"),
            ("http://h:1/v1/", "chat/completions", "http://h:1/v1/chat/completions"),
            ("http://h:1", "chat", "http://h:1/chat"),
            ("http://h:1/", "//chat", "http://h:1/chat"),
            ("https://h/v1", "", "https://h/v1"),
            ("https://h/d?api-version=1", "/chat", "https://h/d/chat?api-version=1"),
            ("https://h/d", "/chat?api-version=1", "https://h/d/chat?api-version=1"),
            ("https://h/d?a=1", "/chat?b=2", "https://h/d/chat?a=1&b=2"),
        ] {
            assert_eq!(join(base, path).unwrap().as_str(), joined);
        }
        for (base, path) in [
            ("h/v1", "/x"),
            ("ftp://h", "/x"),
            ("http://", "/x"),
            ("http://user:pw@h", "/x"),
            ("http://h#f", "/x"),
            ("http://h", "/x#f"),
            ("", "/x"),
        ] {
            assert!(matches!(join(base, path), Err(HttpModelConfigError::Url { .. })), "{base}");
        }
    }
}
