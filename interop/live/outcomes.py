"""Compares test results with the list of known failures, `known_failures.txt`: a line is suite, outcome, test and
reason, with tabs between.

A listed test is run all the same. Where the outcome is `fails`, it must fail or be skipped, and is left out; if it passes, its
line is out of date, and so the run fails. Where it is `varies`, the test depends on how fast the hub answers, and is left out
whatever it does. A test that is skipped and not listed fails, too: otherwise a missing fixture could hide every test.
"""
import dataclasses
import os

KNOWN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "known_failures.txt")


@dataclasses.dataclass
class Result:
    test: str
    outcome: str  # passed, failed or skipped
    text: str = ""
    seconds: float = 0


def known(suite):
    """The listed tests of this suite, each with its outcome and its reason."""
    with open(KNOWN) as file:
        lines = [line.rstrip("\n").split("\t") for line in file if line.strip()]
    for line in lines:
        if len(line) != 4 or line[1] not in ("fails", "varies"):
            raise SystemExit(f"{KNOWN}: a line is suite, fails or varies, test and reason, with tabs between: {line}")
    return {test: (outcome, reason) for of, outcome, test, reason in lines if of == suite}


def judge(expected, results, listed):
    """The number of tests that passed, the failures with their texts, and the tests that are left out with their reasons."""
    passed, failed, left_out = 0, [], []
    found = {result.test: result for result in results}
    for test in dict.fromkeys([*expected, *found]):
        result = found.get(test, Result(test, "failed", "it has no result: its process ended, or the time was up"))
        outcome, reason = listed.get(test, (None, None))
        if outcome == "varies" or outcome == "fails" and result.outcome != "passed":
            left_out.append((test, reason))
        elif outcome == "fails":
            failed.append((test, f"it passes, and known_failures.txt lists it: {reason}"))
        elif result.outcome == "passed":
            passed += 1
        elif result.outcome == "skipped":
            failed.append((test, f"it was skipped, and known_failures.txt does not list it: {result.text}"))
        else:
            failed.append((test, result.text))
    return passed, failed, left_out


def test():
    """Each rule of the list, once."""
    listed = {"listed fails": ("fails", "a"), "listed skips": ("fails", "b"), "listed passes": ("fails", "c"),
              "varies": ("varies", "d"), "not in this checkout": ("fails", "e")}
    results = [Result("passes", "passed"), Result("fails", "failed", "x"), Result("skips", "skipped", "y"), Result("varies", "passed"),
               Result("listed fails", "failed"), Result("listed skips", "skipped"), Result("listed passes", "passed")]
    passed, failed, left_out = judge(["passes", "lost"], results, listed)
    assert passed == 1
    assert [test for test, _ in failed] == ["lost", "fails", "skips", "listed passes"], failed
    assert left_out == [("varies", "d"), ("listed fails", "a"), ("listed skips", "b")], left_out
