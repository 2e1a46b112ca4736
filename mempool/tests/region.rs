//! Regions: the ladder with and without hugepages, its errors, and blocks that never overlap.
// Miri maps no memory that a program binds and populates.
#![cfg(not(miri))]

use std::io::Write;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use frwr_mempool::region::{Attempt, CarveError, Errno, RegionError, RungError};
use frwr_mempool::{PagePolicy, PageSize, Region, RegionKind, RegionOptions};
use proptest::prelude::*;

/// Says on the true stderr, which the test harness does not capture, that a test could not test.
macro_rules! skipped {
    ($($text:tt)*) => {{
        let reason = format!($($text)*);
        let _ = writeln!(std::io::stderr(), "SKIPPED: {reason}");
    }};
}

const MEBIBYTE: usize = 1 << 20;
const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

/// Whose turn it is: pools are the machine's, and what is mapped of any of them is this process's. One test at a time.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The machine's pool of 2 MiB pages, one test at a time; put back as it was at the end.
struct Pool {
    before: u64,
    _turn: MutexGuard<'static, ()>,
}

impl Pool {
    /// Others of this machine may take or give back pages in between.
    const ATTEMPTS: u32 = 20;

    /// Sets the pool so that exactly `free` pages are neither in use nor promised, or says why that is not possible.
    fn with_free(free: u64) -> Option<Self> {
        let turn = turn();
        let Some(before) = number("nr_hugepages") else {
            skipped!("the kernel has no pool of 2 MiB pages");
            return None;
        };
        let pool = Self { before, _turn: turn };
        let mut found = 0;
        for _ in 0..Self::ATTEMPTS {
            let taken = number("nr_hugepages")? - (number("free_hugepages")? - number("resv_hugepages")?);
            if std::fs::write(format!("{POOL}/nr_hugepages"), (taken + free).to_string()).is_err() {
                skipped!("no right to write {POOL}/nr_hugepages");
                return None;
            }
            found = number("free_hugepages")? - number("resv_hugepages")?;
            if found == free {
                return Some(pool);
            }
        }
        skipped!("{free} free pages of 2 MiB wanted, the kernel made {found}");
        None
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if std::fs::write(format!("{POOL}/nr_hugepages"), self.before.to_string()).is_err() {
            eprintln!("the pool of 2 MiB pages was not put back to {}", self.before);
        }
    }
}

fn number(file: &str) -> Option<u64> {
    std::fs::read_to_string(format!("{POOL}/{file}")).ok()?.trim().parse().ok()
}

/// KiB of hugepages that this process has mapped, whatever others do with the pool.
fn mapped_kibibytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("HugetlbPages:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

fn default_is_two_mebibytes() -> bool {
    std::fs::read_to_string("/proc/meminfo").unwrap().contains("Hugepagesize:       2048 kB")
}

fn exactly(bytes: usize, pages: PageSize) -> RegionOptions {
    RegionOptions::new(bytes).pages(PagePolicy::Exactly(pages))
}

fn plain(bytes: usize) -> Region {
    Region::map(&exactly(bytes, PageSize::Plain)).unwrap()
}

fn base_page_size() -> usize {
    plain(1).len()
}

/// Every byte can be written and read back, and was zero.
fn assert_usable(mut region: Region) {
    let memory = region.carve(region.len(), 8).unwrap().into_device_memory();
    let mut bytes = vec![1; memory.len()];
    memory.read(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 0));
    memory.fill(0, memory.len(), 0x5A).unwrap();
    memory.read(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 0x5A));
}

#[test]
fn explicit_hugepages_are_what_the_kernel_reports() {
    let Some(_pool) = Pool::with_free(2) else { return };
    let region = Region::map(&exactly(3 * MEBIBYTE, PageSize::TwoMebibytes).node(Some(0))).unwrap();
    assert_eq!(region.kind(), RegionKind::Huge { page_size: 2 * MEBIBYTE });
    assert_eq!(region.kind().to_string(), "hugepages 2 MiB");
    assert_eq!((region.len(), region.node()), (4 * MEBIBYTE, Some(0)));
    assert!(region.failed_rungs().is_empty());
    let report = region.page_report().unwrap();
    assert_eq!((report.kernel_page_size, report.absent), (2 * MEBIBYTE, 0));
    match report.all_on(0) {
        Some(placed) => assert!(placed, "{report:?}"),
        None => skipped!("the kernel does not say on which node pages are"),
    }
    assert_eq!(mapped_kibibytes(), Some(4 << 10));
    assert_usable(region);
    assert_eq!(mapped_kibibytes(), Some(0), "pages leaked");
}

#[test]
fn hugepages_of_the_default_size_come_from_the_system() {
    let Some(_pool) = Pool::with_free(1) else { return };
    if !default_is_two_mebibytes() {
        skipped!("the system's default hugepage size is not 2 MiB");
        return;
    }
    let region = Region::map(&exactly(1, PageSize::SystemDefault)).unwrap();
    assert_eq!(region.kind(), RegionKind::HugeDefault { page_size: 2 * MEBIBYTE });
    assert_eq!(region.kind().to_string(), "hugepages 2 MiB, default");
    assert_eq!(region.page_report().unwrap().kernel_page_size, 2 * MEBIBYTE);
    assert_usable(region);
    assert_eq!(mapped_kibibytes(), Some(0), "pages leaked");
}

#[test]
fn the_ladder_begins_with_the_systems_default_and_its_pages_come_back() {
    let Some(_pool) = Pool::with_free(2) else { return };
    if !default_is_two_mebibytes() {
        skipped!("the system's default hugepage size is not 2 MiB");
        return;
    }
    // Each of them has all pages of the pool.
    for _ in 0..3 {
        let mut region = Region::map(&RegionOptions::new(3 * MEBIBYTE).node(Some(0))).unwrap();
        assert_eq!(region.kind(), RegionKind::HugeDefault { page_size: 2 * MEBIBYTE });
        assert_eq!((region.len(), region.node(), region.failed_rungs()), (4 * MEBIBYTE, Some(0), &[][..]));
        let report = region.page_report().unwrap();
        assert_eq!((report.kernel_page_size, report.absent), (2 * MEBIBYTE, 0));
        assert_ne!(report.all_on(0), Some(false), "{report:?}");
        assert_eq!(mapped_kibibytes(), Some(4 << 10));
        // The last part of it keeps it, whoever has that.
        let memory = region.carve(region.len(), 8).unwrap().into_device_memory();
        drop(region);
        memory.fill(0, memory.len(), 0xA5).unwrap();
        assert_eq!(mapped_kibibytes(), Some(4 << 10));
        std::thread::spawn(move || drop(memory)).join().unwrap();
        assert_eq!(mapped_kibibytes(), Some(0), "pages leaked");
    }
}

#[test]
fn a_default_pool_that_is_short_is_told_with_wanted_free_and_remedy() {
    let Some(_pool) = Pool::with_free(1) else { return };
    if !default_is_two_mebibytes() {
        skipped!("the system's default hugepage size is not 2 MiB");
        return;
    }
    let options = exactly(5 * MEBIBYTE, PageSize::SystemDefault);
    let RegionError::NoRung { attempts, .. } = Region::map(&options).unwrap_err() else { panic!("not refused") };
    let RungError::TooFewPages { wanted: 3, free: 1, reserve, path } = &attempts[0].reason else {
        panic!("{attempts:?}")
    };
    assert_eq!(attempts[0].pages, PageSize::SystemDefault);
    std::fs::write(path, reserve.to_string()).unwrap();
    assert_usable(Region::map(&options).unwrap());
}

#[test]
fn a_default_size_that_nobody_tells_is_an_error_with_a_remedy() {
    let text = RungError::NoDefaultSize.to_string();
    assert!(text.contains("/proc/meminfo") && text.contains("mount /proc") && text.contains("ulimit -n"), "{text}");
}

#[test]
fn pages_that_the_kernel_may_add_count_as_there() {
    let Some(_pool) = Pool::with_free(0) else { return };
    const FILE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_overcommit_hugepages";
    let before = std::fs::read_to_string(FILE).unwrap();
    let allow = |pages: u64| std::fs::write(FILE, pages.to_string()).unwrap();
    let _allowed = Reserved(FILE, before);
    allow(number("surplus_hugepages").unwrap() + 2);
    let region = Region::map(&exactly(3 * MEBIBYTE, PageSize::TwoMebibytes)).unwrap();
    assert_eq!(region.page_report().unwrap().kernel_page_size, 2 * MEBIBYTE);
    // No more than are there already; others may give some back meanwhile.
    let mut refused = None;
    for _ in 0..Pool::ATTEMPTS {
        allow(number("surplus_hugepages").unwrap());
        refused = Region::map(&exactly(1, PageSize::TwoMebibytes)).err();
        if refused.is_some() {
            break;
        }
    }
    let text = refused.expect("a page more than allowed").to_string();
    assert!(text.contains("1 page wanted, 0 free"), "no more than may be added: {text}");
    assert_usable(region);
}

#[test]
fn a_limit_of_the_cgroup_is_named_for_hugepages_too() {
    // What mmap says to a limit on reservations, and a population to one on use.
    for reason in [RungError::Map(Errno(libc::ENOMEM)), RungError::Populate { errno: Errno(libc::EFAULT) }] {
        let text = reason.to_string();
        assert!(text.contains("memory.max") && text.contains("hugetlb."), "{text}");
    }
}

/// A number of a pool's file, put back as it was at the end.
struct Reserved(&'static str, String);

impl Drop for Reserved {
    fn drop(&mut self) {
        if std::fs::write(self.0, &self.1).is_err() {
            eprintln!("{} was not put back to {}", self.0, self.1);
        }
    }
}

#[test]
fn hugepages_of_one_gibibyte_by_name() {
    const FILE: &str = "/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages";
    const FREE: &str = "/sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages";
    let _turn = turn();
    let Ok(before) = std::fs::read_to_string(FILE) else {
        return skipped!("the kernel has no pool of 1 GiB pages");
    };
    let is_there = || std::fs::read_to_string(FREE).unwrap().trim() != "0";
    let wanted = before.trim().parse::<u64>().unwrap() + 1;
    let mut reserved = None;
    if !is_there() {
        reserved = Some(Reserved(FILE, before));
        if let Err(error) = std::fs::write(FILE, wanted.to_string()) {
            return skipped!("no page of 1 GiB can be reserved: {error}");
        }
        if !is_there() {
            // So it is on every machine that has been up for long, and nothing is wrong with it.
            println!("ELSEWHERE: the memory of this machine is too scattered for a page of 1 GiB; the guest has one");
            return;
        }
    }
    let region = Region::map(&exactly(1, PageSize::OneGibibyte)).unwrap();
    assert_eq!((region.kind().to_string().as_str(), region.len()), ("hugepages 1 GiB", 1 << 30));
    assert_eq!(region.page_report().unwrap().kernel_page_size, 1 << 30);
    drop((region, reserved));
}

#[test]
fn an_exhausted_pool_is_an_error_with_wanted_free_and_remedy() {
    let Some(pool) = Pool::with_free(1) else { return };
    let total = number("nr_hugepages").unwrap();
    let error = Region::map(&exactly(5 * MEBIBYTE, PageSize::TwoMebibytes)).unwrap_err();
    let text = error.to_string();
    let remedy = format!("echo {} > {POOL}/nr_hugepages", total + 2);
    assert!(text.contains("3 pages wanted, 1 free"), "{text}");
    assert!(text.contains(&remedy), "{text}");
    let RegionError::NoRung { attempts, .. } = error else { panic!("{error:?}") };
    assert!(matches!(
        &attempts[..],
        [Attempt { pages: PageSize::TwoMebibytes, reason: RungError::TooFewPages { wanted: 3, free: 1, .. } }]
    ));
    drop(pool);
}

#[test]
fn the_remedy_for_a_node_names_the_nodes_pool() {
    let Some(_pool) = Pool::with_free(0) else { return };
    let text = Region::map(&exactly(1, PageSize::TwoMebibytes).node(Some(0))).unwrap_err().to_string();
    assert!(text.contains("> /sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages`"), "{text}");
}

#[test]
fn following_the_remedy_helps() {
    let Some(_pool) = Pool::with_free(0) else { return };
    let options = exactly(3 * MEBIBYTE, PageSize::TwoMebibytes);
    let RegionError::NoRung { attempts, .. } = Region::map(&options).unwrap_err() else { panic!("not refused") };
    let RungError::TooFewPages { reserve, path, .. } = &attempts[0].reason else { panic!("{attempts:?}") };
    std::fs::write(path, reserve.to_string()).unwrap();
    assert_usable(Region::map(&options).unwrap());
}

#[test]
fn the_ladder_goes_down_and_records_why() {
    let Some(_pool) = Pool::with_free(0) else { return };
    let options = RegionOptions::new(MEBIBYTE).pages(PagePolicy::Ladder { allow_plain: true });
    let region = Region::map(&options).unwrap();
    let failed: Vec<PageSize> = region.failed_rungs().iter().map(|attempt| attempt.pages).collect();
    let first = if default_is_two_mebibytes() {
        [PageSize::SystemDefault, PageSize::TwoMebibytes]
    } else {
        [PageSize::TwoMebibytes, PageSize::SystemDefault]
    };
    assert_eq!(failed[..2], first);
    match region.kind() {
        RegionKind::Transparent => assert_eq!(region.address() % (2 * MEBIBYTE) as u64, 0),
        RegionKind::Plain => skipped!("no transparent hugepage for so few bytes: {:?}", region.failed_rungs()),
        other => panic!("{other:?} from an empty pool"),
    }
    assert_usable(region);
}

#[test]
fn a_ladder_without_hope_lists_every_rung() {
    let bytes = usize::MAX / 2 - MEBIBYTE;
    let error = Region::map(&RegionOptions::new(bytes)).unwrap_err();
    let text = error.to_string();
    for rung in ["hugepages 2 MiB: ", "hugepages of the default size: ", "transparent hugepages: "] {
        assert!(text.contains(rung), "{text}");
    }
    assert!(!text.contains("plain"), "plain pages were not allowed: {text}");
}

#[test]
fn transparent_regions_are_aligned_and_mostly_huge() {
    let region = match Region::map(&exactly(5 * MEBIBYTE, PageSize::Transparent)) {
        Ok(region) => region,
        Err(error) => return skipped!("{error}"),
    };
    assert_eq!((region.kind(), region.len()), (RegionKind::Transparent, 6 * MEBIBYTE));
    assert_eq!(region.kind().to_string(), "transparent hugepages");
    let report = region.page_report().unwrap();
    assert_eq!(report.absent, 0);
    if report.transparent_bytes != region.len() {
        skipped!("memory is too fragmented: {report:?}");
    }
    assert_usable(region);
}

#[test]
fn plain_pages_only_by_name() {
    let region = plain(1);
    assert_eq!((region.kind(), region.kind().to_string().as_str()), (RegionKind::Plain, "plain pages"));
    let report = region.page_report().unwrap();
    assert_eq!((report.kernel_page_size, report.absent), (region.len(), 0));
    assert_usable(region);
}

#[test]
fn impossible_wishes_are_refused() {
    assert_eq!(Region::map(&RegionOptions::new(0)).unwrap_err(), RegionError::NoBytes);
    for node in [1023, 1024, u32::MAX] {
        let error = Region::map(&exactly(1, PageSize::Plain).node(Some(node))).unwrap_err();
        assert_eq!(error, RegionError::UnknownNode { node });
    }
    for pages in [PageSize::TwoMebibytes, PageSize::OneGibibyte, PageSize::SystemDefault, PageSize::Plain] {
        let error = Region::map(&exactly(usize::MAX, pages)).unwrap_err();
        let RegionError::NoRung { attempts, .. } = error else { panic!("{error:?}") };
        assert!(matches!(attempts[0].reason, RungError::TooLarge { bytes: usize::MAX, .. }), "{attempts:?}");
    }
}

#[test]
fn blocks_keep_the_memory_mapped() {
    let memory = {
        let mut region = plain(100);
        region.carve(100, 8).unwrap().into_device_memory()
    };
    memory.write(0, &[7; 100]).unwrap();
    let mut read = [0; 100];
    memory.read(0, &mut read).unwrap();
    assert_eq!(read, [7; 100]);
}

#[test]
fn owned_memory_of_each_kind_is_a_region_that_outlives_its_own_handle() {
    let mut bytes = vec![7_u8; 3 * 4096];
    bytes.reserve(100);
    let mut mapped = memmap2::MmapMut::map_anon(3 * 4096).unwrap();
    mapped.fill(7);
    let regions = [
        Region::from_owned(bytes),
        Region::from_owned(vec![7_u8; 3 * 4096].into_boxed_slice()),
        Region::from_owned(mapped),
    ];
    for mut region in regions {
        assert_eq!(region.kind(), RegionKind::Foreign);
        assert!(region.len() > 3 * 4096 - 16 && region.len().is_multiple_of(8));
        let memory = region.carve(4096, 4096).unwrap().into_device_memory();
        drop(region);
        let mut read = [0; 4096];
        memory.read(0, &mut read).unwrap();
        assert_eq!(read, [7; 4096]);
        memory.write(4088, b"the last").unwrap();
        memory.read(4088, &mut read[..8]).unwrap();
        assert_eq!(&read[..8], b"the last");
        // It may be dropped by another thread.
        std::thread::spawn(move || drop(memory)).join().unwrap();
    }
    assert_eq!(Region::from_owned(Vec::new()).len(), 0);
}

#[test]
fn foreign_memory_is_kept_alive_and_trimmed_to_words() {
    let owner: Arc<Vec<u64>> = Arc::new(vec![0; 64]);
    let pointer = NonNull::new(owner.as_ptr().cast_mut().cast::<u8>()).unwrap();
    // SAFETY: the vector's bytes live as long as the `Arc`; nobody touches them before the region is gone.
    let mut region = unsafe { Region::from_foreign(pointer.add(3), 500, owner.clone()) };
    assert_eq!((region.kind(), region.len()), (RegionKind::Foreign, 488));
    assert_eq!(region.address(), pointer.as_ptr() as u64 + 8);
    let memory = region.carve(488, 8).unwrap().into_device_memory();
    drop(region);
    assert_eq!(Arc::strong_count(&owner), 2);
    memory.fill(0, 488, 1).unwrap();
    drop(memory);
    assert_eq!(Arc::strong_count(&owner), 1);
}

#[test]
fn bad_alignments_and_too_large_blocks_leave_the_region_unchanged() {
    let mut region = plain(1);
    let len = region.len();
    for align in [0, 3, 65] {
        assert_eq!(region.carve(8, align).unwrap_err(), CarveError::BadAlignment { align });
    }
    for (bytes, align) in [(len + 1, 1), (usize::MAX, 8), (1, 1 << 63)] {
        let expected = CarveError::TooFewBytes { bytes, align, remaining: len };
        assert_eq!(region.carve(bytes, align).unwrap_err(), expected);
    }
    assert_eq!(region.remaining(), len);
    assert_eq!(region.carve(len, base_page_size()).unwrap().len(), len);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn blocks_never_overlap_or_share_a_cache_line(wishes in prop::collection::vec((0..3000_usize, 0..10_u32), 1..60)) {
        let mut region = plain(16 * 4096);
        let (first, end) = (region.address(), region.address() + region.len() as u64);
        let mut last_line = None;
        for (bytes, shift) in wishes {
            let align = 1 << shift;
            let before = region.remaining();
            match region.carve(bytes, align) {
                Ok(block) => {
                    prop_assert_eq!(block.len(), bytes);
                    prop_assert_eq!(block.address() % align as u64, 0);
                    prop_assert!(block.address() >= first && block.address() + bytes as u64 <= end);
                    if bytes > 0 {
                        prop_assert!(last_line < Some(block.address() / 64));
                        last_line = Some((block.address() + bytes as u64 - 1) / 64);
                    }
                }
                Err(_) => {
                    prop_assert!(bytes + align > before);
                    prop_assert_eq!(region.remaining(), before);
                }
            }
        }
    }
}
