//! What is said of a member that gives no answer, in words that an operator can act on: the library's name
//! neither the time nor the setting.

use std::io;
use std::time::Duration;

use rustls::AlertDescription;

use crate::providers::etcd::route::TryTimes;

/// How a member was asked that gave no answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    pub(super) endpoint: &'a str,
    /// Whether there is a certificate to show it.
    pub(super) shows_certificate: bool,
    /// Whether it has answered before: then endpoint and certificate are right, most likely.
    pub(super) has_answered: bool,
    pub(super) times: TryTimes,
}

const NO_CERTIFICATE: &str = "it wants a client's certificate, and is shown none: give \
                              etcd_client_certificate_file and etcd_client_key_file";
const CERTIFICATE_REFUSED: &str = "it does not take the client's certificate of etcd_client_certificate_file";
const PERHAPS_NO_CERTIFICATE: &str = "it ended the connection before it answered: if it wants a client's \
                                      certificate, give etcd_client_certificate_file and \
                                      etcd_client_key_file";
const PLAIN: &str = "it does not speak TLS: use http:// in etcd_endpoints";
const PERHAPS_PLAIN: &str = "it ended the connection without a word of TLS: if it does not speak TLS, use \
                             http:// in etcd_endpoints";
const PERHAPS_EITHER: &str = "it ended the connection before it answered: if it does not speak TLS, use \
                              http:// in etcd_endpoints, else see etcd_client_certificate_file";
const PERHAPS_TLS: &str = "it ended the connection before it answered: if it speaks TLS, use https:// in \
                           etcd_endpoints";

/// A time as it is named, in milliseconds. What is left of a call differs by some each time, and what is said
/// is said once alone while it is the same.
pub(super) fn named_ms(time: Duration) -> u128 {
    time.as_millis().next_multiple_of(25)
}

/// Why there is no answer, with where that is.
pub(super) fn words(asked: Asked<'_>, error: &ureq::Error) -> String {
    let endpoint = asked.endpoint;
    match error {
        ureq::Error::Timeout(ureq::Timeout::Resolve) => {
            format!("{endpoint}: its name led nowhere within {} ms", named_ms(asked.times.connect))
        }
        ureq::Error::Timeout(ureq::Timeout::Connect) => {
            format!("{endpoint}: there was no connection within {} ms", named_ms(asked.times.connect))
        }
        ureq::Error::Timeout(_) => {
            format!("{endpoint}: it did not answer within {} ms", named_ms(asked.times.whole))
        }
        error => match hint(asked, error) {
            Some(hint) => format!("{endpoint}: {hint} ({error})"),
            None => format!("{endpoint}: {error}"),
        },
    }
}

fn hint(asked: Asked<'_>, error: &ureq::Error) -> Option<&'static str> {
    match error {
        ureq::Error::Rustls(error) => of_tls(asked, error),
        ureq::Error::Io(error) => {
            let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
            inner.map_or_else(|| of_end(asked, error), |inner| of_tls(asked, inner))
        }
        _ => None,
    }
}

fn of_tls(asked: Asked<'_>, error: &rustls::Error) -> Option<&'static str> {
    use AlertDescription as A;
    match error {
        rustls::Error::InvalidMessage(_) => Some(PLAIN),
        rustls::Error::AlertReceived(A::CertificateRequired) => Some(NO_CERTIFICATE),
        // Over TLS 1.2, and over 1.3 by what older versions of Go say.
        rustls::Error::AlertReceived(A::BadCertificate) if !asked.shows_certificate => Some(NO_CERTIFICATE),
        rustls::Error::AlertReceived(
            A::BadCertificate
            | A::UnsupportedCertificate
            | A::CertificateRevoked
            | A::CertificateExpired
            | A::CertificateUnknown
            | A::UnknownCA,
        ) => Some(CERTIFICATE_REFUSED),
        _ => None,
    }
}

/// Of a connection that the member has ended. What it said of TLS last may have been lost with it.
fn of_end(asked: Asked<'_>, error: &io::Error) -> Option<&'static str> {
    use io::ErrorKind as E;
    let ends = [E::UnexpectedEof, E::BrokenPipe, E::ConnectionReset, E::ConnectionAborted];
    if !ends.contains(&error.kind()) || asked.has_answered {
        return None;
    }
    if asked.endpoint.starts_with("http://") {
        return Some(PERHAPS_TLS);
    }
    // So rustls says that it ended within the handshake. A certificate is missed after that.
    if error.kind() == E::UnexpectedEof && error.get_ref().is_none() {
        return Some(PERHAPS_PLAIN);
    }
    Some(if asked.shows_certificate { PERHAPS_EITHER } else { PERHAPS_NO_CERTIFICATE })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(endpoint: &str) -> Asked<'_> {
        let times = TryTimes { connect: Duration::from_millis(150), whole: Duration::from_millis(300) };
        Asked { endpoint, shows_certificate: false, has_answered: false, times }
    }

    fn ended(kind: io::ErrorKind) -> ureq::Error {
        ureq::Error::Io(kind.into())
    }

    fn alert(alert: AlertDescription) -> ureq::Error {
        let error = rustls::Error::AlertReceived(alert);
        ureq::Error::Io(io::Error::new(io::ErrorKind::InvalidData, error))
    }

    #[test]
    fn words_of_a_member_that_says_nothing_have_the_time() {
        let of = |stage| words(asked("http://a:1"), &ureq::Error::Timeout(stage));
        assert_eq!(of(ureq::Timeout::Global), "http://a:1: it did not answer within 300 ms");
        assert_eq!(of(ureq::Timeout::RecvResponse), "http://a:1: it did not answer within 300 ms");
        assert_eq!(of(ureq::Timeout::Connect), "http://a:1: there was no connection within 150 ms");
        let somewhat_less = Duration::from_micros(149_300);
        assert_eq!(named_ms(somewhat_less), 150, "it is not said anew each time");
    }

    #[test]
    fn words_of_a_certificate_that_is_missed_or_refused_name_its_setting() {
        let secure = asked("https://a:1");
        let missed = [
            alert(AlertDescription::CertificateRequired),
            alert(AlertDescription::BadCertificate),
            ended(io::ErrorKind::BrokenPipe),
            ended(io::ErrorKind::ConnectionReset),
            ureq::Error::Io(io::Error::new(io::ErrorKind::UnexpectedEof, "Peer disconnected")),
        ];
        for error in missed {
            let words = words(secure, &error);
            assert!(words.contains("give etcd_client_certificate_file"), "{words}");
        }
        let shows = Asked { shows_certificate: true, ..secure };
        let refused = words(shows, &alert(AlertDescription::BadCertificate));
        assert!(refused.contains("does not take the client's certificate"), "{refused}");
        let either = words(shows, &ended(io::ErrorKind::BrokenPipe));
        assert!(either.contains("use http:// in") && either.contains("see etcd_client_"), "{either}");
    }

    #[test]
    fn words_of_another_scheme_say_which() {
        let secure = asked("https://a:1");
        let invalid = rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType);
        let invalid = ureq::Error::Io(io::Error::new(io::ErrorKind::InvalidData, invalid));
        for error in [invalid, ended(io::ErrorKind::UnexpectedEof)] {
            let words = words(secure, &error);
            assert!(words.contains("use http:// in"), "{words}");
        }
        let plain = asked("http://a:1");
        let words_of = |asked| words(asked, &ended(io::ErrorKind::ConnectionReset));
        assert!(words_of(plain).contains("use https:// in"));
        let has_answered = Asked { has_answered: true, ..plain };
        assert!(!words_of(has_answered).contains("https"), "it was started again");
    }
}
