# sh host.sh NUMBER NAME DISK PROGRAM: the first process of a host, in namespaces of its own. It lays the host's disk
# over what the machine has, and stays: the host lives as long as this process. The folder DISK holds all that the host
# writes, but for /tmp, which is the machine's, and /run, which a power cut empties; PROGRAM is its `cell`.
set -e
number=$1 name=$2 disk=$3 program=$4
# Disks of other tests stay theirs: mounted here as well, they could not be taken away. That of a test which ends just
# now goes from here by itself.
awk '$5 ~ "/cell-[a-z]*-disk-[^/]*/" { print $5 }' /proc/self/mountinfo | sort -r | while read -r mount; do
    umount -l "$mount" || :
done
mkdir -p "$disk/mnt" "$disk/srv" "$disk/usr/bin" "$disk/etc/cell" "$disk/var/lib/cell"
ln -sf "$program" "$disk/usr/bin/cell"
{
    echo '127.0.0.1 localhost'
    for host in 1 2 3 4 5; do echo "10.79.0.$host host-$host.test"; done
    echo '10.79.0.9 client.test'
} >"$disk/etc/hosts"
echo "$name" >"$disk/etc/hostname"
hostname "$name"
for folder in etc var usr; do
    mkdir -p "$disk/work/$folder"
    mount -t overlay -o "lowerdir=/$folder,upperdir=$disk/$folder,workdir=$disk/work/$folder" "$name" "/$folder"
done
if [ ! -e "$disk/begun" ]; then
    # What this machine has of its own is not this host's, such as the id of its glusterd.
    rm -rf /var/lib/glusterd/glusterd.info /var/lib/glusterd/peers /var/lib/glusterd/vols /var/lib/etcd/*
    touch "$disk/begun"
fi
mount --bind "$disk/mnt" /mnt
mount --bind "$disk/srv" /srv
mount -t tmpfs "$name" /run
mkdir /run/lock
# Who makes the network adds this link, once there is a process to give it to.
until ip link show eth0 >/run/eth0 2>&1; do sleep 0.02; done
ip link set lo up
# The same address after each start: nobody has to ask for it anew, also where questions do not arrive.
ip link set eth0 address "02:00:0a:4f:00:0$number"
ip address add "10.79.0.$number/24" dev eth0
ip link set eth0 up
echo up
# This shell also takes in the processes whose parents have ended.
sleep infinity &
while :; do wait; done
