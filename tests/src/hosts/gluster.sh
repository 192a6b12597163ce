# sh gluster.sh DO …: GlusterFS on a host: a brick in /srv/brick, and the volume `cell` of three of them at /mnt/cell.
# What the options are for: docs/LOG-ROOT.md.
set -e
volume=cell brick=/srv/brick/cell
here=$(cat /etc/hostname)
pid=/run/gluster/vols/$volume/$here-srv-brick-$volume.pid
case $1 in
    # The daemon, also after a power cut: it starts the bricks of a volume that was started.
    daemon)
        mkdir -p /srv/brick /run/gluster /var/log/glusterfs
        glusterd
        ;;
    # PEER: takes another host into the pool, once its daemon answers.
    peer) gluster --mode=script peer probe "$2" ;;
    # How many others are connected.
    peers) gluster pool list | grep -v localhost | grep -c Connected ;;
    # BRICK HOSTS …: makes the volume, and starts it.
    volume)
        shift
        set -- $(for host in "$@"; do echo "$host:$brick"; done)
        gluster --mode=script volume create $volume replica 3 "$@" force
        gluster --mode=script volume set $volume \
            cluster.quorum-type auto \
            performance.strict-o-direct on network.remote-dio disable \
            performance.write-behind off performance.read-ahead off performance.io-cache off \
            performance.quick-read off performance.stat-prefetch off performance.open-behind off \
            network.ping-timeout 5 server.tcp-user-timeout 5 \
            server.keepalive-time 2 server.keepalive-interval 1 server.keepalive-count 3
        gluster --mode=script volume start $volume
        ;;
    # FOLDER: mounts the volume there.
    mount)
        mkdir -p "$2"
        grep -q " $2 fuse.glusterfs " /proc/mounts || mount -t glusterfs \
            -o direct-io-mode=enable,attribute-timeout=0,entry-timeout=0,negative-timeout=0 localhost:/$volume "$2"
        ls "$2" >/dev/null
        ;;
    # FOLDER: whether what is mounted there can be read.
    served) ls "$2" >/dev/null ;;
    # SIGNAL: sends it to the brick's process.
    brick) kill -s "$2" "$(cat "$pid")" ;;
    # Starts what bricks have ended.
    start) gluster --mode=script volume start $volume force ;;
    # Whether the brick runs. (What asks all hosts is not for when one of them is away: it waits for that one's answer,
    # and what comes after it is refused meanwhile.)
    runs) kill -0 "$(cat "$pid")" ;;
    # How much the bricks lack of each other; fails unless all three say so.
    to-heal)
        gluster volume heal $volume info summary | awk '
            /^Total Number of entries/ { sum += $NF; bricks += $NF ~ /^[0-9]+$/ }
            END { print sum + 0; exit bricks != 3 }'
        ;;
esac
