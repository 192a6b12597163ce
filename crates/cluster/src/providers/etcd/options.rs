//! How a cluster's etcd is reached.

use std::path::PathBuf;
use std::time::Duration;

/// How a cluster's etcd is reached, and below which prefix its keys lie.
#[derive(Clone, Debug)]
pub struct EtcdOptions {
    /// Its members: `http://HOST:PORT` or `https://HOST:PORT`. Without a scheme it is `http`.
    pub endpoints: Vec<String>,
    /// Below which all keys of this cluster lie, without a slash at its end.
    pub prefix: String,
    /// The user, and the file of its password, which is read at each log-in.
    pub user: Option<(String, PathBuf)>,
    /// A PEM file with the certificates by which members are trusted over TLS.
    pub ca_file: Option<PathBuf>,
    /// PEM files with the certificate and the key by which members know this process.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
    /// How long a call may take, over all members.
    pub deadline: Duration,
    /// How often etcd is told to forget what is older than that; none: others see to it.
    pub compaction: Option<Duration>,
}

/// The endpoints of a list, separated by commas.
///
/// # Errors
/// What is no endpoint, in words.
pub fn parse_etcd_endpoints(list: &str) -> Result<Vec<String>, String> {
    let endpoints = list.split(',').map(|endpoint| parse_endpoint(endpoint.trim()));
    endpoints.collect()
}

fn parse_endpoint(endpoint: &str) -> Result<String, String> {
    let wrong =
        || format!("`{endpoint}` is no endpoint of etcd: it takes http://HOST:PORT or https://HOST:PORT");
    let (scheme, authority) = endpoint.split_once("://").unwrap_or(("http", endpoint));
    let authority = authority.trim_end_matches('/');
    let (host, port) = authority.rsplit_once(':').ok_or_else(wrong)?;
    let is_host = !host.is_empty() && !host.contains(|c: char| c.is_whitespace() || "/@?#".contains(c));
    let is_plain = !host.contains(':') || (host.starts_with('[') && host.ends_with(']'));
    let is_port = port.parse::<u16>().is_ok_and(|port| port != 0);
    if !matches!(scheme, "http" | "https") || !is_host || !is_plain || !is_port {
        return Err(wrong());
    }
    Ok(format!("{scheme}://{authority}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_endpoints_takes_what_people_write_and_refuses_the_rest() {
        let parsed =
            parse_etcd_endpoints("https://a.example:2379/, 10.0.0.1:2379,http://[::1]:2379").unwrap();
        assert_eq!(parsed, ["https://a.example:2379", "http://10.0.0.1:2379", "http://[::1]:2379"]);
        for wrong in
            ["", "a", "a:", "a:0", "a:70000", "ftp://a:1", "http://a b:1", "http://a:1/v3", "::1:1", "a:1,"]
        {
            assert!(parse_etcd_endpoints(wrong).is_err(), "{wrong}");
        }
    }
}
