//! `cell settings`: the registry as a table.

use std::io::{self, Write};

use cell_terms::setting::Setting;
use clap::Args;

use crate::args::Global;
use crate::exit::Exit;
use crate::output::{message, table};
use crate::settings::{self, REGISTRY};

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
        message::print_json(REGISTRY.json())?;
    } else {
        let rows = REGISTRY.declarations().map(|(_, setting)| {
            let Setting { name, bounds, applies, .. } = setting;
            let default = setting.default_or_none().to_owned();
            let why = applies.why_not_live().unwrap_or("-").to_owned();
            vec![(*name).to_owned(), default, bounds.to_string(), applies.to_string(), why]
        });
        let text =
            table::plain(&["setting", "default", "takes", "applies", "why not live"], &[], rows.collect());
        io::stdout().lock().write_all(text.as_bytes())?;
    }
    Ok(Exit::Ok)
}
