//! Settings of a node's HTTP server. Where it listens is a setting of the process.

use std::net::IpAddr;

use cell_fabric::{TLS_CERTIFICATE_FILE, TLS_KEY_FILE, TLS_TRUST_FILE};
use cell_terms::setting::{Applies, Bounds, OPTIONAL_PATH, Setting, Settings, TextForm, Value};

use crate::host;

/// The setting that names the file of tokens; empty: nobody needs one.
pub const TOKENS_FILE: &str = "tokens_file";
/// Whether changes are refused.
pub(crate) const READ_ONLY: &str = "http_read_only";
/// Further names of this node.
pub(crate) const HOSTS: &str = "http_hosts";
/// How often a caller may change something.
pub(crate) const CHANGES_PER_SECOND: &str = "http_changes_per_second";
/// Of nodes without settings; the declaration's default is the same.
pub(crate) const CHANGES_PER_SECOND_DEFAULT: f64 = 20.0;
/// Settings that name files which nobody else should write, and whether nobody else should read them.
pub(crate) const GUARDED_FILES: [(&str, bool); 7] = [
    (TOKENS_FILE, false),
    (TLS_CERTIFICATE_FILE, false),
    (TLS_KEY_FILE, true),
    (TLS_TRUST_FILE, false),
    (COORDINATOR_TOKEN, true),
    (ETCD_PASSWORD, true),
    (ETCD_KEY, true),
];
/// The file of the token that the node shows its coordinator, by which one may do everything; a setting of
/// the process.
pub(crate) const COORDINATOR_TOKEN: &str = "coordinator_token_file";
/// The files by which the node is let in by etcd; settings of the process.
pub(crate) const ETCD_PASSWORD: &str = "etcd_password_file";
pub(crate) const ETCD_KEY: &str = "etcd_client_key_file";
/// The file of the certificate with that key.
pub(crate) const ETCD_CERTIFICATE: &str = "etcd_client_certificate_file";
/// Where HTTP is served; a setting of the process.
const SERVED: &str = "http_address";
/// Where others find HTTP; a setting of the process.
const ADVERTISED: &str = "advertise_http_address";
/// Where others find the fabric; a setting of the process.
const ADVERTISED_FABRIC: &str = "advertise_address";

/// Names of this machine.
const HOST_NAMES: TextForm = TextForm {
    max: 4096,
    takes: "names or addresses, separated by commas, or nothing",
    check: |text| {
        let is_host = |name: &str| host::is_well_formed(name) || name.parse::<IpAddr>().is_ok();
        let mut names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        match names.find(|name| !is_host(name)) {
            Some(name) => Err(format!("`{name}` is no host")),
            None => Ok(()),
        }
    },
};

/// Declarations; see `cell settings`.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: TOKENS_FILE,
        meaning: "A file of the tokens that the admin API and the fabric ask for, `ROLES NAME SHA256` a line: \
                  some of reader, writer, viewer, operator and admin, separated by commas, and the token's \
                  SHA-256 in hexadecimal digits. Over shared memory the node's own user and root need none. \
                  Without a file every request from this machine has the role admin.",
        default: "",
        bounds: Bounds::Form(OPTIONAL_PATH),
        applies: Applies::Restart(
            "Whether tokens are wanted at all is decided before the first request; the file itself is read \
             again at a SIGHUP.",
        ),
    },
    Setting {
        name: READ_ONLY,
        meaning: "Whether this node's admin API refuses everything that changes something, whoever asks.",
        default: "false",
        bounds: Bounds::Flag,
        applies: Applies::Restart("The API of nodes that were tuned to it would refuse to take it back."),
    },
    Setting {
        name: HOSTS,
        meaning: "Names, separated by commas, under which people reach this node over HTTP, without ports. \
                  Requests to other names than these, those of http_address, advertise_http_address and \
                  advertise_address, localhost and loopback addresses are refused, because a web page can \
                  point its own name at this machine.",
        default: "",
        bounds: Bounds::Form(HOST_NAMES),
        applies: Applies::Restart(
            "Each node has names of its own; wrong ones for all nodes would shut out whoever could take them back.",
        ),
    },
    Setting {
        name: CHANGES_PER_SECOND,
        meaning: "How many requests a second that change something each caller of the admin API may send; twice as \
                  many at once. Further ones are answered 429.",
        default: "20",
        bounds: Bounds::Integer { min: 1, max: 10_000 },
        applies: Applies::Live,
    },
];

/// A text, such as a file, if it was given.
pub(crate) fn text<'a>(settings: &'a Settings, name: &str) -> Option<&'a str> {
    match settings.get(name) {
        Some((Value::Text(path), _)) if !path.is_empty() => Some(path),
        _ => None,
    }
}

/// Further hosts that requests may name: those of the settings, and where this node serves and is found.
pub(crate) fn hosts(settings: &Settings) -> String {
    let names = [HOSTS, SERVED, ADVERTISED, ADVERTISED_FABRIC];
    names.map(|name| text(settings, name).unwrap_or_default()).join(",")
}

/// How many changes a second a caller may make.
pub(crate) fn changes_per_second(settings: &Settings) -> f64 {
    match settings.get(CHANGES_PER_SECOND) {
        Some((Value::Integer(count), _)) => *count as f64,
        _ => CHANGES_PER_SECOND_DEFAULT,
    }
}

/// Whether changes are refused.
pub(crate) fn is_read_only(settings: &Settings) -> bool {
    matches!(settings.get(READ_ONLY), Some((Value::Flag(true), _)))
}

#[cfg(test)]
mod tests {
    use cell_terms::setting::Source;

    use super::*;
    use crate::host::Hosts;

    const fn of_the_process(name: &'static str) -> Setting {
        Setting {
            name,
            meaning: "Where it is.",
            default: "",
            bounds: Bounds::Form(OPTIONAL_PATH),
            applies: Applies::Restart("It is a test's."),
        }
    }

    const OF_THE_PROCESS: &[Setting] =
        &[of_the_process(SERVED), of_the_process(ADVERTISED), of_the_process(ADVERTISED_FABRIC)];

    /// Names were refused, though the cluster's own table says that the node is there.
    #[test]
    fn hosts_are_also_the_names_by_which_the_node_is_known() {
        for name in [SERVED, ADVERTISED, ADVERTISED_FABRIC] {
            let mut settings = Settings::new(&[crate::SETTINGS, OF_THE_PROCESS]);
            assert!(!Hosts::new(&hosts(&settings)).permits("node-1.example:7080"), "{name}");
            settings.set(name, "node-1.example:7000", Source::Flag).unwrap();
            let known = Hosts::new(&hosts(&settings));
            let both = ["node-1.example:7080", "node-2.example:7080"].map(|host| known.permits(host));
            assert_eq!(both, [true, false], "{name}");
        }
    }
}
