"""Runs the operations and prints one line for each: name, `ok` or `failed`, text."""
import logging
import sys
import time

import ownership
import positions
import refusals
import restart
import sending
import values

logging.disable(logging.CRITICAL)  # the client logs every refusal; they are results here
only = sys.argv[1:]
for module in (sending, positions, values, ownership, refusals, restart):
    for name, operation in module.OPERATIONS.items():
        if only and not any(word in name for word in only):
            continue
        start = time.monotonic()
        try:
            operation()
            result, text = "ok", ""
        except Exception as error:  # any failure is a result
            result, text = "failed", f"{type(error).__name__}: {error}"
        text = " ".join(text.split())[:300]
        print(name, result, text, f"{time.monotonic() - start:.1f}", sep="\t", flush=True)
