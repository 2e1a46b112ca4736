//! The devices that a target serves by now, each in its place: as many places as there are shares of identifiers, some of them empty.

use super::{served::Served, survey::DeviceFound};
use crate::Error;
use core::task::Waker;
use frwr_mempool::lane;
use frwr_nvmf::controller::Incident;

/// A device whose target is told everything by the main thread alone.
pub(super) struct Device {
    pub(super) control: Box<dyn Served + Send>,
    /// What its cores tell of its peers.
    pub(super) incidents: Vec<lane::Receiver<Incident>>,
}

/// How a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Not all cores have their part of it: until then nobody does anything for it.
    Comes,
    /// All have, and it is asked to listen.
    Begins,
    Serves,
    /// It has failed, and its target is told what is changed all the same.
    Lost,
    /// Its cores give up what they have of it.
    Leaves,
}

struct Place {
    device: Device,
    standing: Standing,
}

/// All places.
#[derive(Default)]
pub(super) struct Places {
    all: Vec<Option<Place>>,
    waker: Option<Waker>,
}

impl Places {
    /// So many, all of them empty.
    pub(super) fn new(count: usize) -> Self {
        Self { all: (0..count).map(|_| None).collect(), waker: None }
    }

    /// How the main thread is woken, from now on.
    pub(super) fn wakes(&mut self, waker: &Waker) {
        self.waker = Some(waker.clone());
        self.served().for_each(|control| control.wakes(waker));
    }

    /// A device serves in this place from the start.
    pub(super) fn seat(&mut self, place: usize, device: Device) {
        self.put(place, Place { device, standing: Standing::Serves });
    }

    /// One comes while the others serve. Nothing is done for it until it [begins](Self::begin).
    pub(super) fn expect(&mut self, place: usize, device: Device) {
        self.put(place, Place { device, standing: Standing::Comes });
    }

    fn put(&mut self, at: usize, place: Place) {
        self.waker.iter().for_each(|waker| place.device.control.wakes(waker));
        if let Some(seat) = self.all.get_mut(at) {
            *seat = Some(place);
        }
    }

    /// All cores have their part of one that came.
    pub(super) fn begin(&mut self, place: usize) {
        self.stand(place, Standing::Begins);
    }

    /// It listens.
    pub(super) fn serve(&mut self, place: usize) {
        self.stand(place, Standing::Serves);
    }

    /// One is not to serve any more.
    pub(super) fn leave(&mut self, place: usize) {
        self.stand(place, Standing::Leaves);
    }

    fn stand(&mut self, place: usize, standing: Standing) {
        self.all.get_mut(place).iter_mut().filter_map(|place| place.as_mut()).for_each(|one| one.standing = standing);
    }

    /// No core has anything of it any more: what is to be closed.
    pub(super) fn take(&mut self, place: usize) -> Option<Device> {
        self.all.get_mut(place)?.take().map(|place| place.device)
    }

    /// What is in the way of a device.
    pub(super) fn trouble_of(&self, place: usize) -> Option<Error> {
        self.all.get(place)?.as_ref()?.device.control.trouble()
    }

    /// What the main thread does for each device, in the order of places.
    pub(super) fn served(&mut self) -> impl Iterator<Item = &mut dyn Served> {
        let all = self.all.iter_mut().flatten().filter(|place| place.standing != Standing::Comes);
        all.map(|place| &mut *place.device.control as &mut dyn Served)
    }

    /// An incident of any of them.
    pub(super) fn next_incident(&mut self) -> Option<Incident> {
        let mut all = self.all.iter_mut().flatten().flat_map(|place| &mut place.device.incidents);
        all.find_map(lane::Receiver::pop)
    }

    /// Why a device that served does so no longer, once for each.
    pub(super) fn next_loss(&mut self) -> Option<Error> {
        let mut serving = self.all.iter_mut().flatten().filter(|place| place.standing == Standing::Serves);
        serving.find_map(|place| {
            let error = place.device.control.trouble()?;
            place.standing = Standing::Lost;
            Some(error)
        })
    }

    /// One serves.
    pub(super) fn has_serving(&self) -> bool {
        self.all.iter().flatten().any(|place| place.standing == Standing::Serves)
    }

    /// What is told of each place.
    pub(super) fn found(&self) -> Vec<Option<DeviceFound>> {
        let found = |place: &Place| {
            let serves = matches!(place.standing, Standing::Serves | Standing::Lost);
            let is_there = place.standing != Standing::Comes;
            is_there.then(|| DeviceFound { control: place.device.control.statistics(), serves })
        };
        self.all.iter().map(|place| place.as_ref().and_then(found)).collect()
    }
}
