//! Arguments that several commands share: output, the server, the encoding of keys and values, times.

use std::borrow::Cow;
use std::path::PathBuf;
use std::time::Duration;

use cell_client::{Search, Transport};
use cell_fabric::Address;
use cell_terms::setting::{Applies, Bounds, HOST_PORT, Setting, Value};
use clap::{Args, ValueEnum};

use crate::encoding::Encoding;
use crate::exit::Failure;
use crate::hint::{CA_VARIABLE, Reached, SERVER_DEFAULT, SERVER_VARIABLE};
use crate::output::message::Color;

/// Options of every command.
#[derive(Clone, Debug, Args)]
pub(crate) struct Global {
    /// JSON on stdout (errors on stderr as JSON too)
    #[arg(long, global = true, help_heading = "Output")]
    pub(crate) json: bool,
    /// No notes, no progress; data and errors only
    #[arg(long, short, global = true, help_heading = "Output")]
    pub(crate) quiet: bool,
    /// Colours on stderr; NO_COLOR is honoured
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "WHEN",
        default_value = "auto",
        help_heading = "Output"
    )]
    pub(crate) color: Color,
}

/// Which server to ask, and for how long.
#[derive(Clone, Debug, Args)]
pub(crate) struct ServerArgs {
    /// The servers' fabric addresses, separated by commas; of a cluster one is enough, as long as it is there
    #[arg(
        long,
        value_name = "HOST:PORT",
        env = SERVER_VARIABLE,
        default_value = SERVER_DEFAULT,
        value_parser = parse_servers
    )]
    pub(crate) server: String,
    /// How long one operation may take, retries and waits for a recovering server included
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) timeout: Option<Duration>,
    /// Who searches the tree for a read: the server, the client itself with one-sided reads, or whoever is
    /// expected to cost less [default: auto]
    #[arg(long, value_enum, value_name = "WHO")]
    pub(crate) search: Option<SearchArg>,
    /// What to talk over: `auto` takes shared memory where the server is on this host [default: auto]
    #[arg(long, value_name = "auto|tcp|shm|verbs", value_parser = parse_transport)]
    pub(crate) transport: Option<Transport>,
    /// A token, where the cluster wants one (`tokens_file`); over shared memory its own user needs none
    #[arg(long, value_name = "TOKEN", env = "CELL_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// A PEM file with the certificates by which nodes are trusted: their own, or those that signed them.
    /// With it everything goes over TLS
    #[arg(long, value_name = "FILE", env = CA_VARIABLE)]
    pub(crate) ca: Option<PathBuf>,
    /// Sets one of the client's settings (`cell settings`), such as client_selector_policy=paper
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) set: Vec<String>,
}

/// Who searches the tree for a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SearchArg {
    /// Whoever is expected to cost less, for each read
    Auto,
    /// The server
    Server,
    /// The client itself
    Client,
}

impl From<SearchArg> for Search {
    fn from(search: SearchArg) -> Search {
        match search {
            SearchArg::Auto => Search::Auto,
            SearchArg::Server => Search::Server,
            SearchArg::Client => Search::Client,
        }
    }
}

impl ServerArgs {
    /// A command in a hint, which asks the same servers when it is copied.
    pub(crate) fn command(&self, words: &str) -> String {
        Reached::by_server(&self.server).trusting(self.ca.as_deref()).command(words)
    }
}

/// How keys and values are written on the command line and in the output.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct EncodingArgs {
    /// Keys and values in hexadecimal
    #[arg(long, group = "encoding", help_heading = "Encoding")]
    hex: bool,
    /// Keys and values in base64
    #[arg(long, group = "encoding", help_heading = "Encoding")]
    base64: bool,
    /// Keys and values with escapes: \\ \t \n \r \0 \xNN
    #[arg(long, group = "encoding", help_heading = "Encoding")]
    escaped: bool,
}

impl EncodingArgs {
    fn chosen(self) -> Option<Encoding> {
        match self {
            EncodingArgs { hex: true, .. } => Some(Encoding::Hex),
            EncodingArgs { base64: true, .. } => Some(Encoding::Base64),
            EncodingArgs { escaped: true, .. } => Some(Encoding::Escaped),
            _ => None,
        }
    }

    /// The bytes of an argument; text unless chosen otherwise.
    pub(crate) fn decode<'a>(self, name: &str, text: &'a str) -> Result<Cow<'a, [u8]>, Failure> {
        let encoding = self.chosen().unwrap_or(Encoding::Text);
        encoding.decode(text.as_bytes()).map_err(|error| Failure::usage(format!("{name}: {error}")))
    }

    /// The bytes of a key, which is not empty.
    pub(crate) fn decode_key<'a>(self, text: &'a str) -> Result<Cow<'a, [u8]>, Failure> {
        let key = self.decode("KEY", text)?;
        if key.is_empty() {
            return Err(Failure::usage("the key is empty; keys have at least one byte"));
        }
        Ok(key)
    }

    /// How output is written where nothing was chosen.
    pub(crate) fn output_or(self, default: Encoding) -> Encoding {
        self.chosen().unwrap_or(default)
    }
}

/// Reads what to talk over.
pub(crate) fn parse_transport(text: &str) -> Result<Transport, String> {
    text.parse().map_err(|()| "takes auto, tcp, shm or verbs".to_owned())
}

/// Checks fabric addresses, separated by commas. Whether names lead anywhere is found out when they are used.
pub(crate) fn parse_servers(text: &str) -> Result<String, String> {
    let mut named = text.split(',').map(str::trim).filter(|server| !server.is_empty()).peekable();
    if named.peek().is_none() {
        return Err("it takes HOST:PORT".to_owned());
    }
    named.try_for_each(parse_server).map(|()| text.to_owned())
}

fn parse_server(server: &str) -> Result<(), String> {
    if server.starts_with("shm:") {
        let parsed = server.parse::<Address>().map(drop);
        return parsed.map_err(|_| format!("`{server}` is not `shm:/path` or `shm:@name`"));
    }
    (HOST_PORT.check)(server).map_err(|why| format!("it takes HOST:PORT ({why})"))?;
    match server.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok()) {
        Some(0) => Err("it takes HOST:PORT (nobody is reached at port 0)".to_owned()),
        _ => Ok(()),
    }
}

/// Reads a time such as `250ms`, `10 s` or `5 m`.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    const TIME: Setting = Setting {
        name: "time",
        meaning: "",
        default: "1 s",
        bounds: Bounds::Milliseconds { min: 1, max: 86_400_000 },
        applies: Applies::Live,
    };
    let number = text.trim();
    match TIME.parse(number) {
        // Settings take it for milliseconds, which nobody means who types it at a command.
        Ok(_) if number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_') => {
            Err(format!("{number} has no unit: write {number}s for seconds, {number}ms for milliseconds"))
        }
        Ok(Value::Integer(milliseconds)) => Ok(Duration::from_millis(milliseconds)),
        _ => Err(format!("takes {}, written as 250ms, 10s, 5m or 1h", TIME.bounds)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_time_takes_units_and_says_what_it_takes() {
        assert_eq!(parse_time("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_time("2 m"), Ok(Duration::from_secs(120)));
        assert!(parse_time("soon").unwrap_err().contains("a time from 1 ms to 24 h"));
        assert!(["", "0", "0s", "1.5"].iter().all(|text| parse_time(text).is_err()));
    }

    /// They were looked up or connected to, and "is a node running there?" was asked (exit 4).
    #[test]
    fn parse_servers_says_what_it_takes() {
        for well in ["127.0.0.1:7000", "node-1.example:7000, [::1]:7", "shm:/a,shm:@b", "[fe80::1%2]:7,"] {
            assert_eq!(parse_servers(well), Ok(well.to_owned()));
        }
        for (wrong, words) in [
            ("https://node-1:7000", "without a scheme"),
            ("127.0.0.1:7000,tls://node-1:7000", "without a scheme"),
            ("127.0.0.1:0", "port 0"),
            ("[::1]:0", "port 0"),
            ("[fe80::1%eth0]:7000", "interface's number"),
            ("node-1", "no port"),
            ("127.0.0.1:7000/3", "is no port"),
            (" , ", "HOST:PORT"),
            ("shm:x", "shm:/path"),
        ] {
            let said = parse_servers(wrong).unwrap_err();
            assert!(said.contains(words), "{wrong}: {said}");
        }
    }

    /// `--timeout 5` was five milliseconds.
    #[test]
    fn parse_time_refuses_numbers_without_a_unit_and_says_which_there_are() {
        for text in ["5", " 250 ", "1_000"] {
            let said = parse_time(text).unwrap_err();
            let number = text.trim();
            let which = format!("{number} has no unit: write {number}s for seconds, {number}ms for");
            assert!(said.starts_with(&which), "{said}");
        }
    }
}
