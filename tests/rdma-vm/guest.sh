# Runs inside the virtual machine: one program after the other, whatever became of those before it.
export RUST_BACKTRACE=1 NO_COLOR=1 TMPDIR=/data CELL_BIN=/t/cell
status=0
rdma link
./verbs --test-threads 1 --nocapture || status=1
./conformance --test-threads 1 verbs:: || status=1
for clients in ./onesided ./aio; do
    [ ! -e $clients ] || $clients --test-threads 1 --nocapture rdma:: || status=1
done
exit $status
