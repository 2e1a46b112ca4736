//! Keys by which hosts prove who they are: which of them a target has by now.

use super::{
    difference::Step,
    key_files::{KeyFiles, Named, ReadKeys},
};
use crate::Error;
use frwr_nvmf::{
    authentication::Authenticator,
    dhchap::{DhChap, HostKeys, Permitted},
    wire::Nqn,
};
use std::{collections::BTreeMap, sync::Arc};

/// The keys of a target's hosts as they are by now.
pub(super) struct HostKeyring {
    service: Arc<DhChap>,
    hosts: BTreeMap<String, (KeyFiles, HostKeys)>,
}

impl HostKeyring {
    /// With these keys at the start.
    ///
    /// # Errors
    /// A key cannot be read, or the process can have no other thread.
    pub(super) fn new(files: &BTreeMap<String, KeyFiles>, required: bool, permitted: Permitted) -> Result<Self, Error> {
        Self::with(files, required, permitted, Named::Keys)
    }

    fn with(
        files: &BTreeMap<String, KeyFiles>,
        required: bool,
        permitted: Permitted,
        named: Named,
    ) -> Result<Self, Error> {
        let service = DhChap::new(permitted).map_err(|error| {
            let text = format!("no thread for authentication ({error}); raise the limit of threads");
            Error::failed("key_thread", text)
        })?;
        service.require(required);
        let mut ring = Self { service: Arc::new(service), hosts: BTreeMap::new() };
        for (host, files) in files {
            let name = Nqn::new(host).map_err(|error| Error::failed("name", format!("host {host:?}: {error}")))?;
            let keys = files.read_named(named)?;
            ring.set(&name, files.clone(), keys);
        }
        Ok(ring)
    }

    /// For a target's cores.
    pub(super) fn authenticator(&self) -> Arc<dyn Authenticator> {
        Arc::clone(&self.service) as Arc<dyn Authenticator>
    }

    /// A host has these keys from now on, which are those of these files; its sessions go on. Whether they are others
    /// than before.
    pub(super) fn set(&mut self, host: &Nqn, files: KeyFiles, keys: HostKeys) -> bool {
        let before = self.hosts.insert(host.as_str().to_owned(), (files.clone(), keys.clone()));
        let is_new = before.is_none_or(|before| before != (files, keys.clone()));
        if is_new {
            self.service.set(host, Some(keys));
        }
        is_new
    }

    /// A host has none any more. Whether it had.
    pub(super) fn clear(&mut self, host: &Nqn) -> bool {
        let had = self.hosts.remove(host.as_str()).is_some();
        if had {
            self.service.set(host, None);
        }
        had
    }

    /// Which hosts have keys, and in which files.
    pub(super) fn files(&self) -> BTreeMap<String, KeyFiles> {
        self.hosts.iter().map(|(host, (files, _))| (host.clone(), files.clone())).collect()
    }

    /// What is to be done so that hosts have the keys of these files, which were read again.
    ///
    /// # Errors
    /// All that could not be read.
    pub(super) fn difference(
        &self,
        wanted: &BTreeMap<String, KeyFiles>,
        read: &ReadKeys,
    ) -> Result<Vec<Step>, Vec<String>> {
        let (mut steps, mut refused) = (Vec::new(), Vec::new());
        for (host, files) in wanted {
            match read.get(host) {
                Some(Err(reason)) => refused.push(reason.clone()),
                Some(Ok(keys)) if self.hosts.get(host) == Some(&(files.clone(), keys.clone())) => {}
                Some(Ok(_)) | None => {
                    let had = self.hosts.contains_key(host);
                    steps.push(Step::HostKey { host: host.clone(), files: files.clone(), had });
                }
            }
        }
        let gone = self.hosts.keys().filter(|host| !wanted.contains_key(*host));
        steps.extend(gone.map(|host| Step::ClearHostKey { host: host.clone() }));
        if refused.is_empty() { Ok(steps) } else { Err(refused) }
    }
}

/// Who proves a host of `load`, and controllers to it.
///
/// # Errors
/// As [`HostKeyring::new`].
pub(super) fn of_host(host: &Nqn, files: &KeyFiles) -> Result<Arc<dyn Authenticator>, Error> {
    let files = BTreeMap::from([(host.as_str().to_owned(), files.clone())]);
    HostKeyring::with(&files, false, Permitted::default(), Named::Options).map(|ring| ring.authenticator())
}

#[cfg(test)]
mod tests {
    use super::{
        super::key_files::{is_trusted, read_all},
        HostKeyring, KeyFiles, Named,
    };
    use frwr_nvmf::{dhchap::Permitted, wire::Nqn};
    use rustix::fs::{FileType, Mode};
    use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt as _, path::Path};

    const KEYS: [&str; 2] = [
        "DHHC-1:01:CRYjMD1KV2RxfouYpbK/zNnm8wANGic0QU5baHWCj5xifzXX:",
        "DHHC-1:00:CShHZoWkw+IBID9efZy72vkYN1Z1lLPS8RAvTm2Mq8rpCCdGZYSjwuEAHz5dfJu6uaiyng==:",
    ];

    fn lines(ring: &HostKeyring, wanted: &BTreeMap<String, KeyFiles>) -> Vec<String> {
        ring.difference(wanted, &read_all(wanted)).unwrap().iter().flat_map(super::Step::lines).collect()
    }

    fn write(path: &Path, text: &str, mode: u32) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_file_that_others_can_read_and_one_without_a_key_are_refused_by_name_and_never_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("host.key");
        let files = KeyFiles { dhchap_key: path.clone(), dhchap_ctrl_key: None };
        let refused = |part: &str| {
            let text = files.read().unwrap_err().to_string();
            assert!(text.contains(part) && text.contains("host.key"), "{text}");
            assert!(!text.contains(&KEYS[0][12..20]), "{text}");
        };
        refused("cannot be read");
        for mode in [0o644, 0o640, 0o660, 0o604] {
            write(&path, KEYS[0], mode);
            refused(&format!("mode {mode:04o}"));
        }
        write(&path, KEYS[0], 0o600);
        assert!(files.read().is_ok());
        write(&path, &format!("{}\n", KEYS[0]), 0o400);
        assert!(files.read().is_ok());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        // Where this is run by somebody who may give files away.
        if std::os::unix::fs::chown(&path, Some(12_345), None).is_ok() {
            refused("belongs to user 12345");
            std::os::unix::fs::chown(&path, Some(rustix::process::geteuid().as_raw()), None).unwrap();
        }
        write(&path, &KEYS[0][..40], 0o600);
        refused("has no key");
        write(&path, &"A".repeat(5000), 0o600);
        refused("5000 bytes");
        write(&path, "", 0o600);
        refused("0 bytes");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        refused("no regular file");
        fs::remove_dir(&path).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        refused("no regular file");
    }

    #[test]
    fn a_file_is_ours_or_roots() {
        let who = [(7, 7, true), (0, 7, true), (0, 0, true), (8, 7, false), (7, 0, false)];
        assert!(who.into_iter().all(|(owner, us, trusted)| is_trusted(owner, us) == trusted));
    }

    #[test]
    fn a_file_is_called_as_whoever_named_it_did() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("host.key");
        let here = KeyFiles { dhchap_key: path.clone(), dhchap_ctrl_key: Some(folder.path().join("none")) };
        write(&path, KEYS[0], 0o600);
        for (files, named, begin) in [
            (&here, Named::Keys, "dhchap_ctrl_key: "),
            (&here, Named::Options, "--dhchap-ctrl-key: "),
            (
                &KeyFiles { dhchap_key: folder.path().join("none"), dhchap_ctrl_key: None },
                Named::Options,
                "--dhchap-key: ",
            ),
            (&KeyFiles { dhchap_key: folder.path().join("none"), dhchap_ctrl_key: None }, Named::Keys, "dhchap_key: "),
        ] {
            let text = files.read_named(named).unwrap_err().to_string();
            assert!(text.starts_with(begin), "{text}");
        }
    }

    #[test]
    fn a_file_whose_key_was_replaced_is_a_change_and_one_that_is_the_same_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("host.key");
        let (name, files) = (Nqn::new("nqn.a").unwrap(), KeyFiles { dhchap_key: path.clone(), dhchap_ctrl_key: None });
        let wanted = BTreeMap::from([("nqn.a".to_owned(), files.clone())]);
        write(&path, KEYS[0], 0o600);
        let mut ring = HostKeyring::new(&wanted, false, Permitted::default()).unwrap();
        assert!(!ring.set(&name, files.clone(), files.read().unwrap()));
        assert_eq!(lines(&ring, &wanted), [""; 0]);
        write(&path, KEYS[1], 0o600);
        assert_eq!(lines(&ring, &wanted), ["~ key of host nqn.a"]);
        let keys = files.read().unwrap();
        assert!(ring.set(&name, files, keys));
        assert_eq!(lines(&ring, &wanted), [""; 0]);
        assert_eq!(lines(&ring, &BTreeMap::new()), ["- key of host nqn.a"]);
        assert!(ring.clear(&name) && !ring.clear(&name));
        assert_eq!(lines(&ring, &wanted), ["+ key of host nqn.a"]);
        write(&path, KEYS[1], 0o644);
        let refused = ring.difference(&wanted, &read_all(&wanted)).unwrap_err();
        assert!(refused[0].contains("0644"));
    }
}
