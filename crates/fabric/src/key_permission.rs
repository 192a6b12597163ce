//! Who learns over `verbs` where the region of a key is. A device asks nobody for a token: whoever knows the
//! place, or has it from somebody who does, reads for as long as there is a queue pair that lets reads
//! through. So whose token is not for reading any more loses the connection of such a queue pair.

use std::sync::Arc;

use cell_terms::mutant::{Mutant, planted};

use crate::read_permission::ReadPermission;

/// An acceptor's; a connector is asked for nothing.
#[derive(Debug, Default)]
pub(crate) struct KeyPermission {
    /// None: whoever comes.
    readers: Option<Arc<dyn ReadPermission>>,
    /// By which revision of that those were judged last whose reads are let through.
    judged: u64,
}

impl KeyPermission {
    /// Tells those who may read.
    pub(crate) fn of(readers: Option<Arc<dyn ReadPermission>>) -> KeyPermission {
        KeyPermission { readers, judged: 0 }
    }

    /// Whether a peer that has shown this token is sent the place. One that the endpoint's user has not
    /// admitted is not: the user counts who shows tokens that are not known, and listens to them no more.
    pub(crate) fn permits(&self, is_admitted: bool, token: &[u8]) -> bool {
        let is_reader = |readers: &Arc<dyn ReadPermission>| is_admitted && readers.permits(token);
        self.readers.as_ref().is_none_or(is_reader) || planted(Mutant::PlaceToldToAnybody)
    }

    /// Whether those whose reads are let through are to be judged again: once after each change.
    pub(crate) fn has_changed(&mut self) -> bool {
        let Some(readers) = &self.readers else { return false };
        let revision = readers.revision();
        let is_another = std::mem::replace(&mut self.judged, revision) != revision;
        is_another && !planted(Mutant::ToldReaderStays)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// The token that may read.
    #[derive(Debug, Default)]
    struct Reader {
        token: Mutex<Vec<u8>>,
        revision: AtomicU64,
    }

    impl Reader {
        fn set(&self, token: &[u8]) {
            *self.token.lock().unwrap() = token.to_vec();
            self.revision.fetch_add(1, Ordering::Release);
        }
    }

    impl ReadPermission for Reader {
        fn permits(&self, token: &[u8]) -> bool {
            *self.token.lock().unwrap() == token
        }

        fn revision(&self) -> u64 {
            self.revision.load(Ordering::Acquire)
        }
    }

    fn readers_alone_learn_the_place() {
        let reader = Arc::new(Reader::default());
        reader.set(b"reader");
        let keys = KeyPermission::of(Some(reader));
        assert!(keys.permits(true, b"reader"));
        for (is_admitted, token) in [(true, &b""[..]), (true, b"viewer"), (false, b"reader")] {
            assert!(!keys.permits(is_admitted, token), "{is_admitted} {token:?}");
        }
        assert!(KeyPermission::default().permits(false, b""), "nobody is asked");
    }

    fn each_change_judges_those_who_know_the_place() {
        let reader = Arc::new(Reader::default());
        reader.set(b"reader");
        let mut keys = KeyPermission::of(Some(reader.clone()));
        assert!(keys.has_changed(), "whoever came before the first look");
        assert!(!keys.has_changed());
        reader.set(b"another");
        assert!(keys.has_changed() && !keys.permits(true, b"reader"));
        assert!(!keys.has_changed());
        assert!(!KeyPermission::default().has_changed());
    }

    #[test]
    fn permits_readers_who_are_admitted_alone() {
        readers_alone_learn_the_place();
    }

    #[test]
    fn has_changed_once_after_each_change() {
        each_change_judges_those_who_know_the_place();
    }

    #[test]
    #[cfg(debug_assertions)]
    fn mutants_of_who_learns_the_place_are_caught() {
        use cell_terms::mutant::plant;
        cell_terms::mutant::in_own_process(|| {
            for (mutant, test) in [
                (Mutant::PlaceToldToAnybody, readers_alone_learn_the_place as fn()),
                (Mutant::ToldReaderStays, each_change_judges_those_who_know_the_place),
            ] {
                plant(Some(mutant));
                let passed = std::panic::catch_unwind(test).is_ok();
                plant(None);
                assert!(!passed, "{} was not caught", mutant.name());
                println!("mutant {} caught by cell-fabric's keys over RDMA", mutant.name());
            }
        });
    }
}
