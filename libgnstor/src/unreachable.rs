// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a daemon cannot be reached, in words with a remedy. The libraries below speak of frames and alerts.

use crate::error::Error;
use std::io::ErrorKind;

/// Texts of TLS errors, and their meaning for a caller that speaks TLS.
const WITH_TLS: [(&str, &str); 6] = [
    (
        "InvalidContentType",
        "it does not speak TLS: leave the CA out (--tls-ca), or start the daemon with a certificate (gnstor up --tls)",
    ),
    (
        "CertificateRequired",
        "it asks callers for a certificate: name yours with --tls-cert and --tls-key (gnstor certs issue)",
    ),
    ("UnknownIssuer", "its certificate is of another CA than the one that you named (--tls-ca)"),
    (
        "not valid for name",
        "its certificate is for another host's name: use a name of the certificate as the address, or issue \
         one for this name (gnstor certs issue --server)",
    ),
    ("UnknownCA", "its CA of callers (--client-ca) has not signed your certificate (--tls-cert)"),
    ("xpired", "a certificate is not valid any more: issue a new one (gnstor certs issue)"),
];

/// The error of a daemon that is not reached. `is_tls`: the caller speaks TLS.
pub fn unreachable(endpoint: &str, is_tls: bool, error: &(dyn std::error::Error + 'static)) -> Error {
    let last = std::iter::successors(Some(error), |&error| error.source()).last();
    let cause = last.map(ToString::to_string).unwrap_or_default();
    tracing::debug!(endpoint, cause, "the daemon is not reached");
    Error::Unreachable { endpoint: endpoint.into(), cause: in_words(&cause, is_tls, was_cut(error)) }
}

fn in_words(cause: &str, is_tls: bool, was_cut: bool) -> String {
    if is_tls && let Some((_, words)) = WITH_TLS.iter().find(|(says, _)| cause.contains(says)) {
        return (*words).into();
    }
    if !is_tls && (cause.contains("frame with invalid size") || cause.contains("preface")) {
        return "it does not answer as a daemon without TLS: if it asks for TLS, name its CA with --tls-ca"
            .into();
    }
    // A refusal may be overtaken by the end of its connection.
    if was_cut || cause.contains("broken pipe") || cause.contains("connection closed") {
        let asks = match is_tls {
            true => "the daemon asks callers for a certificate (--tls-cert, --tls-key)",
            false => "the daemon asks for TLS (--tls-ca)",
        };
        return format!(
            "the connection was closed before an answer came ({cause}): this may be the port of an SSD, as the \
             daemon's own is often one lower, or {asks}"
        );
    }
    cause.into()
}

/// Whether a connection was accepted and ended by the other side before it was of use, without a reason. A
/// daemon that refuses a certificate says so.
pub fn was_cut(error: &(dyn std::error::Error + 'static)) -> bool {
    std::iter::successors(Some(error), |&error| error.source())
        .filter_map(|error| error.downcast_ref::<std::io::Error>())
        .any(|error| {
            matches!(
                error.kind(),
                ErrorKind::UnexpectedEof
                    | ErrorKind::ConnectionReset
                    | ErrorKind::ConnectionAborted
                    | ErrorKind::BrokenPipe
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::{Deadline, LIMIT};

    #[test]
    fn a_cause_of_a_library_becomes_a_remedy_and_others_stay() {
        let _deadline = Deadline::after(LIMIT);
        for (cause, is_tls, was_cut, remedy) in [
            ("connection error detected: frame with invalid size", false, false, "--tls-ca"),
            ("received corrupt message of type InvalidContentType", true, false, "does not speak TLS"),
            ("received fatal alert: CertificateRequired", true, false, "--tls-cert"),
            ("invalid peer certificate: UnknownIssuer", true, false, "another CA"),
            ("stream closed because of a broken pipe", false, true, "port of an SSD"),
            ("connection reset", true, true, "one lower"),
            ("connection closed", true, false, "--tls-cert"),
            ("Connection refused (os error 111)", false, false, "refused"),
        ] {
            let words = in_words(cause, is_tls, was_cut);
            assert!(words.contains(remedy), "{cause}: {words}");
        }
        // A plain caller meets no certificate: words of TLS are not its remedy.
        assert_eq!(in_words("CertificateRequired", false, false), "CertificateRequired");
    }
}
