//! What a task needs of its encoded request.

use cell_protocol::{Request, Scan};

/// Places of keys in a request.
pub(super) struct Keys<'a> {
    pub(super) message: &'a [u8],
    pub(super) fit: bool,
    pub(super) longest: usize,
}

impl Keys<'_> {
    pub(super) fn position(&mut self, key: &[u8]) -> (usize, usize) {
        self.fit &= !key.is_empty();
        self.longest = self.longest.max(key.len());
        let begin = key.as_ptr().addr().wrapping_sub(self.message.as_ptr().addr());
        (begin, begin + key.len())
    }
}

/// The scan of an encoded request.
pub(crate) fn scan_of(message: &[u8]) -> Option<Scan<'_>> {
    match Request::decode(message) {
        Ok((_, Request::Scan(scan))) => Some(scan),
        _ => None,
    }
}
