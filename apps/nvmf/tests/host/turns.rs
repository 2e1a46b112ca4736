//! Commands that wait to be sent again: whose turn it is, what is out of the line, and what becomes of a line that nobody will serve.

use core::time::Duration;
use frwr_engine::gather::Segment;
use frwr_nvmf::host::{HostCompletion, HostFailure, HostOptions, IoError};
use frwr_nvmf::wire::{AnaState, Command, IdentifyController, Status};
use frwr_support::nvmf_harness::scripted::{Answer, Asked, Controller, Scripted};
use frwr_support::nvmf_harness::{BLOCK, host_options};
use std::{cell::Cell, rc::Rc};

const MILLISECOND: Duration = Duration::from_millis(1);
/// One loss makes a command suspected, of which one is in flight at a time.
const SUSPECTED: Option<u16> = Some(1);

fn block_of(asked: &Asked) -> Option<u64> {
    let (Command::Read(range) | Command::Write(range)) = asked.command else { return None };
    Some(range.lba)
}

/// Blocks of the commands that came, in order, from one session on.
fn blocks(scripted: &Scripted, session: u32) -> Vec<u64> {
    scripted.controller.asked.iter().filter(|asked| asked.session >= session).filter_map(block_of).collect()
}

fn times(scripted: &Scripted, block: u64) -> usize {
    scripted.controller.count(|asked| block_of(asked) == Some(block))
}

/// Reads a block, which is also the request's cookie.
fn read(scripted: &mut Scripted, block: u64) {
    let segment = [scripted.segment(0, 1)];
    scripted.lone.host.read(block, &segment, block).unwrap();
}

fn silent(options: HostOptions) -> (Scripted, Rc<Cell<bool>>) {
    silent_of(options, |_| {})
}

/// A session whose controller answers no command of I/O while the switch is on.
fn silent_of(options: HostOptions, prepare: impl FnOnce(&mut Controller)) -> (Scripted, Rc<Cell<bool>>) {
    let silence = Rc::new(Cell::new(true));
    let theirs = Rc::clone(&silence);
    let mut scripted = Scripted::ready("reg_mr", options, |controller| {
        prepare(controller);
        controller.rule = Box::new(move |asked| (block_of(asked).is_some() && theirs.get()).then_some(Answer::Silence));
    });
    scripted.tick = MILLISECOND / 10;
    (scripted, silence)
}

/// Ends the session, and waits for the next one.
fn lose(scripted: &mut Scripted) {
    let failures = scripted.lone.host.statistics().failures;
    scripted.controller.hang_up();
    scripted.until("lost", |scripted| scripted.lone.host.statistics().failures > failures);
    scripted.until("ready", |scripted| scripted.lone.host.is_ready());
    scripted.steps(20);
}

/// All suspects are lost, and one is in flight once more: that one, and those that wait.
fn with_suspects(count: u64, prepare: impl FnOnce(&mut Controller)) -> (Scripted, Rc<Cell<bool>>, u64, Vec<u64>) {
    let (mut scripted, silence) = silent_of(host_options().command_retries(SUSPECTED), prepare);
    (0..count).for_each(|block| read(&mut scripted, block));
    scripted.until("sent", |scripted| blocks(scripted, 1).len() == count as usize);
    lose(&mut scripted);
    let [sent] = blocks(&scripted, 2)[..] else { panic!("one at a time: {:?}", blocks(&scripted, 2)) };
    (scripted, silence, sent, (0..count).filter(|block| *block != sent).collect())
}

/// Answers the last command for a block.
fn answer(scripted: &mut Scripted, block: u64, status: Status) {
    let asked = scripted.controller.last(|asked| block_of(asked) == Some(block)).unwrap();
    scripted.controller.answer(&asked, Answer::Status(status, 0));
}

fn cookies(ended: &[HostCompletion]) -> Vec<u64> {
    ended.iter().map(|ended| ended.cookie).collect()
}

#[test]
fn commands_whose_pauses_end_together_are_sent_in_the_order_in_which_they_were_refused() {
    let mut scripted = Scripted::ready("reg_mr", host_options(), |controller| {
        let mut refusals = 0;
        controller.rule = Box::new(move |asked| {
            refusals += u32::from(block_of(asked).is_some());
            let is_refused = block_of(asked).is_some() && refusals <= 3;
            is_refused.then(|| Answer::Status(Status::from_wire(0x006 << 1), 0))
        });
    });
    scripted.tick = MILLISECOND;
    (0..3).for_each(|block| read(&mut scripted, block));
    scripted.until("all", |scripted| scripted.completions.len() == 3);
    assert_eq!(blocks(&scripted, 1), [0, 1, 2, 0, 1, 2]);
    scripted.finish();
}

/// What a controller that reports ANA states says of the namespace's group while its path is closed.
fn closed() -> Answer {
    let mut page = vec![0; 48];
    (page[8], page[16], page[32]) = (1, 1, AnaState::Inaccessible as u8);
    Answer::Data(page)
}

/// The path is closed when the host asks again, for longer than its requests may wait.
fn closes(scripted: &mut Scripted) {
    scripted.controller.rule = Box::new(|asked| match asked.command {
        Command::GetLogPage(_) => Some(closed()),
        _ if block_of(asked).is_some() => Some(Answer::Silence),
        _ => None,
    });
}

fn reports_ana(controller: &mut Controller) {
    controller.identify.multi_path = IdentifyController::REPORTS_ANA;
    controller.namespace.ana_group = 1.into();
}

#[test]
fn requests_that_wait_in_vain_end_in_the_order_in_which_they_waited() {
    // Commands that were refused for their path.
    let (mut scripted, _) = silent_of(host_options(), reports_ana);
    (0..4).for_each(|block| read(&mut scripted, block));
    scripted.until("sent", |scripted| blocks(scripted, 1).len() == 4);
    closes(&mut scripted);
    (0..4).for_each(|block| answer(&mut scripted, block, Status::ANA_INACCESSIBLE));
    scripted.tick = 10 * MILLISECOND;
    scripted.until("ended", |scripted| scripted.completions.len() == 4);
    assert_eq!(cookies(&scripted.completions), [0, 1, 2, 3]);

    // Suspects, of which the one in flight goes behind the other.
    let (mut scripted, _, sent, waiting) = with_suspects(2, reports_ana);
    closes(&mut scripted);
    answer(&mut scripted, sent, Status::ANA_INACCESSIBLE);
    scripted.tick = 10 * MILLISECOND;
    scripted.until("ended", |scripted| scripted.completions.len() == 2);
    assert_eq!(cookies(&scripted.completions), [waiting[0], sent]);

    // Commands that pause.
    let (mut scripted, _) = silent(host_options().max_attempts(0));
    (0..4).for_each(|block| read(&mut scripted, block));
    scripted.until("sent", |scripted| blocks(scripted, 1).len() == 4);
    (0..4).for_each(|block| answer(&mut scripted, block, Status::from_wire(0x006 << 1)));
    scripted.until("refused", |scripted| scripted.lone.host.statistics().repeated == 4);
    scripted.controller.hang_up();
    scripted.until("given up", |scripted| scripted.completions.len() == 4);
    assert_eq!(scripted.lone.host.failure(), Some(HostFailure::TooManyAttempts));
    assert_eq!(cookies(&scripted.completions), [0, 1, 2, 3]);
}

#[test]
fn a_suspect_that_is_given_up_leaves_the_line_and_nobody_else_does() {
    let (mut scripted, silence, sent, mut waiting) = with_suspects(4, |_| {});
    let second = waiting.remove(1);
    assert_eq!(scripted.lone.host.abort(second), 1);
    // It takes the place of that one, and is in flight when the line goes on.
    read(&mut scripted, 100);
    scripted.until("sent", |scripted| times(scripted, 100) == 1);
    answer(&mut scripted, sent, Status::SUCCESS);
    while !waiting.is_empty() {
        scripted.until("the next one", |scripted| waiting.iter().any(|block| times(scripted, *block) == 2));
        let next = waiting.remove(waiting.iter().position(|block| times(&scripted, *block) == 2).unwrap());
        scripted.steps(50);
        answer(&mut scripted, next, Status::SUCCESS);
    }
    scripted.until("ended", |scripted| scripted.completions.len() == 4);
    scripted.steps(50);
    assert_eq!((times(&scripted, second), times(&scripted, 100)), (1, 1));
    answer(&mut scripted, 100, Status::SUCCESS);
    scripted.until("all", |scripted| scripted.completions.len() == 5);
    for HostCompletion { cookie, result } in &scripted.completions {
        assert_eq!(*result, if *cookie == second { Err(IoError::Aborted) } else { Ok(()) }, "{cookie}");
    }
    silence.set(false);
    scripted.finish();
}

#[test]
fn what_waits_of_a_request_that_has_failed_is_not_sent() {
    let (mut scripted, silence) = silent(host_options().command_retries(SUSPECTED));
    // Commands of two blocks.
    scripted.controller.identify.max_data_transfer = 1;
    lose(&mut scripted);
    assert_eq!(scripted.lone.host.max_transfer_bytes(), 2 * BLOCK);
    let segment = [scripted.segment(0, 4)];
    scripted.lone.host.write(10, &segment, 7).unwrap();
    scripted.until("sent", |scripted| blocks(scripted, 2).len() == 2);
    lose(&mut scripted);
    let [sent] = blocks(&scripted, 3)[..] else { panic!("one at a time") };
    answer(&mut scripted, sent, Status::LBA_OUT_OF_RANGE);
    scripted.until("ended", |scripted| !scripted.completions.is_empty());
    scripted.steps(50);
    assert_eq!(blocks(&scripted, 3), [sent]);
    let result = Err(IoError::Status(Status::LBA_OUT_OF_RANGE));
    assert_eq!(scripted.completions, [HostCompletion { cookie: 7, result }]);
    silence.set(false);
    scripted.finish();
}

/// Nobody suspects what was not lost, also where no command may be lost at all.
#[test]
fn commands_that_were_refused_do_not_wait_for_each_other() {
    for retries in [Some(0), Some(1), None] {
        let (mut scripted, silence) = silent(host_options().command_retries(retries));
        (0..4).for_each(|block| read(&mut scripted, block));
        scripted.until("sent", |scripted| blocks(scripted, 1).len() == 4);
        // The last one stays without an answer.
        (0..3).for_each(|block| answer(&mut scripted, block, Status::INTERNAL_PATH_ERROR));
        scripted.until("sent again", |scripted| blocks(scripted, 1).len() == 7);
        assert_eq!(blocks(&scripted, 1)[4..], [0, 1, 2], "{retries:?}");
        (0..4).for_each(|block| answer(&mut scripted, block, Status::SUCCESS));
        scripted.until("all", |scripted| scripted.completions.len() == 4);
        assert!(scripted.completions.iter().all(|ended| ended.result == Ok(())), "{retries:?}");
        silence.set(false);
        scripted.finish();
    }
}

/// A poll passes over a number of commands that lack a bounce buffer, behind which those that are given up stand.
#[test]
fn commands_that_are_given_up_behind_many_that_lack_a_buffer_leave_their_places_to_others() {
    const LOST: u64 = 26;
    // Others take all of their places.
    const GIVEN_UP: u64 = 4;
    let options = host_options().bounce_buffers(1).queue_depth(48);
    let mut scripted = Scripted::ready("window", options, |controller| {
        controller.identify.optional_commands = IdentifyController::DATASET_MANAGEMENT.into();
        controller.rule = Box::new(|asked| block_of(asked).map(|_| Answer::Silence));
    });
    let half = |segment: Segment| Segment { length: BLOCK / 2, ..segment };
    let halves = [half(scripted.segment(0, 1)), half(scripted.segment(2, 1))];
    (0..LOST).for_each(|block| scripted.lone.host.write(block, &halves, block).unwrap());
    scripted.until("sent", |scripted| blocks(scripted, 1).len() == LOST as usize);
    // The next session takes one key for a command, so that each of them needs a bounce buffer.
    scripted.controller.identify.max_data_blocks = 1;
    scripted.tick = MILLISECOND;
    scripted.controller.hang_up();
    scripted.until("lost", |scripted| scripted.lone.host.statistics().lost == LOST);
    (LOST - GIVEN_UP..LOST).for_each(|block| assert_eq!(scripted.lone.host.abort(block), 1));
    (100..100 + GIVEN_UP).for_each(|block| read(&mut scripted, block));
    for round in 1..=LOST - GIVEN_UP {
        scripted.until("sent", |scripted| blocks(scripted, 2).len() as u64 == GIVEN_UP + round);
        let block = *blocks(&scripted, 2).iter().rev().find(|block| **block < 100).unwrap();
        answer(&mut scripted, block, Status::SUCCESS);
    }
    scripted.until("ended", |scripted| scripted.completions.len() as u64 == LOST);
    scripted.steps(50);
    assert_eq!(blocks(&scripted, 2).len() as u64, LOST);
    (100..100 + GIVEN_UP).for_each(|block| answer(&mut scripted, block, Status::SUCCESS));
    scripted.until("all", |scripted| scripted.completions.len() as u64 == LOST + GIVEN_UP);
    scripted.finish();
}
