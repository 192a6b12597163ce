//! Gets that are answered in mapped memory before the call returns; see `onesided::immediate`.

use crate::client_core::ClientCore;
use crate::link_id::LinkId;
use crate::operation::WhoSearches;
use crate::{Item, Operation};

/// What has come of the attempt to answer gets at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Immediate {
    /// They are found, and count once [`ClientCore::is_believed`] says so by a time read after this.
    Found,
    /// They are to be submitted.
    Submit(WhoSearches),
}

impl ClientCore {
    /// Looks for keys in memory that is mapped, if the client is to do it and all can be told at once; what
    /// is found is appended, in the order of the keys. `now_ns` was read before.
    pub fn look_at_once(&mut self, now_ns: u64, keys: &[&[u8]], items: &mut Vec<Option<Item>>) -> Immediate {
        let chosen = match keys {
            [key] => self.chooses_at_once(now_ns, &Operation::Get { key }, keys),
            _ => self.chooses_at_once(now_ns, &Operation::MultiGet { keys }, keys),
        };
        let reader = self.reader.as_mut().filter(|_| chosen == WhoSearches::Client);
        let is_found = reader.is_some_and(|reader| match keys {
            [key] => reader.look_for(now_ns, key).map(|item| items.push(item)).is_some(),
            _ => reader.look_for_many(now_ns, keys, items),
        });
        if is_found { Immediate::Found } else { Immediate::Submit(chosen) }
    }

    /// Whether [`ClientCore::look_at_once`] has any memory to look at.
    #[must_use]
    pub fn can_answer_at_once(&self) -> bool {
        self.reader.as_ref().is_some_and(|reader| reader.can_answer_at_once())
    }

    /// Whether each read is asked who is to do it, by what was measured.
    pub(crate) fn chooses(&self) -> bool {
        self.reader.as_ref().is_some_and(|reader| reader.chooses())
    }

    /// Whether what was found last may be told: by clock, watermark and trust, at a time that was *read
    /// after* it was found. If not, it is to be submitted.
    pub fn is_believed(&mut self, now_ns: u64) -> bool {
        self.reader.as_mut().is_some_and(|reader| reader.is_believed(now_ns))
    }

    fn chooses_at_once(&mut self, now_ns: u64, operation: &Operation<'_>, keys: &[&[u8]]) -> WhoSearches {
        let ClientCore { reader, routing, links, options, pending, dismissal, .. } = self;
        let Some(reader) = reader.as_mut().filter(|reader| reader.can_answer_at_once()) else {
            return WhoSearches::Undecided;
        };
        if dismissal.is_some() || keys.is_empty() {
            return WhoSearches::Undecided;
        }
        if !reader.chooses() {
            return WhoSearches::Client;
        }
        let link = if routing.is_partitioned() {
            routing.link_of_key(keys[0], links, options)
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
