# Runs inside the virtual machine: one program after the other, whatever became of those before it.
export RUST_BACKTRACE=1 NO_COLOR=1 TMPDIR=/data CELL_BIN=/t/cell
status=0

# spent BY: what the processors have done so far, in hundredths of a second. Interrupts are the device, too.
spent() {
    awk -v by="$1" '/^cpu / {
        print by ": programs " $2 + $3 ", kernel " $4 ", interrupts " $7 + $8 ", idle " $5 + $6
    }' /proc/stat
}

rdma link
spent start
./fabric --test-threads 1 --nocapture verbs:: || status=1
spent fabric
[ ! -e system ] || ./system --test-threads 1 --nocapture rdma:: || status=1
spent rdma
# Nobody goes by this machine's clock.
[ ! -e system ] || CELL_TEST_SETS_CLOCK=1 ./system --test-threads 1 --nocapture wall_clock:: || status=1
spent wall_clock
exit $status
