//! `cell settings`: the registry as a table.

use std::io::{self, Write};

use clap::Args;

use crate::cli::Global;
use crate::exit::Exit;
use crate::output::{message, table};
use crate::settings;

/// Arguments of `cell settings`.
#[derive(Debug, Args)]
pub(crate) struct SettingsArgs {
    /// As docs/SETTINGS.md holds it
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
}

/// Prints the table.
pub(crate) fn run(global: &Global, arguments: &SettingsArgs) -> anyhow::Result<Exit> {
    if arguments.markdown {
        io::stdout().lock().write_all(settings::markdown().as_bytes())?;
    } else if global.json {
        message::print_json(settings::table_json())?;
    } else {
        let rows = settings::registry();
        let rows = rows.declarations().map(|setting| {
            let default = if setting.default.is_empty() { "none" } else { setting.default };
            vec![setting.name.to_owned(), default.to_owned(), setting.bounds.to_string()]
        });
        let text = table::plain(&["setting", "default", "takes"], &[], rows.collect());
        io::stdout().lock().write_all(text.as_bytes())?;
    }
    Ok(Exit::Ok)
}
