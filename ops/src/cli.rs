//! The command line: what every command shares, and the list of commands.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::args::Global;
use crate::command;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::output::message;
use crate::{process_settings, provider, settings};

/// An ordered key-value store that lives in memory and survives crashes.
#[derive(Debug, Parser)]
#[command(name = "cell", version, max_term_width = 100, after_help = AFTER_HELP)]
pub(crate) struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub(crate) global: Global,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

const AFTER_HELP: &str = "\
Exit codes: 0 ok, 1 error, 2 usage, 3 not found or precondition failed, 4 unreachable, 5 unhealthy, \
6 partial, 7 verification failed, 8 inconclusive, 130 interrupted.

Start with `cell dev`, then `cell put greeting hello` and `cell get greeting` in another terminal.";

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a whole small cluster on this machine, for development
    Dev(command::dev::DevArgs),
    /// Run one storage node, or list, empty or remove those of a cluster
    Node(command::node::NodeArgs),
    /// Run the nodes of this host as one of a cluster's agents, which drills reach from elsewhere
    Agent(command::agent::AgentArgs),
    /// Run the coordinator by itself, for this machine's nodes and over TLS for others', or copy its table
    Coordinator(command::coordinator::CoordinatorArgs),
    /// Print entries
    Get(command::get::GetArgs),
    /// Write an entry and print its version
    Put(command::put::PutArgs),
    /// Remove an entry
    Del(command::del::DelArgs),
    /// Write an entry if it is still what you believe
    Cas(command::cas::CasArgs),
    /// Print the entries of a range, in order
    Scan(command::scan::ScanArgs),
    /// Count the entries of a range
    Count(command::scan::CountArgs),
    /// Put the records of a file into the store
    Load(command::load::LoadArgs),
    /// Write the entries of a range as lines that `load` reads
    Dump(command::dump::DumpArgs),
    /// Show what a node says of itself
    Status(command::status::StatusArgs),
    /// Show the shape of the tree or where a key is, or check it
    Tree(command::tree::TreeArgs),
    /// List the regions of the cluster
    Region(command::region::RegionArgs),
    /// Show how pairs spread over the nodes by themselves, and why; switch that on or off
    Balance(command::balance::BalanceArgs),
    /// Show how each client searches each server, and why
    Selector(command::selector::SelectorArgs),
    /// Change settings of the whole cluster while it runs
    Tune(command::tune::TuneArgs),
    /// Show what happened in the cluster
    Events(command::events::EventsArgs),
    /// Check the tree, walk the store, and prove that a loaded file is in it
    Verify(command::verify::VerifyArgs),
    /// Show what is on disk: logs, images, the region table
    Inspect(command::inspect::InspectArgs),
    /// Do a fault on purpose and prove that nothing acknowledged was lost
    Drill(command::drill::DrillArgs),
    /// Measure
    Bench(command::bench::BenchArgs),
    /// Look whether this host can run a node as its settings say, and say what to do where not
    Doctor(command::doctor::DoctorArgs),
    /// Make certificates for the hosts of a cluster, and the CA that signs them
    Certificates(command::certificates::CertificatesArgs),
    /// List every setting with its meaning, bounds and default
    Settings(command::settings::SettingsArgs),
    /// Print a completion script for a shell
    Completion(command::completion::CompletionArgs),
    /// Print the manual page, or write one for each command
    Man(command::man::ManArgs),
}

/// The whole command line, settings included.
pub(crate) fn definition() -> clap::Command {
    Cli::command()
        .mut_subcommand("node", |node| settings::with_flags(node, &[]))
        .mut_subcommand("agent", |agent| settings::with_flags(agent, &[]))
        .mut_subcommand("doctor", |doctor| settings::with_flags(doctor, &[]))
        .mut_subcommand("dev", |dev| settings::with_flags(dev, &command::dev::DECIDED))
        .mut_subcommand("coordinator", |coordinator| {
            settings::with_these_flags(coordinator, &command::coordinator::OWN)
                .mut_arg(process_settings::COORDINATOR_LISTEN, |listen| listen.visible_alias("listen"))
                .mut_subcommand("copy", |copy| settings::with_these_flags(copy, &provider::REACHED_BY))
        })
        .mut_subcommand("inspect", |inspect| {
            inspect.mut_subcommand("table", |table| settings::with_these_flags(table, &provider::REACHED_BY))
        })
}

/// Parses a command line. The matches hold the settings' flags.
pub(crate) fn parse(arguments: impl Iterator<Item = OsString>) -> Result<(Cli, ArgMatches), clap::Error> {
    let matches = environment::without_empty(definition()).try_get_matches_from(arguments)?;
    let cli = Cli::from_arg_matches(&matches)?;
    Ok((cli, matches))
}

/// Runs the command that was given.
pub(crate) fn run(cli: &Cli, matches: &ArgMatches) -> anyhow::Result<Exit> {
    let own = matches.subcommand().expect("clap demands a command").1;
    let global = &cli.global;
    match &cli.command {
        Command::Dev(arguments) => command::dev::run(global, arguments, own),
        Command::Node(arguments) => command::node::run(global, arguments, own),
        Command::Agent(arguments) => command::agent::run(global, arguments, own),
        Command::Coordinator(arguments) => command::coordinator::run(global, arguments, own),
        Command::Get(arguments) => command::get::run(global, arguments),
        Command::Put(arguments) => command::put::run(global, arguments),
        Command::Del(arguments) => command::del::run(global, arguments),
        Command::Cas(arguments) => command::cas::run(global, arguments),
        Command::Scan(arguments) => command::scan::run_scan(global, arguments),
        Command::Count(arguments) => command::scan::run_count(global, arguments),
        Command::Load(arguments) => command::load::run(global, arguments),
        Command::Drill(arguments) => command::drill::run(global, arguments),
        Command::Dump(arguments) => command::dump::run(global, arguments),
        Command::Status(arguments) => command::status::run(global, arguments),
        Command::Tree(arguments) => command::tree::run(global, arguments),
        Command::Region(arguments) => command::region::run(global, arguments),
        Command::Balance(arguments) => command::balance::run(global, arguments),
        Command::Selector(arguments) => command::selector::run(global, arguments),
        Command::Tune(arguments) => command::tune::run(global, arguments),
        Command::Events(arguments) => command::events::run(global, arguments),
        Command::Verify(arguments) => command::verify::run(global, arguments),
        Command::Inspect(arguments) => command::inspect::run(global, arguments, own),
        Command::Bench(arguments) => command::bench::run(global, arguments),
        Command::Doctor(arguments) => command::doctor::run(global, arguments, own),
        Command::Certificates(arguments) => command::certificates::run(global, arguments),
        Command::Settings(arguments) => command::settings::run(global, arguments),
        Command::Completion(arguments) => command::completion::run(arguments, definition()),
        Command::Man(arguments) => command::man::run(arguments, definition()),
    }
}

/// Prints a usage error, help or version as clap words it, and gives its exit code. A usage error is one JSON
/// object, as every other, if the arguments ask for JSON.
pub(crate) fn report_usage(error: &clap::Error, arguments: impl Iterator<Item = OsString>) -> ExitCode {
    if !error.use_stderr() {
        let _ = error.print();
        return Exit::Ok.into();
    }
    if wants_json(arguments) {
        message::error(&anyhow::Error::new(usage_failure(error)), true);
    } else {
        let _ = error.print();
    }
    Exit::Usage.into()
}

/// Looked for by hand: arguments that cannot be parsed have no parsed `--json`.
fn wants_json(arguments: impl Iterator<Item = OsString>) -> bool {
    arguments.take_while(|argument| argument != "--").any(|argument| argument == "--json")
}

/// clap's words: what is wrong is the first paragraph, in one line; what helps are its tips and the usage.
fn usage_failure(error: &clap::Error) -> Failure {
    let text = error.render().to_string();
    let mut paragraphs = text.split("\n\n").map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "));
    let what = paragraphs.next().unwrap_or_default();
    let what = what.strip_prefix("error: ").unwrap_or(&what).to_owned();
    let next: Vec<String> = paragraphs.filter(|text| !text.starts_with("For more")).collect();
    let next = if next.is_empty() { "`cell --help` lists every command".to_owned() } else { next.join("; ") };
    Failure::usage(what).next(next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hint::{self, Asks};

    #[test]
    fn definition_is_consistent() {
        definition().debug_assert();
    }

    /// A command in a hint gets its address by what it is known to ask.
    #[test]
    fn what_commands_ask_is_known_to_hints() {
        fn look(command: &clap::Command, words: &str, count: &mut usize) {
            let has = |long: &str| command.get_arguments().any(|argument| argument.get_long() == Some(long));
            // Those that read and write choose who searches.
            let asks = match (has("server"), has("http"), has("dir")) {
                (true, ..) if has("search") => Some(Asks::Fabric),
                (true, true, _) => Some(Asks::Api),
                (.., true) if words != "man" => Some(Asks::Folder),
                _ => None,
            };
            if asks.is_some() || !command.has_subcommands() {
                *count += usize::from(asks.is_some());
                assert_eq!(hint::asks(words), asks, "{words}");
            }
            for of in command.get_subcommands() {
                look(of, format!("{words} {}", of.get_name()).trim_start(), count);
            }
        }
        let mut count = 0;
        look(&definition(), "", &mut count);
        assert!(count > 25, "{count}");
    }

    /// What no list has is warned of as a setting that is unknown, and no test sets it to nothing.
    #[test]
    fn variables_of_arguments_are_no_settings() {
        fn look(command: &clap::Command, count: &mut usize) {
            for name in command.get_arguments().filter_map(clap::Arg::get_env) {
                *count += 1;
                assert!(settings::RESERVED_VARIABLES.contains(&name.to_str().unwrap()), "{name:?}");
            }
            command.get_subcommands().for_each(|of| look(of, count));
        }
        let mut count = 0;
        look(&definition(), &mut count);
        assert!(count > 10);
    }
}
