//! Reads a source on a thread of its own, so that who takes its lines sees whether one is there, and can do
//! something else until it is.

use std::io::{self, BufRead, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

/// What is read and not taken yet, in parts of the reader's own buffer.
const PARTS_MAX: usize = 4;
/// A line that is longer is read to its end as it comes.
const WHOLE_BYTES_MAX: usize = 4 << 20;

/// A reader that says whether a line can be read without waiting for its source.
pub(crate) trait Arriving {
    /// Whether a line, or the end, is there, or comes within this time.
    fn is_line_here(&mut self, within: Duration) -> bool;
}

/// See the module's text.
pub(crate) struct Ahead {
    parts: Receiver<io::Result<Vec<u8>>>,
    bytes: Vec<u8>,
    /// So many of them were consumed.
    taken: usize,
    /// Up to here none of them ends a line that was not consumed.
    searched: usize,
    is_over: bool,
    /// Why it is over, until it is reported.
    error: Option<io::Error>,
}

impl Ahead {
    /// Begins to read.
    ///
    /// # Errors
    /// There is no thread for it.
    pub(crate) fn new(reader: impl BufRead + Send + 'static) -> io::Result<Ahead> {
        let (sender, parts) = sync_channel(PARTS_MAX);
        thread::Builder::new().name("source".into()).spawn(move || read_on(reader, &sender))?;
        let (bytes, error) = (Vec::new(), None);
        Ok(Ahead { parts, bytes, taken: 0, searched: 0, is_over: false, error })
    }

    /// The next part has come; none: there is no further one.
    fn add(&mut self, part: Option<io::Result<Vec<u8>>>) {
        match part {
            Some(Ok(part)) if self.taken == self.bytes.len() => {
                (self.bytes, self.taken, self.searched) = (part, 0, 0);
            }
            Some(Ok(part)) => {
                self.searched = self.searched.saturating_sub(self.taken);
                self.bytes.drain(..std::mem::take(&mut self.taken));
                self.bytes.extend_from_slice(&part);
            }
            Some(Err(error)) => (self.is_over, self.error) = (true, Some(error)),
            None => self.is_over = true,
        }
    }
}

/// Reads until the source is over, or nobody wants more of it.
fn read_on(mut reader: impl BufRead, sender: &SyncSender<io::Result<Vec<u8>>>) {
    loop {
        let part = match reader.fill_buf() {
            Ok([]) => return,
            Ok(bytes) => Ok(bytes.to_vec()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
        let read = part.as_ref().map_or(0, Vec::len);
        reader.consume(read);
        if sender.send(part).is_err() || read == 0 {
            return;
        }
    }
}

impl Arriving for Ahead {
    fn is_line_here(&mut self, within: Duration) -> bool {
        loop {
            let from = self.searched.max(self.taken);
            let end = memchr::memchr(b'\n', &self.bytes[from..]);
            self.searched = end.map_or(self.bytes.len(), |end| from + end);
            if end.is_some() || self.is_over || self.bytes.len() - self.taken >= WHOLE_BYTES_MAX {
                return true;
            }
            match self.parts.recv_timeout(within) {
                Ok(part) => self.add(Some(part)),
                Err(RecvTimeoutError::Disconnected) => self.add(None),
                Err(RecvTimeoutError::Timeout) => return false,
            }
        }
    }
}

impl BufRead for Ahead {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.taken == self.bytes.len() && !self.is_over {
            let part = self.parts.recv().ok();
            self.add(part);
        }
        match self.error.take_if(|_| self.taken == self.bytes.len()) {
            Some(error) => Err(error),
            None => Ok(&self.bytes[self.taken..]),
        }
    }

    fn consume(&mut self, bytes: usize) {
        self.taken += bytes;
    }
}

impl Read for Ahead {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(to)?;
        self.consume(read);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufReader, Cursor, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    const LONG: Duration = Duration::from_secs(120);

    /// Reads by lines; asks before each whether it is there.
    fn read_all(ahead: &mut Ahead) -> (String, io::Result<usize>) {
        let mut text = String::new();
        loop {
            assert!(ahead.is_line_here(LONG));
            match ahead.read_line(&mut text) {
                Ok(read) if read > 0 => {}
                end => return (text, end),
            }
        }
    }

    #[test]
    fn read_all_of_a_source_in_parts_of_any_length() {
        let text: String = (0..50).map(|n| format!("{}\n", "x".repeat(n))).collect();
        for part in [1, 7, 64, 10_000] {
            let reader = BufReader::with_capacity(part, Cursor::new(format!("{text}rest")));
            let (read, end) = read_all(&mut Ahead::new(reader).unwrap());
            assert_eq!((read, end.unwrap()), (format!("{text}rest"), 0), "{part}");
        }
    }

    #[test]
    fn read_a_source_that_breaks_off_gives_all_before_and_its_error() {
        struct Broken;

        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::from(io::ErrorKind::UnexpectedEof))
            }
        }

        let reader = BufReader::new(Cursor::new("one\ntwo\n").chain(Broken));
        let (read, end) = read_all(&mut Ahead::new(reader).unwrap());
        assert_eq!((&*read, end.unwrap_err().kind()), ("one\ntwo\n", io::ErrorKind::UnexpectedEof));
    }

    #[test]
    fn is_line_here_only_once_all_of_it_has_come() {
        let (mut writer, reader) = UnixStream::pair().unwrap();
        let mut ahead = Ahead::new(BufReader::new(reader)).unwrap();
        assert!(!ahead.is_line_here(Duration::ZERO));
        writer.write_all(b"one\nha").unwrap();
        assert!(ahead.is_line_here(LONG));
        let mut line = String::new();
        ahead.read_line(&mut line).unwrap();
        assert!(!ahead.is_line_here(Duration::ZERO), "a half is no line");
        writer.write_all(b"lf\n").unwrap();
        assert!(ahead.is_line_here(LONG));
        ahead.read_line(&mut line).unwrap();
        assert_eq!(line, "one\nhalf\n");
        drop(writer);
        assert!(ahead.is_line_here(LONG), "its end");
    }
}
