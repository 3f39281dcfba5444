# Functions of the trials, which source this: what they say, and a limit on what a user waits for.

# docs/install.md promises it.
limit_s=60
# Share of the machine's processors that other processes may use while time on the clock is judged.
others_share=0.2

say() { printf '  %s\n' "$*"; }
fail() { say "FAILED: $*"; exit 1; }

# Sets what has passed so far, in seconds: since the machine started, of processor time in this shell's
# children, and of processor time of the whole machine (proc(5)).
look() {
    local children=${TMPDIR:-/tmp}/times
    times >"$children" # not in a subshell, which has no children yet
    read -r clock_s own_s all_s < <(awk -v children="$children" -v hertz="$(getconf CLK_TCK)" '
        FILENAME == children && FNR == 2 {
            split($0, t, /[ms ]+/)
            own = t[1] * 60 + t[2] + t[3] * 60 + t[4]
        }
        FILENAME == "/proc/uptime" { clock = $1 }
        $1 == "cpu" { all = ($2 + $3 + $4 + $7 + $8 + $9) / hertz }
        END { printf "%.2f %.2f %.2f\n", clock, own, all }' "$children" /proc/uptime /proc/stat)
}

# Begins a measurement.
begin() {
    look
    began_clock_s=$clock_s began_own_s=$own_s began_all_s=$all_s
}

# Ends it: what has happened since took at most limit_s. Processor time is judged always, as a busy
# machine changes it little. Time on the clock is judged where other processes left the machine alone.
within_limit() {
    local whole processor share
    look
    read -r whole processor share < <(awk -v clock="$began_clock_s $clock_s" -v own="$began_own_s $own_s" \
        -v all="$began_all_s $all_s" -v processors="$(nproc)" '
        function passed(pair, p) { split(pair, p, " "); return p[2] - p[1] }
        BEGIN {
            whole = passed(clock); own = passed(own)
            others = passed(all) - own
            printf "%.1f %.1f %.2f\n", whole, own, others / (whole * processors + 0.01)
        }')
    say "$*: $whole s, $processor s of processor time; other processes had $share of the processors"
    awk -v s="$processor" -v most="$limit_s" 'BEGIN { exit !(s <= most) }' ||
        fail "$*: $processor s of processor time, more than $limit_s s"
    if awk -v share="$share" -v most="$others_share" 'BEGIN { exit !(share <= most) }'; then
        awk -v s="$whole" -v most="$limit_s" 'BEGIN { exit !(s <= most) }' ||
            fail "$*: $whole s, more than $limit_s s"
    else
        say "the machine is busy: time on the clock is not judged"
    fi
}
