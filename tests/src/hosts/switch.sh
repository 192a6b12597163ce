# sh switch.sh: the first process of the network between the hosts, in a network of its own: a bridge, whose table
# `hosts` takes rules for what goes from one host to another. Stays, as host.sh does.
set -e
ip link add switch type bridge
ip link set switch up
nft add table bridge hosts
nft 'add chain bridge hosts forward { type filter hook forward priority 0; policy accept; }'
echo up
sleep infinity &
while :; do wait; done
