//! Bytes on their way to a socket, or from one: a buffer of one size.

/// Filled at its end, emptied at its front.
#[derive(Debug)]
pub(super) struct Bytes {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Bytes {
    pub(super) fn new(capacity: usize) -> Self {
        Self { bytes: vec![0; capacity].into_boxed_slice(), start: 0, end: 0 }
    }

    pub(super) fn filled(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Bytes that can be added.
    pub(super) const fn room(&self) -> usize {
        self.bytes.len() - (self.end - self.start)
    }

    /// So many bytes at the front are done with.
    pub(super) fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// All that is free, in one piece. What is filled moves to the front where that is in the way: of what is received that is less
    /// than a header, or what found no room elsewhere.
    pub(super) fn space(&mut self) -> &mut [u8] {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.bytes[self.end..]
    }

    /// So many bytes of [`Bytes::space`] are filled.
    pub(super) fn filled_by(&mut self, count: usize) {
        self.end = (self.end + count).min(self.bytes.len());
    }

    /// Adds bytes; false where there is no room for all of them.
    pub(super) fn put(&mut self, bytes: &[u8]) -> bool {
        let Some(space) = self.space().get_mut(..bytes.len()) else { return false };
        space.copy_from_slice(bytes);
        self.filled_by(bytes.len());
        true
    }

    pub(super) fn clear(&mut self) {
        (self.start, self.end) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_as_they_went_in() {
        let mut bytes = Bytes::new(8);
        assert!(bytes.put(b"abcdef") && !bytes.put(b"ghi") && bytes.room() == 2);
        bytes.consume(4);
        assert!(bytes.put(b"ghi"));
        assert_eq!(bytes.filled(), b"efghi");
        assert_eq!(bytes.space().len(), 3);
        bytes.consume(9);
        assert!(bytes.is_empty() && bytes.room() == 8);
    }
}
