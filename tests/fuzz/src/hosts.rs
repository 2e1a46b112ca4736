//! A host, beside a controller that answers whatever the bytes say. Each of its requests ends once, and in the end it stops.

use crate::script::Script;
use core::time::Duration;
use frwr_engine::gather::Segment;
use frwr_engine::provider::soft::SoftPort;
use frwr_nvmf::host::{Host, HostOptions};
use frwr_nvmf::wire::{
    AnaGroup, AnaLogHeader, Command, CompletionQueueEntry, DISCOVERY_SUBSYSTEM, DiscoveryEntry, DiscoveryHeader,
    IdentifyController, Nqn, Status, cns, log_page,
};
use frwr_support::nvmf_harness::host_options;
use frwr_support::nvmf_harness::scripted::{Answer, Asked, Scripted};
use std::{cell::RefCell, collections::HashMap, rc::Rc};
use zerocopy::{FromZeros as _, IntoBytes as _};

/// Operations of one input, and answers that are not the usual one.
const OPERATIONS: usize = 48;
const ANSWERS: usize = 64;
/// Steps in which a host whose controller is correct again ends everything.
const STEPS_TO_STOP: usize = 20_000;
/// What passes between two of those: the longest time-out of the host is over in a few of them.
const LAST_TICK: Duration = Duration::from_millis(20);

/// Pages as a correct controller has them, to be changed.
struct Pages {
    controller: Vec<u8>,
    namespace: Vec<u8>,
    limits: Vec<u8>,
    ana: Vec<u8>,
    discovery: Vec<u8>,
}

/// Bytes of the script that say what is answered, and how many answers they may still spoil.
struct Answers {
    bytes: Vec<u8>,
    at: usize,
    left: usize,
    pages: Pages,
}

/// A session to begin with, then operations.
pub(crate) fn host(bytes: &[u8]) {
    let (operations, answers) = bytes.split_at(bytes.len().min(usize::from(*bytes.first().unwrap_or(&0))));
    let mut script = Script::new(operations);
    let _ = script.next::<u8>();
    let kind = script.next::<u8>();
    let mut scripted = Scripted::new(["reg_mr", "rxe"][usize::from(kind & 1)], options(kind), |controller| {
        controller.identify.log_pages = IdentifyController::LOG_OFFSETS;
        controller.identify.multi_path = IdentifyController::REPORTS_ANA & (kind << 1);
        controller.identify.optional_commands = u16::from(kind >> 5).into();
        controller.identify.events = (IdentifyController::ANA_EVENTS | IdentifyController::NAMESPACE_EVENTS).into();
        controller.namespace.ana_group = 1.into();
    });
    let answers =
        Rc::new(RefCell::new(Answers { bytes: answers.to_vec(), at: 0, left: ANSWERS, pages: Pages::new(&scripted) }));
    let rule = Rc::clone(&answers);
    scripted.controller.rule = Box::new(move |asked| rule.borrow_mut().to(asked));
    let mut requests = HashMap::new();
    for _ in 0..OPERATIONS {
        if script.is_over() {
            break;
        }
        operation(&mut scripted, &mut script, &mut requests);
    }
    // Not while the answers are borrowed, which each step takes.
    let steps = usize::from(kind) + answers.borrow().bytes.len();
    scripted.steps(steps);
    answers.borrow_mut().left = 0;
    stop(&mut scripted, &mut requests);
}

fn options(kind: u8) -> HostOptions {
    let short = Duration::from_millis(400);
    host_options()
        .subsystem(if kind & 2 != 0 {
            Nqn::new(DISCOVERY_SUBSYSTEM).expect("a name")
        } else {
            host_options().subsystem
        })
        .queues(1 + u16::from(kind >> 3 & 1))
        .queue_depth(8)
        .step_timeout(short)
        .command_timeout(short)
        .controller_loss_timeout(10 * short)
        .inaccessible_timeout(short)
        .first_back_off(Duration::from_millis(1))
        .longest_back_off(Duration::from_millis(10))
        .max_attempts(4)
}

fn operation(scripted: &mut Scripted, script: &mut Script<'_>, requests: &mut HashMap<u64, bool>) {
    match script.below(10) {
        0..=3 => request(scripted, script, requests),
        4 => drop(scripted.lone.host.abort(script.below(16).into())),
        5 => scripted.controller.hang_up(),
        6 => {
            scripted.tick = Duration::from_millis(script.below(100).into());
            scripted.steps(4);
            scripted.tick = Duration::from_micros(1);
        }
        7 => scripted.controller.accepts_with = script.bytes().iter().copied().take(64).collect(),
        8 => {
            let rejects = script.next::<bool>();
            let data = || script.bytes().iter().copied().take(64).collect();
            scripted.controller.rejects_with = rejects.then(data);
        }
        _ => scripted.steps(script.next::<u8>().into()),
    }
    collect(scripted, requests);
}

fn request(scripted: &mut Scripted, script: &mut Script<'_>, requests: &mut HashMap<u64, bool>) {
    let cookie = requests.len() as u64;
    let (lba, blocks) = (u64::from(script.below(250)), 1 + u32::from(script.below(8)));
    let segments: Vec<Segment> = (0..=script.below(3)).map(|block| scripted.segment(block.into(), blocks)).collect();
    let host: &mut Host<SoftPort> = &mut scripted.lone.host;
    let taken = match script.below(7) {
        0 | 1 => host.read(lba, &segments, cookie),
        2 => host.write(lba, &segments, cookie),
        3 => host.compare(lba, &segments, cookie),
        4 => host.flush_namespace(cookie),
        5 => host.write_zeroes(lba, blocks, script.next(), cookie),
        _ => host.deallocate(&[(lba, blocks)], cookie),
    };
    if taken.is_ok() {
        requests.insert(cookie, false);
    }
}

/// Each request that was taken ends once.
fn collect(scripted: &mut Scripted, requests: &mut HashMap<u64, bool>) {
    for completion in scripted.completions.drain(..) {
        let ended = requests.get_mut(&completion.cookie).expect("a request that was made");
        assert!(!core::mem::replace(ended, true), "request {} ended twice", completion.cookie);
    }
}

fn stop(scripted: &mut Scripted, requests: &mut HashMap<u64, bool>) {
    scripted.controller.rejects_with = None;
    scripted.lone.host.shut_down();
    scripted.tick = LAST_TICK;
    for _ in 0..STEPS_TO_STOP {
        if scripted.lone.host.is_stopped() {
            break;
        }
        scripted.step();
    }
    collect(scripted, requests);
    let host = &scripted.lone.host;
    let (statistics, failures) = (host.statistics(), (host.last_failure(), host.failure()));
    assert!(host.is_stopped(), "never stopped: {failures:?} {statistics:?}");
    assert_eq!(statistics.outstanding, 0);
    assert!(requests.values().all(|ended| *ended), "a request never ended: {failures:?} {statistics:?}");
    assert!(failures.0.is_none_or(|failure| !failure.to_string().is_empty()));
}

impl Pages {
    fn new(scripted: &Scripted) -> Self {
        let controller = &scripted.controller;
        let mut header = AnaLogHeader::new_zeroed();
        header.groups = 1.into();
        let mut group = AnaGroup::new_zeroed();
        (group.group, group.state) = (1.into(), 1);
        let options = host_options();
        let entry = DiscoveryEntry::new(&options.subsystem, 1, options.address, 32);
        Self {
            controller: controller.identify.as_bytes().to_vec(),
            namespace: controller.namespace.as_bytes().to_vec(),
            limits: controller.limits.as_bytes().to_vec(),
            ana: [header.as_bytes(), group.as_bytes()].concat(),
            discovery: [DiscoveryHeader::new(1, 2).as_bytes(), entry.as_bytes(), entry.as_bytes()].concat(),
        }
    }

    /// What a command asks for, from its offset on.
    fn of(&self, command: &Command) -> Vec<u8> {
        let (page, offset) = match command {
            Command::Identify(identify) => match identify.structure {
                cns::CONTROLLER => (&self.controller, 0),
                cns::NAMESPACE => (&self.namespace, 0),
                cns::COMMAND_SET_CONTROLLER => (&self.limits, 0),
                _ => return vec![1, 0, 0, 0],
            },
            Command::GetLogPage(get) if get.page == log_page::ANA => (&self.ana, get.offset),
            Command::GetLogPage(get) if get.page == log_page::DISCOVERY => (&self.discovery, get.offset),
            _ => return Vec::new(),
        };
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        page.get(offset..).unwrap_or_default().to_vec()
    }
}

impl Answers {
    fn to(&mut self, asked: &Asked) -> Option<Answer> {
        let pages = matches!(asked.command, Command::GetLogPage(_));
        if self.left == 0 {
            return pages.then(|| Answer::Data(self.pages.of(&asked.command)));
        }
        self.left -= 1;
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let mut script = Script::new(rest);
        let answer = answer(&mut script, asked, &self.pages);
        self.at += rest.len() - script.left();
        match answer {
            None if pages => Some(Answer::Data(self.pages.of(&asked.command))),
            answer => answer,
        }
    }
}

/// What the script says to a command; `None` for what a correct controller does.
fn answer(script: &mut Script<'_>, asked: &Asked, pages: &Pages) -> Option<Answer> {
    match script.below(12) {
        0..=3 => None,
        4 => Some(Answer::Silence),
        5 => Some(Answer::Status(Status::from_wire(script.next()), script.next())),
        6 => Some(Answer::Status(Status::SUCCESS, script.next())),
        7..=9 => {
            let mut page = pages.of(&asked.command);
            for _ in 0..=script.below(4) {
                let (at, value) = (usize::from(script.next::<u16>()), script.bytes());
                page.resize(page.len().max(64), 0);
                let at = at % page.len();
                page[at..].iter_mut().zip(value).for_each(|(to, from)| *to = *from);
            }
            Some(Answer::Data(page))
        }
        10 => {
            let head = script.next();
            let capsule = CompletionQueueEntry::new(asked.entry.command_id.get(), head, Status::SUCCESS, script.next());
            let mut capsule = capsule.as_bytes().to_vec();
            let at = usize::from(script.below(16));
            capsule[at] ^= script.next::<u8>();
            Some(Answer::Capsule(capsule))
        }
        _ => Some(Answer::Capsule(script.bytes().to_vec())),
    }
}
