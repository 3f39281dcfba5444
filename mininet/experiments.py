"""The published tables and figures as experiments: `make experiments`, `make experiment-table5`.

    experiments.py [NAME...]    all experiments, or these; `--list` shows their names
    experiments.py --quick      scaled down, to check that everything works
    experiments.py --realtime   on this machine's kernel, as root, instead of in the lab

Writes results/experiments/NAME.json and results/report.html. After an interruption, the next call
continues with the runs that are missing. Snakemake makes them, by workflow/Snakefile.
"""

import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        # In the lab, each module that is not needed costs a second.
        from pacer_mininet.experiments import inside

        sys.exit(inside.main(sys.argv[2:]))
    # Exiting normally ends the labs, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if sys.argv[1:2] == ["--step"]:
        from pacer_mininet.experiments import steps

        sys.exit(steps.main(sys.argv[2:]))
    from pacer_mininet.experiments.main import main

    sys.exit(main())
