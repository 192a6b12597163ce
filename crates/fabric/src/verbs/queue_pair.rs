#![allow(unsafe_code)] // calls of libibverbs: each block says why its pointers are good
//! One reliable queue pair, the buffers that its work names, and chains of work that the device is rung for
//! once.

use std::ptr::NonNull;
use std::sync::Arc;

use ibverbs_sys as ffi;

use crate::queue_pair_end::QueuePairEnd;

use super::completion::CompletionQueue;
use super::device::Device;
use super::error::VerbsError;
use super::gid::Gid;
use super::memory::{Buffer, Span};
use super::work::{RemotePlace, RequestId, Work};

/// Times that an unanswered packet, or one that met no slot, is sent again.
const RETRIES: u8 = 7;
const SLOT_RETRIES: u8 = 6;
/// How long a packet waits for its answer: 4.096 us times two to the power of this, so 67 ms.
const ANSWER_TIME: u8 = 14;
/// How long a peer without a slot asks to be left alone: number 12 of the standard's table, 640 us.
const SLOT_TIME: u8 = 12;
/// What the device needs not fetch from memory, because it came with the request.
const INLINE_BYTES: u32 = 64;

/// See the module's text.
pub(super) struct QueuePair {
    handle: NonNull<ffi::ibv_qp>,
    completions: Arc<CompletionQueue>,
    pub(super) serial: u32,
    sizes: QueueSizes,
    /// Where its packets come from.
    gid: Gid,
    inline_bytes: usize,
    first_packet: u32,
    /// The number of the next work.
    next_work: u32,
    /// Work that the device has not been rung for.
    chain: Vec<ffi::ibv_send_wr>,
    elements: Vec<ffi::ibv_sge>,
    /// Messages, both ways.
    pub(super) slots: Buffer,
    /// What operations bring and take; made when the first one waits.
    pub(super) landing: Option<Buffer>,
}

/// How much a queue pair holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueSizes {
    /// Work that has not ended.
    pub(super) work: usize,
    /// Slots for what comes.
    pub(super) incoming: usize,
    /// Bytes of all slots, both ways.
    pub(super) slots_bytes: usize,
}

// SAFETY: libibverbs permits all calls from any thread. The pointers of the chain lead into the value's own
// lists, and are made anew each time the device is rung for.
unsafe impl Send for QueuePair {}

impl QueuePair {
    /// A queue pair that can be given slots, and waits for its peer.
    ///
    /// # Errors
    /// The device has no more, or no more memory may be locked.
    pub(super) fn new(
        completions: &Arc<CompletionQueue>,
        serial: u32,
        sizes: QueueSizes,
        gid: Gid,
        peers_access: bool,
    ) -> Result<QueuePair, VerbsError> {
        let device = completions.device();
        let slots = Buffer::new(device, sizes.slots_bytes)?;
        completions.promise(sizes.work + sizes.incoming)?;
        let (handle, inline_bytes) = create(completions, sizes).inspect_err(|_| {
            completions.release(sizes.work + sizes.incoming);
        })?;
        let mut pair = QueuePair {
            handle,
            completions: Arc::clone(completions),
            serial,
            sizes,
            gid,
            inline_bytes,
            first_packet: first_packet(),
            next_work: 0,
            chain: Vec::with_capacity(sizes.work),
            elements: Vec::with_capacity(sizes.work),
            slots,
            landing: None,
        };
        pair.initialise(peers_access)?;
        Ok(pair)
    }

    fn device(&self) -> &Arc<Device> {
        self.completions.device()
    }

    /// What is sent to the peer.
    pub(super) fn end(&self, slots: u16, slot_bytes: u32) -> QueuePairEnd {
        let device = self.device();
        QueuePairEnd {
            // SAFETY: the queue pair lives as long as `self`, and its number never changes.
            number: unsafe { (*self.handle.as_ptr()).qp_num },
            packet: self.first_packet,
            gid: self.gid.bytes,
            lid: device.port.lid,
            packet_size: device.port.packet_size,
            reads_at_once: device.limits.reads_answered,
            slot_bytes,
            slots,
        }
    }

    fn initialise(&mut self, peers_access: bool) -> Result<(), VerbsError> {
        use ffi::ibv_access_flags as access;
        use ffi::ibv_qp_attr_mask as mask;
        // What a region permits is for its registration to say.
        let granted = access::IBV_ACCESS_REMOTE_READ
            | access::IBV_ACCESS_REMOTE_WRITE
            | access::IBV_ACCESS_REMOTE_ATOMIC;
        let mut attributes = ffi::ibv_qp_attr {
            qp_state: ffi::ibv_qp_state::IBV_QPS_INIT,
            qp_access_flags: if peers_access { granted.0 } else { 0 },
            port_num: self.device().port.number,
            ..ffi::ibv_qp_attr::default()
        };
        let named =
            mask::IBV_QP_STATE | mask::IBV_QP_PKEY_INDEX | mask::IBV_QP_PORT | mask::IBV_QP_ACCESS_FLAGS;
        self.modify(&mut attributes, named)
    }

    /// Connects it to the peer's.
    ///
    /// # Errors
    /// The device does not reach that peer.
    pub(super) fn connect(&mut self, peer: &QueuePairEnd) -> Result<(), VerbsError> {
        use ffi::ibv_qp_attr_mask as mask;
        let device = Arc::clone(self.device());
        let mut attributes = ffi::ibv_qp_attr {
            qp_state: ffi::ibv_qp_state::IBV_QPS_RTR,
            path_mtu: u32::from(peer.packet_size.min(device.port.packet_size)),
            dest_qp_num: peer.number,
            rq_psn: peer.packet,
            max_dest_rd_atomic: device.limits.reads_answered,
            min_rnr_timer: SLOT_TIME,
            ah_attr: way_to(&device, self.gid, peer),
            ..ffi::ibv_qp_attr::default()
        };
        let named = mask::IBV_QP_STATE
            | mask::IBV_QP_AV
            | mask::IBV_QP_PATH_MTU
            | mask::IBV_QP_DEST_QPN
            | mask::IBV_QP_RQ_PSN
            | mask::IBV_QP_MAX_DEST_RD_ATOMIC
            | mask::IBV_QP_MIN_RNR_TIMER;
        self.modify(&mut attributes, named)?;
        let mut attributes = ffi::ibv_qp_attr {
            qp_state: ffi::ibv_qp_state::IBV_QPS_RTS,
            sq_psn: self.first_packet,
            timeout: ANSWER_TIME,
            retry_cnt: RETRIES,
            rnr_retry: SLOT_RETRIES,
            max_rd_atomic: device.limits.reads_started.min(peer.reads_at_once),
            ..ffi::ibv_qp_attr::default()
        };
        let named = mask::IBV_QP_STATE
            | mask::IBV_QP_SQ_PSN
            | mask::IBV_QP_TIMEOUT
            | mask::IBV_QP_RETRY_CNT
            | mask::IBV_QP_RNR_RETRY
            | mask::IBV_QP_MAX_QP_RD_ATOMIC;
        self.modify(&mut attributes, named)
    }

    fn modify(
        &mut self,
        attributes: &mut ffi::ibv_qp_attr,
        named: ffi::ibv_qp_attr_mask,
    ) -> Result<(), VerbsError> {
        let named = i32::try_from(named.0).unwrap_or(0);
        // SAFETY: the queue pair lives as long as `self`; the call reads the attributes, which outlive it.
        let answer = unsafe { ffi::ibv_modify_qp(self.handle.as_ptr(), attributes, named) };
        if answer == 0 { Ok(()) } else { Err(self.device().error("ibv_modify_qp", answer)) }
    }

    /// Hands slots for what comes to the device.
    ///
    /// # Errors
    /// The queue pair is broken.
    pub(super) fn post_slots(&mut self, slots: impl Iterator<Item = (u32, Span)>) -> Result<(), VerbsError> {
        for (index, span) in slots {
            let mut element = self.slots.element(span);
            let id = RequestId { serial: self.serial, incoming: true, index };
            let mut request = ffi::ibv_recv_wr {
                wr_id: id.number(),
                next: std::ptr::null_mut(),
                sg_list: &raw mut element,
                num_sge: 1,
            };
            let mut refused = std::ptr::null_mut();
            // SAFETY: the context of a queue pair that lives is open.
            let post = unsafe { (*self.device().context().as_ptr()).ops.post_recv };
            let Some(post) = post else { return Err(self.device().last_error("ibv_post_recv")) };
            // SAFETY: the function is the driver's own for this queue pair, and copies the request before it
            // returns. The device writes to the slot until its completion is polled; the buffer outlives the
            // queue pair, and nobody looks at the slot meanwhile.
            let answer = unsafe { post(self.handle.as_ptr(), &raw mut request, &raw mut refused) };
            if answer != 0 {
                return Err(self.device().error("ibv_post_recv", answer));
            }
        }
        Ok(())
    }

    /// Adds work to the chain. It gets the next number, which its completion, or that of a later one, names.
    /// `signalled`: whether the device signals its end.
    pub(super) fn chain(&mut self, work: &Work, signalled: bool) {
        use ffi::ibv_send_flags as flags;
        use ffi::ibv_wr_opcode as code;
        assert!(self.chain.len() < self.sizes.work, "a chain is no longer than the queue");
        let index = self.next_work;
        self.next_work = index.wrapping_add(1);
        let (opcode, buffer, span) = match work {
            Work::Send { from, .. } => (code::IBV_WR_SEND_WITH_IMM, Some(&self.slots), *from),
            Work::Read { into, .. } => (code::IBV_WR_RDMA_READ, self.landing.as_ref(), *into),
            Work::Write { from, .. } => (code::IBV_WR_RDMA_WRITE, self.landing.as_ref(), *from),
            Work::Swap { into, .. } => (code::IBV_WR_ATOMIC_CMP_AND_SWP, self.landing.as_ref(), *into),
        };
        let buffer = buffer.expect("operations are chained once there is a buffer for them");
        self.elements.push(buffer.element(span));
        let mut send_flags = if signalled { flags::IBV_SEND_SIGNALED.0 } else { 0 };
        let goes_out = matches!(work, Work::Send { .. } | Work::Write { .. });
        if goes_out && span.length <= self.inline_bytes {
            send_flags |= flags::IBV_SEND_INLINE.0;
        }
        let id = RequestId { serial: self.serial, incoming: false, index };
        let mut request = ffi::ibv_send_wr {
            wr_id: id.number(),
            next: std::ptr::null_mut(),
            sg_list: std::ptr::null_mut(),
            num_sge: i32::from(span.length > 0),
            opcode,
            send_flags,
            ..ffi::ibv_send_wr::default()
        };
        match *work {
            Work::Send { number, .. } => request.__bindgen_anon_1.imm_data = number.to_be(),
            Work::Read { from: place, .. } | Work::Write { to: place, .. } => {
                let RemotePlace { address, key } = place;
                request.wr.rdma =
                    ffi::ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr: address, rkey: key };
            }
            Work::Swap { at: RemotePlace { address, key }, expected, new, .. } => {
                request.wr.atomic = ffi::ibv_send_wr__bindgen_ty_2__bindgen_ty_2 {
                    remote_addr: address,
                    compare_add: expected,
                    swap: new,
                    rkey: key,
                };
            }
        }
        self.chain.push(request);
    }

    /// The device signals the end of the last one that is chained, and so of all before it.
    pub(super) fn signal_last(&mut self) {
        if let Some(last) = self.chain.last_mut() {
            last.send_flags |= ffi::ibv_send_flags::IBV_SEND_SIGNALED.0;
        }
    }

    /// Rings once for all that is chained.
    ///
    /// # Errors
    /// The queue pair is broken.
    pub(super) fn ring(&mut self) -> Result<(), VerbsError> {
        if self.chain.is_empty() {
            return Ok(());
        }
        let mut next = std::ptr::null_mut();
        for (request, element) in self.chain.iter_mut().zip(&mut self.elements).rev() {
            request.sg_list = element;
            request.next = next;
            next = request;
        }
        let mut refused = std::ptr::null_mut();
        // SAFETY: the context of a queue pair that lives is open.
        let post = unsafe { (*self.device().context().as_ptr()).ops.post_send };
        let Some(post) = post else { return Err(self.device().last_error("ibv_post_send")) };
        // SAFETY: the function is the driver's own for this queue pair. The requests and what they point to
        // are in lists that nothing touches before it returns; it copies them. The device reads and writes
        // the parts of the buffers that they name until their completions are polled; the buffers outlive the
        // queue pair, and who chained the work leaves those parts alone.
        let answer = unsafe { post(self.handle.as_ptr(), next, &raw mut refused) };
        self.chain.clear();
        self.elements.clear();
        if answer == 0 { Ok(()) } else { Err(self.device().error("ibv_post_send", answer)) }
    }
}

impl std::fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueuePair").field("serial", &self.serial).finish_non_exhaustive()
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: the handle was given by `ibv_create_qp` and is given back once. Afterwards the device
        // touches the buffers no more, which go next.
        let answer = unsafe { ffi::ibv_destroy_qp(self.handle.as_ptr()) };
        assert!(answer == 0, "a queue pair cannot be ended, and its buffers must not be: {answer}");
        self.completions.release(self.sizes.work + self.sizes.incoming);
    }
}

fn create(
    completions: &CompletionQueue,
    sizes: QueueSizes,
) -> Result<(NonNull<ffi::ibv_qp>, usize), VerbsError> {
    let device = completions.device();
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let mut wanted = ffi::ibv_qp_init_attr {
        send_cq: completions.handle().as_ptr(),
        recv_cq: completions.handle().as_ptr(),
        cap: ffi::ibv_qp_cap {
            max_send_wr: count(sizes.work),
            max_recv_wr: count(sizes.incoming),
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: INLINE_BYTES,
        },
        qp_type: ffi::ibv_qp_type::IBV_QPT_RC,
        ..ffi::ibv_qp_init_attr::default()
    };
    // SAFETY: domain and completion queue live, and the attributes outlive the call.
    let mut handle = unsafe { ffi::ibv_create_qp(device.domain().as_ptr(), &raw mut wanted) };
    if handle.is_null() {
        // A device that takes nothing inline.
        wanted.cap.max_inline_data = 0;
        // SAFETY: as above.
        handle = unsafe { ffi::ibv_create_qp(device.domain().as_ptr(), &raw mut wanted) };
    }
    let handle = NonNull::new(handle).ok_or_else(|| device.last_error("ibv_create_qp"))?;
    Ok((handle, usize::try_from(wanted.cap.max_inline_data).unwrap_or(0)))
}

/// How packets find the peer.
fn way_to(device: &Device, gid: Gid, peer: &QueuePairEnd) -> ffi::ibv_ah_attr {
    let grh = ffi::ibv_global_route {
        dgid: ffi::ibv_gid { raw: peer.gid },
        sgid_index: gid.index,
        hop_limit: 64,
        ..ffi::ibv_global_route::default()
    };
    ffi::ibv_ah_attr {
        grh,
        dlid: peer.lid,
        is_global: u8::from(device.port.is_ethernet),
        port_num: device.port.number,
        ..ffi::ibv_ah_attr::default()
    }
}

/// A number that packets of an earlier queue pair hardly have.
fn first_packet() -> u32 {
    let mut bytes = [0; 4];
    // Without random bytes the number is only easier to meet again.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    u32::from_le_bytes(bytes) >> 8
}
