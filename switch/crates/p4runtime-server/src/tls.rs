//! TLS of the gRPC server: its certificate, and the clients that it accepts.

use std::error::Error;
use std::time::Duration;

use tonic::transport::server::ServerTlsConfig;
use tonic::transport::{Certificate, Identity, Server};

/// How long a client's handshake may take before the connection is closed.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// The server's certificate and key, and the authorities of its clients' certificates, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Tls {
    /// The server's certificate, followed by the chain to its authority.
    pub certificates_pem: Vec<u8>,
    /// The private key of the server's certificate.
    pub key_pem: Vec<u8>,
    /// Clients need a certificate that one of these authorities has signed. `None`: all clients are
    /// accepted, and none is asked for a certificate.
    pub client_authorities_pem: Option<Vec<u8>>,
}

impl std::fmt::Debug for Tls {
    /// Without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls")
            .field("asks_clients", &self.client_authorities_pem.is_some())
            .finish_non_exhaustive()
    }
}

impl Tls {
    /// Makes `server` accept TLS connections only.
    ///
    /// # Errors
    /// The fault of certificates or key.
    pub(crate) fn applied_to(&self, server: Server) -> Result<Server, String> {
        let identity = Identity::from_pem(&self.certificates_pem, &self.key_pem);
        let mut config = ServerTlsConfig::new()
            .identity(identity)
            .timeout(HANDSHAKE_LIMIT);
        if let Some(authorities) = &self.client_authorities_pem {
            config = config.client_ca_root(Certificate::from_pem(authorities));
        }
        server.tls_config(config).map_err(|error| {
            // The last of the causes says what is wrong.
            let mut cause: &dyn Error = &error;
            while let Some(next) = cause.source() {
                cause = next;
            }
            cause.to_string()
        })
    }
}
