//! TLS of the gRPC server: who it is, and whom it lets in.

use std::error::Error;
use std::time::Duration;

use tonic::transport::server::ServerTlsConfig;
use tonic::transport::{Certificate, Identity, Server};

/// A client that has not finished its handshake by then is let go.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// What a server shows its clients, and what it wants to see of them. All in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Tls {
    /// The server's certificate, and after it those that lead to its authority's.
    pub certificates_pem: Vec<u8>,
    /// The private key of the first of them.
    pub key_pem: Vec<u8>,
    /// Only clients are let in with a certificate that one of these has signed; `None`: all
    /// clients, and none is asked for one.
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
    /// Has `server` speak TLS and nothing else.
    ///
    /// # Errors
    /// What is wrong with certificates or key.
    pub(crate) fn applied_to(&self, server: Server) -> Result<Server, String> {
        let identity = Identity::from_pem(&self.certificates_pem, &self.key_pem);
        let mut config = ServerTlsConfig::new()
            .identity(identity)
            .timeout(HANDSHAKE_LIMIT);
        if let Some(authorities) = &self.client_authorities_pem {
            config = config.client_ca_root(Certificate::from_pem(authorities));
        }
        server.tls_config(config).map_err(|error| {
            // What is wrong is said by the last of the causes.
            let mut cause: &dyn Error = &error;
            while let Some(next) = cause.source() {
                cause = next;
            }
            cause.to_string()
        })
    }
}
