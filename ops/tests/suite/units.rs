//! The units for systemd, as systemd itself reads them.

use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

/// Keys that older versions of systemd warn of and leave out.
const NEWER: [&str; 2] = ["RestartSteps", "RestartMaxDelaySec"];

#[test]
fn units_are_understood_by_systemd() {
    let folder = tempfile::tempdir().unwrap();
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd")).unwrap() {
        let entry = entry.unwrap();
        // A template is verified as one of its instances, and the program is where it was built.
        let name = entry.file_name().into_string().unwrap().replace('@', "@3");
        let text = std::fs::read_to_string(entry.path()).unwrap();
        assert!(text.contains("ExecStart=/usr/bin/cell "), "{name}");
        let path = folder.path().join(name);
        std::fs::write(&path, text.replace("/usr/bin/cell", env!("CARGO_BIN_EXE_cell"))).unwrap();
        paths.push(path);
    }
    assert_eq!(paths.len(), 5, "{paths:?}");
    let output = match Command::new("systemd-analyze").args(["verify", "--man=no"]).args(&paths).output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            println!("SKIPPED: units of systemd: systemd-analyze is not installed");
            return;
        }
        output => output.unwrap(),
    };
    let said = String::from_utf8_lossy(&output.stderr);
    let is_of_ours = |line: &&str| line.contains("cell-") && !NEWER.iter().any(|key| line.contains(key));
    let wrong: Vec<&str> = said.lines().filter(is_of_ours).collect();
    assert!(output.status.success() && wrong.is_empty(), "{wrong:?}: {said}");
}
