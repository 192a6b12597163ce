# sh -c THIS groups FOLDER OWN: removes the control groups that systemd left which ran on hosts of the process OWN, and
# of processes that have ended. FOLDER is empty.
mount -t cgroup2 none "$1" || exit 0
for group in "$1"/cell-hosts-*; do
    process=${group##*/cell-hosts-}
    process=${process%%-*}
    [ -d "$group" ] || continue
    if [ "$process" = "$2" ] || ! [ -d "/proc/$process" ]; then
        find "$group" -depth -type d -exec rmdir {} \;
    fi
done
umount "$1"
