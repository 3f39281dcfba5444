//! The forwarding pipeline: the running program and its P4Info (specification, sections
//! "SetForwardingPipelineConfig RPC" and "GetForwardingPipelineConfig RPC").

use std::sync::Arc;

use prost::Message;
use tonic::Status;

use crate::error::{UpdateError, control_status};
use crate::executor;
use crate::proto::p4::v1 as p4;
use crate::reconcile;
use crate::shared::Shared;
use crate::state::{Annotations, ForwardingPipeline, InstalledPipeline, PipelineState, no_config};
use crate::translate::{BoundPipeline, BoundTable};

/// A configuration that has been checked, with its program compiled: ready to be installed.
#[derive(Debug)]
struct Prepared {
    pipeline: BoundPipeline,
    program: v1model::Pipeline,
}

/// The envelope in which controllers written for early BMv2 versions pack the JSON
/// (`p4.tmp.P4DeviceConfig`).
#[derive(Clone, PartialEq, Message)]
struct EarlyDeviceConfig {
    #[prost(bool, tag = "1")]
    reassign: bool,
    #[prost(bytes = "vec", tag = "3")]
    device_data: Vec<u8>,
}

/// The BMv2 JSON inside `p4_device_config`.
pub(crate) fn bmv2_json(device_config: &[u8]) -> Vec<u8> {
    let is_json = device_config
        .iter()
        .find(|byte| !byte.is_ascii_whitespace())
        .is_some_and(|byte| *byte == b'{');
    if !is_json
        && let Ok(envelope) = EarlyDeviceConfig::decode(device_config)
        && !envelope.device_data.is_empty()
    {
        return envelope.device_data;
    }
    device_config.to_vec()
}

/// `SetForwardingPipelineConfig`, after the check of device and primary; the caller holds the
/// write lock.
pub(crate) async fn set(
    shared: &Shared,
    state: &mut PipelineState,
    action: i32,
    config: Option<p4::ForwardingPipelineConfig>,
) -> Result<(), Status> {
    use p4::set_forwarding_pipeline_config_request::Action;
    match Action::try_from(action) {
        Ok(Action::Verify) => {
            prepare(shared, config).await?;
            Ok(())
        }
        Ok(Action::VerifyAndSave) => {
            let prepared = prepare(shared, config).await?;
            stage(shared, state, prepared).await
        }
        Ok(Action::VerifyAndCommit) => {
            let prepared = prepare(shared, config).await?;
            stage(shared, state, prepared).await?;
            commit(shared, state).await
        }
        Ok(Action::Commit) => {
            if config.is_some() {
                return Err(Status::invalid_argument(
                    "config: given with COMMIT, which commits the saved one; leave it unset",
                ));
            }
            if state.saved.is_none() {
                return Err(Status::not_found(
                    "COMMIT: no saved config; send VERIFY_AND_SAVE first",
                ));
            }
            commit(shared, state).await
        }
        Ok(Action::ReconcileAndCommit) => reconcile(shared, state, config).await,
        Ok(Action::Unspecified) | Err(_) => Err(Status::invalid_argument(format!(
            "action: {action} given, VERIFY, VERIFY_AND_SAVE, VERIFY_AND_COMMIT, COMMIT or \
             RECONCILE_AND_COMMIT expected"
        ))),
    }
}

/// `RECONCILE_AND_COMMIT`.
async fn reconcile(
    shared: &Shared,
    state: &mut PipelineState,
    config: Option<p4::ForwardingPipelineConfig>,
) -> Result<(), Status> {
    if let (Some(active), Some(config)) = (&mut state.committed, &config) {
        let running = &active.pipeline.config;
        if running.p4_device_config == config.p4_device_config && running.p4info == config.p4info {
            // The program is the same, so only the cookie changes.
            let mut pipeline = BoundPipeline::clone(&active.pipeline);
            pipeline.config.cookie = config.cookie;
            active.pipeline = Arc::new(pipeline);
            drop_saved(shared, state).await?;
            return Ok(());
        }
    }
    if state.saved.is_some() || state.staged_beside {
        // The staged program's place is needed, and a saved config must not be lost if this fails.
        return Err(Status::failed_precondition(
            "a program is staged and not committed: COMMIT a saved config first (swap_configs, if it was \
             loaded over Thrift), or replace it by VERIFY_AND_SAVE or VERIFY_AND_COMMIT",
        ));
    }
    let prepared = prepare(shared, config).await?;
    let kept = match &state.committed {
        Some(active) => reconcile::state_of(shared, state, active).await?,
        None => reconcile::Kept::default(),
    };
    stage(shared, state, prepared).await?;
    let Some(staged) = &mut state.saved else {
        debug_assert!(false, "it has just been staged");
        return Err(Status::internal("the staged config is not there"));
    };
    if let Err(status) = reconcile::write_to(shared, staged, kept).await {
        drop_saved(shared, state).await?;
        return Err(status);
    }
    commit(shared, state).await
}

/// Forgets a saved configuration, if there is one.
async fn drop_saved(shared: &Shared, state: &mut PipelineState) -> Result<(), Status> {
    if state.saved.take().is_some() {
        drop(executor::with(&*shared.executor, |switch| switch.unstage()).await?);
    }
    Ok(())
}

/// Checks and compiles a configuration without touching the running program, and without the
/// thread that owns the switch: packets pass meanwhile.
async fn prepare(
    shared: &Shared,
    config: Option<p4::ForwardingPipelineConfig>,
) -> Result<Prepared, Status> {
    let Some(config) = config else {
        return Err(Status::invalid_argument(
            "config: not given, P4Info and p4_device_config expected",
        ));
    };
    if config.p4info.is_none() {
        return Err(Status::invalid_argument(
            "config: p4info: not given, the P4Info of the program expected",
        ));
    }
    if config.p4_device_config.is_empty() {
        return Err(Status::invalid_argument(
            "config: p4_device_config: empty, the program as BMv2 JSON expected",
        ));
    }
    let json = bmv2_json(&config.p4_device_config);
    let compiler = shared.compiler.clone();
    let compiled = tokio::task::spawn_blocking(move || compiler.compile(&json))
        .await
        .map_err(|error| Status::internal(format!("the compiler failed: {error}")))?;
    // "Returns an INVALID_ARGUMENT error if ... the provided config cannot be realized."
    let program = compiled.map_err(refused_program)?;
    let pipeline = BoundPipeline::new(config, &program, &shared.config.mappings)
        .map_err(|error| Status::from(UpdateError::as_invalid(error)))?;
    Ok(Prepared { pipeline, program })
}

fn refused_program(error: v1model::entries::ControlError) -> Status {
    Status::invalid_argument(format!("config: p4_device_config: {error}"))
}

/// Stages a prepared configuration beside the running program.
async fn stage(
    shared: &Shared,
    state: &mut PipelineState,
    prepared: Prepared,
) -> Result<(), Status> {
    let Prepared { pipeline, program } = prepared;
    let rules: Vec<_> = pipeline
        .profiles
        .iter()
        .map(|profile| (profile.index, profile.rules))
        .collect();
    let tables: Vec<_> = pipeline
        .tables
        .iter()
        .map(|table| (table.index, table.const_entries, table.size))
        .collect();
    let has_preset = |table: &&BoundTable| {
        let info = program.tables().get(table.index);
        !table.const_entries && info.is_some_and(|info| info.const_entries)
    };
    let with_preset = pipeline.tables.iter().filter(has_preset);
    let with_preset: Vec<u32> = with_preset.map(|table| table.id).collect();
    let before = executor::with(&*shared.executor, move |switch| {
        let before = switch.stage(program);
        let pipeline = switch.program_mut()?.pipeline_mut();
        for (table, const_entries, size) in tables {
            pipeline.table_rules(table, const_entries, size)?;
        }
        for (profile, rules) in rules {
            pipeline.profile_rules(profile, rules)?;
        }
        Ok(before)
    })
    .await?
    .map_err(refused_program)?;
    // Freed here, because freeing a large program would stop the thread that owns the switch.
    drop(before);
    state.staged_beside = false;
    state.saved = Some(InstalledPipeline {
        pipeline: Arc::new(pipeline),
        annotations: Annotations::default(),
        preset: Vec::new(),
    });
    if !with_preset.is_empty() {
        match reconcile::entries_of(shared, state, &with_preset).await {
            Ok(preset) => {
                if let Some(staged) = &mut state.saved {
                    staged.preset = preset;
                }
            }
            Err(status) => {
                drop_saved(shared, state).await?;
                return Err(status);
            }
        }
    }
    Ok(())
}

/// Puts the staged program in place of the running one.
async fn commit(shared: &Shared, state: &mut PipelineState) -> Result<(), Status> {
    let counters = Arc::clone(&shared.counters);
    let forwarding = shared.forwarding.clone();
    let pipeline = state
        .saved
        .as_ref()
        .map(|saved| Arc::clone(&saved.pipeline));
    let before = executor::with(&*shared.executor, move |switch| {
        let before = switch.commit_staged()?;
        // This runs between two packets, so the new program's first packet-in is translated by its
        // own P4Info.
        let first = counters.offered();
        forwarding.send_replace(pipeline.map(|pipeline| ForwardingPipeline { pipeline, first }));
        Ok(before)
    })
    .await?
    .map_err(|error| control_status(&error))?;
    state.committed = state.saved.take();
    // Freed here, because freeing a large program would stop the thread that owns the switch.
    drop(before);
    Ok(())
}

/// `GetForwardingPipelineConfig`.
pub(crate) async fn get(
    shared: &Shared,
    state: &PipelineState,
    response_type: i32,
) -> Result<p4::GetForwardingPipelineConfigResponse, Status> {
    use p4::get_forwarding_pipeline_config_request::ResponseType;
    let Ok(wanted) = ResponseType::try_from(response_type) else {
        return Err(Status::invalid_argument(format!(
            "response_type: {response_type} given, ALL, COOKIE_ONLY, P4INFO_AND_COOKIE or \
             DEVICE_CONFIG_AND_COOKIE expected"
        )));
    };
    let with_info = matches!(wanted, ResponseType::All | ResponseType::P4infoAndCookie);
    let with_device = matches!(
        wanted,
        ResponseType::All | ResponseType::DeviceConfigAndCookie
    );
    if state.committed.is_none()
        && executor::with(&*shared.executor, |switch| switch.is_running()).await?
    {
        // There is a program, but no P4Info of it, which the response must have. BMv2 refuses, too, and
        // clients such as p4-utils then send the config.
        return Err(no_config());
    }
    // "If ... the forwarding-pipeline config is not known, the top-level config field will be
    // unset in the response."
    let config = state.committed.as_ref().map(|active| {
        let config = &active.pipeline.config;
        p4::ForwardingPipelineConfig {
            p4info: with_info.then(|| config.p4info.clone()).flatten(),
            p4_device_config: if with_device {
                config.p4_device_config.clone()
            } else {
                Vec::new()
            },
            cookie: config.cookie,
        }
    });
    Ok(p4::GetForwardingPipelineConfigResponse { config })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_taken_as_it_is_or_out_of_the_early_envelope() {
        assert_eq!(bmv2_json(b" {\"a\": 1}"), b" {\"a\": 1}");
        let envelope = EarlyDeviceConfig {
            reassign: true,
            device_data: b"{}".to_vec(),
        };
        assert_eq!(bmv2_json(&envelope.encode_to_vec()), b"{}");
        assert_eq!(bmv2_json(b"nonsense"), b"nonsense");
    }
}
