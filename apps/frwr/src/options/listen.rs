//! Where a target listens, as people write it.

use super::address;
use core::{fmt, str::FromStr};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::net::SocketAddr;

/// What stands between a device and an address of it. Names of devices and addresses have none.
const OF: char = '/';

/// An address to listen at, and the device whose address it is where a target has several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The device's name, as `--device` has it; `None` where there is one.
    pub device: Option<String>,
    /// The address.
    pub address: SocketAddr,
}

impl From<SocketAddr> for Listen {
    /// Of the only device.
    fn from(address: SocketAddr) -> Self {
        Self { device: None, address }
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (device, at) = text.split_once(OF).map_or((None, text), |(device, at)| (Some(device), at));
        if device == Some("") {
            return Err(format!("names no device in front of {OF}: name one, or leave {OF} out"));
        }
        Ok(Self { device: device.map(str::to_owned), address: address(at)? })
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.device {
            Some(device) => write!(f, "{device}{OF}{}", self.address),
            None => self.address.fmt(f),
        }
    }
}

impl Serialize for Listen {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A text, or a list of such; `what` they are is said of anything else.
pub(crate) fn texts<'de, D: Deserializer<'de>>(deserializer: D, what: &str) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        One(String),
        Several(Vec<String>),
    }
    match Written::deserialize(deserializer) {
        Ok(Written::One(text)) => Ok(vec![text]),
        Ok(Written::Several(texts)) => Ok(texts),
        Err(_) => Err(D::Error::custom(format!("must be {what}, or a list of such"))),
    }
}

/// What `--listen` takes, or a list of it.
pub(crate) fn listen_of<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Listen>, D::Error> {
    let all = texts(deserializer, "an IP address and a port such as \"10.0.0.1:4420\"")?;
    all.iter().map(|text| text.parse().map_err(D::Error::custom)).collect()
}

/// Names of devices as files have them: one by itself, several as a list.
pub(super) mod devices {
    use super::{Deserializer, Serialize, Serializer, texts};

    pub(in super::super) fn serialize<S: Serializer>(devices: &[String], serializer: S) -> Result<S::Ok, S::Error> {
        match devices {
            [] => serializer.serialize_none(),
            [one] => serializer.serialize_str(one),
            several => several.serialize(serializer),
        }
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
        texts(deserializer, "the name of a device such as \"mlx5_0\"")
    }
}

#[cfg(test)]
mod tests {
    use super::Listen;

    #[test]
    fn a_device_stands_in_front_of_its_address() {
        for (text, device, address) in [
            ("10.0.0.1:4420", None, "10.0.0.1:4420"),
            ("mlx5_0/10.0.0.1:4420", Some("mlx5_0"), "10.0.0.1:4420"),
            ("soft:umr:fixed-key@b/[fd00::1]:4420", Some("soft:umr:fixed-key@b"), "[fd00::1]:4420"),
        ] {
            let parsed: Listen = text.parse().unwrap();
            assert_eq!((parsed.device.as_deref(), parsed.address.to_string().as_str()), (device, address));
            assert_eq!(parsed.to_string(), text);
        }
        for (text, part) in [("/10.0.0.1:4420", "no device"), ("a/b/10.0.0.1:4420", "IP address"), ("a", "IP address")]
        {
            assert!(text.parse::<Listen>().unwrap_err().contains(part), "{text}");
        }
    }
}
