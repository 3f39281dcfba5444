//! The parts of a runtime file besides table entries and multicast groups: clone sessions (in
//! the P4 tutorials' format), members and groups of action profiles, parser value sets and
//! register cells.

use anyhow::{Context, anyhow, bail};
use serde::Deserialize;
use serde_json::{Map, Value};
use switch::{CloneSession, Program};
use v1model::Pipeline;
use v1model::entries::profile::{GroupMember, ProfileGroup, ProfileMember};
use v1model::entries::{KeyField, MatchKind};

use super::values::{GroupReplica, action_call, encode, find, match_field};

/// Objects to install at start.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Objects {
    #[serde(default)]
    clone_session_entries: Vec<Session>,
    #[serde(default)]
    action_profile_members: Vec<Member>,
    #[serde(default)]
    action_profile_groups: Vec<Group>,
    #[serde(default)]
    value_set_entries: Vec<ValueSet>,
    #[serde(default)]
    register_entries: Vec<Register>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Session {
    clone_session_id: u32,
    replicas: Vec<GroupReplica>,
    #[serde(default)]
    class_of_service: u32,
    #[serde(default)]
    packet_length_bytes: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Member {
    action_profile: String,
    member_id: u32,
    action_name: String,
    #[serde(default)]
    action_params: Map<String, Value>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    action_profile: String,
    group_id: u32,
    members: Vec<GroupEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupEntry {
    member_id: u32,
    #[serde(default = "one")]
    weight: u32,
}

fn one() -> u32 {
    1
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ValueSet {
    value_set: String,
    /// One list of values per member.
    members: Vec<Vec<Value>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Register {
    register: String,
    index: usize,
    value: Value,
}

impl Objects {
    /// Installs everything.
    ///
    /// # Errors
    /// Names the object; those before it are installed.
    pub(super) fn apply(&self, program: &mut Program) -> anyhow::Result<()> {
        for session in &self.clone_session_entries {
            let to = CloneSession {
                replicas: session.replicas.iter().map(GroupReplica::replica).collect(),
                class_of_service: session.class_of_service,
                packet_length_bytes: session.packet_length_bytes,
            };
            program.clone_session_insert(session.clone_session_id, to)?;
        }
        let pipeline = program.pipeline_mut();
        for member in &self.action_profile_members {
            member
                .apply(pipeline)
                .with_context(|| format!("action profile member {}", member.member_id))?;
        }
        for group in &self.action_profile_groups {
            let profile = profile(pipeline, &group.action_profile)?;
            let members = group.members.iter().map(|member| GroupMember {
                member: member.member_id,
                weight: member.weight,
                watch: None,
            });
            let wanted = ProfileGroup {
                id: group.group_id,
                max_size: 0,
                members: members.collect(),
            };
            pipeline.group_insert(profile, &wanted)?;
        }
        for set in &self.value_set_entries {
            set.apply(pipeline)
                .with_context(|| format!("value set '{}'", set.value_set))?;
        }
        for register in &self.register_entries {
            let (index, info) = find(pipeline.registers(), &register.register, |r| &r.name)
                .ok_or_else(|| anyhow!("the program has no register '{}'", register.register))?;
            let value = encode(&register.value, info.bits)
                .with_context(|| format!("register '{}'", register.register))?;
            pipeline.register_write(index, register.index, &value)?;
        }
        Ok(())
    }
}

fn profile(pipeline: &Pipeline, name: &str) -> anyhow::Result<usize> {
    find(pipeline.profiles(), name, |profile| &profile.name)
        .map(|(index, _)| index)
        .ok_or_else(|| anyhow!("the program has no action profile '{name}'"))
}

impl Member {
    fn apply(&self, pipeline: &mut Pipeline) -> anyhow::Result<()> {
        let profile = profile(pipeline, &self.action_profile)?;
        let tables = pipeline.profiles().get(profile).map(|p| p.tables.clone());
        let table = tables
            .and_then(|tables| tables.first().copied())
            .and_then(|table| pipeline.tables().get(table).cloned())
            .ok_or_else(|| anyhow!("no table uses the action profile"))?;
        let call = action_call(pipeline, &table, &self.action_name, &self.action_params)?;
        let member = ProfileMember {
            id: self.member_id,
            call,
        };
        Ok(pipeline.member_insert(profile, &member)?)
    }
}

impl ValueSet {
    fn apply(&self, pipeline: &mut Pipeline) -> anyhow::Result<()> {
        let (index, info) = find(pipeline.value_sets(), &self.value_set, |set| &set.name)
            .ok_or_else(|| anyhow!("the program has no such value set"))?;
        let mut members = Vec::new();
        for values in &self.members {
            if values.len() != info.widths.len() {
                bail!(
                    "a member has {} values, {} given",
                    info.widths.len(),
                    values.len()
                );
            }
            let fields = values.iter().zip(&info.widths).map(|(value, &bits)| {
                let exact = KeyField {
                    name: String::new(),
                    kind: MatchKind::Exact,
                    bits,
                    mask: None,
                };
                match_field(&exact, Some(value))
            });
            members.push(fields.collect::<anyhow::Result<Vec<_>>>()?);
        }
        Ok(pipeline.value_set_write(index, &members)?)
    }
}
