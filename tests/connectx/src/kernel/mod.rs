//! The uverbs interface: commands, objects, firmware commands, events.

mod abi;
mod create;
mod describe;
mod destroy;
mod firmware;
mod modify;

use crate::{
    VIOLATED,
    card::{
        Card,
        context::{AsyncEvent, Refusal},
    },
    files::{self, Kind},
    memory, waiting,
};
use abi::{Attribute, CommandHeader, EventDescription, IoctlHeader, VERBS_IOCTL, command, method};
use std::{
    collections::{BTreeMap, VecDeque},
    os::fd::RawFd,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// An error as the kernel tells it.
pub(crate) type Errno = i32;

/// Events of ibv_get_async_event(3).
const QUEUE_PAIR_FATAL: u32 = 1;
const ACCESS_ERROR: u32 = 3;
const LAST_RECEIVE: u32 = 16;

/// An object of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Object {
    Domain(u32),
    Region {
        key: u32,
        domain: u32,
    },
    Window {
        key: u32,
        domain: u32,
    },
    List {
        key: u32,
        domain: u32,
    },
    CompletionQueue(u32),
    QueuePair {
        number: u32,
        user: u64,
        domain: u32,
        events: u32,
    },
    SharedReceives {
        number: u32,
        user: u64,
        domain: u32,
    },
    /// A page of registers that queue pairs ring.
    Registers {
        page: u32,
    },
}

/// One opening of the card.
#[derive(Debug, Default)]
struct File {
    objects: BTreeMap<u32, Object>,
    handles: u32,
    /// What waits to be read.
    events: VecDeque<EventDescription>,
    /// Where it is read.
    events_descriptor: RawFd,
}

/// What read(2) of events has.
pub(crate) enum Answer {
    /// One of them.
    Event([u8; size_of::<EventDescription>()]),
    /// None waits.
    None,
}

/// The interface, and the card below it.
pub(crate) struct Kernel {
    card: Card,
    files: BTreeMap<RawFd, File>,
    domains: u32,
    pages: u32,
    keys: u8,
}

/// A command with what it carries for the driver.
#[derive(Clone, Copy)]
struct Command<'a> {
    file: RawFd,
    /// Behind the header.
    body: &'a [u8],
    /// Bytes that the program has room for in the answer.
    room: usize,
}

impl Command<'_> {
    /// The command itself.
    fn core<T: FromBytes>(&self) -> Result<T, Errno> {
        T::read_from_prefix(self.body).map(|(core, _)| core).map_err(|_| libc::EINVAL)
    }

    /// The command itself, and what stands for the driver behind it.
    fn with_driver<T: FromBytes, D: FromBytes>(&self) -> Result<(T, D), Errno> {
        let (core, rest) = T::read_from_prefix(self.body).map_err(|_| libc::EINVAL)?;
        let (driver, _) = D::read_from_prefix(rest).map_err(|_| libc::EINVAL)?;
        Ok((core, driver))
    }

    /// Answers it.
    fn answer<T: IntoBytes + Immutable>(&self, response: u64, value: &T) {
        memory::answer(response, self.room, value.as_bytes());
    }
}

impl Kernel {
    pub(crate) fn new() -> Self {
        Self { card: Card::new(), files: BTreeMap::new(), domains: 0, pages: 0, keys: 0 }
    }

    /// A program opens the card.
    pub(crate) fn open(&mut self) -> Result<RawFd, Errno> {
        // SAFETY: a C string.
        let descriptor = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
        if descriptor < 0 {
            return Err(libc::EMFILE);
        }
        self.files.insert(descriptor, File { events_descriptor: -1, ..File::default() });
        Ok(descriptor)
    }

    /// A program closes it: its objects go.
    pub(crate) fn close(&mut self, descriptor: RawFd) {
        let Some(file) = self.files.remove(&descriptor) else { return };
        let all: Vec<_> = file.objects.into_values().collect();
        let is_queue_pair = |object: &&Object| matches!(object, Object::QueuePair { .. });
        for object in all.iter().filter(is_queue_pair).chain(all.iter().filter(|object| !is_queue_pair(object))) {
            let _ = self.forget(*object);
        }
    }

    /// Moves the card.
    pub(crate) fn step(&mut self) -> bool {
        let worked = self.card.step();
        while let Some(event) = self.card.next_event() {
            self.tell(event);
        }
        if let Some(violation) = self.card.take_violations().first() {
            violated(violation);
        }
        worked
    }

    fn tell(&mut self, event: AsyncEvent) {
        let (number, kind) = match event {
            AsyncEvent::QueuePairFatal(number) => (number, QUEUE_PAIR_FATAL),
            AsyncEvent::AccessError(number) => (number, ACCESS_ERROR),
            AsyncEvent::LastReceive(number) => (number, LAST_RECEIVE),
        };
        for file in self.files.values_mut() {
            let of = |object: &Object| match object {
                Object::QueuePair { number: own, user, .. } if *own == number => Some(*user),
                _ => None,
            };
            if let Some(element) = file.objects.values().find_map(of) {
                file.events.push_back(EventDescription { element, kind, reserved: 0 });
                waiting::add(file.events_descriptor);
            }
        }
    }

    /// The next event of a descriptor.
    pub(crate) fn read_event(&mut self, descriptor: RawFd) -> Answer {
        let Some(file) = self.files.values_mut().find(|file| file.events_descriptor == descriptor) else {
            return Answer::None;
        };
        let Some(event) = file.events.pop_front() else { return Answer::None };
        waiting::take(descriptor);
        for object in file.objects.values_mut() {
            if let Object::QueuePair { user, events, .. } = object
                && *user == event.element
            {
                *events += 1;
            }
        }
        let mut bytes = [0; size_of::<EventDescription>()];
        bytes.copy_from_slice(event.as_bytes());
        Answer::Event(bytes)
    }

    /// One command by write(2).
    pub(crate) fn write(&mut self, file: RawFd, bytes: &[u8]) -> Result<(), Errno> {
        let (header, body) = CommandHeader::read_from_prefix(bytes).map_err(|_| libc::EINVAL)?;
        if header.command & command::EXTENDED != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        if usize::from(header.in_words) * 4 != bytes.len() {
            violated(&format!(
                "command {} says {} words and has {} bytes",
                header.command,
                header.in_words,
                bytes.len()
            ));
        }
        let asked = Command { file, body, room: usize::from(header.out_words) * 4 };
        match header.command {
            command::GET_CONTEXT => self.get_context(&asked),
            command::QUERY_DEVICE => self.query_device(&asked),
            command::QUERY_PORT => self.query_port(&asked),
            command::ALLOC_DOMAIN => self.alloc_domain(&asked),
            command::REGISTER_MEMORY => self.register_memory(&asked),
            command::ALLOC_WINDOW => self.alloc_window(&asked),
            command::CREATE_COMPLETION_QUEUE => self.create_completion_queue(&asked),
            command::CREATE_QUEUE_PAIR => self.create_queue_pair(&asked),
            command::QUERY_QUEUE_PAIR => self.query_queue_pair(&asked),
            command::MODIFY_QUEUE_PAIR => self.modify_queue_pair(&asked),
            command::CREATE_SHARED_RECEIVES => self.create_shared_receives(&asked),
            command::DEALLOC_DOMAIN | command::DEREGISTER_MEMORY | command::DEALLOC_WINDOW => {
                self.destroy_plain(&asked)
            }
            command::DESTROY_COMPLETION_QUEUE | command::DESTROY_QUEUE_PAIR | command::DESTROY_SHARED_RECEIVES => {
                self.destroy_queue(&asked)
            }
            _ => Err(libc::EOPNOTSUPP),
        }
    }

    /// One call of ioctl(2): only the driver's own objects; for all others the library falls back to write(2).
    pub(crate) fn ioctl(&mut self, file: RawFd, request: u64, argument: u64) -> Result<(), Errno> {
        if request != VERBS_IOCTL {
            return Err(libc::ENOTTY);
        }
        let header = memory::take::<IoctlHeader>(argument).ok_or(libc::EFAULT)?;
        if !matches!(header.object, method::FIRMWARE_OBJECT | method::REGISTER_OBJECT) {
            return Err(libc::EPROTONOSUPPORT);
        }
        let first = argument + size_of::<IoctlHeader>() as u64;
        let place = |id: u16| {
            let places = (0..u64::from(header.attributes)).map(|at| first + at * size_of::<Attribute>() as u64);
            places
                .filter_map(|place| Some((place, memory::take::<Attribute>(place)?)))
                .find(|(_, found)| found.id == id)
        };
        let (handle_place, handle) = place(method::HANDLE).ok_or(libc::EINVAL)?;
        match (header.object, header.method) {
            (method::REGISTER_OBJECT, method::CREATE) => {
                let out = |id| place(id).map(|(_, found)| found).ok_or(libc::EINVAL);
                let (_, kind) = place(method::REGISTER_KIND).ok_or(libc::EINVAL)?;
                let answers =
                    [out(method::REGISTER_OFFSET)?, out(method::REGISTER_LENGTH)?, out(method::REGISTER_PAGE)?];
                let given = self.create_registers(file, kind.data, &answers)?;
                memory::put(handle_place, &Attribute { data: given.into(), ..handle });
                Ok(())
            }
            (method::FIRMWARE_OBJECT, method::CREATE) => {
                let (_, wanted) = place(method::COMMAND_IN).ok_or(libc::EINVAL)?;
                let (_, answer) = place(method::COMMAND_OUT).ok_or(libc::EINVAL)?;
                let given = self.create_list(file, &memory::bytes(wanted.data, wanted.length.into()), &answer)?;
                memory::put(handle_place, &Attribute { data: given.into(), ..handle });
                Ok(())
            }
            (method::FIRMWARE_OBJECT | method::REGISTER_OBJECT, method::DESTROY) => {
                self.destroy(file, handle.data as u32)
            }
            _ => Err(libc::EPROTONOSUPPORT),
        }
    }

    fn file(&mut self, descriptor: RawFd) -> Result<&mut File, Errno> {
        self.files.get_mut(&descriptor).ok_or(libc::EBADF)
    }

    fn object(&mut self, file: RawFd, handle: u32) -> Result<Object, Errno> {
        self.file(file)?.objects.get(&handle).copied().ok_or(libc::EINVAL)
    }

    fn domain(&mut self, file: RawFd, handle: u32) -> Result<u32, Errno> {
        match self.object(file, handle)? {
            Object::Domain(number) => Ok(number),
            _ => Err(libc::EINVAL),
        }
    }

    /// Gives an object its handle.
    fn add(&mut self, file: RawFd, object: Object) -> Result<u32, Errno> {
        let file = self.file(file)?;
        file.handles += 1;
        file.objects.insert(file.handles, object);
        Ok(file.handles)
    }

    /// Low byte of the next key: they differ, so that one that was cut off is found.
    fn low_byte(&mut self) -> u8 {
        self.keys = self.keys.wrapping_add(0x35);
        self.keys
    }
}

/// What no card or kernel could have understood ends the program: whatever it did next would say nothing.
fn violated(what: &str) -> ! {
    eprintln!("connectx: {what}");
    files::clean_up();
    // SAFETY: ends the process.
    unsafe { libc::_exit(VIOLATED) }
}

/// The error of a card's refusal.
fn refused(refusal: Refusal) -> Errno {
    match refusal {
        Refusal::Unknown | Refusal::Invalid => libc::EINVAL,
        Refusal::Busy => libc::EBUSY,
    }
}

/// Where events of one opening are read.
fn events_descriptor() -> Result<RawFd, Errno> {
    let made = waiting::descriptor()?;
    files::set_kind(made, Some(Kind::Events));
    Ok(made)
}
