# sh -c THIS systemd GROUP HOME: on a host, makes systemd the first process of process and mount namespaces within the
# host's, in a control group of the machine, with the units that a fresh Debian has of what the walk-through uses. HOME
# becomes root's folder.
set -e
group=$1 home=$2
mount --bind "$home" /root
mkdir /run/groups
mount -t cgroup2 none /run/groups
mkdir "/run/groups/$group"
echo $$ >"/run/groups/$group/cgroup.procs"
umount /run/groups
# The walk-through brings the program, and what systemd has of this machine's is not this host's.
rm -rf /usr/bin/cell /etc/systemd/system/* /etc/cell
tr -d - </proc/sys/kernel/random/uuid >/etc/machine-id
printf '[Journal]\nReadKMsg=no\nAudit=\nStorage=volatile\nForwardToWall=no\n' >/etc/systemd/journald.conf
mkdir /run/units
cd /run/units
for target in sysinit basic multi-user default network network-online remote-fs time-sync local-fs sockets shutdown \
    umount final; do
    printf '[Unit]\nDescription=%s\nDefaultDependencies=no\n' "$target" >"$target.target"
done
printf 'Wants=systemd-journald.service sshd.service\n' >>default.target
cat >sshd.service <<EOF
[Unit]
Description=ssh
DefaultDependencies=no
[Service]
RuntimeDirectory=sshd
ExecStart=/usr/sbin/sshd -D -f /dev/null -h $home/host_key -o UsePAM=no -o StrictModes=no -o PidFile=none -o "Subsystem=sftp internal-sftp"
EOF
for unit in etcd.service glusterd.service systemd-journald.service systemd-journald.socket \
    systemd-journald-dev-log.socket; do
    cp "/lib/systemd/system/$unit" .
done
cd /
# Nothing of it may change what the whole machine goes by: it sees /proc/sys read-only.
exec unshare --pid --fork --kill-child --mount --cgroup --mount-proc sh -c '
set -e
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys
mount -t cgroup2 none /sys/fs/cgroup
mkdir -p /run/systemd
export container=cell SYSTEMD_UNIT_PATH=/etc/systemd/system:/run/units
exec /lib/systemd/systemd --system --log-target=journal --show-status=no'
