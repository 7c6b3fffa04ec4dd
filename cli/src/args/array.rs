// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How to find a running array, and how to prove who calls.

use super::DEFAULT_ARRAY;
use crate::files::readable;
use clap::Args;
use gnstor_console::CliError;
use gnstor_console::words::parse_daemons;
use std::path::PathBuf;

/// How to find a running array.
#[derive(Clone, Debug, Args)]
pub struct ArrayArgs {
    /// Address of the array's daemon; several, divided by commas, where others stand by (gnstor up
    /// --standby-of)
    #[arg(long, default_value = DEFAULT_ARRAY, value_name = "ADDRESS", env = "GNSTOR_ARRAY")]
    #[arg(value_parser = parse_daemons)]
    pub array: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// How to prove who calls. Last, since its heading would be that of what follows.
    #[command(flatten)]
    pub credentials: CredentialArgs,
}

/// How a caller and the daemon prove their names.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Credentials")]
pub struct CredentialArgs {
    /// CA of the daemon's certificate (PEM): the array is reached by TLS
    #[arg(long, value_name = "CA", env = "GNSTOR_TLS_CA")]
    pub tls_ca: Option<PathBuf>,
    /// Certificate of the caller (PEM)
    #[arg(long, value_name = "CERT", env = "GNSTOR_TLS_CERT", requires = "tls_key", requires = "tls_ca")]
    pub tls_cert: Option<PathBuf>,
    /// Key of the caller's certificate (PEM)
    #[arg(long, value_name = "KEY", env = "GNSTOR_TLS_KEY", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// File with the caller's token
    #[arg(long, value_name = "FILE", env = "GNSTOR_TOKEN_FILE")]
    pub token_file: Option<PathBuf>,
    /// Send the token to another machine without TLS, too: an attacker on the wire may read it
    #[arg(long, env = "GNSTOR_INSECURE")]
    pub insecure: bool,
}

impl ArrayArgs {
    /// The files that the caller is proven with.
    ///
    /// # Errors
    /// [`CliError::Usage`] names each that cannot be read.
    pub fn credentials(&self) -> Result<libgnstor::Credentials, CliError> {
        let CredentialArgs { tls_ca, tls_cert, tls_key, token_file, insecure } = self.credentials.clone();
        let named = [
            ("--tls-ca", &tls_ca),
            ("--tls-cert", &tls_cert),
            ("--tls-key", &tls_key),
            ("--token-file", &token_file),
        ];
        readable(named.into_iter().filter_map(|(option, path)| Some((option, path.as_deref()?))))?;
        Ok(libgnstor::Credentials { tls_ca, tls_cert, tls_key, token_file, insecure })
    }

    /// The caller proves its name.
    pub(crate) fn is_proven(&self) -> bool {
        self.credentials.tls_cert.is_some() || self.credentials.token_file.is_some()
    }

    /// A connection to the array's daemon.
    ///
    /// # Errors
    /// As [`Self::credentials`] and [`libgnstor::Manager::connect`].
    pub fn manager(&self) -> Result<libgnstor::Manager, CliError> {
        let credentials = self.credentials()?;
        Ok(libgnstor::Manager::connect_with(&self.array, "gnstor volume", &credentials)?)
    }
}
