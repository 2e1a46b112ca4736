//! Percent-encoding (RFC 3986, 2.1), as names of exports and images have it.

use core::fmt;

/// Encoded where it has to be.
pub(super) struct Encoded<'a>(pub(super) &'a [u8]);

impl fmt::Display for Encoded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|&byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' | b':' => {
                write!(f, "{}", char::from(byte))
            }
            _ => write!(f, "%{byte:02X}"),
        })
    }
}

/// Decoded; `None` where a percent sign has not two hexadecimal digits behind it.
pub(super) fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, behind @ ..] = rest {
        rest = behind;
        if *byte != b'%' {
            bytes.push(*byte);
            continue;
        }
        let digits = behind.split_at_checked(2).and_then(|(digits, behind)| {
            rest = behind;
            core::str::from_utf8(digits).ok().filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
        });
        bytes.push(digits.and_then(|digits| u8::from_str_radix(digits, 16).ok())?);
    }
    Some(bytes)
}
