//! Get Log Page (Base 5.16).

use super::Target;
use super::buffers::{Buffer, Buffers};
use super::command::{Reply, Work};
use super::controllers::{Controller, ERROR_LOG_ENTRIES};
use super::identify::{FIRMWARE, pad};
use super::options::ADMIN_QUEUE_ENTRIES;
use super::receive::refused;
use super::table::{Accepted, Arrival};
use crate::storage::Storage;
use crate::wire::{
    AnaGroup, AnaLogHeader, BROADCAST_NAMESPACE, DISCOVERY_ENTRY_BYTES, DataPointer, DiscoveryEntry, DiscoveryHeader,
    EffectsLog, ErrorLogEntry, FirmwareLog, GetLogPage, HealthLog, KeyedDataBlock, Status, log_page,
};
use core::mem::size_of;
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
const PAGES: [u8; 8] = [
    log_page::SUPPORTED,
    log_page::ERRORS,
    log_page::HEALTH,
    log_page::FIRMWARE,
    log_page::CHANGED_NAMESPACES,
    log_page::EFFECTS,
    log_page::ANA,
    log_page::DISCOVERY,
];
const SUPPORTED_BYTES: usize = 1024;
const CHANGED_BYTES: usize = 4096;

/// What a host wants of a page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    page: u8,
    specific: u8,
    retain_event: bool,
    offset: u32,
    length: u32,
}

/// Writes those parts of a page that the host asked for.
struct Window<'a> {
    buffers: &'a Buffers,
    buffer: &'a Buffer,
    offset: u64,
    length: u64,
    fits: bool,
}

impl Window<'_> {
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

impl<P: Port, S: Storage> Target<P, S> {
    /// Get Log Page (Base 5.16): what can be said before there is a buffer.
    pub(super) fn get_log_page(&mut self, arrival: &Arrival<'_>) -> Accepted {
        let (controller, get) = self.ready(arrival, GetLogPage::decode(arrival.entry))?;
        let Some(Some(found)) = self.controllers.get(controller) else { return Err(refused(Status::INTERNAL_ERROR)) };
        let bytes = self.page_bytes(found, get.page, get.specific).ok_or(refused(Status::INVALID_LOG_PAGE))?;
        // Offsets are dwords and lie in the page; no page here is indexed (Base figure 199).
        if get.offset_is_index || !get.offset.is_multiple_of(4) || get.offset > bytes {
            return Err(refused(Status::INVALID_FIELD));
        }
        // Health is that of the controller (LPA bit 0 is 0).
        if get.page == log_page::HEALTH && !matches!(get.namespace, 0 | BROADCAST_NAMESPACE) {
            return Err(refused(Status::INVALID_FIELD));
        }
        if get.length > u64::from(self.options.buffer_bytes) {
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

    /// Bytes of a page; `None` where there is no such page.
    fn page_bytes(&self, controller: &Controller, page: u8, specific: u8) -> Option<u64> {
        let subsystem = controller.subsystem().and_then(|index| self.subsystems.get(index));
        let bytes = match (page, subsystem) {
            (log_page::SUPPORTED, _) => SUPPORTED_BYTES,
            (log_page::ERRORS, _) => ERROR_LOG_ENTRIES * size_of::<ErrorLogEntry>(),
            (log_page::DISCOVERY, None) => {
                let visible = self.subsystems.iter().filter(|subsystem| subsystem.hosts.allows(controller.host));
                (1 + visible.count()) * DISCOVERY_ENTRY_BYTES
            }
            (log_page::HEALTH, Some(_)) => size_of::<HealthLog>(),
            (log_page::FIRMWARE, Some(_)) => size_of::<FirmwareLog>(),
            (log_page::CHANGED_NAMESPACES, Some(_)) => CHANGED_BYTES,
            (log_page::EFFECTS, Some(_)) => size_of::<EffectsLog>(),
            (log_page::ANA, Some(subsystem)) => {
                let listed = if specific & GROUPS_ONLY != 0 { 0 } else { subsystem.namespaces.len() };
                size_of::<AnaLogHeader>() + size_of::<AnaGroup>() + listed * size_of::<U32>()
            }
            _ => return None,
        };
        Some(bytes as u64)
    }

    /// Fills the command's buffer.
    pub(super) fn execute_log_page(&mut self, index: u32, get: Part) -> Reply {
        let Some((controller, buffer)) = self.admin_buffer(index) else { return refused(Status::INTERNAL_ERROR) };
        let mut fits = false;
        if let Some(Some(found)) = self.controllers.get(controller) {
            // At most a buffer's bytes. What lies behind the page's end is zeros, and nobody else's data.
            fits = self.buffers.clear(&buffer, get.length as usize).is_ok();
            let (offset, length) = (get.offset.into(), get.length.into());
            let mut window = Window { buffers: &self.buffers, buffer: &buffer, offset, length, fits };
            self.write_page(found, &get, &mut window);
            fits = window.fits;
        }
        if let Some(slot) = self.slots.get_mut(index) {
            slot.buffer = Some(buffer);
        }
        if let Some(Some(found)) = self.controllers.get_mut(controller).filter(|_| !get.retain_event) {
            if get.page == log_page::CHANGED_NAMESPACES {
                found.changed.clear();
            }
            found.events.read(get.page);
            self.tell(controller);
        }
        if fits { Reply::data() } else { refused(Status::INTERNAL_ERROR) }
    }

    fn write_page(&self, controller: &Controller, get: &Part, window: &mut Window<'_>) {
        match get.page {
            log_page::SUPPORTED => {
                for page in PAGES {
                    if self.page_bytes(controller, page, get.specific).is_some() {
                        window.put(usize::from(page) * size_of::<U32>(), U32::new(1).as_bytes());
                    }
                }
            }
            log_page::ERRORS => {
                for (at, entry) in controller.errors().enumerate() {
                    window.put(at * size_of::<ErrorLogEntry>(), entry.as_bytes());
                }
            }
            log_page::HEALTH => window.put(0, self.health(controller).as_bytes()),
            log_page::FIRMWARE => {
                let mut page = FirmwareLog::new_zeroed();
                page.active = 1;
                pad(&mut page.revisions[0], FIRMWARE);
                window.put(0, page.as_bytes());
            }
            log_page::CHANGED_NAMESPACES => {
                for (at, identifier) in controller.changed.iter().enumerate() {
                    window.put(at * size_of::<U32>(), U32::new(identifier).as_bytes());
                }
            }
            log_page::EFFECTS => self.write_effects(controller, window),
            log_page::ANA => self.write_ana(controller, get, window),
            _ => self.write_discovery(controller, window),
        }
    }

    /// All hosts' work, because the medium is one.
    fn health(&self, controller: &Controller) -> HealthLog {
        let mut page = HealthLog::new_zeroed();
        page.temperature = TEMPERATURE.into();
        page.available_spare = 100;
        page.spare_threshold = 10;
        let counted = self.counted();
        page.data_read = wide(counted.bytes_read.div_ceil(DATA_UNIT));
        page.data_written = wide(counted.bytes_written.div_ceil(DATA_UNIT));
        page.read_commands = wide(counted.reads.saturating_add(counted.compares));
        page.write_commands = wide(counted.writes);
        page.power_on_hours = wide(self.now.as_secs() / 3600);
        page.media_errors = wide(counted.media_errors);
        page.error_entries = wide(controller.error_count());
        page
    }

    fn write_effects(&self, controller: &Controller, window: &mut Window<'_>) {
        const DWORD: usize = size_of::<U32>();
        let (admin, io) = self.effects(controller);
        let pages =
            [(core::mem::offset_of!(EffectsLog, admin), &admin[..]), (core::mem::offset_of!(EffectsLog, io), &io)];
        for (start, dwords) in pages {
            for (opcode, effects) in dwords {
                window.put(start + opcode * DWORD, U32::new(*effects).as_bytes());
            }
        }
    }

    fn write_ana(&self, controller: &Controller, get: &Part, window: &mut Window<'_>) {
        let Some(subsystem) = controller.subsystem().and_then(|index| self.subsystems.get(index)) else { return };
        let mut header = AnaLogHeader::new_zeroed();
        (header.change_count, header.groups) = (subsystem.ana_changes.into(), 1.into());
        let mut group = AnaGroup::new_zeroed();
        let listed = if get.specific & GROUPS_ONLY != 0 { 0 } else { subsystem.count() };
        (group.group, group.namespaces) = (1.into(), listed.into());
        (group.change_count, group.state) = (subsystem.ana_changes.into(), subsystem.ana as u8);
        window.put(0, header.as_bytes());
        let mut at = size_of::<AnaLogHeader>();
        window.put(at, group.as_bytes());
        at += size_of::<AnaGroup>();
        for identifier in 1..=listed {
            window.put(at, U32::new(identifier).as_bytes());
            at += size_of::<U32>();
        }
    }

    /// Where a host reaches this target. Of a listener at all of the machine's addresses that is where the host has just connected to,
    /// as Linux's target says it, too.
    fn address_for(&self, controller: &Controller) -> SocketAddr {
        let listens = self.options.address;
        let queue = controller.admin.and_then(|admin| self.queues.get(usize::from(admin.index))?.as_ref());
        match queue.and_then(|queue| queue.ends.local) {
            // What is IPv4 is called so, also where it came by a listener of IPv6.
            Some(local) if listens.ip().is_unspecified() => SocketAddr::new(local.ip().to_canonical(), listens.port()),
            _ => listens,
        }
    }

    fn write_discovery(&self, controller: &Controller, window: &mut Window<'_>) {
        let (mut records, address) = (0, self.address_for(controller));
        for subsystem in self.subsystems.iter().filter(|subsystem| subsystem.hosts.allows(controller.host)) {
            records += 1;
            let entry = DiscoveryEntry::new(&subsystem.name, address, ADMIN_QUEUE_ENTRIES);
            window.put(records * DISCOVERY_ENTRY_BYTES, entry.as_bytes());
        }
        window.put(0, DiscoveryHeader::new(self.discovery_generation, records as u64).as_bytes());
    }
}
