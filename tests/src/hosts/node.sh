# sh node.sh CONFIG: keeps a node running as ops/systemd/cell-node@.service does: it is started again unless it has
# ended well or says that another start would be no better.
while :; do
    cell node --config "$1"
    code=$?
    case $code in 0 | 2 | 7) exit "$code" ;; esac
    sleep 0.5
done
