//! Digests. Lists of messages go to P4Runtime's controllers; here they can be acknowledged, and how they
//! are collected be changed.

use bmv2_thrift::standard::{InvalidLearnOperation, LearnOperationErrorCode as Code};
use switch::Program;
use v1model::entries::digest::DigestConfig;

use crate::programs::Text;

type Result<T> = std::result::Result<T, InvalidLearnOperation>;

/// The number of a digest, by the id that the program's JSON gives it.
pub(super) fn number(text: Option<&Text>, list_id: i32) -> Result<usize> {
    let lists = text.map(|text| text.objects().learn_lists.iter());
    let mut lists = lists.into_iter().flatten();
    let number = lists.position(|list| list.id == list_id);
    number.ok_or_else(|| InvalidLearnOperation::new(Code::INVALID_LIST_ID))
}

/// Changes how a digest is collected, if a controller collects it.
pub(super) fn configure(
    program: &mut Program,
    digest: usize,
    change: impl FnOnce(&mut DigestConfig),
) -> Result<()> {
    let error = |_| InvalidLearnOperation::new(Code::ERROR);
    if let Some(mut config) = program.digest_config(digest).map_err(error)? {
        change(&mut config);
        let configured = program.digest_configure(digest, Some(config));
        configured.map_err(error)?;
    }
    Ok(())
}
