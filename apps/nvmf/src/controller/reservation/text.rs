//! How reservations are written down: a line for each namespace and each of its registrants, and a last one that says what the others
//! are. Whatever was not written so is refused.

use super::entry::{Entry, Key};
use super::state::{Held, HostId, Registrant, State};
use crate::wire::{Nqn, ReservationType};
use core::fmt::Write as _;

/// The first line: another form has another number.
const HEAD: &str = "frwr reservations 1";

/// What is wrong with a line, and its number from 1.
pub(super) type Wrong = (usize, &'static str);

/// FNV-1a of 64 bits: for what a disk or an editor does to a file, and not for who wants to deceive.
fn checksum(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// All that persists.
pub(super) fn compose(entries: &[Entry]) -> String {
    let mut text = format!("{HEAD}\n");
    for Entry { key, state, .. } in entries.iter().filter(|entry| entry.state.persists) {
        let kind = state.held.map_or(0, |held| held.kind as u8);
        let nguid = u128::from_be_bytes(key.nguid);
        let (name, identifier, generation) = (key.subsystem.as_str(), key.identifier, state.generation);
        // Text takes everything.
        let _ = writeln!(text, "namespace {identifier} {nguid:032x} {generation} {kind} {name}");
        for Registrant { host, key } in &state.registrants {
            let holds = state.held.is_some_and(|held| held.holder == *host);
            let (host, word) = (u128::from_be_bytes(*host), if holds { "holder" } else { "registrant" });
            let _ = writeln!(text, "{word} {host:032x} {key:016x}");
        }
    }
    let sum = checksum(&text);
    let _ = writeln!(text, "end {sum:016x}");
    text
}

/// What was composed.
pub(super) fn parse(text: &str) -> Result<Vec<Entry>, Wrong> {
    let lines = text.matches('\n').count();
    let body = text.strip_suffix('\n').and_then(|text| text.rfind('\n')).map(|at| text.split_at(at + 1));
    let (body, end) = body.ok_or((lines.max(1), "it ends before its last line"))?;
    if end != format!("end {:016x}\n", checksum(body)) {
        return Err((lines, "the last line does not say what the others are"));
    }
    let mut numbered = (1..).zip(body.lines());
    if numbered.next().is_none_or(|(_, line)| line != HEAD) {
        return Err((1, "it is no file of reservations, or one of another version"));
    }
    let mut found: Vec<(Key, State)> = Vec::new();
    for (number, line) in numbered {
        let wrong = |reason| (number, reason);
        match line.split_once(' ') {
            Some(("namespace", rest)) => {
                let new = namespace(rest).ok_or(wrong("it is no namespace"))?;
                if found.iter().any(|(key, _)| *key == new.0) {
                    return Err(wrong("it is there twice"));
                }
                found.push(new);
            }
            Some((word @ ("holder" | "registrant"), rest)) => {
                let (_, state) = found.last_mut().ok_or(wrong("it is of no namespace"))?;
                registrant(state, word == "holder", rest).map_err(wrong)?;
            }
            _ => return Err(wrong("nothing is written so")),
        }
    }
    let has_holder = |state: &State| {
        state.held.is_none_or(|held| {
            !state.registrants.is_empty() && (held.kind.is_held_by_all() || held.holder != HostId::default())
        })
    };
    match found.iter().all(|(_, state)| has_holder(state)) {
        true => Ok(found.into_iter().map(|(key, state)| Entry::new(key, state)).collect()),
        false => Err((lines, "a reservation has no holder")),
    }
}

fn hexadecimal(text: &str, digits: usize) -> Option<u128> {
    let is_plain = text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    is_plain.then(|| u128::from_str_radix(text, 16).ok()).flatten()
}

fn namespace(text: &str) -> Option<(Key, State)> {
    let mut words = text.splitn(5, ' ');
    let identifier = words.next()?.parse().ok()?;
    let nguid = hexadecimal(words.next()?, 32)?.to_be_bytes();
    let generation = words.next()?.parse().ok()?;
    let kind: u8 = words.next()?.parse().ok()?;
    let subsystem = Nqn::new(words.next()?).ok()?;
    let held = match kind {
        0 => None,
        // Who holds it follows.
        kind => Some(Held { kind: ReservationType::from_wire(kind)?, holder: HostId::default() }),
    };
    let state = State { generation, held, persists: true, ..State::default() };
    Some((Key { subsystem, identifier, nguid }, state))
}

fn registrant(state: &mut State, holds: bool, text: &str) -> Result<(), &'static str> {
    let (host, key) = text.split_once(' ').ok_or("it is no registrant")?;
    let (Some(host), Some(key)) = (hexadecimal(host, 32), hexadecimal(key, 16)) else {
        return Err("it is no registrant");
    };
    // 16 digits are 64 bits.
    let (host, key) = (host.to_be_bytes(), key as u64);
    if host == HostId::default() || key == 0 || state.registrants.iter().any(|known| known.host == host) {
        return Err("no host is registered so");
    }
    state.registrants.try_push(Registrant { host, key }).map_err(|_| "there are too many registrants")?;
    match &mut state.held {
        _ if !holds => Ok(()),
        Some(held) if held.holder == HostId::default() => {
            held.holder = host;
            Ok(())
        }
        _ => Err("it cannot be the holder"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::{Entry, Key};
    use super::super::state::{Request, State};
    use super::{compose, parse};
    use crate::wire::{AcquireAction, Nqn, PersistChange, RegisterAction, ReservationType};

    fn entries() -> Vec<Entry> {
        let entry = |(identifier, kind): (u32, Option<ReservationType>)| {
            let mut state = State::default();
            for host in 1..=3 {
                let (action, persist) = (RegisterAction::Register, PersistChange::Set);
                let request = Request::Register { action, ignore_key: false, persist };
                state.apply(&[host; 16], request, (0, u64::from(host)), true).unwrap();
            }
            if let Some(kind) = kind {
                let acquire = Request::Acquire { action: AcquireAction::Acquire, kind };
                state.apply(&[2; 16], acquire, (2, 0), true).unwrap();
            }
            let key = Key { subsystem: Nqn::new("nqn.x").unwrap(), identifier, nguid: [7; 16] };
            Entry::new(key, state)
        };
        let kinds = ReservationType::ALL.map(Some).into_iter().chain([None]);
        (1..).zip(kinds).map(entry).collect()
    }

    fn states(entries: &[Entry]) -> Vec<(Key, State)> {
        entries.iter().map(|entry| (entry.key, entry.state.clone())).collect()
    }

    #[test]
    fn what_is_written_is_read_as_it_was() {
        let all = entries();
        let text = compose(&all);
        assert_eq!(states(&parse(&text).unwrap()), states(&all));
        assert!(parse(&compose(&[])).unwrap().is_empty());
    }

    #[test]
    fn whatever_was_not_written_so_is_refused() {
        let text = compose(&entries());
        for end in 0..text.len() {
            assert!(parse(&text[..end]).is_err(), "cut off at {end}");
        }
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            if let Ok(changed) = String::from_utf8(bytes) {
                assert!(parse(&changed).is_err(), "changed at {at}: {changed}");
            }
        }
        // With a last line that is right.
        let body = "frwr reservations 1\n";
        for line in [
            "namespace 1 07070707070707070707070707070707 0 7 nqn.x",
            "namespace 1 07070707070707070707070707070707 0 1 nqn.x",
            "namespace 1 0 0 0 nqn.x",
            "registrant 00000000000000000000000000000001 0000000000000001",
            "something else",
            "",
        ] {
            let text = format!("{body}{line}\n");
            let sum = super::checksum(&text);
            assert!(parse(&format!("{text}end {sum:016x}\n")).is_err(), "{line}");
        }
    }
}
