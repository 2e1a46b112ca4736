//! Devices that come with their listeners, and go with them; listeners of those that stay are no business of theirs.

use super::{super::serve_command::is_called, Step, overlap};
use crate::options::Listen;

/// Devices by their names, and where they listen.
#[derive(Clone, Debug)]
pub(in super::super) struct Listening {
    pub(in super::super) devices: Vec<String>,
    pub(in super::super) listen: Vec<Listen>,
}

impl Listening {
    fn has(&self, device: &str) -> bool {
        self.devices.iter().any(|own| is_called(own, device))
    }

    /// Those that the other one has not.
    fn beside<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a String> {
        self.devices.iter().filter(|device| !other.has(device))
    }

    /// The same with the device in front of each address, which says none where there is only one.
    fn named(&self) -> Self {
        let only = self.devices.first();
        let named = |one: &Listen| Listen { device: one.device.as_ref().or(only).cloned(), address: one.address };
        Self { listen: self.listen.iter().map(named).collect(), ..self.clone() }
    }

    /// Where one of them listens.
    fn of<'a>(&'a self, device: &'a str) -> impl Iterator<Item = &'a Listen> {
        self.listen.iter().filter(move |one| one.device.as_deref().is_some_and(|of| is_called(of, device)))
    }

    /// Listeners of those that the other one has, too.
    fn of_both(&self, other: &Self) -> Vec<Listen> {
        let stays = |one: &&Listen| one.device.as_ref().is_none_or(|device| other.has(device));
        self.listen.iter().filter(stays).cloned().collect()
    }
}

/// Devices that come and go, and what listeners there are beside, and are to be.
pub(in super::super) fn devices(present: &Listening, wanted: &Listening) -> (Vec<Step>, [Vec<Listen>; 2]) {
    if present.beside(wanted).chain(wanted.beside(present)).next().is_none() {
        return (Vec::new(), [present.listen.clone(), wanted.listen.clone()]);
    }
    let (present, wanted) = (present.named(), wanted.named());
    let comes = |device: &String| Step::AddDevice {
        device: device.clone(),
        listen: wanted.of(device).map(|one| one.address).collect(),
    };
    // What goes makes room for who listens there now, where that is of another device.
    let is_first = |device: &str| {
        let news = || wanted.listen.iter().filter(|one| !present.listen.contains(one));
        present.of(device).any(|one| news().any(|other| overlap(one.address, other.address)))
    };
    let goes = |device: &String| Step::RemoveDevice { device: device.clone(), first: is_first(device) };
    let steps = wanted.beside(&present).map(comes).chain(present.beside(&wanted).map(goes)).collect();
    (steps, [present.of_both(&wanted), wanted.of_both(&present)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listening(devices: &[&str], listen: &[&str]) -> Listening {
        let (devices, listen) = (devices.iter().copied(), listen.iter().map(|text| text.parse().unwrap()));
        Listening { devices: devices.map(str::to_owned).collect(), listen: listen.collect() }
    }

    fn lines(present: &Listening, wanted: &Listening) -> Vec<String> {
        devices(present, wanted).0.iter().flat_map(Step::lines).collect()
    }

    const A: &str = "10.0.0.1:4420";
    const B: &str = "10.0.0.2:4420";

    #[test]
    fn what_is_the_same_is_no_change_whatever_it_is_called() {
        let (present, wanted) = (listening(&["soft"], &[A]), listening(&["soft:reg_mr"], &[A, B]));
        let (steps, [left, wanted]) = devices(&present, &wanted);
        assert!(steps.is_empty() && left == present.listen && wanted.len() == 2);
    }

    #[test]
    fn a_device_comes_and_goes_with_its_listeners_and_those_of_others_stay() {
        let one = listening(&["a"], &[A]);
        let two = listening(&["a", "b"], &[&format!("a/{A}"), &format!("b/{B}")]);
        assert_eq!(lines(&one, &two), [format!("+ device b, at {B}")]);
        let (_, [left, right]) = devices(&one, &two);
        assert_eq!(left, right, "a is named where there are two");
        assert_eq!(lines(&two, &one), ["- device b"]);
    }

    #[test]
    fn who_is_in_the_way_goes_first() {
        let present = listening(&["a", "b"], &[&format!("a/{A}"), &format!("b/{B}")]);
        for (wanted, first) in [(B, true), ("10.0.0.3:4420", false), ("0.0.0.0:4420", true)] {
            let wanted = listening(&["a", "c"], &[&format!("a/{A}"), &format!("c/{wanted}")]);
            let (steps, _) = devices(&present, &wanted);
            let goes = steps.iter().find_map(|step| match step {
                Step::RemoveDevice { first, .. } => Some(*first),
                _ => None,
            });
            assert_eq!(goes, Some(first));
        }
    }
}
