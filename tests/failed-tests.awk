# awk -f tests/failed-tests.awk LOG: the tests that failed, by a log of nextest, libtest or Node (TAP). Of each a line
# `test: NAME`, and indented the end of its output and the last panics in it; of Node's, the error and what was printed
# before. Where nextest has not started all tests, a last such line says how many. Prints nothing if the log names no
# test that failed and all were run.
#
# What passed is left out, also what a test printed at a try before the one that passed.

BEGIN {
    tests_max = 20
    lines_max = 25
    notes_max = 10 # lines that Node printed before its error
    panics_max = 3
    panic_lines = 6
    width_max = 400
}

# What comes now is output of this test.
function begin(name) {
    of = name
    own = name
    sub(/.* /, "", own) # without its program
    count[name] = 0
    in_backtrace = 0
    is_panic = 0
}

function end() { of = "" }

function add_failed(name) {
    if (!(name in is_failed)) names[++named] = name
    is_failed[name] = 1
}

# Keeps a line, unless each failed test has it, or it is of a backtrace outside of the workspace.
function keep(text) {
    if (text == "stack backtrace:") {
        in_backtrace = 1
        return
    }
    if (in_backtrace) {
        if (text ~ /^ *[0-9]+: / || text ~ /^ +at (\/rustc\/|.*\/\.cargo\/)/) return
        if (text !~ /^ +at /) in_backtrace = 0
    }
    if (text ~ /^ *$/ || text ~ /^note: .*RUST_BACKTRACE=/ || text ~ /^(running 1 test|failures:|ok|FAILED)$/) return
    if (text ~ /^test (result: |.* \.\.\. FAILED$)/ || text ~ /^---- .* stdout ----$/ || text == "    " own) return
    kept[of, ++count[of]] = substr(text, 1, width_max)
}

function show(name,    i, line, last, panics, shown) {
    last = count[name]
    for (i = last; i > 0 && panics < panics_max; i--) {
        if (kept[name, i] !~ /panicked at /) continue
        panics++
        for (line = i; line < i + panic_lines; line++) of_panic[name, line]
    }
    for (i = 1; i <= last; i++) {
        if (!((name, i) in of_panic) && (tap ? i > lines_max + notes_max : i <= last - lines_max)) continue
        if (i > shown + 1) print "    ..."
        print "    " kept[name, i]
        shown = i
    }
}

# Node: a test that failed has a block of YAML. A test whose inner ones failed says nothing more than they.
/^TAP version / { tap = 1 }
tap && of == "" && /^# / {
    if (!/^# Subtest: /) notes[++noted] = $0
    next
}
tap && of == "" && /^ *not ok [0-9]+ - / && !/ # (TODO|SKIP)/ {
    closing = $0
    sub(/not ok .*/, "  ...", closing)
    name = $0
    sub(/^ *not ok [0-9]+ - /, "", name)
    begin(name)
    for (i = noted > notes_max ? noted - notes_max + 1 : 1; i <= noted; i++) keep(notes[i])
    noted = 0
    next
}
tap {
    if (/^ok [0-9]+ - /) noted = 0
    if (of == "") next
    if ($0 ~ /^ *failureType: 'subtestsFailed'$/) {
        end()
    } else if ($0 == closing) {
        add_failed(of)
        end()
    } else if ($0 !~ /^ *---$/) {
        keep($0)
    }
    next
}

# nextest: `STATUS [TIME] (N/ALL) BINARY TEST`, and below it the output, indented. The last status of a test counts: of
# one that is slow, too, because it has not ended if there is no other. After the summary all is said again, in short.
/^     Summary \[ *[0-9.]+s\] / {
    is_summed_up = 1
    end()
    next
}
/^ *[A-Z][-+A-Z0-9\/ ]* \[[ >]*[0-9.]*s? *\] +(\([^)]*\) +)?[^ ]+ [^ ]+$/ {
    end()
    status = $0
    sub(/ +\[.*/, "", status)
    name = $(NF - 1) " " $NF
    if (status ~ /(PASS|LEAK|SKIP|FLAKY [0-9]+\/[0-9]+)$/) {
        if (name in is_failed) is_failed[name] = 0
        next
    }
    add_failed(name)
    if (!is_summed_up) {
        begin(name)
        is_nextest = 1
    }
    next
}
/^warning: [0-9]+\/[0-9]+ tests? (was|were) not run/ {
    end()
    not_run = substr($0, length("warning: ") + 1)
    next
}
is_nextest {
    if ($0 ~ /^[^ ]/) end()
    if (of == "" || $0 ~ /^  std(out|err) /) next
    sub(/^    /, "")
    keep($0)
    next
}

# libtest: sections of output, and a list of those that failed. What is not captured stands anywhere: with one thread
# between a test's name and its result, else a panic is all that names its test.
/^---- .* stdout ----$/ {
    begin(substr($0, 6, length($0) - 17))
    is_listing = 0
    next
}
/^failures:$/ {
    end()
    is_listing = 1
    next
}
/^test result: / {
    end()
    is_listing = 0
    next
}
is_listing && /^    [^ ]/ {
    add_failed(substr($0, 5))
    next
}
/^test [^ ]+ (- should panic )?\.\.\. / {
    end()
    name = $2
    sub(/^test [^ ]+ (- should panic )?\.\.\. /, "")
    if ($0 ~ /^(ok|FAILED|ignored.*)$/) next
    begin(name)
    keep($0)
    next
}
of == "" && /^thread '[^']+' (\([0-9]+\) )?panicked at / {
    split($0, parts, "'")
    of = parts[2]
    in_backtrace = 0
    is_panic = 1
}
of != "" {
    if (is_panic && ($0 == "" || $0 == "stack backtrace:")) end()
    else keep($0)
}

END {
    if (tap && of != "") add_failed(of)
    for (number = 1; number <= named; number++) {
        if (!is_failed[names[number]] || ++failed > tests_max) continue
        print "test: " names[number]
        show(names[number])
    }
    if (failed > tests_max) print "test: " failed - tests_max " more"
    if (not_run != "") print "test: " not_run
}
