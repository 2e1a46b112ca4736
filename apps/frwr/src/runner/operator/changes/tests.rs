//! What becomes of changes where cores refuse, stand still or take their time.

use super::*;
use crate::{
    control::TIMED_OUT,
    runner::{
        memory_medium::MemoryMedium,
        namespaces::NamespaceReport,
        orders::{Answer, Desk, desk},
        progress::Progress,
        trace::Trace,
    },
};
use frwr_mempool::{PagePolicy, PageSize};
use frwr_nvmf::{controller::AllowedHosts, storage::Geometry, wire::Nqn};
use serde_json::json;

fn change(hosts: AllowedHosts) -> Change {
    let subsystem = Nqn::new("nqn.2026-11.invalid.frwr:a").unwrap();
    Change::AllowedHosts { subsystem, hosts, within: Duration::ZERO }
}

fn text(change: &Change) -> String {
    format!("{change:?}")
}

fn wanted() -> Change {
    change(AllowedHosts::Listed(Vec::new()))
}

/// Orders of devices that have so many cores each.
fn ordered(cores: usize, devices: usize) -> (Orders, Vec<Desk>) {
    let mut orders = Orders::new(&Progress::new(cores * devices), cores, devices);
    let open = |unit| {
        let (ends, desk) = desk();
        orders.add(unit, ends);
        desk
    };
    let desks = (0..cores * devices).map(open).collect();
    (orders, desks)
}

struct Three {
    orders: Orders,
    desks: Vec<Desk>,
    changes: Changes,
    /// What devices did not undo.
    stays: Vec<Stays>,
}

impl Three {
    fn new() -> Self {
        let (orders, desks) = ordered(3, 1);
        let mut changes = Changes::default();
        let step = |unit| Step { unit, change: wanted(), undo: Some(change(AllowedHosts::Any)) };
        changes.queue(Asker::Application, Planned::steps([1, 2, 0].map(step).into()));
        Self { orders, desks, changes, stays: Vec::new() }
    }

    /// Each core says for itself when it has nothing left of it.
    fn in_parts() -> Self {
        let mut three = Self::new();
        three.changes.line[0].became.parts = 3;
        three
    }

    fn turn(&mut self, millis: u64) -> Option<Result<Value, i64>> {
        while let Some((core, answer)) = self.orders.next_answer() {
            let stays = match answer {
                Answer::Changed { number, result, .. } => {
                    self.changes.answered((core, self.orders.device_of(core)), number, result)
                }
                Answer::Became(event) => self.changes.became(self.orders.device_of(core), *event),
                Answer::Withdrawn(_) => None,
                Answer::Report { .. } => panic!("nobody asked for a report"),
            };
            self.stays.extend(stays);
        }
        let ended = self.changes.turn(Duration::from_millis(millis), &mut self.orders)?;
        Some(ended.result.map_err(|failure| failure.code))
    }

    /// A core looks for its orders: what it was told to do and did.
    fn obey(&mut self, core: usize, answer: Result<Option<ChangeId>, String>) -> Vec<String> {
        let (mut did, desk) = (Vec::new(), &mut self.desks[core]);
        while let Some(order) = desk.next() {
            match order {
                Order::Change { number, change, ticket } if ticket.take() => {
                    did.push(text(&change));
                    desk.answer(Answer::Changed { number, result: answer.clone(), returned: None });
                }
                Order::Change { .. } | Order::Outcome => {}
                Order::Report { .. } => panic!("nobody asked for a report"),
            }
        }
        did
    }
}

#[test]
fn cores_are_told_one_after_the_other_and_the_home_core_last() {
    let mut three = Three::new();
    for core in [1, 2, 0] {
        assert_eq!(three.turn(0), None);
        for other in (0..3).filter(|other| *other != core) {
            assert!(three.obey(other, Ok(None)).is_empty());
        }
        assert_eq!(three.obey(core, Ok(None)), [text(&wanted())]);
    }
    assert_eq!(three.turn(0), Some(Ok(done(true))));
    assert_eq!(three.turn(0), None);
}

#[test]
fn a_change_that_one_core_refuses_is_undone_on_the_others() {
    let mut three = Three::new();
    assert_eq!(three.turn(0), None);
    assert_eq!(three.obey(1, Ok(None)), [text(&wanted())]);
    assert_eq!(three.turn(0), None);
    assert_eq!(three.obey(2, Err("no".to_owned())), [text(&wanted())]);
    assert_eq!(three.turn(0), Some(Err(NOT_DONE)));
    assert_eq!(three.obey(1, Ok(None)), [text(&change(AllowedHosts::Any))]);
    assert_eq!((three.obey(2, Ok(None)), three.obey(0, Ok(None))), (Vec::new(), Vec::new()));
    assert_eq!(three.turn(0), None, "what was undone is no answer to anything");
}

#[test]
fn a_core_that_stands_still_never_does_what_was_taken_back() {
    let mut three = Three::new();
    assert_eq!(three.turn(0), None);
    assert_eq!(three.obey(1, Ok(None)), [text(&wanted())]);
    assert_eq!(three.turn(1), None);
    assert_eq!(three.turn(5000), None);
    assert_eq!(three.turn(5001), Some(Err(TIMED_OUT)));
    assert!(three.obey(2, Ok(None)).is_empty(), "it goes on, and finds the order withdrawn");
    assert_eq!(three.obey(1, Ok(None)), [text(&change(AllowedHosts::Any))]);
}

#[test]
fn a_core_that_paused_while_it_was_asked_again_and_again_takes_the_next_change() {
    let (mut three, id) = going_on(Three::new());
    (1..100).for_each(|look| assert_eq!(three.turn(10 * look), None));
    three.desks[0].answer(Answer::Became(Box::new(ChangeEvent::Done { id })));
    assert_eq!(three.turn(1000), Some(Ok(done(true))));
    let steps = [Step { unit: 1, change: wanted(), undo: None }].into();
    three.changes.queue(Asker::Application, Planned::steps(steps));
    assert_eq!(three.turn(1000), None);
    assert_eq!(three.obey(1, Ok(None)), [text(&wanted())]);
    assert_eq!(three.turn(1000), Some(Ok(done(true))));
}

#[test]
fn a_core_that_was_faster_than_the_deadline_has_done_it() {
    let mut three = Three::new();
    assert_eq!(three.turn(0), None);
    // It takes the order in the moment in which the main thread would take it back.
    let taken = three.changes.line[0].told.as_ref().is_some_and(|told| told.ticket.take());
    assert!(taken);
    assert_eq!(three.turn(60_000), None, "its answer is waited for");
}

/// The last core has begun something, and says what becomes of it when it is asked.
fn going_on(mut three: Three) -> (Three, ChangeId) {
    let id = ChangeId(7);
    for core in [1, 2] {
        assert_eq!(three.turn(0), None);
        three.obey(core, Ok(None));
    }
    assert_eq!(three.turn(0), None);
    three.obey(0, Ok(Some(id)));
    assert_eq!(three.turn(0), None);
    (three, id)
}

#[test]
fn what_takes_its_time_is_answered_when_it_is_complete() {
    let (mut three, id) = going_on(Three::new());
    assert_eq!(three.turn(1000), None);
    three.desks[0].answer(Answer::Became(Box::new(ChangeEvent::Done { id: ChangeId(6) })));
    assert_eq!(three.turn(1000), None, "another one");
    three.desks[0].answer(Answer::Became(Box::new(ChangeEvent::Done { id })));
    assert_eq!(three.turn(1000), Some(Ok(done(true))));
    assert!(three.changes.unfinished.is_empty());
}

#[test]
fn what_each_core_gives_up_is_complete_when_all_have_and_asked_for_until_then() {
    let said = |three: &mut Three, core: usize, event| three.desks[core].answer(Answer::Became(Box::new(event)));
    let (mut three, id) = going_on(Three::in_parts());
    said(&mut three, 0, ChangeEvent::Done { id });
    [0, 1].into_iter().for_each(|core| said(&mut three, core, ChangeEvent::Shrunk { id }));
    assert_eq!(three.turn(1000), None, "one core has some of it");
    said(&mut three, 2, ChangeEvent::Shrunk { id });
    assert_eq!(three.turn(1000), Some(Ok(done(true))));
    let (mut three, id) = going_on(Three::in_parts());
    said(&mut three, 0, ChangeEvent::Done { id });
    assert_eq!(three.turn(21_000).unwrap().unwrap()["complete"], false);
    assert_eq!(three.changes.unfinished.len(), 1);
    (0..3).for_each(|core| said(&mut three, core, ChangeEvent::Shrunk { id }));
    assert_eq!(three.turn(22_000), None);
    assert!(three.changes.unfinished.is_empty());
}

#[test]
fn a_smaller_size_that_another_one_or_the_end_of_the_namespace_overtook_is_waited_for_no_longer() {
    let namespace = (Nqn::new("nqn.2026-11.invalid.frwr:a").unwrap(), 1);
    let held_up = || {
        let (mut three, id) = going_on(Three::in_parts());
        three.changes.line[0].behind = Some(Behind::Resized { namespace, blocks: 1, before: 3 });
        three.desks[0].answer(Answer::Became(Box::new(ChangeEvent::Done { id })));
        assert_eq!(three.turn(21_000).unwrap().unwrap()["complete"], false);
        assert_eq!(three.changes.unfinished.len(), 1);
        three
    };
    let (mut three, id) = (held_up(), ChangeId(8));
    let steps = [Step { unit: 0, change: wanted(), undo: None }].into();
    let behind = Some(Behind::Resized { namespace, blocks: 2, before: 1 });
    three.changes.queue(Asker::Application, Planned { behind, ..Planned::steps(steps) });
    assert_eq!(three.turn(22_000), None);
    three.obey(0, Ok(Some(id)));
    assert_eq!(three.turn(22_000), None);
    three.desks[0].answer(Answer::Became(Box::new(ChangeEvent::Done { id })));
    assert_eq!(three.turn(22_000), Some(Ok(done(true))));
    assert!(three.changes.unfinished.is_empty());
    let mut three = held_up();
    three.changes.gone = vec![namespace; 3];
    assert_eq!(three.changes.next_gone(3), Some(namespace));
    assert!(three.changes.unfinished.is_empty());
}

#[test]
fn what_nobody_says_the_end_of_is_answered_as_not_complete_and_looked_after() {
    let (mut three, id) = going_on(Three::new());
    assert_eq!(three.turn(20_999), None);
    let told = three.turn(21_000).unwrap().unwrap();
    assert_eq!((&told["changed"], &told["complete"]), (&json!(true), &json!(false)));
    assert_eq!(
        three.changes.unfinished.iter().map(|one| one.numbers.clone()).collect::<Vec<_>>(),
        [[Number { device: 0, id }]]
    );
    three.desks[1].answer(Answer::Became(Box::new(ChangeEvent::Done { id })));
    assert_eq!(three.turn(22_000), None);
    assert!(three.changes.unfinished.is_empty());
}

/// Two devices on one core each: units 0 and 1 are their home cores.
fn two_devices(for_good: bool) -> Three {
    let (orders, desks) = ordered(1, 2);
    let undo = || (!for_good).then(|| change(AllowedHosts::Any));
    let steps = [0, 1].map(|unit| Step { unit, change: wanted(), undo: undo() }).into();
    let mut changes = Changes::default();
    changes.queue(Asker::Application, Planned { for_good, ..Planned::steps(steps) });
    Three { orders, desks, changes, stays: Vec::new() }
}

#[test]
fn devices_are_told_one_after_the_other_and_it_is_done_when_the_last_of_them_has_it() {
    let mut two = two_devices(false);
    assert_eq!(two.turn(0), None);
    // Both count their changes for themselves.
    let id = ChangeId(7);
    assert_eq!(two.obey(0, Ok(Some(id))), [text(&wanted())]);
    assert_eq!(two.turn(0), None);
    assert_eq!(two.obey(1, Ok(Some(id))), [text(&wanted())]);
    two.desks[1].answer(Answer::Became(Box::new(ChangeEvent::Done { id })));
    assert_eq!(two.turn(10), None, "the first one has not");
    two.desks[0].answer(Answer::Became(Box::new(ChangeEvent::Done { id })));
    assert_eq!(two.turn(20), Some(Ok(done(true))));
}

#[test]
fn what_one_device_does_not_take_the_others_undo_when_they_are_done_with_it() {
    // It refuses, and nothing is undone before the other takes changes again.
    let (mut two, id) = (two_devices(false), ChangeId(7));
    assert_eq!(two.turn(0), None);
    two.obey(0, Ok(Some(id)));
    assert_eq!(two.turn(0), None);
    two.obey(1, Err("no".to_owned()));
    assert_eq!(two.turn(0), None);
    assert!(two.obey(0, Ok(None)).is_empty());
    two.desks[0].answer(Answer::Became(Box::new(ChangeEvent::Done { id })));
    assert_eq!(two.turn(10), Some(Err(NOT_DONE)));
    assert_eq!(two.obey(0, Ok(None)), [text(&change(AllowedHosts::Any))]);
    // It finds later that it cannot.
    let mut two = two_devices(false);
    for device in [0, 1] {
        assert_eq!(two.turn(0), None);
        two.obey(device, Ok(Some(id)));
    }
    two.desks[1].answer(Answer::Became(Box::new(ChangeEvent::Undone { id })));
    assert_eq!(two.turn(0), None);
    two.desks[0].answer(Answer::Became(Box::new(ChangeEvent::Done { id })));
    assert_eq!(two.turn(10), Some(Err(NOT_DONE)));
    assert_eq!(two.obey(0, Ok(None)), [text(&change(AllowedHosts::Any))]);
}

#[test]
fn what_a_device_does_not_undo_is_told() {
    let stays = |reason: &str| Stays { device: 0, reason: reason.to_owned() };
    // At once.
    let (mut two, id) = (two_devices(false), ChangeId(7));
    assert_eq!(two.turn(0), None);
    two.obey(0, Ok(None));
    assert_eq!(two.turn(0), None);
    two.obey(1, Err("no".to_owned()));
    assert_eq!(two.turn(0), Some(Err(NOT_DONE)));
    assert_eq!(two.obey(0, Err("another change is under way".to_owned())), [text(&change(AllowedHosts::Any))]);
    assert_eq!((two.turn(0), &two.stays[..]), (None, &[stays("another change is under way")][..]));
    // Later, as a core of it cannot.
    let mut two = two_devices(false);
    assert_eq!(two.turn(0), None);
    two.obey(0, Ok(None));
    assert_eq!(two.turn(0), None);
    two.obey(1, Err("no".to_owned()));
    assert_eq!(two.turn(0), Some(Err(NOT_DONE)));
    two.obey(0, Ok(Some(id)));
    assert_eq!((two.turn(0), two.stays.len()), (None, 0));
    two.desks[0].answer(Answer::Became(Box::new(ChangeEvent::Undone { id })));
    assert_eq!((two.turn(0), &two.stays[..]), (None, &[stays(NOT_GIVEN)][..]));
}

/// Members have to have their blocks back before the home core tells of them, and what is changed next waits for that.
#[test]
fn what_was_made_smaller_gets_its_blocks_back_in_order_where_a_device_refuses() {
    let namespace = (Nqn::new("nqn.2026-11.invalid.frwr:a").unwrap(), 1);
    let (orders, desks) = ordered(2, 2);
    let mut changes = Changes::default();
    let undo = change(AllowedHosts::Any);
    // Two devices of two cores each: the members', then the home cores'.
    let steps = [1, 3, 0, 2].map(|unit| Step { unit, change: wanted(), undo: Some(change(AllowedHosts::Any)) });
    let behind = Some(Behind::Resized { namespace, blocks: 4, before: 8 });
    let planned = Planned { parts: 4, behind, in_order: true, ..Planned::steps(steps.into()) };
    changes.queue(Asker::Application, planned);
    changes.queue(Asker::Application, Planned::steps([Step { unit: 1, change: wanted(), undo: None }].into()));
    let mut four = Three { orders, desks, changes, stays: Vec::new() };
    let id = ChangeId(7);
    for (unit, answer) in [(1, Ok(None)), (3, Ok(None)), (0, Ok(Some(id))), (2, Err("no".to_owned()))] {
        assert_eq!(four.turn(0), None);
        assert_eq!(four.obey(unit, answer), [text(&wanted())]);
    }
    [0, 1].into_iter().for_each(|core| four.desks[core].answer(Answer::Became(Box::new(ChangeEvent::Shrunk { id }))));
    four.desks[0].answer(Answer::Became(Box::new(ChangeEvent::Done { id })));
    assert_eq!(four.turn(10), Some(Err(NOT_DONE)));
    let back = ChangeId(8);
    for (unit, answer) in [(1, Ok(None)), (3, Ok(None)), (0, Ok(Some(back)))] {
        assert_eq!(four.turn(20), None);
        let others = (0..4).filter(|other| *other != unit);
        assert!(others.into_iter().all(|other| four.obey(other, Ok(None)).is_empty()));
        assert_eq!(four.obey(unit, answer), [text(&undo)]);
    }
    assert_eq!(four.turn(20), None, "the device has not said that it has them back");
    four.desks[0].answer(Answer::Became(Box::new(ChangeEvent::Done { id: back })));
    assert_eq!(four.turn(30), Some(Ok(done(true))), "what undoes it");
    assert!(four.changes.unfinished.is_empty());
    assert_eq!(four.turn(30), None);
    assert_eq!(four.obey(1, Ok(None)), [text(&wanted())], "the next change");
    assert_eq!(four.turn(30), Some(Ok(done(true))));
}

#[test]
fn a_file_of_a_trace_that_never_began_does_not_stay_when_the_target_ends() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys");
    let mut three = Three::new();
    three.changes.line[0].behind = Some(Behind::KeyTraceBegun(Box::new(Trace::made(&path, 0).unwrap())));
    assert!(path.exists());
    three.changes.end();
    assert!(!path.exists());
}

#[test]
fn what_cannot_be_undone_is_told_as_far_as_it_was_done() {
    let mut two = two_devices(true);
    assert_eq!(two.turn(0), None);
    two.obey(0, Ok(None));
    assert_eq!(two.turn(0), None);
    two.obey(1, Err("no".to_owned()));
    assert_eq!(two.turn(0), Some(Err(PARTLY_DONE)));
    assert!(two.obey(0, Ok(None)).is_empty());
    let mut two = two_devices(true);
    assert_eq!(two.turn(0), None);
    two.obey(0, Err("no".to_owned()));
    assert_eq!(two.turn(0), Some(Err(NOT_DONE)), "nothing was done");
}

#[test]
fn a_namespace_that_one_device_did_not_take_and_the_other_gives_back_is_none_that_is_gone() {
    let namespace = (Nqn::new("nqn.2026-11.invalid.frwr:a").unwrap(), 1);
    let removed = |id| {
        let geometry = Geometry::new(8, 4096).unwrap();
        let memory = MemoryMedium::new(geometry, None, false, PagePolicy::Exactly(PageSize::Plain), None).unwrap();
        let storage = memory.storage(1).unwrap();
        let (subsystem, identifier) = namespace;
        Answer::Became(Box::new(ChangeEvent::Removed { id, subsystem, identifier, storage }))
    };
    let report = || NamespaceReport {
        name: String::new(),
        kind: "memory",
        bytes: 32768,
        sha256: None,
        blocks: 8,
        medium_blocks: 8,
        block_bytes: 4096,
        read_only: false,
    };
    let (mut two, id, back) = (two_devices(false), ChangeId(7), ChangeId(8));
    two.changes.line[0].behind = Some(Behind::Added(namespace, report()));
    assert_eq!(two.turn(0), None);
    two.obey(0, Ok(Some(id)));
    assert_eq!(two.turn(0), None);
    two.obey(1, Err("no".to_owned()));
    two.desks[0].answer(Answer::Became(Box::new(ChangeEvent::Done { id })));
    assert_eq!(two.turn(10), Some(Err(NOT_DONE)));
    two.obey(0, Ok(Some(back)));
    two.desks[0].answer(removed(back));
    assert_eq!(two.turn(20), None);
    assert_eq!(two.changes.next_gone(1), None);
    // What goes of itself is.
    two.desks[0].answer(removed(ChangeId(9)));
    assert_eq!(two.turn(30), None);
    assert_eq!(two.changes.next_gone(1), Some(namespace));
}

#[test]
fn what_only_follows_something_else_is_no_change_that_failed() {
    let mut two = two_devices(false);
    let number = |order| {
        let Order::Change { number, .. } = order else { panic!("no change") };
        number
    };
    let [follows, undoes] = [unasked, takes_back].map(|order| number(order(change(AllowedHosts::Any))));
    let mut refused = |number| two.changes.answered((0, 0), number, Err("no such subsystem".to_owned()));
    assert!(refused(follows).is_none());
    assert!(refused(undoes).is_some(), "what stays as it must not is told");
    assert_eq!(two.turn(0), None, "and the change under way goes on");
}
