//! What CEPH_ARGS says of who connects and by which configuration: librados asks for both before it reads the rest of it.

/// Of the words of CEPH_ARGS.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Early {
    /// `--conf`, `-c`.
    pub(super) conf: Option<String>,
    /// `--id`, `--user`, or `--name` and `-n` without `client.`.
    pub(super) id: Option<String>,
}

impl Early {
    pub(super) fn of_environment() -> Self {
        Self::of(&std::env::var("CEPH_ARGS").unwrap_or_default())
    }

    fn of(arguments: &str) -> Self {
        let mut early = Self::default();
        let mut words = arguments.split_whitespace();
        while let Some(word) = words.next() {
            let (flag, value) = word.split_once('=').map_or((word, None), |(flag, value)| (flag, Some(value)));
            let (place, prefix) = match flag {
                "--conf" | "-c" => (&mut early.conf, ""),
                "--id" | "--user" | "--name" | "-n" => (&mut early.id, "client."),
                _ => continue,
            };
            let Some(value) = value.or_else(|| words.next()) else { break };
            *place = Some(value.strip_prefix(prefix).unwrap_or(value).to_owned());
        }
        early
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_files_are_found_among_the_words_of_cephs_tools() {
        let of = |arguments: &str| {
            let Early { conf, id } = Early::of(arguments);
            (conf.unwrap_or_default(), id.unwrap_or_default())
        };
        let is = |conf: &str, id: &str| (conf.to_owned(), id.to_owned());
        assert_eq!(of(""), is("", ""));
        assert_eq!(of("--id disk -c /etc/a.conf --keyring /k"), is("/etc/a.conf", "disk"));
        assert_eq!(of("--conf=/a --name=client.b"), is("/a", "b"));
        assert_eq!(of("-c client.conf -n client.b"), is("client.conf", "b"));
        assert_eq!(of("-m 10.0.0.1 -n client.c --user"), is("", "c"));
    }
}
