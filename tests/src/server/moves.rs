//! Planned moves of pairs, by the admin API.

use serde_json::{Value, json};

use super::Server;
use crate::wait;

impl Server {
    /// Asks a node for the move of a pair to another node, as it shows it: status and document, of the
    /// preview if that is refused.
    ///
    /// # Panics
    /// If it does not answer, or not in JSON.
    pub fn ask_move(&self, asked: u16, pair: u64, to: u64) -> (u16, Value) {
        self.try_move(asked, pair, to).expect("the node answers in JSON")
    }

    /// As [`Self::ask_move`]; none if nobody answers just now. The move may have started all the same.
    pub fn try_move(&self, asked: u16, pair: u64, to: u64) -> Option<(u16, Value)> {
        let wanted = json!({"pair": pair, "to": to}).to_string();
        let (status, shown) = self.http_post(asked, "/api/v1/moves?dry_run=1", &wanted)?;
        let shown: Value = serde_json::from_str(&shown).ok()?;
        let revision = shown["move"]["revision"].as_str().map(str::to_owned);
        let Some(revision) = revision.filter(|_| status == 200) else { return Some((status, shown)) };
        let (status, body) = self.http_post_as_seen(asked, "/api/v1/moves", &revision, &wanted)?;
        Some((status, serde_json::from_str(&body).ok()?))
    }

    /// The move of a pair that is under way, or was the last one, as a node shows it; none if there was none,
    /// or nobody answers just now.
    pub fn move_of(&self, asked: u16, pair: u64) -> Option<Value> {
        let (_, body) =
            self.http_of(asked, "/api/v1/moves?limit=65536").filter(|(status, _)| *status == 200)?;
        let document: Value = serde_json::from_str(&body).ok()?;
        document["moves"].as_array()?.iter().find(|of| of["pair"] == pair).cloned()
    }

    /// Whether a move of a pair is under way, as a node shows it; none if nobody answers just now.
    pub fn is_moving(&self, asked: u16, pair: u64) -> Option<bool> {
        let (_, body) =
            self.http_of(asked, "/api/v1/moves?limit=65536").filter(|(status, _)| *status == 200)?;
        let document: Value = serde_json::from_str(&body).ok()?;
        let mut rows = document["moves"].as_array()?.iter();
        Some(rows.any(|of| of["pair"] == pair && of["outcome"].is_null()))
    }

    /// Waits until the last move of a pair is as wanted.
    ///
    /// # Panics
    /// If it never is.
    pub fn wait_move(&self, asked: u16, pair: u64, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut last = None;
        let what = format!("the move of pair {pair} is {what}");
        wait::until_some(&what, || {
            let found = self.move_of(asked, pair);
            if found.is_some() && found != last {
                last.clone_from(&found);
                println!("{}", last.as_ref().map_or_else(String::new, Value::to_string));
            }
            found.filter(&wanted)
        })
    }
}
