//! NBD URIs (the NBD project's document on them): where an export is, and how it is used.

use super::super::percent::{self, Encoded};
use super::wire::MAX_TEXT_BYTES;
use core::{fmt, str::FromStr, time::Duration};
use std::path::PathBuf;

/// NBD's port (there, authority).
const DEFAULT_PORT: u16 = 10809;
/// Connections of one core to one export at most: more have never made a server faster, and servers limit theirs.
pub const MAX_NBD_CONNECTIONS: u8 = 16;
/// How long requests wait for a server that is gone, unless it is said.
const DEFAULT_PATIENCE: Duration = Duration::from_secs(60);
/// The longest that anybody may ask for.
const MAX_PATIENCE_SECONDS: u32 = 24 * 60 * 60;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdAddress {
    /// TCP: a name or an address, and a port. Names are resolved once, when the export is opened.
    Tcp {
        /// Name or address, an IPv6 address without brackets.
        host: String,
        /// Port.
        port: u16,
    },
    /// A Unix domain socket. A name that begins with a NUL byte is one of the abstract namespace.
    Unix(PathBuf),
}

frwr_mempool::options! {
    /// Which export, and how it is used. [`FromStr`] takes an NBD URI.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct NbdOptions {
        /// Where its server is.
        pub address: NbdAddress,
        /// Its name, 4096 bytes at most; empty for the server's default.
        pub export: String,
        /// Connections of each core, from 1 to [`MAX_NBD_CONNECTIONS`] (`x-connections=N`).
        pub connections: u8,
        /// Each change is durable when it has completed: FUA is asked for with every one (`x-write-through=1`).
        pub write_through: bool,
        /// How long requests wait for a server that is gone, before they fail (`x-patience=SECONDS`).
        pub patience: Duration,
        /// Bytes per block of the namespace, a power of two.
        pub block_bytes: u32,
        /// It is never changed.
        pub read_only: bool,
    }
}

impl NbdOptions {
    /// An export that is read and written in blocks of 4096 bytes, by one connection of each core.
    #[must_use]
    pub fn new(address: NbdAddress, export: impl Into<String>) -> Self {
        Self {
            address,
            export: export.into(),
            connections: 1,
            write_through: false,
            patience: DEFAULT_PATIENCE,
            block_bytes: 4096,
            read_only: false,
        }
    }

    /// Both are the same export, as far as their names say: a write by one changes what the other reads.
    #[must_use]
    pub fn is_same_export(&self, other: &Self) -> bool {
        self.address == other.address && self.export == other.export
    }

    /// The whole URI, with how it is used where that is not as usual: [`FromStr`] makes the same of it, but for the block size and for
    /// whether it is only read.
    #[must_use]
    pub fn uri(&self) -> String {
        let usual = Self::new(self.address.clone(), "");
        let mut said = Vec::new();
        if self.connections != usual.connections {
            said.push(format!("x-connections={}", self.connections));
        }
        if self.write_through {
            said.push("x-write-through=1".to_owned());
        }
        if self.patience != usual.patience {
            said.push(format!("x-patience={}", self.patience.as_secs()));
        }
        let (all, said) = (self.to_string(), said.join("&"));
        match (said.is_empty(), &self.address) {
            (true, _) => all,
            (false, NbdAddress::Tcp { .. }) => format!("{all}?{said}"),
            (false, NbdAddress::Unix(_)) => format!("{all}&{said}"),
        }
    }
}

/// As people know it, without how it is used.
impl fmt::Display for NbdOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let export = Encoded(self.export.as_bytes());
        match &self.address {
            NbdAddress::Tcp { host, port } if host.contains(':') => write!(f, "nbd://[{host}]:{port}/{export}"),
            NbdAddress::Tcp { host, port } => write!(f, "nbd://{host}:{port}/{export}"),
            NbdAddress::Unix(path) => {
                write!(f, "nbd+unix:///{export}?socket={}", Encoded(path.as_os_str().as_encoded_bytes()))
            }
        }
    }
}

/// An NBD URI that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NbdUriError {
    /// Another scheme.
    #[error("{0:?} is no NBD URI; say nbd://HOST:PORT/EXPORT or nbd+unix:///EXPORT?socket=PATH")]
    Scheme(String),
    /// TLS.
    #[error(
        "{0:?} asks for TLS, which is not there; use nbd: or nbd+unix: over a network that you trust, or through a tunnel \
         (stunnel, WireGuard)"
    )]
    Tls(String),
    /// TCP without a host, or a port that is none.
    #[error("{0:?} names no server; say nbd://HOST:PORT/EXPORT, an IPv6 address in brackets, a port from 1 to 65535")]
    Authority(String),
    /// A Unix domain socket without its path, or with a server beside it.
    #[error("{0:?} names no socket; say nbd+unix:///EXPORT?socket=PATH, with three slashes")]
    Socket(String),
    /// A percent sign without two hexadecimal digits behind it, or text that is none.
    #[error("{0:?} is not percent-encoded text; write %25 for a percent sign")]
    Encoding(String),
    /// A name that is too long, or has a NUL in it.
    #[error("an export name of {bytes} bytes: must be at most {MAX_TEXT_BYTES}, without NUL; choose another one")]
    Export {
        /// Its bytes.
        bytes: usize,
    },
    /// A parameter that means nothing here.
    #[error("parameter {0:?} is not known; there are socket, x-connections, x-write-through and x-patience")]
    Parameter(String),
    /// A parameter that is out of range.
    #[error("{name} is {value:?}: must be from {least} to {most}; choose a value inside")]
    Range {
        /// Its name.
        name: &'static str,
        /// What was said.
        value: String,
        /// Least value.
        least: u32,
        /// Largest value.
        most: u32,
    },
}

/// Whether somebody means an NBD URI, a wrong one or one of TLS included.
#[must_use]
pub fn is_nbd_uri(text: &str) -> bool {
    text.split_once(':').is_some_and(|(scheme, _)| matches!(scheme, "nbd" | "nbds" | "nbd+unix" | "nbds+unix"))
}

impl FromStr for NbdOptions {
    type Err = NbdUriError;

    fn from_str(text: &str) -> Result<Self, NbdUriError> {
        let whole = || text.to_owned();
        let (scheme, rest) = text.split_once("://").ok_or_else(|| NbdUriError::Scheme(whole()))?;
        if matches!(scheme, "nbds" | "nbds+unix") {
            return Err(NbdUriError::Tls(whole()));
        }
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, export) = place.split_once('/').unwrap_or((place, ""));
        let export = String::from_utf8(decoded(export)?).map_err(|_| NbdUriError::Encoding(whole()))?;
        if export.len() > MAX_TEXT_BYTES || export.contains('\0') {
            return Err(NbdUriError::Export { bytes: export.len() });
        }
        let parameters = query.split('&').filter(|parameter| !parameter.is_empty());
        let mut socket = None;
        let mut options = Self::new(NbdAddress::Unix(PathBuf::new()), export);
        for parameter in parameters {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            match name {
                "socket" => socket = Some(decoded(value)?),
                "x-connections" => {
                    options.connections = number("x-connections", value, 1, MAX_NBD_CONNECTIONS.into())? as u8;
                }
                "x-write-through" => options.write_through = number("x-write-through", value, 0, 1)? == 1,
                "x-patience" => {
                    let seconds = number("x-patience", value, 0, MAX_PATIENCE_SECONDS)?;
                    options.patience = Duration::from_secs(seconds.into());
                }
                _ if name.starts_with("tls-") => return Err(NbdUriError::Tls(whole())),
                _ => return Err(NbdUriError::Parameter(name.to_owned())),
            }
        }
        options.address = match (scheme, socket) {
            ("nbd", None) => tcp(authority).ok_or_else(|| NbdUriError::Authority(whole()))?,
            ("nbd+unix", Some(path)) if authority.is_empty() && !path.is_empty() => unix(path),
            ("nbd+unix", _) => return Err(NbdUriError::Socket(whole())),
            ("nbd", Some(_)) => return Err(NbdUriError::Parameter("socket".to_owned())),
            _ => return Err(NbdUriError::Scheme(whole())),
        };
        Ok(options)
    }
}

fn unix(path: Vec<u8>) -> NbdAddress {
    use std::os::unix::ffi::OsStringExt as _;
    NbdAddress::Unix(std::ffi::OsString::from_vec(path).into())
}

/// `HOST`, `HOST:PORT`, `[ADDRESS]`, `[ADDRESS]:PORT`.
fn tcp(authority: &str) -> Option<NbdAddress> {
    let (host, rest) = match authority.strip_prefix('[') {
        Some(bracketed) => bracketed.split_once(']')?,
        None => authority.find(':').map_or((authority, ""), |at| authority.split_at(at)),
    };
    let port = match rest.strip_prefix(':') {
        Some(port) => port.parse().ok().filter(|port| *port > 0)?,
        None if rest.is_empty() => DEFAULT_PORT,
        None => return None,
    };
    let is_host = !host.is_empty() && !host.contains('@');
    is_host.then(|| NbdAddress::Tcp { host: host.to_owned(), port })
}

fn number(name: &'static str, value: &str, least: u32, most: u32) -> Result<u32, NbdUriError> {
    let number = value.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| NbdUriError::Range { name, value: value.to_owned(), least, most })
}

/// Percent-decoded.
fn decoded(text: &str) -> Result<Vec<u8>, NbdUriError> {
    percent::decoded(text).ok_or_else(|| NbdUriError::Encoding(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_of_the_standard_name_servers_and_exports() {
        let tcp = |host: &str, port| NbdAddress::Tcp { host: host.to_owned(), port };
        let unix = |path: &str| NbdAddress::Unix(path.into());
        for (uri, address, export) in [
            ("nbd://example.com/disk", tcp("example.com", 10809), "disk"),
            ("nbd://example.com", tcp("example.com", 10809), ""),
            ("nbd://example.com/", tcp("example.com", 10809), ""),
            ("nbd://example.com//disk", tcp("example.com", 10809), "/disk"),
            ("nbd://example.com:1/hello%20world", tcp("example.com", 1), "hello world"),
            ("nbd://[::1]:5/a", tcp("::1", 5), "a"),
            ("nbd://[fe80::1]", tcp("fe80::1", 10809), ""),
            ("nbd+unix:///disk?socket=sock", unix("sock"), "disk"),
            ("nbd+unix:///?socket=%00/abstract", unix("\0/abstract"), ""),
            ("nbd+unix:///?socket=/run/a%26b", unix("/run/a&b"), ""),
        ] {
            let options: NbdOptions = uri.parse().unwrap();
            assert_eq!((&options.address, options.export.as_str()), (&address, export), "{uri}");
            // What it is called leads there again.
            assert_eq!(options.to_string().parse::<NbdOptions>().unwrap(), options, "{uri}");
            let used = options.connections(3).write_through(true);
            assert_eq!(used.uri().parse::<NbdOptions>().unwrap(), used, "{uri}");
        }
        let uri = "nbd://a:10809/?x-connections=4&x-write-through=1&x-patience=0";
        let options: NbdOptions = uri.parse().unwrap();
        assert_eq!((options.connections, options.write_through, options.patience), (4, true, Duration::ZERO));
        assert_eq!(options.uri(), uri);
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_a_remedy() {
        for (uri, parts) in [
            ("http://a/", &["no NBD URI", "nbd+unix:///"][..]),
            ("nbd:a", &["no NBD URI"]),
            ("nbds://a/", &["TLS", "not there", "stunnel"]),
            ("nbds+unix:///?socket=a", &["TLS", "not there"]),
            ("nbd://a/?tls-type=psk", &["TLS", "not there"]),
            ("nbd:///disk", &["names no server"]),
            ("nbd://a:0/", &["65535"]),
            ("nbd://a:b/", &["65535"]),
            ("nbd://[::1/", &["brackets"]),
            ("nbd://[::1]a/", &["brackets"]),
            ("nbd://me@a/", &["names no server"]),
            ("nbd+unix:///disk", &["socket=PATH"]),
            ("nbd+unix:///disk?socket=", &["socket=PATH"]),
            ("nbd+unix://host/disk?socket=a", &["three slashes"]),
            ("nbd://a/?socket=a", &["\"socket\""]),
            ("nbd://a/%2", &["%25"]),
            ("nbd://a/%+1", &["%25"]),
            ("nbd://a/%ff", &["%25"]),
            ("nbd://a/%00", &["without NUL"]),
            ("nbd://a/?connections=1", &["\"connections\"", "x-connections"]),
            ("nbd://a/?x-connections=17", &["\"17\"", "from 1 to 16"]),
            ("nbd://a/?x-connections", &["\"\"", "from 1 to 16"]),
            ("nbd://a/?x-patience=-1", &["from 0 to 86400"]),
        ] {
            let error = uri.parse::<NbdOptions>().unwrap_err().to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{uri}: {error}");
        }
        let long = format!("nbd://a/{}", "x".repeat(4097));
        assert!(long.parse::<NbdOptions>().unwrap_err().to_string().contains("4097"));
        assert!(is_nbd_uri("nbds://a") && is_nbd_uri("nbd+unix:///x") && !is_nbd_uri("/srv/nbd") && !is_nbd_uri("a:b"));
    }
}
