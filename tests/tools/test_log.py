"""KOLO_LOG and KOLO_TRACE: what was chosen and why, and a picture of who waited for whom."""
import fcntl
import glob
import json
import os
import re
import signal
import subprocess
import tempfile
import time

from tap import B, main, run, test

RINGRUN, RINGBENCH = f"{B}/ringrun", f"{B}/ringbench"
LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z \S+ \d+( rank \d+)? kolo (error|warn|info|trace): .+")


def logged(level, *args, code=0):
    """The lines that a run writes into a file of its own."""
    with tempfile.TemporaryDirectory() as d:
        done = run(RINGRUN, "-n", "3", RINGBENCH, "-b", "1K", "-e", "1K", "-i", "1", "-w", "0", *args,
                   env=dict(os.environ, KOLO_LOG=f"{level}:{d}/log"))
        assert done.returncode == code, done
        with open(f"{d}/log") as f:
            lines = f.read().splitlines()
    assert all(LINE.fullmatch(line) for line in lines), lines
    return lines


@test
def a_level_has_those_above_it():
    assert logged("error") == [] and logged("warn") == []
    info, trace = logged("info"), logged("trace")
    assert not [line for line in info if "kolo trace" in line]
    assert [line for line in trace if "kolo info" in line]


@test
def info_says_what_was_chosen_and_why():
    text = "\n".join(logged("info"))
    assert re.search(r"ring of 3: 0 \(\S+, pid \d+\) -> 1 .* -> 2 .* -> 0\n", text), text
    for edge in ("0 -> 1", "1 -> 2", "2 -> 0"):
        assert f"edge {edge}: shm" in text, text
    assert "7 slots of 262144 bytes" in text and "as kolo says (KOLO_RANK)" in text, text


@test
def trace_has_a_line_for_each_operation():
    lines = [line for line in logged("trace") if "kolo trace" in line]
    for rank in range(3):
        assert any(re.search(rf"rank {rank} kolo trace: #\d+ all_reduce\(n=256, f32, sum\): success after [\d.]+ us", line)
                   for line in lines), lines


@test
def a_wrong_log_is_refused():
    for value, word in (("loud", "loud"), ("info:", "info:"), ("info:/nonexistent/log", "can't be written")):
        done = run(RINGRUN, "-n", "1", RINGBENCH, "-e", "8", env=dict(os.environ, KOLO_LOG=value))
        assert done.returncode and word in done.stderr, done


def traced(directory, *args, n=4, shape=None):
    env = dict(os.environ, KOLO_TRACE=directory, **{"KOLO_SHAPE": shape} if shape else {})
    done = run(RINGRUN, "-n", str(n), RINGBENCH, *args, env=env)
    assert done.returncode == 0, done
    return load(directory)


def load(directory):
    """Events by rank, of the one file that is there."""
    files = glob.glob(f"{directory}/*")
    assert len(files) == 1, files
    ranks = {}
    with open(files[0]) as f:
        for event in json.load(f):
            ranks.setdefault(event["pid"], []).append(event)
    return ranks


@test
def a_trace_has_operations_rounds_and_waits():
    with tempfile.TemporaryDirectory() as d:
        ranks = traced(d, "-b", "8M", "-e", "8M", "-i", "2", "--algorithm", "ring")
    assert sorted(ranks) == [0, 1, 2, 3]
    for rank, events in ranks.items():
        assert [e["args"]["name"] for e in events if e["name"] == "process_name"][0].startswith(f"rank {rank} of 4 (pid ")
        ops = [e for e in events if e.get("cat") == "operation"]
        big = [e for e in ops if "all_reduce(n=2097152, f32, sum)" in e["name"]]
        assert big and all(e["dur"] > 0 for e in ops)
        for op in big:  # 8 MiB are 2 MiB for each rank, in slices of 256 KiB
            inside = [e for e in events if op["ts"] <= e.get("ts", 0) and e["ts"] + e["dur"] <= op["ts"] + op["dur"]]
            assert [e["name"] for e in inside if e["cat"] == "round"] == [f"round {k}" for k in range(8)], inside
        waits = {e["name"] for e in events if e.get("cat") == "wait"}
        # Round the ring for neighbours only; on the board, in barriers, for anyone.
        assert waits <= {f"wait for data from rank {r}" for r in range(4) if r != rank} | {
            f"wait for room at rank {(rank + 1) % 4}"}, waits
    assert any(e.get("cat") == "wait" for events in ranks.values() for e in events)


@test
def a_trace_has_the_steps_of_both_levels():
    with tempfile.TemporaryDirectory() as d:
        ranks = traced(d, "-b", "1M", "-e", "1M", "-i", "1", "--algorithm", "grid", "--order", "grid", shape="2x2")
    sent, taken = [], []
    for rank, events in ranks.items():
        for e in (e for e in events if e.get("cat") == "step"):
            track, before, after = re.fullmatch(r"(rail|group):(?: from rank (\d))?(?: to rank (\d))?", e["name"]).groups()
            assert e["tid"] == (1 if track == "rail" else 2) and (before or after) and e["dur"] >= 0, e
            taken += [(track, before, str(rank))] if before else []
            sent += [(track, str(rank), after)] if after else []
    assert sorted(sent) == sorted(taken) and len(set(sent)) == 8, (sent, taken)


@test
def a_long_trace_is_complete():
    with tempfile.TemporaryDirectory() as d:
        ranks = traced(d, "barrier", "-i", "10000", "-w", "0", n=2)
    for events in ranks.values():
        numbers = [int(re.match(r"#(\d+)", e["name"]).group(1)) for e in events if e.get("cat") == "operation"]
        assert numbers == list(range(1, len(numbers) + 1)) and len(numbers) >= 10000, len(numbers)


@test
def a_killed_rank_leaves_a_trace_that_parses():
    with tempfile.TemporaryDirectory() as d:
        job = subprocess.Popen((RINGRUN, "-n", "3", "sh", "-c", f'exec "{RINGBENCH}" -b 4 -e 4M -f 1048576 -i 20000'),
                               env=dict(os.environ, KOLO_TRACE=d), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        while job.stdout.readline().startswith("#"):
            pass
        with open(f"/proc/{job.pid}/task/{job.pid}/children") as f:
            keeper = f.read().split()[0]
        with open(f"/proc/{keeper}/task/{keeper}/children") as f:
            os.kill(int(f.read().split()[1]), signal.SIGKILL)
        job.communicate(timeout=30)
        time.sleep(0.1)
        ranks = load(d)
    assert len(ranks) >= 1 and all(len(events) > 2 for events in ranks.values())


@test
def a_locked_trace_holds_up_nobody():
    with tempfile.TemporaryDirectory() as d:
        job = subprocess.Popen((RINGRUN, "-n", "2", RINGBENCH, "-b", "64", "-e", "64", "-i", "20000"),
                               env=dict(os.environ, KOLO_TRACE=d, KOLO_LOG="warn"), stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
        while not glob.glob(f"{d}/*"):
            time.sleep(0.001)
        with open(glob.glob(f"{d}/*")[0]) as f:
            fcntl.flock(f, fcntl.LOCK_SH)
            _, err = job.communicate(timeout=60)
        assert job.returncode == 0 and "events are lost" in err, (job.returncode, err)


@test
def a_wrong_trace_folder_is_refused():
    with tempfile.NamedTemporaryFile() as f:
        for value, word in (("/nonexistent", "No such file"), (f.name, "Not a directory"), ("/" + "x/" * 150, "too long")):
            done = run(RINGRUN, "-n", "1", RINGBENCH, "-e", "8", env=dict(os.environ, KOLO_TRACE=value))
            assert done.returncode and f"KOLO_TRACE={value}" in done.stderr and word in done.stderr, done


if __name__ == "__main__":
    main()
