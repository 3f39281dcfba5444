# P4 PSPacer. `make demo` and `make test` install what they need and say what they install.
#
#   make demo              two, ten and one sender over a 500 Mbit/s, 200 ms path, unpaced to paced
#   make test              runs all tests: lint, unit, vectors, PTF, controller, lab
#   make check             after each edit: lints, types and tests of what changed (BASE=main)
#   make switch            build pacing_switch and install the controller: what `mn` needs
#   make lab               build the virtual-time lab's kernel, once
#   make ptf               PTF tests of the P4 programs on a switch, see TARGET
#   make conformance       p4c's STF tests here and on stock BMv2, side by side (needs p4c)
#   make differential      random tables and packets here and on stock BMv2, compared
#   make command-line      the commands of BMv2's command line here and on stock BMv2, compared
#   make bmv2-tests        BMv2's own tests of its command line here: BMV2=<a checkout of its sources>
#   make trace-steps       the steps of random packets here and on stock BMv2, compared
#   make queue-model       random packets through egress queues, beside the reference model
#   make queue-model-ovs   the same through the pacer of Open vSwitch, for the settings that it has
#   make engines           random packets by machine code and by the interpreter, compared
#   make trains            random trains, and the same segments one by one, compared
#   make simulate          controllers, stores and switches in one process, with faults from a seed
#   make experiments       the published tables and figures, and more, beside the published ones
#   make experiment-table5 one of them; their names: make experiment-list
#   make acyclic           no circles of modules in any crate; a part of make lint
#   make docs              the documentation as a site, in build/site; links are checked
#   make accuracy          Tables 2, 3 and 4 in virtual time, beside the published ones
#   make ovs               Open vSwitch with the pacer, from Debian's source, under build/ovs
#   make test-ovs          its tests: the pacer's, and Open vSwitch's own of what it touches
#   make test-ovs-all      Open vSwitch's own tests before and after the patches, and what differs
#   make ovs-deb           Debian packages of it; CHECK=1: try them in a chroot, too
#   make deb               Debian packages of switch, controller and lab, in build/deb
#   make test-deb          they are installed, tried, upgraded, purged in a new Debian (root)
#   make test-units        the packages' services run under a systemd in a container (root)
#   make test-arm64        the switch for arm64 in virtual time, under emulation
#   make wheel             the wheel pacing-switch, for Linux with glibc 2.17 or later, in build/wheel
#   make test-wheel        it is installed in a new Debian, and a PTF test passes with it (root)
#   make image             an OCI image of the Debian packages, in build/image (root)
#   make test-image        a ping through a P4 program and a paced iperf in it (root)
#   make release           all packages, their digests and bills of materials, in build/release (root)
#   make bench             packets per second and gap errors, in real time, as ratios; then bench-comparison
#   make bench-comparison  this switch beside BMv2, Open vSwitch and a kernel bridge, for hours: QUICK=1
#   make comparison-page   docs/comparison.md of the readings of bench-comparison
#   make bench-traces      packets a second while each one is traced
#   make bench-install     a million classes through P4Runtime: time and memory (CLASSES=...)
#   make bench-cluster     rate changes through three controllers on etcd: rate, latency, cost of each
#   make bench-flood       a class at 500 Mbit/s and rate changes beside clients without rights
#   make bench-switches    SWITCHES=250 that three controllers share: memory, cold starts
#   make bench-trains      gaps of a class at 500 Mbit/s while other ports carry trains at full speed
#   make bench-tcp         TCP between hosts with offloads on, unpaced and paced, beside a kernel bridge
#   make bench-edges       stock BMv2 beside pacing_switch on a long fat network, with a plot
#   make bench-engine      cost per packet against classes, entries and frame size, with a plot
#   make bench-load        time to load each program, at most 200 ms (PROGRAMS=...)
#   make bench-scale       memory and cost of 64 ports x 64 queues and of a million classes, with a plot
#   make p4                recompile the P4 programs (needs p4c)
#   make pictures          docs/dashboard.png and docs/top.svg, in real time (root, an idle machine)
#   make test-slurm        the experiments on a Slurm of one node, from Debian's packages (root)
#   make loom              all orders of the threads' steps, where threads share memory
#   make miri              some of these orders with each access checked (rustup's nightly with Miri)
#   make oracle            random P4Runtime writes against the specified answers: UPDATES=100000 SEED=1
#   make fuzz              bytes that break the controller: TARGET=openflow|ovsdb|rest MINUTES=30
#   make soak              switches and a controller under traffic and changes: HOURS=2 (root)
#   make faults            kills, cut links, full disks: MINUTES=30 SEED=1 (root)
#   make cluster           three etcd members, three controllers and ten switches on loopback
#   make thrift            Rust of BMv2's Thrift services from switch/thrift (needs thrift-compiler)
#   make lock              renew the requirements*.lock files from their .in files
#   make clean             remove what was built
#
# Settings, after the target:
#   make ptf               TARGET=pacing_switch|bmv2
#   make conformance       SAMPLES=<a p4c checkout>/testdata/p4_16_samples; one TARGET only;
#                          KEEP=<a folder for the compiled programs>
#   make differential      PACKETS=100000 SEED=1; PROGRAMS=<a folder of p4c's JSON>: those, too
#   make command-line      COMMANDS=1000 SEED=1: random commands for each program, too
#   make trace-steps       PACKETS=100000 SEED=1; PROGRAMS=<a folder of p4c's JSON>: those, too
#   make queue-model       PACKETS=100000 SEED=1, of each kind; make queue-model-ovs, too
#   make engines           PACKETS=10000000; PROGRAMS=<a folder of p4c's JSON>: those, too
#   make trains            SEGMENTS=1000000 SEED=1; PROGRAMS=<a folder of p4c's JSON>: those, too
#   make bench-load        PROGRAMS=<a folder of p4c's JSON>: those, too
#   make bench-comparison  QUICK=1: a reading of each, of a second; DURATION=10 ROUNDS=5
#                          SIZES=64,128,256,512,1024,1280,1518 STREAMS=1,8,64 ONLY=<text in a name>
#                          RETRY=1: failed readings again; BMV2_BUILD=<how BMv2 was built>
#   make simulate          SEEDS=10000 FIRST=1 JOBS=<at a time>
#   make demo              FIFO=64KB CC=bic SECONDS=20 RATE=500mbit RTT=200ms; REALTIME=1: one
#                          sender, on this machine's kernel instead of in the lab; EDGE=ovs: one
#                          sender with Open vSwitch at the edge, too; EDGE=bmv2: with stock BMv2,
#                          in real time
#   make test-deb          AGAIN=1: build the packages a second time, too, and compare them; so
#                          make test-wheel, make test-image and make release
#   make deb               ARCH=arm64: for that architecture; so make wheel, image and release
#   make experiments       QUICK=1 scaled down; REALTIME=1 on this machine's kernel; AGAIN=1 twice,
#                          and compare the two to the byte; CORES=1 runs at once;
#                          PROFILE=mininet/workflow/slurm: on a cluster

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

BUILD := build
VENV := $(BUILD)/venv
PYTHON := $(VENV)/bin/python
SNAKEMAKE := $(BUILD)/snakemake/bin/snakemake
SWITCH_BIN := switch/target/release/pacing_switch
DESCRIPTORS := $(BUILD)/p4runtime.binpb
TARGET ?= pacing_switch
export P4RUNTIME_DESCRIPTORS := $(abspath $(DESCRIPTORS))
export PACING_SWITCH := $(abspath $(SWITCH_BIN))

# Stock BMv2 computes all the time, so it cannot run in the lab.
IN_REALTIME := $(filter-out 0,$(REALTIME))$(filter bmv2,$(EDGE))
# The user's settings of the demo as options, from the environment or make's command line. CC counts
# on the command line only: in the environment it names a compiler.
set_by_user = $(filter environment command,$(firstword $(origin $(1))))
demo_option = $(if $(call set_by_user,$(1)),$(if $($(1)),--$(2) $($(1))))
DEMO_OPTIONS = $(call demo_option,FIFO,fifo) $(if $(filter command,$(firstword $(origin CC))),--cc $(CC)) \
    $(call demo_option,SECONDS,seconds) $(call demo_option,RATE,rate) $(call demo_option,RTT,rtt) \
    $(call demo_option,EDGE,edge) $(if $(IN_REALTIME),--realtime)

.PHONY: help
help:
	@sed -n '/^#   make/,/^$$/s/^# \{0,3\}//p' $(firstword $(MAKEFILE_LIST))

# ---- what the other targets need -------------------------------------------------------------

.PHONY: packages test-packages
packages:
	@tools/bootstrap run
test-packages:
	@tools/bootstrap test

# Debian's own python3, with its site packages: Mininet is a Debian package.
$(VENV)/.stamp: requirements.lock controller/pyproject.toml mininet/pyproject.toml python/pyproject.toml | packages
	@echo "installing the Python packages of requirements.lock into $(VENV) (about 30 s)"
	@test -x $(PYTHON) || /usr/bin/python3 -m venv --system-site-packages $(VENV)
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
	    -e controller -e mininet
	@# The build of the wheel would compile the switch.
	@$(PYTHON) -c 'import pathlib, sysconfig; \
	    path = pathlib.Path(sysconfig.get_path("purelib"), "pacing_switch.pth"); \
	    path.write_text("$(abspath python)\n")'
	@touch $@

# Snakemake, which schedules the experiments' runs, in an environment of its own.
$(SNAKEMAKE): requirements-experiments.lock | packages
	@echo "installing Snakemake by requirements-experiments.lock into $(BUILD)/snakemake (about 30 s)"
	@test -x $(@D)/pip || /usr/bin/python3 -m venv $(BUILD)/snakemake
	@$(@D)/python -m pip install --quiet --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

# The further packages of tests and linters.
$(VENV)/.stamp-dev: $(VENV)/.stamp requirements-dev.lock
	@echo "installing the Python packages of requirements-dev.lock into $(VENV) (about 20 s)"
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --require-hashes \
	    -r requirements.lock -r requirements-dev.lock
	@touch $@

$(DESCRIPTORS): $(VENV)/.stamp switch/tools/extract_descriptors.py
	@$(PYTHON) switch/tools/extract_descriptors.py $@

.PHONY: venv dev-venv
venv: $(VENV)/.stamp
dev-venv: $(VENV)/.stamp-dev

SWITCH_SOURCES := $(shell find switch -path switch/target -prune -o -type f -print)
$(SWITCH_BIN): $(SWITCH_SOURCES) $(DESCRIPTORS)
	@echo "building pacing_switch (about 3 min the first time)"
	@cd switch && env -u MAKEFLAGS cargo build --release --locked --bin pacing_switch
	@touch $@

# The tools that `make bench` measures with.
WIRETOOLS := $(addprefix switch/target/release/,blaster forwarder gapmeter)
$(WIRETOOLS) &: $(SWITCH_SOURCES) $(DESCRIPTORS)
	@cd switch && cargo build --release --locked --bins
	@touch $(WIRETOOLS)

.PHONY: switch
switch: packages venv $(SWITCH_BIN)

# Without a lab the rest still runs: the demo in real time, the tests without the lab.
.PHONY: lab
lab: packages
	@if ! why=$$(lab/available); then \
	    echo "*** NO VIRTUAL-TIME LAB: $$why"; \
	elif ! lab/build; then \
	    echo "*** NO VIRTUAL-TIME LAB: its kernel could not be built; see build/lab/build.log."; \
	    echo "*** make demo will measure in real time, and make test will leave out the lab."; \
	fi

.PHONY: p4
p4:
	@/usr/bin/python3 p4src/compile.py
	@/usr/bin/python3 tests/conformance/conformance.py --compile

# Python in the lab cannot write its bytecode, because the host's files are read-only there. Compiling
# takes system calls, for which the lab may charge virtual time. So all modules are compiled before.
.PHONY: bytecode
bytecode: venv
	@$(PYTHON) -m compileall -q mininet python controller/src tests/lfn tests/rate_change

# ---- what people run -----------------------------------------------------------------------

# Checked first, so that a missing right shows before minutes of building.
.PHONY: may-run
may-run:
	@if [ -n "$(IN_REALTIME)" ] && [ "$$(id -u)" -ne 0 ]; then \
	    echo "runs in real time make network namespaces: run it as root"; exit 1; fi

# The lab's kernel is built beside the Python packages and the switch. The accuracy of the gaps needs
# no lab, so it is the first result.
.PHONY: demo demo-settings first-result
demo: demo-settings may-run packages
	@$(MAKE) --jobs=2 $(if $(IN_REALTIME),,lab) first-result
	@$(if $(filter ovs,$(EDGE)),$(MAKE) ovs)
	@$(PYTHON) mininet/demo.py $(DEMO_OPTIONS)
# A machine without Python has nothing to check with: there the demo itself refuses wrong settings.
demo-settings:
	@if command -v /usr/bin/python3 >/dev/null; then PYTHONPATH=mininet \
	    /usr/bin/python3 -m pacer_mininet.experiments.demo_options $(DEMO_OPTIONS); fi
first-result: venv switch bytecode
	@echo "== first result: gaps between packets in virtual time, without a network"
	@$(PYTHON) tests/accuracy/accuracy.py --out results/accuracy.json

EXPERIMENT_OPTIONS = $(if $(filter-out 0,$(QUICK)),--quick) $(if $(filter-out 0,$(REALTIME)),--realtime) \
    $(if $(filter-out 0,$(AGAIN)),--again) $(if $(CORES),--cores $(CORES)) \
    $(if $(filter command,$(firstword $(origin PROFILE))),--profile $(PROFILE))
.PHONY: experiments experiment-list
experiments: may-run packages venv $(SNAKEMAKE) switch bytecode
	@$(PYTHON) mininet/experiments.py $(EXPERIMENT_OPTIONS)
experiment-list: venv
	@$(PYTHON) mininet/experiments.py --list $(EXPERIMENT_OPTIONS)
# A wrong name is told before anything is built.
experiment-%: may-run packages venv
	@$(PYTHON) mininet/experiments.py --list $* >/dev/null
	@$(MAKE) --no-print-directory $(SNAKEMAKE) switch bytecode
	@$(PYTHON) mininet/experiments.py $(EXPERIMENT_OPTIONS) $*

SAMPLES ?= tests/conformance/programs
.PHONY: conformance
conformance: dev-venv switch
	@$(PYTHON) tests/conformance/conformance.py --samples $(SAMPLES) \
	    $(if $(call set_by_user,TARGET),--target $(TARGET)) $(if $(KEEP),--keep $(KEEP)) \
	    --out results/conformance.json

PACKETS ?= 100000
SEED ?= 1
.PHONY: differential
differential: dev-venv switch
	@$(PYTHON) tests/differential/differential.py --packets $(PACKETS) --seed $(SEED) \
	    $(if $(PROGRAMS),--programs $(PROGRAMS)) --out results/differential.json

.PHONY: trace-steps
trace-steps: dev-venv switch
	@$(PYTHON) tests/differential/traces.py --packets $(PACKETS) --seed $(SEED) \
	    $(if $(PROGRAMS),--programs $(PROGRAMS))

COMMANDS ?= 0
.PHONY: command-line
command-line: dev-venv switch
	@$(PYTHON) tests/bmv2_thrift/command_line.py --random $(COMMANDS) --seed $(SEED)

.PHONY: bmv2-tests
bmv2-tests: dev-venv switch
	@$(PYTHON) tests/bmv2_thrift/bmv2_tests.py \
	    $(or $(BMV2),$(error bmv2-tests needs BMV2=<a checkout of BMv2's sources>))

SEEDS ?= 10000
FIRST ?= 1
JOBS ?= $(shell nproc)
.PHONY: simulate
simulate: dev-venv
	@$(PYTHON) tests/simulation/run.py --seeds $(SEEDS) --first $(FIRST) --jobs $(JOBS) --keep-going

.PHONY: accuracy
accuracy: packages venv switch
	@echo "== Tables 2, 3 and 4"
	@$(PYTHON) tests/accuracy/accuracy.py --out results/accuracy.json

.PHONY: bench
bench: packages dev-venv switch $(WIRETOOLS)
	@$(PYTHON) tests/bench/bench.py --out results/bench.json
	@echo "== the controller"
	@$(PYTHON) tests/controller/bench.py --out results/controller-bench.json
	@echo "== other switches"
	@$(MAKE) bench-comparison

# It goes on with the readings of an earlier call, so that it may be ended at any time.
COMPARISON_OPTIONS = $(if $(filter-out 0,$(QUICK)),--quick) $(if $(DURATION),--seconds $(DURATION)) \
    $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SIZES),--sizes $(SIZES)) \
    $(if $(STREAMS),--streams $(STREAMS)) $(if $(ONLY),--only "$(ONLY)") \
    $(if $(filter-out 0,$(RETRY)),--retry) $(if $(BMV2_BUILD),--bmv2-build "$(BMV2_BUILD)")
.PHONY: bench-comparison comparison-page
bench-comparison: packages dev-venv switch $(WIRETOOLS)
	@$(PYTHON) tests/bench/comparison.py \
	    --out results/comparison$(if $(filter-out 0,$(QUICK)),-quick).json $(COMPARISON_OPTIONS)
comparison-page: venv
	@$(PYTHON) tests/bench/comparison_page.py results/comparison.json docs/comparison.md

# It needs neither an interface nor a quiet machine: each figure is the least of many short batches.
.PHONY: bench-engine
bench-engine: venv $(DESCRIPTORS)
	@mkdir -p results
	@cd switch && cargo bench --locked -p traffic-manager --bench insert_release
	@cd switch && cargo bench --locked -p v1model --bench engines
	@cd switch && cargo bench --locked -p switch --bench engine -- $(abspath results/engine.json)
	@$(PYTHON) tests/bench/engine_plot.py results/engine.json docs/scale.svg
	@echo "figures in results/engine.json, plot in docs/scale.svg"

# The limit is for an idle machine. The least of five loads counts.
.PHONY: bench-load
bench-load: $(DESCRIPTORS)
	@cd switch && PROGRAMS="$(abspath $(PROGRAMS))" \
	    cargo bench --quiet --locked -p v1model --bench engines -- load

# 64 ports with up to 64 queues each, and a million classes: a process for each point, two seconds each.
.PHONY: bench-scale
bench-scale: venv
	@mkdir -p results
	@cd switch && cargo bench --locked -p traffic-manager --bench scale -- $(abspath results/scale.json)
	@$(PYTHON) tests/bench/scale_plot.py results/scale.json docs/ports.svg
	@echo "figures in results/scale.json, plot in docs/ports.svg"

# Each port is flooded for a minute in all.
.PHONY: bench-flood
bench-flood: packages dev-venv switch $(WIRETOOLS)
	@$(PYTHON) tests/bench/flood.py --out results/flood.json

.PHONY: bench-trains
bench-trains: packages dev-venv switch $(WIRETOOLS)
	@$(PYTHON) tests/bench/bench.py --only trains --out results/trains.json

# Hosts as the kernel makes them, with segmentation offload. SWITCH=name=binary: another one, too.
.PHONY: bench-tcp
bench-tcp: packages dev-venv switch
	@$(PYTHON) tests/bench/tcp.py --out results/tcp.json $(if $(SWITCH),--switch $(SWITCH))

# Stock BMv2 and pacing_switch as the edge of a long fat network, in real time.
.PHONY: bench-edges
bench-edges: packages dev-venv switch
	@$(PYTHON) tests/bench/edges.py --out results/edges.json --plot docs/bmv2.svg

# Three members of etcd, three controllers, ten switches and the clients, on this machine.
.PHONY: bench-cluster
bench-cluster: packages dev-venv switch
	@tools/bootstrap cluster
	@$(PYTHON) tests/bench/cluster.py --flows 10000 --out results/cluster.json
	@echo "== 500 changes a second"
	@$(PYTHON) tests/bench/cluster.py --rate 500 --out results/cluster-500.json

# They are real switches without ports.
SWITCHES ?= 250
.PHONY: bench-switches
bench-switches: packages dev-venv switch
	@tools/bootstrap cluster
	@$(PYTHON) tests/bench/switches.py --switches $(SWITCHES) --out results/switches.json

# In virtual time: it needs no interface, and a disk that takes some 500 MB a second.
.PHONY: bench-traces
bench-traces: dev-venv switch
	@$(PYTHON) tests/bench/traces.py --out results/traces.json

CLASSES ?= 1000000
.PHONY: bench-install
bench-install: venv switch
	@$(PYTHON) tests/bench/install.py --classes $(CLASSES) --flows --out results/install.json

# The Rust code of BMv2's Thrift services, by Debian's thrift-compiler: version 0.17.0, as the crate
# `thrift` that the code uses.
THRIFT_INTERFACES := $(wildcard switch/thrift/*.thrift)
.PHONY: thrift
thrift:
	@thrift --version | grep -q ' 0\.17\.0$$' || { echo "thrift-compiler 0.17.0 is needed"; false; }
	@for file in $(THRIFT_INTERFACES); do \
	    thrift --gen rs -out switch/crates/bmv2-thrift/src $$file || exit 1; done

# ---- tests ------------------------------------------------------------------------

# The lab's kernel is built beside linters and Rust tests. Then the lab's tests use one processor and
# the Python tests the other; each of these targets prints its output when it ends.
.PHONY: test
test: test-packages
	@$(MAKE) --jobs=2 lab lint-and-build
	@$(MAKE) --jobs=2 --output-sync=target test-lab test-controller test-python
	@$(MAKE) ptf accuracy
	@echo "all tests passed"

# One after another, since two concurrent runs of cargo would wait for each other.
.PHONY: lint-and-build
lint-and-build: dev-venv switch bytecode
	@$(MAKE) lint
	@$(MAKE) test-p4
	@$(MAKE) test-rust

# The checks after each edit. BASE: the commit whose later changes are checked.
BASE ?= HEAD
.PHONY: check
check: dev-venv $(DESCRIPTORS)
	@tools/check $(VENV) $(BASE)

.PHONY: lint
lint: dev-venv $(DESCRIPTORS)
	@echo "== lint"
	@cd switch && if cargo fmt --version >/dev/null 2>&1; then cargo fmt --check; \
	    else echo "not run: no cargo fmt"; fi
	@cd switch && if cargo clippy --version >/dev/null 2>&1; then \
	    cargo clippy --locked --all-targets -- -D warnings; \
	    else echo "not run: no cargo clippy"; fi
	@cd switch && RUSTDOCFLAGS="-D warnings" cargo doc --quiet --locked --workspace --no-deps
	@tools/lint-python $(VENV)
	@$(MAKE) acyclic

.PHONY: acyclic
acyclic: dev-venv
	@echo "== circles of modules"
	@$(PYTHON) tools/acyclic

.PHONY: test-p4
test-p4: venv
	@echo "== compiled P4 programs are fresh"
	@$(PYTHON) p4src/compile.py --check

.PHONY: loom
loom:
	@cd switch && RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom \
	    cargo test --quiet --locked --release -p bell -p rings

MIRI_SEEDS ?= 8
.PHONY: miri
miri:
	@cargo +nightly miri --version >/dev/null 2>&1 || { echo "make miri: needs Miri:" \
	    "rustup toolchain install nightly --component miri,rust-src" >&2; exit 1; }
	@cd switch && MIRIFLAGS=-Zmiri-many-seeds=0..$(MIRI_SEEDS) CARGO_TARGET_DIR=target/miri \
	    cargo +nightly miri test --quiet --locked -p bell -p rings --test orders

.PHONY: test-rust
test-rust: $(DESCRIPTORS)
	@echo "== switch"
	@cd switch && cargo test --locked --workspace --no-run
	@cd switch && cargo test --quiet --locked --workspace
	@$(MAKE) --no-print-directory loom
	@$(MAKE) --no-print-directory queue-model PACKETS=20000

# Random packets for each scheduler, by the reference model and by the traffic manager.
QUEUE_VECTORS = $(PYTHON) tests/model/make_queue_vectors.py --random $$(($(PACKETS) / 1000)) \
    --packets 1000 --seed $(SEED) --out results/queue-vectors
.PHONY: queue-model
queue-model: venv
	@mkdir -p results
	@$(QUEUE_VECTORS)
	@cd switch && QUEUE_VECTORS_DIR=$(CURDIR)/results/queue-vectors \
	    cargo test --quiet --locked -p traffic-manager --test queue_vectors -- --nocapture

# The same packets, by the reference model and by the pacer of Open vSwitch, for the settings that it has.
.PHONY: queue-model-ovs
queue-model-ovs: venv ovs
	@mkdir -p results
	@$(QUEUE_VECTORS)
	@"$$(ovs-patches/build --print --tree)/tests/ovstest" test-pacer queues \
	    results/queue-vectors/*.json >results/queue-vectors-ovs.txt
	@tail -n 1 results/queue-vectors-ovs.txt

# Random packets by machine code and by the interpreter, through the compiled programs of the repository.
.PHONY: engines
engines: $(DESCRIPTORS)
	@cd switch && PACKETS=$(PACKETS) PROGRAMS="$(abspath $(PROGRAMS))" \
	    cargo test --quiet --release --locked -p v1model --lib agreement -- --nocapture

# Random trains and the same segments one by one, through the same programs.
SEGMENTS ?= 1000000
.PHONY: trains
trains: $(DESCRIPTORS)
	@cd switch && SEGMENTS=$(SEGMENTS) SEED=$(SEED) PROGRAMS="$(abspath $(PROGRAMS))" \
	    cargo test --quiet --release --locked -p switch --test trains -- --nocapture

.PHONY: test-controller
test-controller: dev-venv switch
	@echo "== controller"
	@$(PYTHON) -m pytest -q tests/controller

UPDATES ?= 100000
.PHONY: oracle
oracle: test-packages dev-venv switch
	@mkdir -p results
	@unshare --net $(PYTHON) tests/oracle/oracle.py results --updates $(UPDATES) --seed $(SEED)

TARGETS := openflow ovsdb rest
.PHONY: fuzz
fuzz: dev-venv
	@$(if $(filter $(TARGET),$(TARGETS)),,$(error TARGET is one of: $(TARGETS)))
	@$(PYTHON) -m pip install --quiet --require-hashes -r requirements-fuzz.lock
	@mkdir -p results/fuzz
	@cd results/fuzz && $(abspath $(PYTHON)) $(CURDIR)/tests/fuzz/fuzz.py $(TARGET) \
	    -timeout=10 -max_total_time=$$(($(MINUTES) * 60))

HOURS ?= 2
.PHONY: soak
soak: test-packages dev-venv switch
	@unshare --net $(PYTHON) tests/soak/soak.py --hours $(HOURS) --seed $(SEED) --out results/soak

MINUTES ?= 30
.PHONY: faults
faults: test-packages dev-venv switch
	@$(PYTHON) tests/outside/run.py --minutes $(MINUTES) --seed $(SEED) --out results/outside

.PHONY: test-python
test-python: dev-venv switch
	@echo "== reference model, virtual time, command line, conformance, wheel, dashboard, faults"
	@$(PYTHON) -m pytest -q tests/model tests/virtual tests/cli tests/conformance tests/differential \
	    tests/oracle tests/soak tests/fuzz tests/bmv2_thrift tests/python tests/packages tests/tools
	@$(PYTHON) -m pytest -q tests/web
	@$(PYTHON) -m pytest -q tests/outside
	@$(PYTHON) -m pytest -q tests/bench
	@echo "== the simulation of controllers, a hundred seeds"
	@$(PYTHON) -m pytest -q tests/simulation

.PHONY: ptf
ptf: dev-venv switch
	@echo "== PTF, TARGET=$(TARGET)"
	@PYTHON=$(abspath $(PYTHON)) tests/ptf/run $(TARGET) || [ $$? -eq 77 ]

.PHONY: test-lab
test-lab: dev-venv $(SNAKEMAKE) switch lab bytecode
	@echo "== the lab, and a long fat network in it"
	@if lab/available; then lab/selftest; else echo "not run: lab/selftest"; fi
	@$(PYTHON) -m pytest -q tests/lfn tests/rate_change

# The experiments on a Slurm of one node, as root.
.PHONY: test-slurm
test-slurm: test-packages dev-venv $(SNAKEMAKE) switch lab bytecode
	@tools/bootstrap slurm
	@echo "== experiments on a Slurm of one node"
	@$(PYTHON) -m pytest -q tests/slurm

# ---- Open vSwitch ----------------------------------------------------------------------------

.PHONY: ovs
ovs:
	@tools/bootstrap ovs
	@ovs-patches/build

.PHONY: test-ovs
test-ovs: test-packages dev-venv switch lab bytecode ovs
	@echo "== Open vSwitch with the pacer"
	@ovs-patches/test
	@$(PYTHON) -m pytest -q tests/ovs tests/controller/test_openvswitch_pacer.py
	@$(PYTHON) -m pytest -q tests/lfn/test_mn.py -k open_vswitch

.PHONY: ovs-deb
ovs-deb:
	@tools/bootstrap ovs-deb
	@ovs-patches/deb
	@$(if $(filter-out 0,$(CHECK)),ovs-patches/deb --check)

.PHONY: test-ovs-all
test-ovs-all:
	@tools/bootstrap ovs
	@ovs-patches/compare.py

# ---- packages --------------------------------------------------------------------------------

# The architecture of the packages, as Debian calls it: this machine's, or one that they are cross-compiled for.
MACHINE_ARCH = $(shell dpkg --print-architecture)
ARCH ?= $(MACHINE_ARCH)
RUST_TARGET_arm64 := aarch64-unknown-linux-gnu
PACKAGE_OF = $(if $(filter $(MACHINE_ARCH),$(ARCH)),,-$(ARCH))
RUST_TARGET = $(if $(PACKAGE_OF),$(or $(RUST_TARGET_$(ARCH)),$(error ARCH=$(ARCH): it is $(MACHINE_ARCH) or arm64)))
PACKAGE_ARCH = ARCH=$(ARCH) PACKAGE_OF=$(PACKAGE_OF) $(if $(RUST_TARGET),CARGO_BUILD_TARGET=$(RUST_TARGET))
PACKAGE_LINKER = $(if $(RUST_TARGET),CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc)

# Without the paths of this machine, so that builds in other places are equal.
PACKAGE_TARGET := $(abspath $(BUILD)/package/target)
PACKAGE_NATIVE := $(PACKAGE_TARGET)/release/pacing_switch
PACKAGE_SWITCH = $(PACKAGE_TARGET)/$(if $(RUST_TARGET),$(RUST_TARGET)/)release/pacing_switch
CARGO_FOLDER := $(abspath $(or $(CARGO_HOME),$(HOME)/.cargo))
PACKAGE_CARGO = env -u MAKEFLAGS CARGO_TARGET_DIR=$(PACKAGE_TARGET) CARGO_PROFILE_RELEASE_DEBUG=false \
    RUSTFLAGS="--remap-path-prefix=$(CURDIR)=. --remap-path-prefix=$(CARGO_FOLDER)=cargo" \
    CFLAGS="-O2 -ffile-prefix-map=$(CURDIR)=. -ffile-prefix-map=$(CARGO_FOLDER)=cargo"
BUILD_PACKAGE_SWITCH = cargo build --release --locked --bin pacing_switch
$(PACKAGE_NATIVE): $(SWITCH_SOURCES) $(DESCRIPTORS)
	@echo "building pacing_switch for the packages (about 5 min the first time)"
	@cd switch && $(PACKAGE_CARGO) $(BUILD_PACKAGE_SWITCH)
	@touch $@
$(PACKAGE_TARGET)/%/release/pacing_switch: $(SWITCH_SOURCES) $(DESCRIPTORS)
	@echo "building pacing_switch for the packages of $(ARCH) (about 5 min the first time)"
	@cd switch && $(PACKAGE_CARGO) $(PACKAGE_ARCH) $(PACKAGE_LINKER) $(BUILD_PACKAGE_SWITCH)
	@touch $@

# The digest of the sources of the packages, taken before the build: a file that changes meanwhile counts as changed
# afterwards.
PACKAGE_SOURCES = $(BUILD)/package/$@.sources
NOTE_SOURCES = mkdir -p $(BUILD)/package && packaging/sources >$(PACKAGE_SOURCES)
KEEP_SOURCES = mv $(PACKAGE_SOURCES) $(BUILD)/$@$(PACKAGE_OF)/SOURCES

.PHONY: deb
deb:
	@tools/bootstrap deb $(ARCH)
	@$(NOTE_SOURCES)
	@$(MAKE) venv $(sort $(PACKAGE_NATIVE) $(PACKAGE_SWITCH))
	@$(if $(filter amd64,$(ARCH)),lab/build)
	@$(PACKAGE_ARCH) packaging/deb $(PYTHON) $(PACKAGE_SWITCH) $(PACKAGE_NATIVE) \
	    $(if $(filter amd64,$(ARCH)),"$$(lab/build --print)")
	@$(KEEP_SOURCES)

.PHONY: test-deb
test-deb:
	@packaging/sources --check $(BUILD)/deb || $(MAKE) deb ARCH=$(MACHINE_ARCH)
	@tests/packages/deb
	@$(if $(filter-out 0,$(AGAIN)),$(PACKAGE_ARCH) tests/packages/again deb)

.PHONY: test-units
test-units:
	@tools/bootstrap deb
	@packaging/sources --check $(BUILD)/deb || $(MAKE) deb ARCH=$(MACHINE_ARCH)
	@tests/packages/units

.PHONY: test-arm64
test-arm64: dev-venv
	@tools/bootstrap deb arm64
	@$(MAKE) ARCH=arm64 $(PACKAGE_TARGET)/$(RUST_TARGET_arm64)/release/pacing_switch
	@PACING_SWITCH=$(PACKAGE_TARGET)/$(RUST_TARGET_arm64)/release/pacing_switch $(PYTHON) -m pytest -q \
	    tests/virtual/test_vectors.py tests/virtual/test_gap_frames.py tests/virtual/test_exact_pace.py

# The tools that build the wheel and the bills of materials, in an environment of their own.
RELEASE_TOOLS := $(BUILD)/release-tools
$(RELEASE_TOOLS)/.stamp: requirements-release.lock | packages
	@echo "installing the Python packages of requirements-release.lock into $(RELEASE_TOOLS) (about 30 s)"
	@test -x $(RELEASE_TOOLS)/bin/pip || /usr/bin/python3 -m venv $(RELEASE_TOOLS)
	@$(RELEASE_TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

.PHONY: wheel
wheel: $(RELEASE_TOOLS)/.stamp $(DESCRIPTORS)
	@echo "building the wheel (about 5 min the first time)"
	@$(if $(PACKAGE_OF),tools/bootstrap deb $(ARCH))
	@$(NOTE_SOURCES)
	@$(PACKAGE_CARGO) $(PACKAGE_ARCH) packaging/wheel $(RELEASE_TOOLS)
	@$(KEEP_SOURCES)

.PHONY: test-wheel
test-wheel: venv
	@tools/bootstrap deb
	@packaging/sources --check $(BUILD)/wheel || $(MAKE) wheel ARCH=$(MACHINE_ARCH)
	@tests/packages/wheel $(PYTHON)
	@$(if $(filter-out 0,$(AGAIN)),$(PACKAGE_ARCH) tests/packages/again wheel)

.PHONY: image
image: $(RELEASE_TOOLS)/.stamp
	@tools/bootstrap deb $(ARCH)
	@packaging/sources --check $(BUILD)/deb$(PACKAGE_OF) || $(MAKE) deb
	@$(NOTE_SOURCES)
	@$(PACKAGE_ARCH) packaging/image/build $(RELEASE_TOOLS)
	@$(KEEP_SOURCES)

.PHONY: test-image
test-image:
	@packaging/sources --check $(BUILD)/image || $(MAKE) image ARCH=$(MACHINE_ARCH)
	@tests/packages/image
	@$(if $(filter-out 0,$(AGAIN)),$(PACKAGE_ARCH) tests/packages/again image)

.PHONY: release
release: $(RELEASE_TOOLS)/.stamp
	@$(MAKE) deb
	@$(MAKE) wheel
	@$(MAKE) image
	@$(PACKAGE_ARCH) packaging/release $(RELEASE_TOOLS)
	@$(if $(filter-out 0,$(AGAIN)),$(PACKAGE_ARCH) tests/packages/again release)

.PHONY: pictures
pictures: test-packages dev-venv switch
	@$(PYTHON) tools/pictures.py

.PHONY: lock
lock:
	@$(PYTHON) -m pip install --quiet pip-tools
	@for which in requirements requirements-dev requirements-experiments requirements-fuzz \
	    requirements-release; do \
	    $(PYTHON) -m piptools compile --quiet --generate-hashes --allow-unsafe --strip-extras \
	    --no-emit-index-url --no-emit-trusted-host --no-emit-find-links \
	    $$(test $$which != requirements-dev || echo --constraint=requirements.lock) \
	    --output-file $$which.lock $$which.in; done

# Several controllers that share one desired state, until Ctrl-C.
.PHONY: cluster
cluster: packages venv switch
	@tools/bootstrap cluster
	@$(PYTHON) tools/cluster

.PHONY: docs
$(BUILD)/docs-venv/.stamp: docs/requirements.txt
	@test -x $(@D)/bin/python || python3 -m venv $(@D)
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@
docs: $(BUILD)/docs-venv/.stamp
	@python3 docs/build.py $(BUILD)
	@cd $(BUILD) && docs-venv/bin/zensical build --clean --strict
	@echo "the documentation is in $(BUILD)/site/index.html"

.PHONY: clean
clean:
	@rm -rf $(BUILD)/venv $(BUILD)/snakemake $(DESCRIPTORS) switch/target results
	@echo "kept $(BUILD)/lab: the kernel takes minutes to build; rm -r $(BUILD) removes it, too"
