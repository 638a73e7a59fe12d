"""What the Python tests share: TAP on standard output, programs with a time limit, and skipping with a reason."""
import os
import signal
import subprocess
import sys
import time
import traceback

B = os.environ.get("B", "build")
SLOW = bool(os.environ.get("SAN")) or "T_SLOW" in os.environ
TESTS = []

# A shell ignores both in background jobs, and children would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)

try:
    os.fstat(0)
except OSError: # closed: what is opened next, and meant for a child, would be its standard input
    os.open(os.devnull, os.O_RDONLY)


class Skip(Exception):
    pass


def test(function):
    """Each test is a function whose name is a sentence."""
    TESTS.append(function)
    return function


def run(*args, timeout=120, **kwargs):
    return subprocess.run(args, capture_output=True, text=True, timeout=timeout, **kwargs)


def finish(ranks, seconds=60):
    """Exit code, output and errors of each."""
    end, results = time.monotonic() + seconds, []
    for p in ranks:
        try:
            out, err = p.communicate(timeout=max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            for q in ranks:
                q.kill()
            raise
        results.append((p.returncode, out, err))
    return results


def main():
    chosen = [t for t in TESTS if not sys.argv[1:] or t.__name__ in sys.argv[1:]]
    print(f"1..{len(chosen)}", flush=True)
    failed = 0
    for number, function in enumerate(chosen, 1):
        try:
            function()
            print(f"ok {number} - {function.__name__}", flush=True)
        except Skip as why:
            print(f"ok {number} - {function.__name__} # SKIP {why}", flush=True)
        except Exception:
            failed += 1
            print("# " + traceback.format_exc().replace("\n", "\n# "), file=sys.stderr, flush=True)
            print(f"not ok {number} - {function.__name__}", flush=True)
    sys.exit(1 if failed else 0)
