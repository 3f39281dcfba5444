#!/usr/bin/env python3
"""Runs Open vSwitch's own tests before and after the patches, and shows what differs.

    ovs-patches/compare.py           those of dpif-netdev, PMD threads, QoS and queues
    ovs-patches/compare.py --whole   all that Open vSwitch has (half an hour and more)
    ovs-patches/compare.py --show    what the last runs gave; runs nothing

Prints both counts, names every test that has another result after than before, and every new one
that did not pass; writes results/ovs-tests.json. Exit status 1 if there is any of either.
"""

import argparse
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
OUT = HERE.parent / "results" / "ovs-tests.json"
LINE = re.compile(r"^ *(\d+): (.*?) +(ok|FAILED|skipped)\b", re.MULTILINE)


def results(*options: str, run: bool) -> dict[str, str]:
    """Return each test's result by name: "ok", "ok when repeated", "FAILED", "skipped"."""
    command = [str(HERE / "test"), *options]
    if run:
        print(f"== ovs-patches/test {' '.join(options)}", flush=True)
        subprocess.run(command, check=False)
    where = subprocess.run([*command, "--results"], check=True, capture_output=True, text=True)
    numbered: dict[str, tuple[str, str]] = {}
    log = Path(where.stdout.strip())
    for number, name, result in LINE.findall(log.read_text() if log.exists() else ""):
        again = result == "ok" and number in numbered
        numbered[number] = (name, "ok when repeated" if again else result)
    found: dict[str, str] = {}
    for name, result in numbered.values():
        # Some have the same name; they come in the same order before and after.
        same = sum(other.partition(" #")[0] == name for other in found)
        found[f"{name} #{same + 1}" if same else name] = result
    return found


def passes(result: str | None) -> bool:
    return result is not None and result.startswith("ok")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--whole", action="store_true", help="all tests")
    parser.add_argument("--show", action="store_true", help="the last runs' results")
    args = parser.parse_args()
    selection = "--whole" if args.whole else "--all"
    before = results("--stock", selection, run=not args.show)
    after = results(selection, run=not args.show)
    if not before or not after:
        sys.exit("ovs-patches/compare.py: no results; see what ovs-patches/test says")
    new = {name: result for name, result in after.items() if name not in before}
    rows = [
        {"test": name, "before": result, "after": after.get(name)}
        for name, result in before.items()
    ]
    differing = [row for row in rows if passes(row["before"]) != passes(row["after"])]
    failed = [name for name, result in new.items() if result == "FAILED"]
    print(f"\n{'':24}{'before':>8}{'after':>8}{'new':>8}")
    old = {name: after.get(name, "gone") for name in before}
    counts = [Counter(found.values()) for found in (before, old, new)]
    for result in ("ok", "ok when repeated", "FAILED", "skipped", "gone"):
        if any(count[result] for count in counts):
            print(f"{result:24}" + "".join(f"{count[result]:>8}" for count in counts))
    print(f"{'all':24}" + "".join(f"{sum(count.values()):>8}" for count in counts))
    for row in rows:
        if row["before"] != row["after"]:
            what = "DIFFERS" if row in differing else "passes both times"
            print(f"{what}: {row['test']}: before {row['before']}, after {row['after']}")
    for name in failed:
        print(f"new, failed: {name}")
    print(f"{len(differing)} of the {len(before)} tests have another result after the patches")
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(
        json.dumps(
            {
                "selection": selection.removeprefix("--"),
                "before": dict(counts[0]),
                "after": dict(counts[1]),
                "new": dict(counts[2]),
                "rows": rows,
                "new_rows": [{"test": name, "after": result} for name, result in new.items()],
            },
            indent=1,
        )
        + "\n"
    )
    return 1 if differing or failed else 0


if __name__ == "__main__":
    sys.exit(main())
