# Runs inside the virtual machine: one program after the other, whatever became of those before it.
export RUST_BACKTRACE=1 NO_COLOR=1 TMPDIR=/data CELL_BIN=/t/cell
status=0
rdma link
./fabric --test-threads 1 --nocapture verbs:: || status=1
[ ! -e system ] || ./system --test-threads 1 --nocapture rdma:: || status=1
# Nobody goes by this machine's clock.
[ ! -e system ] || CELL_TEST_SETS_CLOCK=1 ./system --test-threads 1 --nocapture wall_clock:: || status=1
exit $status
