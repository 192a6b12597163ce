//! Which files of TLS and tokens every user of this machine may read, though they are secret, or write, and
//! whether the certificate by which etcd knows this node comes to its end. A file system that hangs must not
//! hold the web's one thread, so they are looked at on another one, one look at a time.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use cell_node::{ProcessWarnings, WarningSubject};
use cell_terms::setting::Settings;

use crate::certificate::{ending, exposed};
use crate::clock::now_unix_ms;
use crate::one_look::OneLook;
use crate::setting;

/// See the module's text.
#[derive(Clone, Default)]
pub(crate) struct FileWatch {
    files: Arc<[GuardedFile]>,
    /// What is shown to etcd. A node's own certificates are watched where they are served.
    etcd_certificate: Option<Arc<Path>>,
    warnings: Arc<ProcessWarnings>,
    /// What the last look found.
    found: Arc<Mutex<Vec<String>>>,
    looks: OneLook,
}

struct GuardedFile {
    /// The setting that names it.
    name: &'static str,
    path: PathBuf,
    is_secret: bool,
}

impl FileWatch {
    /// Of the files that the settings name; what is wrong with them is said to the node, too.
    pub(crate) fn new(settings: &Settings, warnings: Arc<ProcessWarnings>) -> FileWatch {
        let file = |(name, is_secret)| {
            let path = setting::text(settings, name)?.into();
            Some(GuardedFile { name, path, is_secret })
        };
        let files = setting::GUARDED_FILES.into_iter().filter_map(file).collect();
        let etcd_certificate = setting::text(settings, setting::ETCD_CERTIFICATE);
        let etcd_certificate = etcd_certificate.map(|path| Arc::from(Path::new(path)));
        FileWatch { files, etcd_certificate, warnings, ..FileWatch::default() }
    }

    /// Looks, and says in the log all that is wrong. It may block.
    pub(crate) fn look_and_say(&self) {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.look_now();
    }

    /// Looks, unless a look is under way, and says in the log what is new.
    pub(crate) async fn look(&self) {
        if !self.files.is_empty() || self.etcd_certificate.is_some() {
            let watch = self.clone();
            self.looks.take(move || watch.look_now()).await;
        }
    }

    fn look_now(&self) {
        let warning =
            |file: &GuardedFile| Some(format!("{}: {}", file.name, exposed(&file.path, file.is_secret)?));
        let mut found: Vec<String> = self.files.iter().filter_map(warning).collect();
        found.extend(self.etcd_certificate.as_deref().and_then(of_etcd_certificate));
        self.warnings.set(WarningSubject::Files, found.clone());
        let before =
            std::mem::replace(&mut *self.found.lock().unwrap_or_else(PoisonError::into_inner), found.clone());
        for warning in found.iter().filter(|warning| !before.contains(warning)) {
            tracing::warn!("{warning}");
        }
    }
}

fn of_etcd_certificate(path: &Path) -> Option<String> {
    let now = now_unix_ms().cast_signed() / 1_000;
    Some(format!("{}: {}", setting::ETCD_CERTIFICATE, ending(path, "members of etcd", now)?))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use cell_terms::setting::{Applies, Bounds, OPTIONAL_PATH, Setting, Source};
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    /// Only the log had them, when the node started.
    #[tokio::test]
    async fn files_that_everybody_may_read_are_warned_of_until_nobody_may() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        let mut settings = Settings::new(&[crate::SETTINGS, cell_fabric::TLS_SETTINGS]);
        for name in [cell_fabric::TLS_KEY_FILE, cell_fabric::TLS_TRUST_FILE] {
            settings.set(name, path, Source::Flag).unwrap();
        }
        let warnings = Arc::new(ProcessWarnings::default());
        let watch = FileWatch::new(&settings, warnings.clone());
        let permit = |mode| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        permit(0o644);
        assert!(warnings.all().is_empty(), "nobody looked");
        watch.look().await;
        let said =
            format!("tls_key_file: every user of this machine may read {path}; next: chmod o-rwx {path}");
        assert_eq!(warnings.all(), [said]);
        permit(0o602);
        watch.look_and_say();
        assert_eq!(warnings.all().len(), 2, "both may be written");
        permit(0o600);
        watch.look().await;
        assert!(warnings.all().is_empty());
    }

    const fn of_the_process(name: &'static str) -> Setting {
        Setting {
            name,
            meaning: "As the process declares it.",
            default: "",
            bounds: Bounds::Form(OPTIONAL_PATH),
            applies: Applies::Restart("As the process declares it."),
        }
    }

    /// All nodes lost etcd when they had to connect anew, and none had warned of that.
    #[test]
    fn certificate_for_etcd_that_has_ended_is_warned_of() {
        const OF_THE_PROCESS: &[Setting] = &[of_the_process(setting::ETCD_CERTIFICATE)];
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        let mut settings = Settings::new(&[OF_THE_PROCESS]);
        settings.set(setting::ETCD_CERTIFICATE, path, Source::Flag).unwrap();
        let warnings = Arc::new(ProcessWarnings::default());
        let watch = FileWatch::new(&settings, warnings.clone());
        let said_of = |text: &str| {
            std::fs::write(path, text).unwrap();
            watch.look_and_say();
            warnings.all()
        };
        assert!(said_of("nonsense").is_empty(), "who connects to etcd says so");
        let ends = |year| {
            let mut params = CertificateParams::new(["node-1.example".to_owned()]).unwrap();
            params.not_after = date_time_ymd(year, 1, 1);
            params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
        };
        let ended = said_of(&ends(2001));
        let wanted = format!("etcd_client_certificate_file: a certificate of {path} has ended: ");
        assert!(ended.len() == 1 && ended[0].starts_with(&wanted), "{ended:?}");
        assert!(said_of(&ends(2096)).is_empty(), "another one is in its place");
    }

    #[test]
    fn what_is_shown_to_the_coordinator_is_a_secret() {
        const OF_THE_PROCESS: &[Setting] = &[
            of_the_process(setting::COORDINATOR_TOKEN),
            of_the_process(setting::ETCD_PASSWORD),
            of_the_process(setting::ETCD_KEY),
        ];
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        std::fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap();
        for of_the_process in OF_THE_PROCESS {
            let mut settings = Settings::new(&[OF_THE_PROCESS]);
            settings.set(of_the_process.name, path, Source::Flag).unwrap();
            let warnings = Arc::new(ProcessWarnings::default());
            FileWatch::new(&settings, warnings.clone()).look_and_say();
            let (said, begins) = (warnings.all(), format!("{}: every user", of_the_process.name));
            assert!(said.len() == 1 && said[0].starts_with(&begins), "{said:?}");
        }
    }
}
