//! Files, and the names of files and folders, on stable storage.
//!
//! | module | role |
//! |---|---|
//! | [`Syncer`] | puts bytes and names on stable storage, keeps room on the disk; [`SystemSyncer`] asks the system to |
//! | [`create_folders`] | the one way in which Cell makes a folder that data will lie in |
//! | [`PowerCutSyncer`] | keeps what was synced, and shows what a power cut would leave |

mod folders;
mod power_cut;
mod syncer;

pub use folders::create_folders;
pub use power_cut::PowerCutSyncer;
pub use syncer::{Syncer, SystemSyncer};
