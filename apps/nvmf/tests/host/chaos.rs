//! The host against a controller that does what chance says: whatever it answers, every request ends once, memory is open to it
//! for requests in hand only, and the host can be shut down.

use core::time::Duration;
use frwr_engine::gather::Segment;
use frwr_engine::provider::Port;
use frwr_nvmf::host::HostOptions;
use frwr_nvmf::wire::{AnaState, Command, IdentifyController, Status, log_page};
use frwr_support::Random;
use frwr_support::nvmf_harness::scripted::{Answer, Asked, Controller, Scripted, part};
use frwr_support::nvmf_harness::{BLOCK, PROFILES, host_options};
use std::{cell::RefCell, collections::HashMap, rc::Rc};

const ROUNDS: usize = 3000;

fn options() -> HostOptions {
    let of = Duration::from_millis;
    host_options()
        .queue_depth(8)
        .bounce_buffers(2)
        .keep_alive(of(2000))
        .step_timeout(of(500))
        .command_timeout(of(1000))
        .first_back_off(of(1))
        .longest_back_off(of(20))
        .max_attempts(50)
        .controller_loss_timeout(of(20_000))
        .inaccessible_timeout(of(700))
}

/// What a controller says of itself, other than before.
fn reform(controller: &mut Controller, random: &mut Random) {
    let identify = &mut controller.identify;
    identify.max_data_transfer = random.below(4) as u8;
    identify.max_data_blocks = random.below(9) as u8;
    identify.io_command_capsule = (4 + random.below(10) as u32 * random.below(30) as u32).into();
    identify.in_capsule_data_offset = u16::from(random.below(8) == 0).into();
    identify.optional_commands = (random.below(16) as u16).into();
    identify.multi_path = if random.below(4) > 0 { IdentifyController::REPORTS_ANA } else { 0 };
    identify.events = (random.below(2) as u32 * 0xffff_ffff).into();
    controller.limits.write_zeroes_limit = random.below(3) as u8;
    controller.identify.log_pages = if random.below(2) == 0 { IdentifyController::LOG_OFFSETS } else { 0 };
    // Beyond the first part of a log page, or in it.
    controller.namespace.ana_group = (1 + random.below(3) as u32 * 150).into();
}

/// A correct controller, whose medium is within the host's limits.
fn reform_to_usual(controller: &mut Controller) {
    controller.identify.max_data_transfer = 0;
    controller.identify.multi_path = 0;
    controller.rule = Box::new(|_| None);
}

/// A part of a page that changes all the time, or seldom.
fn ana_page(random: &mut Random, asked: &Asked) -> Option<Answer> {
    let states = [AnaState::Optimized, AnaState::NonOptimized, AnaState::Inaccessible, AnaState::Change];
    let groups = [0, 1, 2, 151, 400][random.below(5) as usize];
    let mut page = vec![random.below(2) as u8, 0, 0, 0, 0, 0, 0, 0];
    page.extend(u64::to_le_bytes(groups));
    for group in 1..=groups as u32 {
        let rare = random.below(40 * groups) == 0;
        let mut descriptor = [0; 32];
        descriptor[..4].copy_from_slice(&group.to_le_bytes());
        descriptor[16] = if rare { AnaState::PersistentLoss } else { states[random.below(4) as usize] } as u8;
        page.extend(descriptor);
    }
    part(&page, asked)
}

fn status(random: &mut Random) -> Status {
    [
        Status::INTERNAL_ERROR,
        Status::ANA_INACCESSIBLE,
        Status::ANA_TRANSITION,
        Status::ANA_PERSISTENT_LOSS,
        Status::COMMAND_ABORT_REQUESTED,
        Status::INVALID_FIELD,
    ][random.below(6) as usize]
}

fn answer(asked: &Asked, random: &mut Random, held: &mut Vec<Asked>) -> Option<Answer> {
    let io = asked.queue_id != 0;
    match (random.below(if io { 12 } else { 40 }), asked.command) {
        (_, Command::Connect(_)) if random.below(10) > 0 => None,
        (_, Command::GetLogPage(get)) if get.page == log_page::ANA && random.below(20) > 0 => ana_page(random, asked),
        (_, Command::AsynchronousEventRequest) => {
            held.push(*asked);
            Some(Answer::Silence)
        }
        (_, Command::PropertyGet(_) | Command::Connect(_)) if random.below(30) > 0 => None,
        (_, Command::Identify(_)) if random.below(30) > 0 => None,
        (_, Command::Identify(_) | Command::PropertyGet(_) | Command::Connect(_)) => Some(Answer::Silence),
        (0..2, _) => {
            held.push(*asked);
            Some(Answer::Silence)
        }
        (2, Command::PropertySet(_)) => None,
        (2, _) => Some(Answer::Status(status(random), random.bits())),
        (3, Command::SetFeatures(_)) => Some(Answer::Status(Status::SUCCESS, random.bits())),
        (3, _) if random.below(20) == 0 => Some(Answer::Silence),
        _ => None,
    }
}

/// A request of as many bytes as it may open.
fn submit(scripted: &mut Scripted, random: &mut Random, cookie: u64) -> Option<u64> {
    let pieces = 1 + random.below(4);
    let part = [BLOCK, BLOCK / 2, BLOCK / 4, 3 * BLOCK][random.below(4) as usize];
    let segment = |at: u64| Segment { length: part, ..scripted.segment(at * 8 + random_block(cookie), 1) };
    let list: Vec<Segment> = (0..pieces).map(segment).collect();
    let bytes = pieces * u64::from(part);
    let (lba, host) = (random.below(200), &mut scripted.lone.host);
    let (taken, bytes) = match random.below(8) {
        0..3 => (host.read(lba, &list, cookie), bytes),
        3..5 => (host.write(lba, &list, cookie), bytes),
        5 => (host.compare(lba, &list, cookie), bytes),
        6 if random.below(2) == 0 => (host.write_zeroes(lba, 50, false, cookie), 0),
        6 => (host.flush_namespace(cookie), 0),
        _ => (host.deallocate(&[(lba, 1), (lba + 1, 1)], cookie), 32),
    };
    taken.is_ok().then_some(bytes)
}

fn random_block(cookie: u64) -> u64 {
    cookie * 7 % 100
}

fn run(profile: &str, seed: u64) -> (u64, u64) {
    let mut random = Random::new(seed);
    let held = Rc::new(RefCell::new(Vec::new()));
    let (theirs, mut chance) = (Rc::clone(&held), Random::new(seed ^ 0xff00));
    let mut scripted = Scripted::new(profile, options(), |controller| {
        controller.rule = Box::new(move |asked| answer(asked, &mut chance, &mut theirs.borrow_mut()));
    });
    let mut open: HashMap<u64, u64> = HashMap::new();
    let (mut ended, mut cookie) = (0, 0);
    for round in 0..ROUNDS {
        if random.below(100) == 0 {
            reform(&mut scripted.controller, &mut random);
        }
        if random.below(300) == 0 {
            scripted.controller.hang_up();
        }
        if random.below(3) == 0 {
            cookie += 1;
            if let Some(bytes) = submit(&mut scripted, &mut random, cookie) {
                open.insert(cookie, bytes);
            }
        }
        if random.below(15) == 0 {
            scripted.lone.host.abort(cookie.saturating_sub(random.below(8)));
        }
        if random.below(6) == 0 && !held.borrow().is_empty() {
            let at = random.below(held.borrow().len() as u64) as usize;
            let asked: Asked = held.borrow_mut().swap_remove(at);
            let result = [0x302, 2, 3, random.bits()][random.below(4) as usize];
            let status = if random.below(6) == 0 { status(&mut random) } else { Status::SUCCESS };
            scripted.controller.answer(&asked, Answer::Status(status, result));
        }
        scripted.tick = Duration::from_micros([1, 1, 10, 1000, 20_000][random.below(5) as usize]);
        scripted.step();
        for completion in scripted.completions.drain(..) {
            assert!(open.remove(&completion.cookie).is_some(), "{profile} {seed} {round}: {completion:?} twice");
            ended += 1;
        }
        let most: u64 = open.values().sum::<u64>() + 2 * 4096;
        let remote = scripted.lone.host.engine().port().remote_bytes_open().unwrap_or(0);
        assert!(remote <= most, "{profile} {seed} {round}: {remote} bytes are open, at most {most} expected");
        if scripted.lone.host.failure().is_some() {
            break;
        }
    }
    scripted.tick = Duration::from_millis(1);
    if seed.is_multiple_of(2) && scripted.lone.host.failure().is_none() {
        // A controller that is correct from now on leaves nothing waiting.
        reform_to_usual(&mut scripted.controller);
        let what = format!("settled, {profile} {seed}");
        scripted.until(&what, |scripted| {
            let host = &scripted.lone.host;
            host.failure().is_some() || host.is_ready() && host.statistics().outstanding == 0
        });
    }
    scripted.lone.host.shut_down();
    let what = format!("stopped, {profile} {seed}");
    scripted.until(&what, |scripted| scripted.lone.host.is_stopped());
    for completion in scripted.completions.drain(..) {
        assert!(open.remove(&completion.cookie).is_some(), "{profile} {seed}: {completion:?} twice");
    }
    assert!(open.is_empty(), "{profile} {seed}: {open:?} never ended");
    let host = &scripted.lone.host;
    assert_eq!((host.statistics().outstanding, host.free_requests()), (0, 8), "{profile} {seed}");
    assert_eq!(host.engine().port().remote_bytes_open().unwrap_or(0), 0, "{profile} {seed}");
    (ended, host.statistics().sessions)
}

/// Seeds: FRWR_SEEDS, or as many as do not take long.
fn runs() -> u64 {
    std::env::var("FRWR_SEEDS").map_or(4, |seeds| seeds.parse().expect("FRWR_SEEDS is a number"))
}

#[test]
fn whatever_a_controller_answers_every_request_ends_once_and_the_host_stops() {
    let runs = runs();
    let (mut ended, mut sessions) = (0, 0);
    for seed in 0..runs {
        for profile in PROFILES {
            let (requests, lived) = run(profile, seed);
            (ended, sessions) = (ended + requests, sessions + lived);
        }
    }
    assert!(ended > runs * 100 && sessions > runs * 10, "{ended} requests in {sessions} sessions");
}
