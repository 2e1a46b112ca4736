//! Citations that lead nowhere and whose files belong to somebody who has to mend them. Whoever mends one takes its line away; one that is
//! no longer found is told, so that the list ends empty.

use crate::judge::Found;

/// The file, what it cites, and why it is not mended yet.
const EXCEPTIONS: [(&str, &str, &str); 15] = [
    ("apps/frwr/src/runner/host_side.rs", "Z1", "a goal that no document has: say what it asks for"),
    ("engine/src/provider/mod.rs", "Z1", "the same"),
    ("engine/src/provider/soft/port.rs", "Z1", "the same"),
    ("engine/src/mr/error.rs", "table 4.3", "of a specification that is not here: say what holds, or name the id"),
    ("engine/src/mr/mod.rs", "section 4.1", "the same"),
    ("engine/src/mr/small_domain/mod.rs", "section 4.1", "the same"),
    ("engine/src/mr/state.rs", "section 4.1", "the same"),
    ("engine/src/options.rs", "table 2", "the same"),
    ("engine/src/sizing/formula.rs", "section 1.A", "the same"),
    ("engine/tests/engine_answers.rs", "section 1.F", "the same"),
    ("engine/tests/engine_signalling.rs", "section 1.D", "the same"),
    ("engine/tests/ids_gather.rs", "table 1.C.1", "the same"),
    ("engine/tests/ids_mr/model.rs", "section 4.1", "the same"),
    ("engine/tests/ids_mr/refusals.rs", "table 4.3", "the same"),
    ("engine/tests/ids_sizing_examples.rs", "section 1.A.1", "the same"),
];

/// What is told, a line each, and how many are excepted.
pub(crate) fn sorted(found: Vec<Found>) -> (Vec<String>, usize) {
    let excepts =
        |found: &Found| EXCEPTIONS.iter().any(|(file, cited, _)| found.file == *file && found.cited == *cited);
    let (owed, told): (Vec<_>, Vec<_>) = found.into_iter().partition(excepts);
    let idle = EXCEPTIONS
        .iter()
        .filter(|(file, cited, _)| !owed.iter().any(|found| found.file == *file && found.cited == *cited));
    let idle =
        idle.map(|(file, cited, _)| format!("tests/citations/src/exceptions.rs: {file} no longer cites {cited}"));
    (told.iter().map(Found::to_string).chain(idle).collect(), owed.len())
}
