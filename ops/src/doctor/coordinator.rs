//! The coordinator: whether it answers, how soon, and whether it takes writes. One that only reads renews no
//! lease: nodes are silent, and nothing else says why.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use cell_cluster::{
    COORDINATOR_BYTES_MIN, ClusterError, Coordinator, CoordinatorRefusal, KEY_DOCTOR, KeyCondition,
    Transaction, TransactionOutcome,
};
use cell_terms::setting::Settings;
use rustix::fs::{Access, access, statvfs};

use super::finding::{Finding, milliseconds, percentiles};
use super::trouble::{DISK_NEXT, Trouble};
use crate::etcd_settings;
use crate::output::number::bytes;
use crate::process_settings::{EMBEDDED, ETCD};
use crate::provider::Provider;

const COORDINATOR: &str = "coordinator";
/// Reads that are counted.
const CALLS: usize = 50;
/// What helps where nobody answers.
const START: &str = "start it; see coordinator_address, whose the socket is, which token is shown";
const START_ETCD: &str = "do as it says, start what is silent, or see etcd_endpoints and its certificates";
/// What helps where reads are answered, and a write is not.
const SLOW_WRITES: &str = "see what keeps its disk, and a longer coordinator_deadline_ms: it answers reads";

pub(super) fn look(settings: &Settings) -> Finding {
    let [deadline, lease] =
        ["coordinator_deadline_ms", "lease_ms"].map(|name| Duration::from_millis(settings.integer(name)));
    match settings.text("coordinator_address") {
        EMBEDDED => embedded(Path::new(settings.text("data_dir"))),
        ETCD => match etcd_settings::open_each(settings) {
            Ok(members) => {
                let members = members.into_iter().map(|(place, member)| {
                    let answer = read_often(&member, START_ETCD);
                    let write = if answer.is_ok() { try_etcd(&member) } else { Ok(()) };
                    EtcdMember { place, answer, write, cluster: member.cluster_id(), id: member.member_id() }
                });
                of_etcd(&members.collect::<Vec<_>>(), lease)
            }
            Err(failure) => Finding::bad(COORDINATOR, failure.what, "see the settings that begin with etcd_"),
        },
        place => match ask(place, settings, deadline) {
            Ok((reads, write)) => of_write(reads, write, lease),
            Err(Trouble { why, next }) => {
                Finding::bad(COORDINATOR, format!("{place} does not answer: {why}"), next)
            }
        },
    }
}

/// The node's own process has it, and its table in the data folder, or where that is going to be.
fn embedded(data: &Path) -> Finding {
    const NEXT: &str =
        "give data_dir to the user that runs the node, on a file system that is mounted for writing";
    let there = data.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("."));
    let place = there.display();
    if let Err(errno) = access(there, Access::WRITE_OK | Access::EXEC_OK) {
        let seen = format!("embedded: its table cannot be written in {place}: {errno}");
        return Finding::bad(COORDINATOR, seen, NEXT);
    }
    match statvfs(there).map(|found| found.f_bavail.saturating_mul(found.f_frsize)) {
        Ok(free) if free < COORDINATOR_BYTES_MIN => {
            let (free, needed) = (bytes(free), bytes(COORDINATOR_BYTES_MIN));
            let seen = format!("embedded: {place} has {free} left, and its table takes {needed} at first");
            Finding::doubtful(COORDINATOR, seen, DISK_NEXT)
        }
        _ => Finding::well(COORDINATOR, "embedded: in the node's own process"),
    }
}

/// What reads of the coordinator at a socket, or over TLS, took, and whether it took a write; else why it
/// cannot be asked.
fn ask(place: &str, settings: &Settings, deadline: Duration) -> Result<(Reads, Write), Trouble> {
    let provider = Provider::open(place, settings, deadline);
    let provider = provider.map_err(|failure| Trouble { why: failure.what, next: START })?;
    let reads = read_often(&provider, START)?;
    Ok((reads, try_write(&provider)))
}

/// How a coordinator of Cell's own took a write.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Write {
    Taken,
    /// From its reserve: of others it takes none.
    OnReserve,
    /// Why not.
    Refused(Trouble),
}

/// Writes a row, and removes it, also one that a doctor has left that was killed. A row that is refused
/// because of the disk is tried as a lease would be, which may have the reserve.
fn try_write(coordinator: &dyn Coordinator) -> Write {
    let put = Transaction::new().put(KEY_DOCTOR, "");
    let (written, taken) = match coordinator.transact(put.clone().dispensable()) {
        Err(ClusterError::Refused(CoordinatorRefusal::NoRoom)) => {
            (coordinator.transact(put), Write::OnReserve)
        }
        written => (written, Write::Taken),
    };
    match written.and_then(|_| coordinator.transact(Transaction::new().delete(KEY_DOCTOR))) {
        Ok(_) => taken,
        Err(error) => Write::Refused(Trouble::of(&error, SLOW_WRITES)),
    }
}

/// Asks etcd for a write that it never does, because its conditions exclude each other. It goes through the
/// log of all members all the same, and is refused where a write would be: by an alarm, for want of rights.
fn try_etcd(member: &dyn Coordinator) -> Result<(), Trouble> {
    let key = || KEY_DOCTOR.to_owned();
    let never = Transaction::new()
        .when(KeyCondition::Absent { key: key() })
        .when(KeyCondition::Revision { key: key(), revision: 1 })
        .put(KEY_DOCTOR, "");
    match member.transact(never) {
        Ok(TransactionOutcome::Refused { .. }) => Ok(()),
        Ok(TransactionOutcome::Applied { .. }) => {
            let (why, next) = ("it did what its conditions exclude", "see etcd_endpoints: that is no etcd");
            Err(Trouble { why: why.to_owned(), next })
        }
        Err(error) => Err(Trouble::of(&error, SLOW_WRITES)),
    }
}

fn of_write(reads: Reads, write: Write, lease: Duration) -> Finding {
    let seen = reads.words();
    match write {
        Write::Taken => of_reads(format!("{seen}; it takes writes"), reads.late, lease),
        Write::OnReserve => {
            let seen = format!("{seen}; its disk is full, and it writes what leases need from its reserve");
            Finding::doubtful(COORDINATOR, seen, DISK_NEXT)
        }
        Write::Refused(Trouble { why, next }) => {
            Finding::bad(COORDINATOR, format!("{seen}; it reads, and takes no write: {why}"), next)
        }
    }
}

/// What reads of a coordinator took.
#[derive(Clone, Copy, Debug)]
struct Reads {
    middle: Duration,
    /// The 99th of a hundred.
    late: Duration,
}

impl Reads {
    fn words(self) -> String {
        format!("{CALLS} reads: p50 {}, p99 {}", milliseconds(self.middle), milliseconds(self.late))
    }
}

/// Reads, after one read that connects and logs in and is not counted; else why there is no answer, which
/// `unanswered` helps against where nobody is there.
fn read_often(coordinator: &dyn Coordinator, unanswered: &'static str) -> Result<Reads, Trouble> {
    let mut times = Vec::with_capacity(CALLS);
    for call in 0..=CALLS {
        let before = Instant::now();
        coordinator.read("cluster/terms").map_err(|error| Trouble::of(&error, unanswered))?;
        if call > 0 {
            times.push(before.elapsed());
        }
    }
    let (middle, late) = percentiles(&mut times).unwrap_or_default();
    Ok(Reads { middle, late })
}

fn of_reads(seen: String, late: Duration, lease: Duration) -> Finding {
    if late > lease / 10 {
        return Finding::doubtful(COORDINATOR, seen, "a longer lease_ms, or a coordinator that is less busy");
    }
    Finding::well(COORDINATOR, seen)
}

/// A member of etcd that was asked by itself.
struct EtcdMember {
    place: String,
    answer: Result<Reads, Trouble>,
    /// Whether it takes writes; of one that does not answer nothing is said.
    write: Result<(), Trouble>,
    /// Which cluster of etcd it is of; none: it has not said.
    cluster: Option<u64>,
    /// Which member it is; none: it has not said.
    id: Option<u64>,
}

/// Of the members of etcd. One that answers has most of the others.
fn of_etcd(members: &[EtcdMember], lease: Duration) -> Finding {
    const ONE_CLUSTER: &str = "leave in etcd_endpoints the members of one cluster: no node starts with these";
    const ONE_MEMBER: &str =
        "name each member once in etcd_endpoints: there are fewer than it seems, and one is asked again";
    let clusters: BTreeSet<u64> = members.iter().filter_map(|member| member.cluster).collect();
    let words = members.iter().map(|EtcdMember { place, answer, write, cluster, .. }| {
        let of = cluster.filter(|_| clusters.len() > 1).map(|id| format!(" of the cluster {id:x}"));
        let of = of.unwrap_or_default();
        match (answer, write) {
            (Ok(reads), Ok(())) => format!("{place}{of}: {}", reads.words()),
            (Ok(reads), Err(trouble)) => {
                format!("{place}{of}: {}, and it takes no write: {}", reads.words(), trouble.why)
            }
            (Err(trouble), _) => format!("{place}{of} does not answer: {}", trouble.why),
        }
    });
    let seen = words.collect::<Vec<_>>().join("; ");
    if clusters.len() > 1 {
        return Finding::bad(COORDINATOR, seen, ONE_CLUSTER);
    }
    if let Some(refused) = members.iter().find_map(|member| member.write.as_ref().err()) {
        return Finding::bad(COORDINATOR, seen, refused.next);
    }
    if let Some((one, other)) = named_twice(members) {
        let seen = format!("{one} and {other} are one member; {seen}");
        return Finding::doubtful(COORDINATOR, seen, ONE_MEMBER);
    }
    let answered = members.iter().filter_map(|member| member.answer.as_ref().ok());
    let silent = members.iter().find_map(|member| member.answer.as_ref().err()).map(|trouble| trouble.next);
    match (answered.map(|reads| reads.late).max(), silent) {
        (None, next) => Finding::bad(COORDINATOR, seen, next.unwrap_or(START_ETCD)),
        (Some(_), Some(next)) => Finding::doubtful(COORDINATOR, seen, next),
        (Some(late), None) => of_reads(seen, late, lease),
    }
}

/// The first two places at which the same member answers.
fn named_twice(members: &[EtcdMember]) -> Option<(&str, &str)> {
    members.iter().enumerate().find_map(|(at, member)| {
        let id = member.id?;
        let other = members[at + 1..].iter().find(|other| other.id == Some(id))?;
        Some((&*member.place, &*other.place))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use cell_cluster::{CoordinatorRequest, EtcdError, KeyOperation, Response};

    use super::*;
    use crate::doctor::Health;

    fn trouble(why: &str, next: &'static str) -> Trouble {
        Trouble { why: why.to_owned(), next }
    }

    /// A member that has answered so late; none: not at all.
    fn member(late_ms: Option<u64>, cluster: u64) -> EtcdMember {
        let late = late_ms.map(Duration::from_millis).ok_or_else(|| trouble("refused", START_ETCD));
        let answer = late.map(|late| Reads { middle: Duration::ZERO, late });
        let place = "http://etcd:2379".to_owned();
        EtcdMember { place, answer, write: Ok(()), cluster: late_ms.map(|_| cluster), id: None }
    }

    #[test]
    fn etcd_is_bad_when_members_are_of_different_clusters() {
        let lease = Duration::from_secs(5);
        let apart = of_etcd(&[member(Some(1), 0xa1), member(Some(1), 0xb2), member(None, 0)], lease);
        assert_eq!(apart.health, Health::Bad);
        assert!(apart.seen.contains("http://etcd:2379 of the cluster b2: "), "{}", apart.seen);
        let one = of_etcd(&[member(Some(1), 0xa1), member(Some(1), 0xa1)], lease);
        assert!(one.health == Health::Well && !one.seen.contains("cluster"), "{one:?}");
    }

    #[test]
    fn etcd_is_bad_when_no_member_answers_and_doubtful_when_one_does_not_or_is_slow() {
        let lease = Duration::from_secs(5);
        let of = |members: &[Option<u64>]| {
            let members = members.iter().map(|late| member(*late, 7));
            of_etcd(&members.collect::<Vec<_>>(), lease)
        };
        assert_eq!(of(&[Some(1), Some(500), Some(2)]).health, Health::Well);
        assert_eq!(of(&[Some(1), Some(501), Some(2)]).health, Health::Doubtful);
        let silent = of(&[Some(1), None, Some(2)]);
        assert_eq!(silent.health, Health::Doubtful);
        assert!(silent.seen.contains("http://etcd:2379 does not answer: refused"), "{}", silent.seen);
        assert!(silent.next.is_some_and(|next| next.contains("etcd_endpoints")));
        assert_eq!(of(&[None, None]).health, Health::Bad);
    }

    /// All nodes were silent, and it was well.
    #[test]
    fn etcd_that_takes_no_write_is_bad() {
        let lease = Duration::from_secs(5);
        let alarm = ClusterError::Refused(CoordinatorRefusal::SpaceAlarm);
        let alarmed = || EtcdMember { write: Err(Trouble::of(&alarm, SLOW_WRITES)), ..member(Some(1), 7) };
        let found = of_etcd(&[member(Some(1), 7), alarmed()], lease);
        assert_eq!(found.health, Health::Bad);
        assert!(found.seen.contains("takes no write: the coordinator refused"), "{}", found.seen);
        assert!(found.next.is_some_and(|next| next.contains("docs/HANDBOOK.md")));
    }

    /// Space was advised where a right was missing, and a member to be started where a password was wrong.
    #[test]
    fn etcd_that_refuses_is_helped_against_by_its_reason() {
        let lease = Duration::from_secs(5);
        let right = ClusterError::from(EtcdError::Permission { prefix: "cell/".into() });
        let forbidden = EtcdMember { write: Err(Trouble::of(&right, SLOW_WRITES)), ..member(Some(1), 7) };
        assert!(of_etcd(&[forbidden], lease).next.is_some_and(|next| next.contains("readwrite")));
        let password = ClusterError::from(EtcdError::Credentials);
        let unknown = || EtcdMember { answer: Err(Trouble::of(&password, START_ETCD)), ..member(None, 7) };
        let of = of_etcd(&[unknown(), unknown()], lease);
        assert!(of.next.is_some_and(|next| next.contains("etcd_password_file")), "{of:?}");
    }

    #[test]
    fn etcd_is_doubtful_when_one_member_has_two_names() {
        let lease = Duration::from_secs(5);
        let of = |ids: &[u64]| {
            let named = |id: &u64| EtcdMember { id: Some(*id), ..member(Some(1), 7) };
            of_etcd(&ids.iter().map(named).collect::<Vec<_>>(), lease)
        };
        assert_eq!(of(&[1, 2, 3]).health, Health::Well);
        let twice = of(&[1, 2, 1]);
        assert!(twice.health == Health::Doubtful && twice.seen.contains("are one member"), "{twice:?}");
    }

    /// Refuses writes for want of room: all, or those alone that may wait.
    struct Full {
        reserve: bool,
        rows: Mutex<Vec<String>>,
    }

    impl Coordinator for Full {
        fn call(&self, request: &CoordinatorRequest) -> Result<Response, ClusterError> {
            let CoordinatorRequest::Transact(transaction) = request else { return Err(ClusterError::Answer) };
            if !self.reserve || transaction.dispensable {
                return Ok(Response::Refused(CoordinatorRefusal::NoRoom));
            }
            let mut rows = self.rows.lock().unwrap();
            for operation in &transaction.operations {
                match operation {
                    KeyOperation::Put { key, .. } => rows.push(key.clone()),
                    KeyOperation::Delete { key } => rows.retain(|row| row != key),
                }
            }
            Ok(Response::Transacted(TransactionOutcome::Applied { revision: 1 }))
        }
    }

    #[test]
    fn coordinator_that_only_reads_is_bad_and_one_on_its_reserve_doubtful() {
        let of = |reserve| {
            let coordinator = Full { reserve, rows: Mutex::default() };
            let write = try_write(&coordinator);
            assert!(coordinator.rows.lock().unwrap().is_empty(), "it leaves nothing");
            let reads = Reads { middle: Duration::ZERO, late: Duration::ZERO };
            of_write(reads, write, Duration::from_secs(5))
        };
        let (none, reserve) = (of(false), of(true));
        assert!(none.health == Health::Bad && none.seen.contains("takes no write"), "{none:?}");
        assert_eq!(none.next, Some(DISK_NEXT));
        assert!(reserve.health == Health::Doubtful && reserve.seen.contains("reserve"), "{reserve:?}");
    }

    #[test]
    fn embedded_coordinator_that_has_no_room_is_not_well() {
        let nowhere = embedded(Path::new("/proc/none")); // root may write there, and has no room
        assert!(nowhere.health != Health::Well && nowhere.seen.contains("/proc"), "{nowhere:?}");
        let folder = tempfile::tempdir().unwrap();
        assert!(embedded(&folder.path().join("data")).seen.starts_with("embedded"));
    }
}
