"""The demo: TCP across a long fat network, first from senders that do not know of each other.

    make demo                  in virtual time: exact, however busy the machine
    make demo REALTIME=1       a single flow on this machine's kernel, as root
    make demo EDGE=bmv2        a run with stock BMv2 beside it, on a slower path; in real time

Two senders, and ten that come and go, share a bottleneck: unpaced, each with TBF or fq in its own
kernel, and as one class of pacer.p4 at the edge. Then a single flow has the bottleneck alone.
Settings, with their defaults: FIFO=32KB (a single flow: 64KB) CC=bic SECONDS=5 (two senders: 4,
in real time: 20) RATE=500mbit RTT=200ms. Writes summary.json, senders.png, bandwidth.png and
report.html to results/demo/.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from pacer_mininet.experiments.demo import main

if __name__ == "__main__":
    sys.exit(main())
