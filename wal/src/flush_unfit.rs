//! Why one flush is not taken to cover all logs of a log root, in words. What is looked at, and why it
//! matters, says `flush_ground`.

use std::fmt;

/// Why one flush may not cover all logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlushUnfit {
    /// It is known of ext4 and XFS alone.
    FileSystem {
        /// What it is.
        name: String,
    },
    /// It is mounted so that one flush does not do it, or none is sent.
    MountOption {
        /// The option.
        option: String,
    },
    /// Its files go through the page cache, or this kernel (before Linux 6.1) cannot tell.
    PageCache,
    /// It could not be found out.
    Unknown,
}

impl fmt::Display for FlushUnfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FlushUnfit::FileSystem { name } => {
                write!(
                    f,
                    "the file system is {name}, and one flush for all logs is known of ext4 and XFS alone"
                )
            }
            FlushUnfit::MountOption { option } => {
                write!(f, "the file system is mounted with `{option}`: one flush does not cover its files")
            }
            FlushUnfit::PageCache => f.write_str(
                "its files go through the page cache, or the kernel cannot tell (Linux 6.1 and later can)",
            ),
            FlushUnfit::Unknown => f.write_str("nothing could be found out of the file system"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfit_ground_says_why() {
        let said = FlushUnfit::FileSystem { name: "nfs4".to_owned() }.to_string();
        assert!(said.contains("nfs4") && said.contains("ext4 and XFS"), "{said}");
        let said = FlushUnfit::MountOption { option: "nobarrier".to_owned() }.to_string();
        assert!(said.contains("`nobarrier`"), "{said}");
    }
}
