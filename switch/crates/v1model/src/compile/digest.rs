//! Learn lists: the content of digests, and their description for the control plane.

use super::field_list::field_lists;
use crate::entries::digest::DigestInfo;
use crate::error::{At, LoadResult};
use crate::layout::{Field, Layout, pair};
use crate::model::FieldList;
use crate::program::DigestFields;

/// Learn lists, and their descriptions.
pub(super) fn digests(
    all: &[FieldList],
    layout: &Layout,
) -> LoadResult<(Vec<DigestFields>, Vec<DigestInfo>)> {
    let lists = field_lists(all, "learn list", layout)?;
    let mut digests = Vec::with_capacity(lists.len());
    let mut infos = Vec::with_capacity(lists.len());
    for (list, built) in all.iter().zip(lists) {
        let place = || format!("learn list '{}'", list.name);
        // Constants have no field.
        let elements = list.elements.iter().filter(|e| e.kind == "field");
        let names = elements.map(|element| pair(&element.value));
        let names: Vec<(&str, &str)> = names.collect::<LoadResult<_>>().at(place)?;
        let mut fields: Vec<(Field, Option<usize>)> =
            built.fields.iter().map(|field| (*field, None)).collect();
        let mut validities = Vec::new();
        let mut headers = Vec::new();
        let mut at = 0;
        while let Some(rest) = names.get(at..).filter(|rest| !rest.is_empty()) {
            let Some((base, length)) = whole_header(rest, layout).at(place)? else {
                at += 1;
                continue;
            };
            for (_, validity) in fields.iter_mut().skip(at).take(length) {
                *validity = Some(validities.len());
            }
            headers.push(at..at + length);
            validities.push(base);
            at += length;
        }
        infos.push(DigestInfo {
            name: list.name.clone(),
            json_id: list.id,
            widths: built.fields.iter().map(|f| f.bits).collect(),
            headers,
        });
        digests.push(DigestFields {
            id: built.id,
            fields: fields.into(),
            validities: validities.into(),
        });
    }
    Ok((digests, infos))
}

/// The header whose fields, all and in order, `names` begin with: its validity's slot and its number
/// of fields.
fn whole_header(names: &[(&str, &str)], layout: &Layout) -> LoadResult<Option<(u32, usize)>> {
    let Some((name, _)) = names.first() else {
        return Ok(None);
    };
    let header = &layout.headers[layout.header(name)?];
    let fields = &layout.types[header.kind].fields;
    let length = fields.len();
    let wanted = fields.iter().map(|field| (*name, field.name.as_str()));
    let whole = !header.metadata && length > 0 && wanted.eq(names.iter().copied().take(length));
    Ok(whole.then_some((header.base, length)))
}
