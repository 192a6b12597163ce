//! Why TLS was not started on a connection, or broke off, in words that an operator can act on.

use std::fmt;

use rustls::{AlertDescription, CertificateError, Error};

/// The alert to a peer that is turned away before TLS has started, of those that are for private use.
pub(crate) const ALERT_NO_ROOM: u8 = 240;

/// Why TLS failed on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsFailure {
    /// Nobody whom this end trusts has signed the peer's certificate.
    Untrusted,
    /// The peer's certificate is for other names and addresses than the one that was connected to.
    WrongName,
    /// The peer's certificate has ended.
    Ended,
    /// The peer's certificate does not hold yet.
    NotYet,
    /// The peer's certificate is wrong in another way.
    CertificateInvalid,
    /// The peer does not trust this end's certificate.
    NotTrustedByPeer,
    /// The peer wants a certificate of this end, which has connected and shows none: no Cell node does.
    CertificateWanted,
    /// The peer speaks Cell's fabric without TLS.
    PeerPlain,
    /// The peer closed the connection and said nothing of TLS.
    Unanswered,
    /// The peer turned this end away for lack of room.
    NoRoom,
    /// The peer ended it with this alert.
    Alert(u8),
    /// Both ends have no version or cipher in common: this one takes TLS 1.3 alone.
    Incompatible,
    /// What the peer sent is no TLS, or was changed on its way.
    Broken,
}

impl TlsFailure {
    /// What the library found.
    pub(crate) fn of(error: &Error) -> TlsFailure {
        match error {
            Error::InvalidCertificate(error) => TlsFailure::of_certificate(error),
            Error::NoCertificatesPresented | Error::UnsupportedNameType => TlsFailure::CertificateInvalid,
            Error::AlertReceived(alert) => TlsFailure::of_alert(*alert),
            Error::PeerIncompatible(_) => TlsFailure::Incompatible,
            _ => TlsFailure::Broken,
        }
    }

    fn of_certificate(error: &CertificateError) -> TlsFailure {
        use CertificateError as E;
        match error {
            E::UnknownIssuer | E::BadSignature => TlsFailure::Untrusted,
            E::NotValidForName | E::NotValidForNameContext { .. } => TlsFailure::WrongName,
            E::Expired | E::ExpiredContext { .. } => TlsFailure::Ended,
            E::NotValidYet | E::NotValidYetContext { .. } => TlsFailure::NotYet,
            _ => TlsFailure::CertificateInvalid,
        }
    }

    fn of_alert(alert: AlertDescription) -> TlsFailure {
        use AlertDescription as A;
        match alert {
            A::BadCertificate
            | A::UnsupportedCertificate
            | A::CertificateRevoked
            | A::CertificateExpired
            | A::CertificateUnknown
            | A::UnknownCA => TlsFailure::NotTrustedByPeer,
            A::CertificateRequired => TlsFailure::CertificateWanted,
            A::ProtocolVersion | A::HandshakeFailure | A::InsufficientSecurity => TlsFailure::Incompatible,
            alert if u8::from(alert) == ALERT_NO_ROOM => TlsFailure::NoRoom,
            alert => TlsFailure::Alert(u8::from(alert)),
        }
    }

    /// The same, of an end that has shown no certificate: what the peer says of it is that it wants one.
    #[must_use]
    pub(crate) fn of_who_showed_none(self) -> TlsFailure {
        match self {
            TlsFailure::NotTrustedByPeer => TlsFailure::CertificateWanted,
            other => other,
        }
    }

    /// Whether it is the peer's certificate that is wrong.
    #[must_use]
    pub fn is_about_certificate(self) -> bool {
        use TlsFailure as F;
        matches!(self, F::Untrusted | F::WrongName | F::Ended | F::NotYet | F::CertificateInvalid)
    }
}

impl fmt::Display for TlsFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TlsFailure::Untrusted => "nobody who is trusted here has signed the peer's certificate",
            TlsFailure::WrongName => {
                "the peer's certificate is not for the name or address that was asked for"
            }
            TlsFailure::Ended => "the peer's certificate has ended",
            TlsFailure::NotYet => "the peer's certificate does not hold yet; see both machines' clocks",
            TlsFailure::CertificateInvalid => "the peer's certificate is not one that can be checked",
            TlsFailure::NotTrustedByPeer => "the peer does not trust the certificate that it was shown",
            TlsFailure::CertificateWanted => {
                "what answers there wants a certificate of the client, which no Cell node does"
            }
            TlsFailure::PeerPlain => "the peer speaks Cell's fabric without TLS",
            TlsFailure::Unanswered => {
                "the peer closed the connection without a word of TLS; most often it speaks without"
            }
            TlsFailure::NoRoom => "the peer takes no more connections just now",
            TlsFailure::Alert(number) => return write!(f, "the peer ended it with alert {number}"),
            TlsFailure::Incompatible => "the peer does not speak TLS 1.3, or has no cipher in common",
            TlsFailure::Broken => "what the peer sent is no TLS, or was changed on its way",
        })
    }
}

#[cfg(test)]
mod tests {
    use rustls::PeerIncompatible;

    use super::*;

    #[test]
    fn failures_are_distinguished_by_what_helps() {
        let of = |error: Error| TlsFailure::of(&error);
        let certificate = |error| of(Error::InvalidCertificate(error));
        assert_eq!(certificate(CertificateError::UnknownIssuer), TlsFailure::Untrusted);
        assert_eq!(certificate(CertificateError::NotValidForName), TlsFailure::WrongName);
        assert_eq!(certificate(CertificateError::Expired), TlsFailure::Ended);
        assert_eq!(certificate(CertificateError::NotValidYet), TlsFailure::NotYet);
        assert_eq!(certificate(CertificateError::BadEncoding), TlsFailure::CertificateInvalid);
        let alert = |number: u8| of(Error::AlertReceived(number.into()));
        assert_eq!((alert(48), alert(42)), (TlsFailure::NotTrustedByPeer, TlsFailure::NotTrustedByPeer));
        assert_eq!(alert(116), TlsFailure::CertificateWanted);
        assert_eq!(alert(42).of_who_showed_none(), TlsFailure::CertificateWanted);
        assert_eq!(alert(80).of_who_showed_none(), TlsFailure::Alert(80));
        assert_eq!((alert(ALERT_NO_ROOM), alert(80)), (TlsFailure::NoRoom, TlsFailure::Alert(80)));
        let incompatible = PeerIncompatible::SupportedVersionsExtensionRequired;
        assert_eq!(of(Error::PeerIncompatible(incompatible)), TlsFailure::Incompatible);
        assert_eq!(of(Error::DecryptError), TlsFailure::Broken);
        assert_eq!(TlsFailure::Alert(80).to_string(), "the peer ended it with alert 80");
        assert!(TlsFailure::Untrusted.is_about_certificate() && !TlsFailure::Broken.is_about_certificate());
    }
}
