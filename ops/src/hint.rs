//! Commands in hints. One that is copied reaches the cluster that was asked, and not the one at the default
//! address.

use std::path::Path;

use crate::environment;

/// The server that is asked if none is named.
pub(crate) const SERVER_DEFAULT: &str = "127.0.0.1:7000";
/// The variable that names servers.
pub(crate) const SERVER_VARIABLE: &str = "CELL_SERVER";

/// The variable that names the certificates by which nodes are trusted.
pub(crate) const CA_VARIABLE: &str = "CELL_CA";

/// The folder of a development cluster if none is named.
pub(crate) const DIR_DEFAULT: &str = "./cell-data";

/// The addresses by which a cluster was reached; none that is the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reached {
    /// Of nodes' fabric.
    server: Option<String>,
    /// Of nodes' HTTP.
    http: Option<String>,
    /// The folder.
    dir: Option<String>,
    /// The agents of its hosts, in place of a folder.
    agents: Option<String>,
    /// The file of the certificates by which nodes are trusted.
    ca: Option<String>,
}

/// Whom a command asks, and so by which flag it takes the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    /// Nodes' fabric, whatever else: `--server`.
    Fabric,
    /// The admin API: `--http` or `--server`.
    Api,
    /// The supervisor of a development cluster: `--dir`; or agents, where it takes them: `--agents`.
    Folder,
}

/// Commands by the words that they begin with. A test of `cli.rs` holds this to their arguments.
const ASKS: [(&str, Asks); 30] = [
    ("get", Asks::Fabric),
    ("put", Asks::Fabric),
    ("del", Asks::Fabric),
    ("cas", Asks::Fabric),
    ("scan", Asks::Fabric),
    ("count", Asks::Fabric),
    ("load", Asks::Fabric),
    ("dump", Asks::Fabric),
    ("status", Asks::Fabric),
    ("verify", Asks::Fabric),
    ("tree show", Asks::Fabric),
    ("bench", Asks::Fabric),
    ("drill clean", Asks::Fabric),
    ("drill report", Asks::Api),
    ("tree check", Asks::Api),
    ("tree locate", Asks::Api),
    ("region", Asks::Api),
    ("balance", Asks::Api),
    ("selector", Asks::Api),
    ("tune", Asks::Api),
    ("events", Asks::Api),
    ("node ls", Asks::Api),
    ("node drain", Asks::Api),
    ("node undrain", Asks::Api),
    ("node remove", Asks::Api),
    ("drill ls", Asks::Folder),
    ("drill run", Asks::Folder),
    ("drill heal", Asks::Folder),
    ("dev scale", Asks::Folder),
    ("dev", Asks::Folder),
];

/// Whom the command of these words asks, without `cell`.
pub(crate) fn asks(words: &str) -> Option<Asks> {
    let begins =
        |with: &str| words.strip_prefix(with).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '));
    ASKS.iter().find(|(with, _)| begins(with)).map(|(_, asks)| *asks)
}

/// The flags of addresses.
const FLAGS: [&str; 4] = ["--server", "--http", "--dir", "--agents"];

impl Reached {
    /// By these servers.
    pub(crate) fn by_server(server: &str) -> Reached {
        Reached::default().and_server(server)
    }

    /// By nodes' HTTP or fabric, as far as arguments name them.
    pub(crate) fn by_arguments(http: Option<&str>, server: Option<&str>) -> Reached {
        let owned = |address: Option<&str>| address.map(str::to_owned);
        Reached { http: owned(http), server: owned(server), ..Reached::default() }
    }

    /// The same, over TLS that is trusted by the certificates of this file, unless the environment names it.
    pub(crate) fn trusting(self, ca: Option<&Path>) -> Reached {
        let is_given =
            |file: &&Path| environment::variable(CA_VARIABLE).is_none_or(|of| of != file.as_os_str());
        Reached { ca: ca.filter(is_given).map(|file| file.display().to_string()), ..self }
    }

    /// By its folder.
    pub(crate) fn by_dir(dir: &Path) -> Reached {
        let dir = (dir != Path::new(DIR_DEFAULT)).then(|| dir.display().to_string());
        Reached { dir, ..Reached::default() }
    }

    /// By the agents of its hosts.
    pub(crate) fn by_agents(agents: &str) -> Reached {
        Reached { agents: Some(agents.to_owned()), ..Reached::default() }
    }

    /// The same, and these are its servers.
    pub(crate) fn and_server(self, server: &str) -> Reached {
        let is_asked = server == SERVER_DEFAULT && environment::variable(SERVER_VARIABLE).is_none();
        Reached { server: (!is_asked).then(|| server.to_owned()), ..self }
    }

    /// A command with the address that it needs, in backquotes. Where that is not known, and the default
    /// would be another cluster's, it has the name of what is to be filled in.
    pub(crate) fn command(&self, words: &str) -> String {
        match self.flags(words) {
            Some(flags) => format!("`{words} {flags}`"),
            None => format!("`{words}`"),
        }
    }

    /// A text in which each command has the address that it needs.
    pub(crate) fn in_text(&self, text: &str) -> String {
        let part = |(at, words): (usize, &str)| match self.flags(words).filter(|_| at % 2 == 1) {
            Some(flags) => format!("{words} {flags}"),
            None => words.to_owned(),
        };
        let parts: Vec<String> = text.split('`').enumerate().map(part).collect();
        parts.join("`")
    }

    fn flags(&self, words: &str) -> Option<String> {
        let asks = asks(words.strip_prefix("cell ")?)?;
        let has = |flag: &str| words.split(' ').any(|word| word == flag);
        let address = self.address(asks).filter(|_| !FLAGS.iter().any(|flag| has(flag)));
        let takes_trust = asks != Asks::Folder || self.agents.is_some();
        let trusted = self.ca.as_deref().filter(|_| takes_trust && !has("--ca"));
        let trusted = trusted.map(|file| format!("--ca {}", quoted(file)));
        let flags: Vec<String> = address.into_iter().chain(trusted).collect();
        (!flags.is_empty()).then(|| flags.join(" "))
    }

    /// None: the default is right.
    fn address(&self, asks: Asks) -> Option<String> {
        let Reached { server, http, dir, agents, .. } = self;
        if [server, http, dir, agents].into_iter().all(Option::is_none) {
            return None;
        }
        let by_server = server.as_deref().map(|server| ("--server", server));
        let known = match asks {
            Asks::Fabric => by_server,
            Asks::Api => http.as_deref().map(|http| ("--http", http)).or(by_server),
            Asks::Folder => {
                let by_agents = agents.as_deref().map(|agents| ("--agents", agents));
                by_agents.or_else(|| dir.as_deref().map(|dir| ("--dir", dir)))
            }
        };
        let unknown = if asks == Asks::Folder { "--dir DIR" } else { "--server HOST:PORT" };
        Some(known.map_or_else(|| unknown.to_owned(), |(flag, value)| format!("{flag} {}", quoted(value))))
    }
}

/// A value as a shell takes it for one word.
fn quoted(value: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:,[]@%+=".contains(&byte);
    if value.bytes().all(is_plain) { value.to_owned() } else { format!("'{}'", value.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::environment::tests::sources;

    #[test]
    fn command_has_the_address_by_which_the_cluster_was_reached() {
        let said = |reached: &Reached, words: &str| reached.command(words);
        let server = Reached::by_arguments(None, Some("s:1"));
        assert_eq!(said(&server, "cell tune ls"), "`cell tune ls --server s:1`");
        assert_eq!(said(&server, "cell bench ycsb"), "`cell bench ycsb --server s:1`");
        assert_eq!(said(&server, "cell drill clean --run 7"), "`cell drill clean --run 7 --server s:1`");
        assert_eq!(said(&server, "cell drill run"), "`cell drill run --dir DIR`", "it is not known");
        assert_eq!(said(&server, "cell settings"), "`cell settings`", "it asks nobody");
        let http = Reached::by_arguments(Some("h:2"), None);
        assert_eq!(said(&http, "cell node undrain 3"), "`cell node undrain 3 --http h:2`");
        assert_eq!(
            said(&http, "cell status"),
            "`cell status --server HOST:PORT`",
            "HTTP is not all that it asks"
        );
        let dir = Reached::by_dir(Path::new("/srv/a cell"));
        assert_eq!(said(&dir, "cell drill ls"), "`cell drill ls --dir '/srv/a cell'`");
        assert_eq!(said(&dir, "cell dev scale 3"), "`cell dev scale 3 --dir '/srv/a cell'`");
        assert_eq!(said(&dir, "cell node ls"), "`cell node ls --server HOST:PORT`");
        assert_eq!(said(&dir.and_server("s:1"), "cell node ls"), "`cell node ls --server s:1`");
        for reached in [Reached::default(), Reached::by_dir(Path::new(DIR_DEFAULT))] {
            for words in ["cell status", "cell tune ls", "cell drill ls", "cell drill run", "cell nonsense"] {
                assert_eq!(said(&reached, words), format!("`{words}`"));
            }
        }
    }

    /// `cell tune set --ca FILE` named a command that could not reach the node without it.
    #[test]
    fn command_keeps_the_file_of_certificates() {
        let file = Some(Path::new("/srv/a cell.pem"));
        let http = Reached::by_arguments(Some("https://h:2"), None).trusting(file);
        let diff = "`cell tune diff --http https://h:2 --ca '/srv/a cell.pem'`";
        assert_eq!(http.command("cell tune diff"), diff);
        assert_eq!(http.in_text(diff), diff, "once");
        assert_eq!(http.command("cell get"), "`cell get --server HOST:PORT --ca '/srv/a cell.pem'`");
        assert_eq!(http.command("cell drill ls"), "`cell drill ls --dir DIR`", "it takes none");
        let by_default = Reached::default().trusting(file);
        assert_eq!(by_default.command("cell tune diff"), "`cell tune diff --ca '/srv/a cell.pem'`");
        assert_eq!(by_default.command("cell get"), "`cell get --ca '/srv/a cell.pem'`");
    }

    #[test]
    fn command_for_agents_names_them_and_whom_they_are_trusted_by() {
        let agents = Reached::by_agents("h-1:7090,h-2:7090").trusting(Some(Path::new("/srv/ca.pem")));
        let flags = "--agents h-1:7090,h-2:7090 --ca /srv/ca.pem";
        assert_eq!(agents.command("cell drill ls"), format!("`cell drill ls {flags}`"));
        assert_eq!(agents.in_text("`cell drill heal` ends it"), format!("`cell drill heal {flags}` ends it"));
        let status = "`cell status --server HOST:PORT --ca /srv/ca.pem`";
        assert_eq!(agents.command("cell status"), status, "it is not known");
    }

    #[test]
    fn in_text_every_command_has_an_address_once() {
        let reached = Reached::by_arguments(None, Some("s:1"));
        let text = "`http_read_only` is set; `cell region ls` lists them, `cell status --server x` too, \
                    `cell settings` does not";
        let expected = "`http_read_only` is set; `cell region ls --server s:1` lists them, `cell status --server x` \
                        too, `cell settings` does not";
        assert_eq!(reached.in_text(text), expected);
        assert_eq!(reached.in_text(expected), expected);
        assert_eq!(reached.in_text("no command `"), "no command `");
    }

    /// Commands in backquotes that stand in a string of the code as they are, though they take an address.
    fn without_address(text: &str) -> Vec<&str> {
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        let commands = lines.flat_map(|line| line.split('`').skip(1).step_by(2));
        let takes_one = |words: &&str| words.strip_prefix("cell ").is_some_and(|words| asks(words).is_some());
        commands.filter(takes_one).collect()
    }

    /// Where a command is written so, whoever hands the text on adds the address ([`Reached::in_text`]), or
    /// nobody was asked yet.
    const WITHOUT: [(&str, &str); 19] = [
        ("cli.rs", "cell dev"),
        ("cli.rs", "cell put greeting hello"),
        ("cli.rs", "cell get greeting"),
        ("version.rs", "cell put"),
        ("settings.rs", "cell tune"),
        ("dev/owners.rs", "cell balance status"),
        ("dev/owners.rs", "cell drill run kill --node {owner}"),
        ("dev/scale.rs", "cell node ls"),
        ("dev/scale_wire.rs", "cell node ls"),
        ("dev/supervisor/drills.rs", "cell drill ls"),
        ("dev/drill_turn.rs", "cell drill ls"),
        ("dev/supervisor/scaling.rs", "cell dev scale N"),
        ("dev/scale.rs", "cell dev scale N"),
        ("dev/scale_plan.rs", "cell dev scale {more}"),
        ("dev/scale_plan.rs", "cell node undrain {node}"),
        ("dev/drain.rs", "cell drill ls"),
        ("command/node.rs", "cell node undrain {}"),
        ("dev/scale.rs", "cell dev scale"),
        ("command/dev.rs", "cell dev scale"),
    ];

    #[test]
    fn commands_in_the_code_have_an_address_or_get_one() {
        let found = sources();
        let mut violations = Vec::new();
        let mut known: BTreeSet<(&str, &str)> = WITHOUT.into_iter().collect();
        for (path, text) in &found {
            for words in without_address(text) {
                // Of the command that opens a cluster, the user names the folder.
                let opens = words.starts_with("cell dev") && !words.starts_with("cell dev scale");
                let listed =
                    WITHOUT.iter().find(|(end, of)| path.ends_with(&format!("src/{end}")) && *of == words);
                if let Some(listed) = listed {
                    known.remove(listed);
                } else if !opens {
                    violations.push(format!("{path}: `{words}`"));
                }
            }
        }
        assert!(violations.is_empty(), "without an address: {violations:#?}");
        assert!(known.is_empty(), "listed, and not there: {known:?}");
        assert_eq!(without_address("    a(\"`cell status` shows\");\n// `cell get`\n"), ["cell status"]);
    }
}
