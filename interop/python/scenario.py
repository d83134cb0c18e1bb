"""Runs the interoperability tests with the Python SDK, and prints one line for each: name, `ok` or
`failed`, text, seconds."""
import logging
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import exclusive_receivers
import positions
import refusals
import restart
import secure
import sending
import values

logging.disable(logging.CRITICAL)  # the client logs every refusal; they are results here
only = sys.argv[1:]


def play(module):
    for name, operation in module.OPERATIONS.items():
        if only and not any(word in name for word in only):
            continue
        start = time.monotonic()
        try:
            result, text = "ok", operation() or ""
        except Exception as error:  # any failure is a result
            result, text = "failed", f"{type(error).__name__}: {error}"
        text = " ".join(text.split())[:300]
        line = "\t".join([name, result, text, f"{time.monotonic() - start:.1f}"])
        print(line + "\n", end="", flush=True)  # one write, for there are several threads


# This client mostly sleeps, 50 ms at each step of every link; so everything at once, each on a hub of its own.
with ThreadPoolExecutor() as pool:
    list(pool.map(play, (sending, positions, values, exclusive_receivers, refusals, secure)))
play(restart)
