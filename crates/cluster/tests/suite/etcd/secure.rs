//! The rows on a real etcd over TLS, with clients' certificates, users and passwords: what goes on, and what
//! is refused in which words.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cell_cluster::{
    ClusterError, Coordinator, Etcd, EtcdError, EtcdOptions, FirstLease, LeaseTerms, LeaseThread,
    Transaction, boottime_ns, initialise,
};
use cell_terms::text::with_causes;

use super::members::{EtcdMembers, until, until_some};
use crate::certificates::{Authority, Folder};

/// A log-in takes etcd a tenth of a second of a processor, of which another test may have more.
const DEADLINE: Duration = Duration::from_secs(10);
const TTL_MS: u64 = 10_000;
/// The user that may read and write the tests' keys, and one that may not.
const USERS: [(&str, &str); 2] = [("cell", "first"), ("stranger", "strange")];

fn applied(way: &Etcd, key: &str) -> Result<(), ClusterError> {
    way.transact(Transaction::new().put(key, "v")).map(drop)
}

/// A table, a lease that is renewed, a row of it, and what changed: all that a node asks.
fn serves(options: &EtcdOptions) -> LeaseThread {
    let way = Etcd::new(options).unwrap();
    until("the table is initialised", || initialise(&way, 7).is_ok());
    let terms = LeaseTerms::new(TTL_MS, 0.05);
    let own = Arc::new(Etcd::new(options).unwrap());
    let lease = FirstLease::ask(own, terms).unwrap().granted().unwrap();
    let (start, _) = until_some("all is read", || way.changes_since(0).ok());
    until("a row is written", || {
        way.transact(Transaction::new().put_leased("member/a", "", lease.incarnation())).is_ok()
    });
    let seen = until_some("the row is seen", || {
        let (_, seen) = way.changes_since(start).ok()?;
        (!seen.is_empty()).then_some(seen)
    });
    assert!(seen.iter().any(|change| change.key == "member/a"), "{seen:?}");
    lease
}

/// Two files of a folder for a certificate that has a common name, or has none.
fn client(authority: &Authority, folder: &Folder, names: &[&str]) -> (PathBuf, PathBuf) {
    let (certificate, key) = authority.sign(names, 2_999);
    let files = [format!("client-{}.pem", names.len()), format!("client-{}.key", names.len())];
    for (name, text) in files.iter().zip([certificate, key]) {
        folder.write(name, &text);
    }
    (folder.path(&files[0]), folder.path(&files[1]))
}

/// Users of an etcd, by name and by a file with a password.
fn user(folder: &Path, name: &str, password: &str) -> (String, PathBuf) {
    let file = folder.join(format!("password-of-{name}"));
    std::fs::write(&file, password).unwrap();
    (name.to_owned(), file)
}

/// The error that somebody gets in the end whom etcd does not let in.
fn refused(options: &EtcdOptions) -> EtcdError {
    let way = Etcd::new(options).unwrap();
    until_some("it is refused", || match way.read("a") {
        Err(ClusterError::Etcd(error)) => Some(error),
        Ok(found) => panic!("{found:?}"),
        Err(_) => None,
    })
}

#[test]
fn rows_over_tls_are_read_and_written_by_who_has_a_certificate() {
    let authority = Authority::new("one");
    let folder = authority.folder(&["127.0.0.1"]);
    let known = client(&authority, &folder, &["node-1"]);
    let others = Authority::new("two").folder(&["127.0.0.1"]);
    let Some(members) = EtcdMembers::start_with(3, &[], Some(folder)) else { return };
    let lease = serves(&members.secure_options(Some(known)));
    assert!(!lease.has_ended());
    let unknown = Some((others.path("node.pem"), others.path("node.key")));
    for options in [members.secure_options(None), members.secure_options(unknown)] {
        let failed = Etcd::new(&options).unwrap().read("a").unwrap_err();
        assert!(failed.is_transient(), "certificates may be replaced: {failed}");
    }
    let of_none = with_causes(&Etcd::new(&members.secure_options(None)).unwrap().read("a").unwrap_err());
    assert!(of_none.contains("give etcd_client_certificate_file"), "{of_none}");
    let distrusts = EtcdOptions { ca_file: Some(others.path("ca.pem")), ..members.secure_options(None) };
    let failed = with_causes(&Etcd::new(&distrusts).unwrap().read("a").unwrap_err());
    assert!(failed.to_lowercase().contains("certificate"), "{failed}");
}

/// It was said at random that a pipe broke or a peer disconnected.
#[test]
fn members_that_are_asked_by_the_other_scheme_are_distinguished() {
    let authority = Authority::new("one");
    let folder = authority.folder(&["127.0.0.1"]);
    let known = client(&authority, &folder, &["node-1"]);
    let Some(members) = EtcdMembers::start_with(1, &[], Some(folder)) else { return };
    let secure = members.secure_options(Some(known));
    let at = |endpoint: String| {
        let options = EtcdOptions { endpoints: vec![endpoint], ..secure.clone() };
        with_causes(&Etcd::new(&options).unwrap().read("a").unwrap_err())
    };
    let plain = at(members.options(DEADLINE).endpoints[0].replace("http://", "https://"));
    assert!(plain.contains("use http:// in"), "{plain}");
    let encrypted = at(secure.endpoints[0].replace("https://", "http://"));
    assert!(encrypted.contains("use https:// in"), "{encrypted}");
}

/// An operator renews a node's certificate, and rolls the CA, while it runs.
#[test]
fn certificates_for_etcd_that_are_replaced_count_without_a_restart() {
    let authority = Authority::new("one");
    let folder = authority.folder(&["127.0.0.1"]);
    let (known, own_ca) = (client(&authority, &folder, &["node-1"]), folder.path("ca.pem"));
    let others = Authority::new("two").folder(&["127.0.0.1"]);
    let given = tempfile::tempdir().unwrap();
    let [certificate, key, ca] = ["a.pem", "a.key", "ca.pem"].map(|name| given.path().join(name));
    let show = |shown: &Path, its_key: &Path| {
        std::fs::copy(shown, &certificate).unwrap();
        std::fs::copy(its_key, &key).unwrap();
    };
    show(&others.path("node.pem"), &others.path("node.key"));
    std::fs::copy(others.path("ca.pem"), &ca).unwrap();
    let Some(members) = EtcdMembers::start_with(1, &[], Some(folder)) else { return };
    let client = Some((certificate.clone(), key.clone()));
    let options = EtcdOptions { ca_file: Some(ca.clone()), ..members.secure_options(client) };
    let way = Etcd::new(&options).unwrap();
    assert!(way.read("a").is_err(), "it trusts another CA");
    // Both CAs stand there side by side, and etcd does not know yet who asks.
    let both = [others.path("ca.pem"), own_ca].map(|path| std::fs::read_to_string(path).unwrap());
    std::fs::write(&ca, both.concat()).unwrap();
    assert!(way.read("a").is_err() && way.read("a").is_err(), "etcd trusts another CA");
    show(&known.0, &known.1);
    until("what is shown now is known", || way.read("a").is_ok());
}

#[test]
fn users_are_let_in_by_password_and_at_their_own_prefix_alone() {
    let Some(members) = EtcdMembers::start(3, &[]) else { return };
    let passwords = tempfile::tempdir().unwrap();
    let as_user = |name: &str, password: &str| EtcdOptions {
        user: Some(user(passwords.path(), name, password)),
        ..members.options(DEADLINE)
    };
    members.want_users(&USERS);
    let own = as_user("cell", "first\n");
    let lease = serves(&own);
    assert!(!lease.has_ended());
    let elsewhere = EtcdOptions { prefix: "test/other".to_owned(), ..own };
    for at_no_right in [elsewhere, as_user("stranger", "strange")] {
        let refusal = refused(&at_no_right);
        assert!(matches!(refusal, EtcdError::Permission { .. }), "{refusal}");
        assert!(refusal.to_string().contains("grant-permission"), "{refusal}");
    }
    let refusal = refused(&EtcdOptions {
        user: Some(("nobody".to_owned(), passwords.path().join("password-of-cell"))),
        ..members.options(DEADLINE)
    });
    assert_eq!(refusal, EtcdError::Credentials);
    assert_eq!(refused(&members.options(DEADLINE)), EtcdError::NoUser);
    assert_eq!(refused(&as_user("stranger", "wrong")), EtcdError::Credentials);
}

/// etcd forgets a token that nobody has used for a second, and those of a user whose password changes. Who
/// serves asks on until its own file has the new password, too; who starts is refused.
#[test]
fn token_that_etcd_has_forgotten_is_asked_for_again() {
    let Some(mut members) = EtcdMembers::start(1, &["--auth-token-ttl", "1"]) else { return };
    let passwords = tempfile::tempdir().unwrap();
    let options =
        EtcdOptions { user: Some(user(passwords.path(), "cell", "first")), ..members.options(DEADLINE) };
    members.want_users(&USERS);
    let way = Etcd::new(&options).unwrap();
    until("a row is written", || applied(&way, "a").is_ok());
    // Each is asked about once, ever longer after it was given; all were given after the way's was last used.
    let mut tokens = VecDeque::new();
    until("etcd has forgotten a token that was given later", || {
        tokens.extend([(); 2].map(|()| members.token("cell", "first")));
        tokens.pop_front().is_some_and(|oldest| !members.counts(&oldest))
    });
    applied(&way, "b").unwrap();

    members.change_password("cell", "second");
    let refused = applied(&way, "c").unwrap_err();
    let is_by_password = |error: &ClusterError| matches!(error, ClusterError::Etcd(EtcdError::Credentials));
    assert!(is_by_password(&refused) && refused.is_transient(), "{refused}");
    let starts = Arc::new(Etcd::new(&options).unwrap());
    let refused = FirstLease::ask(starts, LeaseTerms::new(TTL_MS, 0.05)).unwrap().granted().err().unwrap();
    assert!(is_by_password(&refused), "{refused}");
    user(passwords.path(), "cell", "second");
    applied(&way, "c").unwrap();
    members.kill(0);
    members.begin(0);
    until("the member is back", || applied(&way, "d").is_ok());
    assert_eq!(way.list("").unwrap().entries.len(), 4);
}

/// Whether the leases of many nodes hold again after the password is another one, and later in their file.
/// Some end where etcd takes longer for all log-ins than a lease lasts: those who are in do not wait longer.
fn hold_again(members: &EtcdMembers, folder: &Path, ttl_ms: u64, [old, new]: [&str; 2]) -> bool {
    let own = Some(user(folder, "cell", old));
    let options = EtcdOptions { user: own, ..members.options(Duration::from_millis(300)) };
    let way = Etcd::new(&options).unwrap();
    until("the table is initialised", || initialise(&way, 7).is_ok());
    let terms = LeaseTerms::new(ttl_ms, 0.05);
    let leases: Vec<_> = (0..12)
        .map(|_| {
            let of_node = Arc::new(Etcd::new(&options).unwrap());
            FirstLease::ask(of_node, terms).unwrap().granted().unwrap()
        })
        .collect();
    members.change_password("cell", new);
    until("the leases have run out", || leases.iter().all(|lease| !lease.holds()));
    let known_ns = boottime_ns();
    user(folder, "cell", new);
    let has_ended = || leases.iter().any(LeaseThread::has_ended);
    until("the leases hold again", || has_ended() || leases.iter().all(LeaseThread::holds));
    if has_ended() {
        let took_ms = (boottime_ns() - known_ns) / 1_000_000;
        assert!(took_ms >= ttl_ms, "one has ended within {took_ms} ms of {ttl_ms}");
        return false;
    }
    until("a row is written", || applied(&way, "a").is_ok());
    true
}

/// An operator changes the password, and the nodes' file later. All log in at once then, and etcd takes
/// longer for that than a call may take: they gave up and began anew for ever.
#[test]
fn leases_of_many_nodes_hold_again_after_their_password_was_changed_before_its_file() {
    let Some(members) = EtcdMembers::start(1, &[]) else { return };
    let passwords = tempfile::tempdir().unwrap();
    members.want_users(&USERS);
    let turns = [(3_000, ["first", "second"]), (12_000, ["second", "third"]), (48_000, ["third", "fourth"])];
    let mut held =
        turns.into_iter().map(|(ttl_ms, words)| hold_again(&members, passwords.path(), ttl_ms, words));
    assert!(held.any(|held| held), "twelve log-ins take longer than 48 s");
}

#[test]
fn certificate_with_a_common_name_is_refused_where_etcd_has_users_with_the_reason() {
    let authority = Authority::new("one");
    let folder = authority.folder(&["127.0.0.1"]);
    let [named, nameless] = [&["node-1"][..], &[]].map(|names| client(&authority, &folder, names));
    let Some(members) = EtcdMembers::start_with(1, &[], Some(folder)) else { return };
    let passwords = tempfile::tempdir().unwrap();
    members.want_users(&USERS);
    let with = |client| EtcdOptions {
        user: Some(user(passwords.path(), "cell", "first")),
        ..members.secure_options(Some(client))
    };
    assert_eq!(refused(&with(named)), EtcdError::CommonName);
    assert!(!serves(&with(nameless)).has_ended());
}
