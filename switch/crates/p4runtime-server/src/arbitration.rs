//! Client arbitration (P4Runtime specification, section "Client Arbitration and Controller
//! Replication"): chooses the primary of each role, and the controllers to notify.
//!
//! This module holds the rules only: no stream, no task, no clock. The server passes it stream
//! openings, `MasterArbitrationUpdate`s and stream ends, and sends the notifications it returns.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tonic::{Code, Status};

use crate::proto::google::rpc;
use crate::proto::p4::v1 as p4;
use crate::roles::Scope;
use crate::standing::Standing;

/// The identity of an open stream.
pub type SessionId = u64;

/// Most roles that controllers may name until the process ends, since the highest election id of
/// each role is remembered until then.
const ROLES_MAX: usize = 64;
/// Longest role name, in bytes.
const ROLE_NAME_MAX_BYTES: usize = 256;

/// A message for one stream.
pub type Notification = (SessionId, p4::MasterArbitrationUpdate);

/// The consequence of an accepted `MasterArbitrationUpdate`.
#[derive(Debug, PartialEq)]
pub enum Outcome {
    /// Send these notifications.
    Notify(Vec<Notification>),
    /// A primary was chosen (or confirmed): send these to the others, wait until the writes
    /// that have begun are done, then call [`Arbitration::accept_primary`].
    NewPrimary(Vec<Notification>),
}

/// A bid to be primary. The greater one wins.
type Bid = (Standing, u128);

#[derive(Debug)]
struct Session {
    standing: Standing,
    /// The role of its first update; empty: the default role.
    role: String,
    /// Whether its messages carry a role message (`role` is echoed "as given").
    role_given: bool,
    election_id: Option<u128>,
}

#[derive(Debug, Default)]
struct Role {
    /// Highest bid ever received. A holder's is higher than a stranger's, for any ids.
    highest: Option<Bid>,
    primary: Option<SessionId>,
    /// Whether the primary may write, because the writes of the previous one have ended.
    accepted: bool,
    /// `role.config` of the last primary.
    config: Option<prost_types::Any>,
    /// The permissions that `config` gives.
    scope: Arc<Scope>,
    /// Live controllers, in order of arrival.
    members: BTreeSet<SessionId>,
}

/// The state of arbitration of one device.
#[derive(Debug)]
pub struct Arbitration {
    device_id: u64,
    controllers_per_role_max: usize,
    sessions: HashMap<SessionId, Session>,
    roles: HashMap<String, Role>,
    /// Whether a holder has ever bid for a role. After that, no stranger is primary.
    has_holder: bool,
}

impl Arbitration {
    /// Arbitration for `device_id`, with at most `controllers_per_role_max` live controllers
    /// in one role.
    pub fn new(device_id: u64, controllers_per_role_max: usize) -> Self {
        Self {
            device_id,
            controllers_per_role_max,
            sessions: HashMap::new(),
            roles: HashMap::from([(String::new(), Role::default())]),
            has_holder: false,
        }
    }

    /// Whether a holder has ever bid for a role.
    pub(crate) fn has_holder(&self) -> bool {
        self.has_holder
    }

    /// Handles an update received on the stream `session` (specification, section "Rules for
    /// Handling MasterArbitrationUpdate Messages Received from Controllers").
    ///
    /// # Errors
    /// The status that ends the stream; the caller then calls [`Arbitration::close`].
    pub fn update(
        &mut self,
        session: SessionId,
        standing: Standing,
        update: &p4::MasterArbitrationUpdate,
    ) -> Result<Outcome, Status> {
        let (role_name, scope) = check_role(update)?;
        let election_id = update.election_id.as_ref().map(election_value);
        if standing == Standing::Stranger && election_id.is_some() && self.has_holder {
            return Err(Status::permission_denied(
                "arbitration: election_id: given, but this switch has controllers of its own user or \
                 with credentials; become one of them (its client certificate or token), or leave \
                 election_id unset to be a backup",
            ));
        }
        match self.sessions.get(&session) {
            // Case 1: newly connected controller.
            None => {
                if update.device_id != self.device_id {
                    return Err(Status::not_found(format!(
                        "arbitration: device_id: {} given, this switch is device {}",
                        update.device_id, self.device_id
                    )));
                }
                let bid = election_id.map(|id| (standing, id));
                self.check_bid(session, &role_name, bid)?;
                let is_stranger = standing == Standing::Stranger;
                let most = if is_stranger {
                    ROLES_MAX / 2
                } else {
                    ROLES_MAX
                };
                if !self.roles.contains_key(&role_name) && self.roles.len() >= most {
                    return Err(Status::resource_exhausted(format!(
                        "arbitration: role {role_name:?}: the limit of {most} roles is reached"
                    )));
                }
                let sessions = &self.sessions;
                let role = self.roles.entry(role_name.clone()).or_default();
                let strangers = role.members.iter().filter_map(|id| sessions.get(id));
                let strangers = strangers.filter(|live| live.standing == Standing::Stranger);
                let limit = self.controllers_per_role_max;
                let is_full = role.members.len() >= limit
                    || is_stranger && strangers.count() >= limit.div_ceil(2);
                if is_full {
                    return Err(Status::resource_exhausted(format!(
                        "arbitration: role {role_name:?}: the limit of {limit} controllers is \
                         reached"
                    )));
                }
                role.members.insert(session);
                self.sessions.insert(
                    session,
                    Session {
                        standing,
                        role: role_name.clone(),
                        role_given: update.role.is_some(),
                        election_id,
                    },
                );
            }
            // Case 2: already live controller.
            Some(known) => {
                if update.device_id != self.device_id {
                    return Err(Status::failed_precondition(format!(
                        "arbitration: device_id: {} given, this stream belongs to device {}",
                        update.device_id, self.device_id
                    )));
                }
                if known.role != role_name {
                    return Err(Status::failed_precondition(format!(
                        "arbitration: role: {role_name:?} given, this stream belongs to role \
                         {:?}; open another stream to change the role",
                        known.role
                    )));
                }
                let bid = election_id.map(|id| (known.standing, id));
                self.check_bid(session, &role_name, bid)?;
                if let Some(known) = self.sessions.get_mut(&session) {
                    known.election_id = election_id;
                }
            }
        }
        let bid = election_id.map(|id| (standing, id));
        let is_first_holder = bid.is_some() && standing == Standing::Holder && !self.has_holder;
        let deposed = if is_first_holder {
            self.depose_strangers(&role_name)
        } else {
            Vec::new()
        };
        let config = update.role.as_ref().and_then(|role| role.config.clone());
        let mut outcome = self.decide(session, &role_name, bid, config, scope);
        let (Outcome::Notify(notifications) | Outcome::NewPrimary(notifications)) = &mut outcome;
        notifications.extend(deposed);
        Ok(outcome)
    }

    /// Ends the rights that strangers got while there was no holder: no primary stays, and no config.
    /// Returns the notifications for all roles but `bid_for`, whose controllers hear of the holder.
    fn depose_strangers(&mut self, bid_for: &str) -> Vec<Notification> {
        self.has_holder = true;
        let mut deposed = Vec::new();
        for (name, role) in &mut self.roles {
            role.accepted = false;
            role.config = None;
            role.scope = Arc::default();
            if role.primary.take().is_some() && name != bid_for {
                deposed.push(name.clone());
            }
        }
        let deposed = deposed.iter();
        deposed
            .flat_map(|role| self.notify(role, |_| true))
            .collect()
    }

    /// Lets the primary chosen by an [`Outcome::NewPrimary`] write, once the writes that had begun
    /// are done. Returns its notification, or nothing when it is no longer primary.
    pub fn accept_primary(&mut self, session: SessionId) -> Option<Notification> {
        let name = self.sessions.get(&session)?.role.clone();
        let role = self.roles.get_mut(&name)?;
        if role.primary != Some(session) {
            return None;
        }
        role.accepted = true;
        Some((session, self.message_for(session)?))
    }

    /// The stream `session` has ended. Returns the notifications for the others of its role.
    pub fn close(&mut self, session: SessionId) -> Vec<Notification> {
        let Some(gone) = self.sessions.remove(&session) else {
            return Vec::new();
        };
        let Some(role) = self.roles.get_mut(&gone.role) else {
            debug_assert!(false, "the role of a live stream is gone");
            return Vec::new();
        };
        role.members.remove(&session);
        if role.primary != Some(session) {
            return Vec::new();
        }
        role.primary = None;
        role.accepted = false;
        self.notify(&gone.role, |_| true)
    }

    /// Checks that a request with these values comes from the primary of `role`
    /// (specification, section "Write RPC": the checks 1 and 2).
    ///
    /// # Errors
    /// `NOT_FOUND`: another device, or no such role; `PERMISSION_DENIED`: not the primary.
    pub fn check_primary(
        &self,
        standing: Standing,
        device_id: u64,
        role_name: &str,
        election_id: Option<&p4::Uint128>,
    ) -> Result<(), Status> {
        self.check_device(device_id)?;
        let Some(role) = self.roles.get(role_name) else {
            return Err(Status::not_found(format!(
                "role {role_name:?}: no controller ever had this role"
            )));
        };
        let Some(given) = election_id.map(election_value) else {
            return Err(Status::permission_denied(
                "election_id: not given, that of the primary controller expected",
            ));
        };
        let Some(primary) = role.primary.filter(|_| role.accepted) else {
            return Err(Status::permission_denied(format!(
                "election_id: {given} given, but role {role_name:?} has no primary controller at \
                 the moment"
            )));
        };
        let session = self.sessions.get(&primary);
        if session.is_some_and(|session| session.standing > standing) {
            return Err(Status::permission_denied(format!(
                "election_id: the primary controller of role {role_name:?} is of the switch's own user \
                 or has credentials, and the caller is not"
            )));
        }
        let current = session.and_then(|session| session.election_id);
        if current != Some(given) {
            return Err(Status::permission_denied(format!(
                "election_id: {given} given, the primary controller of role {role_name:?} has {}",
                current.map_or_else(|| "none".to_owned(), |id| id.to_string())
            )));
        }
        Ok(())
    }

    /// Checks the device id of a request.
    ///
    /// # Errors
    /// `NOT_FOUND`: another device.
    pub fn check_device(&self, device_id: u64) -> Result<(), Status> {
        if device_id == self.device_id {
            return Ok(());
        }
        Err(Status::not_found(format!(
            "device_id: {device_id} given, this switch is device {}",
            self.device_id
        )))
    }

    /// The permissions of a role, from its config. The default role may do everything. A role without a
    /// config may use all objects that are not in another role's config.
    pub(crate) fn scope(&self, role_name: &str) -> Arc<Scope> {
        let Some(role) = self.roles.get(role_name) else {
            return Arc::default();
        };
        if role_name.is_empty() || role.config.is_some() {
            return Arc::clone(&role.scope);
        }
        let others = self.roles.values().filter(|role| role.config.is_some());
        let others = others.map(|role| &*role.scope);
        Arc::new(Scope::what_is_left_by(others))
    }

    /// The permissions of a stream's role.
    pub(crate) fn scope_of(&self, session: SessionId) -> Arc<Scope> {
        let session = self.sessions.get(&session);
        session.map_or_else(Arc::default, |session| self.scope(&session.role))
    }

    /// Whether this stream is a primary that may write and send packet-outs.
    pub fn is_primary(&self, session: SessionId) -> bool {
        self.primaries().any(|primary| primary == session)
    }

    /// The streams that packet-ins go to: the primary of each role.
    pub fn primaries(&self) -> impl Iterator<Item = SessionId> + '_ {
        self.roles
            .values()
            .filter(|role| role.accepted)
            .filter_map(|role| role.primary)
    }

    /// "If the election_id is set and is already used by another live controller for the same
    /// (device_id, role), the P4Runtime server shall terminate the stream".
    ///
    /// A stranger's id never prevents a holder from using the same one.
    fn check_bid(
        &self,
        session: SessionId,
        role_name: &str,
        bid: Option<Bid>,
    ) -> Result<(), Status> {
        let (Some(bid), Some(role)) = (bid, self.roles.get(role_name)) else {
            return Ok(());
        };
        let taken = role
            .members
            .iter()
            .filter(|member| **member != session)
            .filter_map(|member| self.sessions.get(member))
            .any(|other| other.election_id.map(|id| (other.standing, id)) == Some(bid));
        if taken {
            let (_, wanted) = bid;
            return Err(Status::invalid_argument(format!(
                "arbitration: election_id: {wanted} given, another live controller of role \
                 {role_name:?} has it; one of its own expected"
            )));
        }
        Ok(())
    }

    /// Makes a controller primary if its bid is the highest; `config` and `scope` are then the role's.
    fn decide(
        &mut self,
        session: SessionId,
        role_name: &str,
        bid: Option<Bid>,
        config: Option<prost_types::Any>,
        scope: Scope,
    ) -> Outcome {
        let Some(role) = self.roles.get_mut(role_name) else {
            debug_assert!(false, "the role of a live stream is gone");
            return Outcome::Notify(Vec::new());
        };
        // An unset election id is lower than any and never makes a primary. The first id that is set
        // does, since there is no earlier one.
        if bid.is_some() && bid >= role.highest {
            role.highest = bid;
            role.primary = Some(session);
            role.accepted = false;
            role.config = config;
            role.scope = Arc::new(scope);
            return Outcome::NewPrimary(self.notify(role_name, |member| member != session));
        }
        if role.primary == Some(session) {
            role.primary = None;
            role.accepted = false;
            return Outcome::Notify(self.notify(role_name, |_| true));
        }
        Outcome::Notify(self.notify(role_name, |member| member == session))
    }

    /// The advisory message for each member of a role that `wanted` selects.
    fn notify(&self, role_name: &str, wanted: impl Fn(SessionId) -> bool) -> Vec<Notification> {
        let Some(role) = self.roles.get(role_name) else {
            return Vec::new();
        };
        role.members
            .iter()
            .copied()
            .filter(|member| wanted(*member))
            .filter_map(|member| Some((member, self.message_for(member)?)))
            .collect()
    }

    /// Specification, section "Client Arbitration Notifications".
    fn message_for(&self, session: SessionId) -> Option<p4::MasterArbitrationUpdate> {
        let own = self.sessions.get(&session)?;
        let role = self.roles.get(&own.role)?;
        let (code, message) = match role.primary {
            Some(primary) if primary == session => (Code::Ok, "this controller is primary"),
            Some(_) => (Code::AlreadyExists, "another controller is primary"),
            None => (Code::NotFound, "no controller is primary"),
        };
        Some(p4::MasterArbitrationUpdate {
            device_id: self.device_id,
            role: own.role_given.then(|| p4::Role {
                name: own.role.clone(),
                config: role.config.clone(),
                ..p4::Role::default()
            }),
            election_id: role.highest.map(|(_, id)| election_message(id)),
            status: Some(rpc::Status {
                code: code as i32,
                message: message.to_owned(),
                details: Vec::new(),
            }),
        })
    }
}

/// The role that an update names, and its permissions.
fn check_role(update: &p4::MasterArbitrationUpdate) -> Result<(String, Scope), Status> {
    let Some(role) = &update.role else {
        return Ok((String::new(), Scope::default()));
    };
    #[allow(deprecated)]
    let deprecated_id = role.id;
    if role.name.is_empty() && deprecated_id != 0 {
        return Err(Status::invalid_argument(format!(
            "arbitration: role.id: {deprecated_id} given, numeric roles are deprecated; set \
             role.name, or leave role unset for the default role"
        )));
    }
    if role.name.is_empty() && role.config.is_some() {
        return Err(Status::invalid_argument(
            "arbitration: role.config: given for the default role, which may do everything; set \
             role.name",
        ));
    }
    if role.name.len() > ROLE_NAME_MAX_BYTES {
        return Err(Status::invalid_argument(format!(
            "arbitration: role.name: {} bytes given, at most {ROLE_NAME_MAX_BYTES} expected",
            role.name.len()
        )));
    }
    let scope = Scope::new(role.config.as_ref())?;
    Ok((role.name.clone(), scope))
}

/// The value of an election id.
pub(crate) fn election_value(id: &p4::Uint128) -> u128 {
    (u128::from(id.high) << 64) | u128::from(id.low)
}

pub(crate) fn election_message(id: u128) -> p4::Uint128 {
    p4::Uint128 {
        high: u64::try_from(id >> 64).unwrap_or(u64::MAX),
        low: u64::try_from(id & u128::from(u64::MAX)).unwrap_or(u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: u64 = 7;

    fn update(election_id: Option<u128>) -> p4::MasterArbitrationUpdate {
        p4::MasterArbitrationUpdate {
            device_id: DEVICE,
            election_id: election_id.map(election_message),
            ..Default::default()
        }
    }

    fn in_role(name: &str, election_id: u128) -> p4::MasterArbitrationUpdate {
        p4::MasterArbitrationUpdate {
            role: Some(p4::Role {
                name: name.to_owned(),
                ..Default::default()
            }),
            ..update(Some(election_id))
        }
    }

    /// Sends an update and completes it; returns (session, code, election id) of all
    /// notifications in order.
    fn send(
        arbitration: &mut Arbitration,
        session: SessionId,
        message: &p4::MasterArbitrationUpdate,
    ) -> Vec<(SessionId, Code, Option<u128>)> {
        let notifications = match arbitration
            .update(session, Standing::Holder, message)
            .expect("accepted")
        {
            Outcome::Notify(all) => all,
            Outcome::NewPrimary(mut all) => {
                all.extend(arbitration.accept_primary(session));
                all
            }
        };
        brief(notifications)
    }

    fn brief(notifications: Vec<Notification>) -> Vec<(SessionId, Code, Option<u128>)> {
        notifications
            .into_iter()
            .map(|(session, message)| {
                assert_eq!(message.device_id, DEVICE);
                (
                    session,
                    Code::from(message.status.expect("status").code),
                    message.election_id.as_ref().map(election_value),
                )
            })
            .collect()
    }

    fn may_write(arbitration: &Arbitration, election_id: u128) -> bool {
        arbitration
            .check_primary(
                Standing::Holder,
                DEVICE,
                "",
                Some(&election_message(election_id)),
            )
            .is_ok()
    }

    #[test]
    fn first_controller_becomes_primary_and_a_lower_one_backup() {
        let mut arbitration = Arbitration::new(DEVICE, 8);
        assert_eq!(
            send(&mut arbitration, 1, &update(Some(5))),
            [(1, Code::Ok, Some(5))]
        );
        assert_eq!(
            send(&mut arbitration, 2, &update(Some(4))),
            [(2, Code::AlreadyExists, Some(5))]
        );
        assert!(may_write(&arbitration, 5));
        assert!(!may_write(&arbitration, 4));
        assert!(arbitration.is_primary(1) && !arbitration.is_primary(2));
    }

    #[test]
    fn zero_election_id_is_not_an_unset_one() {
        let mut arbitration = Arbitration::new(DEVICE, 8);
        assert_eq!(
            send(&mut arbitration, 1, &update(None)),
            [(1, Code::NotFound, None)]
        );
        assert_eq!(
            send(&mut arbitration, 2, &update(Some(0))),
            [(1, Code::AlreadyExists, Some(0)), (2, Code::Ok, Some(0))]
        );
        assert!(may_write(&arbitration, 0));
        assert_eq!(
            arbitration
                .check_primary(Standing::Holder, DEVICE, "", None)
                .expect_err("no election id")
                .code(),
            Code::PermissionDenied
        );
    }

    #[test]
    fn election_ids_are_compared_in_all_128_bits() {
        let mut arbitration = Arbitration::new(DEVICE, 8);
        let high = 1u128 << 64;
        send(&mut arbitration, 1, &update(Some(high)));
        assert_eq!(
            send(&mut arbitration, 2, &update(Some(u128::from(u64::MAX)))),
            [(2, Code::AlreadyExists, Some(high))]
        );
    }

    #[test]
    fn higher_election_id_takes_over_and_others_hear_of_it_first() {
        let mut arbitration = Arbitration::new(DEVICE, 8);
        send(&mut arbitration, 1, &update(Some(5)));
        send(&mut arbitration, 2, &update(Some(4)));
        assert_eq!(
            send(&mut arbitration, 2, &update(Some(6))),
            [(1, Code::AlreadyExists, Some(6)), (2, Code::Ok, Some(6))]
        );
        assert!(!may_write(&arbitration, 5));
        assert!(may_write(&arbitration, 6));
    }

    #[test]
    fn nobody_writes_until_writes_of_the_previous_primary_are_done() {
        let mut arbitration = Arbitration::new(DEVICE, 8);
        send(&mut arbitration, 1, &update(Some(5)));
        let Outcome::NewPrimary(others) = arbitration
            .update(2, Standing::Holder, &update(Some(6)))
            .expect("accepted")
        else {
            panic!("a new primary");
        };
        assert_eq!(brief(others), [(1, Code::AlreadyExists, Some(6))]);
        assert!(!may_write(&arbitration, 5) && !may_write(&arbitration, 6));
        assert_eq!(arbitration.primaries().count(), 0);
        assert!(arbitration.accept_primary(2).is_some());
        assert!(may_write(&arbitration, 6));
    }

    #[test]
    fn a_primary_that_ends_while_writes_drain_is_not_accepted() {
        let mut arbitration = Arbitration::new(DEVICE, 8);
        send(&mut arbitration, 1, &update(Some(5)));
        arbitration
            .update(2, Standing::Holder, &update(Some(6)))
            .expect("accepted");
        assert_eq!(brief(arbitration.close(2)), [(1, Code::NotFound, Some(6))]);
        assert!(arbitration.accept_primary(2).is_none());
        // The highest id ever seen stays, so the old primary needs at least that one.
        assert_eq!(
            send(&mut arbitration, 1, &update(Some(5))),
            [(1, Code::NotFound, Some(6))]
        );
        assert_eq!(
            send(&mut arbitration, 1, &update(Some(6))),
            [(1, Code::Ok, Some(6))]
        );
    }

    #[test]
    fn confirming_the_same_election_id_tells_everybody() {
        let mut arbitration = Arbitration::new(DEVICE, 8);
        send(&mut arbitration, 1, &update(Some(5)));
        send(&mut arbitration, 2, &update(Some(1)));
        assert_eq!(
            send(&mut arbitration, 1, &update(Some(5))),
            [(2, Code::AlreadyExists, Some(5)), (1, Code::Ok, Some(5))]
        );
    }

    #[test]
    fn primary_that_lowers_its_election_id_leaves_no_primary() {
        let mut arbitration = Arbitration::new(DEVICE, 8);
        send(&mut arbitration, 1, &update(Some(5)));
        send(&mut arbitration, 2, &update(Some(4)));
        assert_eq!(
            send(&mut arbitration, 1, &update(Some(3))),
            [(1, Code::NotFound, Some(5)), (2, Code::NotFound, Some(5))]
        );
        assert!(!may_write(&arbitration, 3) && !may_write(&arbitration, 5));
        // Not even the controller with the now highest id is primary of itself...
        assert_eq!(
            send(&mut arbitration, 2, &update(Some(4))),
            [(2, Code::NotFound, Some(5))]
        );
        // ... until it reaches the highest id ever seen.
        assert_eq!(
            send(&mut arbitration, 2, &update(Some(5))),
            [(1, Code::AlreadyExists, Some(5)), (2, Code::Ok, Some(5))]
        );
    }

    #[test]
    fn end_of_the_primary_is_told_and_end_of_a_backup_is_not() {
        let mut arbitration = Arbitration::new(DEVICE, 8);
        send(&mut arbitration, 1, &update(Some(5)));
        send(&mut arbitration, 2, &update(Some(4)));
        send(&mut arbitration, 3, &update(None));
        assert!(arbitration.close(3).is_empty());
        assert_eq!(brief(arbitration.close(1)), [(2, Code::NotFound, Some(5))]);
        assert!(!may_write(&arbitration, 5));
        assert!(arbitration.close(99).is_empty());
    }

    #[test]
    fn two_live_controllers_never_share_an_election_id() {
        let mut arbitration = Arbitration::new(DEVICE, 8);
        send(&mut arbitration, 1, &update(Some(5)));
        let error = arbitration
            .update(2, Standing::Holder, &update(Some(5)))
            .expect_err("taken");
        assert_eq!(error.code(), Code::InvalidArgument);
        send(&mut arbitration, 2, &update(Some(4)));
        let error = arbitration
            .update(2, Standing::Holder, &update(Some(5)))
            .expect_err("taken");
        assert_eq!(error.code(), Code::InvalidArgument);
        // Two controllers may lack an election id, and one may use the id of one that has gone.
        send(&mut arbitration, 3, &update(None));
        send(&mut arbitration, 4, &update(None));
        arbitration.close(1);
        assert_eq!(
            send(&mut arbitration, 2, &update(Some(5))).last(),
            Some(&(2, Code::Ok, Some(5)))
        );
    }

    #[test]
    fn wrong_device_is_not_found_first_and_failed_precondition_later() {
        let mut arbitration = Arbitration::new(DEVICE, 8);
        let mut wrong = update(Some(1));
        wrong.device_id = 8;
        let error = arbitration
            .update(1, Standing::Holder, &wrong)
            .expect_err("unknown device");
        assert_eq!(error.code(), Code::NotFound);
        send(&mut arbitration, 1, &update(Some(1)));
        let error = arbitration
            .update(1, Standing::Holder, &wrong)
            .expect_err("another device");
        assert_eq!(error.code(), Code::FailedPrecondition);
    }

    #[test]
    fn roles_have_primaries_of_their_own() {
        let mut arbitration = Arbitration::new(DEVICE, 8);
        send(&mut arbitration, 1, &update(Some(5)));
        assert_eq!(
            send(&mut arbitration, 2, &in_role("stats", 5)),
            [(2, Code::Ok, Some(5))]
        );
        assert_eq!(arbitration.primaries().count(), 2);
        let id = election_message(5);
        assert!(
            arbitration
                .check_primary(Standing::Holder, DEVICE, "stats", Some(&id))
                .is_ok()
        );
        assert_eq!(
            arbitration
                .check_primary(Standing::Holder, DEVICE, "nobody", Some(&id))
                .expect_err("no such role")
                .code(),
            Code::NotFound
        );
        let error = arbitration
            .update(2, Standing::Holder, &update(Some(9)))
            .expect_err("changes its role");
        assert_eq!(error.code(), Code::FailedPrecondition);
    }

    #[test]
    fn configurations_of_another_scheme_and_numeric_roles_are_refused() {
        let mut arbitration = Arbitration::new(DEVICE, 8);
        let mut message = in_role("stats", 1);
        if let Some(role) = &mut message.role {
            role.config = Some(prost_types::Any::default());
        }
        let error = arbitration
            .update(1, Standing::Holder, &message)
            .expect_err("no scheme");
        assert_eq!(error.code(), Code::InvalidArgument);
        let mut message = in_role("", 1);
        if let Some(role) = &mut message.role {
            #[allow(deprecated)]
            {
                role.id = 7;
            }
        }
        let error = arbitration
            .update(1, Standing::Holder, &message)
            .expect_err("a number");
        assert_eq!(error.code(), Code::InvalidArgument);
    }

    /// As `send`, of a stranger.
    fn send_as_stranger(
        arbitration: &mut Arbitration,
        session: SessionId,
        message: &p4::MasterArbitrationUpdate,
    ) -> Result<(), Code> {
        match arbitration.update(session, Standing::Stranger, message) {
            Ok(Outcome::NewPrimary(_)) => {
                arbitration.accept_primary(session);
                Ok(())
            }
            Ok(Outcome::Notify(_)) => Ok(()),
            Err(status) => {
                arbitration.close(session);
                Err(status.code())
            }
        }
    }

    #[test]
    fn a_holder_outbids_every_stranger_and_no_stranger_a_holder() {
        let mut arbitration = Arbitration::new(DEVICE, 8);
        let highest = update(Some(u128::MAX));
        send_as_stranger(&mut arbitration, 1, &highest).expect("nobody else is there");
        assert!(may_write(&arbitration, u128::MAX));
        // A live stranger does not prevent the same id or a lower one.
        for (session, id) in [(2, u128::MAX), (3, u128::MAX - 1)] {
            send(&mut arbitration, session, &update(Some(id)));
            assert!(may_write(&arbitration, id) || session == 3);
        }
        arbitration.close(2);
        let refused = send_as_stranger(&mut arbitration, 4, &highest);
        assert_eq!(refused, Err(Code::PermissionDenied));
        let refused = send_as_stranger(&mut arbitration, 1, &highest);
        assert_eq!(refused, Err(Code::PermissionDenied));
        let refused = send_as_stranger(&mut arbitration, 5, &in_role("own", 1));
        assert_eq!(refused, Err(Code::PermissionDenied));
        // The stranger may listen.
        assert_eq!(send_as_stranger(&mut arbitration, 6, &update(None)), Ok(()));
        assert!(!arbitration.is_primary(1) && !arbitration.is_primary(6));
        // A holder may still use the highest id of holders.
        send(&mut arbitration, 7, &highest);
        assert!(may_write(&arbitration, u128::MAX));
    }

    #[test]
    fn a_stranger_that_knows_the_election_id_of_a_holder_may_not_use_it() {
        let mut arbitration = Arbitration::new(DEVICE, 8);
        send(&mut arbitration, 1, &update(Some(5)));
        let id = election_message(5);
        let check = |standing| arbitration.check_primary(standing, DEVICE, "", Some(&id));
        assert!(check(Standing::Holder).is_ok());
        let refused = check(Standing::Stranger).expect_err("refused");
        assert_eq!(refused.code(), Code::PermissionDenied);
    }

    #[test]
    fn strangers_leave_places_for_holders() {
        let mut arbitration = Arbitration::new(DEVICE, 4);
        for session in 0..2 {
            let message = update(Some(session.into()));
            assert_eq!(
                send_as_stranger(&mut arbitration, session, &message),
                Ok(())
            );
        }
        let refused = send_as_stranger(&mut arbitration, 2, &update(Some(2)));
        assert_eq!(refused, Err(Code::ResourceExhausted));
        for number in 0..ROLES_MAX as u64 {
            let message = in_role(&format!("role {number}"), 1);
            let made = send_as_stranger(&mut arbitration, 100 + number, &message);
            assert_eq!(made.is_ok(), number < ROLES_MAX as u64 / 2 - 1, "{number}");
        }
        send(&mut arbitration, 3, &update(Some(3)));
        send(&mut arbitration, 4, &in_role("mine", 1));
        assert!(may_write(&arbitration, 3) && arbitration.is_primary(4));
    }

    /// As `in_role`, with a config that names table 7 and the pipeline.
    fn configured(name: &str, election_id: u128) -> p4::MasterArbitrationUpdate {
        use prost::Message;
        let limits = crate::proto::pacer::v1::RoleConfig {
            p4_ids: vec![7],
            pipeline: true,
            ..Default::default()
        };
        let mut message = in_role(name, election_id);
        if let Some(role) = &mut message.role {
            role.config = Some(prost_types::Any {
                type_url: "type.googleapis.com/pacer.v1.RoleConfig".to_owned(),
                value: limits.encode_to_vec(),
            });
        }
        message
    }

    #[test]
    fn the_first_holder_ends_the_rights_of_all_strangers() {
        let mut arbitration = Arbitration::new(DEVICE, 4);
        for (session, message) in [
            (1, update(Some(5))),
            (2, in_role("plain", 5)),
            (3, configured("configured", 5)),
        ] {
            send_as_stranger(&mut arbitration, session, &message).expect("nobody else is there");
            assert!(arbitration.is_primary(session));
        }
        // Those of its role hear of the holder, the others that they have no primary.
        let mut told = send(&mut arbitration, 4, &in_role("plain", 1));
        told.sort_by_key(|(session, ..)| *session);
        assert_eq!(
            told,
            [
                (1, Code::NotFound, Some(5)),
                (2, Code::AlreadyExists, Some(1)),
                (3, Code::NotFound, Some(5)),
                (4, Code::Ok, Some(1)),
            ]
        );
        assert!((1..=3).all(|session| !arbitration.is_primary(session)));
        for role in ["", "plain", "configured"] {
            let id = Some(election_message(5));
            let refused = arbitration.check_primary(Standing::Stranger, DEVICE, role, id.as_ref());
            assert_eq!(
                refused.expect_err("a stranger").code(),
                Code::PermissionDenied
            );
        }
        // A config that only a stranger has sent takes nothing from the holder.
        assert!(arbitration.scope("plain").has(7));
        assert!(arbitration.scope("plain").may_set_pipeline());
    }

    #[test]
    fn a_role_without_a_config_may_do_what_no_config_names() {
        let mut arbitration = Arbitration::new(DEVICE, 4);
        send(&mut arbitration, 1, &in_role("plain", 1));
        assert!(arbitration.scope("plain").has(7));
        assert!(arbitration.scope("plain").may_set_pipeline());
        send(&mut arbitration, 2, &configured("configured", 1));
        // It holds for the primary of before.
        assert!(arbitration.is_primary(1));
        let plain = arbitration.scope("plain");
        assert!(!plain.has(7) && plain.has(8));
        assert!(!plain.may_set_pipeline() && plain.may_set_ports());
        let default = arbitration.scope("");
        assert!(default.has(7) && default.may_set_pipeline());
        assert!(arbitration.scope("configured").has(7) && !arbitration.scope("configured").has(8));
        // The role keeps its objects without a primary.
        arbitration.close(2);
        assert!(!arbitration.scope("plain").has(7));
    }

    #[test]
    fn number_of_controllers_of_a_role_is_limited() {
        let mut arbitration = Arbitration::new(DEVICE, 2);
        send(&mut arbitration, 1, &update(Some(1)));
        send(&mut arbitration, 2, &update(Some(2)));
        let error = arbitration
            .update(3, Standing::Holder, &update(Some(3)))
            .expect_err("full");
        assert_eq!(error.code(), Code::ResourceExhausted);
        arbitration.close(1);
        send(&mut arbitration, 3, &update(Some(3)));
    }
}
