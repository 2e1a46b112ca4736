//! Get Log Page (Base 5.16).

use super::super::controllers::{Controller, ERROR_LOG_ENTRIES};
use super::super::listeners::Listeners;
use super::super::media::{Buffer, Buffers, Counters};
use super::super::options::ADMIN_QUEUE_ENTRIES;
use super::super::subsystem::{MAX_ANA_GROUPS, Subsystems};
use super::super::work::{Part, Work, refused};
use super::checks::{Accepted, Arrival, Checks};
use super::identify::{FIRMWARE, pad};
use crate::storage::Storage;
use crate::wire::{
    AnaGroup, AnaLogHeader, AnaState, BROADCAST_NAMESPACE, DISCOVERY_ENTRY_BYTES, DataPointer, DiscoveryEntry,
    DiscoveryHeader, EffectsLog, ErrorLogEntry, FirmwareLog, GetLogPage, HealthLog, KeyedDataBlock,
    ReservationNotification, Status, log_page,
};
use core::mem::size_of;
use core::time::Duration;
use frwr_engine::provider::Port;
use std::net::SocketAddr;
use zerocopy::{FromZeros, IntoBytes, little_endian::U32};

/// Kelvin. Nothing is measured; hosts warn of 0, and this is room temperature.
const TEMPERATURE: u16 = 298;
/// Data units are thousands of blocks of 512 bytes.
const DATA_UNIT: u64 = 512_000;
/// Log specific field of the ANA page, bit 0: without namespace identifiers.
const GROUPS_ONLY: u8 = 1;
/// Identifiers of pages that exist, with a bit each in the page that lists them.
const PAGES: [u8; 9] = [
    log_page::SUPPORTED,
    log_page::ERRORS,
    log_page::HEALTH,
    log_page::FIRMWARE,
    log_page::CHANGED_NAMESPACES,
    log_page::EFFECTS,
    log_page::ANA,
    log_page::DISCOVERY,
    log_page::RESERVATION_NOTIFICATION,
];
const SUPPORTED_BYTES: usize = 1024;
const CHANGED_BYTES: usize = 4096;

/// Writes those parts of a page that the host asked for.
struct Window<'a> {
    buffers: &'a Buffers,
    buffer: &'a Buffer,
    offset: u64,
    length: u64,
    fits: bool,
}

impl Window<'_> {
    /// The host asked for some of these bytes.
    fn has(&self, at: usize, bytes: usize) -> bool {
        (at as u64) < self.offset + self.length && (at + bytes) as u64 > self.offset
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        // Pages have few thousand bytes.
        let at = at as u64;
        let (from, to) = (at.max(self.offset), (at + bytes.len() as u64).min(self.offset + self.length));
        if from >= to {
            return;
        }
        let part = bytes.get((from - at) as usize..(to - at) as usize).unwrap_or_default();
        self.fits &= self.buffers.write(self.buffer, (from - self.offset) as usize, part).is_ok();
    }
}

fn wide(value: u64) -> [zerocopy::little_endian::U64; 2] {
    [value.into(), 0.into()]
}

/// Get Log Page (Base 5.16): what can be said before there is a buffer.
pub(super) fn get_log_page<P: Port, S: Storage>(checks: &mut Checks<'_, P, S>, arrival: &Arrival<'_>) -> Accepted {
    let (place, _, get) = checks.ready(arrival, GetLogPage::decode(arrival.entry))?;
    let controller = checks.controllers.get(place).ok_or(refused(Status::INTERNAL_ERROR))?;
    let listeners = checks.sessions.listeners().seen_from(checks.sessions.local_of(controller)).count();
    let beside = (listeners, checks.media.reserves());
    let bytes = page_bytes(controller, checks.subsystems, beside, get.page, get.specific);
    let bytes = bytes.ok_or(refused(Status::INVALID_LOG_PAGE))?;
    // Offsets are dwords and lie in the page; no page here is indexed (Base figure 199).
    if get.offset_is_index || !get.offset.is_multiple_of(4) || get.offset > bytes {
        return Err(refused(Status::INVALID_FIELD));
    }
    // Health is that of the controller (LPA bit 0 is 0).
    if get.page == log_page::HEALTH && !matches!(get.namespace, 0 | BROADCAST_NAMESPACE) {
        return Err(refused(Status::INVALID_FIELD));
    }
    if get.length > u64::from(checks.options.buffer_bytes) {
        // Above MDTS.
        return Err(refused(Status::INVALID_FIELD));
    }
    match get.data {
        DataPointer::Keyed(KeyedDataBlock { length, .. }) if u64::from(length) == get.length => {
            let GetLogPage { page, specific, retain_event, offset, .. } = get;
            // Pages have few thousand bytes, and an offset lies in one.
            Ok((Work::LogPage(Part { page, specific, retain_event, offset: offset as u32, length }), get.data))
        }
        DataPointer::Keyed(_) => Err(refused(Status::DATA_SGL_LENGTH_INVALID)),
        DataPointer::InCapsule { .. } => Err(refused(Status::SGL_DESCRIPTOR_TYPE_INVALID)),
    }
}

/// Bytes of a page; `None` where there is no such page. `listeners`: those that the host is told of; `reserves`:
/// somebody keeps reservations.
fn page_bytes(
    controller: &Controller,
    subsystems: &Subsystems,
    (listeners, reserves): (usize, bool),
    page: u8,
    specific: u8,
) -> Option<u64> {
    let subsystem = controller.subsystem().and_then(|index| subsystems.get(index));
    let bytes = match (page, subsystem) {
        (log_page::SUPPORTED, _) => SUPPORTED_BYTES,
        (log_page::ERRORS, _) => ERROR_LOG_ENTRIES * size_of::<ErrorLogEntry>(),
        (log_page::DISCOVERY, None) => {
            (1 + subsystems.visible(controller.host()).count() * listeners) * DISCOVERY_ENTRY_BYTES
        }
        (log_page::HEALTH, Some(_)) => size_of::<HealthLog>(),
        (log_page::FIRMWARE, Some(_)) => size_of::<FirmwareLog>(),
        (log_page::CHANGED_NAMESPACES, Some(_)) => CHANGED_BYTES,
        (log_page::EFFECTS, Some(_)) => size_of::<EffectsLog>(),
        (log_page::ANA, Some(subsystem)) => {
            // As long as Identify Controller says that it may be (NANAGRPID, MNAN), zeros behind what there is: hosts read so much of it,
            // nvme-cli in parts of 4096 bytes, of which the second would begin behind a shorter page.
            let listed = if specific & GROUPS_ONLY != 0 { 0 } else { subsystem.namespaces().highest() as usize };
            size_of::<AnaLogHeader>() + MAX_ANA_GROUPS as usize * size_of::<AnaGroup>() + listed * size_of::<U32>()
        }
        (log_page::RESERVATION_NOTIFICATION, Some(_)) if reserves => size_of::<ReservationNotification>(),
        _ => return None,
    };
    Some(bytes as u64)
}

/// An opcode's dword in the page of effects.
pub(in super::super) type Dword = (usize, u32);

/// What log pages are made of: lent for one command.
#[derive(Debug)]
pub(in super::super) struct Pages<'a> {
    pub(in super::super) controller: &'a Controller,
    pub(in super::super) subsystems: &'a Subsystems,
    /// Of admin commands.
    pub(in super::super) admin_effects: &'a [Dword],
    /// Of the others.
    pub(in super::super) io_effects: &'a [Dword],
    /// What all cores have done.
    pub(in super::super) counted: Counters,
    /// Somebody keeps reservations.
    pub(in super::super) reserves: bool,
    /// Where this target listens.
    pub(in super::super) listeners: &'a Listeners,
    /// How the host has called it.
    pub(in super::super) local: Option<SocketAddr>,
    /// The target's.
    pub(in super::super) now: Duration,
}

impl Pages<'_> {
    /// Fills a command's buffer; false where that cannot be.
    pub(in super::super) fn write(&self, get: &Part, buffers: &Buffers, buffer: &Buffer) -> bool {
        // At most a buffer's bytes. What lies behind the page's end is zeros, and nobody else's data.
        let fits = buffers.clear(buffer, get.length as usize).is_ok();
        let mut window = Window { buffers, buffer, offset: get.offset.into(), length: get.length.into(), fits };
        self.write_page(get, &mut window);
        window.fits
    }

    fn write_page(&self, get: &Part, window: &mut Window<'_>) {
        match get.page {
            log_page::SUPPORTED => {
                for page in PAGES {
                    if page_bytes(self.controller, self.subsystems, (0, self.reserves), page, get.specific).is_some() {
                        window.put(usize::from(page) * size_of::<U32>(), U32::new(1).as_bytes());
                    }
                }
            }
            log_page::ERRORS => {
                for (at, entry) in self.controller.errors().enumerate() {
                    window.put(at * size_of::<ErrorLogEntry>(), entry.as_bytes());
                }
            }
            log_page::HEALTH => window.put(0, self.health().as_bytes()),
            log_page::FIRMWARE => {
                let mut page = FirmwareLog::new_zeroed();
                page.active = 1;
                pad(&mut page.revisions[0], FIRMWARE);
                window.put(0, page.as_bytes());
            }
            log_page::CHANGED_NAMESPACES => {
                for (at, identifier) in self.controller.changed_namespaces().enumerate() {
                    window.put(at * size_of::<U32>(), U32::new(identifier).as_bytes());
                }
            }
            log_page::EFFECTS => self.write_effects(window),
            log_page::ANA => self.write_ana(get, window),
            log_page::RESERVATION_NOTIFICATION => window.put(0, self.controller.notifications().page().as_bytes()),
            _ => self.write_discovery(window),
        }
    }

    /// All hosts' work, because the medium is one.
    fn health(&self) -> HealthLog {
        let mut page = HealthLog::new_zeroed();
        page.temperature = TEMPERATURE.into();
        page.available_spare = 100;
        page.spare_threshold = 10;
        let counted = self.counted;
        page.data_read = wide(counted.bytes_read.div_ceil(DATA_UNIT));
        page.data_written = wide(counted.bytes_written.div_ceil(DATA_UNIT));
        page.read_commands = wide(counted.reads.saturating_add(counted.compares));
        page.write_commands = wide(counted.writes);
        page.power_on_hours = wide(self.now.as_secs() / 3600);
        page.media_errors = wide(counted.media_errors);
        page.error_entries = wide(self.controller.error_count());
        page
    }

    fn write_effects(&self, window: &mut Window<'_>) {
        const DWORD: usize = size_of::<U32>();
        let (admin, io) = (core::mem::offset_of!(EffectsLog, admin), core::mem::offset_of!(EffectsLog, io));
        for (start, dwords) in [(admin, self.admin_effects), (io, self.io_effects)] {
            for (opcode, effects) in dwords {
                window.put(start + opcode * DWORD, U32::new(*effects).as_bytes());
            }
        }
    }

    fn write_ana(&self, get: &Part, window: &mut Window<'_>) {
        let Some(subsystem) = self.controller.subsystem().and_then(|index| self.subsystems.get(index)) else { return };
        let namespaces = subsystem.namespaces();
        let mut header = AnaLogHeader::new_zeroed();
        // By a controller that drains no namespace can be reached, which is one more change of each group.
        let drains = self.controller.drains().is_some();
        let drained = u64::from(drains);
        // At most MAX_ANA_GROUPS.
        let groups = namespaces.groups().count() as u16;
        (header.change_count, header.groups) = ((namespaces.ana_changes() + drained).into(), groups.into());
        window.put(0, header.as_bytes());
        let mut at = size_of::<AnaLogHeader>();
        for (group, state, changes, count) in namespaces.groups() {
            // At most MAX_NAMESPACES.
            let listed = if get.specific & GROUPS_ONLY != 0 { 0 } else { count };
            let mut descriptor = AnaGroup::new_zeroed();
            (descriptor.group, descriptor.namespaces) = (group.into(), (listed as u32).into());
            let state = if drains && state != AnaState::PersistentLoss { AnaState::Inaccessible } else { state };
            (descriptor.change_count, descriptor.state) = ((changes + drained).into(), state as u8);
            window.put(at, descriptor.as_bytes());
            at += size_of::<AnaGroup>();
            if window.has(at, listed * size_of::<U32>()) {
                for (nth, identifier) in namespaces.in_group(group).take(listed).enumerate() {
                    window.put(at + nth * size_of::<U32>(), U32::new(identifier).as_bytes());
                }
            }
            at += listed * size_of::<U32>();
        }
    }

    fn write_discovery(&self, window: &mut Window<'_>) {
        let mut records = 0;
        for subsystem in self.subsystems.visible(self.controller.host()) {
            for (port, address) in self.listeners.seen_from(self.local) {
                records += 1;
                let at = records * DISCOVERY_ENTRY_BYTES;
                if window.has(at, DISCOVERY_ENTRY_BYTES) {
                    let entry = DiscoveryEntry::new(subsystem.name(), port, address, ADMIN_QUEUE_ENTRIES);
                    window.put(at, entry.as_bytes());
                }
            }
        }
        window.put(0, DiscoveryHeader::new(self.subsystems.generation(), records as u64).as_bytes());
    }
}
