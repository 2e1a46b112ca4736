//! What becomes of changes where cores refuse, stand still or take their time.

use super::*;
use crate::{
    control::TIMED_OUT,
    runner::{
        orders::{Answer, Desk},
        progress::Progress,
    },
};
use frwr_nvmf::{controller::AllowedHosts, wire::Nqn};
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

struct Three {
    orders: Orders,
    desks: Vec<Desk>,
    changes: Changes,
}

impl Three {
    fn new() -> Self {
        let mut orders = Orders::new(&Progress::new(3));
        let desks = (0..3).map(|_| orders.add()).collect();
        let mut changes = Changes::default();
        let step = |core| Step { core, change: wanted(), undo: Some(change(AllowedHosts::Any)) };
        changes.queue(Asker::Application, Planned { steps: [1, 2, 0].map(step).into(), parts: 0, behind: None });
        Self { orders, desks, changes }
    }

    /// Each core says for itself when it has nothing left of it.
    fn in_parts() -> Self {
        let mut three = Self::new();
        three.changes.line[0].became.parts = 3;
        three
    }

    fn turn(&mut self, millis: u64) -> Option<Result<Value, i64>> {
        while let Some((core, answer)) = self.orders.next_answer() {
            match answer {
                Answer::Changed { number, result, .. } => self.changes.answered(core, number, result),
                Answer::Became(event) => self.changes.became(*event),
                Answer::Withdrawn(_) => {}
                Answer::Report { .. } => panic!("nobody asked for a report"),
            }
        }
        let (_, result) = self.changes.turn(Duration::from_millis(millis), &mut self.orders)?;
        Some(result.map_err(|failure| failure.code))
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
    let steps = [Step { core: 1, change: wanted(), undo: None }].into();
    three.changes.queue(Asker::Application, Planned { steps, parts: 0, behind: None });
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
        three.changes.line[0].behind = Some(Behind::Resized(namespace, 1));
        three.desks[0].answer(Answer::Became(Box::new(ChangeEvent::Done { id })));
        assert_eq!(three.turn(21_000).unwrap().unwrap()["complete"], false);
        assert_eq!(three.changes.unfinished.len(), 1);
        three
    };
    let (mut three, id) = (held_up(), ChangeId(8));
    let steps = [Step { core: 0, change: wanted(), undo: None }].into();
    let behind = Some(Behind::Resized(namespace, 2));
    three.changes.queue(Asker::Application, Planned { steps, parts: 0, behind });
    assert_eq!(three.turn(22_000), None);
    three.obey(0, Ok(Some(id)));
    three.desks[0].answer(Answer::Became(Box::new(ChangeEvent::Done { id })));
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
    assert_eq!(three.changes.unfinished.iter().map(|one| one.id).collect::<Vec<_>>(), [id]);
    three.desks[1].answer(Answer::Became(Box::new(ChangeEvent::Done { id })));
    assert_eq!(three.turn(22_000), None);
    assert!(three.changes.unfinished.is_empty());
}
