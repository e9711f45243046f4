//! Keeps the old field `disableCopiedCSVs` and its entry of the list in agreement.
//!
//! Two generations of clients write the same value: old ones the field, new ones the field and
//! the entry. The rules follow the change of a singular field to a plural one in Kubernetes, and
//! hold for this one entry only; other gates have no field.
//!
//! | field | entry | result |
//! | --- | --- | --- |
//! | unchanged | unchanged | nothing to do |
//! | cleared | unchanged | the entry is cleared |
//! | changed | unchanged | the entry takes the value of the field |
//! | unchanged | cleared | the entry is restored from the field |
//! | unchanged | changed | refused: it may be a stale field |
//! | changed | changed | accepted if they agree |
//!
//! A create is compared with an object that has neither: a field alone adds the entry, both must
//! agree, and an entry alone is refused.

use portunus_objects::field::{FieldError, Path};
use serde_json::Value;

use crate::gate_list::{COPIED_CSVS_GATE, mirror_entry, old_field, set_mirror_entry};

/// Shows the entry of an object that has only the old field.
pub fn present(object: &mut Value) {
    if let Some(value) = old_field(object)
        && mirror_entry(object).is_none()
    {
        set_mirror_entry(object, Some(value));
    }
}

/// Makes the field and its entry agree in the object after a request, or refuses the request.
/// `before` is the stored object, `None` for a create. Both are in v2alpha1.
pub fn normalize(after: &mut Value, before: Option<&Value>) -> Result<(), FieldError> {
    let field = old_field(after);
    let entry = mirror_entry(after).map(|entry| entry.value);
    let field_before = before.and_then(old_field);
    let entry_before = before
        .and_then(mirror_entry)
        .map(|entry| entry.value)
        // A stored object with only the field reads as if it had the entry.
        .or(field_before);

    match (field != field_before, entry != entry_before) {
        (_, false) => set_mirror_entry(after, field),
        (false, true) if entry.is_none() => set_mirror_entry(after, field),
        (true, true) if field == entry => {}
        _ => return Err(mismatch(after, field)),
    }
    Ok(())
}

fn mismatch(after: &Value, field: Option<bool>) -> FieldError {
    let features = Path::new("spec").child("features");
    let list = features.child("gates");
    let Some(entry) = mirror_entry(after) else {
        let detail = format!(
            "the entry {COPIED_CSVS_GATE} was removed while the field changed: set both, or remove both"
        );
        return FieldError::required(&list, &detail);
    };
    match field {
        None => {
            let detail =
                format!("must be set to the value of the entry {COPIED_CSVS_GATE} of {list}");
            FieldError::required(&features.child(COPIED_CSVS_GATE), &detail)
        }
        Some(value) => {
            let detail = format!(
                "must agree with {}, which is {value}: set both to the same value",
                features.child(COPIED_CSVS_GATE)
            );
            let path = list.index(entry.index).child("value");
            FieldError::invalid(&path, entry.value, &detail)
        }
    }
}
