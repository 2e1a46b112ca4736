//! `optional-commands DEVICE ADDRESS:PORT SUBSYSTEM NSID`: Compare, Write Zeroes and Dataset Management of frwr's host on a
//! namespace of the NVMe-oF target there, over an RDMA device; what they leave behind is read back. A line for each says what
//! was seen, or that the controller does not offer it (ONCS). Exit code 1 where something else was seen than should be.
//! The first blocks of the namespace are overwritten.

use std::process::ExitCode;

#[cfg(feature = "verbs")]
fn main() -> ExitCode {
    match commands::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(1)
        }
    }
}

#[cfg(not(feature = "verbs"))]
fn main() -> ExitCode {
    eprintln!("error: built without the feature verbs");
    ExitCode::from(2)
}

#[cfg(feature = "verbs")]
mod commands {
    use core::time::Duration;
    use frwr_engine::control::Control;
    use frwr_engine::gather::{MemoryId, Segment};
    use frwr_engine::provider::Device;
    use frwr_engine::provider::verbs::{VerbsDevice, VerbsOptions};
    use frwr_engine::{Engine, MemoryAccess};
    use frwr_mempool::{DeviceMemory, PagePolicy, PageSize, Region, RegionOptions};
    use frwr_nvmf::host::{Host, HostOptions, IoError, RequestError};
    use frwr_nvmf::wire::{Nqn, Status};
    use frwr_reactor::Clock;

    /// Blocks that are written, changed and read back.
    const BLOCKS: usize = 32;
    /// Largest block that the memory is made for.
    const MOST_BLOCK_BYTES: usize = 4096;
    /// Where what is read goes; what is written begins at 0.
    const READ_AT: usize = BLOCKS * MOST_BLOCK_BYTES;
    /// Everything: engine, admin data, blocks. Many times what it takes.
    const REGION_BYTES: usize = 32 << 20;
    const PAGE: usize = 4096;
    /// First block and count: what Write Zeroes fills, without and with leave to deallocate.
    const ZEROED: [(usize, usize); 2] = [(5, 11), (20, 4)];
    /// First block and count: what Dataset Management deallocates.
    const DEALLOCATED: [(usize, usize); 2] = [(2, 3), (17, 8)];
    /// Many times what any step takes, a session's attempts included.
    const PATIENCE: Duration = Duration::from_secs(60);

    type Port = <VerbsDevice as Device>::Port;

    /// A session, and memory for data.
    struct Session {
        control: Control<VerbsDevice>,
        host: Host<Port>,
        data: DeviceMemory,
        memory: MemoryId,
        clock: Clock,
        block: usize,
    }

    pub(super) fn run() -> Result<(), String> {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let [device, address, subsystem, namespace] = arguments.as_slice() else {
            return Err(
                "four arguments are needed: device, the target's address, its subsystem, the namespace".to_owned()
            );
        };
        let address = address.parse().map_err(|_| format!("{address} is no address with a port"))?;
        let subsystem = Nqn::new(subsystem).map_err(|error| error.to_string())?;
        let name = Nqn::new("nqn.2026-11.invalid.frwr:optional-commands").map_err(|error| error.to_string())?;
        let mut options = HostOptions::new(address, subsystem, name);
        options.namespace = namespace.parse().map_err(|_| format!("{namespace} is no namespace identifier"))?;
        let mut session = Session::open(device, options)?;
        session.begin()?;
        println!("Compare: {}", session.compare()?);
        println!("Write Zeroes: {}", session.write_zeroes()?);
        println!("Dataset Management: {}", session.deallocate()?);
        session.host.shut_down();
        session.until(|host| host.is_stopped())
    }

    /// What block `lba` holds until a command changes it: no block of zeros.
    fn pattern(lba: usize, bytes: usize) -> Vec<u8> {
        (0..bytes).map(|at| (at / 7 + 31 * lba + 1) as u8).collect()
    }

    fn is_among(ranges: &[(usize, usize)], lba: usize) -> bool {
        ranges.iter().any(|&(first, count)| (first..first + count).contains(&lba))
    }

    impl Session {
        fn open(device: &str, options: HostOptions) -> Result<Self, String> {
            let device = VerbsDevice::open(&VerbsOptions::new(device)).map_err(|error| error.to_string())?;
            let capabilities = *device.capabilities();
            let mut control = Control::new(device);
            let engine = options.engine();
            let (send, receive) =
                Engine::<Port>::completion_entries(&engine, &capabilities).map_err(|error| error.to_string())?;
            let (port, link) = control.open_core(send, receive).map_err(|error| error.to_string())?;
            let pages = RegionOptions::new(REGION_BYTES).pages(PagePolicy::Exactly(PageSize::Plain));
            let mut region = Region::map(&pages).map_err(|error| error.to_string())?;
            let mut engine =
                Engine::new(port, link, &mut region, engine, &capabilities).map_err(|error| error.to_string())?;
            let mut carved = |bytes| region.carve(bytes, PAGE).map_err(|error| error.to_string());
            let data = carved(2 * READ_AT)?.into_device_memory();
            let admin = carved(options.memory_bytes())?.into_device_memory();
            let memory = engine.add_memory(data.clone(), MemoryAccess::ReadWrite).map_err(|error| error.to_string())?;
            let host = Host::new(engine, admin, options).map_err(|error| error.to_string())?;
            Ok(Self { control, host, data, memory, clock: Clock::system(), block: 0 })
        }

        /// Polls until something holds.
        fn until(&mut self, mut holds: impl FnMut(&mut Host<Port>) -> bool) -> Result<(), String> {
            let last = self.clock.now() + PATIENCE;
            loop {
                self.control.poll();
                self.host.poll(self.clock.now());
                let done = holds(&mut self.host);
                self.host.flush();
                if done {
                    return Ok(());
                }
                if let Some(failure) = self.host.failure() {
                    return Err(failure.to_string());
                }
                if self.clock.now() > last {
                    return Err(format!("nothing happened for {} s", PATIENCE.as_secs()));
                }
                std::thread::yield_now();
            }
        }

        fn begin(&mut self) -> Result<(), String> {
            self.host.start();
            self.until(|host| host.is_ready())?;
            let geometry = self.host.geometry().ok_or("the namespace has no size")?;
            self.block = geometry.block_bytes() as usize;
            if self.block > MOST_BLOCK_BYTES || geometry.blocks() < BLOCKS as u64 {
                let (blocks, bytes) = (geometry.blocks(), self.block);
                return Err(format!(
                    "{blocks} blocks of {bytes} bytes: at least {BLOCKS} of up to {MOST_BLOCK_BYTES} are needed"
                ));
            }
            Ok(())
        }

        /// Waits for the end of a request; `None` where the controller does not have the command.
        fn ended(&mut self, taken: Result<(), RequestError>) -> Result<Option<Result<(), IoError>>, String> {
            match taken {
                Err(RequestError::Unsupported(_)) => return Ok(None),
                Err(error) => return Err(error.to_string()),
                Ok(()) => {}
            }
            let mut result = None;
            self.until(|host| {
                result = host.next_completion().map(|completion| completion.result);
                result.is_some()
            })?;
            Ok(result)
        }

        /// As `ended`, for what has to succeed; whether the controller has it.
        fn succeeds(&mut self, taken: Result<(), RequestError>) -> Result<bool, String> {
            match self.ended(taken)? {
                None => Ok(false),
                Some(result) => result.map(|()| true).map_err(|error| error.to_string()),
            }
        }

        fn segment(&self, offset: usize) -> Segment {
            Segment { memory: self.memory, offset: offset as u64, length: (BLOCKS * self.block) as u32 }
        }

        /// Writes its pattern to every block.
        fn write_all(&mut self) -> Result<(), String> {
            for lba in 0..BLOCKS {
                let block = pattern(lba, self.block);
                self.data.write(lba * self.block, &block).map_err(|error| error.to_string())?;
            }
            let taken = self.host.write(0, &[self.segment(0)], 0);
            self.succeeds(taken)?;
            Ok(())
        }

        /// Reads all blocks back: which of those in `ranges` are zeros. The others hold what was written, and so do those in
        /// `ranges` that are no zeros.
        fn zeros_among(&mut self, ranges: &[(usize, usize)]) -> Result<usize, String> {
            let taken = self.host.read(0, &[self.segment(READ_AT)], 0);
            self.succeeds(taken)?;
            let (mut zeros, mut bytes) = (0, vec![0; self.block]);
            for lba in 0..BLOCKS {
                self.data.read(READ_AT + lba * self.block, &mut bytes).map_err(|error| error.to_string())?;
                if is_among(ranges, lba) && bytes.iter().all(|byte| *byte == 0) {
                    zeros += 1;
                } else if bytes != pattern(lba, self.block) {
                    return Err(format!("block {lba} came back with other bytes"));
                }
            }
            Ok(zeros)
        }

        fn compare(&mut self) -> Result<String, String> {
            self.write_all()?;
            let taken = self.host.compare(0, &[self.segment(0)], 0);
            if !self.succeeds(taken)? {
                return Ok("not offered".to_owned());
            }
            self.data.write(7 * self.block, &[0]).map_err(|error| error.to_string())?;
            let taken = self.host.compare(0, &[self.segment(0)], 0);
            match self.ended(taken)? {
                Some(Err(IoError::Status(Status::COMPARE_FAILURE))) => {}
                other => return Err(format!("Compare of a block that differs ended with {other:?}")),
            }
            Ok("blocks that are equal compare as equal, one that differs does not".to_owned())
        }

        fn write_zeroes(&mut self) -> Result<String, String> {
            self.write_all()?;
            for ((first, count), deallocate) in ZEROED.into_iter().zip([false, true]) {
                let taken = self.host.write_zeroes(first as u64, count as u32, deallocate, 0);
                match self.ended(taken)? {
                    None => return Ok("not offered".to_owned()),
                    Some(Ok(())) => {}
                    // Controllers offer commands, media may lack them.
                    Some(Err(error)) => {
                        self.zeros_among(&[])?;
                        return Ok(format!("refused for this namespace ({error}), and every block as it was"));
                    }
                }
            }
            let (zeros, asked) = (self.zeros_among(&ZEROED)?, ZEROED.iter().map(|(_, count)| count).sum::<usize>());
            if zeros != asked {
                return Err(format!("Write Zeroes: {zeros} of {asked} blocks are zeros"));
            }
            Ok(format!("{zeros} of {asked} blocks are zeros, the others as they were"))
        }

        fn deallocate(&mut self) -> Result<String, String> {
            self.write_all()?;
            let ranges = DEALLOCATED.map(|(first, count)| (first as u64, count as u32));
            let taken = self.host.deallocate(&ranges, 0);
            if !self.succeeds(taken)? {
                return Ok("not offered".to_owned());
            }
            let asked: usize = DEALLOCATED.iter().map(|(_, count)| count).sum();
            Ok(format!(
                "{} of {asked} deallocated blocks are zeros, the others as they were",
                self.zeros_among(&DEALLOCATED)?
            ))
        }
    }
}
