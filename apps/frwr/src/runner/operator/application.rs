//! A file that is applied: its changes, one after the other, each as if somebody had typed it.

use super::{super::difference::Step, planned::Asker};
use crate::control::{Call, Failure, PARTLY_DONE};
use serde_json::{Value, json};
use std::collections::VecDeque;

/// What came of what differs.
pub(super) enum Applied {
    /// It was to be shown only.
    Shown(Value),
    /// It is done.
    Begins(Vec<Step>),
}

/// What people are told of steps.
pub(super) fn lines(steps: &[Step]) -> Vec<String> {
    steps.iter().flat_map(Step::lines).collect()
}

/// A file under way.
#[derive(Debug)]
pub(super) struct Application {
    pub(super) asker: Asker,
    /// Steps that are still to be made, the one under way in front.
    left: VecDeque<Step>,
    done: Vec<String>,
    /// What goes on by itself, and why it is not over.
    held_up_by: Vec<Value>,
}

impl Application {
    pub(super) fn new(asker: Asker, steps: Vec<Step>) -> Self {
        Self { asker, left: steps.into(), done: Vec::new(), held_up_by: Vec::new() }
    }

    /// What is said of it first.
    pub(super) fn begins(&self) -> String {
        match self.left.len() {
            0 => "the file is read again: nothing differs".to_owned(),
            count => format!("the file is read again: {count} changes"),
        }
    }

    /// The next step, as a call of its method. `None`: all are made.
    pub(super) fn next_call(&self) -> Option<Call> {
        let (method, parameters) = self.left.front()?.call();
        Some(Call { id: None, method: method.to_owned(), parameters })
    }

    /// What came of the step under way, with what is told of it.
    ///
    /// # Errors
    /// It was not made: what was done before, and what is left.
    pub(super) fn heard(&mut self, result: Result<Value, Failure>) -> Result<Vec<String>, Failure> {
        let told = self.left.front().map(Step::lines).unwrap_or_default();
        let mut result = result.map_err(|failure| self.stopped(&told, &failure))?;
        self.left.pop_front();
        if let Value::Array(by) = result["held_up_by"].take() {
            self.held_up_by.extend(by);
        }
        self.done.extend(told.iter().cloned());
        Ok(told)
    }

    /// What is answered when all is done.
    pub(super) fn answer(self) -> Value {
        let Self { done, held_up_by, .. } = self;
        let mut answer = json!({ "changed": !done.is_empty(), "complete": held_up_by.is_empty(), "changes": done });
        if !held_up_by.is_empty() {
            answer["held_up_by"] = held_up_by.into();
        }
        answer
    }

    fn stopped(&self, told: &[String], failure: &Failure) -> Failure {
        let (at, left) = (told.join(", "), lines(self.left.as_slices().0).len() + lines(self.left.as_slices().1).len());
        let why = failure.message.strip_suffix("; nothing was changed").unwrap_or(&failure.message);
        let (code, done) = match self.done.len() {
            0 => (failure.code, "nothing was changed".to_owned()),
            count => (PARTLY_DONE, format!("{count} changes before it were made: {}", self.done.join(", "))),
        };
        let text = format!(
            "stopped at {at:?}: {why}; {done}; {left} were not, it included; mend it and apply the file again, which does what is left"
        );
        Failure::new(code, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::NOT_DONE;
    use frwr_nvmf::wire::Nqn;

    fn steps() -> Vec<Step> {
        let nqn = |name: &str| Nqn::new(name).unwrap();
        let remove = |name: &str| Step::RemoveSubsystem { nqn: nqn(name), namespaces: 1, first: false };
        vec![remove("nqn.a"), remove("nqn.b"), remove("nqn.c")]
    }

    #[test]
    fn what_holds_a_change_up_is_told_at_the_end_and_the_next_ones_are_made() {
        let mut application = Application::new(Asker::Signal, steps());
        for held_up in [json!([]), json!(["host h"]), Value::Null] {
            assert_eq!(application.next_call().unwrap().method, "remove_subsystem");
            application.heard(Ok(json!({ "changed": true, "held_up_by": held_up }))).unwrap();
        }
        assert!(application.next_call().is_none());
        let answer = application.answer();
        assert_eq!((&answer["complete"], &answer["held_up_by"]), (&json!(false), &json!(["host h"])));
        assert_eq!(answer["changes"].as_array().unwrap().len(), 3);
    }

    #[test]
    fn where_one_fails_it_is_told_what_was_done_and_what_was_not() {
        let failure = || Failure::new(NOT_DONE, "no; nothing was changed");
        let mut application = Application::new(Asker::Signal, steps());
        let first = application.heard(Err(failure())).unwrap_err();
        assert!(first.code == NOT_DONE && first.message.contains("no; nothing was changed; 3 were not"), "{first:?}");
        application.heard(Ok(json!({ "changed": true }))).unwrap();
        let second = application.heard(Err(failure())).unwrap_err();
        assert_eq!(second.code, PARTLY_DONE);
        for part in
            ["nqn.b", ": no; 1 changes before it were made: - subsystem nqn.a", "2 were not", "apply the file again"]
        {
            assert!(second.message.contains(part), "{second:?}");
        }
    }
}
