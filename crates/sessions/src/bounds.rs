//! What a session may say of itself: it is in its row, and a page of a list has
//! 500 of them in one message.

use mainspring_api::{Condition, SessionsError};
use mainspring_eventlog::NewSession;

/// Bytes of a session's project, name, harness and model, of each.
pub const SESSION_NAME_BYTES_MAX: usize = 1 << 10;

/// Bytes of all keys and values of a session's labels.
pub const SESSION_LABELS_BYTES_MAX: usize = 32 << 10;

/// Bytes of a session's annotations, origin and identity, of all together.
pub const SESSION_ANNOTATIONS_BYTES_MAX: usize = 32 << 10;

/// Refuses a session that is too large to be kept, naming what is.
pub(crate) fn check_session(session: &NewSession) -> Result<(), SessionsError> {
    for (what, text) in [
        ("project", &session.project),
        ("name", &session.name),
        ("harness", &session.harness),
        ("model", &session.model),
    ] {
        check_name(what, text)?;
    }
    check_labels(&session.labels)?;
    let identity = session.identity.iter().flat_map(|identity| {
        [("identity", &identity.principal), ("identity", &identity.issuer)]
            .into_iter()
            .chain([("identity", &identity.subject)])
    });
    let origin = session.origin.iter().flat_map(|origin| {
        let texts = [&origin.source, &origin.subject, &origin.uri].into_iter();
        texts.chain(pairs(&origin.attributes)).map(|text| ("origin", text))
    });
    let annotations = pairs(&session.annotations).map(|text| ("annotations", text));
    let mut bytes = 0;
    for (what, text) in identity.chain(origin).chain(annotations) {
        bytes += text.len();
        if bytes > SESSION_ANNOTATIONS_BYTES_MAX {
            let bound = format!("{SESSION_ANNOTATIONS_BYTES_MAX} (SESSION_ANNOTATIONS_BYTES_MAX)");
            let text = format!("identity, origin and annotations have at most {bound} bytes");
            return Err(too_large(format!("{what} is too large: {text}")));
        }
    }
    Ok(())
}

/// Refuses labels that are too large.
pub(crate) fn check_labels<'a>(
    labels: impl IntoIterator<Item = (&'a String, &'a String)>,
) -> Result<(), SessionsError> {
    let bytes: usize = labels.into_iter().map(|(key, value)| key.len() + value.len()).sum();
    within("labels", bytes, SESSION_LABELS_BYTES_MAX, "SESSION_LABELS_BYTES_MAX")
}

/// Refuses a name that is too long.
pub(crate) fn check_name(what: &str, text: &str) -> Result<(), SessionsError> {
    within(what, text.len(), SESSION_NAME_BYTES_MAX, "SESSION_NAME_BYTES_MAX")
}

fn pairs(map: &std::collections::BTreeMap<String, String>) -> impl Iterator<Item = &String> {
    map.iter().flat_map(|(key, value)| [key, value])
}

fn within(what: &str, bytes: usize, most: usize, bound: &str) -> Result<(), SessionsError> {
    if bytes <= most {
        return Ok(());
    }
    Err(too_large(format!("{what} is {bytes} bytes, at most {most} are kept ({bound})")))
}

fn too_large(text: String) -> SessionsError {
    SessionsError::new(Condition::ValueTooLarge, text)
}

#[cfg(test)]
mod tests {
    use mainspring_api::{Classify as _, ErrorKind, IdentityRef, Origin, SessionUid};

    use super::*;

    #[test]
    fn what_is_too_large_is_named_with_its_bound() {
        let bare = || NewSession::bare(SessionUid::new("s").unwrap(), "p");
        let text = |bytes| "x".repeat(bytes);
        let whole = NewSession {
            project: text(SESSION_NAME_BYTES_MAX),
            name: text(SESSION_NAME_BYTES_MAX),
            labels: [("k".to_owned(), text(SESSION_LABELS_BYTES_MAX - 1))].into(),
            annotations: [("k".to_owned(), text(SESSION_ANNOTATIONS_BYTES_MAX - 1))].into(),
            ..bare()
        };
        check_session(&whole).unwrap();
        let most = SESSION_ANNOTATIONS_BYTES_MAX;
        let origin = Origin { uri: text(most), ..Origin::default() };
        let identity = |text| Some(IdentityRef { issuer: text, ..IdentityRef::default() });
        for (session, what, bound) in [
            (NewSession { name: text(1_025), ..bare() }, "name", "SESSION_NAME_BYTES_MAX"),
            (NewSession { model: text(1_025), ..bare() }, "model", "SESSION_NAME_BYTES_MAX"),
            (
                NewSession { labels: [(text(32 << 10), "v".to_owned())].into(), ..bare() },
                "labels",
                "SESSION_LABELS_BYTES_MAX",
            ),
            (
                NewSession { origin: Some(origin), identity: identity("i".to_owned()), ..bare() },
                "origin",
                "SESSION_ANNOTATIONS_BYTES_MAX",
            ),
            (
                NewSession { identity: identity("i".to_owned()), ..whole.clone() },
                "annotations",
                "SESSION_ANNOTATIONS_BYTES_MAX",
            ),
        ] {
            let error = check_session(&session).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::LimitExceeded);
            let words = error.to_string();
            assert!(words.starts_with(what) && words.contains(bound), "{words}");
        }
    }
}
