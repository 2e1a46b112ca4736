//! The host and log pages of asymmetric namespace access that are longer than one part of them.

use frwr_nvmf::wire::{AnaState, Command, IdentifyController, Status, log_page};
use frwr_support::nvmf_harness::host_options;
use frwr_support::nvmf_harness::scripted::{Answer, Asked, Controller, Scripted, part};
use std::{cell::Cell, rc::Rc};

fn is_ana(asked: &Asked) -> bool {
    matches!(asked.command, Command::GetLogPage(get) if get.page == log_page::ANA)
}

/// A switch that a controller's rule and the test share.
fn switch<T: Copy + 'static>(value: T) -> (Rc<Cell<T>>, Rc<Cell<T>>) {
    let ours = Rc::new(Cell::new(value));
    (Rc::clone(&ours), ours)
}

/// A page of so many groups, of which all are optimized but the last.
fn ana_page(change_count: u64, groups: u16, last: AnaState) -> Vec<u8> {
    let mut page = change_count.to_le_bytes().to_vec();
    page.extend(groups.to_le_bytes());
    page.extend([0; 6]);
    for group in 1..=groups {
        let mut descriptor = [0; 32];
        descriptor[..4].copy_from_slice(&u32::from(group).to_le_bytes());
        descriptor[16] = if group == groups { last } else { AnaState::Optimized } as u8;
        page.extend(descriptor);
    }
    page
}

fn reports_ana(controller: &mut Controller, groups: u16, log_pages: u8) {
    controller.identify.multi_path = IdentifyController::REPORTS_ANA;
    controller.identify.log_pages = log_pages;
    controller.identify.events = IdentifyController::ANA_EVENTS.into();
    controller.namespace.ana_group = u32::from(groups).into();
}

#[test]
fn the_state_of_a_group_far_behind_in_the_log_page_is_found_at_the_beginning_and_later() {
    // The last three: its descriptor is the last of a part, cut by the end of one, and as many as there can be.
    for groups in [1, 126, 127, 128, 300, u16::MAX] {
        let (state, theirs) = switch((1, AnaState::Inaccessible));
        let mut scripted = Scripted::new("reg_mr", host_options(), |controller| {
            reports_ana(controller, groups, IdentifyController::LOG_OFFSETS);
            let (mut page, mut made_of) = (Vec::new(), None);
            controller.rule = Box::new(move |asked| {
                let (count, state) = theirs.get();
                if made_of.replace((count, state)) != Some((count, state)) {
                    page = ana_page(count, groups, state);
                }
                is_ana(asked).then(|| part(&page, asked))?
            });
        });
        scripted.until("ready", |scripted| scripted.lone.host.is_ready());
        assert_eq!(scripted.lone.host.ana_state(), AnaState::Inaccessible, "{groups} groups");
        assert_eq!(scripted.lone.host.statistics().ana_reads, 1, "of one page, in as many parts as it takes");
        let is_event = |asked: &Asked| asked.command == Command::AsynchronousEventRequest;
        scripted.until("events are waited for", |scripted| scripted.controller.count(is_event) == 1);
        state.set((2, AnaState::NonOptimized));
        let event = scripted.controller.last(is_event).unwrap();
        scripted.controller.answer(&event, Answer::Status(Status::SUCCESS, 0x302));
        scripted.until("known", |scripted| scripted.lone.host.ana_state() == AnaState::NonOptimized);
        scripted.finish();
    }
}

#[test]
fn a_log_page_that_changes_while_it_is_read_is_read_again() {
    let mut parts = 0;
    let mut scripted = Scripted::new("reg_mr", host_options(), |controller| {
        reports_ana(controller, 300, IdentifyController::LOG_OFFSETS);
        controller.rule = Box::new(move |asked| {
            if !is_ana(asked) {
                return None;
            }
            parts += 1;
            // When the third part, with the group, has been read, the first one says that it was of a former page.
            let (count, state) = if parts <= 3 { (1, AnaState::Inaccessible) } else { (2, AnaState::NonOptimized) };
            part(&ana_page(count, 300, state), asked)
        });
    });
    scripted.until("ready", |scripted| scripted.lone.host.is_ready());
    assert_eq!(scripted.lone.host.ana_state(), AnaState::NonOptimized);
    scripted.finish();
}

#[test]
fn a_log_page_without_an_end_and_one_without_offsets_say_nothing_against_the_namespace() {
    for (log_pages, most) in [(IdentifyController::LOG_OFFSETS, 1024), (0, 1)] {
        let mut scripted = Scripted::new("reg_mr", host_options(), |controller| {
            reports_ana(controller, 9, log_pages);
            let mut count = 0;
            controller.rule = Box::new(move |asked| {
                let Command::GetLogPage(get) = asked.command else { return None };
                // Always another one, of groups that are never ours.
                count += 1;
                let mut page = ana_page(count, 127, AnaState::Optimized);
                let from = if get.offset == 0 { 0 } else { 16 };
                (page[8], page[9]) = (0xff, 0xff);
                for descriptor in page[16..].chunks_mut(32) {
                    descriptor[..4].copy_from_slice(&[7, 0, 0, 0]);
                }
                Some(Answer::Data(page[from..].to_vec()))
            });
        });
        scripted.until("ready", |scripted| scripted.lone.host.is_ready());
        assert_eq!(scripted.lone.host.ana_state(), AnaState::Optimized);
        let parts = scripted.controller.count(is_ana);
        assert!((1..=most).contains(&parts), "{parts} parts");
        scripted.finish();
    }
}
