//! TLS, with the options of simple_switch_grpc.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use p4runtime_server::Tls;

use crate::files::read_limited;
use crate::private_file;

/// Largest PEM file read, in bytes.
const PEM_BYTES_MAX: u64 = 1 << 20;

/// Certificates of the gRPC server and of its clients.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "TLS of the gRPC server")]
pub struct TlsOptions {
    /// Accept only TLS (1.2 or 1.3). Needs --grpc-server-cert and --grpc-server-key.
    #[arg(long)]
    grpc_server_ssl: bool,

    /// Certificates of the authorities that sign clients' certificates.
    #[arg(long, value_name = "FILE.pem")]
    grpc_server_cacert: Option<PathBuf>,

    /// The server's certificate, followed by its intermediate certificates.
    #[arg(long, value_name = "FILE.pem")]
    grpc_server_cert: Option<PathBuf>,

    /// The server's private key.
    #[arg(long, value_name = "FILE.pem")]
    grpc_server_key: Option<PathBuf>,

    /// Accept only clients with a certificate signed by an authority of --grpc-server-cacert.
    #[arg(long)]
    grpc_server_with_client_auth: bool,
}

impl TlsOptions {
    /// The given options that have no effect: without `--grpc-server-ssl` all others, and without client
    /// authentication the authorities of clients.
    pub fn ignored(&self) -> Vec<&'static str> {
        let files = [
            ("--grpc-server-cert", &self.grpc_server_cert),
            ("--grpc-server-key", &self.grpc_server_key),
        ];
        let without_tls = files
            .into_iter()
            .filter_map(|(name, file)| file.is_some().then_some(name))
            .chain(
                self.grpc_server_with_client_auth
                    .then_some("--grpc-server-with-client-auth"),
            )
            .filter(|_| !self.grpc_server_ssl);
        let asks = self.grpc_server_ssl && self.grpc_server_with_client_auth;
        let authorities = self.grpc_server_cacert.is_some() && !asks;
        without_tls
            .chain(authorities.then_some("--grpc-server-cacert"))
            .collect()
    }

    /// Reads the files; `None` without `--grpc-server-ssl`.
    ///
    /// # Errors
    /// Names the option that is missing, or the file that cannot be read.
    pub fn read(&self) -> anyhow::Result<Option<Tls>> {
        if !self.grpc_server_ssl {
            return Ok(None);
        }
        let (Some(certificates), Some(key)) = (&self.grpc_server_cert, &self.grpc_server_key)
        else {
            bail!("--grpc-server-ssl needs --grpc-server-cert and --grpc-server-key");
        };
        let authorities = match (self.grpc_server_with_client_auth, &self.grpc_server_cacert) {
            (false, _) => None,
            (true, Some(file)) => Some(file),
            (true, None) => bail!(
                "--grpc-server-with-client-auth needs --grpc-server-cacert: who signs for clients"
            ),
        };
        Ok(Some(Tls {
            certificates_pem: read("--grpc-server-cert", certificates)?,
            key_pem: private_file::read(key, PEM_BYTES_MAX).context("--grpc-server-key")?,
            client_authorities_pem: authorities
                .map(|file| read("--grpc-server-cacert", file))
                .transpose()?,
            needs_client_certificate: self.grpc_server_with_client_auth,
        }))
    }
}

/// The file that an option names.
fn read(option: &str, file: &Path) -> anyhow::Result<Vec<u8>> {
    read_limited(file, PEM_BYTES_MAX).with_context(|| option.to_owned())
}
