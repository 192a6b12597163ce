//! Gets, searches and pages that are answered in mapped memory before the call returns; see
//! `onesided::immediate_reader`.
//!
//! Each look is an error if the operation is to be submitted: who is to search, as far as that is decided.
//! What was found counts once [`ClientCore::is_valid_at`] says so, by a time that was read after it.

use cell_protocol::Scan;
use cell_tree::Aim;

use crate::client_core::ClientCore;
use crate::link_id::LinkId;
use crate::onesided::{Reader, range_of};
use crate::operation::WhoSearches;
use crate::{Item, Operation, ScanPage};

impl ClientCore {
    /// Looks for a key's entry. `now_ns` was read before.
    ///
    /// # Errors
    /// See the module's text; so for the other looks.
    #[inline]
    pub fn look_for(&mut self, now_ns: u64, key: &[u8]) -> Result<Option<Item>, WhoSearches> {
        let aim = Some(Aim::At(key));
        self.look(now_ns, &Operation::Get { key }, aim, |reader| reader.look_for(now_ns, key))
    }

    /// Looks whether a key has an entry. `now_ns` was read before.
    ///
    /// # Errors
    /// As for [`ClientCore::look_for`].
    #[inline]
    pub fn look_for_existence(&mut self, now_ns: u64, key: &[u8]) -> Result<bool, WhoSearches> {
        let aim = Some(Aim::At(key));
        self.look(now_ns, &Operation::Search { key }, aim, |reader| reader.look_for_existence(now_ns, key))
    }

    /// Looks for many entries; if all are found, they are appended in the order of the keys. `now_ns` was
    /// read before.
    ///
    /// # Errors
    /// As for [`ClientCore::look_for`]; then nothing is appended.
    pub fn look_for_many(
        &mut self,
        now_ns: u64,
        keys: &[&[u8]],
        items: &mut Vec<Option<Item>>,
    ) -> Result<(), WhoSearches> {
        let aim = keys.first().copied().map(Aim::At);
        self.look(now_ns, &Operation::MultiGet { keys }, aim, |reader| {
            reader.look_for_many(now_ns, keys, items).then_some(())
        })
    }

    /// Looks for a page of a range. `now_ns` was read before.
    ///
    /// # Errors
    /// As for [`ClientCore::look_for`].
    pub fn look_for_page(&mut self, now_ns: u64, scan: &Scan<'_>) -> Result<ScanPage, WhoSearches> {
        let aim = Some(range_of(scan).first_aim());
        self.look(now_ns, &Operation::Scan(*scan), aim, |reader| reader.look_for_page(now_ns, scan))
    }

    #[inline]
    fn look<T>(
        &mut self,
        now_ns: u64,
        operation: &Operation<'_>,
        aim: Option<Aim<'_>>,
        found: impl FnOnce(&mut Reader) -> Option<T>,
    ) -> Result<T, WhoSearches> {
        let chosen = self.chooses_at_once(now_ns, operation, aim);
        let reader = self.reader.as_mut().filter(|_| chosen == WhoSearches::Client);
        reader.and_then(|reader| found(reader)).ok_or(chosen)
    }

    /// Whether the looks have any memory to look at.
    #[inline]
    #[must_use]
    pub fn can_answer_at_once(&self) -> bool {
        self.reader.as_ref().is_some_and(|reader| reader.can_answer_at_once())
    }

    /// Whether each read is asked who is to do it, by what was measured.
    #[inline]
    pub(crate) fn chooses(&self) -> bool {
        self.reader.as_ref().is_some_and(|reader| reader.chooses())
    }

    /// Whether what was found last may be returned: by clock, watermark and trust, at a time that was *read
    /// after* it was found. If not, it is to be submitted.
    pub fn is_valid_at(&mut self, now_ns: u64) -> bool {
        self.reader.as_mut().is_some_and(|reader| reader.is_valid_at(now_ns))
    }

    /// Who is to do a read that can be answered at once; undecided if none can. `aim`: at its first key, if
    /// it has any.
    #[inline]
    pub(crate) fn chooses_at_once(
        &mut self,
        now_ns: u64,
        operation: &Operation<'_>,
        aim: Option<Aim<'_>>,
    ) -> WhoSearches {
        let is_possible = self.can_answer_at_once() && self.dismissal.is_none();
        let Some(aim) = aim.filter(|_| is_possible) else { return WhoSearches::Undecided };
        if self.chooses() { self.choose_at_once(now_ns, operation, aim) } else { WhoSearches::Client }
    }

    /// Who is to do a read, where that goes by what each has cost. Apart from what every read asks.
    #[inline(never)]
    fn choose_at_once(&mut self, now_ns: u64, operation: &Operation<'_>, aim: Aim<'_>) -> WhoSearches {
        let ClientCore { reader, routing, links, options, pending, .. } = self;
        let Some(reader) = reader else { return WhoSearches::Undecided };
        let link = if routing.is_partitioned() {
            routing.link_of(aim, links, options)
        } else {
            Some(LinkId::BOOTSTRAP)
        };
        let in_hand = u32::try_from(pending.reads()).unwrap_or(u32::MAX);
        match link {
            Some(link) if reader.choose(link, now_ns, operation, in_hand) => WhoSearches::Client,
            _ => WhoSearches::Server,
        }
    }
}
