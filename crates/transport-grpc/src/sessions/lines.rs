//! Lines of a journal in messages, many in each.

use futures_util::{FutureExt as _, StreamExt as _, stream};
use mainspring_api::{BoxStream, Bytes, Condition, SessionsError};

/// How many bytes of lines a message carries before it is sent. It has more
/// only when a single line has.
pub const CHUNK_BYTES: usize = 256 << 10;

/// The longest line that is taken, its end included.
pub const LINE_BYTES_MAX: usize = 128 << 20;

type Pieces = BoxStream<'static, Result<Bytes, SessionsError>>;

/// Whole lines, packed: as many as are there without waiting, up to
/// [`CHUNK_BYTES`]. Ends at the first error, after what came before it.
pub(crate) fn packed(lines: Pieces) -> Pieces {
    Box::pin(stream::unfold((Some(lines), None), async |(lines, failed)| {
        if let Some(error) = failed {
            return Some((Err(error), (None, None)));
        }
        let mut lines: Pieces = lines?;
        let first = match lines.next().await? {
            Ok(first) => first,
            Err(error) => return Some((Err(error), (None, None))),
        };
        if first.len() >= CHUNK_BYTES {
            return Some((Ok(first), (Some(lines), None)));
        }
        let mut chunk = first.to_vec();
        let mut failed = None;
        let mut rest = true;
        while chunk.len() < CHUNK_BYTES {
            match lines.next().now_or_never() {
                None => break,
                Some(Some(Ok(line))) => chunk.extend_from_slice(&line),
                Some(Some(Err(error))) => {
                    failed = Some(error);
                    rest = false;
                    break;
                }
                Some(None) => {
                    rest = false;
                    break;
                }
            }
        }
        Some((Ok(chunk.into()), (rest.then_some(lines), failed)))
    }))
}

/// Lines, each with its end, of pieces that were cut anywhere. The last line
/// may lack its end.
///
/// A line above `line_bytes_max` ends the stream with `value_too_large`.
pub(crate) fn split(pieces: Pieces, line_bytes_max: usize) -> Pieces {
    struct Splitter {
        pieces: Option<Pieces>,
        /// What is not looked at yet.
        piece: Bytes,
        /// The beginning of a line whose end has not come.
        begun: Vec<u8>,
        number: u64,
        line_bytes_max: usize,
    }

    impl Splitter {
        /// The next line of what has come, if its end has.
        fn line(&mut self) -> Result<Option<Bytes>, SessionsError> {
            let end = self.piece.iter().position(|byte| *byte == b'\n');
            let taken = self.piece.split_to(end.map_or(self.piece.len(), |end| end + 1));
            if self.begun.len() + taken.len() > self.line_bytes_max {
                let (number, max) = (self.number + 1, self.line_bytes_max);
                return Err(SessionsError::new(
                    Condition::ValueTooLarge,
                    format!("line {number} is longer than LINE_BYTES_MAX, {max} bytes"),
                ));
            }
            if end.is_some() && self.begun.is_empty() {
                self.number += 1;
                return Ok(Some(taken));
            }
            self.begun.extend_from_slice(&taken);
            if end.is_none() {
                return Ok(None);
            }
            self.number += 1;
            Ok(Some(std::mem::take(&mut self.begun).into()))
        }

        async fn next(&mut self) -> Option<Result<Bytes, SessionsError>> {
            loop {
                if !self.piece.is_empty() {
                    match self.line() {
                        Ok(Some(line)) => return Some(Ok(line)),
                        Ok(None) => {}
                        Err(error) => {
                            self.pieces = None;
                            self.piece = Bytes::new();
                            self.begun = Vec::new();
                            return Some(Err(error));
                        }
                    }
                }
                match self.pieces.as_mut()?.next().await {
                    Some(Ok(piece)) => self.piece = piece,
                    Some(Err(error)) => {
                        self.pieces = None;
                        return Some(Err(error));
                    }
                    None => {
                        self.pieces = None;
                        let last = std::mem::take(&mut self.begun);
                        return (!last.is_empty()).then(|| Ok(last.into()));
                    }
                }
            }
        }
    }

    let splitter = Splitter {
        pieces: Some(pieces),
        piece: Bytes::new(),
        begun: Vec::new(),
        number: 0,
        line_bytes_max,
    };
    Box::pin(stream::unfold(splitter, async |mut splitter| {
        let line = splitter.next().await?;
        Some((line, splitter))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(items: &[&str]) -> Pieces {
        let items: Vec<_> =
            items.iter().map(|text| Ok(Bytes::copy_from_slice(text.as_bytes()))).collect();
        Box::pin(stream::iter(items))
    }

    async fn texts(pieces: Pieces) -> Vec<String> {
        let items: Vec<_> = pieces.collect().await;
        items
            .into_iter()
            .map(|item| match item {
                Ok(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
                Err(error) => format!("error: {error}"),
            })
            .collect()
    }

    #[tokio::test]
    async fn any_cut_of_the_lines_gives_the_lines() {
        let text = "one\ntwo\n\nfour";
        let lines = ["one\n", "two\n", "\n", "four"];
        for first in 0..=text.len() {
            for second in first..=text.len() {
                let cut = [&text[..first], &text[first..second], &text[second..]];
                assert_eq!(texts(split(pieces(&cut), 5)).await, lines);
            }
        }
        assert!(texts(split(pieces(&[]), 5)).await.is_empty());
    }

    #[tokio::test]
    async fn a_line_has_a_bound_wherever_it_is_cut() {
        for cut in [&["ab\n", "abcdef\n"][..], &["ab\nabc", "def"], &["ab\n", "abcd", "ef"]] {
            let got = texts(split(pieces(cut), 4)).await;
            assert_eq!(got[0], "ab\n");
            assert!(got[1].starts_with("error: line 2 is longer than LINE_BYTES_MAX"), "{got:?}");
            assert_eq!(got.len(), 2);
        }
    }

    #[tokio::test]
    async fn lines_are_packed_and_an_error_keeps_what_came_before_it() {
        let line = "x".repeat(CHUNK_BYTES / 4 - 1) + "\n";
        let long = "y".repeat(2 * CHUNK_BYTES) + "\n";
        let mut lines = vec![&line[..]; 6];
        lines.push(&long);
        let packed_lines = texts(packed(pieces(&lines))).await;
        let sizes: Vec<_> = packed_lines.iter().map(String::len).collect();
        assert_eq!(sizes[0], CHUNK_BYTES);
        assert_eq!(packed_lines.concat(), lines.concat());

        let broken = SessionsError::new(Condition::Corrupt, "broken");
        let items = vec![Ok(Bytes::from("a\n")), Err(broken), Ok(Bytes::from("b\n"))];
        assert_eq!(texts(packed(Box::pin(stream::iter(items)))).await, ["a\n", "error: broken"]);
    }
}
