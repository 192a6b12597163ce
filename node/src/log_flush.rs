//! How the node's logs are synced: what the setting says, what the disk is known for, and, where both leave
//! it open, a trial beside the node's start. Until that has ended each write is synced by itself.

use std::sync::{Arc, Weak};

use cell_terms::NodeId;
use cell_wal::{
    FlushChoice, FlushDecision, FlushGround, FlushTrial, FlushWay, Flusher, LogRoot, RealStorage,
};

use crate::error::NodeError;
use crate::options::NodeOptions;

/// The flush that the rings of the worker share, used or not.
pub(crate) fn start(options: &NodeOptions, log_root: &LogRoot) -> Result<Arc<Flusher>, NodeError> {
    let settings = &options.settings;
    let root = log_root.storage.root().to_string_lossy();
    let without = || FlushChoice::new(FlushWay::PerWrite, "durability is none: there are no logs");
    let decision = match settings.text("durability") {
        "none" => FlushDecision::Chosen(without()),
        _ => FlushDecision::new(settings.text("log_flush"), &root, &log_root.flush_ground)?,
    };
    let ground = log_root.flush_ground.as_ref().ok();
    match decision {
        FlushDecision::Chosen(choice) => {
            say(&choice);
            let relies = ground.filter(|_| choice.way == FlushWay::PerDevice);
            if let Some(ground) = relies.filter(|ground| ground.shares_blocks) {
                tracing::warn!(
                    file_system = ground.file_system,
                    "files here can share blocks: whoever copies the log root while the node runs has to copy \
                     its bytes (`cp --reflink=never`), or a power cut may take what was acknowledged"
                );
            }
            Ok(Flusher::start(ground, choice)?)
        }
        FlushDecision::Try(ground) => {
            let until_then = FlushChoice::new(FlushWay::PerWrite, "it is being tried what is faster");
            let flusher = Flusher::start(Some(&ground), until_then)?;
            let (storage, weak) = (log_root.storage.clone(), Arc::downgrade(&flusher));
            let folder = trial_folder(options.node);
            let thread = std::thread::Builder::new().name("cell-log-trial".to_owned());
            thread.spawn(move || run(&storage, &folder, &ground, &weak)).map_err(NodeError::Thread)?;
            Ok(flusher)
        }
    }
}

/// The node's own, which its lock keeps others from: what a trial left that was killed is found there.
fn trial_folder(node: NodeId) -> String {
    format!("flush-trial-{:08x}", node.0)
}

/// Tries, unless the node ends before.
fn run(storage: &RealStorage, folder: &str, ground: &FlushGround, flusher: &Weak<Flusher>) {
    let tried = FlushTrial::run(storage, folder, ground, || flusher.strong_count() > 0);
    let choice = match tried {
        Ok(None) => return,
        Ok(Some(trial)) => trial.choice(),
        Err(error) => FlushChoice::new(FlushWay::PerWrite, &format!("the trial failed: {error}")),
    };
    if let Some(flusher) = flusher.upgrade() {
        say(&choice);
        flusher.choose(choice);
    }
}

fn say(FlushChoice { way, why }: &FlushChoice) {
    tracing::info!(log_flush = way.word(), %why, "how the logs are synced");
}
