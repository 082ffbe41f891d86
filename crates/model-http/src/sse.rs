//! Server-sent events, whatever the chunks that they arrive in.

use mainspring_api::ModelError;

/// Cuts a stream of bytes into the data of its events.
///
/// Lines end in LF, CR, or CRLF, which may be torn apart by a chunk. The data
/// lines of one event are joined by LF. Other fields are passed over.
#[derive(Debug)]
pub(crate) struct SseParser {
    line: Vec<u8>,
    data: Option<Vec<u8>>,
    after_cr: bool,
    first_line: bool,
    bytes_max: usize,
}

impl SseParser {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { line: Vec::new(), data: None, after_cr: false, first_line: true, bytes_max }
    }

    /// Takes a chunk and hands each event that it completes to `on_data`.
    pub(crate) fn feed(
        &mut self,
        chunk: &[u8],
        on_data: &mut dyn FnMut(&str) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        let mut rest = chunk;
        if self.after_cr && !rest.is_empty() {
            self.after_cr = false;
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
        }
        while let Some(end) = rest.iter().position(|b| matches!(b, b'\n' | b'\r')) {
            self.extend(&rest[..end])?;
            self.end_line(on_data)?;
            let terminator = rest[end];
            rest = &rest[end + 1..];
            if terminator == b'\r' {
                self.after_cr = rest.is_empty();
                rest = rest.strip_prefix(b"\n").unwrap_or(rest);
            }
        }
        self.extend(rest)
    }

    /// Takes the end of the stream. Some servers leave out the blank line after
    /// the last event, so what is there counts.
    pub(crate) fn finish(
        mut self,
        on_data: &mut dyn FnMut(&str) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        if !self.line.is_empty() {
            self.end_line(on_data)?;
        }
        self.dispatch(on_data)
    }

    fn extend(&mut self, bytes: &[u8]) -> Result<(), ModelError> {
        if self.line.len() + bytes.len() > self.bytes_max {
            return Err(self.too_long());
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(
        &mut self,
        on_data: &mut dyn FnMut(&str) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        let line = std::mem::take(&mut self.line);
        let mut text = line.as_slice();
        if std::mem::take(&mut self.first_line) {
            text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
        }
        if text.is_empty() {
            return self.dispatch(on_data);
        }
        let value = match text.strip_prefix(b"data") {
            Some(b"") => b"".as_slice(),
            Some([b':', value @ ..]) => value.strip_prefix(b" ").unwrap_or(value),
            // Comments, other fields, and fields such as `database`.
            _ => return Ok(()),
        };
        let joined = match &mut self.data {
            Some(data) => {
                data.push(b'\n');
                data
            }
            none => none.insert(Vec::new()),
        };
        joined.extend_from_slice(value);
        if joined.len() > self.bytes_max {
            return Err(self.too_long());
        }
        Ok(())
    }

    fn dispatch(
        &mut self,
        on_data: &mut dyn FnMut(&str) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        let Some(data) = self.data.take() else {
            return Ok(());
        };
        let text = std::str::from_utf8(&data)
            .map_err(|_| ModelError::BadAnswer { message: "the stream is not utf-8".to_owned() })?;
        on_data(text)
    }

    fn too_long(&self) -> ModelError {
        ModelError::BadAnswer {
            message: format!("a line of the stream is longer than {} bytes", self.bytes_max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(chunks: &[&[u8]]) -> Vec<String> {
        let mut events = Vec::new();
        let mut on_data = |data: &str| {
            events.push(data.to_owned());
            Ok(())
        };
        let mut parser = SseParser::new(64);
        for chunk in chunks {
            parser.feed(chunk, &mut on_data).unwrap();
        }
        parser.finish(&mut on_data).unwrap();
        events
    }

    const STREAM: &str = "\u{feff}: hello\ndata: {\"a\":\"é🙂\"}\n\nevent: x\r\ndata:two\r\ndata: lines\r\n\r\n\
        id: 1\rdata\rdata:\r\rdatabase: no\n\ndata: [DONE]";

    #[test]
    fn w06_events_are_the_same_at_every_chunk_boundary() {
        let expected = ["{\"a\":\"é🙂\"}", "two\nlines", "\n", "[DONE]"];
        let bytes = STREAM.as_bytes();
        assert_eq!(parse(&[bytes]), expected);
        for first in 0..=bytes.len() {
            for second in first..=bytes.len() {
                let chunks = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                assert_eq!(parse(&chunks), expected, "cut at {first} and {second}");
            }
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(parse(&single), expected);
    }

    #[test]
    fn w06_a_line_and_an_event_are_bounded() {
        let mut ignore = |_: &str| Ok(());
        let long = [b'x'; 65];
        assert!(SseParser::new(64).feed(&long, &mut ignore).is_err());
        assert!(SseParser::new(64).feed(&long[..64], &mut ignore).is_ok());
        let mut parser = SseParser::new(64);
        let line = format!("data: {}\n", "x".repeat(40));
        parser.feed(line.as_bytes(), &mut ignore).unwrap();
        let error = parser.feed(line.as_bytes(), &mut ignore).unwrap_err();
        assert!(error.to_string().contains("longer than 64 bytes"), "{error}");
    }

    #[test]
    fn w06_a_stream_that_is_not_utf8_is_refused() {
        let error = SseParser::new(64).feed(b"data: \xff\n\n", &mut |_| Ok(())).unwrap_err();
        assert!(matches!(error, ModelError::BadAnswer { .. }));
    }
}
