//! A table of format version 1, as this version has it. Two things were other: each row lay whole under one
//! of sled's keys, and an incident's row (row format version 1) held its shares.

use crate::coordinator::KEY_FORMAT;
use crate::error::ClusterError;
use crate::incident;
use crate::pieces::{PREFIX_ROW_1, load_leases, load_meta, parse_bytes};
use crate::request::KeyValue;
use crate::row::ROW_FORMAT_VERSION;
use crate::store::{STORE_FORMAT_VERSION, StoreImage};

/// What a table of version 1 holds, brought to this version; none: it is of another version, or empty.
pub(crate) fn load_version_1(database: &sled::Db) -> Result<Option<StoreImage>, ClusterError> {
    let Some(mut meta) = load_meta(database)?.filter(|meta| meta.format == 1) else { return Ok(None) };
    meta.format = STORE_FORMAT_VERSION;
    let mut rows: Vec<KeyValue> = Vec::new();
    for row in database.scan_prefix([PREFIX_ROW_1]) {
        let (_, value) = row.map_err(ClusterError::Store)?;
        rows.push(parse_bytes("a key of the store", &value)?);
    }
    let rows_are_old = rows.iter().any(|row| row.key == KEY_FORMAT && row.value == "1");
    let mut keys = Vec::new();
    for row in rows {
        if rows_are_old {
            keys.extend(upgrade_row(row)?);
        } else {
            keys.push(row); // of a version that this one does not know: it is refused by that
        }
    }
    Ok(Some(StoreImage { meta, keys, leases: load_leases(database)? }))
}

/// The rows that one of row format version 1 becomes.
fn upgrade_row(row: KeyValue) -> Result<Vec<KeyValue>, ClusterError> {
    if row.key == KEY_FORMAT {
        return Ok(vec![KeyValue { value: ROW_FORMAT_VERSION.to_string(), ..row }]);
    }
    if incident::parse_key(&row.key).is_none() {
        return Ok(vec![row]);
    }
    let rows = incident::rows_of_version_1(&row.value)?.into_iter();
    Ok(rows.map(|(key, value)| KeyValue { key, value, ..row.clone() }).collect())
}
