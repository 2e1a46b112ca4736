//! The attacks, each with what the target has to say of it.

use super::capsules::{
    BLOCK_BYTES, connect, descriptor, enable, event_request, garbage, keyed, read, with_descriptor, write,
};
use super::peer::{Dialed, Peer, World};
use frwr_engine::provider::{Access, Device, QueuePairId, RemoteRange};
use frwr_nvmf::wire::{CompletionQueueEntry, Nqn, RequestPrivateData};
use zerocopy::IntoBytes;

/// Entries of the attacks' queues.
const ENTRIES: u16 = 32;
/// Connect requests of the flood: more than any limit of the target, and than its device tells it at a time.
const FLOOD: usize = 300;
/// How often a host that is there beside them tries to connect.
const FLOOD_ATTEMPTS: usize = 10;
/// A key that nobody has.
const RANDOM_KEY: u32 = 0x5eed_ca5e;
/// Bytes beyond the largest transfer of the target, and within its namespace.
const BEYOND_TRANSFERS: u32 = 4 << 20;
/// Commands that are in flight when their host vanishes, and blocks of each.
const VANISHING: u16 = 16;
const VANISHING_BLOCKS: u32 = 16;

/// One attack.
pub struct Attack<D: Device, W: World> {
    /// Its name; the host's name ends with it where the attack gets as far as to have one.
    pub name: &'static str,
    /// What the target's line of it holds: one of these, divided by `|`.
    pub said: &'static str,
    /// Makes it. An error is an outcome that should not be.
    pub run: fn(&mut Peer<D, W>, &Names) -> Result<(), String>,
}

/// Who attacks what.
#[derive(Clone, Copy, Debug)]
pub struct Names {
    /// The attack's own host.
    pub host: Nqn,
    /// The subsystem that others use.
    pub subsystem: Nqn,
}

impl Names {
    /// For one attack.
    ///
    /// # Errors
    /// The name is none.
    pub fn of(attack: &str, subsystem: Nqn) -> Result<Self, String> {
        let host = Nqn::new(&format!("nqn.2026-11.invalid.hostile:{attack}")).map_err(|error| error.to_string())?;
        Ok(Self { host, subsystem })
    }
}

type Done = Result<(), String>;

/// All of them, in the order in which they are made.
pub fn all<D: Device, W: World>() -> Vec<Attack<D, W>> {
    macro_rules! attacks {
        ($($name:literal, $said:literal, $run:expr;)*) => { vec![$(Attack { name: $name, said: $said, run: $run }),*] };
    }
    attacks![
        "garbage-private-data", "no NVMe over Fabrics private data: another program", |peer, _| rejected(peer, &[&[7, 7], &garbage(54)[..]].concat());
        "record-format", "no NVMe over Fabrics private data: another program", |peer, _| rejected(peer, &request(1, 0, ENTRIES, ENTRIES - 1));
        // A connection manager that fills private data up with zeros makes a queue identifier of it.
        "short-private-data", "no NVMe over Fabrics private data: another program", |peer, _| rejected(peer, &[0, 0, 0xff, 0xff]);
        "unknown-queue", "QID 4095, must be from 0", |peer, _| rejected(peer, &request(0, 4095, ENTRIES, ENTRIES - 1));
        "queue-of-nothing", "no NVMe over Fabrics private data: another program", |peer, _| rejected(peer, &request(0, 0, 0, 0));
        "queue-too-deep", "HSQSIZE 65534, must be from 1", |peer, _| rejected(peer, &request(0, 0, 65535, 65534));
        "too-few-receives", "HRQSIZE 1, must be at least HSQSIZE, which is 31", |peer, _| rejected(peer, &request(0, 0, 1, ENTRIES - 1));
        "silent", "connection ended: no Connect in", silent;
        "no-capsule", "a message of 63 bytes", |peer, _| ended_by(peer, &garbage(63));
        "random-capsule", "before Connect, opcode 0xa7", |peer, _| refused(peer, &[&[0xa7], &garbage(63)[..]].concat());
        "command-before-connect", "before Connect, opcode 0x2", |peer, _| refused(peer, &read(9, 1, keyed(0, BLOCK_BYTES, 0))?);
        "unknown-subsystem", "Connect refused, Connect Invalid Parameters (0x182): no subsystem ", unknown_subsystem;
        "foreign-controller", "Connect Invalid Host (0x184): the controller is another host's|has no controller 1", foreign_controller;
        "oversize-capsule", "hostile:oversize-capsule, queue 0: connection ended: a work request failed", oversize;
        "more-than-the-queue", "more commands than the queue's 4 entries", overrun;
        "identifier-twice", "a second command with identifier 0x0007", identifier_twice;
        "sgl-type", "SGL descriptor 0x5f", |peer, names| refused_read(peer, names, 1, descriptor(0, BLOCK_BYTES, 0x5f));
        "sgl-list-beyond", "hostile:sgl-list-beyond, queue 1: command with opcode 0x02 refused", |peer, names| refused_read(peer, names, 1, descriptor(0, 4096, 0x31));
        "sgl-offset", "opcode 0x01 refused, SGL Offset Invalid (0x016): offset in the capsule 1048576, must be", in_capsule_offset;
        "sgl-in-capsule-length", "opcode 0x01 refused, Data SGL Length Invalid (0x00f): bytes of data", in_capsule_length;
        "length-of-zero", "bytes of data 0, must be", |peer, names| refused_read(peer, names, 1, descriptor(0, 0, 0x40));
        "beyond-transfers", "refused, Invalid Field in Command (0x002): bytes of data 4194304, must be from 0 to", |peer, names| refused_read(peer, names, BEYOND_TRANSFERS / BLOCK_BYTES, descriptor(0, 0, 0x40));
        "address-wraps", "hostile:address-wraps, queue 1: connection ended: a work request failed", |peer, names| bad_key(peer, names, RemoteRange { address: u64::MAX - 100, key: RANDOM_KEY });
        "key-of-zero", "hostile:key-of-zero, queue 1: connection ended: a work request failed", |peer, names| bad_key(peer, names, RemoteRange { address: 4096, key: 0 });
        "random-key", "hostile:random-key, queue 1: connection ended: a work request failed", |peer, names| bad_key(peer, names, RemoteRange { address: 4096, key: RANDOM_KEY });
        "key-of-another-connection", "hostile:key-of-another-connection, queue 1: connection ended: a work request failed", key_of_another;
        "beyond-the-key", "hostile:beyond-the-key, queue 1: connection ended: a work request failed", beyond_the_key;
        "invalidates-our-key", "hostile:invalidates-our-key, queue 0: connection ended: ", invalidates;
        "writes-to-our-memory", "hostile:writes-to-our-memory, queue 0: connection ended: a work request failed", writes;
        "vanishes", "hostile:vanishes, queue 1: the peer ended its connection with|hostile:vanishes, queue 1: connection ended: a work request failed", vanishes;
        "flood", "connection ended to make room for others: no Connect in|connect request rejected, no resources|connection ended: no Connect in", flood;
    ]
}

fn request(format: u16, queue_id: u16, receives: u16, last: u16) -> Vec<u8> {
    let mut record = RequestPrivateData::new(queue_id, ENTRIES);
    record.record_format = format.into();
    record.host_receive_queue = receives.into();
    record.host_send_queue = last.into();
    record.as_bytes().to_vec()
}

fn rejected<D: Device, W: World>(peer: &mut Peer<D, W>, private_data: &[u8]) -> Done {
    match peer.dial(private_data)? {
        Dialed::Rejected(_) => Ok(()),
        other => Err(format!("{other:?}, not rejected")),
    }
}

fn up<D: Device, W: World>(peer: &mut Peer<D, W>, queue_id: u16, entries: u16) -> Result<QueuePairId, String> {
    match peer.dial(RequestPrivateData::new(queue_id, entries).as_bytes())? {
        Dialed::Up(queue_pair) => Ok(queue_pair),
        other => Err(format!("{other:?}, not connected")),
    }
}

/// Sends one message and waits for its response.
fn exchange<D: Device, W: World>(
    peer: &mut Peer<D, W>,
    queue_pair: QueuePairId,
    message: &[u8],
) -> Result<CompletionQueueEntry, String> {
    peer.send(queue_pair, &[message])?;
    peer.response_on(queue_pair)
}

fn succeed(response: &CompletionQueueEntry) -> Result<u64, String> {
    if response.status().is_success() {
        Ok(response.result.get())
    } else {
        Err(format!("refused: {}", response.status()))
    }
}

fn fail(response: &CompletionQueueEntry) -> Done {
    if response.status().is_success() { Err("it succeeded".to_owned()) } else { Ok(()) }
}

/// An admin queue of a controller that is enabled, and the controller's identifier.
fn admin<D: Device, W: World>(
    peer: &mut Peer<D, W>,
    names: &Names,
    entries: u16,
) -> Result<(QueuePairId, u16), String> {
    let queue_pair = up(peer, 0, entries)?;
    let connect = connect(0, entries, names.host, names.subsystem, None)?;
    let response = exchange(peer, queue_pair, &connect)?;
    // The lower half is the controller's identifier.
    let id = succeed(&response)? as u16;
    succeed(&exchange(peer, queue_pair, &enable()?)?)?;
    Ok((queue_pair, id))
}

/// The same with an I/O queue.
fn io<D: Device, W: World>(peer: &mut Peer<D, W>, names: &Names) -> Result<(QueuePairId, QueuePairId), String> {
    let (admin, id) = admin(peer, names, ENTRIES)?;
    let io = up(peer, 1, ENTRIES)?;
    let response = exchange(peer, io, &connect(1, ENTRIES, names.host, names.subsystem, Some(id))?)?;
    succeed(&response)?;
    Ok((admin, io))
}

fn silent<D: Device, W: World>(peer: &mut Peer<D, W>, _: &Names) -> Done {
    let queue_pair = up(peer, 0, ENTRIES)?;
    peer.until_ended(queue_pair)
}

fn ended_by<D: Device, W: World>(peer: &mut Peer<D, W>, message: &[u8]) -> Done {
    let queue_pair = up(peer, 0, ENTRIES)?;
    peer.send(queue_pair, &[message])?;
    peer.until_ended(queue_pair)
}

fn refused<D: Device, W: World>(peer: &mut Peer<D, W>, message: &[u8]) -> Done {
    let queue_pair = up(peer, 0, ENTRIES)?;
    fail(&exchange(peer, queue_pair, message)?)?;
    peer.hang_up(queue_pair)
}

fn unknown_subsystem<D: Device, W: World>(peer: &mut Peer<D, W>, names: &Names) -> Done {
    refused(peer, &connect(0, ENTRIES, names.host, names.host, None)?)
}

/// To the controller of whoever came first.
fn foreign_controller<D: Device, W: World>(peer: &mut Peer<D, W>, names: &Names) -> Done {
    let queue_pair = up(peer, 1, ENTRIES)?;
    let response = exchange(peer, queue_pair, &connect(1, ENTRIES, names.host, names.subsystem, Some(1))?)?;
    fail(&response)?;
    peer.hang_up(queue_pair)
}

fn oversize<D: Device, W: World>(peer: &mut Peer<D, W>, names: &Names) -> Done {
    let (admin, _) = admin(peer, names, ENTRIES)?;
    peer.send(admin, &[&garbage(100_000)])?;
    peer.until_ended(admin)
}

fn overrun<D: Device, W: World>(peer: &mut Peer<D, W>, names: &Names) -> Done {
    let (admin, _) = admin(peer, names, 4)?;
    for id in 10..15 {
        peer.send(admin, &[&event_request(id)])?;
    }
    peer.until_ended(admin)
}

fn identifier_twice<D: Device, W: World>(peer: &mut Peer<D, W>, names: &Names) -> Done {
    let (admin, _) = admin(peer, names, ENTRIES)?;
    let request = event_request(7);
    peer.send(admin, &[&request, &request])?;
    peer.until_ended(admin)
}

/// A read whose data pointer is any descriptor; the queue goes on.
fn refused_read<D: Device, W: World>(peer: &mut Peer<D, W>, names: &Names, blocks: u32, data: [u8; 16]) -> Done {
    let capsule = with_descriptor(read(9, blocks, keyed(0, BLOCK_BYTES, 0))?, data);
    refused_on_io(peer, names, &capsule)
}

fn refused_on_io<D: Device, W: World>(peer: &mut Peer<D, W>, names: &Names, capsule: &[u8]) -> Done {
    let (admin, io) = io(peer, names)?;
    fail(&exchange(peer, io, capsule)?)?;
    peer.hang_up(io)?;
    peer.hang_up(admin)
}

fn in_capsule_offset<D: Device, W: World>(peer: &mut Peer<D, W>, names: &Names) -> Done {
    refused_on_io(
        peer,
        names,
        &with_descriptor(write(9, 1, keyed(0, BLOCK_BYTES, 0))?, descriptor(1 << 20, BLOCK_BYTES, 1)),
    )
}

/// More than is there: nothing follows the command.
fn in_capsule_length<D: Device, W: World>(peer: &mut Peer<D, W>, names: &Names) -> Done {
    refused_on_io(peer, names, &with_descriptor(write(9, 1, keyed(0, BLOCK_BYTES, 0))?, descriptor(0, BLOCK_BYTES, 1)))
}

/// The target is to write to what it has no key for.
fn bad_key<D: Device, W: World>(peer: &mut Peer<D, W>, names: &Names, remote: RemoteRange) -> Done {
    let (admin, io) = io(peer, names)?;
    bad_write(peer, io, remote, 1)?;
    peer.hang_up(admin)
}

fn bad_write<D: Device, W: World>(peer: &mut Peer<D, W>, io: QueuePairId, remote: RemoteRange, blocks: u32) -> Done {
    peer.send(io, &[&read(9, blocks, keyed(remote.address, blocks * BLOCK_BYTES, remote.key))?])?;
    peer.until_ended(io)
}

/// A key that lives, on a connection of another protection domain.
fn key_of_another<D: Device, W: World>(peer: &mut Peer<D, W>, names: &Names) -> Done {
    let (admin, io) = io(peer, names)?;
    peer.change_domain();
    let other = up(peer, 0, ENTRIES)?;
    let remote = peer.register(other, Access::RemoteWrite, BLOCK_BYTES as usize);
    peer.change_domain();
    bad_write(peer, io, remote?, 1)?;
    peer.hang_up(other)?;
    peer.hang_up(admin)
}

/// Twice the bytes that the key is good for; on devices that forget bounds, with the wrong right.
fn beyond_the_key<D: Device, W: World>(peer: &mut Peer<D, W>, names: &Names) -> Done {
    let (admin, io) = io(peer, names)?;
    let remote = peer.register(io, Access::RemoteRead, BLOCK_BYTES as usize)?;
    bad_write(peer, io, remote, 2)?;
    peer.hang_up(admin)
}

fn invalidates<D: Device, W: World>(peer: &mut Peer<D, W>, names: &Names) -> Done {
    let (admin, _) = admin(peer, names, ENTRIES)?;
    peer.send_invalidating(admin, &[&event_request(7)], Some(RANDOM_KEY))?;
    peer.until_ended(admin)
}

fn writes<D: Device, W: World>(peer: &mut Peer<D, W>, names: &Names) -> Done {
    let (admin, _) = admin(peer, names, ENTRIES)?;
    peer.write_remote(admin, RemoteRange { address: 0x1000, key: RANDOM_KEY })?;
    peer.until_ended(admin)
}

/// In the middle of transfers: the target reads what it is to write.
fn vanishes<D: Device, W: World>(peer: &mut Peer<D, W>, names: &Names) -> Done {
    let (admin, io) = io(peer, names)?;
    let length = VANISHING_BLOCKS * BLOCK_BYTES;
    let remote = peer.register(io, Access::RemoteRead, length as usize)?;
    let commands =
        (0..VANISHING).map(|id| write(100 + id, VANISHING_BLOCKS, keyed(remote.address, length, remote.key)));
    let commands = commands.collect::<Result<Vec<_>, _>>()?;
    let commands: Vec<&[u8]> = commands.iter().map(Vec::as_slice).collect();
    peer.send(io, &commands)?;
    // Behind Connect.
    peer.until_delivered(io, 1 + commands.len())?;
    peer.vanish(io)?;
    peer.hang_up(admin)
}

/// All at once, and none speaks. Who does gets in meanwhile, though from the same address, where connect requests are not more than
/// the control half has in hand.
fn flood<D: Device, W: World>(peer: &mut Peer<D, W>, names: &Names) -> Done {
    let private_data = RequestPrivateData::new(0, ENTRIES);
    let mut begun = Vec::new();
    for _ in 0..FLOOD {
        begun.push(peer.begin_dial(private_data.as_bytes())?);
    }
    let mut attempts = (0..FLOOD_ATTEMPTS).map(|_| admin(peer, names, ENTRIES));
    let (newcomer, _) = attempts.find_map(Result::ok).ok_or("nobody gets in beside a flood")?;
    for queue_pair in begun {
        peer.until("answered", |peer| peer.dialed(queue_pair).is_some())?;
        peer.hang_up(queue_pair)?;
    }
    succeed(&exchange(peer, newcomer, &enable()?)?)?;
    peer.hang_up(newcomer)
}
