//! Notes, warnings and errors on stderr, coloured on a terminal unless `NO_COLOR` or `--color never` says
//! otherwise; and JSON documents on stdout.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use cell_terms::text::with_causes;
use clap::ValueEnum;
use serde_json::{Value, json};

use crate::environment;
use crate::exit::classify;

/// The version of every JSON document that `cell` prints. It grows when a field changes its meaning or goes
/// away; new fields may come without.
pub(crate) const JSON_VERSION: u32 = 1;

/// When to colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, if `NO_COLOR` is not set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

static COLORED: AtomicBool = AtomicBool::new(false);
static QUIET: AtomicBool = AtomicBool::new(false);

/// A text of others on one line: what is no printable character is escaped, and quotes are as they are.
pub(crate) fn on_one_line(text: &str) -> String {
    text.escape_debug().to_string().replace("\\'", "'").replace("\\\"", "\"")
}

/// Decides once, at start, for all output.
pub(crate) fn set_up(color: Color, quiet: bool) {
    let no_color = environment::variable("NO_COLOR").is_some();
    let colored = match color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => !no_color && io::stderr().is_terminal(),
    };
    COLORED.store(colored, Ordering::Relaxed);
    QUIET.store(quiet, Ordering::Relaxed);
}

/// Whether notes and progress are wanted.
pub(crate) fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Whether stderr is coloured.
pub(crate) fn is_colored() -> bool {
    COLORED.load(Ordering::Relaxed)
}

/// A line about what goes on; not with `--quiet`.
pub(crate) fn note(text: &str) {
    if !is_quiet() {
        line(text);
    }
}

/// A line about something to look at.
pub(crate) fn warning(text: &str) {
    line(&format!("{} {text}", painted("warning:", "33;1")));
}

/// A line about something to look at, and what can be done.
pub(crate) fn warning_with_next(text: &str, next: &str) {
    warning(text);
    line(&format!("{} {next}", painted("next:", "36;1")));
}

/// An error: what and why, and what to do next. As one JSON object if JSON was asked for.
pub(crate) fn error(error: &anyhow::Error, as_json: bool) {
    let (exit, next) = classify(error);
    if as_json {
        let document = json!({
            "version": JSON_VERSION,
            "error": {"code": exit.word(), "exit": exit as u8, "message": in_words(error), "next": next},
        });
        line(&document.to_string());
        return;
    }
    line(&format!("{} {}", painted("error:", "31;1"), in_words(error)));
    if let Some(next) = next {
        line(&format!("{} {next}", painted("next:", "36;1")));
    }
}

/// An error and its causes; what some libraries' errors say of their cause is not said twice.
pub(crate) fn in_words(error: &anyhow::Error) -> String {
    with_causes(error.as_ref())
}

/// Prints a JSON document on stdout, one line.
pub(crate) fn print_json(mut document: Value) -> io::Result<()> {
    if let Value::Object(fields) = &mut document {
        fields.insert("version".into(), JSON_VERSION.into());
    }
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, &document)?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Prints text on stdout.
pub(crate) fn print_text(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Prints a document as JSON, or as the text that is made of it.
pub(crate) fn print_document(json: bool, document: Value, text: impl FnOnce() -> String) -> io::Result<()> {
    if json { print_json(document) } else { print_text(&text()) }
}

/// Text in a colour, if colours are on.
pub(crate) fn painted(text: &str, code: &str) -> String {
    if is_colored() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// A line on stderr. A closed stderr is no reason to fail.
fn line(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
