#![allow(unsafe_code)] // calls of libibverbs: each block says why its pointers are good
//! An RDMA device that is open: its port, its GIDs, its limits and a protection domain.

use std::ffi::CStr;
use std::io;
use std::net::IpAddr;
use std::ptr::NonNull;
use std::sync::Arc;

use ibverbs_sys as ffi;

use crate::verbs_options::VerbsOptions;

use super::error::VerbsError;
use super::gid::Gids;
use super::port::Port;

/// See the module's text. Closed with its last handle, after all that was made of it.
#[derive(Debug)]
pub(crate) struct Device {
    context: NonNull<ffi::ibv_context>,
    domain: NonNull<ffi::ibv_pd>,
    pub(super) name: String,
    pub(super) port: Port,
    pub(super) gids: Gids,
    pub(super) limits: DeviceLimits,
    pub(super) reads_ordered: bool,
}

/// What the device cannot go beyond.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceLimits {
    /// Requests that one queue of a queue pair holds.
    pub(super) requests: usize,
    /// Entries of one completion queue.
    pub(super) completions: usize,
    /// Reads and swaps of one queue pair that it has under way.
    pub(super) reads_started: u8,
    /// Those that it answers at a time.
    pub(super) reads_answered: u8,
}

// SAFETY: libibverbs permits all calls from any thread; a handle is tied to none.
unsafe impl Send for Device {}
// SAFETY: as above: what two threads do with one handle at a time the library orders itself.
unsafe impl Sync for Device {}

impl Device {
    /// Opens the device, port and GID that the options name, or the first that will do; for a process that
    /// listens at one address, the first that sends packets from it.
    ///
    /// # Errors
    /// No such device, port or GID, or the kernel does not let this process use it.
    pub(crate) fn open(options: &VerbsOptions, listens: Option<IpAddr>) -> Result<Arc<Device>, VerbsError> {
        let list = DeviceList::new()?;
        let mut refused = VerbsError::NoDevice;
        let mut names = Vec::new();
        for device in list.devices() {
            let name = name_of(device);
            names.push(name.clone());
            if !options.device.is_empty() && options.device != name {
                continue;
            }
            match Device::open_one(device, name, options, listens) {
                Ok(opened) => return Ok(Arc::new(opened)),
                Err(error) => refused = error,
            }
        }
        if !options.device.is_empty() && !names.contains(&options.device) {
            let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return Err(VerbsError::DeviceUnknown { name: options.device.clone(), there });
        }
        Err(refused)
    }

    fn open_one(
        device: NonNull<ffi::ibv_device>,
        name: String,
        options: &VerbsOptions,
        listens: Option<IpAddr>,
    ) -> Result<Device, VerbsError> {
        // SAFETY: the device is of a list that is not freed before `open` returns.
        let context = unsafe { ffi::ibv_open_device(device.as_ptr()) };
        let context = NonNull::new(context).ok_or_else(|| last_error("ibv_open_device", &name))?;
        let context = OpenContext(context);
        let (limits, ports) = device_limits(context.0, &name)?;
        let (port, gids) = choose_port(context.0, &name, ports, (options, listens))?;
        // SAFETY: the context is open.
        let domain = unsafe { ffi::ibv_alloc_pd(context.0.as_ptr()) };
        let domain = NonNull::new(domain).ok_or_else(|| last_error("ibv_alloc_pd", &name))?;
        let (context, reads_ordered) = (context.keep(), options.reads_ordered);
        Ok(Device { context, domain, name, port, gids, limits, reads_ordered })
    }

    pub(super) fn context(&self) -> NonNull<ffi::ibv_context> {
        self.context
    }

    pub(super) fn domain(&self) -> NonNull<ffi::ibv_pd> {
        self.domain
    }

    /// The device's part of a call's failure, as the system has just reported it.
    pub(super) fn last_error(&self, call: &'static str) -> VerbsError {
        last_error(call, &self.name)
    }

    /// A call's failure by the number that it returned.
    pub(super) fn error(&self, call: &'static str, number: i32) -> VerbsError {
        let source = io::Error::from_raw_os_error(number.abs());
        VerbsError::Call { call, device: self.name.clone(), source }
    }

    /// What it is, for the log.
    pub(crate) fn describe(&self) -> String {
        format!("{} port {}, {}", self.name, self.port.number, self.gids)
    }

    /// See [`VerbsOptions::reads_ordered`].
    pub(crate) fn reads_ordered(&self) -> bool {
        self.reads_ordered
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: all that was made of the domain holds an `Arc` of this, and so is gone.
        unsafe { ffi::ibv_dealloc_pd(self.domain.as_ptr()) };
        // SAFETY: as above; nobody uses the context any more.
        unsafe { ffi::ibv_close_device(self.context.as_ptr()) };
    }
}

/// A context that is closed again unless it is kept.
struct OpenContext(NonNull<ffi::ibv_context>);

impl OpenContext {
    fn keep(self) -> NonNull<ffi::ibv_context> {
        let context = self.0;
        std::mem::forget(self);
        context
    }
}

impl Drop for OpenContext {
    fn drop(&mut self) {
        // SAFETY: it was opened, nothing was made of it, and nobody else has it.
        unsafe { ffi::ibv_close_device(self.0.as_ptr()) };
    }
}

/// The devices of this machine.
struct DeviceList {
    list: NonNull<*mut ffi::ibv_device>,
    count: usize,
}

impl DeviceList {
    fn new() -> Result<DeviceList, VerbsError> {
        let mut count = 0;
        // SAFETY: the call writes the count, which outlives it.
        let list = unsafe { ffi::ibv_get_device_list(&raw mut count) };
        // A kernel without the subsystem has no list at all.
        let list = NonNull::new(list).ok_or(VerbsError::NoDevice)?;
        Ok(DeviceList { list, count: usize::try_from(count).unwrap_or(0) })
    }

    fn devices(&self) -> impl Iterator<Item = NonNull<ffi::ibv_device>> + '_ {
        // SAFETY: the list has so many entries, and lives as long as `self`.
        let devices = unsafe { std::slice::from_raw_parts(self.list.as_ptr(), self.count) };
        devices.iter().filter_map(|device| NonNull::new(*device))
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        // SAFETY: it came from `ibv_get_device_list` and is freed once; devices that were opened stay.
        unsafe { ffi::ibv_free_device_list(self.list.as_ptr()) };
    }
}

fn name_of(device: NonNull<ffi::ibv_device>) -> String {
    // SAFETY: the device is of a list that is not freed yet.
    let name = unsafe { ffi::ibv_get_device_name(device.as_ptr()) };
    if name.is_null() {
        return String::new();
    }
    // SAFETY: a device's name is a C string that lives as long as the device.
    let name = unsafe { CStr::from_ptr(name) };
    name.to_string_lossy().into_owned()
}

/// The limits, and how many ports there are.
fn device_limits(context: NonNull<ffi::ibv_context>, name: &str) -> Result<(DeviceLimits, u8), VerbsError> {
    let mut attributes = ffi::ibv_device_attr::default();
    // SAFETY: the context is open, and the attributes outlive the call, which writes them.
    let answer = unsafe { ffi::ibv_query_device(context.as_ptr(), &raw mut attributes) };
    if answer != 0 {
        return Err(failed("ibv_query_device", name, answer));
    }
    let count = |limit: i32| usize::try_from(limit).unwrap_or(0).max(1);
    let few = |limit: i32| u8::try_from(limit.clamp(1, 255)).unwrap_or(1);
    let limits = DeviceLimits {
        requests: count(attributes.max_qp_wr),
        completions: count(attributes.max_cqe),
        reads_started: few(attributes.max_qp_init_rd_atom),
        reads_answered: few(attributes.max_qp_rd_atom),
    };
    Ok((limits, attributes.phys_port_cnt))
}

/// The first port that is active and has the GIDs that are wanted.
fn choose_port(
    context: NonNull<ffi::ibv_context>,
    name: &str,
    ports: u8,
    (options, listens): (&VerbsOptions, Option<IpAddr>),
) -> Result<(Port, Gids), VerbsError> {
    let wanted = options.port;
    let which = if wanted == 0 { String::new() } else { format!(" {wanted}") };
    let mut refused = VerbsError::NoActivePort { device: name.to_owned(), which };
    for number in (1..=ports).filter(|number| wanted == 0 || *number == wanted) {
        let Some(port) = active_port(context, name, number)? else { continue };
        let gids = match Gids::read(context, name, &port, options.gid) {
            Ok(gids) => gids,
            Err(error) => {
                refused = error;
                continue;
            }
        };
        match listens.filter(|address| gids.of_address(*address).is_none()) {
            None => return Ok((port, gids)),
            Some(address) => {
                let (device, there) = (name.to_owned(), gids.to_string());
                refused = VerbsError::NoGidOfAddress { device, port: number, address, there };
            }
        }
    }
    Err(refused)
}

/// The port of that number, if it is active.
fn active_port(
    context: NonNull<ffi::ibv_context>,
    name: &str,
    number: u8,
) -> Result<Option<Port>, VerbsError> {
    let mut attributes = ffi::ibv_port_attr::default();
    let written: *mut ffi::ibv_port_attr = &raw mut attributes;
    // SAFETY: the context is open. The function writes the older, shorter form of the attributes, whose
    // fields are the first ones of these, which outlive the call.
    let answer = unsafe { ffi::ibv_query_port(context.as_ptr(), number, written.cast()) };
    if answer != 0 {
        return Err(failed("ibv_query_port", name, answer));
    }
    let is_active = attributes.state == ffi::ibv_port_state::IBV_PORT_ACTIVE;
    Ok(is_active.then(|| Port {
        number,
        lid: attributes.lid,
        packet_size: u8::try_from(attributes.active_mtu).unwrap_or(1).clamp(1, 5),
        gids: u32::try_from(attributes.gid_tbl_len).unwrap_or(0),
        is_ethernet: u32::from(attributes.link_layer) == ffi::IBV_LINK_LAYER_ETHERNET,
    }))
}

fn last_error(call: &'static str, name: &str) -> VerbsError {
    VerbsError::Call { call, device: name.to_owned(), source: io::Error::last_os_error() }
}

fn failed(call: &'static str, name: &str, number: i32) -> VerbsError {
    let source = io::Error::from_raw_os_error(number.abs());
    VerbsError::Call { call, device: name.to_owned(), source }
}
