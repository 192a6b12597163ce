//! Settings: declared once by the crate that uses them; flags, `CELL_*` variables, the configuration file,
//! the admin API, the console and the docs are made from the declarations.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

/// What kind of value a setting takes, with its bounds (inclusive).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bounds {
    /// A whole number.
    Integer {
        /// Smallest permitted.
        min: u64,
        /// Largest permitted.
        max: u64,
    },
    /// A number of bytes; text may use `KiB`, `MiB`, `GiB`.
    Bytes {
        /// Smallest permitted.
        min: u64,
        /// Largest permitted.
        max: u64,
        /// Whether it must be a power of two.
        power_of_two: bool,
    },
    /// A time in milliseconds; text may use `ms`, `s`, `m`, `h`.
    Milliseconds {
        /// Shortest permitted.
        min: u64,
        /// Longest permitted.
        max: u64,
    },
    /// A time in milliseconds, or 0, which is none.
    MillisecondsOrNone {
        /// Shortest permitted besides.
        min: u64,
        /// Longest permitted.
        max: u64,
    },
    /// A fraction or factor.
    Real {
        /// Smallest permitted.
        min: f64,
        /// Largest permitted.
        max: f64,
    },
    /// One of a few words.
    Choice(&'static [&'static str]),
    /// `true` or `false`.
    Flag,
    /// Any text up to so many bytes, such as a name for people.
    Text {
        /// Longest permitted, in bytes.
        max: usize,
    },
    /// Text that something reads: addresses, lists, paths. Whatever is written there, from whichever source,
    /// was read once before it is taken.
    Form(TextForm),
}

/// What a text is, and what reads it.
#[derive(Clone, Copy, Debug)]
pub struct TextForm {
    /// Longest permitted, in bytes.
    pub max: usize,
    /// What is taken, in words.
    pub takes: &'static str,
    /// Whether a text is taken; why not.
    pub check: fn(&str) -> Result<(), String>,
}

impl PartialEq for TextForm {
    fn eq(&self, other: &TextForm) -> bool {
        (self.max, self.takes) == (other.max, other.takes)
    }
}

impl TextForm {
    fn refusal(self, text: &str) -> Option<String> {
        match text.len() {
            length if length > self.max => Some(format!("of at most {} bytes", self.max)),
            _ => (self.check)(text).err(),
        }
    }
}

/// A host, by name or address, and a port.
pub const HOST_PORT: TextForm = TextForm { max: 256, takes: "HOST:PORT", check: check_host_port };
/// A host and a port, or none.
pub const OPTIONAL_HOST_PORT: TextForm = TextForm {
    max: 256,
    takes: "HOST:PORT, or nothing",
    check: |text| if text.is_empty() { Ok(()) } else { check_host_port(text) },
};
/// A path of a file or folder.
pub const PATH: TextForm = TextForm { max: 4096, takes: "a path", check: check_path };
/// A path of a file or folder, or none.
pub const OPTIONAL_PATH: TextForm = TextForm {
    max: 4096,
    takes: "a path, or nothing",
    check: |text| if text.is_empty() { Ok(()) } else { check_path(text) },
};

/// Whether a name leads anywhere is found out when it is used.
fn check_host_port(text: &str) -> Result<(), String> {
    if text.parse::<SocketAddr>().is_ok() {
        return Ok(());
    }
    if text.contains("://") {
        return Err("it is written without a scheme".to_owned());
    }
    let Some((host, port)) = text.rsplit_once(':') else { return Err("it has no port".to_owned()) };
    if port.parse::<u16>().is_err() {
        return Err(format!("`{port}` is no port"));
    }
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    match host {
        "" => Err("it has no host".to_owned()),
        host if host.chars().all(is_of_name) => Ok(()),
        host if host.starts_with('[') && host.contains('%') => {
            Err(format!("the scope in `{host}` is no interface's number, as in [fe80::1%2]:{port}"))
        }
        host => Err(format!("`{host}` is no host; an IPv6 address stands in brackets")),
    }
}

fn check_path(text: &str) -> Result<(), String> {
    match text {
        "" => Err("it is empty".to_owned()),
        text if text.contains('\0') => Err("no path has a byte 0".to_owned()),
        _ => Ok(()),
    }
}

/// When a change takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applies {
    /// At once.
    Live,
    /// At the next start of the process; why not at once, as a sentence.
    Restart(&'static str),
    /// Only when a region is created; later it is read from the region's header and checked. Why not at
    /// once, as a sentence.
    Creation(&'static str),
}

impl Applies {
    /// Why a change does not take effect at once; none: it does.
    #[must_use]
    pub const fn why_not_live(self) -> Option<&'static str> {
        match self {
            Applies::Live => None,
            Applies::Restart(why) | Applies::Creation(why) => Some(why),
        }
    }
}

/// A setting's declaration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// Name in the configuration file, e.g. `log_segment_bytes`. The flag is `--log-segment-bytes`, the
    /// variable `CELL_LOG_SEGMENT_BYTES`.
    pub name: &'static str,
    /// What it does and what to expect when it is moved, one or two sentences.
    pub meaning: &'static str,
    /// The default, in the text form that a person would write.
    pub default: &'static str,
    /// Kind of value and bounds.
    pub bounds: Bounds,
    /// When a change takes effect.
    pub applies: Applies,
}

/// A setting's value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// [`Bounds::Integer`], [`Bounds::Bytes`] and [`Bounds::Milliseconds`].
    Integer(u64),
    /// [`Bounds::Real`].
    Real(f64),
    /// [`Bounds::Flag`].
    Flag(bool),
    /// [`Bounds::Choice`], [`Bounds::Text`] and [`Bounds::Form`].
    Text(String),
}

/// Where a value came from; later ones override earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The declaration.
    Default,
    /// The configuration file.
    File,
    /// A `CELL_*` variable.
    Environment,
    /// A command-line flag.
    Flag,
    /// The admin API.
    Admin,
}

/// Why a setting was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingError {
    /// No declaration has this name; the caller should show the nearest one.
    #[error("there is no setting `{name}`{}", nearest.map(|n| format!("; did you mean `{n}`?")).unwrap_or_default())]
    Unknown {
        /// What was asked for.
        name: String,
        /// The declared name closest to it.
        nearest: Option<&'static str>,
    },
    /// The text is not of the setting's kind, or out of its bounds.
    #[error("`{name}` cannot be `{text}`: it takes {expected}")]
    Invalid {
        /// The setting.
        name: &'static str,
        /// What was given.
        text: String,
        /// What it takes, in words.
        expected: String,
    },
}

impl Setting {
    /// Reads a value in the text form that people write and checks its bounds.
    ///
    /// # Errors
    /// [`SettingError::Invalid`] says what the setting takes.
    pub fn parse(&self, text: &str) -> Result<Value, SettingError> {
        let text = text.trim();
        let value = match self.bounds {
            Bounds::Integer { min, max } => {
                text.replace('_', "").parse().ok().filter(|v| (min..=max).contains(v)).map(Value::Integer)
            }
            Bounds::Bytes { min, max, power_of_two } => scaled(text, BYTE_UNITS)
                .filter(|v| (min..=max).contains(v) && (!power_of_two || v.is_power_of_two()))
                .map(Value::Integer),
            Bounds::Milliseconds { min, max } => {
                scaled(text, TIME_UNITS).filter(|v| (min..=max).contains(v)).map(Value::Integer)
            }
            Bounds::MillisecondsOrNone { min, max } => {
                scaled(text, TIME_UNITS).filter(|v| *v == 0 || (min..=max).contains(v)).map(Value::Integer)
            }
            Bounds::Real { min, max } => {
                text.parse().ok().filter(|v| (min..=max).contains(v)).map(Value::Real)
            }
            Bounds::Choice(words) => words.contains(&text).then(|| Value::Text(text.to_owned())),
            Bounds::Flag => text.parse().ok().map(Value::Flag),
            Bounds::Text { max } => (text.len() <= max).then(|| Value::Text(text.to_owned())),
            Bounds::Form(form) => match form.refusal(text) {
                None => Some(Value::Text(text.to_owned())),
                Some(why) => return Err(self.invalid(text, format!("{} ({why})", self.bounds))),
            },
        };
        value.ok_or_else(|| self.invalid(text, self.bounds.to_string()))
    }

    fn invalid(&self, text: &str, expected: String) -> SettingError {
        SettingError::Invalid { name: self.name, text: text.to_owned(), expected }
    }
}

impl Setting {
    /// The value in the text form that people write, which [`Setting::parse`] reads.
    #[must_use]
    pub fn format(&self, value: &Value) -> String {
        match (self.bounds, value) {
            (Bounds::Bytes { .. }, Value::Integer(bytes)) => in_units(*bytes, BYTE_UNITS),
            (Bounds::Milliseconds { .. } | Bounds::MillisecondsOrNone { .. }, Value::Integer(time)) => {
                in_units(*time, TIME_UNITS)
            }
            _ => value.to_string(),
        }
    }

    /// The default as people are shown it: "none" for an empty one.
    #[must_use]
    pub fn default_or_none(&self) -> &'static str {
        if self.default.is_empty() { "none" } else { self.default }
    }
}

impl fmt::Display for Applies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Applies::Live => "live",
            Applies::Restart(_) => "restart",
            Applies::Creation(_) => "creation",
        })
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Bounds::Integer { min, max } => write!(f, "a whole number from {min} to {max}"),
            Bounds::Bytes { min, max, power_of_two } => {
                let power = if power_of_two { ", a power of two" } else { "" };
                write!(f, "bytes from {} to {}{power}", in_units(min, BYTE_UNITS), in_units(max, BYTE_UNITS))
            }
            Bounds::Milliseconds { min, max } => {
                write!(f, "a time from {} to {}", in_units(min, TIME_UNITS), in_units(max, TIME_UNITS))
            }
            Bounds::MillisecondsOrNone { min, max } => {
                write!(f, "0, or a time from {} to {}", in_units(min, TIME_UNITS), in_units(max, TIME_UNITS))
            }
            Bounds::Real { min, max } => write!(f, "a number from {min} to {max}"),
            Bounds::Choice(words) => write!(f, "one of {}", words.join(", ")),
            Bounds::Flag => f.write_str("true or false"),
            Bounds::Text { max } => write!(f, "text of at most {max} bytes"),
            Bounds::Form(form) => f.write_str(form.takes),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Integer(v) => write!(f, "{v}"),
            Value::Real(v) => write!(f, "{v}"),
            Value::Flag(v) => write!(f, "{v}"),
            Value::Text(v) => f.write_str(v),
        }
    }
}

/// The values in force: every declared setting has one, with its source.
#[derive(Clone, Debug)]
pub struct Settings {
    declared: BTreeMap<&'static str, &'static Setting>,
    values: BTreeMap<&'static str, (Value, Source)>,
}

impl Settings {
    /// All defaults of the given declarations.
    ///
    /// # Panics
    /// If two crates declare one name, or a default does not satisfy its own bounds: a defect of the
    /// declarations.
    #[must_use]
    pub fn new(declarations: &[&'static [Setting]]) -> Settings {
        let mut settings = Settings { declared: BTreeMap::new(), values: BTreeMap::new() };
        for setting in declarations.iter().flat_map(|list| list.iter()) {
            let value = setting.parse(setting.default);
            let value = value.unwrap_or_else(|error| panic!("default of a setting is wrong: {error}"));
            assert!(
                settings.declared.insert(setting.name, setting).is_none(),
                "`{}` declared twice",
                setting.name
            );
            settings.values.insert(setting.name, (value, Source::Default));
        }
        settings
    }

    /// Every declaration, by name.
    pub fn declarations(&self) -> impl Iterator<Item = &'static Setting> + '_ {
        self.declared.values().copied()
    }

    /// A setting's value and where it came from.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<(&Value, Source)> {
        self.values.get(name).map(|(value, source)| (value, *source))
    }

    /// A setting's value in the text form that people write. Panics as [`Settings::integer`] does.
    #[must_use]
    pub fn shown(&self, name: &str) -> String {
        match (self.declared.get(name), self.values.get(name)) {
            (Some(setting), Some((value, _))) => setting.format(value),
            _ => panic!("`{name}` is not declared"),
        }
    }

    /// Sets a value from text, unless a stronger source has set it.
    ///
    /// # Errors
    /// An unknown name or a value out of bounds; nothing is changed then.
    pub fn set(&mut self, name: &str, text: &str, source: Source) -> Result<(), SettingError> {
        if self.get(name).is_some_and(|(_, stronger)| stronger > source) {
            return self.declared(name)?.parse(text).map(drop);
        }
        self.overrule(name, text, source).map(drop)
    }

    /// Sets a value from text, whatever has set it before; gives the declaration.
    ///
    /// # Errors
    /// As for [`Settings::set`].
    pub fn overrule(
        &mut self,
        name: &str,
        text: &str,
        source: Source,
    ) -> Result<&'static Setting, SettingError> {
        let setting = self.declared(name)?;
        self.values.insert(setting.name, (setting.parse(text)?, source));
        Ok(setting)
    }

    fn declared(&self, name: &str) -> Result<&'static Setting, SettingError> {
        let unknown = || SettingError::Unknown { name: name.to_owned(), nearest: self.nearest(name) };
        self.declared.get(name).copied().ok_or_else(unknown)
    }

    /// A whole number, a number of bytes or of milliseconds.
    ///
    /// # Panics
    /// If the name is not declared or of another kind: names are written in code beside their declaration.
    #[must_use]
    pub fn integer(&self, name: &str) -> u64 {
        match self.get(name) {
            Some((Value::Integer(value), _)) => *value,
            other => panic!("`{name}` is not a declared whole number: {other:?}"),
        }
    }

    /// A fraction or factor. Panics as [`Settings::integer`] does.
    #[must_use]
    pub fn real(&self, name: &str) -> f64 {
        match self.get(name) {
            Some((Value::Real(value), _)) => *value,
            other => panic!("`{name}` is not a declared number: {other:?}"),
        }
    }

    /// A flag. Panics as [`Settings::integer`] does.
    #[must_use]
    pub fn flag(&self, name: &str) -> bool {
        match self.get(name) {
            Some((Value::Flag(value), _)) => *value,
            other => panic!("`{name}` is not a declared flag: {other:?}"),
        }
    }

    /// A word or text. Panics as [`Settings::integer`] does.
    #[must_use]
    pub fn text(&self, name: &str) -> &str {
        match self.get(name) {
            Some((Value::Text(value), _)) => value,
            other => panic!("`{name}` is not a declared text: {other:?}"),
        }
    }

    fn nearest(&self, name: &str) -> Option<&'static str> {
        let distance = |other: &str| strsim::levenshtein(name, other);
        self.declared.keys().copied().min_by_key(|other| distance(other)).filter(|other| distance(other) <= 4)
    }
}

// No library reads and writes these: `16 MB` and a unit that is half right are refused, `1_000` is taken.
const BYTE_UNITS: &[(&str, u64)] =
    &[("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1), ("", 1)];
const TIME_UNITS: &[(&str, u64)] = &[("h", 3_600_000), ("ms", 1), ("m", 60_000), ("s", 1_000), ("", 1)];

fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
    let number: u64 = text[..digits].replace('_', "").parse().ok()?;
    let (_, scale) = units.iter().find(|(unit, _)| *unit == text[digits..].trim())?;
    number.checked_mul(*scale)
}

fn in_units(value: u64, units: &[(&str, u64)]) -> String {
    let fitting = units.iter().filter(|(unit, scale)| !unit.is_empty() && value.is_multiple_of(*scale));
    match fitting.max_by_key(|(_, scale)| *scale) {
        Some((unit, scale)) if value > 0 => format!("{} {unit}", value / scale),
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: Setting = Setting {
        name: "log_segment_bytes",
        meaning: "Size of one log segment.",
        default: "64 MiB",
        bounds: Bounds::Bytes { min: 1 << 20, max: 1 << 30, power_of_two: true },
        applies: Applies::Restart("Segments are prepared ahead."),
    };
    const LIST: &[Setting] = &[SEGMENT];

    #[test]
    fn parse_units_and_bounds_are_checked() {
        assert_eq!(SEGMENT.parse("16MiB"), Ok(Value::Integer(16 << 20)));
        assert_eq!(SEGMENT.parse("1 GiB"), Ok(Value::Integer(1 << 30)));
        for wrong in ["", "3 MiB", "2 GiB", "-1", "16 MB", "99999999999999999999", "999999999999 TiB"] {
            let error = SEGMENT.parse(wrong).unwrap_err();
            assert!(error.to_string().contains("bytes from 1 MiB to 1 GiB, a power of two"), "{error}");
        }
    }

    #[test]
    fn parse_of_a_form_says_what_is_taken_and_why_this_is_not() {
        let of = |form| Setting { name: "where", bounds: Bounds::Form(form), default: "", ..SEGMENT };
        assert_eq!(of(HOST_PORT).parse(" [::1]:7 "), Ok(Value::Text("[::1]:7".to_owned())));
        assert!(of(OPTIONAL_HOST_PORT).parse("").is_ok() && of(OPTIONAL_PATH).parse("").is_ok());
        for (form, wrong, words) in [
            (HOST_PORT, "", "it takes HOST:PORT (it has no port"),
            (OPTIONAL_HOST_PORT, "7080", "it takes HOST:PORT, or nothing (it has no port"),
            (HOST_PORT, "node-1.example", "it takes HOST:PORT (it has no port"),
            (HOST_PORT, "node-1:x", "it takes HOST:PORT (`x` is no port"),
            (OPTIONAL_HOST_PORT, "::1:7", "an IPv6 address stands in brackets"),
            (HOST_PORT, "https://node-1:7", "it takes HOST:PORT (it is written without a scheme"),
            (HOST_PORT, "[fe80::1%eth0]:7", "no interface's number, as in [fe80::1%2]:7"),
            (PATH, "", "it takes a path (it is empty)"),
            (OPTIONAL_PATH, "a\0b", "(no path has a byte 0)"),
            (PATH, &"x".repeat(4097), "(of at most 4096 bytes)"),
        ] {
            let error = of(form).parse(wrong).unwrap_err().to_string();
            assert!(error.starts_with("`where` cannot be ") && error.contains(words), "{error}");
        }
    }

    #[test]
    fn set_a_weaker_source_does_not_override() {
        let mut settings = Settings::new(&[LIST]);
        settings.set("log_segment_bytes", "2 MiB", Source::Flag).unwrap();
        settings.set("log_segment_bytes", "4 MiB", Source::File).unwrap();
        assert_eq!(settings.integer("log_segment_bytes"), 2 << 20);
    }

    #[test]
    fn set_unknown_name_suggests_the_nearest() {
        let error = Settings::new(&[LIST]).set("log_segmnt_bytes", "1", Source::File).unwrap_err();
        assert!(error.to_string().contains("did you mean `log_segment_bytes`"), "{error}");
    }
}
