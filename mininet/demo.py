"""The demo: TCP across a long fat network three times: unpaced, behind TBF, paced by pacer.p4.

    make demo                  in virtual time: exact, however busy the machine
    make demo REALTIME=1       on this machine's kernel, as root
    make demo EDGE=bmv2        a run with stock BMv2 beside them, on a slower path; in real time

Settings, with their defaults: FIFO=64KB CC=bic SECONDS=20 RATE=500mbit RTT=200ms. Writes
summary.json, bandwidth.png and report.html to results/demo/.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from pacer_mininet.experiments.demo import main

if __name__ == "__main__":
    sys.exit(main())
