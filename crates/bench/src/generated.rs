//! The part of a document that a bench writes, between two markers.

use std::fmt;

/// A named block of a document.
#[derive(Debug, Clone, Copy)]
pub struct Generated<'a>(pub &'a str);

/// The markers are not there, or not in order.
#[derive(Debug, PartialEq, Eq)]
pub struct NoMarkers {
    start: String,
    end: String,
}

impl fmt::Display for NoMarkers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the document has no `{}` line before a `{}` line", self.start, self.end)
    }
}

impl std::error::Error for NoMarkers {}

impl Generated<'_> {
    /// `document` with `text` in the place of what stands between the markers.
    ///
    /// # Errors
    /// [`NoMarkers`]; a document is not changed elsewhere.
    pub fn replace(self, document: &str, text: &str) -> Result<String, NoMarkers> {
        let start = format!("<!-- bench:{}:start -->\n", self.0);
        let end = format!("<!-- bench:{}:end -->", self.0);
        let found = document.split_once(&start).and_then(|(before, rest)| {
            let (_, after) = rest.split_once(&end)?;
            Some(format!("{before}{start}{}\n{end}{after}", text.trim_end()))
        });
        found.ok_or_else(|| NoMarkers { start: start.trim_end().to_owned(), end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_markers_changes() {
        let document = "a\n<!-- bench:log:start -->\nold\n<!-- bench:log:end -->\nb\n";
        let replaced = Generated("log").replace(document, "new\n\n").unwrap();
        assert_eq!("a\n<!-- bench:log:start -->\nnew\n<!-- bench:log:end -->\nb\n", replaced);
        assert_eq!(Ok(replaced.clone()), Generated("log").replace(&replaced, "new"));
    }

    #[test]
    fn a_document_without_markers_is_refused() {
        let refused =
            Generated("log").replace("<!-- bench:log:end -->\n<!-- bench:log:start -->\n", "x");
        assert!(refused.unwrap_err().to_string().contains("bench:log:start"));
    }
}
