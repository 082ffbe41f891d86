//! Just enough of Rust's grammar to look at source text without being fooled by it.
//!
//! A source is split into what is code and what is comment, and functions and attributes are found in the code.
//! Both halves keep the line structure of the text, so that a place in one is a place in the file.

/// A source file, split.
#[derive(Debug)]
pub(crate) struct Source {
    /// The text with comments and the insides of string and character literals blanked.
    pub(crate) code: String,
    /// The text with everything but comments blanked; doc comments count as comments.
    pub(crate) comments: String,
}

/// A function with a name, wherever it stands.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// Counted from 1.
    pub(crate) line: usize,
    /// Plain `pub`, not `pub(crate)`.
    pub(crate) public: bool,
    pub(crate) is_async: bool,
    /// What stands inside `#[..]` before it, strings blanked.
    pub(crate) attributes: Vec<String>,
}

/// Functions and outer and inner attributes of a file.
#[derive(Debug, Default)]
pub(crate) struct Outline {
    pub(crate) functions: Vec<Function>,
    /// What stands inside `#[..]` or `#![..]`, and its line.
    pub(crate) attributes: Vec<(String, usize)>,
}

impl Function {
    /// Does a test attribute (`#[test]`, `#[tokio::test(..)]`) stand before it?
    pub(crate) fn is_test(&self) -> bool {
        self.attributes
            .iter()
            .any(|attribute| attribute_path(attribute).rsplit("::").next() == Some("test"))
    }
}

/// The path of an attribute: `tokio::test` of `tokio::test(flavor = "..")`.
pub(crate) fn attribute_path(attribute: &str) -> &str {
    let end = attribute
        .find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'))
        .unwrap_or(attribute.len());
    &attribute[..end]
}

/// The words of `code` (identifiers and keywords) with their lines.
pub(crate) fn words(code: &str) -> impl Iterator<Item = (&str, usize)> {
    code.lines().enumerate().flat_map(|(index, line)| {
        line.split(|c: char| !is_word(c))
            .filter(|word| !word.is_empty())
            .map(move |word| (word, index + 1))
    })
}

/// The insides of every macro definition and macro call in `code`.
pub(crate) fn macro_bodies(code: &str) -> Vec<&str> {
    let bytes = code.as_bytes();
    let mut bodies = Vec::new();
    let mut from = 0;
    while let Some(found) = code[from..].find('!') {
        let bang = from + found;
        from = bang + 1;
        let called = code[..bang].chars().next_back().is_some_and(is_word);
        // A definition has a name between the bang and its body.
        let rest = code[from..].trim_start();
        let rest = rest.trim_start_matches(is_word).trim_start();
        let open = code.len() - rest.len();
        if called && matches!(bytes.get(open), Some(b'(' | b'[' | b'{')) {
            let close = balanced_end(bytes, open);
            bodies.push(&code[open + 1..close]);
            from = close;
        }
    }
    bodies
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Where the bracket at `open` is closed, or the end of the text.
fn balanced_end(bytes: &[u8], open: usize) -> usize {
    let mut depth = 0_usize;
    for (index, byte) in bytes.iter().enumerate().skip(open) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return index;
                }
            }
            _ => {}
        }
    }
    bytes.len()
}

impl Source {
    /// Splits `text`.
    pub(crate) fn new(text: &str) -> Self {
        let mut splitter = Splitter {
            chars: text.chars().collect(),
            at: 0,
            code: String::new(),
            comments: String::new(),
        };
        splitter.split();
        Self { code: splitter.code, comments: splitter.comments }
    }

    /// Finds functions and attributes.
    pub(crate) fn outline(&self) -> Outline {
        let code = self.code.as_str();
        let bytes = code.as_bytes();
        let mut outline = Outline::default();
        let mut pending = Vec::new();
        let (mut public, mut is_async) = (false, false);
        let (mut at, mut line) = (0, 1);
        while let Some(&byte) = bytes.get(at) {
            let start = at;
            at += 1;
            match byte {
                b'#' => {
                    let inner = bytes.get(at) == Some(&b'!');
                    let open = at + usize::from(inner);
                    if bytes.get(open) == Some(&b'[') {
                        at = (balanced_end(bytes, open) + 1).min(bytes.len());
                        let attribute = code[open + 1..at].trim_end_matches(']').trim().to_owned();
                        outline.attributes.push((attribute.clone(), line));
                        if !inner {
                            pending.push(attribute);
                        }
                    }
                }
                b'{' | b'}' | b';' => {
                    pending.clear();
                    (public, is_async) = (false, false);
                }
                _ if byte.is_ascii_alphabetic() || byte == b'_' => {
                    at = start + word_length(&code[start..]);
                    match &code[start..at] {
                        "pub" => public = bytes.get(at) != Some(&b'('),
                        "async" => is_async = true,
                        "fn" => {
                            let rest = code[at..].trim_start();
                            let name = &rest[..word_length(rest)];
                            if !name.is_empty() {
                                let attributes = std::mem::take(&mut pending);
                                outline.functions.push(Function {
                                    name: name.to_owned(),
                                    line,
                                    public,
                                    is_async,
                                    attributes,
                                });
                                (public, is_async) = (false, false);
                            }
                        }
                        _ => {}
                    }
                }
                _ => {}
            }
            line += bytes[start..at].iter().filter(|byte| **byte == b'\n').count();
        }
        outline
    }
}

fn word_length(text: &str) -> usize {
    text.find(|c| !is_word(c)).unwrap_or(text.len())
}

struct Splitter {
    chars: Vec<char>,
    at: usize,
    code: String,
    comments: String,
}

#[derive(Clone, Copy)]
enum Half {
    Code,
    Comment,
    Neither,
}

impl Splitter {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    /// Moves one character into a half; the other gets a blank of the same width in bytes, so that offsets agree.
    fn take(&mut self, half: Half) {
        let Some(c) = self.peek(0) else { return };
        self.at += 1;
        let blank = |text: &mut String| match c {
            '\n' => text.push('\n'),
            _ => text.extend(std::iter::repeat_n(' ', c.len_utf8())),
        };
        match half {
            Half::Code => {
                self.code.push(c);
                blank(&mut self.comments);
            }
            Half::Comment => {
                self.comments.push(c);
                blank(&mut self.code);
            }
            Half::Neither => {
                blank(&mut self.code);
                blank(&mut self.comments);
            }
        }
    }

    fn take_n(&mut self, n: usize, half: Half) {
        for _ in 0..n {
            self.take(half);
        }
    }

    fn split(&mut self) {
        while let Some(c) = self.peek(0) {
            match (c, self.peek(1)) {
                ('/', Some('/')) => self.line_comment(),
                ('/', Some('*')) => self.block_comment(),
                ('"', _) => self.string(),
                ('\'', _) => self.quote(),
                _ if is_word(c) => self.word(),
                _ => self.take(Half::Code),
            }
        }
    }

    fn line_comment(&mut self) {
        while self.peek(0).is_some_and(|c| c != '\n') {
            self.take(Half::Comment);
        }
    }

    fn block_comment(&mut self) {
        let mut depth = 0_usize;
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some('/'), Some('*')) => {
                    depth += 1;
                    self.take_n(2, Half::Comment);
                }
                (Some('*'), Some('/')) => {
                    depth -= 1;
                    self.take_n(2, Half::Comment);
                    if depth == 0 {
                        return;
                    }
                }
                (Some(_), _) => self.take(Half::Comment),
                (None, _) => return,
            }
        }
    }

    /// A string with escapes, from its opening quote.
    fn string(&mut self) {
        self.take(Half::Code);
        while let Some(c) = self.peek(0) {
            match c {
                '"' => return self.take(Half::Code),
                '\\' => self.take_n(2, Half::Neither),
                _ => self.take(Half::Neither),
            }
        }
    }

    /// A raw string, from its first hash or its opening quote.
    fn raw_string(&mut self, hashes: usize) {
        self.take_n(hashes + 1, Half::Code);
        while self.peek(0).is_some() {
            if self.peek(0) == Some('"') && (1..=hashes).all(|ahead| self.peek(ahead) == Some('#'))
            {
                return self.take_n(hashes + 1, Half::Code);
            }
            self.take(Half::Neither);
        }
    }

    /// A character literal or a lifetime.
    fn quote(&mut self) {
        let escaped = self.peek(1) == Some('\\');
        if !escaped && self.peek(2) != Some('\'') {
            return self.take(Half::Code);
        }
        self.take(Half::Code);
        self.take_n(if escaped { 2 } else { 1 }, Half::Neither);
        while self.peek(0).is_some_and(|c| c != '\'' && c != '\n') {
            self.take(Half::Neither);
        }
        self.take(Half::Code);
    }

    /// A word, and the string that it prefixes.
    fn word(&mut self) {
        let start = self.at;
        while self.peek(0).is_some_and(is_word) {
            self.take(Half::Code);
        }
        let word: String = self.chars[start..self.at].iter().collect();
        if matches!(word.as_str(), "r" | "br" | "cr") {
            let hashes = (0..).take_while(|ahead| self.peek(*ahead) == Some('#')).count();
            if self.peek(hashes) == Some('"') {
                self.raw_string(hashes);
            }
        }
    }
}

#[cfg(test)]
mod tests;
