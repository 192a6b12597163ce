# sh node.sh WORD FLAG ...: keeps a node running as ops/systemd/cell-node@.service does, or the agent that supervises it
# as cell-agent@.service does: it is started again unless it has ended well or says that another start would be no better.
while :; do
    cell "$@"
    code=$?
    case $code in 0 | 2 | 7) exit "$code" ;; esac
    sleep 0.5
done
