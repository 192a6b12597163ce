//! What a drill has in the store: the mark that it goes on, the entries of its added stems, and its keys. How
//! all of that goes again.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use cell_client::{Condition, Operation, Search};
use cell_terms::text::with_causes;

use crate::error::DrillError;
use crate::keys::{Keys, running_key, stem_entry};
use crate::load::{READ_PATIENCE, Target, call};
use crate::notice::Notice;

/// How long the mark of a drill that ends may take to be removed.
const MARK_PATIENCE: Duration = Duration::from_secs(10);
/// Keys that are removed at once.
const REMOVED_AT_ONCE: usize = 256;

/// The drill's entries in the store, and the mark that it goes on, for whoever removes entries of others. The
/// mark goes when this is dropped, however the drill ends; that entries stay is reported then.
pub(crate) struct Leftover<'a> {
    target: &'a Target,
    run: u64,
    /// Keys of the entries of added stems.
    stems: Vec<Vec<u8>>,
    stays: bool,
    why: Option<String>,
    notify: &'a (dyn Fn(Notice) + Sync),
}

impl<'a> Leftover<'a> {
    /// Of a drill that has no entries yet: it gets its mark, then the entries of its added stems, by which
    /// the keys at them are found again.
    pub(crate) fn begin(
        target: &'a Target,
        keys: &Keys,
        interrupted: &AtomicBool,
        notify: &'a (dyn Fn(Notice) + Sync),
    ) -> Result<Leftover<'a>, DrillError> {
        let mut client = target.connect(Search::Server, READ_PATIENCE)?;
        let run = keys.run();
        let mut put = |key: &[u8], value: &[u8]| {
            let put = Operation::Put { key, value, condition: Condition::Always };
            call(&mut client, &put, interrupted).map(drop)
        };
        // A mark of unknown outcome is removed, too.
        let mut leftover = Leftover { target, run, stems: Vec::new(), stays: false, why: None, notify };
        put(&running_key(run), b"")?;
        leftover.stays = true;
        for (number, stem) in keys.added_stems().iter().enumerate() {
            let (key, value) = stem_entry(run, number, stem);
            put(&key, &value)?;
            leftover.stems.push(key);
        }
        Ok(leftover)
    }

    /// Entries of added stems.
    pub(crate) fn stems(&self) -> u64 {
        self.stems.len() as u64
    }

    /// Takes the entries with these keys out of the store again, then those of the stems; whether all are
    /// gone.
    pub(crate) fn remove(&mut self, keys: &[Vec<u8>]) -> bool {
        match remove(self.target, keys).and_then(|()| remove(self.target, &self.stems)) {
            Ok(()) => self.stays = false,
            Err(error) => self.why = Some(with_causes(&error)),
        }
        !self.stays
    }

    fn unmark(&self) -> Result<(), DrillError> {
        self.target.connect(Search::Server, MARK_PATIENCE)?.delete(&running_key(self.run))?;
        Ok(())
    }
}

impl Drop for Leftover<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.unmark() {
            self.stays = true;
            self.why.get_or_insert_with(|| with_causes(&error));
        }
        if self.stays {
            (self.notify)(Notice::EntriesLeft { run: self.run, why: self.why.take() });
        }
    }
}

/// Takes entries out of the store.
fn remove(target: &Target, keys: &[Vec<u8>]) -> Result<(), DrillError> {
    let mut client = target.connect(Search::Server, READ_PATIENCE)?;
    for group in keys.chunks(REMOVED_AT_ONCE) {
        for key in group {
            client.submit(&Operation::Delete { key, condition: Condition::Always })?;
        }
        while client.outstanding() > 0 {
            if let Some(completion) = client.poll(READ_PATIENCE) {
                completion.outcome?;
            }
        }
    }
    Ok(())
}
