//! Splits a command line into words, as a shell would, without expanding any.

use std::iter::Peekable;
use std::str::Chars;

/// A command line that does not split into words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommandLineError {
    /// `'` or `"` without its partner.
    #[error("command line has a quote that is not closed")]
    OpenQuote,
    /// A backslash with nothing after it.
    #[error("command line ends in a backslash")]
    EndsInBackslash,
}

/// Splits a command line into words.
///
/// Words are parted by white space. `'...'` is literal, in `"..."` a backslash
/// escapes `"` and `\`, and elsewhere it escapes any character. Nothing is
/// expanded: a command line from a flag is no shell script.
///
/// # Errors
/// [`CommandLineError`], naming the rule.
pub fn split(line: &str) -> Result<Vec<String>, CommandLineError> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut rest = line.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            c if c.is_whitespace() => words.extend(word.take()),
            '\'' => single_quoted(&mut rest, word.get_or_insert_default())?,
            '"' => double_quoted(&mut rest, word.get_or_insert_default())?,
            '\\' => word.get_or_insert_default().push(escaped(&mut rest)?),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

fn single_quoted(
    rest: &mut Peekable<Chars<'_>>,
    word: &mut String,
) -> Result<(), CommandLineError> {
    loop {
        match rest.next().ok_or(CommandLineError::OpenQuote)? {
            '\'' => return Ok(()),
            c => word.push(c),
        }
    }
}

fn double_quoted(
    rest: &mut Peekable<Chars<'_>>,
    word: &mut String,
) -> Result<(), CommandLineError> {
    loop {
        match rest.next().ok_or(CommandLineError::OpenQuote)? {
            '"' => return Ok(()),
            '\\' => match rest.peek() {
                Some('"' | '\\') => word.extend(rest.next()),
                _ => word.push('\\'),
            },
            c => word.push(c),
        }
    }
}

fn escaped(rest: &mut Peekable<Chars<'_>>) -> Result<char, CommandLineError> {
    rest.next().ok_or(CommandLineError::EndsInBackslash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_a_shells_words_unexpanded() {
        for (line, words) in [
            ("", &[] as &[&str]),
            ("  python3   h.py\t-v ", &["python3", "h.py", "-v"]),
            (r#"a 'b  c' "d e" f\ g"#, &["a", "b  c", "d e", "f g"]),
            (r#"x="1 2"y '' """#, &["x=1 2y", "", ""]),
            (r#""a\"b\\c\d" 'e\'"#, &[r#"a"b\c\d"#, r"e\"]),
            ("$HOME `ls` *", &["$HOME", "`ls`", "*"]),
        ] {
            assert_eq!(split(line).unwrap(), words, "{line}");
        }
        for bad in ["'a", "\"a", "\"a\\\""] {
            assert_eq!(split(bad), Err(CommandLineError::OpenQuote), "{bad}");
        }
        assert_eq!(split("a\\"), Err(CommandLineError::EndsInBackslash));
    }
}
