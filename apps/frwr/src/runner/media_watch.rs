//! What the main thread says of the media below namespaces, once for each thing that is wrong with one for good.

use super::{
    lock_line::lock_line,
    medium::{Lives, Measuring, Medium, Ways},
    memory_medium::MemoryMedium,
    namespaces::Identity,
    reservation_file::FileWatch,
};
use crate::output::in_line;
use core::time::Duration;
use frwr_nvmf::{
    controller::Reservations,
    storage::{Backing, Geometry, MediumFault, RbdLock, RbdLockTaken, RbdMedium},
};

/// Between two looks at how large media are. Operations find that one became shorter by themselves; this finds it where there are none,
/// and costs a system call for each medium.
const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// The same of what threads of media with servers tell by words: of locks, and of servers that are gone.
const SERVED_PERIOD: Duration = Duration::from_millis(100);

/// What is known of the lock of an image.
#[derive(Clone, Debug)]
pub(super) struct LockFigures {
    pub(super) namespace: Identity,
    pub(super) lock: RbdLock,
    pub(super) taken: RbdLockTaken,
}

/// The media of all namespaces. Those that are memory are kept, and not looked at: what is said of media below is said of the others.
#[derive(Debug, Default)]
pub(super) struct MediaWatch {
    memories: Vec<(Identity, MemoryMedium)>,
    media: Vec<Watched>,
    /// The file of reservations.
    reservations: Option<FileWatch>,
    next_look: Duration,
}

#[derive(Debug)]
struct Watched {
    namespace: Identity,
    name: String,
    medium: Medium,
    told: Option<MediumFault>,
    /// Losses of its server, and that it is away.
    told_losses: u64,
    told_away: bool,
    /// Whose its lock is.
    told_lock: Option<RbdLock>,
}

impl MediaWatch {
    /// Watches one more, which people know by `name`, or keeps it.
    pub(super) fn add(&mut self, namespace: Identity, name: String, medium: Lives) {
        let medium = match medium {
            Lives::Memory(memory) => return self.memories.push((namespace, memory)),
            Lives::Watched(medium) => medium,
        };
        let told_lock = None;
        self.media.push(Watched { namespace, name, medium, told: None, told_losses: 0, told_away: false, told_lock });
    }

    /// Watches the file of reservations, too, where there is one.
    pub(super) fn add_reservations(&mut self, reservations: Reservations) {
        self.reservations = Some(FileWatch::new(reservations));
    }

    /// That namespace is gone: what is to be closed, which may take a while, and what people know it by.
    pub(super) fn forget(&mut self, namespace: Identity) -> Option<(String, Medium)> {
        self.memories.retain(|(of, _)| *of != namespace);
        let at = self.media.iter().position(|watched| watched.namespace == namespace)?;
        let Watched { name, medium, .. } = self.media.remove(at);
        Some((name, medium))
    }

    /// How so many further cores come to what a namespace lives in; `backing` is that of a file.
    ///
    /// # Errors
    /// It cannot be had by more, and what can be done about that.
    pub(super) fn ways(
        &self,
        namespace: Identity,
        backing: Backing,
        depth: usize,
        cores: usize,
    ) -> Result<Ways, String> {
        if let Some((_, memory)) = self.memories.iter().find(|(of, _)| *of == namespace) {
            return Ok(Ways::Memory(memory.clone()));
        }
        let watched = self.media.iter().find(|watched| watched.namespace == namespace);
        let Watched { name, medium, .. } = watched.ok_or_else(|| "nobody knows what it lives in".to_owned())?;
        medium.ways(backing, depth, cores).map_err(|reason| format!("{name}: {reason}"))
    }

    /// What the medium of a namespace is called, and a look at how large it is, to be finished in front of
    /// [`Self::measured`].
    pub(super) fn measure(&self, namespace: Identity) -> Option<(String, Measuring)> {
        let watched = self.media.iter().find(|watched| watched.namespace == namespace)?;
        Some((watched.name.clone(), watched.medium.measure()?))
    }

    /// What the medium of a namespace is called, and what is wrong with it for good; `None` where it is memory.
    pub(super) fn find(&self, namespace: Identity) -> Option<(&str, Option<MediumFault>)> {
        let watched = self.media.iter().find(|watched| watched.namespace == namespace)?;
        Some((&watched.name, watched.medium.fault()))
    }

    /// What a namespace lives in is a block device.
    pub(super) fn is_device(&self, namespace: Identity) -> bool {
        self.media.iter().any(|watched| watched.namespace == namespace && watched.medium.is_device())
    }

    /// Namespaces that are served by who has the locks of their images, and whether that is this process.
    pub(super) fn locks(&self) -> impl Iterator<Item = (Identity, bool)> {
        let of = |watched: &Watched| {
            let lock = watched.medium.lock()?;
            Some((watched.namespace, matches!(lock, RbdLock::Owner { .. })))
        };
        self.media.iter().filter_map(of)
    }

    /// Each image that is served by who has its lock: whose that is, and how often this process took it.
    pub(super) fn lock_figures(&self) -> Vec<LockFigures> {
        let of = |Watched { namespace, medium, .. }: &Watched| {
            let (lock, taken) = (medium.lock()?, medium.image()?.lock_taken()?);
            Some(LockFigures { namespace: *namespace, lock, taken })
        };
        self.media.iter().filter_map(of).collect()
    }

    /// The image of a namespace that is served by who has its lock, and whose that is.
    pub(super) fn locked(&self, namespace: Identity) -> Option<(&RbdMedium, RbdLock)> {
        let watched = self.media.iter().find(|watched| watched.namespace == namespace)?;
        Some((watched.medium.image()?, watched.medium.lock()?))
    }

    /// What that found; it is looked at as before until [`Self::resized`]. `None` as of [`Self::find`].
    pub(super) fn measured(&mut self, namespace: Identity) -> Option<Result<Geometry, String>> {
        self.find_size(namespace, Medium::measured)
    }

    /// The same by what is known now.
    pub(super) fn looked(&mut self, namespace: Identity) -> Option<Result<Geometry, String>> {
        self.find_size(namespace, Medium::looked)
    }

    fn find_size(
        &mut self,
        namespace: Identity,
        find: fn(&mut Medium) -> Result<Geometry, String>,
    ) -> Option<Result<Geometry, String>> {
        let medium = self.medium_of(namespace)?;
        let before = medium.geometry().blocks();
        Some(find(medium).inspect(|found| {
            // What is no longer there nobody looks for.
            medium.resize(before.min(found.blocks()));
        }))
    }

    /// That namespace has, or shall have, so many blocks.
    pub(super) fn resized(&mut self, namespace: Identity, blocks: u64) {
        if let Some(medium) = self.medium_of(namespace) {
            medium.resize(blocks);
        }
    }

    fn medium_of(&mut self, namespace: Identity) -> Option<&mut Medium> {
        self.media.iter_mut().find(|watched| watched.namespace == namespace).map(|watched| &mut watched.medium)
    }

    /// When the media are looked at next, if there are any.
    pub(super) fn due(&self) -> Option<Duration> {
        (!self.media.is_empty() || self.reservations.is_some()).then_some(self.next_look)
    }

    /// How often something may be news of which nobody else tells: whose a lock is decides where hosts are served.
    pub(super) fn period(&self) -> Option<Duration> {
        self.media.iter().any(|watched| watched.medium.has_server()).then_some(SERVED_PERIOD)
    }

    /// Says what is news; `elapsed` is time since an epoch of the caller's.
    pub(super) fn tell(&mut self, elapsed: Duration, say: &mut dyn FnMut(&str)) {
        let looks = elapsed >= self.next_look;
        if looks {
            self.next_look = elapsed.saturating_add(LOOK_PERIOD);
            self.reservations.iter_mut().for_each(|file| file.tell(say));
        }
        for watched in &mut self.media {
            watched.tell_losses(say);
            watched.tell_lock(say);
            let Watched { name, medium, told, .. } = watched;
            let fault = if looks { medium.look() } else { medium.fault() };
            if fault != *told
                && let Some(fault) = fault
            {
                *told = Some(fault);
                say(&line(name, fault));
            }
        }
    }
}

impl Watched {
    /// Says whose the lock has become.
    fn tell_lock(&mut self, say: &mut dyn FnMut(&str)) {
        let lock = self.medium.lock();
        if lock != self.told_lock
            && let Some(line) = lock.as_ref().and_then(|lock| lock_line(&in_line(&self.name), lock))
        {
            say(&line);
        }
        self.told_lock = lock;
    }

    /// Says that its server is gone, or there again.
    fn tell_losses(&mut self, say: &mut dyn FnMut(&str)) {
        let (away, losses) = self.medium.losses();
        let name = in_line(&self.name);
        if losses > self.told_losses && !self.told_away {
            say(&format!("{name}: its server is gone, or a connection to it; commands wait for another one"));
            self.told_away = true;
        }
        self.told_losses = losses;
        if !away && self.told_away && self.medium.fault().is_none_or(|fault| !ends_everything(fault)) {
            say(&format!("{name}: connected again"));
            self.told_away = false;
        }
    }
}

/// Nothing is done any more, and not only no flush.
const fn ends_everything(fault: MediumFault) -> bool {
    !matches!(fault, MediumFault::Unflushed | MediumFault::Interrupted)
}

fn line(name: &str, fault: MediumFault) -> String {
    let name = in_line(name);
    match fault {
        MediumFault::Shrunk { found, wanted } => format!(
            "{name} has {found} bytes, and its namespace {wanted}: somebody made it shorter; every command to it fails until it is \
             whole and serve is started again"
        ),
        MediumFault::Unflushed => format!(
            "{name}: a flush failed, so what was written before it may be lost; every further one fails until serve is started again"
        ),
        MediumFault::Interrupted => format!(
            "{name}: a connection to its server ended between writes that it had acknowledged and their flush, so they may be lost; \
             every flush fails until serve is started again (x-write-through=1 makes each write durable)"
        ),
        MediumFault::Unanswered => format!(
            "{name}: a connection to its server was given up with writes unanswered, which it may still carry out; every command \
             fails until serve is started again; end that server first"
        ),
        MediumFault::Breach => format!(
            "{name}: its server does not keep to the protocol; every command fails until serve is started again; use another server"
        ),
        MediumFault::Changed => format!(
            "{name}: its server came back with an export that can do less; every command fails until it is as before and serve is \
             started again"
        ),
        MediumFault::Removed => format!(
            "{name} is not there any more: somebody removed it, its pool or its snapshot; every command to its namespace fails; remove \
             the namespace, or put the image back and start serve again"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frwr_nvmf::{
        storage::{FileMedium, FileOptions},
        wire::Nqn,
    };

    fn at(path: &std::path::Path) -> Lives {
        Lives::Watched(Medium::File(FileMedium::open(&FileOptions::new(path)).unwrap()))
    }

    fn name(identifier: u32) -> Identity {
        (Nqn::new("nqn.2026-11.invalid.frwr:a").unwrap(), identifier)
    }

    #[test]
    fn a_medium_that_became_shorter_is_told_once_with_both_sizes_though_nobody_uses_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let mut watch = MediaWatch::default();
        watch.add(name(1), "a\nb".to_owned(), at(file.path()));
        let mut said = |millis| {
            let mut lines = Vec::new();
            watch.tell(Duration::from_millis(millis), &mut |line| lines.push(line.to_owned()));
            lines
        };
        assert!(said(0).is_empty());
        file.as_file().set_len(1000).unwrap();
        assert!(said(999).is_empty(), "it looks once a second");
        let lines = said(1000);
        let [line] = lines.as_slice() else { panic!("{lines:?}") };
        assert!(
            ["1000 bytes", "1048576", "shorter", "started again", "a\\nb"].iter().all(|part| line.contains(part)),
            "{line}"
        );
        // It stays so.
        file.as_file().set_len(1 << 20).unwrap();
        assert!(said(5000).is_empty());
        assert!(watch.media[0].medium.fault().is_some());
    }

    #[test]
    fn a_medium_that_no_namespace_lives_in_any_more_is_watched_no_longer_and_may_be_opened_again() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let open = || FileMedium::open(&FileOptions::new(file.path()));
        let mut watch = MediaWatch::default();
        watch.add(name(1), "one".to_owned(), Lives::Watched(Medium::File(open().unwrap())));
        watch.forget(name(2));
        assert_eq!(watch.media.len(), 1);
        watch.forget(name(1));
        file.as_file().set_len(1000).unwrap();
        watch.tell(Duration::from_secs(2), &mut |line| panic!("{line}"));
        file.as_file().set_len(1 << 20).unwrap();
        assert!(open().is_ok());
    }

    #[test]
    fn what_a_namespace_gave_up_may_be_cut_and_what_it_was_given_may_not() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let mut watch = MediaWatch::default();
        watch.add(name(1), "one".to_owned(), at(file.path()));
        let blocks = (1 << 20) / u64::from(watch.media[0].medium.geometry().block_bytes());
        let measured = |watch: &mut MediaWatch| {
            watch.measure(name(1)).unwrap().1.finish().unwrap();
            watch.measured(name(1)).unwrap().unwrap().blocks()
        };
        assert_eq!(measured(&mut watch), blocks);
        watch.resized(name(1), blocks / 2);
        file.as_file().set_len(1 << 19).unwrap();
        watch.tell(Duration::from_secs(1), &mut |line| panic!("{line}"));
        file.as_file().set_len(1 << 20).unwrap();
        assert_eq!(measured(&mut watch), blocks);
        file.as_file().set_len(1 << 19).unwrap();
        watch.tell(Duration::from_secs(2), &mut |line| panic!("it was measured only: {line}"));
        file.as_file().set_len(1 << 20).unwrap();
        watch.resized(name(1), blocks);
        file.as_file().set_len(1 << 19).unwrap();
        let mut lines = 0;
        watch.tell(Duration::from_secs(3), &mut |_| lines += 1);
        assert_eq!(lines, 1);
        assert!(watch.find(name(1)).unwrap().1.is_some() && watch.find(name(2)).is_none());
    }
}
