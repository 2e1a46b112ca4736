//! Two queue pairs of one device, connected to each other without a connection manager.

use super::SelfTestError;
use crate::provider::{
    Access, BaseId, ElementRange, Failure, FailureStatus, Operation, QueueSizes, ReceiveRequest, RegistrationFields,
    RegistrationId, RemoteRange, ScatterElement, Token, TokenKind, WorkRequest,
    verbs::{
        VerbsDevice,
        connection_manager::mtu_code,
        sys::{
            batch::{SendMemory, Sink},
            builder::Builder,
            completion_queue::{CompletionQueue, no_completion},
            data::RegisteredMemory,
            memory_region::MemoryRegion,
            protection_domain::ProtectionDomain,
            queue_pair::QueuePair,
            registered::{KeyObjects, Registered},
            thread_domain::QueuePairDomain,
        },
        system::Gid,
    },
};
use core::time::Duration;
use frwr_mempool::{
    DeviceMemory, Region, RegionOptions,
    region::{PagePolicy, PageSize},
};
use ibverbs_sys::{
    ibv_ah_attr, ibv_gid, ibv_global_route, ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_state, ibv_wc, ibv_wc_flags,
};
use std::{io, sync::Arc, time::Instant};

/// Bytes of the memory that everything happens in: a window in the middle, room for messages at the end.
const MEMORY_BYTES: usize = 16 << 10;
/// First byte of the window; an odd one, since windows have no alignment.
pub(super) const WINDOW_OFFSET: u64 = 4001;
/// Bytes of the window.
pub(super) const WINDOW_BYTES: u32 = 2000;
/// Where the peer's data come from and go to.
const PEER_OFFSET: u64 = 8 << 10;
/// Where messages go.
const MESSAGE_OFFSET: u64 = 12 << 10;
/// Bytes of a message and of an RDMA operation.
const BYTES: u32 = 64;
/// Work requests of a queue: a bind, a message, and what is in flight from the step before.
const DEPTH: u32 = 16;
/// How long a completion may take: a refused access is answered at once, and a lost one is retried for some seconds.
const PATIENCE: Duration = Duration::from_secs(20);
/// Path MTU in bytes: what every link carries.
const MTU: u32 = 1024;
/// Hops of a packet: it never leaves the device.
const HOP_LIMIT: u8 = 64;
/// 4.096 us * 2^14: 67 ms, librdmacm's order of magnitude.
const ACK_TIMEOUT: u8 = 14;
/// Retries, of packets and of messages that met no receive; 7 never ends on some devices.
const RETRIES: u8 = 6;
/// 0.64 ms between two tries of a message that met no receive.
const RNR_TIMER: u8 = 12;

/// What a SEND_WITH_INV's receive said.
#[derive(Clone, Copy, Debug)]
pub(super) struct Invalidated {
    pub(super) key: Option<u32>,
    pub(super) flag_is_right: bool,
}

/// What became of a SEND_WITH_INV.
#[derive(Clone, Copy, Debug)]
pub(super) enum Delivery {
    /// It arrived.
    Received(Invalidated),
    /// It arrived, and the receiver's side did not invalidate that key.
    NotInvalidated(Failure),
    /// It was sent, and the receiver's side refused it.
    Refused(Failure),
    /// The device did not send it.
    NotSent(Failure),
    /// Its library did not take it, with this error number.
    NotPosted(i32),
    /// The device says that it sent it, and the receiver never said anything.
    Lost,
}

impl Delivery {
    /// Whether the device can send it: a message that arrived as a plain one is none.
    pub(super) fn was_sent(self) -> bool {
        match self {
            Self::Received(seen) => seen.key.is_some(),
            Self::NotInvalidated(_) | Self::Refused(_) => true,
            Self::NotSent(_) | Self::NotPosted(_) | Self::Lost => false,
        }
    }

    /// For people.
    pub(super) fn text(self) -> String {
        match self {
            Self::Received(Invalidated { key: Some(_), .. }) => "the receive names the key".to_owned(),
            Self::Received(_) => "no key is named".to_owned(),
            Self::NotInvalidated(failure) | Self::Refused(failure) => format!("the receiver failed: {failure}"),
            Self::NotSent(failure) => format!("failed: {failure}"),
            Self::NotPosted(code) => format!("not posted: {}", io::Error::from_raw_os_error(code)),
            Self::Lost => format!("the receiver has no completion within {} s", PATIENCE.as_secs()),
        }
    }

    fn not_delivered(failure: Failure) -> Self {
        match failure.status {
            FailureStatus::RemoteInvalidRequest | FailureStatus::RemoteAccess | FailureStatus::RemoteOperation => {
                Self::Refused(failure)
            }
            _ => Self::NotSent(failure),
        }
    }
}

/// One end.
struct End {
    queue_pair: QueuePair,
    completions: Arc<CompletionQueue>,
}

/// The owner has a window, the peer uses it. Fields are dropped in order: the window goes before its queue pair.
pub(super) struct LoopBack {
    /// `None` where the device opens no keys.
    window: Option<Registered>,
    /// Of the window, or of memory that was registered by a system call.
    key: u32,
    owner: End,
    peer: End,
    region: Arc<MemoryRegion>,
    /// In place of a window.
    _remote: Option<MemoryRegion>,
    /// The same, for what goes inline as it will in connections.
    registered: RegisteredMemory,
    memory: DeviceMemory,
    posting: SendMemory,
    next_token: u32,
}

fn system_error(step: &'static str, remedy: &'static str) -> impl Fn(io::Error) -> SelfTestError {
    move |source| SelfTestError::System { step, source, remedy }
}

impl LoopBack {
    pub(super) fn new(device: &VerbsDevice, gid: Gid) -> Result<Self, SelfTestError> {
        let failed = |step| system_error(step, "");
        let options = RegionOptions::new(MEMORY_BYTES).pages(PagePolicy::Exactly(PageSize::Plain));
        let memory = Region::map(&options).ok().and_then(|mut region| region.carve(MEMORY_BYTES, 4096).ok());
        let memory = memory.ok_or_else(|| failed("mapping memory")(io::ErrorKind::OutOfMemory.into()))?;
        let memory = memory.into_device_memory();
        let domain = ProtectionDomain::new(&device.context).map_err(failed("allocating a protection domain"))?;
        let domain = Arc::new(domain);
        let remedy = "; raise the limit of locked memory (ulimit -l unlimited)";
        let region = MemoryRegion::new(&domain, memory.clone(), true, device.keys);
        let region = Arc::new(region.map_err(system_error("registering memory", remedy))?);
        let remote = match device.keys {
            KeyObjects::None => {
                let made = MemoryRegion::remote(&domain, memory.clone(), Access::RemoteReadWrite);
                Some(made.map_err(system_error("registering memory for peers", remedy))?)
            }
            KeyObjects::Windows | KeyObjects::Lists(_) => None,
        };
        let mut registered = RegisteredMemory::default();
        registered.add(&region);
        let make = || End::new(device, &domain).map_err(failed("creating a queue pair"));
        let (owner, peer) = (make()?, make()?);
        for (one, other) in [(&owner, &peer), (&peer, &owner)] {
            one.connect(device, other, gid).map_err(failed("connecting a queue pair to itself"))?;
        }
        // After its queue pair.
        let window = match &remote {
            None => Some(Registered::new(&domain, device.keys).map_err(failed("allocating a window"))?),
            Some(_) => None,
        };
        let key = window.as_ref().map(Registered::key).or(remote.as_ref().map(MemoryRegion::rkey)).unwrap_or(0);
        let posting = SendMemory::new(DEPTH as usize);
        Ok(Self { window, key, owner, peer, region, _remote: remote, registered, memory, posting, next_token: 0 })
    }

    /// Whether its key differs from use to use.
    pub(super) fn rotates(&self) -> bool {
        self.window.as_ref().and_then(Registered::lists).is_none_or(|kind| kind.rotates)
    }

    /// Where the peer finds the first byte.
    fn start(&self) -> u64 {
        match self.window {
            Some(Registered::Window(_)) | None => self.memory.address() + WINDOW_OFFSET,
            Some(Registered::List(_)) => 0,
        }
    }

    /// The window as a list of two pieces.
    fn list(&self) -> [ScatterElement; 2] {
        const FIRST: u32 = WINDOW_BYTES / 2;
        let piece = |offset: u64, length| ScatterElement { length, ..self.element(WINDOW_OFFSET + offset) };
        [piece(0, FIRST), piece(FIRST.into(), WINDOW_BYTES - FIRST)]
    }

    /// The window's key now.
    pub(super) fn key(&self) -> u32 {
        self.key
    }

    fn element(&self, offset: u64) -> ScatterElement {
        ScatterElement { address: self.memory.address() + offset, length: BYTES, lkey: self.region.lkey() }
    }

    fn request(&mut self) -> WorkRequest {
        self.next_token += 1;
        let token = Token::new(TokenKind::Message, self.next_token, 0);
        // The operation is given apart.
        let operation = Operation::Send { local: ElementRange::default(), invalidate: None };
        WorkRequest { token, signalled: true, fence: false, operation }
    }

    /// Binds the window with its next key and sends a message behind it; the message's completion vouches for both.
    pub(super) fn bind_and_send(
        &mut self,
        step: &'static str,
        access: Access,
    ) -> Result<Result<(), Failure>, SelfTestError> {
        self.register(step, |fields, _| fields.access = access)
    }

    /// The same, far behind the memory that is registered.
    pub(super) fn register_outside(&mut self, step: &'static str) -> Result<Result<(), Failure>, SelfTestError> {
        self.register(step, |fields, list| {
            // Of lists the addresses of their entries count, of windows their own.
            if fields.iova != 0 {
                fields.iova += 1 << 40;
            }
            list.iter_mut().for_each(|element| element.address += 1 << 40);
        })
    }

    /// The same as a list whose second entry names memory of nobody.
    pub(super) fn register_foreign_key(&mut self, step: &'static str) -> Result<Result<(), Failure>, SelfTestError> {
        self.register(step, |_, list| list[1].lkey ^= 0xff00)
    }

    /// The same as a window whose current key is said to be another.
    pub(super) fn bind_with_stale_key(&mut self, step: &'static str) -> Result<Result<(), Failure>, SelfTestError> {
        self.register(step, |fields, _| fields.old_key ^= 1)
    }

    fn register(
        &mut self,
        step: &'static str,
        change: impl FnOnce(&mut RegistrationFields, &mut [ScatterElement; 2]),
    ) -> Result<Result<(), Failure>, SelfTestError> {
        self.peer.receive(self.element(MESSAGE_OFFSET)).map_err(system_error(step, ""))?;
        let (mut bind, send) = (self.request(), self.request());
        bind.signalled = false;
        let (old_key, element) = (self.key, self.element(MESSAGE_OFFSET + u64::from(BYTES)));
        if self.rotates() {
            self.key = (old_key & !0xff) | (old_key.wrapping_add(1) & 0xff);
        }
        let mut fields = RegistrationFields {
            object: RegistrationId(0),
            base: BaseId(0),
            old_key,
            key: self.key,
            access: Access::RemoteReadWrite,
            iova: self.start(),
            length: WINDOW_BYTES,
            elements: ElementRange::default(),
        };
        let mut list = self.list();
        change(&mut fields, &mut list);
        let Self { window, region, registered, owner, posting, .. } = self;
        let elements = [element];
        let data = registered.of_post(&owner.queue_pair).data(&send, &elements);
        let sent = owner.run(step, posting, send.token, |batch| {
            match window {
                Some(Registered::Window(window)) => batch.bind(&bind, &fields, window, region),
                Some(Registered::List(mkey)) => batch.list(&bind, &fields, mkey, &list),
                None => {}
            }
            batch.send(&send, data, None);
        })?;
        match sent {
            Ok(_) => Ok(self.peer.wait(step, RECEIVE)?.map(|_| ())),
            Err(status) => Ok(Err(status)),
        }
    }

    /// The peer writes through the window, `beyond` bytes behind its start.
    pub(super) fn write(&mut self, step: &'static str, beyond: i64) -> Result<Result<(), Failure>, SelfTestError> {
        let address = self.start().wrapping_add_signed(beyond);
        self.write_to(step, RemoteRange { address, key: self.key })
    }

    /// The peer writes with the key of the bind before.
    pub(super) fn write_with_old_key(&mut self, step: &'static str) -> Result<Result<(), Failure>, SelfTestError> {
        let key = (self.key & !0xff) | (self.key.wrapping_sub(1) & 0xff);
        self.write_to(step, RemoteRange { address: self.start(), key })
    }

    fn write_to(&mut self, step: &'static str, remote: RemoteRange) -> Result<Result<(), Failure>, SelfTestError> {
        let pattern = [0x5a; BYTES as usize];
        // Inside by construction.
        let _ = self.memory.write(PEER_OFFSET as usize, &pattern);
        let (request, elements) = (self.request(), [self.element(PEER_OFFSET)]);
        let data = self.registered.of_post(&self.peer.queue_pair).data(&request, &elements);
        let written = self.peer.run(step, &mut self.posting, request.token, |batch| {
            batch.write(&request, data, remote);
        })?;
        Ok(written.map(|_| ()))
    }

    /// Whether what the peer wrote is in the window.
    pub(super) fn has_arrived(&self, offset: usize) -> bool {
        let mut bytes = [0; BYTES as usize];
        self.memory.read(WINDOW_OFFSET as usize + offset, &mut bytes).is_ok() && bytes == [0x5a; BYTES as usize]
    }

    /// The peer reads through the window.
    pub(super) fn read(&mut self, step: &'static str) -> Result<Result<(), Failure>, SelfTestError> {
        let remote = RemoteRange { address: self.start(), key: self.key };
        let (request, elements) = (self.request(), [self.element(PEER_OFFSET)]);
        let read = self.peer.run(step, &mut self.posting, request.token, |batch| {
            batch.read(&request, &elements, remote);
        })?;
        Ok(read.map(|_| ()))
    }

    /// The owner invalidates the window's key. Once per bind: a second one crashes some hosts.
    pub(super) fn invalidate(&mut self, step: &'static str) -> Result<Result<(), Failure>, SelfTestError> {
        let (request, key) = (self.request(), self.key);
        let done = self.owner.run(step, &mut self.posting, request.token, |batch| {
            batch.invalidate(&request, key);
        })?;
        Ok(done.map(|_| ()))
    }

    /// The owner sends a message, and nothing else.
    pub(super) fn send(&mut self, step: &'static str) -> Result<Result<(), Failure>, SelfTestError> {
        self.peer.receive(self.element(MESSAGE_OFFSET)).map_err(system_error(step, ""))?;
        let (request, elements) = (self.request(), [self.element(MESSAGE_OFFSET + u64::from(BYTES))]);
        let data = self.registered.of_post(&self.owner.queue_pair).data(&request, &elements);
        let sent = self.owner.run(step, &mut self.posting, request.token, |batch| batch.send(&request, data, None))?;
        match sent {
            Ok(_) => Ok(self.peer.wait(step, RECEIVE)?.map(|_| ())),
            Err(status) => Ok(Err(status)),
        }
    }

    /// The peer invalidates the window's key with a message. Once per bind, as above.
    pub(super) fn send_with_invalidate(&mut self, step: &'static str) -> Result<Delivery, SelfTestError> {
        self.owner.receive(self.element(MESSAGE_OFFSET)).map_err(system_error(step, ""))?;
        let (request, key) = (self.request(), self.key);
        let elements = [self.element(PEER_OFFSET)];
        let data = self.registered.of_post(&self.peer.queue_pair).data(&request, &elements);
        let sent = self.peer.run(step, &mut self.posting, request.token, |batch| {
            batch.send(&request, data, Some(key));
        });
        match sent {
            Ok(Ok(_)) => {}
            Ok(Err(status)) => return Ok(Delivery::not_delivered(status)),
            // Libraries refuse what they have no work request for.
            Err(SelfTestError::System { source, .. }) => {
                return Ok(Delivery::NotPosted(source.raw_os_error().unwrap_or(libc::EOPNOTSUPP)));
            }
            Err(error) => return Err(error),
        }
        Ok(match self.owner.wait(step, RECEIVE) {
            Ok(Ok(raw)) => {
                let flag_is_right = raw.wc_flags.0 & ibv_wc_flags::IBV_WC_WITH_INV.0 != 0;
                let flagged = flag_is_right || raw.wc_flags.0 & ibv_wc_flags::IBV_WC_IP_CSUM_OK.0 != 0;
                Delivery::Received(Invalidated { key: flagged.then_some(raw.imm_data), flag_is_right })
            }
            Ok(Err(status)) => Delivery::NotInvalidated(status),
            Err(_) => Delivery::Lost,
        })
    }
}

/// The token of every receive: one is posted at a time.
const RECEIVE: Token = Token::new(TokenKind::Receive, 0, 0);

impl End {
    fn new(device: &VerbsDevice, domain: &Arc<ProtectionDomain>) -> io::Result<Self> {
        let completions = Arc::new(CompletionQueue::new(&device.context, 2 * DEPTH)?);
        let sizes = QueueSizes { send: DEPTH, receive: DEPTH, max_send_sge: 1 };
        // As the ports' queue pairs; one that there is no thread domain for is as they are then.
        let thread = device.thread_domain().and_then(Result::ok);
        let domain = QueuePairDomain::new(domain, thread.as_ref())?;
        let queue_pair = QueuePair::new(domain, &completions, &completions, sizes, None, device.send_interface())?;
        queue_pair.initialise(device.options.port)?;
        Ok(Self { queue_pair, completions })
    }

    /// From INIT to RTS, towards another queue pair of the same port.
    fn connect(&self, device: &VerbsDevice, other: &Self, gid: Gid) -> io::Result<()> {
        let options = &device.options;
        let route = ibv_global_route {
            dgid: ibv_gid { raw: gid.bytes },
            flow_label: 0,
            sgid_index: gid.index,
            hop_limit: HOP_LIMIT,
            traffic_class: options.traffic_class.unwrap_or(0),
        };
        let mut ready_to_receive = ibv_qp_attr {
            qp_state: ibv_qp_state::IBV_QPS_RTR,
            path_mtu: mtu_code(MTU),
            dest_qp_num: other.queue_pair.id().0,
            max_dest_rd_atomic: 1,
            min_rnr_timer: RNR_TIMER,
            ah_attr: ibv_ah_attr {
                grh: route,
                dlid: (device.context.system().local_identifier)(&options.device, options.port),
                is_global: 1,
                port_num: options.port,
                ..ibv_ah_attr::default()
            },
            ..ibv_qp_attr::default()
        };
        let mask = ibv_qp_attr_mask::IBV_QP_STATE
            | ibv_qp_attr_mask::IBV_QP_AV
            | ibv_qp_attr_mask::IBV_QP_PATH_MTU
            | ibv_qp_attr_mask::IBV_QP_DEST_QPN
            | ibv_qp_attr_mask::IBV_QP_RQ_PSN
            | ibv_qp_attr_mask::IBV_QP_MAX_DEST_RD_ATOMIC
            | ibv_qp_attr_mask::IBV_QP_MIN_RNR_TIMER;
        self.queue_pair.modify(&mut ready_to_receive, mask)?;
        let mut ready_to_send = ibv_qp_attr {
            qp_state: ibv_qp_state::IBV_QPS_RTS,
            timeout: ACK_TIMEOUT,
            retry_cnt: RETRIES,
            rnr_retry: RETRIES,
            max_rd_atomic: 1,
            ..ibv_qp_attr::default()
        };
        let mask = ibv_qp_attr_mask::IBV_QP_STATE
            | ibv_qp_attr_mask::IBV_QP_TIMEOUT
            | ibv_qp_attr_mask::IBV_QP_RETRY_CNT
            | ibv_qp_attr_mask::IBV_QP_RNR_RETRY
            | ibv_qp_attr_mask::IBV_QP_SQ_PSN
            | ibv_qp_attr_mask::IBV_QP_MAX_QP_RD_ATOMIC;
        self.queue_pair.modify(&mut ready_to_send, mask)
    }

    fn receive(&self, element: ScatterElement) -> io::Result<()> {
        let posted = self.queue_pair.post_receives(&[ReceiveRequest { token: RECEIVE, element }]);
        posted.map_err(|(_, error)| error)
    }

    /// Posts what `fill` builds and waits for the completion of `token`; a failure in front of it counts as its own.
    fn run<'a, 'b>(
        &'b self,
        step: &'static str,
        memory: &'a mut SendMemory,
        token: Token,
        fill: impl FnOnce(&mut dyn Sink<'a>),
    ) -> Result<Result<ibv_wc, Failure>, SelfTestError>
    where
        'b: 'a,
    {
        // By the interface that the device's ports will use.
        let posted = match Builder::begin(&self.queue_pair) {
            Some(mut builder) => {
                fill(&mut builder);
                builder.complete()
            }
            None => {
                let mut batch = memory.batch();
                fill(&mut batch);
                batch.post(&self.queue_pair).map_err(|(_, error)| error)
            }
        };
        posted.map_err(system_error(step, ""))?;
        self.wait(step, token)
    }

    #[allow(clippy::disallowed_methods, reason = "a device is opened before any loop runs, and may never answer")]
    fn wait(&self, step: &'static str, token: Token) -> Result<Result<ibv_wc, Failure>, SelfTestError> {
        let began = Instant::now();
        let mut room = [no_completion()];
        while began.elapsed() < PATIENCE {
            // Of a poll that fails nothing is left but to wait in vain.
            let Some(raw) = self.completions.poll(&mut room).unwrap_or_default().first() else {
                std::thread::yield_now();
                continue;
            };
            if let Some((status, vendor_code)) = raw.error() {
                return Ok(Err(Failure::new(FailureStatus::of_number(status), vendor_code)));
            }
            if raw.wr_id() == token.0 {
                return Ok(Ok(*raw));
            }
        }
        Err(SelfTestError::Silent { step, seconds: PATIENCE.as_secs() })
    }
}
