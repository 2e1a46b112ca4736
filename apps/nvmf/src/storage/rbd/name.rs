//! What an image is called, and how its cluster is reached.

use super::super::percent::{self, Encoded};
use core::{fmt, str::FromStr};
use std::{ffi::OsString, path::PathBuf};

/// What a name begins with.
const SCHEME: &str = "rbd:";

frwr_mempool::options! {
    /// Which image, and how its cluster is reached. [`FromStr`] takes `rbd:POOL/IMAGE`, with what [`RbdNameError`] lists.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct RbdOptions {
        /// Its pool.
        pub pool: String,
        /// The RADOS namespace inside of the pool; empty for none.
        pub namespace: String,
        /// Its name.
        pub image: String,
        /// A snapshot of it, which is only read; `None` for the image itself.
        pub snapshot: Option<String>,
        /// Ceph's configuration file; `None` for what CEPH_ARGS, CEPH_CONF and librados' own places say (`conf=PATH`).
        pub conf: Option<PathBuf>,
        /// The user without `client.` in front; `None` for what CEPH_ARGS says, or `admin` (`id=USER`).
        pub id: Option<String>,
        /// The file with the user's key; `None` for what the configuration says (`keyring=PATH`).
        pub keyring: Option<PathBuf>,
        /// Bytes per block of the namespace, a power of two.
        pub block_bytes: u32,
        /// It is never changed.
        pub read_only: bool,
        /// One of several processes that have it open serves it: the one that has RBD's exclusive lock, which does not move by itself
        /// from who lives (`exclusive=1`; [`RbdMedium::lock`](super::RbdMedium::lock)).
        pub exclusive: bool,
    }
}

impl RbdOptions {
    /// An image that is read and written in blocks of 4096 bytes.
    #[must_use]
    pub fn new(pool: impl Into<String>, image: impl Into<String>) -> Self {
        Self {
            pool: pool.into(),
            namespace: String::new(),
            image: image.into(),
            snapshot: None,
            conf: None,
            id: None,
            keyring: None,
            block_bytes: 4096,
            read_only: false,
            exclusive: false,
        }
    }

    /// Nothing changes it: it was asked for so, or is a snapshot.
    #[must_use]
    pub const fn is_read_only(&self) -> bool {
        self.read_only || self.snapshot.is_some()
    }

    /// Both are the same image, as far as their names say: a write by one changes what the other reads. A snapshot is changed by nobody.
    #[must_use]
    pub fn is_same_image(&self, other: &Self) -> bool {
        let names = |options: &Self| (options.pool.clone(), options.namespace.clone(), options.image.clone());
        let (is_snapshot, cluster) = (self.snapshot.is_some() || other.snapshot.is_some(), self.conf == other.conf);
        !is_snapshot && cluster && names(self) == names(other)
    }

    /// The whole name, with how its cluster is reached: [`FromStr`] makes the same of it, but for the block size and for whether it is
    /// only read.
    #[must_use]
    pub fn name(&self) -> String {
        let path = |path: &PathBuf| path.clone().into_os_string();
        let said = [
            ("conf", self.conf.as_ref().map(path)),
            ("id", self.id.as_ref().map(OsString::from)),
            ("keyring", self.keyring.as_ref().map(path)),
            ("exclusive", self.exclusive.then(|| "1".into())),
        ];
        let of =
            |(name, value): (&str, Option<OsString>)| Some(format!("{name}={}", Encoded(value?.as_encoded_bytes())));
        let said: Vec<_> = said.into_iter().filter_map(of).collect();
        if said.is_empty() { self.to_string() } else { format!("{self}?{}", said.join("&")) }
    }
}

/// As people know it, without how its cluster is reached.
impl fmt::Display for RbdOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/", Part(&self.pool))?;
        if !self.namespace.is_empty() {
            write!(f, "{}/", Part(&self.namespace))?;
        }
        write!(f, "{}", Part(&self.image))?;
        self.snapshot.as_ref().map_or(Ok(()), |snapshot| write!(f, "@{}", Part(snapshot)))
    }
}

/// A part of a name: `/` is between them.
struct Part<'a>(&'a str);

impl fmt::Display for Part<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Encoded(self.0.as_bytes()).to_string().replace('/', "%2F"))
    }
}

/// A name of an image that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RbdNameError {
    /// No pool, no image, or more.
    #[error(
        "{0:?} names no image; say rbd:POOL/IMAGE, rbd:POOL/NAMESPACE/IMAGE, or rbd:POOL/IMAGE@SNAPSHOT, where wanted with \
         ?conf=PATH&id=USER&keyring=PATH&exclusive=1 behind it"
    )]
    Image(String),
    /// A percent sign without two hexadecimal digits behind it, text that is none, or a NUL in it.
    #[error("{0:?} is not percent-encoded text without NUL; write %25 for a percent sign")]
    Encoding(String),
    /// A parameter that means nothing here.
    #[error("parameter {0:?} is not known; there are conf, id, keyring and exclusive")]
    Parameter(String),
    /// A parameter without a value.
    #[error("parameter {0} has no value; say {0}=VALUE, or leave it out")]
    Value(String),
    /// Neither yes nor no.
    #[error("parameter exclusive is {0:?}: must be 0 or 1; say exclusive=1, or leave it out")]
    Exclusive(String),
    /// A snapshot, which nobody writes.
    #[error("exclusive=1 is of images that are written, and a snapshot is not; leave one of them out")]
    ExclusiveSnapshot,
}

/// Whether somebody means the name of an image, a wrong one included.
#[must_use]
pub fn is_rbd_name(text: &str) -> bool {
    text.starts_with(SCHEME)
}

impl FromStr for RbdOptions {
    type Err = RbdNameError;

    fn from_str(text: &str) -> Result<Self, RbdNameError> {
        let wrong = || RbdNameError::Image(text.to_owned());
        let rest = text.strip_prefix(SCHEME).ok_or_else(wrong)?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (place, snapshot) = place.rsplit_once('@').map_or((place, None), |(place, name)| (place, Some(name)));
        let parts: Vec<_> = place.split('/').map(decoded).collect::<Result<_, _>>()?;
        let (pool, namespace, image) = match parts.as_slice() {
            [pool, image] => (pool, "", image),
            [pool, namespace, image] if !namespace.is_empty() => (pool, namespace.as_str(), image),
            _ => return Err(wrong()),
        };
        let snapshot = snapshot.map(decoded).transpose()?;
        if pool.is_empty() || image.is_empty() || snapshot.as_ref().is_some_and(String::is_empty) {
            return Err(wrong());
        }
        let mut options = Self::new(pool, image).namespace(namespace.to_owned()).snapshot(snapshot);
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let value = decoded(value)?;
            if value.is_empty() && matches!(name, "conf" | "id" | "keyring" | "exclusive") {
                return Err(RbdNameError::Value(name.to_owned()));
            }
            match name {
                "conf" => options.conf = Some(value.into()),
                "id" => options.id = Some(value),
                "keyring" => options.keyring = Some(value.into()),
                "exclusive" => {
                    let said = ["0", "1"].iter().position(|one| *one == value);
                    options.exclusive = said.ok_or(RbdNameError::Exclusive(value))? == 1;
                }
                _ => return Err(RbdNameError::Parameter(name.to_owned())),
            }
        }
        if options.exclusive && options.snapshot.is_some() {
            return Err(RbdNameError::ExclusiveSnapshot);
        }
        Ok(options)
    }
}

fn decoded(text: &str) -> Result<String, RbdNameError> {
    let bytes = percent::decoded(text).filter(|bytes| !bytes.contains(&0));
    let decoded = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    decoded.ok_or_else(|| RbdNameError::Encoding(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_cephs_tools() {
        let parsed = |text: &str| text.parse::<RbdOptions>().unwrap();
        assert_eq!(parsed("rbd:pool/image"), RbdOptions::new("pool", "image"));
        let snapshot = RbdOptions::new("pool", "image").namespace("space".to_owned()).snapshot(Some("then".to_owned()));
        assert_eq!(parsed("rbd:pool/space/image@then"), snapshot);
        assert!(snapshot.is_read_only() && !snapshot.is_same_image(&snapshot));
        let reached = parsed("rbd:a/b%20%25%2Fc?conf=/etc/ceph/other.conf&id=disk&keyring=/k%26");
        assert_eq!((reached.image.as_str(), reached.id.as_deref()), ("b %/c", Some("disk")));
        assert_eq!(
            (reached.conf.clone(), reached.keyring.clone()),
            (Some("/etc/ceph/other.conf".into()), Some("/k&".into()))
        );
        for options in [reached.clone(), snapshot, parsed("rbd:a/b?id=x&exclusive=1")] {
            assert_eq!(parsed(&options.name()), options, "{}", options.name());
        }
        assert_eq!(reached.to_string(), "rbd:a/b%20%25%2Fc");
        assert!(parsed("rbd:a/b").is_same_image(&parsed("rbd:a/b?id=x")) && !parsed("rbd:a/b").is_same_image(&reached));
        assert!(is_rbd_name("rbd:a") && !is_rbd_name("/srv/rbd:a") && !is_rbd_name("nbd://a"));
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_a_remedy() {
        for (text, part) in [
            ("nbd://a", "rbd:POOL/IMAGE"),
            ("rbd:image", "rbd:POOL/IMAGE"),
            ("rbd:/image", "names no image"),
            ("rbd:pool/", "names no image"),
            ("rbd:pool//image", "names no image"),
            ("rbd:a/b/c/d", "names no image"),
            ("rbd:pool/image@", "names no image"),
            ("rbd:pool/%2", "%25"),
            ("rbd:pool/%ff", "percent-encoded"),
            ("rbd:pool/a%00", "NUL"),
            ("rbd:pool/a?user=x", "\"user\" is not known"),
            ("rbd:pool/a?id", "id=VALUE"),
            ("rbd:pool/a?exclusive=yes", "must be 0 or 1"),
            ("rbd:pool/a@then?exclusive=1", "leave one of them out"),
        ] {
            let error = text.parse::<RbdOptions>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
