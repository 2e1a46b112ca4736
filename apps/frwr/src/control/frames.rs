//! Where one JSON value ends and the next begins in a stream of bytes. What stands between them is white space, or nothing.

use super::rpc::{Failure, PARSE_ERROR, TOO_LARGE};

/// Bytes of a request, or of a batch of them: what changes a whole configuration is far smaller.
pub(crate) const MAX_REQUEST_BYTES: usize = 1 << 20;

/// What has arrived and was not taken yet. A byte is looked at once.
#[derive(Debug, Default)]
pub(super) struct Frames {
    bytes: Vec<u8>,
    /// Up to here `depth`, `in_text` and `escaped` say what was found.
    looked_at: usize,
    depth: u32,
    in_text: bool,
    escaped: bool,
}

impl Frames {
    /// More has arrived.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// How much may arrive until somebody has to look again.
    pub(super) fn room(&self) -> usize {
        // One byte more shows that there is too much.
        (MAX_REQUEST_BYTES + 1).saturating_sub(self.bytes.len())
    }

    /// The next object or array, whole; `None` where that has not arrived.
    ///
    /// # Errors
    /// What there is begins no object or array, or is too large: nothing behind it can be understood.
    pub(super) fn next(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        if self.looked_at == 0 {
            self.skip_white_space()?;
        }
        for at in self.looked_at..self.bytes.len() {
            if self.ends_at(at) {
                let rest = self.bytes.split_off(at + 1);
                let whole = core::mem::replace(&mut self.bytes, rest);
                *self = Self { bytes: core::mem::take(&mut self.bytes), ..Self::default() };
                // Small as it usually is: no large one is kept for ever.
                self.bytes.shrink_to(MAX_REQUEST_BYTES >> 4);
                return Ok(Some(whole));
            }
        }
        self.looked_at = self.bytes.len();
        if self.bytes.len() > MAX_REQUEST_BYTES {
            let text =
                format!("the request has more than {MAX_REQUEST_BYTES} bytes; send several, one after the other");
            return Err(Failure::new(TOO_LARGE, text));
        }
        Ok(None)
    }

    /// Nobody sends any more.
    ///
    /// # Errors
    /// Something has begun that does not end.
    pub(super) fn end(&self) -> Result<(), Failure> {
        if self.bytes.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        let text = format!("the stream ended after {} bytes of a request; send whole ones", self.bytes.len());
        Err(Failure::new(PARSE_ERROR, text))
    }

    fn skip_white_space(&mut self) -> Result<(), Failure> {
        let begin = self.bytes.iter().position(|byte| !byte.is_ascii_whitespace()).unwrap_or(self.bytes.len());
        self.bytes.drain(..begin);
        match self.bytes.first() {
            None | Some(b'{' | b'[') => Ok(()),
            Some(byte) => {
                let found = byte.escape_ascii();
                let text =
                    format!("a request begins with {{, a batch with [, and this with '{found}'; send JSON-RPC 2.0");
                Err(Failure::new(PARSE_ERROR, text))
            }
        }
    }

    /// Looks at one more byte: whether the value ends with it. Brackets that do not match are the parser's to find.
    fn ends_at(&mut self, at: usize) -> bool {
        let byte = self.bytes[at];
        if self.in_text {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_text = false,
                _ => {}
            }
            return false;
        }
        match byte {
            b'"' => self.in_text = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        self.depth == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(frames: &mut Frames) -> Vec<String> {
        let next = || frames.next().unwrap().map(|bytes| String::from_utf8(bytes).unwrap());
        core::iter::from_fn(next).collect()
    }

    #[test]
    fn values_need_nothing_between_them_and_may_come_in_any_pieces() {
        let values = [r#"{"a":"}\"]{"}"#, "[1,[2]]", r#"{"b":{"c":[]}}"#];
        let stream = format!("\n {}{}\r\n\t{}  ", values[0], values[1], values[2]);
        for size in 1..stream.len() {
            let mut frames = Frames::default();
            let mut found = Vec::new();
            for piece in stream.as_bytes().chunks(size) {
                frames.push(piece);
                found.extend(all(&mut frames));
            }
            assert_eq!(found, values, "{size}");
            assert_eq!(frames.end(), Ok(()));
        }
    }

    #[test]
    fn what_is_no_request_is_told_with_what_it_begins_with() {
        let mut frames = Frames::default();
        frames.push(b"  GET / HTTP/1.0");
        let failure = frames.next().unwrap_err();
        assert_eq!(failure.code, PARSE_ERROR);
        assert!(failure.message.contains("'G'"), "{}", failure.message);
    }

    #[test]
    fn a_request_that_is_too_large_is_told_the_limit_and_nothing_more_is_held() {
        let mut frames = Frames::default();
        frames.push(b"[\"");
        let mut pushed = 2;
        let failure = loop {
            match frames.next() {
                Ok(found) => assert_eq!(found, None),
                Err(failure) => break failure,
            }
            let more = frames.room().min(4096);
            assert!(more > 0);
            frames.push(&vec![b'x'; more]);
            pushed += more;
        };
        assert_eq!((failure.code, pushed), (TOO_LARGE, MAX_REQUEST_BYTES + 1));
        assert!(failure.message.contains("1048576"), "{}", failure.message);
    }

    #[test]
    fn half_a_request_is_told_when_nobody_sends_any_more() {
        let mut frames = Frames::default();
        frames.push(b"{\"id\":1");
        assert_eq!(frames.next(), Ok(None));
        assert_eq!(frames.end().unwrap_err().code, PARSE_ERROR);
    }

    proptest! {
        /// A stream of any bytes gives frames that are the stream, or an error, and never panics.
        #[test]
        fn no_stream_is_too_odd(stream in prop::collection::vec(any::<u8>(), 0..300), size in 1_usize..40) {
            let mut frames = Frames::default();
            let mut taken = Vec::new();
            for piece in stream.chunks(size) {
                frames.push(piece);
                loop {
                    match frames.next() {
                        Ok(Some(frame)) => taken.extend(frame),
                        Ok(None) => break,
                        Err(failure) => {
                            prop_assert!(failure.code < 0);
                            return Ok(());
                        }
                    }
                }
            }
            prop_assert!(taken.len() <= stream.len());
        }
    }
}
