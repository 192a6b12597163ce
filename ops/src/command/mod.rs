//! One file a command: its arguments and what it does.

pub(crate) mod bench;
pub(crate) mod cas;
pub(crate) mod completion;
pub(crate) mod del;
pub(crate) mod dev;
pub(crate) mod drill;
pub(crate) mod drill_clean;
pub(crate) mod drill_report;
pub(crate) mod dump;
pub(crate) mod events;
pub(crate) mod get;
pub(crate) mod inspect;
pub(crate) mod load;
pub(crate) mod man;
pub(crate) mod node;
pub(crate) mod node_ls;
pub(crate) mod put;
pub(crate) mod region;
pub(crate) mod region_move;
pub(crate) mod scan;
pub(crate) mod selector;
pub(crate) mod settings;
pub(crate) mod status;
pub(crate) mod tree;
pub(crate) mod tune;
pub(crate) mod verify;
