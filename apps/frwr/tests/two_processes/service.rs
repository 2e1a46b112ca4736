//! What systemd hears of a target that it started.

use super::program::{Machine, passed};
use std::os::unix::net::UnixDatagram;

/// The manager of services: what it is told, message by message.
struct Manager(UnixDatagram);

impl Manager {
    fn hears(&self) -> String {
        let mut message = [0; 4096];
        let length = self.0.recv(&mut message).unwrap();
        String::from_utf8(message[..length].to_vec()).unwrap()
    }

    /// The next message with this line in it.
    fn hears_of(&self, line: &str) -> String {
        loop {
            let message = self.hears();
            if message.lines().any(|told| told == line) {
                return message;
            }
        }
    }
}

#[test]
fn a_service_is_ready_when_it_listens_goes_on_and_stops() {
    let machine = Machine::new();
    let (file, socket) = (machine.file("file"), machine.path("notify"));
    let manager = Manager(UnixDatagram::bind(&socket).unwrap());
    let arguments = ["serve", "--device", "soft", "--listen", "127.0.0.1:4420", "--namespace", &file];
    let more = ["--cores", "unpinned:2", "--pages", "plain", "--json"];
    let environment = [("NOTIFY_SOCKET", socket.to_str().unwrap()), ("WATCHDOG_USEC", "300000")];
    let target = machine.start_in(&[&arguments[..], &more].concat(), &environment);
    let ready = manager.hears();
    assert!(ready.starts_with("READY=1\nSTATUS=listening on 127.0.0.1:4420"), "{ready}");
    for _ in 0..3 {
        manager.hears_of("WATCHDOG=1");
    }
    target.signal("TERM");
    manager.hears_of("STOPPING=1");
    passed(target.ended());
}
