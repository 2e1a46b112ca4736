//! From a part of a request to a command that the engine has, and to bytes in a bounce buffer.

use super::bounce::Bounce;
use super::context::Context;
use super::cut::{Location, fits_capsule, slice, slice_into};
use super::fused;
use super::parts::Part;
use super::path::Path;
use super::requests::{Kind, Request};
use super::transport::Outgoing;
use crate::wire::{
    BlockRange, Command, DATASET_RANGE_BYTES, DataPointer, DatasetManagement, Fuse, KeyedDataBlock, ReservationReport,
    Status, SubmissionQueueEntry, WriteZeroes, opcode,
};
use frwr_engine::gather::Segment;
use frwr_engine::provider::{Access, Port};
use frwr_engine::{Chunk, ConnectionId, SubmitError};
use frwr_mempool::mutant;

/// How a command went out.
pub(super) struct Sent {
    pub(super) in_capsule: bool,
    pub(super) keys: u8,
}

/// Where a command's data lies, and its bytes. What the request does not have so is written to `location`, which is empty.
#[inline(always)]
fn locate<'a>(
    location: &'a mut Location,
    request: &'a Request,
    part: &Part,
    block: u32,
    bounce: &Bounce,
) -> (&'a [Segment], u32) {
    // What moves data has MAX_REQUEST_BYTES at most; zeroes may be written to more blocks than 32 bits count bytes.
    let bytes = match request.kind {
        Kind::Read { .. } | Kind::Write { .. } | Kind::Compare | Kind::CompareAndWrite => part.extent.blocks * block,
        Kind::Deallocate { ranges, .. } => ranges * DATASET_RANGE_BYTES as u32,
        Kind::Reserve { what, .. } => what.data_bytes(),
        Kind::ReservationReport { bytes } => bytes,
        Kind::Flush | Kind::WriteZeroes { .. } => 0,
    };
    match (request.kind, part.extent.bounce) {
        (Kind::Flush | Kind::WriteZeroes { .. }, _) => {}
        (Kind::Deallocate { bounce: buffer, .. } | Kind::Reserve { bounce: buffer, .. }, _) | (_, Some(buffer)) => {
            location.push(bounce.segment(buffer, bytes));
        }
        (_, None) => match request.segments.as_slice() {
            one @ [Segment { length, .. }] if *length == bytes => return (one, bytes),
            all => slice_into(location, all, u64::from(part.first) * u64::from(block), bytes),
        },
    }
    (location, bytes)
}

/// What the controller has to be able to do with the memory.
#[inline(always)]
fn access(kind: &Kind) -> Access {
    match kind {
        // Mutant: more rights than the command needs.
        Kind::Read { .. } if mutant!(host_rights) => Access::RemoteReadWrite,
        Kind::Read { .. } | Kind::ReservationReport { .. } => Access::RemoteWrite,
        _ => Access::RemoteRead,
    }
}

/// What is asked of the controller, as an entry that has no identifier yet.
#[inline(always)]
fn encode(kind: &Kind, fuse: Fuse, range: &BlockRange, can_deallocate: bool) -> Result<SubmissionQueueEntry, Status> {
    let &BlockRange { namespace, lba, blocks, data } = range;
    let command = match *kind {
        Kind::Read { .. } => return range.encode(opcode::READ, 0),
        Kind::Write { .. } => return range.encode(opcode::WRITE, 0),
        Kind::CompareAndWrite if fuse == Fuse::Second => return range.encode(opcode::WRITE, 0),
        Kind::Compare | Kind::CompareAndWrite => return range.encode(opcode::COMPARE, 0),
        Kind::Flush => Command::Flush { namespace },
        Kind::WriteZeroes { deallocate } => {
            let deallocate = deallocate && can_deallocate;
            Command::WriteZeroes(WriteZeroes { namespace, lba, blocks, deallocate })
        }
        Kind::Deallocate { ranges, .. } => {
            Command::DatasetManagement(DatasetManagement { namespace, ranges, deallocate: true, data })
        }
        Kind::Reserve { what, .. } => what.command(namespace, data),
        Kind::ReservationReport { bytes } => {
            let (length, extended) = (bytes.into(), true);
            Command::ReservationReport(ReservationReport { namespace, length, extended, data })
        }
    };
    command.encode(0)
}

/// Hands a slot's command to the engine.
#[inline(always)]
pub(super) fn submit<P: Port>(
    request: &Request,
    (slot, part): (u16, &Part),
    connection: ConnectionId,
    path: &Path<'_>,
    bounce: &Bounce,
    context: &mut Context<P>,
) -> Result<Sent, SubmitError> {
    let kind = &request.kind;
    let mut location = Location::new();
    let (segments, bytes) = locate(&mut location, request, part, path.block, bounce);
    let in_capsule = fits_capsule(kind, segments.len() == 1, bytes, path, context);
    let opens_memory = bytes > 0 && !in_capsule;
    let keys = if opens_memory { part.extent.keys } else { 0 };
    // Of several keys a controller could invalidate one, but SPDK's refuses a list that asks for it.
    let invite = keys == 1
        && context.options.remote_invalidation
        && context.transport.engine().capabilities().remote_invalidation;
    let data = if in_capsule {
        DataPointer::InCapsule { offset: 0, length: bytes }
    } else {
        // The engine asks for address and key to be filled in when it knows them.
        DataPointer::Keyed(KeyedDataBlock { address: 0, length: bytes, key: 0, invalidate: invite })
    };
    let fuse = fused::fuse_of(request, part);
    // The second half is about the same blocks.
    let first = if fuse == Fuse::Second { 0 } else { part.first };
    let (namespace, lba) = (context.options.namespace, request.lba + u64::from(first));
    let range = BlockRange { namespace, lba, blocks: part.extent.blocks, data };
    let mut encoded = encode(kind, fuse, &range, path.limits.zeroes_deallocate);
    // Where it is: it is large.
    let Ok(entry) = &mut encoded else { return Err(SubmitError::MessageLength) };
    if kind.forces_unit_access() {
        *entry = entry.with_force_unit_access(true);
    }
    if fuse != Fuse::None {
        *entry = entry.with_fuse(fuse);
    }
    let chunk = [Chunk { access: access(kind), segments }];
    let outgoing = Outgoing {
        keys,
        invite,
        inline: if in_capsule { segments } else { &[] },
        chunks: if opens_memory { &chunk } else { &[] },
    };
    context.transport.submit(connection, slot, entry, &outgoing)?;
    Ok(Sent { in_capsule, keys })
}

/// Gathers a command's data into its bounce buffer, or scatters it out of there. Returns the bytes copied.
pub(super) fn copy_bounced<P: Port>(
    request: &Request,
    part: &Part,
    gather: bool,
    block: u32,
    bounce: &Bounce,
    context: &Context<P>,
) -> u64 {
    let Some(buffer) = part.extent.bounce else { return 0 };
    if gather == matches!(request.kind, Kind::Read { .. }) || !request.kind.moves_data() {
        return 0;
    }
    let bytes = part.extent.blocks * block;
    let mut at = 0;
    for Segment { memory, offset, length } in slice(&request.segments, u64::from(part.first) * u64::from(block), bytes)
    {
        if let Some(memory) = context.transport.engine().memory(memory) {
            bounce.copy(buffer, at, memory, offset, length as usize, gather);
        }
        at += length as usize;
    }
    bytes.into()
}
