//! An etcd in memory that understands what is said to its gateway, with failures that are ordered: as strict
//! as the real one in what it compares, and counts.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Cursor, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use data_encoding::BASE64;
use serde_json::{Value, json};

use crate::providers::etcd::gateway::{
    Complaint, PATH_AUTHENTICATE, PATH_COMPACT, PATH_RANGE, PATH_STATUS, PATH_TXN,
};
use crate::providers::etcd::post::{Gateway, PostFailure, Question};

const STEPS_MAX: usize = 128;
const TOO_LONG: &str = "grpc: received message larger than max (5000000 vs. 4194304)";

/// What happens to one question.
pub(super) enum FakeFault {
    /// The member is not reached.
    NotReached,
    /// No answer; it was not carried out.
    Lost,
    /// No answer; it was carried out.
    AnswerLost,
    /// No answer; it is carried out before the next question.
    Late,
    /// The member complains in place of carrying it out.
    Complains(u16, &'static str),
    /// Something else happens before it arrives.
    After(Box<dyn FnOnce(&FakeEtcd) + Send>),
}

#[derive(Clone, Debug)]
struct Stored {
    value: Vec<u8>,
    created: u64,
    modified: u64,
}

#[derive(Clone, Debug)]
struct Event {
    revision: u64,
    key: Vec<u8>,
    value: Option<Stored>,
}

#[derive(Default)]
struct State {
    /// Its id.
    cluster: u64,
    keys: BTreeMap<Vec<u8>, Stored>,
    revision: u64,
    compacted: u64,
    events: Vec<Event>,
    faults: VecDeque<Option<FakeFault>>,
    late: Vec<(String, String)>,
    /// The members that were asked, in order.
    asked: Vec<usize>,
    /// The token that counts, if one is wanted.
    token: Option<String>,
    /// The password that is taken; none: each.
    password: Option<String>,
    log_ins: usize,
    /// How long etcd takes for each. Nobody waits for that: who gives it less has no answer.
    log_in_takes: Duration,
    /// Members that are none of etcd's, and what they answer: HTTP's status, and a text.
    strangers: BTreeMap<usize, (u16, &'static str)>,
    /// Members in whose place one of another cluster answers.
    replaced: BTreeMap<usize, FakeEtcd>,
    /// What the gateway takes at a time, as that of before 3.4.17; none: all.
    answer_bytes_max: Option<usize>,
}

/// Clones are the same one.
#[derive(Clone)]
pub(super) struct FakeEtcd {
    members: usize,
    state: Arc<Mutex<State>>,
    /// Whether log-ins wait.
    held: Arc<(Mutex<bool>, Condvar)>,
}

fn bytes(value: &Value) -> Vec<u8> {
    BASE64.decode(value.as_str().unwrap_or_default().as_bytes()).unwrap()
}

fn number(value: &Value) -> u64 {
    value.as_str().map_or(0, |text| text.parse().unwrap())
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

impl Stored {
    fn to_json(&self, key: &[u8]) -> Value {
        let mut kv = json!({
            "key": BASE64.encode(key), "create_revision": self.created.to_string(),
            "mod_revision": self.modified.to_string(),
        });
        if !self.value.is_empty() {
            kv["value"] = Value::from(BASE64.encode(&self.value));
        }
        kv
    }
}

impl Event {
    fn to_json(&self) -> Value {
        match &self.value {
            Some(stored) => json!({"kv": stored.to_json(&self.key)}),
            None => json!({"type": "DELETE", "kv": {
                "key": BASE64.encode(&self.key), "mod_revision": self.revision.to_string(),
            }}),
        }
    }
}

impl State {
    fn header(&self) -> Value {
        json!({"cluster_id": self.cluster.to_string(), "revision": self.revision.to_string()})
    }

    fn in_range(&self, question: &Value) -> Vec<(Vec<u8>, Stored)> {
        let from = bytes(&question["key"]);
        let end = question.get("range_end").map(bytes);
        let is_in = |key: &Vec<u8>| end.as_ref().map_or(*key == from, |end| *key >= from && key < end);
        self.keys
            .iter()
            .filter(|(key, _)| is_in(key))
            .map(|(key, stored)| (key.clone(), stored.clone()))
            .collect()
    }

    fn range(&self, question: &Value) -> Value {
        let found = self.in_range(question);
        let limit = question.get("limit").map_or(usize::MAX, |limit| usize::try_from(number(limit)).unwrap());
        let is_count = question["count_only"] == true;
        let shown = found.iter().take(if is_count { 0 } else { limit });
        let kvs: Vec<Value> = shown.map(|(key, stored)| stored.to_json(key)).collect();
        let mut answer = json!({"header": self.header()});
        if !found.is_empty() {
            answer["count"] = Value::from(found.len().to_string());
        }
        if found.len() > limit {
            answer["more"] = Value::from(true);
        }
        if !kvs.is_empty() {
            answer["kvs"] = Value::from(kvs);
        }
        answer
    }

    fn holds(&self, compare: &Value) -> bool {
        let found = self.in_range(compare);
        let is = |stored: Option<&Stored>| {
            let number_of = |name: &str, present: u64| (present, number(&compare[name]));
            let (left, right) = match compare["target"].as_str().unwrap() {
                "CREATE" => number_of("create_revision", stored.map_or(0, |stored| stored.created)),
                "MOD" => number_of("mod_revision", stored.map_or(0, |stored| stored.modified)),
                "VALUE" => return stored.is_some_and(|stored| stored.value == bytes(&compare["value"])),
                other => panic!("{other}"),
            };
            match compare["result"].as_str().unwrap() {
                "EQUAL" => left == right,
                "GREATER" => left > right,
                "LESS" => left < right,
                other => panic!("{other}"),
            }
        };
        if compare.get("range_end").is_some() {
            return found.iter().all(|(_, stored)| is(Some(stored)));
        }
        is(found.first().map(|(_, stored)| stored))
    }

    /// Whether it is within etcd's limit, which what is nested shares.
    fn is_within(txn: &Value, limit: usize) -> bool {
        let lists = ["compare", "success", "failure"].map(|name| list(&txn[name]));
        let most = lists.iter().map(|list| list.len()).max().unwrap_or(0);
        let mut nested = lists.iter().flat_map(|list| list.iter()).filter_map(|step| step.get("request_txn"));
        most <= limit && nested.all(|inner| State::is_within(inner, limit - most))
    }

    /// Which of its branches is taken is decided before anything of it is carried out.
    fn decide(&self, txn: &Value) -> Value {
        let holds = list(&txn["compare"]).iter().all(|compare| self.holds(compare));
        let steps = list(&txn[if holds { "success" } else { "failure" }]).iter();
        let steps: Vec<Value> = steps
            .map(|step| match step.get("request_txn") {
                Some(inner) => json!({"decided": self.decide(inner)}),
                None => step.clone(),
            })
            .collect();
        json!({"succeeded": holds, "steps": steps})
    }

    fn apply(&mut self, decided: &Value, revision: u64) -> Value {
        let mut responses = Vec::new();
        for step in list(&decided["steps"]) {
            if let Some(inner) = step.get("decided") {
                responses.push(json!({"response_txn": self.apply(inner, revision)}));
            } else if let Some(question) = step.get("request_range") {
                responses.push(json!({"response_range": self.range(question)}));
            } else if let Some(put) = step.get("request_put") {
                let (key, value) = (bytes(&put["key"]), bytes(&put["value"]));
                let created = self.keys.get(&key).map_or(revision, |stored| stored.created);
                let stored = Stored { value, created, modified: revision };
                self.events.push(Event { revision, key: key.clone(), value: Some(stored.clone()) });
                self.keys.insert(key, stored);
                responses.push(json!({"response_put": {}}));
            } else if let Some(delete) = step.get("request_delete_range") {
                for (key, _) in self.in_range(delete) {
                    self.keys.remove(&key);
                    self.events.push(Event { revision, key, value: None });
                }
                responses.push(json!({"response_delete_range": {}}));
            }
        }
        let mut answer = json!({"responses": responses});
        if decided["succeeded"] == true {
            answer["succeeded"] = Value::from(true);
        }
        answer
    }

    fn txn(&mut self, txn: &Value) -> Value {
        let (decided, before) = (self.decide(txn), self.events.len());
        let revision = self.revision + 1;
        let mut answer = self.apply(&decided, revision);
        if self.events.len() > before {
            self.revision = revision;
        }
        answer["header"] = self.header();
        answer
    }

    /// What a watch says. Where that is not wanted in fragments, it is one line.
    fn watch(&self, create: &Value) -> String {
        let (from, key, end) =
            (number(&create["start_revision"]), bytes(&create["key"]), bytes(&create["range_end"]));
        let mut text = json!({"result": {"header": self.header(), "created": true}}).to_string() + "\n";
        if from <= self.compacted {
            let compacted = (self.compacted + 1).to_string();
            let line = json!({"result": {"canceled": true, "compact_revision": compacted}});
            text += &(line.to_string() + "\n");
        }
        let events = self.events.iter().filter(|event| event.revision >= from);
        let events = events.filter(|event| event.key >= key && event.key < end);
        let events: Vec<Value> = events.map(Event::to_json).collect();
        let size = if create["fragment"] == true { 1 } else { events.len().max(1) };
        for some in events.chunks(size) {
            let line = json!({"result": {"header": self.header(), "events": some}}).to_string();
            let is_long = self.answer_bytes_max.is_some_and(|most| line.len() > most);
            let too_long = || json!({"error": {"grpc_code": 8, "message": TOO_LONG}}).to_string();
            text += &if is_long { too_long() } else { line };
            text.push('\n');
        }
        text
    }

    fn log_in(&mut self, question: &Value) -> Result<Value, PostFailure> {
        if self.password.as_ref().is_some_and(|password| question["password"] != password.as_str()) {
            let words = "etcdserver: authentication failed, invalid user ID or password";
            return Err(complaint(400, 3, words));
        }
        Ok(json!({"header": self.header(), "token": self.token.clone().unwrap()}))
    }

    fn carry_out(&mut self, path: &str, body: &str) -> Result<Value, PostFailure> {
        let question: Value = serde_json::from_str(body).unwrap();
        match path {
            PATH_TXN if !State::is_within(&question, STEPS_MAX) => {
                Err(complaint(400, 3, "etcdserver: too many operations in txn request"))
            }
            PATH_TXN => Ok(self.txn(&question)),
            PATH_RANGE => Ok(self.range(&question)),
            PATH_STATUS => Ok(json!({"header": self.header(), "version": "3.4.23"})),
            PATH_COMPACT => {
                self.compacted = number(&question["revision"]);
                let compacted = self.compacted;
                self.events.retain(|event| event.revision > compacted);
                Ok(json!({"header": self.header()}))
            }
            PATH_AUTHENTICATE => self.log_in(&question),
            other => panic!("{other}"),
        }
    }
}

fn complaint(status: u16, code: u32, message: &str) -> PostFailure {
    let text = json!({"error": message, "message": message, "code": code}).to_string();
    PostFailure::Complained(Complaint::read(status, text.as_bytes()))
}

impl FakeEtcd {
    pub(super) fn new(members: usize) -> FakeEtcd {
        FakeEtcd::of_cluster(members, 7)
    }

    /// One with this id.
    pub(super) fn of_cluster(members: usize, cluster: u64) -> FakeEtcd {
        let state = State { cluster, revision: 1, ..State::default() };
        FakeEtcd { members, state: Arc::new(Mutex::new(state)), held: Arc::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What happens to the next questions, in order; none: it is answered.
    pub(super) fn plan(&self, faults: impl IntoIterator<Item = Option<FakeFault>>) {
        self.state().faults.extend(faults);
    }

    /// From now on only who has logged in is answered: by this token.
    pub(super) fn want_token(&self, token: &str) {
        self.state().token = Some(token.to_owned());
    }

    /// From now on who logs in has to know this.
    pub(super) fn want_password(&self, password: &str) {
        self.state().password = Some(password.to_owned());
    }

    /// From now on each log-in takes so long.
    pub(super) fn take_for_log_ins(&self, each: Duration) {
        self.state().log_in_takes = each;
    }

    /// From now on log-ins wait, or go on.
    pub(super) fn hold_log_ins(&self, is_held: bool) {
        let (held, changed) = &*self.held;
        *held.lock().unwrap_or_else(PoisonError::into_inner) = is_held;
        changed.notify_all();
    }

    /// A log-in comes, and is waited for so long.
    fn begin_log_in(&self, patience: Duration) -> Result<(), PostFailure> {
        let takes = {
            let mut state = self.state();
            state.log_ins += 1;
            state.log_in_takes
        };
        if takes > patience {
            return Err(PostFailure::Unanswered { sent: true, source: io::ErrorKind::TimedOut.into() });
        }
        let (held, changed) = &*self.held;
        let held = held.lock().unwrap_or_else(PoisonError::into_inner);
        drop(changed.wait_while(held, |is_held| *is_held).unwrap_or_else(PoisonError::into_inner));
        Ok(())
    }

    /// How often somebody logged in, or tried to, since this was asked last.
    pub(super) fn take_log_ins(&self) -> usize {
        std::mem::take(&mut self.state().log_ins)
    }

    /// From now on it is not etcd that answers there.
    pub(super) fn make_stranger(&self, member: usize, status: u16, text: &'static str) {
        self.state().strangers.insert(member, (status, text));
    }

    /// From now on a member of another cluster answers there.
    pub(super) fn replace(&self, member: usize, by: &FakeEtcd) {
        self.state().replaced.insert(member, by.clone());
    }

    fn replaced(&self, member: usize) -> Option<FakeEtcd> {
        self.state().replaced.get(&member).cloned()
    }

    /// From now on an answer, or a line of a watch, that is longer than this is none.
    pub(super) fn limit_answers(&self, bytes: usize) {
        self.state().answer_bytes_max = Some(bytes);
    }

    fn answer_of_stranger(&self, member: usize) -> Option<Result<Vec<u8>, PostFailure>> {
        let (status, text) = *self.state().strangers.get(&member)?;
        Some(match status {
            200 => Ok(text.as_bytes().to_vec()),
            _ => Err(PostFailure::Complained(Complaint::read(status, text.as_bytes()))),
        })
    }

    /// Its revision, and the one up to which it has forgotten all.
    pub(super) fn revisions(&self) -> (u64, u64) {
        let state = self.state();
        (state.revision, state.compacted)
    }

    /// Forgets all up to now.
    pub(super) fn compact(&self) {
        let mut state = self.state();
        state.compacted = state.revision;
        state.events.clear();
    }

    /// The state is an earlier one's.
    pub(super) fn restore(&self, backup: &FakeEtcd) {
        let backup = backup.state();
        let (keys, revision) = (backup.keys.clone(), backup.revision);
        let mut state = self.state();
        (state.keys, state.revision) = (keys, revision);
        state.events.clear();
    }

    /// A copy of what is there.
    pub(super) fn backup(&self) -> FakeEtcd {
        let copy = FakeEtcd::new(self.members);
        copy.restore(self);
        copy
    }

    /// Somebody else has written this key.
    pub(super) fn set(&self, key: &str, value: &str) {
        let mut state = self.state();
        state.revision += 1;
        let revision = state.revision;
        let stored = Stored { value: value.as_bytes().to_vec(), created: revision, modified: revision };
        state.keys.insert(key.as_bytes().to_vec(), stored);
    }

    /// The members that were asked since this was asked last.
    pub(super) fn take_asked(&self) -> Vec<usize> {
        std::mem::take(&mut self.state().asked)
    }

    /// All keys, as text.
    pub(super) fn keys(&self) -> Vec<String> {
        self.state().keys.keys().map(|key| String::from_utf8_lossy(key).into_owned()).collect()
    }

    /// One question of which the next fault decides.
    fn question<T>(
        &self,
        member: usize,
        carry_out: impl Fn(&mut State) -> Result<T, PostFailure>,
        late: (&str, &str),
    ) -> Result<T, PostFailure> {
        let fault = {
            let mut state = self.state();
            state.asked.push(member);
            for (path, body) in std::mem::take(&mut state.late) {
                let _ = state.carry_out(&path, &body);
            }
            state.faults.pop_front().flatten()
        };
        let unanswered = |sent| Err(PostFailure::Unanswered { sent, source: io::ErrorKind::TimedOut.into() });
        match fault {
            Some(FakeFault::NotReached) => unanswered(false),
            Some(FakeFault::Lost) => unanswered(true),
            Some(FakeFault::AnswerLost) => {
                let _ = carry_out(&mut self.state());
                unanswered(true)
            }
            Some(FakeFault::Late) => {
                self.state().late.push((late.0.to_owned(), late.1.to_owned()));
                unanswered(true)
            }
            Some(FakeFault::Complains(status, text)) => {
                Err(PostFailure::Complained(Complaint::read(status, text.as_bytes())))
            }
            Some(FakeFault::After(happens)) => {
                happens(self);
                carry_out(&mut self.state())
            }
            None => carry_out(&mut self.state()),
        }
    }

    fn check(state: &State, path: &str, token: Option<&str>) -> Result<(), PostFailure> {
        match &state.token {
            Some(wanted)
                if ![PATH_AUTHENTICATE, PATH_STATUS].contains(&path) && token != Some(wanted.as_str()) =>
            {
                Err(complaint(401, 16, "etcdserver: invalid auth token"))
            }
            _ => Ok(()),
        }
    }
}

impl Gateway for FakeEtcd {
    fn members(&self) -> usize {
        self.members
    }

    fn endpoint(&self, _: usize) -> &str {
        "fake"
    }

    fn post(&self, question: Question<'_>) -> Result<Vec<u8>, PostFailure> {
        let Question { member, path, body, token, times } = question;
        if let Some(answer) = self.answer_of_stranger(member) {
            return answer;
        }
        if let Some(other) = self.replaced(member) {
            return other.post(question);
        }
        if path == PATH_AUTHENTICATE {
            self.begin_log_in(times.whole)?;
        }
        let carry_out = |state: &mut State| {
            FakeEtcd::check(state, path, token)?;
            let answer = state.carry_out(path, body)?.to_string();
            if state.answer_bytes_max.is_some_and(|most| answer.len() > most) {
                return Err(complaint(429, 8, TOO_LONG));
            }
            Ok(answer.into_bytes())
        };
        self.question(member, carry_out, (path, body))
    }

    /// What was kept of changes, and the end.
    fn open(&self, question: Question<'_>) -> Result<Box<dyn Read + Send>, PostFailure> {
        let Question { member, path, body, token, .. } = question;
        if let Some(answer) = self.answer_of_stranger(member) {
            return answer.map(|text| -> Box<dyn Read + Send> { Box::new(Cursor::new(text)) });
        }
        if let Some(other) = self.replaced(member) {
            return other.open(question);
        }
        let question: Value = serde_json::from_str(body).unwrap();
        let create = &question["create_request"];
        let carry_out = |state: &mut State| {
            FakeEtcd::check(state, path, token)?;
            Ok(state.watch(create))
        };
        let text = self.question(member, carry_out, (PATH_RANGE, r#"{"key":""}"#))?;
        Ok(Box::new(Cursor::new(text.into_bytes())))
    }
}
