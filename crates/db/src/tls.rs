//! TLS to the database, with psql's options.
//!
//! `disable`, `prefer` (the default) and `require` control encryption; only `verify-ca` and `verify-full` verify the
//! certificate, and both check the host name too. `sslrootcert` names a CA file instead of the system's.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::Error;

/// Which certificates are trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trust {
    /// Any: encrypted, but not verified.
    Anyone,
    /// Those of the system's authorities.
    System,
    /// Those of the authorities in a file.
    File(PathBuf),
}

/// Removes options that the driver does not know from an address: `sslmode=verify-*` becomes `require`, and
/// `sslrootcert` is removed.
pub(crate) fn split(address: &str) -> (String, Trust) {
    let (head, options, separator) = match address.split_once('?') {
        Some((head, query)) if address.contains("://") => (format!("{head}?"), query, "&"),
        None if address.contains("://") => return (address.to_owned(), Trust::Anyone),
        _ => (String::new(), address, " "),
    };
    let (mut verify, mut file, mut kept) = (false, None, vec![]);
    for option in options.split(separator) {
        match option.split_once('=') {
            Some(("sslmode", "verify-ca" | "verify-full")) => {
                verify = true;
                kept.push("sslmode=require");
            }
            Some(("sslrootcert", path)) if path != "system" => file = Some(PathBuf::from(decode(path))),
            Some(("sslrootcert", _)) => verify = true,
            _ => kept.push(option),
        }
    }
    let trust = match (file, verify) {
        (Some(file), _) => Trust::File(file),
        (None, true) => Trust::System,
        (None, false) => Trust::Anyone,
    };
    (format!("{head}{}", kept.join(separator)), trust)
}

impl Trust {
    /// A connector with this trust.
    pub(crate) fn connector(&self) -> Result<MakeRustlsConnect, Error> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .expect("the provider has every version this build asks for");
        let config = match self {
            Trust::Anyone => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AcceptAny(provider)))
                .with_no_client_auth(),
            Trust::System => builder.with_root_certificates(system_roots()).with_no_client_auth(),
            Trust::File(path) => builder.with_root_certificates(file_roots(path)?).with_no_client_auth(),
        };
        Ok(MakeRustlsConnect::new(config))
    }
}

fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

fn file_roots(path: &PathBuf) -> Result<RootCertStore, Error> {
    let unusable = |why: String| Error::Invalid(format!("sslrootcert {}: {why}", path.display()));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| unusable(error.to_string()))? {
        let certificate = certificate.map_err(|error| unusable(error.to_string()))?;
        roots.add(certificate).map_err(|error| unusable(error.to_string()))?;
    }
    match roots.is_empty() {
        true => Err(unusable("the file contains no certificate".into())),
        false => Ok(roots),
    }
}

/// The inverse of percent encoding, for a path in a query.
fn decode(text: &str) -> String {
    let mut bytes = vec![];
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let hex = tail.get(..2).and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        let (decoded, next) = match hex {
            Some(value) if byte == b'%' => (value, &tail[2..]),
            _ => (byte, tail),
        };
        bytes.push(decoded);
        rest = next;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Accepts any certificate, as `sslmode=require` does, but checks that signatures match it.
#[derive(Debug)]
struct AcceptAny(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_split_as_psql_reads_them() {
        let file = |path: &str| Trust::File(path.into());
        for (address, plain, trust) in [
            ("postgresql://h/d", "postgresql://h/d", Trust::Anyone),
            ("postgresql://h/d?sslmode=require", "postgresql://h/d?sslmode=require", Trust::Anyone),
            ("postgresql://h/d?sslmode=verify-full", "postgresql://h/d?sslmode=require", Trust::System),
            (
                "postgresql://h/d?sslmode=verify-ca&sslrootcert=%2Fa%20b",
                "postgresql://h/d?sslmode=require",
                file("/a b"),
            ),
            ("host=h sslmode=verify-full sslrootcert=/ca", "host=h sslmode=require", file("/ca")),
            ("postgresql://h/d?sslrootcert=system&x=1", "postgresql://h/d?x=1", Trust::System),
        ] {
            assert_eq!(split(address), (plain.to_owned(), trust), "{address}");
        }
    }
}
