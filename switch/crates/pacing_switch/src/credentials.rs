//! The certificates and the token for clients on other machines, made when they are first needed.
//!
//! They are in a state folder that all switches of a user share. The switch is its own authority. It
//! signs the client's certificate once, and a certificate for itself at each start, with the present
//! names and addresses of the machine. A controller on this machine finds the folder by the same rules
//! (`switch_credentials.py`).

use std::env;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use p4runtime_server::{Tls, Token};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustix::fs::{FlockOperation, flock};

use crate::private_file;

/// The name in the switch's certificate by which clients know it, for any address.
const NAME: &str = "pacing-switch";
/// Name of the state folder within a user's folder of states; root's folder is [`FOLDER_OF_ROOT`].
const FOLDER: &str = "pacing-switch";
const FOLDER_OF_ROOT: &str = "/var/lib/pacing-switch";
/// Bytes of randomness in a token.
const TOKEN_BYTES: usize = 32;
/// Largest file read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

const AUTHORITY: &str = "authority.pem";
const AUTHORITY_KEY: &str = "authority-key.pem";
const CLIENT: &str = "client.pem";
const CLIENT_KEY: &str = "client-key.pem";
const TOKEN: &str = "token";

/// The credentials of the switch, and those that it asks of clients.
pub struct Credentials {
    /// The switch's certificate, and the authority of its clients.
    pub tls: Tls,
    /// The token.
    pub token: Token,
}

/// The state folder: the given one, systemd's, root's, or one in the user's home.
///
/// # Errors
/// No folder is given, and the user has no home.
pub fn folder(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(given) = given {
        return Ok(given.to_owned());
    }
    if let Some(of_systemd) = env::var_os("STATE_DIRECTORY") {
        // The first of several.
        return env::split_paths(&of_systemd)
            .next()
            .context("STATE_DIRECTORY is empty");
    }
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from(FOLDER_OF_ROOT));
    }
    let states = env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let states = states.or_else(|| Some(Path::new(&env::var_os("HOME")?).join(".local/state")));
    let states = states.context("no state folder: give one with --state-dir, or set HOME")?;
    Ok(states.join(FOLDER))
}

impl Credentials {
    /// Reads the files of the folder. Missing files are made.
    ///
    /// # Errors
    /// The folder cannot be used, or a secret in it is open to others.
    pub fn of(folder: &Path) -> anyhow::Result<Self> {
        let shown = folder.display();
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .with_context(|| format!("cannot make the state folder {shown}"))?;
        // The lock is for several switches that start at the same time.
        let lock = File::open(folder).with_context(|| format!("cannot open {shown}"))?;
        flock(&lock, FlockOperation::LockExclusive)
            .with_context(|| format!("cannot lock {shown}"))?;
        if !folder.join(AUTHORITY_KEY).exists() {
            make(folder)?;
        }
        if !folder.join(TOKEN).exists() {
            write_private(folder, TOKEN, new_token()?.as_bytes())?;
        }
        let secret = |name: &str| -> anyhow::Result<String> {
            let bytes = private_file::read(&folder.join(name), FILE_BYTES_MAX)?;
            String::from_utf8(bytes).with_context(|| format!("{shown}/{name} is not text"))
        };
        // The key is not needed here, but this reports a key that others can read.
        secret(CLIENT_KEY)?;
        let key = secret(AUTHORITY_KEY)?;
        let key = KeyPair::from_pem(&key).with_context(|| format!("{shown}/{AUTHORITY_KEY}"))?;
        let token = Token::new(&secret(TOKEN)?);
        let token = token
            .map_err(anyhow::Error::msg)
            .with_context(|| format!("{shown}/{TOKEN}"))?;
        let authority = fs::read(folder.join(AUTHORITY))
            .with_context(|| format!("cannot read {shown}/{AUTHORITY}"))?;
        let (certificate, own_key) = signed(
            &Issuer::new(authority_params()?, key),
            own_names(),
            ExtendedKeyUsagePurpose::ServerAuth,
        )?;
        Ok(Self {
            tls: Tls {
                certificates_pem: certificate.into_bytes(),
                key_pem: own_key.into_bytes(),
                client_authorities_pem: Some(authority),
                needs_client_certificate: false,
            },
            token,
        })
    }
}

/// Makes the authority and a client's certificate.
fn make(folder: &Path) -> anyhow::Result<()> {
    let key = KeyPair::generate()?;
    let authority = authority_params()?.self_signed(&key)?;
    let key_pem = key.serialize_pem();
    let (client, client_key) = signed(
        &Issuer::new(authority_params()?, key),
        vec!["pacing-switch-client".to_owned()],
        ExtendedKeyUsagePurpose::ClientAuth,
    )?;
    write_private(folder, AUTHORITY, authority.pem().as_bytes())?;
    write_private(folder, CLIENT, client.as_bytes())?;
    write_private(folder, CLIENT_KEY, client_key.as_bytes())?;
    // This file is written last, so its presence shows that the others are there.
    write_private(folder, AUTHORITY_KEY, key_pem.as_bytes())
}

/// The authority's certificate without its key. It is valid for ever.
fn authority_params() -> anyhow::Result<CertificateParams> {
    let mut params = CertificateParams::new(Vec::new())?;
    params
        .distinguished_name
        .push(DnType::CommonName, "pacing_switch authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

/// A certificate and its key, in PEM.
fn signed(
    issuer: &Issuer<'_, KeyPair>,
    names: Vec<String>,
    usage: ExtendedKeyUsagePurpose,
) -> anyhow::Result<(String, String)> {
    let mut params = CertificateParams::new(names)?;
    params
        .distinguished_name
        .push(DnType::CommonName, "pacing_switch");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![usage];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, issuer)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

/// The names and addresses by which clients may reach the switch.
fn own_names() -> Vec<String> {
    let mut names = vec![NAME.to_owned(), "localhost".to_owned()];
    let host = rustix::system::uname();
    names.extend(host.nodename().to_str().ok().map(str::to_owned));
    let routes = fs::read_to_string("/proc/net/fib_trie").unwrap_or_default();
    names.extend(local_addresses(&routes));
    names.retain(|name| !name.is_empty());
    names.sort();
    names.dedup();
    names
}

/// The machine's IPv4 addresses, from the kernel's tree of routes, where the line after an address has
/// its kind.
fn local_addresses(fib_trie: &str) -> Vec<String> {
    let lines = fib_trie.lines();
    let pairs = lines.clone().zip(lines.skip(1));
    let addresses = pairs.filter_map(|(line, next)| {
        let address = line.trim().strip_prefix("|-- ")?;
        next.contains("host LOCAL").then(|| address.to_owned())
    });
    addresses.collect()
}

fn new_token() -> anyhow::Result<String> {
    let mut bytes = [0u8; TOKEN_BYTES];
    let filled = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty());
    if filled? != bytes.len() {
        bail!("the kernel gave too little randomness");
    }
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Writes a file that only its owner may read, whole or not at all.
fn write_private(folder: &Path, name: &str, content: &[u8]) -> anyhow::Result<()> {
    let (path, new) = (folder.join(name), folder.join(format!("{name}.new")));
    let write = || -> std::io::Result<()> {
        // The file may be left from a process that was killed.
        if new.exists() {
            fs::remove_file(&new)?;
        }
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&new)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&new, &path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = env::temp_dir().join(format!("{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn credentials_are_made_once_and_only_for_their_owner() {
        let folder = Folder::new("credentials");
        let first = Credentials::of(&folder.0).expect("made");
        for name in [AUTHORITY, AUTHORITY_KEY, CLIENT, CLIENT_KEY, TOKEN] {
            let mode = fs::metadata(folder.0.join(name))
                .expect("made")
                .permissions();
            assert_eq!(mode.mode() & 0o777, 0o600, "{name}");
        }
        let second = Credentials::of(&folder.0).expect("read");
        assert!(first.token == second.token);
        assert_eq!(
            first.tls.client_authorities_pem,
            second.tls.client_authorities_pem
        );
        // The switch's own certificate is of this start.
        assert_ne!(first.tls.key_pem, second.tls.key_pem);
    }

    #[test]
    fn a_secret_that_is_open_to_others_is_refused() {
        let folder = Folder::new("open");
        Credentials::of(&folder.0).expect("made");
        for name in [AUTHORITY_KEY, CLIENT_KEY, TOKEN] {
            let path = folder.0.join(name);
            let set = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode));
            set(0o644).expect("own file");
            let error = Credentials::of(&folder.0).map(drop).expect_err("refused");
            assert!(error.to_string().contains(name), "{error}");
            set(0o600).expect("own file");
        }
    }

    #[test]
    fn local_addresses_are_those_that_the_kernel_calls_so() {
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.0.0.0\n        /24 link UNICAST\n     \
                    |-- 10.0.0.7\n        /32 host LOCAL\n     |-- 10.0.0.255\n        /32 link BROADCAST\n";
        assert_eq!(local_addresses(trie), ["10.0.0.7"]);
        assert!(local_addresses("").is_empty());
    }
}
