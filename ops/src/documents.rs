//! Holds the operator's pages to what there is: commands and their options, alerts, settings and kinds of
//! events.

use std::collections::BTreeSet;

use cell_web::EVENT_KINDS;
use clap::Command;

const HANDBOOK: &str = include_str!("../../docs/HANDBOOK.md");
const PAGES: [(&str, &str); 4] = [
    ("HANDBOOK.md", HANDBOOK),
    ("THREE-HOSTS.md", include_str!("../../docs/THREE-HOSTS.md")),
    ("OPERATING.md", include_str!("../../docs/OPERATING.md")),
    ("HOSTS.md", include_str!("../../docs/HOSTS.md")),
];
const ALERTS: &str = include_str!("../monitoring/alerts.yml");
const SETTINGS: &str = include_str!("../../docs/SETTINGS.md");
/// After these a command begins.
const BEFORE: [&str; 9] = ["until", "do", "if", "--", "|", "||", "&&", "exec", "!"];
/// Where it ends.
const AFTER: [&str; 6] = ["|", "||", "&&", ">", ">>", "<"];

/// What a page has between backticks and, line by line, in its blocks.
fn code(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (index, part) in page.split("```").enumerate() {
        if index % 2 == 1 {
            found.extend(part.replace("\\\n", " ").lines().map(str::to_owned));
        } else {
            let text = part.split_whitespace().collect::<Vec<_>>().join(" ");
            found.extend(text.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    found
}

/// What a line says of `cell` that is not so.
fn wrong_of(definition: &Command, line: &str) -> Vec<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let begins = |index: &usize| {
        words[*index] == "cell"
            && index.checked_sub(1).is_none_or(|before| {
                let before = words[before];
                BEFORE.contains(&before) || before.ends_with(';') || before.contains('=')
            })
    };
    let places = (0..words.len()).filter(begins);
    places.filter_map(|place| wrong_command(definition, &words[place + 1..])).collect()
}

fn wrong_command(definition: &Command, words: &[&str]) -> Option<String> {
    let end = words.iter().position(|word| word.ends_with(';') || AFTER.contains(word));
    let words = &words[..end.map_or(words.len(), |end| end + 1)];
    let mut words = words.iter().map(|word| word.trim_end_matches([';', ',', ')'])).peekable();
    let mut command = definition;
    while let Some(word) = words.peek() {
        let Some(inner) = command.find_subcommand(word) else { break };
        command = inner;
        words.next();
    }
    if std::ptr::eq(command, definition) {
        // `cell` alone, its own options, and what stands for any command.
        let first = words.peek()?;
        let is_command = first.starts_with(|first: char| first.is_ascii_lowercase());
        return is_command.then(|| format!("there is no `cell {first}`"));
    }
    let options = words.filter_map(|word| word.strip_prefix("--"));
    let mut names = options.filter_map(|option| option.split('=').next()).filter(|name| !name.is_empty());
    let is_there = |name: &str| {
        let has_it = |argument: &clap::Arg| {
            argument.get_long() == Some(name)
                || argument.get_all_aliases().is_some_and(|aliases| aliases.contains(&name))
        };
        name == "help" || command.get_arguments().any(has_it)
    };
    let unknown = names.find(|name| !is_there(name));
    unknown.map(|name| format!("`{}` has no --{name}", command.get_name()))
}

fn definition() -> Command {
    let mut definition = crate::cli::definition();
    definition.build(); // gives each command the options of all
    definition
}

/// Names of alerts, each with its severity.
fn alerts() -> Vec<(&'static str, bool)> {
    let parts = ALERTS.split("- alert: ").skip(1);
    parts
        .map(|part| (part.lines().next().unwrap_or_default().trim(), part.contains("severity: critical")))
        .collect()
}

#[test]
fn pages_name_commands_and_options_that_there_are() {
    let definition = definition();
    let mut wrong = Vec::new();
    for (name, page) in PAGES {
        let lines = code(page);
        assert!(lines.iter().any(|line| line.starts_with("cell ")), "{name} has commands");
        wrong.extend(lines.iter().flat_map(|line| wrong_of(&definition, line)).map(|say| (name, say)));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn handbook_names_alerts_that_there_are_and_all_that_are_critical() {
    let known = alerts();
    assert!(known.len() > 20, "{known:?}");
    let is_name =
        |text: &str| text.strip_prefix("Cell").is_some_and(|rest| rest.starts_with(char::is_uppercase));
    let named: BTreeSet<String> = code(HANDBOOK).into_iter().filter(|text| is_name(text)).collect();
    let unknown = named.iter().filter(|name| known.iter().all(|(alert, _)| alert != name));
    assert_eq!(unknown.collect::<Vec<_>>(), Vec::<&String>::new());
    let unsaid = known.iter().filter(|(alert, is_critical)| *is_critical && !named.contains(*alert));
    assert_eq!(unsaid.collect::<Vec<_>>(), Vec::<&(&str, bool)>::new());
}

#[test]
fn handbook_names_settings_events_and_metrics_that_there_are() {
    let is_name =
        |text: &str| text.contains('_') && text.chars().all(|char| char.is_ascii_lowercase() || char == '_');
    let is_metric = |name: &str| name.starts_with("cell_") && ALERTS.contains(&format!("({name})"));
    let is_setting = |name: &str| SETTINGS.contains(&format!("| `{name}` |"));
    let is_there = |name: &str| is_setting(name) || EVENT_KINDS.contains(&name) || is_metric(name);
    let unknown: Vec<String> =
        code(HANDBOOK).into_iter().filter(|text| is_name(text) && !is_there(text)).collect();
    assert_eq!(unknown, Vec::<String>::new());
}

#[test]
fn commands_that_there_are_not_are_found() {
    let definition = definition();
    for right in [
        "cell node drain 1 --wait",
        "until cell status; do sleep 1; done",
        "cell COMMAND --help",
        "cell",
        "chown cell:cell file",
        "gluster volume heal cell info",
        "CELL_TOKEN=x cell get a | grep --quiet a",
    ] {
        assert_eq!(wrong_of(&definition, right), Vec::<String>::new(), "{right}");
    }
    for wrong in
        ["cell nodes", "cell node drain 1 --await", "until cell stat; do", "x || cell tune set a=b --fur 1s"]
    {
        assert_eq!(wrong_of(&definition, wrong).len(), 1, "{wrong}");
    }
}
