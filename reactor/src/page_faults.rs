//! What memory asked of the kernel: a polled-mode core whose memory is all there has no page faults.

use crate::cpu;

frwr_mempool::statistics! {
    /// Page faults of a thread and of its process, those that memory answered and those that waited for a disk.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize))]
    pub struct PageFaults {
        /// Of the thread that looked.
        pub thread: u64,
        /// Of all threads of the process, those that have ended included.
        pub process: u64,
    }
}

impl PageFaults {
    /// Those of the calling thread and its process so far, in two system calls: for the begin and the end of what is measured.
    /// Differences count (getrusage(2)). `None` where the kernel does not say.
    #[must_use]
    pub fn so_far() -> Option<Self> {
        // The process first at the begin and at the end alike: its count may have one of another thread more or less.
        let process = cpu::page_faults(true)?;
        Some(Self { thread: cpu::page_faults(false)?, process })
    }
}

#[cfg(test)]
mod tests {
    use super::PageFaults;
    use std::hint::black_box;

    /// Pages that nothing else has touched, since they are more than an allocator keeps.
    const PAGES: usize = 4096;
    const PAGE: usize = 4096;

    fn touch(bytes: &mut [u8]) {
        bytes.iter_mut().step_by(PAGE).for_each(|byte| *black_box(byte) = 1);
    }

    #[test]
    fn memory_is_asked_for_once() {
        let mut bytes = vec![0_u8; PAGES * PAGE];
        let begin = PageFaults::so_far().unwrap();
        touch(&mut bytes);
        let first = PageFaults::so_far().unwrap() - begin;
        // Huge pages make fewer.
        assert!(first.thread > 0 && first.process >= first.thread, "{first:?}");
        let begin = PageFaults::so_far().unwrap();
        touch(&mut bytes);
        // Usually none; the kernel may look after single pages meanwhile.
        let again = PageFaults::so_far().unwrap() - begin;
        assert!(again.thread < first.thread, "{again:?} of {first:?}");
    }

    #[test]
    fn another_threads_are_the_processes() {
        let begin = PageFaults::so_far().unwrap();
        let others = std::thread::spawn(|| {
            let begin = PageFaults::so_far().unwrap();
            touch(&mut vec![0_u8; PAGES * PAGE]);
            PageFaults::so_far().unwrap() - begin
        });
        let others = others.join().unwrap();
        let all = PageFaults::so_far().unwrap() - begin;
        assert!(others.thread > 0 && all.process >= others.thread, "{others:?} of {all:?}");
    }
}
