//! Progress on stderr: a bar on a terminal, silence elsewhere and with `--quiet`.

use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::message::{is_colored, is_quiet};

/// A progress bar; without a known total, a spinner.
pub(crate) struct Bar {
    bar: ProgressBar,
}

impl Bar {
    /// Starts one. `unit_bytes` says whether the total counts bytes.
    pub(crate) fn new(verb: &'static str, total: Option<u64>, unit_bytes: bool) -> Bar {
        let bar = if is_quiet() || !io::stderr().is_terminal() {
            ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden())
        } else {
            ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr_with_hz(5))
        };
        let bar = bar.with_style(style(total.is_some(), unit_bytes)).with_prefix(verb);
        bar.enable_steady_tick(Duration::from_millis(200));
        Bar { bar }
    }

    /// Where it is, with a word on it.
    pub(crate) fn set(&self, position: u64, message: String) {
        self.bar.set_position(position);
        self.bar.set_message(message);
    }

    /// Prints a line above the bar, or as a plain line where there is no bar.
    pub(crate) fn line(&self, text: &str) {
        if self.bar.is_hidden() {
            eprintln!("{text}");
        } else {
            self.bar.println(text);
        }
    }

    /// Takes it off the screen.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn style(total_known: bool, unit_bytes: bool) -> ProgressStyle {
    let bar = if is_colored() { "{bar:30.cyan/blue}" } else { "{bar:30}" };
    let template = match (total_known, unit_bytes) {
        (true, true) => {
            format!("{{prefix}} {bar} {{percent:>3}} % {{bytes}}/{{total_bytes}} {{msg}} ETA {{eta}}")
        }
        (true, false) => format!("{{prefix}} {bar} {{percent:>3}} % {{pos}}/{{len}} {{msg}} ETA {{eta}}"),
        (false, _) => "{prefix} {spinner} {msg} {elapsed}".to_owned(),
    };
    ProgressStyle::with_template(&template).expect("the template is a constant")
}
