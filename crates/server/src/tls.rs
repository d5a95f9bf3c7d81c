//! TLS: a certificate and its key, read once when the server starts.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};

/// A server's TLS configuration. Cheap to clone.
#[derive(Clone)]
pub struct Tls(TlsAcceptor);

/// Why TLS cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read, or has other content.
    #[error("cannot read {what} from {path}: {source}; it must be PEM")]
    File {
        /// What was expected.
        what: &'static str,
        /// The file.
        path: String,
        /// The cause.
        source: rustls::pki_types::pem::Error,
    },
    /// The certificate and the key do not match, or cannot be used.
    #[error("the certificate and the key cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
}

impl Tls {
    /// Reads a chain of certificates, the server's own first, and its key.
    pub fn read(certificates: &Path, key: &Path) -> Result<Tls, Error> {
        let file = |what, path: &Path, source| Error::File { what, path: path.display().to_string(), source };
        let chain = CertificateDer::pem_file_iter(certificates)
            .and_then(Iterator::collect)
            .map_err(|source| file("certificates", certificates, source))?;
        let private = PrivateKeyDer::from_pem_file(key).map_err(|source| file("a key", key, source))?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, private)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Tls(TlsAcceptor::from(Arc::new(config))))
    }

    pub(crate) fn acceptor(&self) -> &TlsAcceptor {
        &self.0
    }
}
