//! Images of a Ceph cluster, which tests/run ceph starts: one monitor and one OSD that die, come back and run full, and images that
//! others make longer and shorter, snapshot and remove. One test after the other, since there is one cluster.

use core::time::Duration;
use frwr_nvmf::storage::{
    Completion, CompletionBatch, Cookie, Geometry, MediumFault, Operation, RbdError, RbdLock, RbdLockFrom, RbdMedium,
    ResizeError, Storage as _, StorageError,
};
use frwr_support::storage_harness::{
    BLOCK, Bench, attached,
    ceph::{Cluster, IMAGE_BLOCKS, POOL},
};
use std::sync::{Mutex, MutexGuard, PoisonError};

const BYTES: u64 = IMAGE_BLOCKS * BLOCK as u64;

/// The cluster, for one test at a time.
fn cluster() -> Option<(Cluster, MutexGuard<'static, ()>)> {
    static ONE: Mutex<()> = Mutex::new(());
    let alone = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    Some((Cluster::find()?, alone))
}

fn way(medium: &RbdMedium) -> Bench {
    attached(medium.storage(32).unwrap())
}

/// Waits until something is so.
fn until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        std::thread::yield_now();
    }
}

/// One poll.
fn poll(bench: &mut Bench) -> Vec<Completion> {
    let mut out = CompletionBatch::new();
    bench.storage.poll(Duration::ZERO, &mut out);
    out.into_iter().collect()
}

#[test]
fn an_image_that_grows_gives_its_namespace_more_blocks_when_that_is_asked_for() {
    let Some((cluster, _alone)) = cluster() else { return };
    let image = cluster.image();
    let mut medium = RbdMedium::open(image.options()).unwrap();
    let mut bench = way(&medium);
    assert_eq!(medium.geometry(), Geometry::new(IMAGE_BLOCKS, BLOCK as u32).unwrap());
    image.resize(2 * IMAGE_BLOCKS);
    assert_eq!(medium.measure().unwrap().blocks(), 2 * IMAGE_BLOCKS);
    assert_eq!(bench.read(IMAGE_BLOCKS, 1), Err(StorageError::LbaOutOfRange), "before it was asked for");
    bench.storage.resize(2 * IMAGE_BLOCKS).unwrap();
    bench.write(2 * IMAGE_BLOCKS - 1, 1, 7).unwrap();
    assert_eq!(bench.read(2 * IMAGE_BLOCKS - 1, 1).unwrap(), vec![7; BLOCK]);
    let more = bench.storage.resize(2 * IMAGE_BLOCKS + 1);
    assert_eq!(more, Err(ResizeError::Medium { blocks: 2 * IMAGE_BLOCKS + 1, limit: 2 * IMAGE_BLOCKS }));
    assert_eq!((medium.fault(), bench.storage.statistics().fault), (None, None));
}

#[test]
fn an_image_that_shrinks_below_its_namespace_is_out_of_order_for_good_though_nobody_uses_it() {
    let Some((cluster, _alone)) = cluster() else { return };
    let image = cluster.image();
    let medium = RbdMedium::open(image.options()).unwrap();
    let mut bench = way(&medium);
    bench.write(0, 1, 1).unwrap();
    image.resize(IMAGE_BLOCKS / 2);
    until(|| medium.fault().is_some());
    let fault = Some(MediumFault::Shrunk { found: BYTES / 2, wanted: BYTES });
    assert_eq!(medium.fault(), fault);
    image.resize(IMAGE_BLOCKS);
    assert_eq!(bench.read(0, 1), Err(StorageError::Shrunk));
    assert_eq!(bench.write(0, 1, 1), Err(StorageError::Shrunk));
    assert_eq!(bench.storage.statistics().fault, fault);
    // Who opens it again has what there is.
    drop((bench, medium));
    assert_eq!(way(&RbdMedium::open(image.options()).unwrap()).read(0, 1).unwrap(), vec![1; BLOCK]);
}

#[test]
fn a_snapshot_is_what_was_there_and_nobody_changes_it() {
    let Some((cluster, _alone)) = cluster() else { return };
    let image = cluster.image();
    let medium = RbdMedium::open(image.options()).unwrap();
    let mut bench = way(&medium);
    bench.write(0, 4, 1).unwrap();
    cluster.tool("rbd", &["snap", "create", &format!("{}@then", image.path()), "--no-progress"]);
    bench.write(0, 4, 2).unwrap();
    let options = image.options().snapshot(Some("then".to_owned()));
    let snapshot = RbdMedium::open(options.clone()).unwrap();
    let mut then = way(&snapshot);
    assert!(snapshot.is_read_only() && then.storage.features().read_only);
    assert_eq!((then.read(0, 1).unwrap()[0], bench.read(0, 1).unwrap()[0]), (1, 2));
    assert_eq!(then.write(0, 1, 3), Err(StorageError::ReadOnly));
    assert_eq!(then.run(Operation::Flush), Ok(()));
    // It is as long as the image was.
    image.resize(2 * IMAGE_BLOCKS);
    assert_eq!(snapshot.geometry().blocks(), IMAGE_BLOCKS);
    cluster.tool("rbd", &["snap", "rm", &format!("{}@then", image.path()), "--no-progress"]);
    until(|| snapshot.fault() == Some(MediumFault::Removed));
    assert_eq!(then.read(0, 1), Err(StorageError::Medium));
    assert_eq!(bench.read(0, 1).unwrap()[0], 2);
    let error = RbdMedium::open(options).unwrap_err();
    assert!(matches!(error, RbdError::Open { .. }) && error.to_string().contains("rbd snap ls"), "{error}");
}

#[test]
fn an_image_that_is_removed_is_never_read_as_zeros() {
    let Some((cluster, _alone)) = cluster() else { return };
    let image = cluster.image();
    let medium = RbdMedium::open(image.options()).unwrap();
    let mut bench = way(&medium);
    bench.write(0, 1, 1).unwrap();
    // Ceph's own tool refuses while somebody has it open, so all that it consists of is taken away.
    for object in cluster.tool("rados", &["-p", POOL, "ls"]).lines() {
        if object.starts_with("rbd_") && object != "rbd_directory" && object != "rbd_info" {
            cluster.tool("rados", &["-p", POOL, "rm", object]);
        }
    }
    until(|| medium.fault() == Some(MediumFault::Removed));
    assert_eq!(bench.read(0, 1), Err(StorageError::Medium));
    assert_eq!(bench.write(0, 1, 1), Err(StorageError::Medium));
}

#[test]
fn what_is_not_there_or_has_a_cache_is_refused_with_a_remedy() {
    let Some((cluster, _alone)) = cluster() else { return };
    let image = cluster.image();
    let refused = |options| RbdMedium::open(options).unwrap_err().to_string();
    let absent = refused(frwr_nvmf::storage::RbdOptions::new(POOL, "absent").conf(Some(cluster.conf())));
    assert!(absent.contains("rbd:pool/absent") && absent.contains("rbd ls POOL"), "{absent}");
    let no_pool = refused(frwr_nvmf::storage::RbdOptions::new("none", "a").conf(Some(cluster.conf())));
    assert!(no_pool.contains("ceph osd pool ls"), "{no_pool}");
    let no_conf = refused(image.options().conf(Some("/nonexistent/ceph.conf".into())));
    assert!(no_conf.contains("/nonexistent/ceph.conf") && no_conf.contains("?conf=PATH"), "{no_conf}");
    let blocks = refused(image.options().block_bytes(1000));
    assert!(blocks.contains("power of two"), "{blocks}");
    cluster.tool("rbd", &["config", "image", "set", &image.path(), "rbd_cache", "true"]);
    let cached = refused(image.options());
    assert!(cached.contains("rbd_cache") && cached.contains("rbd config image rm"), "{cached}");
    cluster.tool("rbd", &["config", "image", "rm", &image.path(), "rbd_cache"]);
    let medium = RbdMedium::open(image.options()).unwrap();
    assert!(matches!(medium.storage(0), Err(RbdError::Depth(0))));
}

#[test]
fn an_osd_that_dies_keeps_operations_waiting_and_loses_none() {
    let Some((cluster, _alone)) = cluster() else { return };
    let image = cluster.image();
    let medium = RbdMedium::open(image.options()).unwrap();
    let mut ways = [way(&medium), way(&medium)];
    for round in 1..=2_u8 {
        ways[0].write(0, 16, round).unwrap();
        cluster.daemon("kill-osd");
        for (at, bench) in (0..).zip(&mut ways) {
            bench.buffers.fill(0, BLOCK, round + 10).unwrap();
            for lba in 0..8 {
                let write = Operation::Write { lba: 16 + at * 8 + lba, blocks: 1, buffer: 0 };
                bench.storage.submit(Cookie(lba), write).unwrap();
            }
            bench.storage.flush();
            assert!(poll(bench).is_empty(), "nobody carries it out");
        }
        cluster.daemon("start-osd");
        for bench in &mut ways {
            assert!(bench.completions(8).iter().all(|ended| ended.result.is_ok()));
        }
        // Each way finds what both have written.
        for bench in &mut ways {
            assert_eq!(bench.read(0, 16).unwrap(), vec![round; 16 * BLOCK]);
            assert_eq!(bench.read(16, 16).unwrap(), vec![round + 10; 16 * BLOCK]);
        }
    }
    assert_eq!(medium.fault(), None);
}

#[test]
fn a_full_cluster_is_told_as_full_and_goes_on_when_there_is_room() {
    let Some((cluster, _alone)) = cluster() else { return };
    let image = cluster.image();
    let medium = RbdMedium::open(image.options()).unwrap();
    let mut bench = way(&medium);
    bench.write(0, 4, 1).unwrap();
    cluster.set_full(true);
    // Blocks that were never written, in an object that grows by them.
    until(|| {
        let error = bench.write(40, 1, 2).err().or_else(|| bench.write(80, 1, 2).err());
        let error = error.or_else(|| bench.write(120, 1, 2).err());
        error.inspect(|error| assert_eq!(*error, StorageError::NoSpace)).is_some()
    });
    assert_eq!(bench.read(0, 4).unwrap(), vec![1; 4 * BLOCK]);
    // What it has room for.
    bench.write(0, 4, 3).unwrap();
    assert_eq!(medium.fault(), None);
    cluster.set_full(false);
    until(|| bench.write(120, 1, 4).is_ok());
    assert_eq!((bench.read(120, 1).unwrap(), bench.read(0, 4).unwrap()), (vec![4; BLOCK], vec![3; 4 * BLOCK]));
}

#[test]
fn a_monitor_that_is_gone_is_named_and_ends_no_image_that_is_open() {
    let Some((cluster, _alone)) = cluster() else { return };
    let image = cluster.image();
    let medium = RbdMedium::open(image.options()).unwrap();
    let mut bench = way(&medium);
    bench.write(0, 1, 1).unwrap();
    cluster.daemon("kill-mon");
    bench.write(1, 1, 2).unwrap();
    assert_eq!(bench.read(0, 2).unwrap(), [vec![1; BLOCK], vec![2; BLOCK]].concat());
    // Another configuration is another connection.
    let error = RbdMedium::open(image.options().conf(Some(cluster.impatient_conf()))).unwrap_err();
    assert!(matches!(error, RbdError::Monitors { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("client_mount_timeout") && text.contains("ceph -s"), "{text}");
    cluster.daemon("start-mon");
    bench.write(2, 1, 3).unwrap();
}

/// It has the lock of its image.
fn owns(medium: &RbdMedium) -> bool {
    matches!(medium.lock(), Some(RbdLock::Owner { .. }))
}

#[test]
fn who_has_the_lock_of_an_image_serves_it_and_who_lost_it_writes_nothing_more() {
    let Some((cluster, _alone)) = cluster() else { return };
    let image = cluster.image();
    let open = || RbdMedium::open(image.options().exclusive(true)).unwrap();
    let first = open();
    until(|| owns(&first));
    assert_eq!(first.lock(), Some(RbdLock::Owner { from: RbdLockFrom::Nobody }));
    let second = open();
    let (mut former, mut later) = (way(&first), way(&second));
    former.write(0, 1, 1).unwrap();
    until(|| matches!(second.lock(), Some(RbdLock::Standby { owner: Some(_), trouble: None })));
    // What nobody serves nobody reads, either.
    assert_eq!(later.write(0, 1, 2), Err(StorageError::NotOwner));
    assert_eq!(later.read(0, 1), Err(StorageError::NotOwner));
    // Taken from who lives.
    assert!(second.acquire_lock());
    until(|| owns(&second));
    assert!(matches!(second.lock(), Some(RbdLock::Owner { from: RbdLockFrom::Alive(_) })), "{:?}", second.lock());
    assert_eq!(former.write(0, 1, 3), Err(StorageError::NotOwner));
    assert_eq!(former.read(0, 1), Err(StorageError::NotOwner));
    assert_eq!(later.read(0, 1).unwrap(), vec![1; BLOCK]);
    later.write(0, 1, 4).unwrap();
    // For good, until it is opened again.
    until(|| first.lock() == Some(RbdLock::Lost));
    assert!(!first.acquire_lock() && !first.release_lock());
    drop((former, first));
    let third = open();
    let mut last = way(&third);
    until(|| matches!(third.lock(), Some(RbdLock::Standby { owner: Some(_), .. })));
    // Given back, the other one has it, and is waited for again.
    assert!(second.release_lock());
    assert_eq!(later.write(0, 1, 5), Err(StorageError::NotOwner));
    until(|| owns(&third));
    assert_eq!(
        (third.lock(), last.read(0, 1).unwrap()),
        (Some(RbdLock::Owner { from: RbdLockFrom::Nobody }), vec![4; BLOCK])
    );
    until(|| matches!(second.lock(), Some(RbdLock::Standby { owner: Some(_), .. })));
    // Who closes it has it no longer.
    drop((last, third));
    until(|| owns(&second));
    assert_eq!(later.read(0, 1).unwrap(), vec![4; BLOCK]);
}

#[test]
fn an_image_whose_lock_would_fence_nobody_is_refused() {
    let Some((cluster, _alone)) = cluster() else { return };
    let image = cluster.image();
    let options = || image.options().exclusive(true);
    let refused = |options| RbdMedium::open(options).unwrap_err().to_string();
    let read_only = refused(options().read_only(true));
    assert!(read_only.contains("read_only"), "{read_only}");
    let option = "rbd_blocklist_on_break_lock";
    cluster.tool("rbd", &["config", "image", "set", &image.path(), option, "false"]);
    let unfenced = refused(options());
    assert!(unfenced.contains(option) && unfenced.contains("rbd config image rm"), "{unfenced}");
    cluster.tool("rbd", &["config", "image", "rm", &image.path(), option]);
    cluster.tool("rbd", &["feature", "disable", &image.path(), "fast-diff", "object-map", "exclusive-lock"]);
    let unlocked = refused(options());
    assert!(unlocked.contains("rbd feature enable"), "{unlocked}");
    assert_eq!(RbdMedium::open(image.options()).unwrap().lock(), None);
}
