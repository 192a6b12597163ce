//! What has changed since a revision: a small read says whether anything has, and a watch says what.
//!
//! Every transaction that changes rows writes the head, last. So a read of the head, which every member
//! answers as of when it was asked, says up to which revision there is something to wait for; and a watch has
//! said all of a revision when it has said that the head was written. A watch alone says nothing where it
//! hears nothing: a member without a leader is silent for ever.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::ClusterError;
use crate::providers::etcd::ask::Asker;
use crate::providers::etcd::gateway::{
    self as gw, PATH_RANGE, PATH_WATCH, RangeAnswer, WatchEvent, WatchLine,
};
use crate::providers::etcd::keys::{Keys, check_layout};
use crate::providers::etcd::route::Repeats;
use crate::request::{ChangesPage, CoordinatorRefusal, KeyChange, KeyValue, Response, Revision};

/// Watches that are kept, for callers that are at different revisions.
const STREAMS_MAX: usize = 4;
/// A line of a watch that is longer is not read.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// The watches that are open.
#[derive(Default)]
pub(super) struct Changes {
    streams: Mutex<VecDeque<Stream>>,
}

/// A watch that has said all up to a revision.
struct Stream {
    lines: BufReader<Box<dyn Read + Send>>,
    line: Vec<u8>,
    pending: VecDeque<WatchEvent>,
    complete_to: Revision,
}

/// What was read of a watch.
#[derive(Default)]
struct Gathered {
    changes: Vec<KeyChange>,
    page: ChangesPage,
    /// Of the revision of which not all was said yet.
    partial: Vec<KeyChange>,
}

/// Why nothing more comes of a watch.
enum WatchEnd {
    /// The revisions from which it was to begin are forgotten, up to this one.
    Compacted(Revision),
    Failed(io::Error),
}

impl WatchEnd {
    fn silent() -> WatchEnd {
        let words = "a watch of etcd did not say in time what has changed";
        WatchEnd::Failed(io::Error::new(io::ErrorKind::TimedOut, words))
    }

    fn of_read(error: io::Error) -> WatchEnd {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<ureq::Error>());
        let is_silent = matches!(inner, Some(ureq::Error::Timeout(_)));
        if is_silent { WatchEnd::silent() } else { WatchEnd::Failed(error) }
    }
}

impl Changes {
    fn streams(&self) -> MutexGuard<'_, VecDeque<Stream>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, stream: Stream) {
        let mut streams = self.streams();
        if streams.len() >= STREAMS_MAX {
            streams.pop_front(); // the one that was used the longest ago
        }
        streams.push_back(stream);
    }

    fn take(&self, complete_to: Revision) -> Option<Stream> {
        let mut streams = self.streams();
        let at = streams.iter().position(|stream| stream.complete_to == complete_to)?;
        streams.remove(at)
    }

    /// The changes after a revision, up to now or to a page's end.
    pub(super) fn since(
        &self,
        asker: &Asker,
        revision: Revision,
        until_ns: u64,
    ) -> Result<Response, ClusterError> {
        let question = gw::range_of_key(asker.keys.head());
        let head: RangeAnswer = asker.ask(PATH_RANGE, &question, Repeats::Reads, until_ns)?;
        let now = head.header.revision.max(revision);
        let changed = match head.kvs.first() {
            Some(stored) => {
                check_layout(&stored.value)?;
                stored.mod_revision
            }
            None => 0,
        };
        let kept = self.take(revision);
        if changed <= revision {
            if let Some(stream) = kept {
                self.keep(Stream { complete_to: now, ..stream });
            }
            return Ok(Response::Changes { revision: now, changes: Vec::new() });
        }
        let mut gathered = Gathered::default();
        if let Some(mut stream) = kept {
            let read = stream.read(asker, &mut gathered, changed, until_ns);
            if read.is_ok() || stream.complete_to > revision {
                return Ok(self.answer(stream, gathered, (changed, now), read.is_ok()));
            }
            // It had gone while nobody read it.
            gathered = Gathered::default();
        }
        let lines = asker.open(PATH_WATCH, &gw::watch(asker.keys.head(), revision + 1), until_ns)?;
        let mut stream = Stream::new(lines, revision);
        match stream.read(asker, &mut gathered, changed, until_ns) {
            Ok(()) => Ok(self.answer(stream, gathered, (changed, now), true)),
            Err(_) if stream.complete_to > revision => {
                Ok(self.answer(stream, gathered, (changed, now), false))
            }
            Err(WatchEnd::Compacted(oldest)) => {
                Ok(Response::Refused(CoordinatorRefusal::Compacted { oldest }))
            }
            Err(WatchEnd::Failed(error)) => Err(ClusterError::NotReached(error)),
        }
    }

    /// What was read of whole revisions. A watch that goes on is kept for the next call.
    fn answer(
        &self,
        mut stream: Stream,
        gathered: Gathered,
        (changed, now): (Revision, Revision),
        goes_on: bool,
    ) -> Response {
        if stream.complete_to >= changed {
            // Since then no row was written.
            stream.complete_to = stream.complete_to.max(now);
        }
        let revision = stream.complete_to;
        if goes_on {
            self.keep(stream);
        }
        Response::Changes { revision, changes: gathered.changes }
    }
}

impl Stream {
    fn new(lines: Box<dyn Read + Send>, complete_to: Revision) -> Stream {
        Stream { lines: BufReader::new(lines), line: Vec::new(), pending: VecDeque::new(), complete_to }
    }

    /// Reads until all is said up to `changed`, or a page is full.
    fn read(
        &mut self,
        asker: &Asker,
        gathered: &mut Gathered,
        changed: Revision,
        until_ns: u64,
    ) -> Result<(), WatchEnd> {
        while self.complete_to < changed {
            let Some(event) = self.pending.pop_front() else {
                self.read_line(asker, until_ns)?;
                continue;
            };
            let revision = event.kv.mod_revision;
            match change(&asker.keys, event) {
                Some(change) => gathered.partial.push(change),
                None => {
                    // The head: all of this revision was said.
                    for change in gathered.partial.drain(..) {
                        gathered.page.add(&change);
                        gathered.changes.push(change);
                    }
                    self.complete_to = self.complete_to.max(revision);
                    if gathered.page.is_full() {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    fn read_line(&mut self, asker: &Asker, until_ns: u64) -> Result<(), WatchEnd> {
        if asker.clock.now_ns() >= until_ns {
            return Err(WatchEnd::silent());
        }
        self.line.clear();
        let read = self.lines.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut self.line);
        read.map_err(WatchEnd::of_read)?;
        if self.line.last() != Some(&b'\n') {
            return Err(WatchEnd::Failed(io::ErrorKind::UnexpectedEof.into()));
        }
        let invalid = |why: String| WatchEnd::Failed(io::Error::new(io::ErrorKind::InvalidData, why));
        let line = serde_json::from_slice::<WatchLine>(&self.line);
        let line = line.map_err(|error| invalid(format!("a watch of etcd does not read: {error}")))?;
        let Some(result) = line.result else {
            let words = String::from_utf8_lossy(&self.line[..self.line.len().min(200)]).into_owned();
            return Err(invalid(format!("a watch of etcd has ended: {words}")));
        };
        match result {
            result if asker.is_of_another(result.header) => {
                Err(invalid("another cluster of etcd answers to a watch".to_owned()))
            }
            result if result.compact_revision > 0 => Err(WatchEnd::Compacted(result.compact_revision)),
            result if result.canceled => Err(invalid("etcd has cancelled a watch".to_owned())),
            result => {
                self.pending.extend(result.events);
                Ok(())
            }
        }
    }
}

/// A row's change; none: the head was written.
fn change(keys: &Keys, event: WatchEvent) -> Option<KeyChange> {
    let key = keys.row_of(&event.kv.key).filter(|key| !key.is_empty())?.to_owned();
    let revision = event.kv.mod_revision;
    let value = (!event.is_delete()).then(|| KeyValue {
        key: key.clone(),
        value: event.kv.value.clone(),
        revision_created: event.kv.create_revision,
        revision,
        lease: None,
    });
    Some(KeyChange { revision, key, value })
}
