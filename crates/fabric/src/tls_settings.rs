//! The settings of TLS: one certificate for all doors of a node, the fabric's and HTTP.

use cell_terms::setting::{Applies, Bounds, OPTIONAL_PATH, Setting};

/// The setting that names the certificate which is shown; empty: no TLS.
pub const TLS_CERTIFICATE_FILE: &str = "tls_certificate_file";
/// Its key.
pub const TLS_KEY_FILE: &str = "tls_key_file";
/// The certificates that peers are trusted by.
pub const TLS_TRUST_FILE: &str = "tls_trust_file";

/// Why what the files of TLS are called does not change while a process runs.
const FILES_READ_AGAIN: &str = "Whether TLS is spoken is decided before the first connection; the file \
                                itself is read again when it is replaced.";

/// The settings of TLS.
pub const TLS_SETTINGS: &[Setting] = &[
    Setting {
        name: TLS_CERTIFICATE_FILE,
        meaning: "A PEM file with the certificate, and those that signed it, with which a node serves TLS \
                  1.3: over the fabric's TCP and over HTTP; needs tls_key_file. All nodes of a cluster \
                  serve TLS or none does: a node asks its peers as it serves itself. With TLS and \
                  tokens_file, listen_address and http_address need not be loopback. From 30 days before a \
                  certificate ends the node warns of it; the metric cell_http_certificate_left_seconds \
                  says how long it holds.",
        default: "",
        bounds: Bounds::Form(OPTIONAL_PATH),
        applies: Applies::Restart(FILES_READ_AGAIN),
    },
    Setting {
        name: TLS_KEY_FILE,
        meaning: "A PEM file with the private key of the certificate in tls_certificate_file. The node \
                  warns as long as every user of the machine may read it.",
        default: "",
        bounds: Bounds::Form(OPTIONAL_PATH),
        applies: Applies::Restart(FILES_READ_AGAIN),
    },
    Setting {
        name: TLS_TRUST_FILE,
        meaning: "A PEM file with the certificates by which this node trusts its peers: their own, or \
                  those that signed them, old and new ones side by side. By default that is \
                  tls_certificate_file, so one certificate for all nodes does.",
        default: "",
        bounds: Bounds::Form(OPTIONAL_PATH),
        applies: Applies::Restart(FILES_READ_AGAIN),
    },
];
