//! Data structures that a controller returns, as a host reads them.

use frwr_nvmf::wire::{
    AnaGroup, AnaLogHeader, AnaState, ControllerCapabilities, ControllerConfiguration, ControllerStatus, DatasetRange,
    DiscoveryEntry, DiscoveryHeader, EffectsLog, ErrorLogEntry, FirmwareLog, HealthLog, IDENTIFY_BYTES,
    IdentifyActiveNamespaces, IdentifyController, IdentifyDescriptors, IdentifyNamespace, IdentifyNvmController, Nqn,
    Property, SerialNumber, ShutdownNotification,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The bytes of an Identify data structure: what is missing is zeros, so that few bytes say much.
fn page(bytes: &[u8]) -> [u8; IDENTIFY_BYTES] {
    let mut page = [0; IDENTIFY_BYTES];
    page.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    page
}

fn read<T: FromBytes + IntoBytes + Immutable + KnownLayout>(bytes: &[u8]) -> Option<T> {
    let (value, _) = T::read_from_prefix(bytes).ok()?;
    assert!(bytes.starts_with(value.as_bytes()), "no byte is lost or changed");
    Some(value)
}

/// All structures of Identify, of the same bytes.
pub(crate) fn identify(bytes: &[u8]) {
    let bytes = page(bytes);
    let controller: IdentifyController = read(&bytes).expect("the page is long enough");
    let _ = (controller.supports_keyed_blocks(), controller.in_capsule_bytes());
    let _ = (SerialNumber::from_field(&controller.serial_number), Nqn::from_field(&controller.subsystem));
    for page_size in (12..28).map(|shift| 1_u64 << shift) {
        assert!(controller.max_transfer_bytes(page_size).is_none_or(|most| most >= page_size));
    }
    let namespace: IdentifyNamespace = read(&bytes).expect("the page is long enough");
    match namespace.geometry() {
        Ok((blocks, bytes)) => assert!(blocks > 0 && bytes.is_power_of_two() && (512..=65536).contains(&bytes)),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    let limits: IdentifyNvmController = read(&bytes).expect("the page is long enough");
    assert!(limits.max_zeroes_bytes(1 << 12).is_none_or(|most| most > 0));
    let _: Option<IdentifyActiveNamespaces> = read(&bytes);
    let _: Option<IdentifyDescriptors> = read(&bytes);
    let _: Option<DatasetRange> = read(&bytes);
}

/// All log pages, of the same bytes.
pub(crate) fn log_pages(bytes: &[u8]) {
    let _: Option<ErrorLogEntry> = read(bytes);
    let _: Option<HealthLog> = read(bytes);
    let _: Option<FirmwareLog> = read(bytes);
    let _: Option<EffectsLog> = read(bytes);
    let _: Option<AnaLogHeader> = read(bytes);
    if let Some(state) = read::<AnaGroup>(bytes).and_then(|group| AnaState::from_wire(group.state)) {
        assert_eq!(AnaState::from_wire(state as u8), Some(state));
    }
    let _: Option<DiscoveryHeader> = read(bytes);
    if let Some(entry) = read::<DiscoveryEntry>(bytes) {
        let _ = Nqn::from_field(&entry.subsystem);
    }
}

/// Properties: an offset, and a value.
pub(crate) fn properties(bytes: &[u8]) {
    let Some((offset, rest)) = bytes.split_first_chunk() else { return };
    if let Some(property) = Property::from_offset(u32::from_le_bytes(*offset)) {
        assert_eq!(property.offset(), u32::from_le_bytes(*offset));
    }
    let Some(value) = rest.first_chunk() else { return };
    let (wide, narrow) = (u64::from_le_bytes(*value), u64::from_le_bytes(*value) as u32);
    let capabilities = ControllerCapabilities(wide);
    assert!((1..=1 << 16).contains(&capabilities.max_queue_entries()));
    assert!(capabilities.minimum_page_size().is_power_of_two());
    let _ = (capabilities.ready_timeout(), capabilities.has_nvm_command_set());
    let configuration = ControllerConfiguration(narrow);
    let _ = (configuration.is_enabled(), configuration.is_supported());
    assert_eq!(configuration.shutdown() == ShutdownNotification::None, narrow >> 14 & 3 == 0);
    let status = ControllerStatus(narrow);
    assert_eq!(ControllerStatus::new(status.is_ready(), status.shutdown()).shutdown(), status.shutdown());
    let _ = status.is_fatal();
}
