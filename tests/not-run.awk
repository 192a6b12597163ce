# awk -f tests/not-run.awk LOG LIST: of the tests of LIST, as `cargo nextest list --message-format oneline` writes them,
# those that nextest's LOG has no status of: it has not started them. The first ones, one a line, and how many more.

BEGIN { tests_max = 20 }

FILENAME == ARGV[1] {
    if (/ \[[ >]*[0-9.]*s? *\] +(\([^)]*\) +)?[^ ]+ [^ ]+$/) begun[$(NF - 1) " " $NF]
    next
}
!($0 in begun) && ++lacking <= tests_max

END { if (lacking > tests_max) print lacking - tests_max " more" }
