//! The host and discovery controllers that do not say what it asks for.

use core::time::Duration;
use frwr_nvmf::host::{HostFailure, HostOptions};
use frwr_nvmf::wire::{Command, DISCOVERY_SUBSYSTEM, DiscoveryHeader, Nqn};
use frwr_support::nvmf_harness::host_options;
use frwr_support::nvmf_harness::scripted::{Answer, Asked, Scripted, part};
use zerocopy::IntoBytes;

const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);

fn is_keep_alive(asked: &Asked) -> bool {
    asked.command == Command::KeepAlive
}

fn discovery() -> HostOptions {
    let (like, subsystem) = (host_options(), Nqn::new(DISCOVERY_SUBSYSTEM).unwrap());
    HostOptions::new(like.address, subsystem, like.host).max_attempts(2).step_timeout(SECOND)
}

#[test]
fn a_discovery_controller_is_asked_for_no_persistent_connection_unless_it_is_wanted() {
    for (keep_alive, milliseconds) in [(None, 0), (Some(5 * SECOND), 5000)] {
        let options = discovery().keep_alive(keep_alive.unwrap_or(discovery().keep_alive));
        let mut scripted = Scripted::new("reg_mr", options, |controller| {
            controller.rule = Box::new(|asked| part(DiscoveryHeader::new(1, 0).as_bytes(), asked));
        });
        scripted.tick = MILLISECOND;
        scripted.until("ready", |scripted| scripted.lone.host.is_ready());
        let Command::Connect(connect) = scripted.controller.asked[0].command else { panic!("no Connect") };
        assert_eq!(connect.keep_alive_timeout, milliseconds);
        scripted.steps(10_000);
        let alive = scripted.controller.count(is_keep_alive);
        assert_eq!(alive > 0, milliseconds > 0, "{alive} Keep Alives");
        scripted.finish();
    }
}

#[test]
fn a_discovery_controller_that_stops_answering_is_given_up_whatever_it_was_asked() {
    // The commands of one attempt, the shutdown's included.
    for answered in 0..8 {
        let mut scripted = Scripted::new("reg_mr", discovery(), |controller| {
            let (mut session, mut so_far) = (0, 0);
            controller.rule = Box::new(move |asked| {
                if core::mem::replace(&mut session, asked.session) != asked.session {
                    so_far = 0;
                }
                so_far += 1;
                if so_far > answered {
                    return Some(Answer::Silence);
                }
                part(DiscoveryHeader::new(1, 0).as_bytes(), asked)
            });
        });
        scripted.tick = MILLISECOND;
        for _ in 0..20_000 {
            if scripted.lone.host.is_ready() {
                scripted.lone.host.shut_down();
            }
            scripted.step();
        }
        assert!(scripted.lone.host.is_stopped(), "{answered} commands were answered");
        assert!(scripted.controller.count(|_| true) > answered);
    }
}

#[test]
fn a_discovery_log_that_changes_for_ever_is_given_up() {
    let mut scripted = Scripted::new("reg_mr", discovery(), |controller| {
        let mut generation = 0;
        controller.rule = Box::new(move |asked| {
            generation += 1;
            part(DiscoveryHeader::new(generation, 100).as_bytes(), asked)
        });
    });
    scripted.tick = MILLISECOND;
    scripted.until("given up", |scripted| scripted.lone.host.failure().is_some());
    assert_eq!(scripted.lone.host.failure(), Some(HostFailure::TooManyAttempts));
}
