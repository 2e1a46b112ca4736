//! What the main thread says of the media below namespaces, once for each thing that is wrong with one for good.

use crate::output::in_line;
use core::time::Duration;
use frwr_nvmf::storage::{FileMedium, MediumFault};

/// Between two looks at how large media are. Operations find that one became shorter by themselves; this finds it where there are none,
/// and costs a system call for each medium.
const LOOK_PERIOD: Duration = Duration::from_secs(1);

/// The media of all namespaces that live in files and block devices.
#[derive(Debug, Default)]
pub(super) struct MediaWatch {
    media: Vec<Watched>,
    next_look: Duration,
}

#[derive(Debug)]
struct Watched {
    name: String,
    medium: FileMedium,
    told: Option<MediumFault>,
}

impl MediaWatch {
    /// Watches one more, which people know by `name`.
    pub(super) fn add(&mut self, name: String, medium: FileMedium) {
        self.media.push(Watched { name, medium, told: None });
    }

    /// No namespace lives in that one any more.
    pub(super) fn forget(&mut self, name: &str) {
        if let Some(at) = self.media.iter().position(|watched| watched.name == name) {
            self.media.remove(at);
        }
    }

    /// Says what is news; `elapsed` is time since an epoch of the caller's.
    pub(super) fn tell(&mut self, elapsed: Duration, say: &mut dyn FnMut(&str)) {
        let looks = elapsed >= self.next_look;
        if looks {
            self.next_look = elapsed.saturating_add(LOOK_PERIOD);
        }
        for Watched { name, medium, told } in &mut self.media {
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frwr_nvmf::storage::FileOptions;

    #[test]
    fn a_medium_that_became_shorter_is_told_once_with_both_sizes_though_nobody_uses_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let mut watch = MediaWatch::default();
        watch.add("a\nb".to_owned(), FileMedium::open(&FileOptions::new(file.path())).unwrap());
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
        watch.add("one".to_owned(), open().unwrap());
        watch.forget("another");
        assert_eq!(watch.media.len(), 1);
        watch.forget("one");
        file.as_file().set_len(1000).unwrap();
        watch.tell(Duration::from_secs(2), &mut |line| panic!("{line}"));
        file.as_file().set_len(1 << 20).unwrap();
        assert!(open().is_ok());
    }
}
