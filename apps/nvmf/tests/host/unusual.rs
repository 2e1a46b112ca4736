//! The host and controllers that are unusual, broken or hostile, over a controller that answers as a test wants.

use core::time::Duration;
use frwr_engine::gather::Segment;
use frwr_nvmf::host::{HostFailure, IoError};
use frwr_nvmf::wire::{
    AnaState, Command, DISCOVERY_SUBSYSTEM, DiscoveryEntry, DiscoveryHeader, IdentifyController, IdentifyNamespace,
    Nqn, Status, feature, log_page,
};
use frwr_support::nvmf_harness::scripted::{Answer, Asked, Controller, Scripted};
use frwr_support::nvmf_harness::{BLOCK, host_options};
use std::{cell::Cell, rc::Rc};
use zerocopy::IntoBytes;

const SECOND: Duration = Duration::from_secs(1);

fn is_read(asked: &Asked) -> bool {
    matches!(asked.command, Command::Read(_))
}

fn is_write(asked: &Asked) -> bool {
    matches!(asked.command, Command::Write(_))
}

fn is_abort(asked: &Asked) -> bool {
    matches!(asked.command, Command::Abort(_))
}

fn is_page(page: u8) -> impl Fn(&Asked) -> bool {
    move |asked| matches!(asked.command, Command::GetLogPage(get) if get.page == page)
}

/// An ANA log page with one group, the namespace's.
fn ana_page(state: AnaState) -> Answer {
    let mut page = vec![0; 48];
    (page[8], page[16], page[32]) = (1, 1, state as u8);
    Answer::Data(page)
}

/// The controller reports ANA states; the namespace is in group 1.
fn reports_ana(controller: &mut Controller) {
    controller.identify.multi_path = IdentifyController::REPORTS_ANA;
    controller.namespace.ana_group = 1.into();
}

/// A switch that a controller's rule and the test share.
fn switch<T: Copy + 'static>(value: T) -> (Rc<Cell<T>>, Rc<Cell<T>>) {
    let ours = Rc::new(Cell::new(value));
    (Rc::clone(&ours), ours)
}

/// Writes a block, which is also the request's cookie.
fn write(scripted: &mut Scripted, lba: u64) {
    let segment = [scripted.segment(lba, 1)];
    scripted.lone.host.write(lba, &segment, lba).unwrap();
}

/// What was given up is out of the line, and who comes later stands behind all that waits.
#[test]
fn requests_are_sent_in_the_order_in_which_they_came_whichever_were_given_up() {
    let mut scripted = Scripted::ready("reg_mr", host_options(), |_| {});
    scripted.controller.hang_up();
    scripted.until("lost", |scripted| !scripted.lone.host.is_ready());
    write(&mut scripted, 1);
    write(&mut scripted, 2);
    assert_eq!(scripted.lone.host.abort(1), 1);
    scripted.until("the end of the first is taken", |scripted| scripted.completions.len() == 1);
    assert!(!scripted.lone.host.is_ready(), "the others wait for a session");
    // Takes the place of the first.
    write(&mut scripted, 3);
    scripted.until("all", |scripted| scripted.completions.len() == 3);
    let blocks = scripted.controller.asked.iter().filter_map(|asked| match asked.command {
        Command::Write(range) => Some(range.lba),
        _ => None,
    });
    assert_eq!(blocks.collect::<Vec<_>>(), [2, 3]);
    let results = scripted.completions.iter().map(|ended| (ended.cookie, ended.result));
    assert_eq!(results.collect::<Vec<_>>(), [(1, Err(IoError::Aborted)), (2, Ok(())), (3, Ok(()))]);
    scripted.finish();
}

/// A queue has as many entries as the host was told to use, however unevenly its commands end.
#[test]
fn no_queue_is_given_more_commands_than_it_may_have() {
    const DEPTH: usize = 4;
    let options = host_options().queues(2).queue_depth(DEPTH as u16);
    let mut scripted = Scripted::ready("reg_mr", options, |controller| {
        controller.rule = Box::new(|asked| match asked.command {
            Command::SetFeatures(set) if set.feature == feature::NUMBER_OF_QUEUES => {
                Some(Answer::Status(Status::SUCCESS, 0x0001_0001))
            }
            Command::Write(_) => Some(Answer::Silence),
            _ => None,
        });
    });
    (0..2 * DEPTH as u64).for_each(|lba| write(&mut scripted, lba));
    scripted.until("all are there", |scripted| scripted.controller.count(is_write) == 2 * DEPTH);
    let mut waiting: Vec<Asked> = scripted.controller.asked.iter().filter(|asked| is_write(asked)).copied().collect();
    let first = waiting[0].queue_id;
    // One of the first queue ends, and three of the other.
    for (queue_is_first, ends) in [(true, 1), (false, 3)] {
        for _ in 0..ends {
            let at = waiting.iter().position(|asked| (asked.queue_id == first) == queue_is_first).unwrap();
            scripted.controller.answer(&waiting.remove(at), Answer::Status(Status::SUCCESS, 0));
        }
    }
    scripted.until("four ended", |scripted| scripted.completions.len() == 4);
    (100..100 + DEPTH as u64).for_each(|lba| write(&mut scripted, lba));
    scripted.until("all are there", |scripted| scripted.controller.count(is_write) == 3 * DEPTH);
    waiting.extend(scripted.controller.asked.iter().filter(|asked| is_write(asked)).skip(2 * DEPTH));
    for queue in [1, 2] {
        assert_eq!(waiting.iter().filter(|asked| asked.queue_id == queue).count(), DEPTH, "queue {queue}");
    }
    for asked in waiting {
        scripted.controller.answer(&asked, Answer::Status(Status::SUCCESS, 0));
    }
    scripted.finish();
}

#[test]
fn a_request_that_was_given_up_is_not_sent_again_when_its_path_is_back() {
    let (state, theirs) = switch(AnaState::Optimized);
    let mut scripted = Scripted::ready("reg_mr", host_options(), |controller| {
        reports_ana(controller);
        controller.rule = Box::new(move |asked| match asked.command {
            Command::Write(_) if theirs.get() != AnaState::Optimized => Some(Answer::Silence),
            Command::GetLogPage(_) => Some(ana_page(theirs.get())),
            _ => None,
        });
    });
    state.set(AnaState::Inaccessible);
    scripted.lone.host.write(0, &[scripted.segment(0, 1)], 7).unwrap();
    scripted.until("asked", |scripted| scripted.controller.count(is_write) == 1);
    assert_eq!(scripted.lone.host.abort(7), 1);
    scripted.until("to be aborted", |scripted| scripted.controller.count(is_abort) == 1);
    // The path is gone before the command is: it was not executed.
    let write = scripted.controller.last(is_write).unwrap();
    scripted.controller.answer(&write, Answer::Status(Status::ANA_INACCESSIBLE, 0));
    scripted.until("ended", |scripted| !scripted.completions.is_empty());
    assert_eq!(scripted.completions[0].result, Err(IoError::Aborted));
    state.set(AnaState::Optimized);
    scripted.tick = SECOND / 100;
    scripted.steps(500);
    assert_eq!((scripted.controller.count(is_write), scripted.completions.len()), (1, 1));
    scripted.finish();
}

#[test]
fn a_status_about_the_path_of_a_controller_without_ana_is_an_answer_like_any_other() {
    let mut scripted = Scripted::ready("reg_mr", host_options(), |controller| {
        let mut refused = false;
        controller.rule = Box::new(move |asked| {
            (is_read(asked) && !core::mem::replace(&mut refused, true))
                .then_some(Answer::Status(Status::ANA_PERSISTENT_LOSS, 0))
        });
    });
    for expected in [Err(IoError::Status(Status::ANA_PERSISTENT_LOSS)), Ok(())] {
        scripted.lone.host.read(0, &[scripted.segment(0, 1)], 1).unwrap();
        scripted.until("ended", |scripted| !scripted.completions.is_empty());
        assert_eq!(scripted.completions.remove(0).result, expected);
    }
    scripted.finish();
}

#[test]
fn a_path_that_is_open_by_the_log_page_and_closed_by_every_answer_is_not_tried_for_ever() {
    let options = host_options().inaccessible_timeout(5 * SECOND);
    let mut scripted = Scripted::ready("reg_mr", options, |controller| {
        reports_ana(controller);
        controller.rule = Box::new(|asked| match asked.command {
            Command::Read(_) => Some(Answer::Status(Status::ANA_INACCESSIBLE, 0)),
            Command::GetLogPage(_) => Some(ana_page(AnaState::Optimized)),
            _ => None,
        });
    });
    let begin = scripted.lone.now;
    scripted.lone.host.read(0, &[scripted.segment(0, 1)], 1).unwrap();
    scripted.tick = SECOND / 100;
    scripted.until("ended", |scripted| !scripted.completions.is_empty());
    assert_eq!(scripted.completions[0].result, Err(IoError::Inaccessible(AnaState::Inaccessible)));
    let waited = scripted.lone.now - begin;
    assert!((5 * SECOND..8 * SECOND).contains(&waited), "{waited:?}");
    scripted.finish();
}

#[test]
fn a_host_that_is_shut_down_does_not_wait_for_ever_for_a_path() {
    let options = host_options().inaccessible_timeout(5 * SECOND);
    for comes_back in [false, true] {
        let (state, theirs) = switch(AnaState::Inaccessible);
        let mut scripted = Scripted::ready("reg_mr", options.clone(), |controller| {
            reports_ana(controller);
            controller.rule = Box::new(move |asked| match asked.command {
                Command::GetLogPage(_) => Some(ana_page(theirs.get())),
                _ => None,
            });
        });
        scripted.lone.host.read(0, &[scripted.segment(0, 1)], 1).unwrap();
        scripted.tick = SECOND / 100;
        scripted.steps(10);
        assert!(scripted.completions.is_empty());
        scripted.lone.host.shut_down();
        if comes_back {
            state.set(AnaState::Optimized);
        }
        scripted.until("stopped", |scripted| scripted.lone.host.is_stopped());
        let expected = if comes_back { Ok(()) } else { Err(IoError::Inaccessible(AnaState::Inaccessible)) };
        assert_eq!(scripted.completions[0].result, expected);
        assert_eq!(scripted.lone.host.statistics().failures, 0);
    }
}

#[test]
fn an_abort_that_is_never_answered_holds_up_neither_others_nor_the_shutdown() {
    let options = host_options().step_timeout(5 * SECOND);
    for stops in [true, false] {
        let mut scripted = Scripted::ready("reg_mr", options.clone(), |controller| {
            let mut first = true;
            controller.rule = Box::new(move |asked| match asked.command {
                Command::Read(_) if core::mem::take(&mut first) => Some(Answer::Silence),
                Command::Abort(_) => Some(Answer::Silence),
                _ => None,
            });
        });
        scripted.lone.host.read(0, &[scripted.segment(0, 1)], 1).unwrap();
        scripted.lone.host.flush();
        scripted.lone.host.abort(1);
        scripted.until("to be aborted", |scripted| scripted.controller.count(is_abort) == 1);
        let read = scripted.controller.last(is_read).unwrap();
        scripted.controller.answer(&read, Answer::Status(Status::COMMAND_ABORT_REQUESTED, 0));
        scripted.until("ended", |scripted| !scripted.completions.is_empty());
        assert_eq!(scripted.completions[0].result, Err(IoError::Aborted));
        scripted.tick = SECOND / 100;
        if !stops {
            scripted.until("given up", |scripted| scripted.lone.host.statistics().failures == 1);
            assert!(matches!(scripted.lone.host.last_failure(), Some(HostFailure::Timeout { .. })));
            scripted.until("ready", |scripted| scripted.lone.host.is_ready());
        }
        scripted.finish();
    }
}

#[test]
fn a_log_page_that_never_comes_ends_the_session() {
    let options = host_options().step_timeout(5 * SECOND);
    for stops in [true, false] {
        let (held, theirs) = switch(false);
        let mut scripted = Scripted::ready("reg_mr", options.clone(), |controller| {
            reports_ana(controller);
            controller.rule = Box::new(move |asked| match asked.command {
                Command::GetLogPage(_) if theirs.get() => Some(Answer::Silence),
                Command::GetLogPage(_) => Some(ana_page(AnaState::Optimized)),
                Command::Read(_) if theirs.get() => Some(Answer::Status(Status::ANA_INACCESSIBLE, 0)),
                _ => None,
            });
        });
        held.set(true);
        scripted.lone.host.read(0, &[scripted.segment(0, 1)], 1).unwrap();
        let is_ana = is_page(log_page::ANA);
        scripted.tick = SECOND / 100;
        scripted.until("read again", |scripted| scripted.controller.count(&is_ana) == 2);
        assert_eq!(scripted.lone.host.admin_bytes_open(), 4096);
        held.set(false);
        if stops {
            scripted.lone.host.shut_down();
            scripted.until("stopped", |scripted| scripted.lone.host.is_stopped());
            assert_eq!(scripted.completions.len(), 1);
        } else {
            // The next session knows that the path is open.
            scripted.until("ended", |scripted| !scripted.completions.is_empty());
            assert_eq!(scripted.completions[0].result, Ok(()));
            assert_eq!(scripted.lone.host.statistics().sessions, 2);
            scripted.finish();
        }
    }
}

#[test]
fn requests_that_hold_bounce_buffers_are_sent_although_lost_commands_wait_for_one() {
    let options = host_options().bounce_buffers(1);
    let mut scripted = Scripted::ready("window", options, |controller| {
        controller.identify.optional_commands = IdentifyController::DATASET_MANAGEMENT.into();
        controller.rule = Box::new(|asked| (is_write(asked) && asked.session == 1).then_some(Answer::Silence));
    });
    let half = |segment: Segment| Segment { length: BLOCK / 2, ..segment };
    let halves = [half(scripted.segment(0, 1)), half(scripted.segment(2, 1))];
    scripted.lone.host.write(0, &halves, 1).unwrap();
    scripted.until("asked", |scripted| scripted.controller.count(is_write) == 1);
    // The next session takes one key for a command; until then the only buffer has the list of a deallocation.
    scripted.controller.identify.max_data_blocks = 1;
    scripted.controller.hang_up();
    scripted.until("lost", |scripted| scripted.lone.host.statistics().lost == 1);
    scripted.lone.host.deallocate(&[(0, 1)], 2).unwrap();
    scripted.tick = SECOND / 1000;
    scripted.until("both ended", |scripted| scripted.completions.len() == 2);
    assert!(scripted.completions.iter().all(|ended| ended.result == Ok(())), "{:?}", scripted.completions);
    assert_eq!(scripted.lone.host.statistics().bounced_commands, 1);
    scripted.finish();
}

#[test]
fn zeroes_are_written_to_the_largest_blocks_as_many_as_a_command_takes() {
    let mut scripted = Scripted::ready("reg_mr", host_options(), |controller| {
        controller.identify.optional_commands = IdentifyController::WRITE_ZEROES.into();
        controller.namespace.lba_formats[0].block_shift = 16;
        controller.namespace.size = (1 << 20).into();
    });
    scripted.lone.host.write_zeroes(0, (1 << 16) + 1, false, 1).unwrap();
    scripted.until("ended", |scripted| !scripted.completions.is_empty());
    assert_eq!(scripted.completions[0].result, Ok(()));
    let blocks = scripted.controller.asked.iter().filter_map(|asked| match asked.command {
        Command::WriteZeroes(zeroes) => Some(zeroes.blocks),
        _ => None,
    });
    assert_eq!(blocks.collect::<Vec<_>>(), [1 << 16, 1]);
    scripted.finish();
}

/// SPDK's target refuses Write Zeroes with DEAC.
#[test]
fn zeroes_deallocate_only_where_the_namespace_says_that_they_may() {
    for (features, wanted) in [(0, [false, false]), (IdentifyNamespace::ZEROES_DEALLOCATE, [false, true])] {
        let mut scripted = Scripted::ready("reg_mr", host_options(), |controller| {
            controller.identify.optional_commands = IdentifyController::WRITE_ZEROES.into();
            controller.namespace.deallocate_features = features;
        });
        for deallocate in [false, true] {
            scripted.lone.host.write_zeroes(0, 1, deallocate, 1).unwrap();
        }
        scripted.until("ended", |scripted| scripted.completions.len() == 2);
        assert!(scripted.completions.iter().all(|ended| ended.result == Ok(())));
        let deallocates = scripted.controller.asked.iter().filter_map(|asked| match asked.command {
            Command::WriteZeroes(zeroes) => Some(zeroes.deallocate),
            _ => None,
        });
        assert_eq!(deallocates.collect::<Vec<_>>(), wanted);
        scripted.finish();
    }
}

#[test]
fn a_discovery_log_whose_reading_was_interrupted_is_read_from_its_beginning() {
    const ENTRIES: u64 = 8;
    let options = host_options().subsystem(Nqn::new(DISCOVERY_SUBSYSTEM).unwrap());
    let mut scripted = Scripted::new("reg_mr", options, |controller| {
        let address = "10.0.0.1:4420".parse().unwrap();
        let mut page = DiscoveryHeader::new(1, ENTRIES).as_bytes().to_vec();
        for number in 0..ENTRIES {
            let name = Nqn::new(&format!("nqn.disk{number}")).unwrap();
            page.extend(DiscoveryEntry::new(&name, 1, address, 32).as_bytes());
        }
        controller.rule = Box::new(move |asked| {
            let Command::GetLogPage(get) = asked.command else { return None };
            // The second part never arrives in the first session.
            if asked.session == 1 && get.offset > 0 {
                return Some(Answer::Silence);
            }
            let rest = &page[(get.offset as usize).min(page.len())..];
            Some(Answer::Data(rest[..rest.len().min(get.length as usize)].to_vec()))
        });
    });
    let is_second = |asked: &Asked| matches!(asked.command, Command::GetLogPage(get) if get.offset > 0);
    scripted.until("asked", |scripted| scripted.controller.count(is_second) == 1);
    scripted.controller.hang_up();
    scripted.tick = SECOND / 1000;
    scripted.until("ready", |scripted| scripted.lone.host.is_ready());
    let found: Vec<_> = scripted.lone.host.discovered().iter().map(|entry| entry.subsystem.as_str()).collect();
    let expected: Vec<_> = (0..ENTRIES).map(|number| format!("nqn.disk{number}")).collect();
    assert_eq!(found, expected);
    scripted.finish();
}

#[test]
fn another_namespace_in_the_place_of_the_one_that_was_used_gets_none_of_its_writes() {
    for live in [false, true] {
        let mut scripted = Scripted::ready("reg_mr", host_options(), |controller| {
            (controller.namespace.nguid, controller.namespace.eui64) = ([7; 16], [7; 8]);
            controller.identify.events = IdentifyController::NAMESPACE_EVENTS.into();
            controller.rule = Box::new(|asked| (is_write(asked) && asked.session == 1).then_some(Answer::Silence));
        });
        scripted.lone.host.write(0, &[scripted.segment(0, 1)], 1).unwrap();
        scripted.until("asked", |scripted| scripted.controller.count(is_write) == 1);
        let is_event = |asked: &Asked| asked.command == Command::AsynchronousEventRequest;
        scripted.until("events are waited for", |scripted| scripted.controller.count(is_event) == 1);
        // As large, and another one.
        scripted.controller.namespace.nguid = [8; 16];
        if live {
            let event = scripted.controller.last(is_event).unwrap();
            scripted.controller.answer(&event, Answer::Status(Status::SUCCESS, 2));
        } else {
            scripted.controller.hang_up();
        }
        scripted.tick = SECOND / 1000;
        scripted.until("failed", |scripted| scripted.lone.host.failure().is_some());
        assert_eq!(scripted.lone.host.failure(), Some(HostFailure::NamespaceChanged));
        assert_eq!(scripted.completions[0].result, Err(IoError::Abandoned));
        assert_eq!(scripted.controller.count(is_write), 1);
    }
}

#[test]
fn a_namespace_without_a_name_that_has_another_size_behind_a_reconnect_gets_none_of_the_writes_of_the_former_one() {
    for blocks in [255, 257] {
        let mut scripted = Scripted::ready("reg_mr", host_options(), |controller| {
            controller.rule = Box::new(|asked| (is_write(asked) && asked.session == 1).then_some(Answer::Silence));
        });
        scripted.lone.host.write(0, &[scripted.segment(0, 1)], 1).unwrap();
        scripted.until("asked", |scripted| scripted.controller.count(is_write) == 1);
        scripted.controller.namespace.size = blocks.into();
        scripted.controller.hang_up();
        scripted.tick = SECOND / 1000;
        scripted.until("failed", |scripted| scripted.lone.host.failure().is_some());
        assert_eq!(scripted.lone.host.failure(), Some(HostFailure::NamespaceChanged));
        assert_eq!(scripted.completions[0].result, Err(IoError::Abandoned));
        assert_eq!(scripted.controller.count(is_write), 1);
    }
}

#[test]
fn as_many_requests_can_be_submitted_as_the_host_says() {
    let mut scripted = Scripted::ready("reg_mr", host_options(), |_| {});
    let segment = [scripted.segment(0, 1)];
    let depth = scripted.lone.host.free_requests();
    for _ in 0..3 {
        let free = scripted.lone.host.free_requests();
        for _ in 0..free {
            scripted.lone.host.read(0, &segment, 1).unwrap();
        }
        assert_eq!(scripted.lone.host.free_requests(), 0);
        // Completions that nobody takes occupy their places.
        for _ in 0..100 {
            scripted.lone.step();
            scripted.controller.step(scripted.lone.now);
        }
        assert_eq!(scripted.lone.host.free_requests(), 0);
        for taken in 1..=depth {
            assert!(scripted.lone.host.next_completion().is_some());
            assert_eq!(scripted.lone.host.free_requests(), taken);
        }
    }
    scripted.finish();
}
