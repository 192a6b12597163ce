//! Gets of many keys: in groups that fit a message each, several of which are under way at a time.

use std::collections::VecDeque;

use cell_protocol::Found;

use crate::operation::WhoSearches;
use crate::output::FoundValues;
use crate::{Client, ClientError, Item, Operation, Ticket};

/// Keys that are looked for in place between two looks at the clock.
const KEYS_AT_ONCE: usize = 64;

/// Groups of one call that are under way at a time: their answers are in memory together.
pub(crate) const GROUPS_AHEAD: usize = 8;

/// What was found so far, in the order of the keys.
#[derive(Debug, Default)]
pub(crate) struct FoundItems {
    items: Vec<Option<Item>>,
    /// Of which keys the values are too long for such an answer: gets bring them.
    large: Vec<usize>,
}

impl FoundItems {
    /// The next group's answer.
    pub(crate) fn push_group(&mut self, found: &FoundValues) {
        for found in found.iter() {
            let item = match found {
                Found::Absent => None,
                Found::Value { version, value } => Some(Item { version, value: value.to_vec() }),
                Found::Large { .. } => {
                    self.large.push(self.items.len());
                    None
                }
            };
            self.items.push(item);
        }
    }

    /// All groups are there: the items, and which of them are still to be fetched by gets.
    pub(crate) fn into_parts(self) -> (Vec<Option<Item>>, Vec<usize>) {
        (self.items, self.large)
    }
}

impl Client {
    /// Many entries, in the order of the keys; each is as of its own moment. Any number of keys: they go in
    /// messages that are under way together.
    ///
    /// # Errors
    /// See [`ClientError`]; the first error ends the call.
    pub fn multi_get(&mut self, keys: &[&[u8]]) -> Result<Vec<Option<Item>>, ClientError> {
        let mut items = Vec::with_capacity(keys.len());
        let mut who = WhoSearches::Undecided;
        for group in keys.chunks(KEYS_AT_ONCE) {
            if let Err(decided) = self.multi_get_at_once(group, &mut items) {
                who = decided;
                break;
            }
        }
        let rest = &keys[items.len()..];
        let mut under_way = VecDeque::new();
        let found = self.find_groups(rest, who, &mut under_way);
        // After an error nobody wants the others' answers.
        under_way.into_iter().for_each(|ticket| self.give_up(ticket));
        let (found, large) = found?.into_parts();
        let begin = items.len();
        items.extend(found);
        for at in large {
            items[begin + at] = self.get(rest[at])?;
        }
        Ok(items)
    }

    fn find_groups(
        &mut self,
        keys: &[&[u8]],
        mut who: WhoSearches,
        under_way: &mut VecDeque<Ticket>,
    ) -> Result<FoundItems, ClientError> {
        let mut found = FoundItems::default();
        let mut groups = groups(keys).peekable();
        loop {
            while under_way.len() < GROUPS_AHEAD
                && let Some(group) = groups.peek()
            {
                match self.submit_to(who, &Operation::MultiGet { keys: group }) {
                    Ok(ticket) => {
                        under_way.push_back(ticket);
                        who = WhoSearches::Undecided; // it was decided on one
                    }
                    Err(ClientError::QueueFull { .. }) if !under_way.is_empty() => break,
                    Err(error) => return Err(error),
                }
                groups.next();
            }
            let Some(ticket) = under_way.pop_front() else { return Ok(found) };
            found.push_group(&self.finish(ticket)?.into_values());
        }
    }
}

/// Keys in groups that fit a message each.
pub(crate) fn groups<'a, 'b>(keys: &'a [&'b [u8]]) -> impl Iterator<Item = &'a [&'b [u8]]> {
    const GROUP_BYTES: usize = cell_protocol::MESSAGE_BYTES_MAX / 2;
    let mut rest = keys;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fitting = rest.iter().take(cell_protocol::MULTI_GET_KEYS_MAX).take_while(|key| {
            bytes += key.len() + 2;
            bytes <= GROUP_BYTES
        });
        // A key that is too long for the wire goes alone and is refused by name.
        let count = fitting.count().max(1).min(rest.len());
        let (group, after) = rest.split_at(count);
        rest = after;
        (!group.is_empty()).then_some(group)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_any_keys_are_all_there_in_order() {
        let long = vec![1; 900];
        let keys: Vec<&[u8]> = (0..3000).map(|at| if at % 7 == 0 { long.as_slice() } else { b"k" }).collect();
        let together: Vec<&[u8]> = groups(&keys).flatten().copied().collect();
        assert_eq!(together, keys);
        assert!(groups(&keys).all(|group| group.len() <= cell_protocol::MULTI_GET_KEYS_MAX));
        assert_eq!(groups(&[]).count(), 0);
    }
}
