//! How a command ends: exit codes and failures that say what, why and what next.

use std::fmt;

/// Exit codes of every command. Scripts rely on them: they are never renumbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    Ok = 0,
    /// Something failed that has no code of its own.
    Error = 1,
    /// The command line, a setting or an input was wrong.
    Usage = 2,
    /// No such key, or a condition did not hold.
    NotFound = 3,
    /// No server answered.
    Unreachable = 4,
    /// The server answers, and says that it is not healthy.
    Unhealthy = 5,
    /// Some of it was done; what was not is on stderr.
    Partial = 6,
    /// A verification found something missing or wrong.
    VerificationFailed = 7,
    /// Nothing is wrong, but too little happened to say that all is well.
    Inconclusive = 8,
    /// Stopped by a signal.
    Interrupted = 130,
}

impl Exit {
    /// The word for a code in JSON errors.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Exit::Ok => "ok",
            Exit::Error => "error",
            Exit::Usage => "usage",
            Exit::NotFound => "not_found",
            Exit::Unreachable => "unreachable",
            Exit::Unhealthy => "unhealthy",
            Exit::Partial => "partial",
            Exit::VerificationFailed => "verification_failed",
            Exit::Inconclusive => "inconclusive",
            Exit::Interrupted => "interrupted",
        }
    }
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        std::process::ExitCode::from(exit as u8)
    }
}

/// An error with its exit code, and a hint at what to do next.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The process's exit code.
    pub(crate) exit: Exit,
    /// What failed and why, one sentence.
    pub(crate) what: String,
    /// What the user can do, one sentence.
    pub(crate) next: Option<String>,
    /// The code of a problem that the admin API answers.
    pub(crate) code: Option<String>,
}

impl Failure {
    /// A failure without a hint.
    pub(crate) fn new(exit: Exit, what: impl Into<String>) -> Failure {
        Failure { exit, what: what.into(), next: None, code: None }
    }

    /// A wrong command line or input.
    pub(crate) fn usage(what: impl Into<String>) -> Failure {
        Failure::new(Exit::Usage, what)
    }

    /// Adds what to do next.
    pub(crate) fn next(mut self, next: impl Into<String>) -> Failure {
        self.next = Some(next.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Failure {}

/// The exit code and hint of any error: a [`Failure`] brings its own, a refused setting is a usage error, and
/// whatever else went wrong is [`Exit::Error`].
pub(crate) fn classify(error: &anyhow::Error) -> (Exit, Option<&str>) {
    if let Some(failure) = error.downcast_ref::<Failure>() {
        return (failure.exit, failure.next.as_deref());
    }
    if error.downcast_ref::<cell_terms::setting::SettingError>().is_some() {
        return (Exit::Usage, Some("`cell settings` lists every setting with its bounds"));
    }
    (Exit::Error, None)
}

/// Whether the reader of our stdout went away (`cell scan | head`): not an error of ours.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classify_context_around_a_failure_keeps_its_code() {
        let error = anyhow::Error::new(Failure::usage("no").next("do")).context("while reading");
        assert_eq!(classify(&error), (Exit::Usage, Some("do")));
        assert_eq!(classify(&anyhow::anyhow!("plain")), (Exit::Error, None));
    }
}
