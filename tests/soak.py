"""Run the tests that take seeds with fresh ones, for as long as it is told: `make soak MINUTES=5`.

Not part of CI. Each run draws its worlds from a new number; a seed that fails is appended to `tests/seeds.txt` with the
name of its test, and every later run of the suite plays it again. Ends with 1 if any failed. No Spark, no services.
"""

import argparse
import secrets
import subprocess
import sys
import time

import seeds

PROCESSES = 2


def run(number: int, minutes_left: float) -> bool:
    """Whether all of one run's tests passed, in the time that is left."""
    chosen = ["-m", "quick", "--fresh", str(number), "--numprocesses", str(PROCESSES), "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-q", "-r", "fE", *chosen]
    print(f"== fresh seeds from {number}", flush=True)
    try:
        return subprocess.run(command, timeout=60 * minutes_left, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        print("== time is over")
        return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    end_s = time.monotonic() + 60 * parser.parse_args().minutes
    before, passed = seeds.FILE.read_text(), True
    while (minutes_left := (end_s - time.monotonic()) / 60) > 0:
        passed &= run(secrets.randbits(32), minutes_left)
    found = seeds.FILE.read_text().removeprefix(before.rstrip()).strip()
    if found:
        print(f"== seeds that failed, now in {seeds.FILE.name}:\n{found}")
    return 0 if passed and not found else 1


if __name__ == "__main__":
    sys.exit(main())
