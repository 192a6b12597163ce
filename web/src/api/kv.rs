//! `GET /api/v1/kv` and `GET /api/v1/kv/{key}`: entries in the order of their keys, and one of them, as any
//! client of the store sees them.

use std::ops::Bound;
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use cell_client::{Client, ClientError, Item, ScanEntry, ScanRange};
use data_encoding::{BASE64, HEXLOWER};
use serde::Serialize;

use crate::api::document::Document;
use crate::api::gathered::JSON_BYTES_MAX;
use crate::api::key::{Key, escaped};
use crate::api::params::{Params, PathText, parse_key};
use crate::api::tree::place;
use crate::clock::{milliseconds, now_unix_ms};
use crate::problem::{FieldProblem, Problem};
use crate::shared::Shared;

/// Entries of a page at most.
const ENTRIES_MAX: u64 = 200;
/// Bytes of a value that a page shows.
const PREVIEW_BYTES: usize = 96;
/// Longer values are not read for their preview, which stays empty.
const PREVIEWED_VALUE_MAX: u32 = 64 << 10;
/// Nor are values that come after so many bytes of them on a page.
const PREVIEWED_BYTES_MAX: u64 = 4 << 20;
/// Bytes of a value that are shown.
const VALUE_SHOWN_MAX: usize = 64 << 10;
/// What an entry of a page takes as JSON beside its key, at most: escaped letters of its preview, and names.
const ENTRY_JSON_BYTES_MAX: usize = 5 * PREVIEW_BYTES + 160;

#[derive(Debug, PartialEq, Serialize)]
struct KvEntry {
    key: Key,
    /// Its first bytes; empty where the value is too long to be read for that.
    value_preview: String,
    bytes: u64,
    version: String,
}

#[derive(Debug, Serialize)]
struct KvPage {
    entries: Vec<KvEntry>,
    /// What `from` is to be for the next page; none: this is the last.
    next: Option<String>,
}

/// Without the document's version: the entry's has that name.
#[derive(Debug, Serialize)]
struct KvValue {
    at_unix_ms: u64,
    age_ms: u64,
    key: Key,
    value: Value,
    version: String,
    node: u32,
    pair: u32,
    found_by: &'static str,
}

/// A value, or its beginning.
#[derive(Debug, PartialEq, Serialize)]
struct Value {
    /// None if it is no UTF-8.
    text: Option<String>,
    base64: String,
    /// Of the whole.
    bytes: usize,
    truncated: bool,
}

/// What a page is to have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PageWanted {
    prefix: Vec<u8>,
    /// Forward, the first key that is wanted; in reverse, the one that the wanted keys are below.
    from: Option<Vec<u8>>,
    reverse: bool,
    limit: usize,
}

/// `GET /api/v1/kv`.
pub(crate) async fn get_page(
    State(shared): State<Arc<Shared>>,
    mut params: Params,
) -> Result<Response, Problem> {
    let wanted = PageWanted {
        prefix: params.key("prefix")?.unwrap_or_default(),
        from: params.key("from")?.filter(|from| !from.is_empty()),
        reverse: params.flag("reverse")?,
        limit: usize::try_from(params.integer("limit", 1..=ENTRIES_MAX, 100)?).unwrap_or(1),
    };
    params.end()?;
    let page = shared.store.call("/query/from", move |client| read_page(client, &wanted)).await?;
    Ok(axum::Json(Document::of_node(page, shared.look().1)).into_response())
}

/// `GET /api/v1/kv/{key}`.
pub(crate) async fn get_value(
    State(shared): State<Arc<Shared>>,
    PathText(text): PathText<String>,
    params: Params,
) -> Result<Response, Problem> {
    const POINTER: &str = "/path/key";
    params.end()?;
    let key = parse_key(&text).map_err(|detail| {
        Problem::bad_request(FieldProblem { pointer: POINTER.to_owned(), detail, ..FieldProblem::default() })
    })?;
    let wanted = key.clone();
    let item = shared.store.call(POINTER, move |client| client.get(&wanted)).await?;
    let Some(Item { version, value }) = item else {
        return Err(Problem::not_found("There is no such key."));
    };
    let place = place(&shared, &key, POINTER).await?;
    let document = KvValue {
        at_unix_ms: now_unix_ms(),
        age_ms: milliseconds(shared.look().1),
        key: Key::new(&key),
        value: shown(&value),
        version: version.to_string(),
        node: place.node,
        pair: place.pair,
        found_by: "server",
    };
    Ok(axum::Json(document).into_response())
}

impl PageWanted {
    /// One entry more than the page has: whether there is a next page is known by it.
    fn range(&self) -> ScanRange {
        let mut range = ScanRange::prefix(&self.prefix);
        match (&self.from, self.reverse) {
            (Some(from), false) if *from > self.prefix => range.start = Bound::Included(from.clone()),
            (Some(from), true) => {
                let beyond = matches!(&range.end, Bound::Excluded(end) if end <= from);
                range.end = if beyond { range.end } else { Bound::Excluded(from.clone()) };
            }
            _ => {}
        }
        ScanRange { reverse: self.reverse, keys_only: true, limit: self.limit as u64 + 1, ..range }
    }

    /// How many of the entries that were found the page has: fewer where their keys are long.
    fn shown(&self, entries: &[ScanEntry]) -> usize {
        let up_to = |sum: &mut usize, entry: &ScanEntry| {
            *sum += Key::new(&entry.key).json_bytes() + ENTRY_JSON_BYTES_MAX;
            Some(*sum)
        };
        let fit = entries.iter().take(self.limit).scan(0, up_to);
        fit.take_while(|bytes| *bytes <= JSON_BYTES_MAX).count()
    }

    /// The key from which the next page goes on after so many entries.
    fn next(&self, entries: &[ScanEntry], shown: usize) -> Option<String> {
        let at = if self.reverse { shown.checked_sub(1)? } else { shown };
        let entry = entries.get(at).filter(|_| entries.len() > shown);
        entry.map(|entry| HEXLOWER.encode(&entry.key))
    }
}

fn read_page(client: &mut Client, wanted: &PageWanted) -> Result<KvPage, ClientError> {
    let mut found = client.scan(wanted.range()).collect::<Result<Vec<_>, _>>()?;
    let shown = wanted.shown(&found);
    let next = wanted.next(&found, shown);
    found.truncate(shown);
    let mut bytes = 0;
    let previewed = |entry: &&ScanEntry| {
        bytes += u64::from(entry.value_len);
        (1..=PREVIEWED_VALUE_MAX).contains(&entry.value_len) && bytes <= PREVIEWED_BYTES_MAX
    };
    let keys: Vec<&[u8]> = found.iter().filter(previewed).map(|entry| &*entry.key).collect();
    let mut values = keys.iter().zip(client.multi_get(&keys)?).peekable();
    let mut entries = Vec::with_capacity(found.len());
    for entry in &found {
        let item = values.next_if(|(key, _)| ***key == *entry.key).and_then(|(_, item)| item);
        // It may have been written again since it was listed.
        let (version, bytes) = match &item {
            Some(item) => (item.version, item.value.len() as u64),
            None => (entry.version, entry.value_len.into()),
        };
        let value_preview = item.map_or_else(String::new, |item| preview(&item.value));
        entries.push(KvEntry {
            key: Key::new(&entry.key),
            value_preview,
            bytes,
            version: version.to_string(),
        });
    }
    Ok(KvPage { entries, next })
}

fn preview(value: &[u8]) -> String {
    escaped(beginning(value, PREVIEW_BYTES))
}

/// At most so many of the first bytes; no letter is cut in two.
fn beginning(value: &[u8], most: usize) -> &[u8] {
    if value.len() <= most {
        return value;
    }
    let first = &value[..most];
    match std::str::from_utf8(first) {
        Err(error) if error.error_len().is_none() => &first[..error.valid_up_to()],
        _ => first,
    }
}

fn shown(value: &[u8]) -> Value {
    let whole = beginning(value, VALUE_SHOWN_MAX);
    // Letters that JSON escapes take up to six bytes each.
    let is_long = |text: &str| serde_json::to_string(text).is_ok_and(|json| json.len() > 2 * VALUE_SHOWN_MAX);
    let first = match std::str::from_utf8(whole) {
        Ok(text) if is_long(text) => beginning(value, VALUE_SHOWN_MAX / 4),
        _ => whole,
    };
    Value {
        text: std::str::from_utf8(first).ok().map(str::to_owned),
        base64: BASE64.encode(first),
        bytes: value.len(),
        truncated: first.len() < value.len(),
    }
}

#[cfg(test)]
mod tests {
    use cell_terms::Version;

    use super::*;
    use crate::api::conformity::covers;

    fn wanted(prefix: &[u8], from: &[u8], reverse: bool) -> PageWanted {
        let from = (!from.is_empty()).then(|| from.to_vec());
        PageWanted { prefix: prefix.to_vec(), from, reverse, limit: 2 }
    }

    fn bounds(wanted: &PageWanted) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let range = wanted.range();
        assert_eq!((range.reverse, range.limit, range.keys_only), (wanted.reverse, 3, true));
        (range.start, range.end)
    }

    #[test]
    fn range_is_the_prefix_cut_at_where_the_page_begins() {
        use Bound::{Excluded, Included};
        let b = |text: &str| text.as_bytes().to_vec();
        let end = Excluded(b("aq"));
        assert_eq!(bounds(&wanted(b"ap", b"", false)), (Included(b("ap")), end.clone()));
        assert_eq!(bounds(&wanted(b"ap", b"apm", false)), (Included(b("apm")), end.clone()));
        assert_eq!(bounds(&wanted(b"ap", b"a", false)), (Included(b("ap")), end.clone()));
        assert_eq!(bounds(&wanted(b"ap", b"", true)), (Included(b("ap")), end.clone()));
        assert_eq!(bounds(&wanted(b"ap", b"apm", true)), (Included(b("ap")), Excluded(b("apm"))));
        assert_eq!(bounds(&wanted(b"ap", b"z", true)), (Included(b("ap")), end));
        assert_eq!(bounds(&wanted(b"", b"m", true)).1, Excluded(b("m")));
    }

    #[test]
    fn answers_are_as_the_document_says() {
        let entry = KvEntry {
            key: Key::new(b"a"),
            value_preview: String::new(),
            bytes: 1,
            version: Version::default().to_string(),
        };
        let page = KvPage { entries: vec![entry], next: Some("61".to_owned()) };
        let page = Document::of_node(page, std::time::Duration::ZERO);
        covers("GET", "/api/v1/kv", &[serde_json::to_value(page).unwrap()]);
        let value = KvValue {
            at_unix_ms: 1,
            age_ms: 2,
            key: Key::new(b"a"),
            value: shown(b"b"),
            version: Version::default().to_string(),
            node: 0,
            pair: 1,
            found_by: "server",
        };
        covers("GET", "/api/v1/kv/61", &[serde_json::to_value(value).unwrap()]);
    }

    #[test]
    fn next_is_returned_when_there_is_more() {
        let entry = |key: &str| ScanEntry {
            key: key.as_bytes().to_vec(),
            version: Version::default(),
            value: Vec::new(),
            value_len: 0,
        };
        let entries = ["a", "b", "c"].map(entry);
        let next = |reverse, entries: &[ScanEntry]| {
            let wanted = wanted(b"", b"", reverse);
            wanted.next(entries, wanted.shown(entries))
        };
        assert_eq!(next(false, &entries).as_deref(), Some("63"));
        assert_eq!(next(true, &entries).as_deref(), Some("62"), "the next is below it");
        assert_eq!((next(false, &entries[..2]), next(true, &entries[..2])), (None, None));
        assert_eq!((next(false, &[]), next(true, &[])), (None, None));
    }

    #[test]
    fn page_of_the_longest_keys_has_fewer_entries_and_goes_on_after_them() {
        let entry = |at: u8| ScanEntry {
            key: [&[0; 799][..], &[at]].concat(),
            version: Version::default(),
            value: Vec::new(),
            value_len: 0,
        };
        let entries: Vec<ScanEntry> = (0..201).map(entry).collect();
        let wanted = PageWanted { limit: 200, ..PageWanted::default() };
        let shown = wanted.shown(&entries);
        let json: usize = entries[..shown].iter().map(|entry| Key::new(&entry.key).json_bytes()).sum();
        assert!(shown > 20 && json < JSON_BYTES_MAX, "{shown} entries, {json} bytes");
        assert_eq!(wanted.next(&entries, shown), Some(HEXLOWER.encode(&entries[shown].key)));
    }

    #[test]
    fn value_that_is_long_is_cut_between_letters_and_says_so() {
        let long = [vec![b'a'; VALUE_SHOWN_MAX - 1], "é…".as_bytes().to_vec()].concat();
        let value = shown(&long);
        assert!(value.truncated);
        assert_eq!((value.bytes, value.text.map(|text| text.len())), (long.len(), Some(VALUE_SHOWN_MAX - 1)));
        let value = shown(&[0xff; 10]);
        assert_eq!((value.text, value.bytes, value.truncated), (None, 10, false));
        assert_eq!(shown(b"").text.as_deref(), Some(""));
        let escaped = shown(&[0; VALUE_SHOWN_MAX]);
        assert!(escaped.truncated && serde_json::to_string(&escaped).unwrap().len() < JSON_BYTES_MAX);
        assert_eq!(preview(&[0xff; 1_000]).len(), 4 * PREVIEW_BYTES);
        assert_eq!(preview(b"a\nb"), r"a\x0ab");
    }
}
