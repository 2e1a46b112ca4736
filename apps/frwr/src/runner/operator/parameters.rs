//! Parameters of methods: what they are called, and how they are read.

use super::super::whole_number;
use crate::control::{Failure, INVALID_PARAMS};
use frwr_nvmf::wire::Nqn;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Error as _, IntoDeserializer as _, MapAccess, value::MapAccessDeserializer,
};
use serde_json::{Error, Map, Value, map::Iter};

/// Characters of a value that a refusal has.
const SHOWN: usize = 64;

/// A parameter of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// What it takes.
    pub kind: &'static str,
    /// It cannot be left out.
    pub required: bool,
    /// What it says.
    pub about: &'static str,
}

/// Those of a call, all of them known to the method.
pub(super) fn read<T: DeserializeOwned>(parameters: Map<String, Value>) -> Result<T, Failure> {
    let all = EachByName { left: parameters.iter(), now: None };
    T::deserialize(MapAccessDeserializer::new(all)).map_err(|error| {
        Failure::new(INVALID_PARAMS, format!("params: {error}; `frwr ctl --list` says what the method takes"))
    })
}

/// Parameters one by one: what is said of one that is of another kind has its name and its value.
struct EachByName<'de> {
    left: Iter<'de>,
    now: Option<(&'de String, &'de Value)>,
}

impl<'de> MapAccess<'de> for EachByName<'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        self.now = self.left.next();
        self.now.map(|(name, _)| seed.deserialize(name.as_str().into_deserializer())).transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let (name, value) = self.now.take().ok_or_else(|| Error::custom("a value without a name"))?;
        seed.deserialize(value).map_err(|error| {
            let (shown, text): (String, _) = (value.to_string().chars().take(SHOWN).collect(), error.to_string());
            let kind = text.rsplit_once("expected ").map(|(_, kind)| {
                format!("must be {}", whole_number::in_words(kind).unwrap_or_else(|| kind.to_owned()))
            });
            Error::custom(format!("{name} is {shown}: {}", kind.unwrap_or(text)))
        })
    }
}

/// For a method that takes none.
pub(super) fn none(parameters: &Map<String, Value>) -> Result<(), Failure> {
    match parameters.keys().next() {
        None => Ok(()),
        Some(name) => {
            let text = format!("params: {name:?} is unknown, the method takes no parameters; leave it out");
            Err(Failure::new(INVALID_PARAMS, text))
        }
    }
}

/// A name of a subsystem or a host.
pub(super) fn nqn(parameter: &str, text: &str) -> Result<Nqn, Failure> {
    Nqn::new(text).map_err(|reason| Failure::new(INVALID_PARAMS, format!("params: {parameter} is {text:?}: {reason}")))
}
