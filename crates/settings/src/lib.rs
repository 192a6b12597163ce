//! Settings from their declarations to the values in force. Each crate declares its own
//! ([`cell_terms::setting`]); a [`Registry`] joins the lists.
//!
//! | part | what it is |
//! |---|---|
//! | `registry` | every declaration, by section; the table as Markdown and as JSON |
//! | `source` | the configuration file and `CELL_*` variables |
//! | `rule` | what must hold between several settings |
//! | `store` | the values in force: those given and those tuned; revisions, subscribers |

mod registry;
mod rule;
mod source;
mod store;

pub use registry::{Registry, Section};
pub use rule::{Conflict, check_rules};
pub use source::{SourceError, read_environment, read_file};
pub use store::{Author, SettingChange, SettingsRevision, SettingsStore, Taken, TunedValues, UpdateError};
