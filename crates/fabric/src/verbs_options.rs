//! Whether and how RDMA is used, as the settings say it. In every build, so that one without the feature
//! `verbs` can say what it lacks.

use cell_terms::setting::Settings;

/// What the setting of a GID is where the operator names none.
const GID_ANY: u32 = 65_535;

/// Whether an acceptor offers RDMA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VerbsOffer {
    /// It does not.
    #[default]
    Off,
    /// It does where there is a device.
    Auto,
    /// It does, or it does not start.
    On,
}

/// How RDMA is used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerbsOptions {
    /// An acceptor's.
    pub offer: VerbsOffer,
    /// The device's name, such as `mlx5_0`; empty: the first one with an active port, of an acceptor one that
    /// on Ethernet has the address that it listens on.
    pub device: String,
    /// Its port; zero: the first one that is active.
    pub port: u8,
    /// The index of the GID to use; none: on Ethernet that of the address which a connection has at this end,
    /// over loopback and InfiniBand the first of RoCE v2 with an IPv4 address, or the next best.
    pub gid: Option<u32>,
    /// The operator says that one read's bytes are loaded in address order: no checksum in tree nodes then.
    pub reads_ordered: bool,
}

impl VerbsOptions {
    /// A server's settings in force.
    ///
    /// # Panics
    /// If [`crate::SETTINGS`] are not among the declarations.
    #[must_use]
    pub fn from_settings(settings: &Settings) -> VerbsOptions {
        let offer = match settings.text("fabric_verbs") {
            "on" => VerbsOffer::On,
            "auto" => VerbsOffer::Auto,
            _ => VerbsOffer::Off,
        };
        VerbsOptions { offer, ..VerbsOptions::from_settings_of(settings, "fabric") }
    }

    /// The device, its port and GID, and the order of reads, by settings that are named alike:
    /// `PREFIX_verbs_device` and so on.
    ///
    /// # Panics
    /// If those are not among the declarations.
    #[must_use]
    pub fn from_settings_of(settings: &Settings, prefix: &str) -> VerbsOptions {
        let name = |what: &str| format!("{prefix}_verbs_{what}");
        VerbsOptions {
            offer: VerbsOffer::Off,
            device: settings.text(&name("device")).to_owned(),
            port: u8::try_from(settings.integer(&name("port"))).unwrap_or(0),
            gid: u32::try_from(settings.integer(&name("gid"))).ok().filter(|gid| *gid != GID_ANY),
            reads_ordered: settings.flag(&name("reads_ordered")),
        }
    }
}
