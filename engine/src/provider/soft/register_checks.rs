//! What a registration work request must satisfy (U24, U25, I32).

use super::bases::{BaseTable, index_of};
use super::profile::Rules;
use super::registration::{Asker, KEY_BYTE, Registration};
use crate::provider::{BaseAddress, Capabilities, Contiguity, RegistrationFields, ScatterElement};

/// Whether the device executes it.
pub(super) fn is_acceptable(
    capabilities: &Capabilities,
    rules: &Rules,
    entry: &Registration,
    fields: &RegistrationFields,
    elements: &[ScatterElement],
    asker: Asker,
    bases: &BaseTable,
) -> bool {
    (entry.live.is_none() || !capabilities.refuses_live_registration)
        && entry.domain == asker.domain
        && key_is_acceptable(capabilities, rules, entry, fields)
        && range_is_acceptable(capabilities, fields, elements)
        && layout_is_acceptable(capabilities, entry.depth, elements)
        && bases_are_acceptable(capabilities, rules, fields, elements, asker, bases)
}

fn key_is_acceptable(
    capabilities: &Capabilities,
    rules: &Rules,
    entry: &Registration,
    fields: &RegistrationFields,
) -> bool {
    let may_change = if capabilities.rotating_key_bits == 0 { 0 } else { KEY_BYTE };
    let index_is_kept = fields.key & !may_change == entry.key & !may_change;
    let old_key_is_right = !rules.names_old_key || fields.old_key == entry.key;
    let repeats = rules.refuses_repeated_key && may_change != 0 && entry.key_was_used && fields.key == entry.key;
    index_is_kept && old_key_is_right && !repeats
}

fn range_is_acceptable(capabilities: &Capabilities, fields: &RegistrationFields, elements: &[ScatterElement]) -> bool {
    let Some(first) = elements.first() else { return false };
    let sum: u64 = elements.iter().map(|element| u64::from(element.length)).sum();
    let address_is_good = match capabilities.base_address {
        BaseAddress::Virtual => fields.iova == first.address,
        BaseAddress::Zero => fields.iova == 0,
        BaseAddress::Any => match capabilities.contiguity {
            // The device adds iova and page addresses: the offset in the page is in both (S36).
            Contiguity::PageList { page_size } => (fields.iova ^ first.address) & u64::from(page_size - 1) == 0,
            _ => true,
        },
    };
    elements.iter().all(|element| element.length > 0)
        && sum == u64::from(fields.length)
        && sum <= capabilities.max_registration_bytes
        && fields.iova.checked_add(sum).is_some()
        && address_is_good
}

fn layout_is_acceptable(capabilities: &Capabilities, depth: u32, elements: &[ScatterElement]) -> bool {
    let end = |element: &ScatterElement| element.address.wrapping_add(u64::from(element.length));
    let entries = |page_size: u32| -> u64 { elements.iter().map(|element| pages(element, u64::from(page_size))).sum() };
    match capabilities.contiguity {
        Contiguity::SingleRange => elements.windows(2).all(|pair| end(&pair[0]) == pair[1].address),
        Contiguity::Gaps { page_size: 0 } => elements.len() as u64 <= u64::from(depth),
        Contiguity::Gaps { page_size } => entries(page_size) <= u64::from(depth),
        Contiguity::PageList { page_size } => {
            let mask = u64::from(page_size) - 1;
            let aligned = |pair: &[ScatterElement]| end(&pair[0]) & mask == 0 && pair[1].address & mask == 0;
            elements.windows(2).all(aligned) && entries(page_size) <= u64::from(depth)
        }
    }
}

/// Entries of a page list that an element takes.
fn pages(element: &ScatterElement, page_size: u64) -> u64 {
    let first = element.address / page_size;
    let last = element.address.saturating_add(u64::from(element.length).saturating_sub(1)) / page_size;
    last - first + 1
}

fn bases_are_acceptable(
    capabilities: &Capabilities,
    rules: &Rules,
    fields: &RegistrationFields,
    elements: &[ScatterElement],
    asker: Asker,
    bases: &BaseTable,
) -> bool {
    let binds_to_one = capabilities.contiguity == Contiguity::SingleRange;
    elements.iter().all(|element| {
        let index = index_of(element.lkey);
        bases.get(index).is_some_and(|base| {
            base.lkey == element.lkey
                && (!binds_to_one || index == fields.base.0)
                && !base.retiring
                && (base.domain == asker.domain || !rules.checks_base_domain)
                && (base.local_write || !fields.access.permits_write())
                && base.offset_of(element.address, u64::from(element.length)).is_some()
        })
    })
}
