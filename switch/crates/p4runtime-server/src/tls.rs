//! TLS of the gRPC server: its certificate, and the clients that it accepts.

use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// The server's certificate and key, and the authorities of its clients' certificates, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Tls {
    /// The server's certificate, followed by the chain to its authority.
    pub certificates_pem: Vec<u8>,
    /// The private key of the server's certificate.
    pub key_pem: Vec<u8>,
    /// The authorities that sign clients' certificates. `None`: clients are not asked for one.
    pub client_authorities_pem: Option<Vec<u8>>,
    /// Whether clients must have a certificate. If not, they may have one.
    pub needs_client_certificate: bool,
}

impl std::fmt::Debug for Tls {
    /// Writes everything but the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls")
            .field("asks_clients", &self.client_authorities_pem.is_some())
            .field("needs_client_certificate", &self.needs_client_certificate)
            .finish_non_exhaustive()
    }
}

impl Tls {
    /// The acceptor of connections with TLS 1.2 or 1.3 and HTTP/2.
    ///
    /// # Errors
    /// The error in certificates or key.
    pub(crate) fn acceptor(&self) -> Result<TlsAcceptor, String> {
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let builder = match &self.client_authorities_pem {
            None => builder.with_no_client_auth(),
            Some(authorities) => {
                let mut roots = RootCertStore::empty();
                for authority in certificates(authorities, "clients' authorities")? {
                    roots
                        .add(authority)
                        .map_err(|error| format!("clients' authorities: {error}"))?;
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier = if self.needs_client_certificate {
                    verifier
                } else {
                    verifier.allow_unauthenticated()
                };
                let verifier = verifier.build();
                builder.with_client_cert_verifier(
                    verifier.map_err(|error| format!("clients' authorities: {error}"))?,
                )
            }
        };
        let key = PrivateKeyDer::from_pem_slice(&self.key_pem)
            .map_err(|error| format!("the private key: {error}"))?;
        let own = certificates(&self.certificates_pem, "the certificate")?;
        let mut config = builder
            .with_single_cert(own, key)
            .map_err(|error| error.to_string())?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

/// The certificates in a PEM file, at least one. `what` is for the error.
fn certificates(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match all {
        Ok(all) if all.is_empty() => Err(format!("{what}: no certificate in PEM in it")),
        Ok(all) => Ok(all),
        Err(error) => Err(format!("{what}: {error}")),
    }
}
