//! The discovery log page (Base 5.16.1.23): read in parts, and checked to be of one generation.

use super::admin_data::Asked;
use super::failure::HostFailure;
use super::options::HostOptions;
use crate::wire::{DISCOVERY_ENTRY_BYTES, DiscoveryEntry, DiscoveryHeader, IDENTIFY_BYTES, Nqn, log_page};
use arrayvec::ArrayString;
use zerocopy::FromBytes;

/// Entries that are kept: fabrics have a handful, and a peer's number must not size anything.
pub const MAX_DISCOVERED: usize = 128;
/// Entries of the first part, behind the header, and of the others.
const ENTRIES_PER_READ: usize = IDENTIFY_BYTES / DISCOVERY_ENTRY_BYTES;
/// Bytes of TRADDR.
const ADDRESS_BYTES: usize = 256;
/// Bytes of TRSVCID.
const SERVICE_BYTES: usize = 32;

/// A subsystem that the discovery service knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discovered {
    /// TRTYPE: 1 for RDMA, 3 for TCP.
    pub transport: u8,
    /// ADRFAM: 1 for IPv4, 2 for IPv6.
    pub address_family: u8,
    /// SUBTYPE: 1 and 3 for discovery subsystems, 2 for those with namespaces.
    pub subsystem_type: u8,
    /// PORTID.
    pub port: u16,
    /// CNTLID; FFFFh where the subsystem chooses.
    pub controller_id: u16,
    /// SUBNQN.
    pub subsystem: Nqn,
    /// TRADDR.
    pub address: ArrayString<ADDRESS_BYTES>,
    /// TRSVCID.
    pub service: ArrayString<SERVICE_BYTES>,
}

impl Discovered {
    /// `None` where text is no text, or the name no name.
    fn new(entry: &DiscoveryEntry) -> Option<Self> {
        Some(Self {
            transport: entry.transport,
            address_family: entry.address_family,
            subsystem_type: entry.subsystem_type,
            port: entry.port.get(),
            controller_id: entry.controller_id.get(),
            subsystem: Nqn::from_field(&entry.subsystem).ok()?,
            address: text(&entry.address)?,
            service: text(&entry.service)?,
        })
    }
}

/// ASCII, padded with spaces (Base 1.4.2), or with zeros as some do.
fn text<const N: usize>(field: &[u8; N]) -> Option<ArrayString<N>> {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(N);
    let text = core::str::from_utf8(field.get(..end)?).ok()?;
    ArrayString::from(text.trim_end_matches(' ')).ok()
}

/// How far the log page was read.
#[derive(Debug, Default)]
struct DiscoveryRead {
    generation: Option<u64>,
    /// Entries that there are, and entries seen.
    records: u64,
    seen: u64,
    /// All were seen: the header is read once more.
    confirming: bool,
}

/// What the discovery service lists.
#[derive(Debug)]
pub(super) struct Discovery {
    /// What it said last, from the first entry to the last.
    listed: Vec<Discovered>,
    /// What was read of a page that is not read to its end.
    entries: Vec<Discovered>,
    read: DiscoveryRead,
    /// Pages that were.
    reads: u64,
}

impl Discovery {
    /// With room only where the discovery service is asked.
    pub(super) fn new(options: &HostOptions) -> Self {
        let room = if options.is_discovery() { MAX_DISCOVERED } else { 0 };
        let list = || Vec::with_capacity(room);
        Self { listed: list(), entries: list(), read: DiscoveryRead::default(), reads: 0 }
    }

    pub(super) fn listed(&self) -> &[Discovered] {
        &self.listed
    }

    /// Pages that were read to their end.
    pub(super) fn reads(&self) -> u64 {
        self.reads
    }

    /// A session begins: a part of the page may have been read in one that ended.
    pub(super) fn begin(&mut self) {
        self.read = DiscoveryRead::default();
        self.entries.clear();
    }

    /// The next part of the log page.
    pub(super) fn asked(&self) -> Asked {
        let read = &self.read;
        let at_header = read.generation.is_none() || read.confirming;
        let offset = if at_header { 0 } else { (1 + read.seen) * DISCOVERY_ENTRY_BYTES as u64 };
        Asked::log_page(log_page::DISCOVERY, 0, offset)
    }

    /// Takes a part of the page; true where it was the last.
    ///
    /// # Errors
    /// [`HostFailure::Unsupported`] where the page has another format.
    pub(super) fn take(&mut self, bytes: &[u8; IDENTIFY_BYTES]) -> Result<bool, HostFailure> {
        let first = self.read.generation.is_none() || self.read.confirming;
        if first {
            let Ok((header, _)) = DiscoveryHeader::read_from_prefix(bytes) else { return Ok(self.ends()) };
            if header.record_format.get() != 0 {
                return Err(HostFailure::Unsupported("record format 0 of the discovery log page"));
            }
            let generation = header.generation.get();
            if self.read.confirming && self.read.generation == Some(generation) {
                return Ok(self.ends());
            }
            // It changed while it was read, or is read for the first time.
            self.entries.clear();
            self.read = DiscoveryRead {
                generation: Some(generation),
                records: header.records.get().min(MAX_DISCOVERED as u64),
                seen: 0,
                confirming: false,
            };
        }
        for index in usize::from(first)..ENTRIES_PER_READ {
            let entry = bytes.get(index * DISCOVERY_ENTRY_BYTES..).map(DiscoveryEntry::read_from_prefix);
            let (Some(Ok((entry, _))), true) = (entry, self.read.seen < self.read.records) else { break };
            self.read.seen += 1;
            self.entries.extend(Discovered::new(&entry));
        }
        if self.read.seen == self.read.records {
            if first {
                // One read, which is of one generation.
                return Ok(self.ends());
            }
            self.read.confirming = true;
        }
        Ok(false)
    }

    /// All of the page is there.
    fn ends(&mut self) -> bool {
        core::mem::swap(&mut self.listed, &mut self.entries);
        self.entries.clear();
        self.read = DiscoveryRead::default();
        self.reads += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn padding_is_cut_and_what_is_no_text_is_refused() {
        assert_eq!(text(b"10.9.0.1    ").unwrap().as_str(), "10.9.0.1");
        assert_eq!(text(b"4420\0\0\0\0").unwrap().as_str(), "4420");
        assert_eq!(text(b"\xff\xfe"), None);
        assert_eq!(text(b"").unwrap().as_str(), "");
    }
}
