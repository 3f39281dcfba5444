//! Files that only their owner may read: keys and tokens.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, bail};

/// Bits of a mode that give something to all users, or let the group write.
const OPEN_TO_OTHERS: u32 = 0o027;

/// Reads a file of at most `most` bytes that holds a secret.
///
/// # Errors
/// Others may read or change it, it belongs to another user, it is longer, or it cannot be read.
pub fn read(path: &Path, most: u64) -> anyhow::Result<Vec<u8>> {
    let shown = path.display();
    let file = File::open(path).with_context(|| format!("cannot open {shown}"))?;
    let metadata = file
        .metadata()
        .with_context(|| format!("cannot read {shown}"))?;
    let mode = metadata.mode() & 0o777;
    if metadata.is_file() && mode & OPEN_TO_OTHERS != 0 {
        bail!(
            "{shown} holds a secret and its mode {mode:04o} opens it to others; 0600 expected: chmod \
             600 {shown}"
        );
    }
    let own = rustix::process::geteuid().as_raw();
    if metadata.uid() != own && metadata.uid() != 0 {
        bail!(
            "{shown} holds a secret and belongs to user {}; user {own} or root expected",
            metadata.uid()
        );
    }
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1))
        .read_to_end(&mut bytes)
        .with_context(|| format!("cannot read {shown}"))?;
    if bytes.len() as u64 > most {
        bail!("{shown} has more than {most} bytes");
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_that_others_may_read_is_refused_with_what_to_do() {
        let folder = std::env::temp_dir().join(format!("private-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("key.pem");
        fs::write(&path, "secret").expect("written");
        for (mode, is_private) in [(0o600, true), (0o440, true), (0o644, false), (0o660, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("own file");
            match read(&path, 6) {
                Ok(bytes) => assert!(is_private && bytes == b"secret", "{mode:o}"),
                Err(error) => {
                    assert!(!is_private, "{mode:o}: {error}");
                    assert!(error.to_string().contains("chmod 600"), "{error}");
                }
            }
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("own file");
        assert!(read(&path, 5).is_err());
        fs::remove_dir_all(&folder).expect("own folder");
    }
}
