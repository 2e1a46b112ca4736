//! An operation as steps of a file: what to ask of the kernel next, and what its answer means. The same for both ways.

use super::super::{Cookie, Operation, StorageError, flushes::Flushing};
use super::{layout::Layout, lock::LockedFile};

/// Times that the kernel may have had no room for a step (EAGAIN, EINTR) until its operation fails.
pub(super) const MAX_REFUSALS: u8 = 16;

/// What zeros are written from where the medium cannot be told to make some.
pub(super) const ZERO_BYTES: u32 = 64 << 10;

/// One request to the kernel. Offsets and lengths are in bytes; buffers are offsets in the attached memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Read {
        at: u64,
        buffer: usize,
        bytes: u32,
    },
    Write {
        at: u64,
        buffer: usize,
        bytes: u32,
    },
    /// As many zeros as there are to write from, and no more than `bytes`.
    WriteZeros {
        at: u64,
        bytes: u32,
    },
    /// Data, and what is needed to find it (fdatasync(2)).
    Sync,
    Fallocate {
        how: Fallocate,
        at: u64,
        bytes: u64,
    },
}

impl Step {
    /// It would make a file that was cut as long as it was, so that nobody could see it.
    pub(super) fn hides_a_cut(self, layout: &Layout) -> bool {
        layout.can_grow()
            && match self {
                Self::Write { at, bytes, .. } | Self::WriteZeros { at, bytes } => {
                    at + u64::from(bytes) >= layout.bytes()
                }
                Self::Read { .. } | Self::Sync | Self::Fallocate { .. } => false,
            }
    }
}

/// Ways of fallocate(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fallocate {
    /// The range reads as zeros.
    ZeroRange,
    /// So it does, and its space is free.
    PunchHole,
}

/// What the medium has not refused so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ways {
    zero_range: bool,
    punch_hole: bool,
}

impl Default for Ways {
    fn default() -> Self {
        Self { zero_range: true, punch_hole: true }
    }
}

impl Ways {
    fn to_zero(self, deallocate: bool) -> Option<Fallocate> {
        match self {
            Self { punch_hole: true, .. } if deallocate => Some(Fallocate::PunchHole),
            Self { zero_range: true, .. } => Some(Fallocate::ZeroRange),
            Self { punch_hole: true, .. } => Some(Fallocate::PunchHole),
            _ => None,
        }
    }

    fn refused(&mut self, how: Fallocate) {
        match how {
            Fallocate::ZeroRange => self.zero_range = false,
            Fallocate::PunchHole => self.punch_hole = false,
        }
    }
}

/// How far fallocate(2) serves an operation that makes zeros or gives space back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// All whole granules of the range.
    Fine,
    /// All whole coarse ones: it has refused the others.
    Coarse,
    /// Not at all: it has refused those too, or something else was wrong.
    Nothing,
}

/// An operation on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    pub(super) cookie: Cookie,
    operation: Operation,
    /// Bytes moved.
    done: u64,
    refusals: u8,
    begun: bool,
    told: Told,
    asked: Option<Step>,
    /// The kernel has it, and it is a flush that others may run beside.
    pub(super) flushing: Option<Flushing>,
}

/// What follows a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Another step.
    Again,
    /// Nothing.
    Over(Result<(), StorageError>),
}

impl Task {
    /// `operation` has passed [`Layout::check`].
    pub(super) fn new(cookie: Cookie, operation: Operation) -> Self {
        Self { cookie, operation, done: 0, refusals: 0, begun: false, told: Told::Fine, asked: None, flushing: None }
    }

    /// Something was asked for.
    pub(super) fn has_begun(&self) -> bool {
        self.begun
    }

    /// It changes blocks.
    pub(super) fn changes(&self) -> bool {
        self.operation.changes()
    }

    /// As [`Operation::changes_any`].
    pub(super) fn changes_any(&self, start: u64, end: u64) -> bool {
        self.operation.changes_any(start, end)
    }

    /// What to ask of the kernel; `None` where nothing is left to ask.
    pub(super) fn next(&mut self, layout: &Layout, ways: Ways) -> Option<Step> {
        let (start, length) = self.extent(layout);
        let (at, left) = (start + self.done, length - self.done.min(length));
        // Checked for transfers; zeros are written in smaller parts.
        let bytes = u32::try_from(left).unwrap_or(u32::MAX);
        let moved = self.done as usize;
        self.begun = true;
        self.asked = match self.operation {
            Operation::Read { buffer, .. } => Some(Step::Read { at, buffer: buffer + moved, bytes }),
            Operation::Write { buffer, .. } => Some(Step::Write { at, buffer: buffer + moved, bytes }),
            Operation::Flush => Some(Step::Sync),
            Operation::WriteZeroes { deallocate, .. } => Some(self.next_zeros(layout, ways.to_zero(deallocate))),
            Operation::Deallocate { .. } => self.next_hole(layout, ways),
            // Refused by the check.
            Operation::CompareAndWrite { .. } => None,
        };
        // A transfer of no bytes has nothing to ask for.
        self.asked.filter(|_| left > 0 || self.operation == Operation::Flush)
    }

    /// First byte and bytes.
    fn extent(&self, layout: &Layout) -> (u64, u64) {
        let block_bytes = u64::from(layout.geometry.block_bytes());
        // Checked: the extent lies in the namespace.
        self.operation.blocks().map_or((0, 0), |(lba, blocks)| (lba * block_bytes, u64::from(blocks) * block_bytes))
    }

    /// The bytes that fallocate(2) is told of, from and to; none where it is not.
    fn told_of(&self, layout: &Layout) -> (u64, u64) {
        let (start, length) = self.extent(layout);
        let granule = match self.told {
            Told::Fine => u64::from(layout.granule),
            Told::Coarse => u64::from(layout.coarse_granule),
            Told::Nothing => return (0, 0),
        };
        let end = start + length;
        // A range that ends with the namespace ends far below 2^64.
        (start.next_multiple_of(granule), end - end % granule)
    }

    /// Zeros: whole granules as the medium makes them, what is in front of them and behind them written.
    fn next_zeros(&self, layout: &Layout, how: Option<Fallocate>) -> Step {
        let (start, length) = self.extent(layout);
        let (from, to) = if how.is_some() { self.told_of(layout) } else { (0, 0) };
        let (at, end) = (start + self.done, start + length);
        match how {
            Some(how) if at == from && from < to => Step::Fallocate { how, at, bytes: to - from },
            _ => {
                let until = if from < to && at < from { from } else { end };
                let bytes = u32::try_from(until.saturating_sub(at)).unwrap_or(u32::MAX);
                Step::WriteZeros { at, bytes: bytes.min(ZERO_BYTES) }
            }
        }
    }

    /// A hint: what is no whole granule, or refused, stays as it is.
    fn next_hole(&self, layout: &Layout, ways: Ways) -> Option<Step> {
        let (from, to) = self.told_of(layout);
        let wanted = ways.punch_hole && from < to;
        wanted.then_some(Step::Fallocate { how: Fallocate::PunchHole, at: from, bytes: to.saturating_sub(from) })
    }

    /// The kernel's answer to the last step: bytes moved, or a negated errno.
    pub(super) fn ended(&mut self, result: i32, layout: &Layout, ways: &mut Ways, file: &LockedFile) -> Progress {
        match self.progress(result, layout, ways) {
            Progress::Over(result) if self.operation == Operation::Flush => {
                let result = if layout.forgets_failed_flushes() { file.health().flushed(result) } else { result };
                // Beside what a flush costs, a look is nothing.
                Progress::Over(if file.is_too_short(layout) { Err(StorageError::Shrunk) } else { result })
            }
            // What is missing below a namespace is told in several ways: nothing to read, or no room to write to.
            Progress::Over(Err(StorageError::Medium | StorageError::NoSpace)) if file.is_too_short(layout) => {
                Progress::Over(Err(StorageError::Shrunk))
            }
            progress => progress,
        }
    }

    fn progress(&mut self, result: i32, layout: &Layout, ways: &mut Ways) -> Progress {
        let Some(step) = self.asked.take() else { return Progress::Over(Err(StorageError::Medium)) };
        if result < 0 {
            return self.failed(-result, step, layout, ways);
        }
        let (_, length) = self.extent(layout);
        let wanted = match step {
            Step::Sync => return Progress::Over(Ok(())),
            Step::Fallocate { bytes, .. } => {
                self.done += bytes;
                let is_over = self.done >= length || matches!(self.operation, Operation::Deallocate { .. });
                return if is_over { Progress::Over(Ok(())) } else { Progress::Again };
            }
            Step::Read { bytes, .. } | Step::Write { bytes, .. } | Step::WriteZeros { bytes, .. } => bytes,
        };
        let moved = result.cast_unsigned().min(wanted);
        let usable = moved - moved % layout.alignment;
        self.done += u64::from(usable);
        match step {
            _ if self.done >= length => Progress::Over(Ok(())),
            // The medium ends before the namespace does: somebody made it smaller.
            Step::Read { .. } if usable < moved => Progress::Over(Err(StorageError::Medium)),
            _ if usable > 0 => Progress::Again,
            // A disk that is full, or a limit of file sizes, may leave room for a part of what can be written at once.
            _ if moved > 0 => Progress::Over(Err(StorageError::NoSpace)),
            _ => Progress::Over(Err(StorageError::Medium)),
        }
    }

    fn failed(&mut self, errno: i32, step: Step, layout: &Layout, ways: &mut Ways) -> Progress {
        if matches!(errno, libc::EAGAIN | libc::EINTR) && self.refusals < MAX_REFUSALS {
            self.refusals += 1;
            return Progress::Again;
        }
        if let Step::Fallocate { how, .. } = step {
            return self.not_told(errno, how, layout, ways);
        }
        Progress::Over(Err(match errno {
            libc::ENOSPC | libc::EDQUOT | libc::EFBIG => StorageError::NoSpace,
            libc::EROFS => StorageError::ReadOnly,
            _ => StorageError::Medium,
        }))
    }

    /// fallocate(2) did not do it, for whatever reason: zeros are written instead, and that says what is wrong if something is; a
    /// hint has had its try.
    fn not_told(&mut self, errno: i32, how: Fallocate, layout: &Layout, ways: &mut Ways) -> Progress {
        match errno {
            // There is no such thing here, or nobody may use it: the other way is asked next, and this one never again.
            libc::EOPNOTSUPP | libc::ENOSYS | libc::ENODEV | libc::EPERM | libc::EACCES | libc::ENOTTY => {
                ways.refused(how)
            }
            // Of this range only.
            libc::EINVAL if self.told == Told::Fine && layout.coarse_granule > layout.granule => {
                self.told = Told::Coarse
            }
            _ => self.told = Told::Nothing,
        }
        Progress::Again
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::Geometry;
    use super::super::{layout::Kind, lock::Sharing};
    use super::*;

    fn layout(kind: Kind, alignment: u32) -> Layout {
        let geometry = Geometry::new(64, 512).unwrap();
        Layout { geometry, kind, alignment, granule: 1, coarse_granule: 4096, read_only: false }
    }

    fn file() -> LockedFile {
        let file = tempfile::tempfile().unwrap();
        file.set_len(64 * 512).unwrap();
        LockedFile::new(file, 0, Sharing::Unlocked).unwrap().0
    }

    /// What the kernel says of flushes in a row, and what each comes to.
    fn flushes(kind: Kind, alignment: u32, answers: [i32; 3]) -> [Progress; 3] {
        let (file, layout) = (file(), layout(kind, alignment));
        answers.map(|answer| {
            let (mut task, mut ways) = (Task::new(Cookie(0), Operation::Flush), Ways::default());
            assert_eq!(task.next(&layout, ways), Some(Step::Sync));
            task.ended(answer, &layout, &mut ways, &file)
        })
    }

    #[test]
    fn no_flush_succeeds_behind_one_that_failed_but_of_a_disk_that_is_asked_directly() {
        let (good, bad) = (Progress::Over(Ok(())), Progress::Over(Err(StorageError::Medium)));
        let full = Progress::Over(Err(StorageError::NoSpace));
        for (kind, alignment) in [(Kind::File, 1), (Kind::File, 512), (Kind::Device, 1)] {
            assert_eq!(flushes(kind, alignment, [0, -libc::EIO, 0]), [good, bad, bad]);
            assert_eq!(flushes(kind, alignment, [-libc::ENOSPC, 0, 0]), [full, bad, bad]);
            assert_eq!(flushes(kind, alignment, [-libc::EINTR, 0, 0]), [Progress::Again, good, good]);
        }
        // It answers for itself.
        assert_eq!(flushes(Kind::Device, 512, [0, -libc::EIO, 0]), [good, bad, good]);
    }

    /// Lets a kernel that answers fallocate(2) with an errno where `refuses` says so carry an operation out; the steps, and how it
    /// ended.
    fn carried_out(
        operation: Operation,
        layout: &Layout,
        ways: &mut Ways,
        refuses: impl Fn(Fallocate, u64, u64) -> Option<i32>,
    ) -> (Vec<Step>, Result<(), StorageError>) {
        let (file, mut task, mut steps) = (file(), Task::new(Cookie(0), operation), Vec::new());
        while let Some(step) = task.next(layout, *ways) {
            steps.push(step);
            assert!(steps.len() < 1000, "{steps:?}");
            let answer = match step {
                Step::Fallocate { how, at, bytes } => refuses(how, at, bytes).map_or(0, |errno| -errno),
                Step::WriteZeros { bytes, .. } => bytes as i32,
                other => panic!("{other:?}"),
            };
            if let Progress::Over(result) = task.ended(answer, layout, ways, &file) {
                return (steps, result);
            }
        }
        (steps, Ok(()))
    }

    /// Ranges that were told or written with success, in order of their places.
    fn zeroed(steps: &[Step], refuses: impl Fn(Fallocate, u64, u64) -> Option<i32>) -> Vec<(u64, u64)> {
        let mut ranges: Vec<_> = steps
            .iter()
            .filter_map(|step| match *step {
                Step::Fallocate { how, at, bytes } if refuses(how, at, bytes).is_none() => Some((at, at + bytes)),
                Step::WriteZeros { at, bytes } => Some((at, at + u64::from(bytes))),
                _ => None,
            })
            .collect();
        ranges.sort_unstable();
        ranges
    }

    #[test]
    fn zeros_are_written_wherever_the_medium_does_not_make_them() {
        let errnos = [
            libc::EINVAL,
            libc::EOPNOTSUPP,
            libc::ENOSYS,
            libc::ENODEV,
            libc::EPERM,
            libc::EACCES,
            libc::EINTR,
            libc::EAGAIN,
            libc::EIO,
            libc::ENOSPC,
            libc::EFBIG,
            libc::ETXTBSY,
            libc::EBUSY,
            libc::ENOMEM,
        ];
        for (granule, coarse_granule) in [(1, 4096), (512, 512), (512, 4096), (4096, 4096), (4096, 65536)] {
            let layout = Layout { granule, coarse_granule, ..layout(Kind::Device, 1) };
            for (lba, blocks) in [(0, 7), (0, 8), (1, 7), (1, 30), (3, 2), (8, 16), (0, 64), (57, 7), (63, 1)] {
                let range = (lba * 512, (lba + u64::from(blocks)) * 512);
                for errno in errnos {
                    let every = |_: Fallocate, _: u64, _: u64| Some(errno);
                    let punch = |how, _: u64, _: u64| (how == Fallocate::PunchHole).then_some(errno);
                    let unaligned = |_: Fallocate, at: u64, bytes: u64| {
                        (!at.is_multiple_of(4096) || !bytes.is_multiple_of(4096)).then_some(errno)
                    };
                    for refuses in [&every as &dyn Fn(Fallocate, u64, u64) -> Option<i32>, &punch, &unaligned] {
                        for deallocate in [false, true] {
                            let operation = Operation::WriteZeroes { lba, blocks, deallocate };
                            let (steps, result) = carried_out(operation, &layout, &mut Ways::default(), refuses);
                            assert_eq!(result, Ok(()), "{steps:?}");
                            let ranges = zeroed(&steps, refuses);
                            let mut at = range.0;
                            for (from, to) in ranges {
                                assert_eq!(from, at, "{errno} {steps:?}");
                                at = to;
                            }
                            assert_eq!(at, range.1, "{errno} {steps:?}");
                        }
                        let hint = Operation::Deallocate { lba, blocks };
                        let (steps, result) = carried_out(hint, &layout, &mut Ways::default(), refuses);
                        assert_eq!(result, Ok(()), "{steps:?}");
                        let inside = |&(from, to): &(u64, u64)| from >= range.0 && to <= range.1;
                        assert!(zeroed(&steps, refuses).iter().all(inside), "{steps:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_aligned_middle_is_made_by_the_medium_and_a_refused_range_is_not_remembered() {
        let layout = layout(Kind::File, 1);
        let unaligned =
            |_, at: u64, bytes: u64| (!at.is_multiple_of(4096) || !bytes.is_multiple_of(4096)).then_some(libc::EINVAL);
        let mut ways = Ways::default();
        let operation = Operation::WriteZeroes { lba: 1, blocks: 30, deallocate: false };
        let (steps, _) = carried_out(operation, &layout, &mut ways, unaligned);
        let how = Fallocate::ZeroRange;
        let [refused, head, middle, tail] = steps[..] else { panic!("{steps:?}") };
        assert_eq!(refused, Step::Fallocate { how, at: 512, bytes: 30 * 512 });
        assert_eq!(head, Step::WriteZeros { at: 512, bytes: 7 * 512 });
        assert_eq!(middle, Step::Fallocate { how, at: 4096, bytes: 2 * 4096 });
        assert_eq!(tail, Step::WriteZeros { at: 3 * 4096, bytes: 7 * 512 });
        // The next one is asked for as if nothing had been.
        let (steps, _) = carried_out(operation, &layout, &mut ways, |_, _, _| None);
        assert_eq!(steps, [refused]);
        // What the medium does not know at all is asked for once.
        let (_, result) = carried_out(operation, &layout, &mut ways, |_, _, _| Some(libc::EPERM));
        assert_eq!(result, Ok(()));
        let (steps, _) = carried_out(operation, &layout, &mut ways, |_, _, _| None);
        assert_eq!(steps, [Step::WriteZeros { at: 512, bytes: 30 * 512 }]);
    }

    #[test]
    fn a_write_that_found_room_for_a_part_only_is_told_as_full() {
        let (file, layout) = (file(), layout(Kind::File, 512));
        let written = |answers: &[i32]| {
            let mut task = Task::new(Cookie(0), Operation::Write { lba: 0, blocks: 8, buffer: 0 });
            let mut progress = Progress::Again;
            for answer in answers {
                assert_eq!(progress, Progress::Again);
                task.next(&layout, Ways::default()).unwrap();
                progress = task.ended(*answer, &layout, &mut Ways::default(), &file);
            }
            progress
        };
        let full = Progress::Over(Err(StorageError::NoSpace));
        assert_eq!(written(&[1100, -libc::EFBIG]), full);
        assert_eq!(written(&[1100, 100]), full);
        assert_eq!(written(&[1024, 3072]), Progress::Over(Ok(())));
        assert_eq!(written(&[1100, 3072]), Progress::Over(Ok(())), "from where it can be written again");
    }
}
