//! The examples, as their programs run them: each verifies its data.

#[path = "../examples/foreign_loop.rs"]
mod foreign_loop;
#[path = "../examples/requester_and_responder.rs"]
mod requester_and_responder;

#[test]
fn a_plain_loop_runs_both_ends() {
    foreign_loop::main().unwrap();
}

#[test]
fn both_ends_of_a_connection_call_each_other() {
    requester_and_responder::main().unwrap();
}
