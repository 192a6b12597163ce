//! How a cluster's etcd is reached.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;
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
    /// How often etcd is asked to forget what is older than that; none: others see to it.
    pub compaction: Option<Duration>,
}

/// The endpoints of a list, separated by commas.
///
/// # Errors
/// What is no endpoint, or names a member a second time, in words.
pub fn parse_etcd_endpoints(list: &str) -> Result<Vec<String>, String> {
    let mut places = BTreeSet::new();
    let endpoints = list.split(',').map(|endpoint| {
        let (scheme, place) = parse_endpoint(endpoint.trim())?;
        if !places.insert(place.clone()) {
            return Err(format!("`{place}` is named twice: each member of etcd is named once"));
        }
        Ok(format!("{scheme}://{place}"))
    });
    endpoints.collect()
}

/// The scheme, and the host and port as all write them.
fn parse_endpoint(endpoint: &str) -> Result<(&str, String), String> {
    let wrong =
        || format!("`{endpoint}` is no endpoint of etcd: it takes http://HOST:PORT or https://HOST:PORT");
    let (scheme, authority) = endpoint.split_once("://").unwrap_or(("http", endpoint));
    let authority = authority.trim_end_matches('/');
    let (host, port) = authority.rsplit_once(':').ok_or_else(wrong)?;
    let port = port.parse::<u16>().ok().filter(|port| *port != 0).ok_or_else(wrong)?;
    let in_brackets = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    if in_brackets.is_some_and(|address| address.contains('%')) {
        return Err(format!("`{endpoint}` has a scope id (`%`), which is none in an endpoint of etcd"));
    }
    let host = match in_brackets {
        Some(address) => format!("[{}]", address.parse::<Ipv6Addr>().map_err(|_| wrong())?),
        None => host.to_ascii_lowercase(),
    };
    let is_in = |c: char| !c.is_whitespace() && !"/@?#%".contains(c);
    let is_host = in_brackets.is_some() || (!host.is_empty() && host.chars().all(|c| c != ':' && is_in(c)));
    if !matches!(scheme, "http" | "https") || !is_host {
        return Err(wrong());
    }
    Ok((scheme, format!("{host}:{port}")))
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

    /// It was asked on and on: no request can be made of it.
    #[test]
    fn parse_endpoints_with_a_scope_id_or_what_is_no_address_are_refused() {
        for wrong in ["https://[fe80::1%25eth0]:2379", "http://[fe80::1%3]:2379"] {
            let refused = parse_etcd_endpoints(wrong).unwrap_err();
            assert!(refused.contains("scope id"), "{refused}");
        }
        for wrong in ["http://[a]:1", "http://[]:1", "http://a%25b:1", "http://[::1]x:1"] {
            assert!(parse_etcd_endpoints(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn parse_endpoints_that_name_a_member_twice_are_refused() {
        for wrong in [
            "http://a:1,http://a:1",
            "http://a:1,http://A:1/",
            "a:1,https://a:1",
            "http://a:1,http://a:01",
            "http://[::1]:1,http://[0:0::1]:1",
        ] {
            let refused = parse_etcd_endpoints(wrong).unwrap_err();
            assert!(refused.contains("named twice"), "{refused}");
        }
        assert!(parse_etcd_endpoints("http://a:1,http://a:2,http://b:1").is_ok());
    }
}
