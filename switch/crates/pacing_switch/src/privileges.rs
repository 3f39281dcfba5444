//! Drops the privileges that the process does not need after its sockets are open.

use anyhow::{Context, bail};
use nix::unistd::{Group, User, setgid, setgroups, setuid};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs};

/// The user and group that the process becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    user: nix::unistd::Uid,
    group: nix::unistd::Gid,
}

impl Identity {
    /// The identity that `USER` or `USER:GROUP` names. Without a group: the user's own.
    ///
    /// # Errors
    /// There is no such user or group.
    pub fn named(text: &str) -> Result<Self, String> {
        let (user, group) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (text, None),
        };
        let known = User::from_name(user).ok().flatten();
        let known = known.ok_or_else(|| format!("there is no user '{user}'"))?;
        let group = match group {
            None => known.gid,
            Some(name) => {
                let group = Group::from_name(name).ok().flatten();
                group
                    .ok_or_else(|| format!("there is no group '{name}'"))?
                    .gid
            }
        };
        Ok(Self {
            user: known.uid,
            group,
        })
    }

    /// The number of the user.
    pub fn user(&self) -> u32 {
        self.user.as_raw()
    }
}

/// Becomes `identity`, if one is given, and drops all capabilities; the process cannot get them back.
/// Call it before other threads start, because capabilities belong to a thread.
///
/// # Errors
/// The kernel refuses: the process is not root.
pub fn drop_all(identity: Option<&Identity>) -> anyhow::Result<()> {
    if let Some(identity) = identity {
        setgroups(&[])
            .and_then(|()| setgid(identity.group))
            .and_then(|()| setuid(identity.user))
            .context("--user: the switch must be started as root to become another user")?;
        if !identity.user.is_root() && setuid(nix::unistd::Uid::from_raw(0)).is_ok() {
            bail!("--user: the kernel lets the process become root again");
        }
    }
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, none).context("cannot give up capabilities")?;
    set_no_new_privs(true).context("cannot give up new privileges")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_groups_are_known_by_name() {
        let root = Identity::named("root").expect("every machine has it");
        assert_eq!(root.user(), 0);
        assert_eq!(Identity::named("root:root"), Ok(root));
        let error = Identity::named("no-such-user-here").expect_err("none");
        assert_eq!(error, "there is no user 'no-such-user-here'");
        let error = Identity::named("root:no-such-group").expect_err("none");
        assert_eq!(error, "there is no group 'no-such-group'");
    }
}
