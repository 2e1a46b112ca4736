//! `load` and `discover` against controllers that are unusual, each on a thread of its own.

use clap::Parser as _;
use core::time::Duration;
use frwr::report::Report as _;
use frwr::runner::{DiscoverConfig, LoadConfig, RunReport, discover, load};
use frwr::{CommandLine, Task};
use frwr_engine::provider::soft::{SoftDevice, SoftFabric, SoftOptions};
use frwr_nvmf::wire::{AnaState, Command, DiscoveryHeader, IdentifyController, Status};
use frwr_support::nvmf_harness;
use frwr_support::nvmf_harness::scripted::{Answer, Asked, Controller};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use zerocopy::IntoBytes;

/// Steps of a controller in a row that nobody asked anything but to be kept alive, after which a run is stuck.
const PATIENCE: usize = 2_000_000;

fn device(fabric: &SoftFabric) -> SoftDevice {
    fabric.device(SoftOptions::new("reg_mr".parse().unwrap()))
}

/// Does something beside a controller, which lives on a thread of its own: it is `made` what the test wants, and `driven` behind
/// each of its steps, with the number of those in a row in which nobody asked it anything.
fn beside<T>(
    made: impl FnOnce(&mut Controller) + Send,
    driven: impl FnMut(&mut Controller, usize) + Send,
    work: impl FnOnce(SoftDevice, &AtomicBool) -> T,
) -> T {
    let (fabric, stop, over) = (SoftFabric::new(), AtomicBool::new(false), AtomicBool::new(false));
    let (ready, is_ready) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut controller, mut driven) = (Controller::new(&fabric, "reg_mr"), driven);
            made(&mut controller);
            ready.send(()).unwrap();
            let (mut now, mut idle) = (Duration::ZERO, 0);
            while !over.load(Relaxed) {
                let asked = controller.asked.len();
                now += Duration::from_micros(1);
                controller.step(now);
                let news = controller.asked[asked..].iter().any(|asked| asked.command != Command::KeepAlive);
                idle = if news { 0 } else { idle + 1 };
                driven(&mut controller, idle);
                if idle > PATIENCE {
                    stop.store(true, Relaxed);
                }
                thread::yield_now();
            }
        });
        is_ready.recv().unwrap();
        let done = work(device(&fabric), &stop);
        over.store(true, Relaxed);
        done
    })
}

fn loaded(device: SoftDevice, stop: &AtomicBool) -> RunReport {
    let subsystem = nvmf_harness::subsystem();
    let line = ["frwr", "load", "--device", "test", "--pages", "plain", "--cores", "unpinned"];
    let of_load = ["--connect", "127.0.0.1:4420", "--runtime", "0", "--queue-depth", "1", "--subsystem"];
    let line = CommandLine::try_parse_from([&line[..], &of_load, &[subsystem.as_str()]].concat()).unwrap();
    let Some(Task::Load(arguments)) = line.task else { panic!("not load") };
    let report = load(device, &LoadConfig::new(arguments).unwrap(), stop, &mut |_| {});
    report.unwrap_or_else(|error| panic!("{error}"))
}

fn is_read(asked: &Asked) -> bool {
    matches!(asked.command, Command::Read(_))
}

fn is_event(asked: &Asked) -> bool {
    asked.command == Command::AsynchronousEventRequest
}

#[test]
fn a_namespace_that_becomes_smaller_under_a_load_ends_it() {
    let is_identify = |asked: &Asked| matches!(asked.command, Command::Identify(get) if get.structure == 0);
    let mut told = 0;
    let report = beside(
        |controller| {
            controller.identify.events = IdentifyController::NAMESPACE_EVENTS.into();
            let mut reads = 0;
            controller.rule = Box::new(move |asked| {
                reads += u32::from(is_read(asked));
                (is_read(asked) && reads == 8).then_some(Answer::Silence)
            });
        },
        move |controller, _| {
            // The eighth read is answered when the host knows of the size.
            if told == 0
                && controller.count(is_read) == 8
                && let Some(event) = controller.last(is_event)
            {
                controller.namespace.size = 1.into();
                controller.answer(&event, Answer::Status(Status::SUCCESS, 2));
                told = 1;
            } else if told == 1 && controller.count(is_identify) == 2 {
                let read = controller.last(is_read).unwrap();
                controller.answer(&read, Answer::Status(Status::SUCCESS, 0));
                told = 2;
            }
        },
        loaded,
    );
    assert!(!report.interrupted, "it was stuck");
    let caught = report.caught.unwrap();
    assert!(caught.contains("refused") && caught.contains("outside of the namespace"), "{caught}");
}

#[test]
fn what_the_host_reads_for_itself_at_the_end_of_a_load_is_not_left_open() {
    let is_page = |asked: &Asked| matches!(asked.command, Command::GetLogPage(_));
    let open = || {
        let mut page = vec![0; 48];
        (page[8], page[16], page[32]) = (1, 1, AnaState::Optimized as u8);
        Answer::Data(page)
    };
    let mut told = 0;
    let report = beside(
        |controller| {
            controller.namespace.size = 4.into();
            controller.namespace.ana_group = 1.into();
            controller.identify.multi_path = IdentifyController::REPORTS_ANA;
            controller.identify.events = IdentifyController::ANA_EVENTS.into();
            let (mut reads, mut pages) = (0, 0);
            controller.rule = Box::new(move |asked| {
                (reads, pages) = (reads + u32::from(is_read(asked)), pages + u32::from(is_page(asked)));
                if is_page(asked) {
                    return Some(if pages == 2 { Answer::Silence } else { open() });
                }
                (is_read(asked) && reads == 4).then_some(Answer::Silence)
            });
        },
        move |controller, idle| {
            // The last read is answered when the log page is being read, and the log page when the load is over.
            if told == 0
                && controller.count(is_read) == 4
                && let Some(event) = controller.last(is_event)
            {
                controller.answer(&event, Answer::Status(Status::SUCCESS, 0x302));
                told = 1;
            } else if told == 1 && controller.count(is_page) == 2 {
                let read = controller.last(is_read).unwrap();
                controller.answer(&read, Answer::Status(Status::SUCCESS, 0));
                told = 2;
            } else if told == 2 && idle > 20_000 {
                let page = controller.last(is_page).unwrap();
                controller.answer(&page, open());
                told = 3;
            }
        },
        loaded,
    );
    assert_eq!((report.caught.as_deref(), report.remote_bytes_open), (None, Some(0)));
    assert!(report.passed(), "{}", report.table());
}

#[test]
fn discover_asks_for_no_persistent_connection() {
    let found = beside(
        |controller| {
            controller.rule = Box::new(|asked| match asked.command {
                Command::Connect(connect) if connect.keep_alive_timeout != 0 => {
                    Some(Answer::Status(Status::CONNECT_INVALID_PARAMETERS.do_not_retry(), 48))
                }
                Command::GetLogPage(_) => Some(Answer::Data(DiscoveryHeader::new(1, 0).as_bytes().to_vec())),
                _ => None,
            });
        },
        |_, _| {},
        |device, stop| {
            let line = ["frwr", "discover", "--device", "test", "--connect", "127.0.0.1:4420"];
            let Some(Task::Discover(arguments)) = CommandLine::try_parse_from(line).unwrap().task else { panic!() };
            discover(device, &DiscoverConfig::new(arguments).unwrap(), stop, &mut |_| {})
        },
    );
    assert!(found.unwrap_or_else(|error| panic!("{error}")).is_empty());
}
