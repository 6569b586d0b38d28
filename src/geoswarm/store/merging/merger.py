"""The program of a process that merges segments: `python -m geoswarm.store.merging.merger`. The engine starts it.

Orders come on standard input and answers go out on standard output, pickled. It ends when it has had no order for a
while, which gives its memory back, and at once when standard input is closed: the operating system does that when the
engine ends, however it ends. What it leaves incomplete then is removed by the next start (`store/housekeeping.py`).
"""

import os
import pickle
import queue
import signal
import sys
import threading
import traceback

IDLE_S_MAX = 60.0
"""Seconds without an order after which it ends."""
NICENESS = 5
"""It uses the time that the stream leaves, and about a quarter of a core where the stream leaves none."""


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is meant for the engine, which ends this process
    os.nice(NICENESS)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not be taken for an answer
    orders: queue.Queue[bytes] = queue.Queue()
    threading.Thread(target=_read, args=(orders,), name="orders", daemon=True).start()
    while True:
        try:
            given = orders.get(timeout=IDLE_S_MAX)
        except queue.Empty:
            os._exit(0)  # an interpreter that ends in order would fail on the lock of the thread that reads
        try:
            answer = pickle.loads(given).carry_out()
        except Exception as error:
            traceback.print_exc()
            answer = f"{type(error).__name__}: {error}"
        pickle.dump(answer, answers)
        answers.flush()


def _read(orders: "queue.Queue[bytes]") -> None:
    while True:
        head = sys.stdin.buffer.read(8)
        if len(head) < 8:
            os._exit(0)  # also in the middle of a merge
        orders.put(sys.stdin.buffer.read(int.from_bytes(head, "little")))


if __name__ == "__main__":
    main()
