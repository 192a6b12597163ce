//! `cell`: runs nodes, talks to them, loads, verifies, inspects and measures.
//!
//! Everything that users type is defined here and in `command/`; what it does is in the other crates. stdout
//! is data and stderr is for people; `--json` makes both readable by programs. Exit codes are in
//! [`exit::Exit`].
#![allow(clippy::disallowed_methods, reason = "ops is a shell: it waits, measures and shows times")]

mod agent;
mod api;
mod api_connect;
mod args;
mod bench;
mod change_args;
mod cli;
mod command;
mod coordinator_tls;
mod cores;
mod dev;
mod disk_size;
mod doctor;
#[cfg(test)]
mod documents;
mod encoding;
mod environment;
mod etcd_settings;
mod exit;
mod folders;
mod hint;
mod input;
mod load;
mod logging;
mod members;
mod output;
mod probe;
mod process_settings;
mod provider;
mod range;
mod readiness;
mod reload;
mod service;
mod settings;
mod side_by_side;
mod signal;
mod start_checks;
mod store;
mod unserved_pairs;
mod version;
mod waiting;
mod watch;

use std::process::ExitCode;

fn main() -> ExitCode {
    cell_memory::give_back_freed();
    let (cli, matches) = match cli::parse(std::env::args_os()) {
        Ok(parsed) => parsed,
        Err(error) => return cli::report_usage(&error, std::env::args_os()),
    };
    output::message::set_up(cli.global.color, cli.global.quiet);
    match cli::run(&cli, &matches) {
        Ok(exit) => exit.into(),
        Err(error) if exit::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::message::error(&error, cli.global.json);
            exit::classify(&error).0.into()
        }
    }
}
