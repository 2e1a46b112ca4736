//! Who listens where, among the processes of a user.

use super::middleman::connected;
use super::{Place, device};
use crate::harness::pair::Pair;
use crate::harness::soft::ADDRESS;
use crate::harness::{Host, SIZES};
use frwr_engine::provider::soft::{RendezvousError, SoftDevice, SoftFabric, SoftOptions};
use frwr_engine::provider::{Answer, Command, CommandError, ConnectionEvent, Errno};
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

fn host(directory: &Path) -> Host<SoftDevice> {
    Host::new(device(directory, SoftOptions::default()))
}

fn listen(host: &mut Host<SoftDevice>, address: SocketAddr) -> Result<Answer, CommandError> {
    host.command(Command::Listen { address })
}

/// Whether a host is heard by another one, at an address as it calls it.
fn is_heard(asking: &mut Host<SoftDevice>, asked: &mut Host<SoftDevice>, address: SocketAddr) -> bool {
    let queue_pair = asking.queue_pair(SIZES);
    asking.connect(queue_pair, address, Default::default());
    for _ in 0..50 {
        asked.step();
        asking.step();
    }
    let local = asked.connection_events().into_iter().find_map(|event| match event {
        ConnectionEvent::Request { local, .. } => Some(local),
        _ => None,
    });
    let is_refused = asking.connection_events().iter().any(|event| matches!(event, ConnectionEvent::Rejected { .. }));
    assert_ne!(local.is_some(), is_refused);
    assert!(local.is_none_or(|local| local == Some(address)), "as the asking one called it");
    local.is_some()
}

#[test]
fn an_address_is_one_process_s_until_that_is_done_with_it() {
    let place = Place::new();
    let directory = place.directory("nics");
    let (mut first, mut second) = (host(&directory), host(&directory));
    let Ok(Answer::Listener(listener)) = listen(&mut first, ADDRESS) else { panic!("a free address") };
    assert_eq!(listen(&mut second, ADDRESS), Err(CommandError::Address(Errno::EADDRINUSE)));
    assert!(is_heard(&mut second, &mut first, ADDRESS));
    first.command(Command::StopListening { listener }).expect("stopped");
    assert!(!is_heard(&mut second, &mut first, ADDRESS));
    assert!(matches!(listen(&mut second, ADDRESS), Ok(Answer::Listener(_))));
    assert!(is_heard(&mut first, &mut second, ADDRESS));
    // A process that goes gives it back, and leaves nothing behind.
    drop(second);
    assert_eq!(fs::read_dir(&directory).expect("there").count(), 0);
    assert!(matches!(listen(&mut first, ADDRESS), Ok(Answer::Listener(_))));
}

/// A process that is killed deletes nothing.
#[test]
fn what_a_killed_process_leaves_keeps_nobody_from_an_address() {
    let place = Place::new();
    let directory = place.directory("nics");
    let mut first = host(&directory);
    assert!(listen(&mut first, ADDRESS).is_ok());
    let left = [ADDRESS.to_string(), format!("{ADDRESS}.lock")].map(|name| directory.join(name));
    let kept = left.each_ref().map(|path| path.with_extension("kept"));
    left.iter().zip(&kept).for_each(|(path, kept)| fs::rename(path, kept).expect("there"));
    drop(first);
    kept.iter().zip(&left).for_each(|(kept, path)| fs::rename(kept, path).expect("there"));
    let (mut second, mut third) = (host(&directory), host(&directory));
    assert!(!is_heard(&mut third, &mut second, ADDRESS), "nobody listens at what is left");
    assert!(listen(&mut second, ADDRESS).is_ok());
    assert!(is_heard(&mut third, &mut second, ADDRESS));
}

#[test]
fn all_addresses_of_a_family_are_one_address() {
    let place = Place::new();
    let directory = place.directory("nics");
    let (mut asked, mut asking) = (host(&directory), host(&directory));
    let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
    assert!(listen(&mut asked, address("0.0.0.0:4420")).is_ok());
    assert!(is_heard(&mut asking, &mut asked, address("192.0.2.7:4420")));
    assert!(!is_heard(&mut asking, &mut asked, address("192.0.2.7:4421")));
    assert!(!is_heard(&mut asking, &mut asked, address("[2001:db8::7]:4420")));
    let longest = address("[2001:db8:ffff:ffff:ffff:ffff:ffff:ffff%4294967295]:65535");
    assert!(listen(&mut asked, longest).is_ok());
    assert!(is_heard(&mut asking, &mut asked, longest));
}

#[test]
fn a_directory_that_others_may_use_is_refused_with_the_remedy() {
    let place = Place::new();
    let refused = |path: &Path| SoftFabric::between_processes(path).expect_err("refused");
    let open = place.directory("open");
    fs::create_dir(&open).expect("made");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o770)).expect("set");
    let link = place.directory("link");
    fs::create_dir(place.directory("own")).expect("made");
    fs::set_permissions(place.directory("own"), fs::Permissions::from_mode(0o700)).expect("set");
    symlink(place.directory("own"), &link).expect("made");
    let file = place.directory("file");
    fs::write(&file, "").expect("made");
    for path in [&open, &link, &file] {
        let error = refused(path);
        assert!(matches!(error, RendezvousError::NotPrivate { .. }), "{error}");
        assert!(error.to_string().contains("XDG_RUNTIME_DIR"), "{error}");
    }
    assert!(matches!(refused(&place.directory("no/where")), RendezvousError::NotMade { .. }));
    let long = place.directory(&"d".repeat(100));
    let error = refused(&long);
    assert!(matches!(error, RendezvousError::TooLong { .. }) && error.to_string().contains("at most 48"), "{error}");
    assert!(SoftFabric::between_processes(&place.directory("own")).is_ok());
}

/// Processes that connect and never say what they want keep nobody from a device, and cost it little.
#[test]
fn those_who_say_nothing_are_forgotten() {
    let place = Place::new();
    let directory = place.directory("nics");
    let options = SoftOptions::default();
    let mut pair = Pair::new(device(&directory, options), device(&directory, options), ADDRESS);
    let silent: Vec<_> = (0..200)
        .map(|_| {
            pair.step();
            connected(&directory, &ADDRESS.to_string())
        })
        .collect();
    pair.settle();
    let alive = silent.iter().filter(|socket| super::middleman::say(socket, b"x", &[])).count();
    assert!((1..=64).contains(&alive), "{alive} of 200");
    pair.connect();
}
