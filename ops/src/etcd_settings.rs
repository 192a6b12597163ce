//! The etcd that the settings name.

use std::path::PathBuf;
use std::time::Duration;

use cell_cluster::{ClusterError, Etcd, EtcdOptions, parse_etcd_endpoints};
use cell_terms::setting::Settings;
use cell_terms::text::with_causes;

use crate::exit::Failure;

/// Where its members are.
const ENDPOINTS: &str = "etcd_endpoints";
/// How long a call of the coordinator may take.
const DEADLINE: &str = "coordinator_deadline_ms";

/// A coordinator on that etcd. Nothing is asked of it yet.
pub(crate) fn open(settings: &Settings) -> Result<Etcd, Failure> {
    Etcd::new(&options(settings)?).map_err(|error| explain(&error))
}

/// Each member by itself, with where it is.
pub(crate) fn open_each(settings: &Settings) -> Result<Vec<(String, Etcd)>, Failure> {
    let options = options(settings)?;
    let each = options.endpoints.iter().map(|endpoint| {
        let alone = EtcdOptions { endpoints: vec![endpoint.clone()], ..options.clone() };
        Etcd::new(&alone).map(|member| (endpoint.clone(), member)).map_err(|error| explain(&error))
    });
    each.collect()
}

fn options(settings: &Settings) -> Result<EtcdOptions, Failure> {
    if settings.text(ENDPOINTS).is_empty() {
        return Err(Failure::usage("nobody says where etcd is").next("name its members with etcd_endpoints"));
    }
    let path = |name: &str| {
        let text = settings.text(name);
        (!text.is_empty()).then(|| PathBuf::from(text))
    };
    let both = |what: [&str; 2]| {
        let [first, second] = what;
        Failure::usage(format!("`{first}` and `{second}` belong together: give both, or none"))
    };
    let user = match (settings.text("etcd_user"), path("etcd_password_file")) {
        ("", None) => None,
        (user, Some(file)) if !user.is_empty() => Some((user.to_owned(), file)),
        _ => return Err(both(["etcd_user", "etcd_password_file"])),
    };
    let names = ["etcd_client_certificate_file", "etcd_client_key_file"];
    let client_certificate = match names.map(path) {
        [None, None] => None,
        [Some(certificate), Some(key)] => Some((certificate, key)),
        _ => return Err(both(names)),
    };
    let compaction = Some(settings.integer("etcd_compaction")).filter(|ms| *ms > 0);
    Ok(EtcdOptions {
        endpoints: parse_etcd_endpoints(settings.text(ENDPOINTS)).map_err(Failure::usage)?,
        prefix: settings.text("etcd_prefix").to_owned(),
        user,
        ca_file: path("etcd_ca_file"),
        client_certificate,
        deadline: Duration::from_millis(settings.integer(DEADLINE)),
        compaction: compaction.map(Duration::from_millis),
    })
}

/// Where etcd is, for people.
pub(crate) fn place_words(settings: &Settings) -> String {
    format!("etcd at {}, below `{}`", settings.text(ENDPOINTS), settings.text("etcd_prefix"))
}

fn explain(error: &ClusterError) -> Failure {
    Failure::usage(with_causes(error))
}
