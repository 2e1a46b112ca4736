//! Which address has which of the places that a load has for paths, when paths come and go.
//!
//! A place is ordered to lead to an address, then to be given up, and has another address only when each core has said that it is
//! vacant: what a core says of a place is so always of the address that the main thread knows for it.

use super::path_log::PathOrder;
use frwr_nvmf::host::MAX_PATHS;
use std::net::SocketAddr;

/// A place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// It never led anywhere.
    Unused,
    /// Cores try it.
    Wanted(SocketAddr),
    /// It is not listed, and so many cores have not said that it is vacant.
    Leaving(SocketAddr, usize),
    /// It led there.
    Vacant(SocketAddr),
}

impl Place {
    /// Whose it is.
    fn taken_by(self) -> Option<SocketAddr> {
        match self {
            Self::Wanted(address) | Self::Leaving(address, _) => Some(address),
            Self::Unused | Self::Vacant(_) => None,
        }
    }
}

/// All of them, and what is listed.
#[derive(Debug, Default)]
pub(super) struct PathPlaces {
    places: Vec<Place>,
    listed: Vec<SocketAddr>,
    /// An address without a place, and that it was told.
    without: Option<(SocketAddr, bool)>,
}

impl PathPlaces {
    /// The first lead to these addresses.
    pub(super) fn new(addresses: &[SocketAddr], places: usize) -> Self {
        let mut all: Vec<_> = addresses.iter().copied().map(Place::Wanted).collect();
        all.resize(places.clamp(addresses.len(), MAX_PATHS.max(addresses.len())), Place::Unused);
        Self { places: all, listed: addresses.to_vec(), without: None }
    }

    /// Where a path leads, or led last.
    pub(super) fn address(&self, path: u16) -> Option<SocketAddr> {
        match *self.places.get(usize::from(path))? {
            Place::Unused => None,
            Place::Wanted(address) | Place::Leaving(address, _) | Place::Vacant(address) => Some(address),
        }
    }

    /// These are listed by now. Returns those that were not before, and those that were.
    pub(super) fn list(&mut self, listed: &[SocketAddr]) -> Vec<SocketAddr> {
        let before = core::mem::replace(&mut self.listed, listed.to_vec());
        let gone = before.iter().filter(|address| !listed.contains(address));
        let come = listed.iter().filter(|address| !before.contains(address));
        gone.chain(come).copied().collect()
    }

    /// A core has said that a place is vacant.
    pub(super) fn vacated(&mut self, path: u16) {
        let Some(place) = self.places.get_mut(usize::from(path)) else { return };
        if let Place::Leaving(address, left) = *place {
            *place = if left > 1 { Place::Leaving(address, left - 1) } else { Place::Vacant(address) };
        }
    }

    /// What so many cores are to do next: places of what is not listed are given up, and what is listed gets one.
    pub(super) fn next_order(&mut self, cores: usize) -> Option<PathOrder> {
        self.give_up(cores).or_else(|| self.take())
    }

    fn give_up(&mut self, cores: usize) -> Option<PathOrder> {
        let listed = &self.listed;
        let is_gone = |place: &Place| matches!(place, Place::Wanted(address) if !listed.contains(address));
        let path = self.places.iter().position(is_gone)?;
        if let Place::Wanted(address) = self.places[path] {
            self.places[path] = Place::Leaving(address, cores);
        }
        Some(PathOrder { path: path as u16, to: None })
    }

    /// Its own former place is best, since counters go on there; then one that nobody had.
    fn take(&mut self) -> Option<PathOrder> {
        let has_place = |address: &&SocketAddr| self.places.iter().any(|place| place.taken_by() == Some(**address));
        let Some(address) = self.listed.iter().find(|address| !has_place(address)).copied() else {
            self.without = None;
            return None;
        };
        let at = |wanted: Place| self.places.iter().position(|place| *place == wanted);
        let free = at(Place::Vacant(address)).or_else(|| at(Place::Unused));
        let Some(path) = free.or_else(|| self.places.iter().position(|place| place.taken_by().is_none())) else {
            let told = self.without.is_some_and(|(before, told)| told && before == address);
            self.without = Some((address, told));
            return None;
        };
        self.places[path] = Place::Wanted(address);
        Some(PathOrder { path: path as u16, to: Some(address) })
    }

    /// A listed address for which there is no place, once.
    pub(super) fn takes_no_more(&mut self) -> Option<SocketAddr> {
        let (address, told) = self.without.as_mut()?;
        (!core::mem::replace(told, true)).then_some(*address)
    }
}

#[cfg(test)]
mod tests {
    use super::{PathOrder, PathPlaces};
    use frwr_nvmf::host::MAX_PATHS;
    use std::net::SocketAddr;

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], port))
    }

    fn orders(places: &mut PathPlaces) -> Vec<(u16, Option<u16>)> {
        let orders = core::iter::from_fn(|| places.next_order(2));
        orders.map(|PathOrder { path, to }| (path, to.map(|address| address.port()))).collect()
    }

    #[test]
    fn what_comes_gets_a_place_and_what_goes_leaves_it_when_each_core_has() {
        let mut places = PathPlaces::new(&[at(1), at(2)], 4);
        assert_eq!(orders(&mut places), []);
        assert_eq!(places.list(&[at(2), at(3)]), [at(1), at(3)]);
        assert_eq!(orders(&mut places), [(0, None), (2, Some(3))]);
        // Listed again before it is vacant everywhere: it is used as long as it lasts, and tried anew behind that.
        assert_eq!(places.list(&[at(1), at(2), at(3)]), [at(1)]);
        places.vacated(0);
        assert_eq!((orders(&mut places), places.address(0)), (vec![], Some(at(1))));
        places.vacated(0);
        assert_eq!(orders(&mut places), [(0, Some(1))]);
        assert_eq!((places.list(&[at(1), at(2), at(3)]), orders(&mut places)), (vec![], vec![]));
        assert_eq!(places.address(3), None);
    }

    #[test]
    fn an_address_has_its_former_place_and_others_one_that_nobody_had() {
        let mut places = PathPlaces::new(&[at(1)], 3);
        places.list(&[]);
        assert_eq!(orders(&mut places), [(0, None)]);
        (0..2).for_each(|_| places.vacated(0));
        places.list(&[at(4), at(5), at(1)]);
        assert_eq!(orders(&mut places), [(1, Some(4)), (2, Some(5)), (0, Some(1))]);
    }

    #[test]
    fn one_too_many_is_told_once_and_taken_when_there_is_room() {
        let all: Vec<_> = (0..=MAX_PATHS as u16).map(at).collect();
        let mut places = PathPlaces::new(&all[..1], MAX_PATHS);
        places.list(&all);
        assert_eq!(orders(&mut places).len(), MAX_PATHS - 1);
        assert_eq!((places.takes_no_more(), places.takes_no_more()), (Some(all[MAX_PATHS]), None));
        assert_eq!((orders(&mut places), places.takes_no_more()), (vec![], None));
        places.list(&all[1..]);
        assert_eq!(orders(&mut places), [(0, None)]);
        (0..2).for_each(|_| places.vacated(0));
        assert_eq!(orders(&mut places), [(0, Some(MAX_PATHS as u16))]);
    }
}
