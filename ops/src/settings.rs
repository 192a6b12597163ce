//! The settings of every crate in one registry, their flags, and the values that a command goes by.

use std::ffi::OsString;
use std::path::PathBuf;

use cell_settings::{Registry, Section, SourceError};
use cell_terms::setting::{Bounds, Setting, Settings, Source};
use cell_terms::text::with_causes;
use clap::{Arg, ArgMatches, Command};

use crate::exit::Failure;
use crate::process_settings;

/// Variables that begin with `CELL_` and are no settings.
pub(crate) const RESERVED_VARIABLES: &[&str] =
    &["CELL_SERVER", "CELL_CONFIG", "CELL_HTTP", "CELL_CA", "CELL_TOKEN"];

/// Every declaration.
pub(crate) const REGISTRY: Registry = Registry::new(&[
    Section { name: "node process", settings: process_settings::SETTINGS },
    Section { name: "node", settings: cell_node::SETTINGS },
    Section { name: "log", settings: cell_wal::SETTINGS },
    Section { name: "memory", settings: cell_memory::SETTINGS },
    Section { name: "coordination", settings: cell_cluster::SETTINGS },
    Section { name: "fabric", settings: cell_fabric::SETTINGS },
    Section { name: "tls", settings: cell_fabric::TLS_SETTINGS },
    Section { name: "web", settings: cell_web::SETTINGS },
    Section { name: "client", settings: cell_client::SETTINGS },
    Section { name: "selector", settings: cell_client::SELECTOR_SETTINGS },
]);

/// What client commands go by: the `client_` settings, from the environment and as `--set` gives them.
pub(crate) fn of_client(
    environment: impl Iterator<Item = (OsString, OsString)>,
    given: &[String],
) -> anyhow::Result<(Settings, Vec<String>)> {
    let mut settings = REGISTRY.defaults();
    let own = environment.filter(|(name, _)| name.to_string_lossy().starts_with("CELL_CLIENT_"));
    let warnings = cell_settings::read_environment(&mut settings, own, RESERVED_VARIABLES).map_err(wrong)?;
    given.iter().try_for_each(|given| set_of_client(&mut settings, given))?;
    check_rules(&settings)?;
    Ok((settings, warnings))
}

fn wrong(error: SourceError) -> Failure {
    Failure::usage(with_causes(&error))
}

/// Whether a setting is one that clients go by.
fn is_of_client(name: &str) -> bool {
    let own = [cell_client::SETTINGS, cell_client::SELECTOR_SETTINGS];
    own.iter().any(|settings| settings.iter().any(|setting| setting.name == name))
}

/// Sets one of the client's settings as `--set NAME=VALUE` gives it.
fn set_of_client(settings: &mut Settings, given: &str) -> Result<(), Failure> {
    let Some((name, text)) = given.split_once('=') else {
        return Err(Failure::usage(format!("--set takes NAME=VALUE, not `{given}`")));
    };
    let name = name.trim();
    if settings.get(name).is_some() && !is_of_client(name) {
        return Err(Failure::usage(format!("`{name}` is no setting of clients: those begin with `client_`")));
    }
    settings.set(name, text, Source::Flag).map_err(|error| Failure::usage(error.to_string()))
}

/// Checks what must hold between several settings.
pub(crate) fn check_rules(settings: &Settings) -> Result<(), Failure> {
    cell_settings::check_rules(settings)
        .map_err(|conflict| Failure::usage(conflict.to_string()).next(conflict.next))
}

/// Adds a flag for each setting of a server but those that the command decides itself and what
/// `cell coordinator` alone goes by, and `--config`.
pub(crate) fn with_flags(command: Command, decided: &[&str]) -> Command {
    with_flags_if(command, |name| {
        !decided.contains(&name) && !is_of_client(name) && name != process_settings::COORDINATOR_LISTEN
    })
}

/// Adds a flag for each of these settings, and `--config`.
pub(crate) fn with_these_flags(command: Command, names: &[&str]) -> Command {
    with_flags_if(command, |name| names.contains(&name))
}

fn with_flags_if(command: Command, is_taken: impl Fn(&str) -> bool) -> Command {
    let config = Arg::new("config")
        .long("config")
        .value_name("FILE")
        .env("CELL_CONFIG")
        .value_parser(clap::value_parser!(PathBuf))
        .help("Configuration file (TOML): one `setting = value` a line; see `cell settings`");
    let declared = REGISTRY.declarations().map(|(_, setting)| setting);
    let taken = declared.filter(|setting| is_taken(setting.name));
    command.arg(config).args(taken.map(flag).collect::<Vec<_>>())
}

fn flag(setting: &'static Setting) -> Arg {
    Arg::new(setting.name)
        .long(setting.name.replace('_', "-"))
        .value_name(value_name(&setting.bounds))
        .help(format!("{} [default: {}]", setting.meaning, setting.default_or_none()))
        .help_heading("Settings")
        .overrides_with(setting.name) // the last one given wins, so that scripts can append
        .hide_short_help(true)
}

fn value_name(bounds: &Bounds) -> &'static str {
    match bounds {
        Bounds::Integer { .. } | Bounds::Real { .. } => "N",
        Bounds::Bytes { .. } => "BYTES",
        Bounds::Milliseconds { .. } | Bounds::MillisecondsOrNone { .. } => "TIME",
        Bounds::Choice(_) => "WORD",
        Bounds::Flag => "BOOL",
        Bounds::Text { .. } | Bounds::Form(_) => "TEXT",
    }
}

/// Settings from the configuration file, the environment and flags, weakest first.
///
/// Variables that begin with `CELL_` and name no setting come back as warnings.
pub(crate) fn resolve(
    matches: &ArgMatches,
    environment: impl Iterator<Item = (OsString, OsString)>,
) -> anyhow::Result<(Settings, Vec<String>)> {
    resolve_but(&[], matches, environment)
}

/// The same for a command that decides some settings itself: whatever the file and the environment say of
/// those is read, and is not what anything goes by.
pub(crate) fn resolve_but(
    decided: &[&str],
    matches: &ArgMatches,
    environment: impl Iterator<Item = (OsString, OsString)>,
) -> anyhow::Result<(Settings, Vec<String>)> {
    let mut settings = REGISTRY.defaults();
    if let Some(path) = matches.get_one::<PathBuf>("config") {
        const NEXT: &str = "`cell settings` lists every setting with its bounds";
        cell_settings::read_file(&mut settings, path).map_err(|error| wrong(error).next(NEXT))?;
    }
    let warnings =
        cell_settings::read_environment(&mut settings, environment, RESERVED_VARIABLES).map_err(wrong)?;
    for (name, text) in given_flags(matches) {
        settings.set(name, &text, Source::Flag)?;
    }
    for (_, setting) in REGISTRY.declarations().filter(|(_, setting)| decided.contains(&setting.name)) {
        settings.overrule(setting.name, setting.default, Source::Default)?;
    }
    fit_slot(&mut settings);
    fit_lease(&mut settings);
    Ok((settings, warnings))
}

/// Slots of a development cluster, unless somebody has set their size: so small that splits can be watched.
const DEVELOPMENT_SLOT_BYTES: &str = "8 MiB";

/// What the supervisor of a development cluster may take itself.
pub(crate) const SUPERVISOR_BYTES: u64 = 64 << 20;
/// What is left to the kernel of what the machine, or the control group, has: a part.
pub(crate) const LEFT_PART: u64 = 16;

/// What a development cluster's node takes where nobody has set anything: of memory the share that its
/// supervisor gives it, if it gives one.
pub(crate) fn soften_for_development(settings: &mut Settings, memory_share: Option<u64>) {
    let is_unset =
        |settings: &Settings, name| settings.get(name).is_some_and(|(_, source)| source == Source::Default);
    if settings.integer(MEMORY_LIMIT) == 0
        && let Some(share) = memory_share
    {
        settings.set(MEMORY_LIMIT, &share.to_string(), Source::Default).expect("within bounds");
    }
    if is_unset(settings, READY_MEMORY) {
        settings.set(READY_MEMORY, "0", Source::Default).expect("a constant within bounds");
    }
    if is_unset(settings, SLOT) {
        settings.set(SLOT, DEVELOPMENT_SLOT_BYTES, Source::Default).expect("a constant within bounds");
        fit_slot(settings);
    }
}

const SLOT: &str = "slot_bytes";
pub(crate) const MEMORY_LIMIT: &str = "memory_limit_bytes";
const READY_MEMORY: &str = "ready_memory_bytes";

/// A slot that nobody has set is no larger than its region: whoever asks for a small region need not know of
/// slots.
fn fit_slot(settings: &mut Settings) {
    let region = settings.integer("node_region_bytes");
    let is_default = settings.get(SLOT).is_some_and(|(_, source)| source == Source::Default);
    if is_default && settings.integer(SLOT) > region {
        let largest = 1_u64 << region.ilog2();
        settings
            .set(SLOT, &largest.to_string(), Source::Default)
            .expect("a smaller power of two is within bounds");
    }
}

const LEASE: &str = "lease_ms";
/// A lease of which nobody has set the length is so long on etcd: three times what that needs to elect.
const ETCD_LEASE: &str = "5 s";

/// etcd elects a leader in a second or two, if nobody has made it faster. A lease outlasts that.
fn fit_lease(settings: &mut Settings) {
    let is_default = settings.get(LEASE).is_some_and(|(_, source)| source == Source::Default);
    if is_default && settings.text("coordinator_address") == process_settings::ETCD {
        settings.set(LEASE, ETCD_LEASE, Source::Default).expect("a constant within bounds");
    }
}

/// The settings that were given as flags, as text.
pub(crate) fn given_flags(matches: &ArgMatches) -> Vec<(&'static str, String)> {
    // A flag that the command does not have is one that was not given.
    let given = |name| {
        let text = matches.try_get_one::<String>(name).ok().flatten()?;
        Some((name, text.clone()))
    };
    REGISTRY.declarations().filter_map(|(_, setting)| given(setting.name)).collect()
}

/// Refuses flags of settings where no node is started; `next` says what is taken.
pub(crate) fn refuse_flags(matches: &ArgMatches, next: &'static str) -> Result<(), Failure> {
    let Some((name, _)) = given_flags(matches).first().cloned() else { return Ok(()) };
    let what = format!("--{} is a setting of a node that runs", name.replace('_', "-"));
    Err(Failure::usage(what).next(next))
}

/// The table of all settings, as `docs/SETTINGS.md` holds it.
pub(crate) fn markdown() -> String {
    const HEAD: &str = "\
# Settings

Generated by `cell settings --markdown`; a test holds this file to the code.

A setting can be given as a flag of `cell node` and `cell dev` (`--log-segment-bytes 64MiB`),
as a variable (`CELL_LOG_SEGMENT_BYTES`) or in the configuration file
(`log_segment_bytes = \"64 MiB\"`); the first of these that is given counts. A variable that is
empty is as one that is not set. Settings that
apply at \"creation\" count when a region is created; later they
are checked against it. Settings that apply \"live\" take effect when `cell node` gets a SIGHUP, upon which
it reads its configuration file again, and when they are changed for the whole cluster, by `cell tune` or in
the console; in nodes that counts before all others. Of those that do not, the last column says why.

Client commands go by the `client_` settings, as variables or with `--set NAME=VALUE`. Clients that run learn
from the nodes what the cluster is tuned to, within `client_report_interval`. What a client's own user gave
(a variable, `--set`, an argument of a command, an option of the library that is not as its default is)
counts before that; but `client_selector_` settings of the cluster count before all others, because the load
of all clients is the operator's. New values count for what begins from then on.
";
    HEAD.to_owned() + &REGISTRY.markdown()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The defaults, but for these.
    pub(crate) fn settings(values: &[(&str, &str)]) -> Settings {
        let mut settings = REGISTRY.defaults();
        for (name, text) in values {
            settings.set(name, text, Source::Flag).unwrap();
        }
        settings
    }

    fn resolve_from(flags: &[&str], environment: &[(&str, &str)]) -> anyhow::Result<(Settings, Vec<String>)> {
        let matches =
            with_flags(Command::new("test").no_binary_name(true), &[]).try_get_matches_from(flags)?;
        resolve(&matches, environment.iter().map(|(name, value)| (name.into(), value.into())))
    }

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn resolve_flags_beat_environment_beats_file() {
        let config = file("node_id = 3\nlisten_address = \"127.0.0.1:1\"\nhttp_address = \"127.0.0.1:2\"\n");
        let path = config.path().to_str().unwrap();
        let flags = ["--config", path, "--node-id", "5"];
        let environment = [("CELL_NODE_ID", "4"), ("CELL_LISTEN_ADDRESS", "127.0.0.1:9")];
        let (settings, warnings) = resolve_from(&flags, &environment).unwrap();
        assert_eq!(settings.integer("node_id"), 5);
        assert_eq!(settings.text("listen_address"), "127.0.0.1:9");
        assert_eq!(settings.text("http_address"), "127.0.0.1:2");
        assert!(warnings.is_empty());
    }

    #[test]
    fn resolve_an_unknown_name_in_the_file_names_the_nearest() {
        let config = file("node_idd = 3\n");
        let error = resolve_from(&["--config", config.path().to_str().unwrap()], &[]).unwrap_err();
        assert!(error.to_string().contains("did you mean `node_id`"), "{error}");
    }

    #[test]
    fn resolve_values_out_of_bounds_are_refused_with_what_is_taken() {
        let config = file("node_id = -3\n");
        for result in [
            resolve_from(&["--node-id", "5000"], &[]),
            resolve_from(&[], &[("CELL_NODE_ID", "x")]),
            resolve_from(&["--config", config.path().to_str().unwrap()], &[]),
        ] {
            let error = result.unwrap_err();
            assert!(error.to_string().contains("a whole number from 0 to 1023"), "{error}");
        }
    }

    /// What reads a text is part of its declaration, so that no source lets garbage through.
    #[test]
    fn texts_have_parsers_but_for_those_that_take_any_text() {
        const ANY: [&str; 4] =
            ["initial_split_keys", "fabric_verbs_device", "client_name", "client_verbs_device"];
        for (_, setting) in REGISTRY.declarations() {
            let is_any = matches!(setting.bounds, Bounds::Text { .. });
            assert_eq!(is_any, ANY.contains(&setting.name), "{}", setting.name);
        }
    }

    #[test]
    fn resolve_a_text_that_is_garbage_is_refused_by_every_source() {
        for (name, garbage, words) in [
            ("tracing_filter", "garbage", "`garbage` is no level"),
            ("tracing_filter", "info,cell_node=loud", "error parsing level filter"),
            ("listen_address", "localhost", "it takes HOST:PORT"),
            ("http_address", "localhost", "it takes HOST:PORT"),
            ("advertise_http_address", "7080", "it takes HOST:PORT, or nothing"),
            ("coordinator_address", "embeded", "it takes the path of a unix socket, `tls://HOST:PORT`"),
            ("coordinator_address", "tls://host-1", "`host-1` has no port"),
            ("coordinator_address", "https://host-1:7200", "as tls://HOST:PORT alone"),
            ("coordinator_address", "127.0.0.1:7200", "a path has a `/`"),
            ("etcd_endpoints", "https://etcd-1", "`https://etcd-1` is no endpoint of etcd"),
            ("etcd_prefix", "cell/", "neither begins nor ends with a `/`"),
            ("data_dir", "", "it takes a path"),
            ("http_hosts", "a b", "`a b` is no host"),
            ("fabric_shm_users", "1000,root", "`root` is no number of a user"),
        ] {
            let config = file(&format!("{name} = \"{garbage}\"\n"));
            let flag = format!("--{}={garbage}", name.replace('_', "-"));
            let variable = format!("CELL_{}", name.to_uppercase());
            let from_variable = || resolve_from(&[], &[(&variable, garbage)]);
            for result in [
                resolve_from(&[&flag], &[]),
                resolve_from(&["--config", config.path().to_str().unwrap()], &[]),
            ]
            .into_iter()
            .chain((!garbage.is_empty()).then(from_variable))
            {
                let error = format!("{:#}", result.unwrap_err());
                assert!(error.contains(words) && error.contains(name), "{error}");
            }
        }
    }

    #[test]
    fn resolve_variables_that_are_empty_are_not_set() {
        let config = file("tokens_file = \"/tokens\"\nnode_id = 7\n");
        let names =
            REGISTRY.declarations().map(|(_, setting)| format!("CELL_{}", setting.name.to_uppercase()));
        let names: Vec<_> = names.chain(["CELL_UNKNOWN".to_owned()]).collect();
        let empty: Vec<_> = names.iter().map(|name| (name.as_str(), "")).collect();
        let (settings, warnings) =
            resolve_from(&["--config", config.path().to_str().unwrap()], &empty).unwrap();
        assert_eq!((settings.text("tokens_file"), settings.integer("node_id")), ("/tokens", 7));
        assert!(warnings.is_empty(), "{warnings:?}");
        for (_, setting) in REGISTRY.declarations() {
            let source = settings.get(setting.name).unwrap().1;
            assert_ne!(source, Source::Environment, "{}", setting.name);
        }
    }

    #[test]
    fn resolve_a_lease_on_etcd_outlasts_an_election_unless_it_was_set() {
        let lease = |flags: &[&str]| {
            let (settings, _) = resolve_from(flags, &[])?;
            Ok::<_, anyhow::Error>((settings.integer("lease_ms"), check_rules(&settings).is_ok()))
        };
        let etcd = ["--coordinator-address=etcd", "--etcd-endpoints=http://127.0.0.1:2379"];
        assert_eq!(lease(&etcd).unwrap(), (5_000, true));
        assert_eq!(lease(&[etcd[0], etcd[1], "--lease-ms=2s"]).unwrap(), (2_000, true));
        assert_eq!(lease(&[etcd[0], etcd[1], "--lease-ms=500ms"]).unwrap(), (500, false));
        assert_eq!(lease(&etcd[..1]).unwrap(), (5_000, false), "nobody says where");
        assert_eq!(lease(&[]).unwrap(), (500, true));
    }

    #[test]
    fn resolve_but_goes_by_nothing_that_others_say_of_what_is_decided() {
        let config = file("coordinator_address = \"etcd\"\nlease_ms = \"700 ms\"\n");
        let path = config.path().to_str().unwrap();
        let resolved = |flags: &[&str], environment: &[(&str, &str)]| {
            let command = with_flags(Command::new("test").no_binary_name(true), &["coordinator_address"]);
            let matches = command.try_get_matches_from(flags).unwrap();
            let environment = environment.iter().map(|(name, value)| (name.into(), value.into()));
            resolve_but(&["coordinator_address"], &matches, environment).unwrap().0
        };
        let of_file = resolved(&["--config", path], &[]);
        let of_environment = resolved(&[], &[("CELL_COORDINATOR_ADDRESS", "etcd")]);
        for (settings, lease) in [(of_file, 700), (of_environment, 500)] {
            assert_eq!(settings.text("coordinator_address"), process_settings::EMBEDDED);
            assert_eq!(settings.integer("lease_ms"), lease, "it is no lease on etcd");
            assert!(check_rules(&settings).is_ok());
        }
    }

    #[test]
    fn resolve_a_small_region_makes_the_slot_fit_unless_it_was_set() {
        let (settings, _) = resolve_from(&["--node-region-bytes", "40MiB"], &[]).unwrap();
        assert_eq!(settings.integer("slot_bytes"), 32 << 20);
        let flags = ["--node-region-bytes", "40MiB", "--slot-bytes", "512MiB"];
        assert_eq!(resolve_from(&flags, &[]).unwrap().0.integer("slot_bytes"), 512 << 20);
    }

    #[test]
    fn soften_takes_the_share_of_memory_unless_a_limit_was_given() {
        let softened = |flags: &[&str], share| {
            let (mut settings, _) = resolve_from(flags, &[]).unwrap();
            soften_for_development(&mut settings, share);
            settings.integer("memory_limit_bytes")
        };
        assert_eq!(softened(&[], Some(3 << 30)), 3 << 30);
        assert_eq!(softened(&[], None), 0, "nobody knows how much there is");
        assert_eq!(softened(&["--memory-limit-bytes", "1GiB"], Some(3 << 30)), 1 << 30);
        assert_eq!(softened(&[], Some(1)), 1, "too little is refused by the node, with what it needs");
    }

    #[test]
    fn of_client_takes_its_own_variables_only() {
        let environment = [("CELL_CLIENT_DEADLINE", "7 s"), ("CELL_NODE_ID", "x"), ("CELL_CLIENT_X", "1")];
        let environment = environment.map(|(name, value)| (name.into(), value.into()));
        let (settings, warnings) = of_client(environment.into_iter(), &[]).unwrap();
        assert_eq!(settings.integer("client_deadline"), 7_000);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
    }

    #[test]
    fn resolve_unknown_variables_are_warned_of() {
        let (_, warnings) =
            resolve_from(&[], &[("CELL_NODE_IDD", "1"), ("CELL_SERVER", "x"), ("CELL_CA", "y")]).unwrap();
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].contains("did you mean `node_id`"), "{warnings:?}");
    }
}
