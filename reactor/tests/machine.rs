//! Core lists, placements and sysfs fixtures: no thread is started here.

use std::fs;
use std::path::Path;

use frwr_reactor::{CORE_LIMIT, CoreList, CoreListError, CpuId, CpuSet, PinError, Placement, PlacementError, Topology};

fn cpu(number: usize) -> CpuId {
    CpuId::new(number).expect("below the limit")
}

fn set(text: &str) -> CpuSet {
    CpuSet::parse_kernel_list(text).expect("a kernel list")
}

/// A made-up /sys that is removed at the end.
struct Fixture(tempfile::TempDir);

impl Fixture {
    fn new(files: &[(&str, &str)]) -> Self {
        let root = tempfile::tempdir().expect("a directory");
        for (path, text) in files {
            let path = root.path().join("devices/system").join(path);
            fs::create_dir_all(path.parent().expect("inside the root")).expect("a directory");
            fs::write(path, text).expect("a file");
        }
        Self(root)
    }

    fn read(&self, allowed: &str) -> Topology {
        Topology::read(self.0.path(), set(allowed))
    }
}

/// Two packages, two cores each, two hardware threads per core; 3 and 7 isolated.
fn server() -> Fixture {
    let mut files = vec![
        ("cpu/online".to_owned(), "0-7\n".to_owned()),
        ("cpu/isolated".to_owned(), "3,7\n".to_owned()),
        ("node/node0/cpulist".to_owned(), "0-1,4-5\n".to_owned()),
        ("node/node1/cpulist".to_owned(), "2-3,6-7\n".to_owned()),
        ("node/has_cpu".to_owned(), "0-1\n".to_owned()),
    ];
    for cpu in 0..8 {
        files.push((format!("cpu/cpu{cpu}/topology/thread_siblings_list"), format!("{},{}\n", cpu % 4, cpu % 4 + 4)));
        files.push((format!("cpu/cpu{cpu}/topology/physical_package_id"), format!("{}\n", cpu % 4 / 2)));
    }
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    Fixture::new(&files)
}

#[test]
fn core_lists_are_read_in_order() {
    let table: &[(&str, &[usize])] = &[
        ("0", &[0]),
        ("0,2-3", &[0, 2, 3]),
        (" 5 , 1 ", &[5, 1]),
        ("7-7", &[7]),
        ("1023", &[1023]),
        ("2-4,0", &[2, 3, 4, 0]),
    ];
    for (text, cores) in table {
        let list: CoreList = text.parse().unwrap();
        assert_eq!(list.cores().iter().map(|core| core.get()).collect::<Vec<_>>(), *cores, "{text}");
        assert_eq!(list.to_string().parse::<CoreList>().unwrap(), list);
    }
}

#[test]
fn bad_core_lists_name_the_part() {
    let bad = |text: &str| text.parse::<CoreList>().unwrap_err();
    let part = |text: &str| CoreListError::NotANumber { part: text.to_owned() };
    assert_eq!(bad(""), CoreListError::Empty);
    assert_eq!(bad("  "), CoreListError::Empty);
    for (text, wrong) in [
        ("0,x", "x"),
        ("0,,1", ""),
        ("1-", "1-"),
        ("-1", "-1"),
        ("+1", "+1"),
        ("0x1", "0x1"),
        ("1-2-3", "1-2-3"),
        ("1,", ""),
    ] {
        assert_eq!(bad(text), part(wrong), "{text}");
    }
    assert_eq!(bad("0,5-2"), CoreListError::Reversed { part: "5-2".to_owned() });
    assert_eq!(bad("0-3,2"), CoreListError::Twice { core: cpu(2), part: "2".to_owned() });
    assert!(matches!(bad("1024"), CoreListError::OutOfRange { .. }));
    assert!(matches!(bad("0-99999999999999999999999"), CoreListError::OutOfRange { .. }));
    assert_eq!(bad("0-100"), CoreListError::TooMany);
    let text = bad("4096").to_string();
    assert!(text.contains("4096") && text.contains("1024") && text.contains("lscpu"), "{text}");
}

#[test]
fn core_numbers_end_below_the_limit() {
    assert_eq!(cpu(CORE_LIMIT - 1).get(), CORE_LIMIT - 1);
    assert!(CpuId::new(CORE_LIMIT).is_err() && CpuId::new(usize::MAX).is_err());
}

#[test]
fn kernel_lists_round_trip_and_nonsense_is_refused() {
    for text in ["0", "0-3", "0-3,8", "1,3,5-6,1023"] {
        assert_eq!(set(&format!("{text}\n")).to_string(), text);
    }
    assert!(set("\n").is_empty() && set("").is_empty());
    assert_eq!(set("1020-5000").len(), 4, "what cannot be pinned is left out");
    for text in ["a", "3-1", "1-2-3", "1;2", "-"] {
        assert_eq!(CpuSet::parse_kernel_list(text), None, "{text}");
    }
}

#[test]
fn topology_tells_nodes_packages_and_siblings() {
    let machine = server().read("0-2,4-6");
    assert_eq!((machine.online(), machine.isolated()), (&set("0-7"), &set("3,7")));
    assert_eq!(machine.allowed(), &set("0-2,4-6"));
    let core = machine.core(cpu(6)).unwrap();
    assert_eq!((core.node, core.package, core.siblings), (Some(1), Some(1), set("2,6")));
    assert_eq!(machine.node_of(cpu(0)), Some(0));
    assert!(machine.are_siblings(cpu(1), cpu(5)) && !machine.are_siblings(cpu(1), cpu(2)));
    assert!(!machine.are_siblings(cpu(1), cpu(1)), "a core is no sibling of itself");
    assert!(machine.may_pin(cpu(3)), "isolated cores are outside the mask, yet a thread may pin itself there");
    assert_eq!(machine.core(cpu(8)), None);
}

#[test]
fn missing_or_broken_sysfs_leaves_things_unknown() {
    let nothing = Topology::read(Path::new("/nonexistent"), set("0,2"));
    assert_eq!((nothing.online(), nothing.isolated().is_empty()), (&set("0,2"), true));
    let core = nothing.core(cpu(2)).unwrap();
    assert_eq!((core.node, core.package, core.siblings), (None, None, set("2")));
    let files = [
        ("cpu/online", "zero\n"),
        ("node/nodeX/cpulist", "0\n"),
        ("node/node0/cpulist", "?"),
        ("cpu/cpu0/topology/physical_package_id", "-1\n"),
    ];
    let broken = Fixture::new(&files).read("0");
    assert_eq!((broken.online(), broken.node_of(cpu(0))), (&set("0"), None));
    assert_eq!(broken.core(cpu(0)).unwrap().package, None);
    assert!(Topology::read(Path::new("/nonexistent"), CpuSet::new()).cores().is_empty());
}

#[test]
fn placements_are_checked_against_the_machine() {
    let machine = server().read("0-2,4");
    let cores = |numbers: &[usize]| Placement::Cores(numbers.iter().map(|&number| cpu(number)).collect());
    let refused = |placement: Placement| placement.resolve(&machine, false).unwrap_err();
    let seats = cores(&[3, 0]).resolve(&machine, false).unwrap();
    assert_eq!(seats.cores(), [Some(cpu(3)), Some(cpu(0))]);
    assert_eq!(refused(cores(&[])), PlacementError::Empty);
    assert_eq!(refused(Placement::Unpinned { reactors: 0 }), PlacementError::Empty);
    assert_eq!(refused(cores(&[0, 1, 0])), PlacementError::Twice { core: cpu(0) });
    assert_eq!(refused(cores(&[0, 4])), PlacementError::Siblings { one: cpu(0), other: cpu(4) });
    assert!(cores(&[0, 4]).resolve(&machine, true).is_ok(), "siblings on demand");
    assert!(matches!(refused(cores(&[9])), PlacementError::Offline { .. }));
    assert!(matches!(refused(cores(&[5])), PlacementError::NotAllowed { .. }));
    assert_eq!(refused(Placement::Unpinned { reactors: 65 }), PlacementError::TooMany { wanted: 65 });
    let text = refused(cores(&[9])).to_string();
    assert!(text.contains("core 9") && text.contains("0-7"), "{text}");
}

#[test]
fn a_thread_that_is_elsewhere_is_told_where() {
    let running = |running| PinError::NotThere { core: cpu(2), mask: Box::new(set("0-3")), running }.to_string();
    let text = running(Some(3));
    assert!(text.contains("core 2: ") && text.contains("mask is 0-3 and it runs on core 3;"), "{text}");
    assert!(!running(None).contains("None"));
}

#[test]
fn spread_takes_what_nobody_occupies_first() {
    let spread = |occupied: &str, reactors| {
        let machine = server().read("0-7").with_occupied(&set(occupied));
        let seats = Placement::Spread { reactors }.resolve(&machine, false).unwrap();
        seats.cores().iter().flatten().map(|core| core.get()).collect::<Vec<_>>()
    };
    assert_eq!(spread("", 4), [3, 0, 1, 2]);
    assert_eq!(spread("3", 4), [0, 1, 2, 3]);
    // The other hardware thread of core 0 is as occupied as that.
    assert_eq!(spread("4", 4), [3, 1, 2, 0]);
    assert_eq!(spread("0-7", 2), [3, 0], "where all are occupied the order is the usual one");
}

#[test]
fn spread_takes_isolated_then_whole_cores() {
    let machine = server().read("0-7");
    let spread = |reactors, siblings| Placement::Spread { reactors }.resolve(&machine, siblings);
    let numbers =
        |seats: frwr_reactor::Seats| seats.cores().iter().flatten().map(|core| core.get()).collect::<Vec<_>>();
    assert_eq!(numbers(spread(4, false).unwrap()), [3, 0, 1, 2]);
    assert_eq!(spread(5, false).unwrap_err(), PlacementError::TooFewCores { wanted: 5, available: 4 });
    assert_eq!(numbers(spread(6, true).unwrap()), [3, 0, 1, 2, 7, 4]);
    assert_eq!(Placement::Unpinned { reactors: 3 }.resolve(&machine, false).unwrap().cores(), [None; 3]);
}
