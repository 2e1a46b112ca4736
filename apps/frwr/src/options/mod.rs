//! Options that several programs take in the same words: a struct for each group of them, which is their command line, and where a file
//! may say the same also their TOML and their JSON. A group has its defaults and limits beside it, and checks them.

mod control;
mod core;
mod device;
mod groups;
mod job;
mod listen;

pub use self::core::{CoreArguments, IdleArgument};
pub use control::{ControlArguments, ControlSocket};
pub use device::{DeviceArguments, RegistrationKind};
pub(crate) use device::{core_list, cores_of, reactors};
pub(crate) use groups::MAX_REQUEST_BYTES;
pub use groups::{BlockArguments, InvalidationArguments, MemoryArguments, OutputArguments, Pages};
pub use job::JobArguments;
pub(crate) use job::{QUEUE_DEPTH, RUNTIME};
pub use listen::Listen;
pub(crate) use listen::{listen_of, texts};

use crate::{
    Error,
    address::{self, Purpose},
};
use clap::{Args, Command, Id};
use std::net::SocketAddr;

/// Numbers that an option takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    option: &'static str,
    least: u64,
    most: u64,
}

impl Limit {
    /// Of the option's name as people write it.
    pub(crate) const fn new(option: &'static str, least: u64, most: u64) -> Self {
        Self { option, least, most }
    }

    /// The largest.
    pub(crate) const fn most(self) -> u64 {
        self.most
    }

    /// A parser of whole numbers. What does not even fit the type is told the limits here, everything else by [`Self::check`].
    pub(crate) fn parser<T: TryFrom<u64>>(self) -> impl Fn(&str) -> Result<T, String> + Clone {
        let Self { least, most, .. } = self;
        move |text| {
            let number = text.parse::<u64>().ok().and_then(|number| T::try_from(number).ok());
            number.ok_or_else(|| format!("must be a whole number from {least} to {most}"))
        }
    }

    /// Refuses what is outside.
    pub(crate) fn check(self, value: impl Into<u64>) -> Result<(), Error> {
        let (Self { option, least, most }, value) = (self, value.into());
        if (least..=most).contains(&value) {
            return Ok(());
        }
        let text = format!("{option} is {value}: must be from {least} to {most}; choose a value inside");
        Err(Error::usage("out_of_range", text))
    }

    /// The same of one that may be left out.
    pub(crate) fn check_said(self, value: Option<impl Into<u64>>) -> Result<(), Error> {
        value.map_or(Ok(()), |value| self.check(value))
    }
}

/// The options of a group, by the names of its fields.
pub(crate) fn names<Group: Args>() -> impl Iterator<Item = Id> {
    let command = Group::augment_args(Command::new(""));
    command.get_arguments().map(|argument| argument.get_id().clone()).collect::<Vec<_>>().into_iter()
}

/// Bytes as people write them: a number, or one with K, M, G or T behind it, for powers of 1024; small letters as fio's users type them.
pub(crate) fn bytes_with_unit(text: &str) -> Option<u64> {
    let unit = text.chars().last()?;
    let shift = match unit.to_ascii_uppercase() {
        'K' => 10,
        'M' => 20,
        'G' => 30,
        'T' => 40,
        '0'..='9' => return text.parse().ok(),
        _ => return None,
    };
    let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
    number.checked_mul(1 << shift)
}

/// The same where there are less than 4 GiB.
pub(crate) fn few_bytes_with_unit(text: &str) -> Option<u32> {
    bytes_with_unit(text).and_then(|bytes| u32::try_from(bytes).ok())
}

/// A parser of addresses; names of hosts are not looked up.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    address::parse(text).map_err(|error| error.to_string())
}

/// Refuses an address that no connection can use.
pub(crate) fn check_address(option: &str, address: SocketAddr, purpose: Purpose) -> Result<(), Error> {
    address::check(address, purpose)
        .map_err(|reason| Error::usage("address", format!("{option} is {address}: {reason}")))
}
