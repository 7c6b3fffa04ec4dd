// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `gnstor certs`: a certificate authority for tests and small arrays.

use crate::args::CertsCommand;
use gnstor_console::{CliError, outln};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Mode of a file that others may read.
const PUBLIC: u32 = 0o644;
/// Mode of a key.
const PRIVATE: u32 = 0o600;
/// Longest name of a principal.
const NAME_BYTES: usize = 64;

/// Runs `gnstor certs`.
///
/// # Errors
/// [`CliError`]: a file is there already, or cannot be read or written.
pub fn run(command: &CertsCommand) -> Result<(), CliError> {
    match command {
        CertsCommand::Init { dir } => init(dir),
        CertsCommand::Issue { dir, name, servers } => issue(dir, name, servers),
    }
}

fn init(dir: &Path) -> Result<(), CliError> {
    std::fs::create_dir_all(dir).map_err(|e| file(dir, e))?;
    let (certificate, key) = (dir.join("ca.crt"), dir.join("ca.key"));
    if certificate.exists() || key.exists() {
        let dir = dir.display();
        return Err(CliError::Stopped(format!(
            "{dir} has a CA already: gnstor certs issue {dir} NAME makes certificates by it"
        )));
    }
    let pair = KeyPair::generate().map_err(|e| file(&key, e))?;
    let mut params = named("gnstor test CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let made = params.self_signed(&pair).map_err(|e| file(&certificate, e))?;
    write_new(&key, &pair.serialize_pem(), PRIVATE)?;
    write_new(&certificate, &made.pem(), PUBLIC)?;
    outln!("{} and its key {}: keep the key to yourself", certificate.display(), key.display());
    outln!("next: gnstor certs issue {} NAME, and with --server HOST for the daemon", dir.display());
    Ok(())
}

fn issue(dir: &Path, name: &str, servers: &[String]) -> Result<(), CliError> {
    let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
    if !plain || name.is_empty() || name.len() > NAME_BYTES || name.starts_with(['.', '-']) || name == "ca" {
        return Err(CliError::Usage(format!(
            "'{name}' is not a name to issue a certificate for: use 1 to {NAME_BYTES} letters, digits, \
             '.', '_' and '-', not 'ca'"
        )));
    }
    let (ca, ca_key) = (dir.join("ca.crt"), dir.join("ca.key"));
    if !ca.exists() && !ca_key.exists() {
        let dir = dir.display();
        return Err(CliError::Stopped(format!("{dir} has no CA: make one first (gnstor certs init {dir})")));
    }
    let read = |path: &PathBuf| std::fs::read_to_string(path).map_err(|e| file(path, e));
    let ca_pair = KeyPair::from_pem(&read(&ca_key)?).map_err(|e| file(&ca_key, e))?;
    let issuer = Issuer::from_ca_cert_pem(&read(&ca)?, ca_pair).map_err(|e| file(&ca, e))?;
    let (certificate, key) = (dir.join(format!("{name}.crt")), dir.join(format!("{name}.key")));
    if certificate.exists() || key.exists() {
        return Err(CliError::Stopped(format!(
            "{} has a certificate of {name} already: choose another name, or move its files away",
            dir.display()
        )));
    }
    let pair = KeyPair::generate().map_err(|e| file(&key, e))?;
    let mut params = if servers.is_empty() {
        CertificateParams::default()
    } else {
        CertificateParams::new(servers.to_vec())
            .map_err(|e| CliError::Usage(format!("--server {}: {e}", servers.join(","))))?
    };
    params.distinguished_name = common_name(name);
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    if !servers.is_empty() {
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
    }
    let made = params.signed_by(&pair, &issuer).map_err(|e| file(&certificate, e))?;
    write_new(&key, &pair.serialize_pem(), PRIVATE)?;
    write_new(&certificate, &made.pem(), PUBLIC)?;
    outln!("{} and its key {}", certificate.display(), key.display());
    Ok(())
}

fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(name);
    params
}

fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

/// Writes a file that is not there yet. Its mode is right from the beginning.
fn write_new(path: &Path, text: &str, mode: u32) -> Result<(), CliError> {
    let mut options = std::fs::OpenOptions::new();
    let mut out = options.write(true).create_new(true).mode(mode).open(path).map_err(|e| file(path, e))?;
    out.write_all(text.as_bytes()).map_err(|e| file(path, e))
}

fn file(path: &Path, cause: impl std::fmt::Display) -> CliError {
    CliError::File { path: path.display().to_string(), cause: cause.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn keys_are_the_owners_alone_and_no_file_is_written_twice() {
        let _deadline = deadline();
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path().join("certs");
        init(&dir).expect("a CA");
        issue(&dir, "anna", &[]).expect("a certificate");
        issue(&dir, "daemon", &["localhost".into(), "127.0.0.1".into()]).expect("a certificate");
        for key in ["ca.key", "anna.key", "daemon.key"] {
            let mode = std::fs::metadata(dir.join(key)).expect("the key").permissions().mode();
            assert_eq!(mode & 0o777, PRIVATE, "{key}");
        }
        let ca = std::fs::read(dir.join("ca.key")).expect("the key");
        assert!(init(&dir).is_err() && issue(&dir, "anna", &[]).is_err());
        assert_eq!(std::fs::read(dir.join("ca.key")).expect("the key"), ca);
        for bad in ["", "ca", "../x", "a/b", "a b", "-x"] {
            assert_eq!(issue(&dir, bad, &[]).expect_err(bad).exit_code(), 2);
        }
        let none = issue(&folder.path().join("none"), "anna", &[]).expect_err("there is no CA");
        assert!(none.to_string().contains("gnstor certs init"), "{none}");
    }
}
