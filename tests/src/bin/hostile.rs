//! `hostile DEVICE ADDRESS:PORT SUBSYSTEM`: makes every attack of `frwr_tests::hostile` on the NVMe-oF target there, over an
//! RDMA device. Each line says the attack's name and, behind a tab, what the target has to say of it. Exit code 1 where
//! the target took what it should not have.

use std::process::ExitCode;

#[cfg(feature = "verbs")]
fn main() -> ExitCode {
    match attack::run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

#[cfg(not(feature = "verbs"))]
fn main() -> ExitCode {
    eprintln!("error: built without the feature verbs");
    ExitCode::from(2)
}

#[cfg(feature = "verbs")]
mod attack {
    use core::time::Duration;
    use frwr_engine::provider::verbs::{VerbsDevice, VerbsOptions};
    use frwr_nvmf::wire::Nqn;
    use frwr_reactor::Clock;
    use frwr_tests::hostile::{Names, Peer, World, all};

    /// Many times what any step takes, the target's time-outs and those of a lost packet included.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// The target is another process.
    struct Elsewhere(Clock);

    impl World for Elsewhere {
        fn pass(&mut self) -> Duration {
            std::thread::yield_now();
            self.0.now()
        }

        fn patience(&self) -> Duration {
            PATIENCE
        }
    }

    pub(super) fn run() -> Result<bool, String> {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let [device, address, subsystem] = arguments.as_slice() else {
            return Err("three arguments are needed: device, the target's address, its subsystem".to_owned());
        };
        let address = address.parse().map_err(|_| format!("{address} is no address with a port"))?;
        let subsystem = Nqn::new(subsystem).map_err(|error| error.to_string())?;
        let mut options = VerbsOptions::new(device.as_str());
        options.self_test = false;
        let device = VerbsDevice::open(&options).map_err(|error| error.to_string())?;
        let mut peer = Peer::new(device, address, Elsewhere(Clock::system()))?;
        let mut passed = true;
        for attack in all() {
            peer.forget();
            match (attack.run)(&mut peer, &Names::of(attack.name, subsystem)?) {
                Ok(()) => println!("{}\t{}", attack.name, attack.said),
                Err(error) => {
                    println!("FAILED {}: {error}", attack.name);
                    passed = false;
                }
            }
        }
        Ok(passed)
    }
}
