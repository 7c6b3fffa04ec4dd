// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The manager key of a command, and the cases in which having none is too dangerous.

use crate::args::{SsdArgs, UpArgs};
use gnstor_array::Secret;
use gnstor_array::manager_key::{self, ManagerKeyError};
use gnstor_console::CliError;
use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};

/// The rights of any host at an SSD that asks for no proof.
pub(crate) const MAY_ALL: &str = "read, change and delete what the SSD holds";

/// The key in a file, if one is named.
///
/// # Errors
/// [`CliError`]: the file has no key, or other users may read it.
pub(crate) fn given(file: Option<&Path>) -> Result<Option<Secret>, CliError> {
    file.map(manager_key::read).transpose().map_err(named)
}

/// The key of an array that starts.
pub(crate) struct ArrayKey {
    pub(crate) secret: Option<Secret>,
    /// The file with the key; `None`: it is in memory only, or there is none.
    pub(crate) file: Option<PathBuf>,
    /// The file was just made.
    is_new: bool,
}

impl ArrayKey {
    /// The array does not start: no file is left.
    pub(crate) fn take_back(self) {
        if let Some(path) = self.file.filter(|_| self.is_new)
            && let Err(error) = std::fs::remove_file(&path)
        {
            tracing::warn!(path = %path.display(), %error, "the new manager key could not be taken back");
        }
    }
}

/// The key of `gnstor up`. Its own SSDs always ask for a proof. SSDs of other processes ask for one unless
/// the user says that they do not.
///
/// # Errors
/// As [`given`]; or SSDs of other processes are named without a key and without `--no-auth`.
pub(crate) fn of_array(args: &UpArgs) -> Result<ArrayKey, CliError> {
    if args.ssd_at.is_empty() {
        let file = args.manager_key.clone();
        let Some(file) = file.or_else(|| Some(args.data.as_ref()?.join(manager_key::FILE_NAME))) else {
            return Ok(ArrayKey { secret: Some(Secret::random()), file: None, is_new: false });
        };
        let is_new = !file.exists();
        let failed = if args.manager_key.is_some() { named } else { failed };
        let secret = Some(manager_key::read_or_make(&file).map_err(failed)?);
        return Ok(ArrayKey { secret, file: Some(file), is_new });
    }
    let key = given(args.manager_key.as_deref())?;
    if key.is_none() && !args.no_auth {
        return Err(CliError::Usage(
            "SSDs of other processes ask who this host is: name the array's key with --manager-key FILE, or \
             use SSDs that believe every host with --no-auth"
                .into(),
        ));
    }
    if let Some(far) = args.ssd_at.iter().chain(&args.witness_at).find(|at| !is_loopback(at.as_str()))
        && args.ssd_ca.is_none()
        && !args.access.insecure
    {
        return Err(CliError::Usage(format!(
            "the SSD at {far} is reached over a network: name the CA of the SSDs with --ssd-ca, or trust the \
             wire with --insecure"
        )));
    }
    Ok(ArrayKey { secret: key, file: args.manager_key.clone(), is_new: false })
}

/// The key of `gnstor ssd`. It has no secret if the SSD must accept every host. If the file does not exist,
/// this makes it.
///
/// # Errors
///
/// As [`given`]. Also if the arguments have no key and no `--no-auth`, or if the SSD listens for other
/// machines without TLS or without any proof.
pub(crate) fn of_ssd(args: &SsdArgs) -> Result<ArrayKey, CliError> {
    if args.manager_key.is_none() && !args.no_auth {
        return Err(CliError::Usage(format!(
            "without the array's key an SSD believes every host: name the key with --manager-key FILE, or \
             let each host that reaches {} read, change and delete what the SSD holds with --no-auth",
            args.listen
        )));
    }
    if args.tls.is_empty() && !args.insecure && !args.listen.ip().is_loopback() {
        return Err(CliError::Usage(format!(
            "other machines reach {}: name a certificate with --tls CERT KEY, or trust the wire with \
             --insecure",
            args.listen
        )));
    }
    if args.no_auth && args.client_ca.is_none() && !args.insecure && !args.listen.ip().is_loopback() {
        return Err(CliError::Usage(format!(
            "other machines reach {}, and with --no-auth each of them may {MAY_ALL}: name the CA of your hosts \
             with --client-ca, or trust all machines with --insecure",
            args.listen
        )));
    }
    let file = args.manager_key.clone();
    let is_new = file.as_ref().is_some_and(|file| !file.exists());
    let secret = file.as_deref().map(manager_key::read_or_make).transpose().map_err(named)?;
    Ok(ArrayKey { secret, file, is_new })
}

/// The warning of `--no-auth` and `--insecure` for `gnstor ssd`; `None` if there is no danger.
pub(crate) fn ssd_warning(args: &SsdArgs) -> Option<String> {
    let hosts = format!("no-auth: each host that reaches {} may {}", args.listen, MAY_ALL);
    let wire = "insecure: an attacker on the wire reads and changes what is sent".to_owned();
    let is_open = args.tls.is_empty() && args.insecure && !args.listen.ip().is_loopback();
    let said: Vec<_> = [(args.no_auth, hosts), (is_open, wire)]
        .into_iter()
        .filter_map(|(is_so, words)| is_so.then_some(words))
        .collect();
    (!said.is_empty()).then(|| said.join("; "))
}

/// Whether an address or a host's name leads to this machine only.
pub(crate) fn is_loopback(address: &str) -> bool {
    address.to_socket_addrs().is_ok_and(|mut all| all.all(|address| address.ip().is_loopback()))
}

/// The file of `--manager-key` is wrong.
fn named(error: ManagerKeyError) -> CliError {
    CliError::Usage(format!("--manager-key: {error}"))
}

fn failed(error: ManagerKeyError) -> CliError {
    CliError::Stopped(error.to_string())
}
