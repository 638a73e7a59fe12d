"""ringbench and ringrun from the outside: documented fields, exit codes, signals, and nothing left behind."""
import csv
import io
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from tap import B, SLOW, main, run, test

RINGRUN, RINGBENCH = f"{B}/ringrun", f"{B}/ringbench"


def bench(*args, **kwargs):
    """ringbench's JSON objects, after a successful run."""
    done = run(RINGBENCH, *args, "--json", "-", **kwargs)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


FIELDS = {
    "collective": str, "type": str, "op": str, "root": int, "ranks": int, "transport": str, "algorithm": str,
    "ran": str, "memory": str, "in_flight": int, "in_place": bool, "bytes": int, "count": int, "iterations": int, "time_us": float,
    "time_us_min": float, "time_us_p99": float, "algbw_GBs": float, "busbw_GBs": float, "wrong": int,
    "sent_bytes": list, "model_bytes": list, "traffic_ok": bool, "with_barrier": bool, "order": str, "common_start": bool,
}


@test
def ringbench_json_has_the_documented_fields():
    rows = bench("-n", "3", "all", "barrier", "-b", "1K", "-e", "16K", "-f", "4", "-i", "3", "-r", "all")
    for row in rows:
        assert set(row) == set(FIELDS), row
        for name, kind in FIELDS.items():
            assert isinstance(row[name], kind), (name, row)
        assert row["ranks"] == 3 and row["transport"] == "shm" and row["algorithm"] == "best"
        assert row["ran"] in ("ring", "board", "slices", "exchange", "doubling", "partials", "center", "shares", "direct", "pairwise")
        assert row["wrong"] == 0 and row["traffic_ok"] and row["sent_bytes"] == row["model_bytes"]
        assert len(row["sent_bytes"]) == 3
        assert row["time_us_min"] <= row["time_us"] <= row["time_us_p99"]
    seen = {(r["collective"], r["root"]) for r in rows}
    assert ("broadcast", 2) in seen and ("all_reduce", -1) in seen and ("barrier", -1) in seen
    assert {r["in_place"] for r in rows} == {True, False}


@test
def ringbench_traffic_of_messages_is_their_payload():
    for n, algorithm in itertools.product((2, 4), ([], ["--algorithm", "board"])):
        rows = bench("-n", str(n), "all_to_all", "gather", "scatter", "send_recv", "-b", "4K", "-e", "256K", "-f", "64", "-i", "3", "-r", "1",
                     *algorithm)
        assert rows and all(r["wrong"] == 0 and r["traffic_ok"] for r in rows), rows
        for row in rows:
            part, root = row["bytes"] // n, [int(r == 1) for r in range(n)]
            sent = {"all_to_all": [(n - 1) * part] * n, "gather": [0 if r else part for r in root],
                    "scatter": [(n - 1) * part if r else 0 for r in root], "send_recv": [row["bytes"]] * n}
            assert row["sent_bytes"] == sent[row["collective"]], row
        # Without a name, what was measured when the communicator was made decides.
        ran = {r["ran"] for r in rows if r["collective"] == "all_to_all" and r["bytes"] == 4096}
        assert ran == {"board"} or not algorithm, rows


@test
def ringbench_leaves_operations_to_a_queue():
    for args, ahead in ((["--queue"], 1), (["--in-flight", "7"], 7), (["--in-flight", "3", "--queue"], 3), ([], 0)):
        rows = bench("-n", "2", "all", "barrier", "-b", "8", "-e", "128K", "-f", "128", "-i", "3", *args)
        assert len(rows) == 32, len(rows)
        assert all(r["in_flight"] == ahead and r["wrong"] == 0 and r["traffic_ok"] for r in rows), rows
    done = run(RINGBENCH, "-n", "2", "--in-flight", "2", "-b", "8", "-e", "8", "-i", "3")
    assert done.returncode == 0 and "# 2 in a queue at a time" in done.stdout, done.stdout
    done = run(RINGBENCH, "--in-flight", "0")
    assert done.returncode == 2 and "--in-flight 0" in done.stderr, done.stderr


@test
def ringbench_traffic_of_an_all_reduce_is_2k_n_minus_1_over_n():
    for n in (2, 4):
        for row in bench("-n", str(n), "-b", "64K", "-e", "64K", "-i", "2", "--algorithm", "ring"):
            assert row["sent_bytes"] == [2 * 65536 * (n - 1) // n] * n, row


@test
def ringbench_bandwidths_follow_from_time():
    factors = {"all_reduce": 1.5, "reduce_scatter": 0.75, "all_gather": 0.75, "broadcast": 1, "reduce": 1}
    for row in bench("-n", "4", "all", "-b", "1M", "-e", "1M", "-i", "3"):
        assert abs(row["algbw_GBs"] - row["bytes"] / row["time_us"] / 1e3) < 1e-3, row
        assert abs(row["busbw_GBs"] - row["algbw_GBs"] * factors[row["collective"]]) < 1e-3, row


@test
def ringbench_percentiles_of_few_iterations_are_in_order():
    for iterations in ("2", "3"):
        rows = bench("-n", "2", "-b", "8", "-e", "64K", "-i", iterations, "-w", "0")
        assert all(r["time_us_min"] <= r["time_us"] <= r["time_us_p99"] for r in rows), rows
    # The 99th percentile of three is the largest, the median the second.
    assert any(r["time_us"] < r["time_us_p99"] for r in rows), rows


def bench_on_gpus(*args, **env):
    """With a libcuda and a libkolo_cuda.so that are made of threads, beside it."""
    with tempfile.TemporaryDirectory() as folder:
        for file in ("ringbench", "ringrun", "tests/fake/libkolo_cuda.so.0"):
            shutil.copy(f"{B}/{file}", folder)
        os.link(f"{folder}/libkolo_cuda.so.0", f"{folder}/libcuda.so.1") # one object, with one state
        return run(f"{folder}/ringbench", "-n", "2", "--memory", "cuda", *args,
                   env={**os.environ, "LD_LIBRARY_PATH": folder, **env})


@test
def ringbench_has_ranks_as_threads():
    done = run(RINGBENCH, "-n", "3", "--threads", "all", "-b", "8", "-e", "64K", "-f", "64", "-i", "3")
    assert done.returncode == 0 and "# 3 ranks" in done.stdout and "0 wrong elements; traffic as" in done.stdout, done
    done = run(RINGRUN, "-n", "2", RINGBENCH, "--threads")
    assert done.returncode == 2 and "--threads: cannot be used in a job of" in done.stderr, done
    done = run(RINGBENCH, "--threads", "-n", "2", "--algorithm", "none")
    assert done.returncode == 3 and "none" in done.stderr, done


@test
def ringbench_measures_on_gpus():
    done = bench_on_gpus("all", "barrier", "-t", "f16", "-o", "all", "-e", "64K", "-f", "64", "-i", "3", "-w", "1", "--json", "-")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0 and len({r["collective"] for r in rows}) == 6, done
    assert all(r["memory"] == "cuda" and r["ran"] == "ring" and r["time_us"] > 0 for r in rows), rows
    assert all(r["wrong"] == 0 and r["traffic_ok"] for r in rows), rows
    done = bench_on_gpus("--device", "1,0", "--transport", "tcp", "-b", "64K", "-e", "64K", "-i", "3", KOLO_CUDA_MEMORY="65536")
    assert done.returncode == 0 and "number 1, threads 1" in done.stdout and "traffic as the model says" in done.stdout, done
    done = bench_on_gpus("-n", "3", "--threads", "-b", "64K", "-e", "64K", "-i", "3")
    assert done.returncode == 0 and "# 3 ranks" in done.stdout and "0 wrong elements; traffic as" in done.stdout, done
    done = bench_on_gpus("-n", "3", "all_to_all", "gather", "scatter", "-e", "4M", "-f", "64", "-i", "3", "--json", "-")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0 and len({r["collective"] for r in rows}) == 3, done
    assert all(r["ran"] == "direct" and r["wrong"] == 0 and r["traffic_ok"] for r in rows), rows
    for ranks in ("2",), ("3", "--threads"):
        done = bench_on_gpus("-n", *ranks, "--memory", "cuda-registered", "all", "-t", "f32", "-o", "avg", "-e", "4M", "-f", "64",
                             "-i", "3", "-w", "1", "--json", "-")
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        assert done.returncode == 0 and {r["ran"] for r in rows} <= {"direct", "ring"}, done
        assert all(r["memory"] == "cuda-registered" and r["wrong"] == 0 and r["traffic_ok"] for r in rows), rows
        # All on registered memory, but for what a root would have to move alone, and where nothing is moved.
        assert all(r["ran"] == "direct" for r in rows if 64 <= r["bytes"] <= 65536), rows
    done = bench_on_gpus("--device", "8")
    assert done.returncode == 3 and "--device 8: must be numbers from 0 to 7" in done.stderr, done
    for more in (), ("--in-flight", "4"), ("--transport", "tcp"):
        done = bench_on_gpus("-n", "3", "send_recv", "-e", "4M", "-f", "64", "-i", "3", *more, "--json", "-")
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        assert done.returncode == 0 and rows and all(r["ran"] == "direct" and r["wrong"] == 0 and r["traffic_ok"] for r in rows), done
    done = run(f"{B}/ringbench", "--memory", "gpu")
    assert done.returncode == 2 and "host, alloc, cuda or cuda-registered" in done.stderr, done


@test
def ringbench_all_types_and_ops_are_right():
    for n in (2, 3, 5):
        size = "4K" if SLOW else "64K"
        rows = bench("-n", str(n), "all", "-t", "all", "-o", "all", "-r", "all", "-b", "13", "-e", size, "-f", "17",
                     "-i", "1", "-w", "0")
        assert {r["type"] for r in rows} >= {"i8", "f16", "bf16", "f8e4m3", "f64"}
        assert {r["op"] for r in rows} >= {"sum", "prod", "min", "max", "avg"}
        assert all(r["wrong"] == 0 and r["traffic_ok"] for r in rows)


@test
def ringbench_prints_a_table_and_csv():
    done = run(RINGBENCH, "-n", "2", "-b", "8", "-e", "64", "-i", "2", "--csv", "/dev/stderr")
    assert done.returncode == 0 and "busbw" in done.stdout and "0 wrong elements" in done.stdout, done.stdout
    rows = list(csv.DictReader(io.StringIO(done.stderr)))
    assert len(rows) == 8 and rows[0]["collective"] == "all_reduce" and rows[0]["sent_bytes"] == "8;8", rows


@test
def ringbench_joins_a_job():
    done = run(RINGRUN, "-n", "2", RINGBENCH, "-b", "1K", "-e", "1K", "-i", "2")
    assert done.returncode == 0 and "# 2 ranks" in done.stdout, done.stdout + done.stderr
    done = run(RINGRUN, "-n", "2", RINGBENCH, "-n", "3", "-i", "2")
    assert done.returncode == 2 and "-n 3" in done.stderr, done.stderr


@test
def ringbench_times_the_barrier_too():
    rows = bench("-n", "2", "all", "scatter", "barrier", "-b", "8", "-e", "8", "-i", "3", "--with-barrier")
    assert rows and all(r["with_barrier"] and r["wrong"] == 0 and r["traffic_ok"] for r in rows), rows
    done = run(RINGBENCH, "-n", "2", "--with-barrier", "-b", "8", "-e", "8", "-i", "3")
    assert done.returncode == 0 and "# time is that of a barrier and the operation after it" in done.stdout, done.stdout
    for args in (["send_recv"], ["--queue"], ["--plot", "x.svg"]):
        done = run(RINGBENCH, "-n", "2", "--with-barrier", *args)
        assert done.returncode == 2 and f"--with-barrier {args[0]}" in done.stderr, (args, done)


@test
def ringbench_begins_on_all_ranks_at_once():
    cores = len(os.sched_getaffinity(0))
    rows = bench("-n", str(min(2, cores)), "all", "send_recv", "-b", "8", "-e", "8", "-i", "300", "--common-start")
    assert rows and all(r["common_start"] and r["wrong"] == 0 and r["traffic_ok"] for r in rows), rows
    # No rank begins before the time from which it counts.
    assert all(0 < r["time_us_min"] <= r["time_us"] for r in rows), rows
    for args, word in ((["--with-barrier"], "--with-barrier"), (["-n", str(os.cpu_count() + 1)], "with a processor each")):
        done = run(RINGBENCH, "-n", "2", "--common-start", *args, "-i", "3")
        assert done.returncode == 2 and "--common-start" in done.stderr and word in done.stderr, (args, done)


@test
def ringbench_refuses_mistakes():
    for args, word in ((["-t", "f17"], "f17"), (["nonsense"], "nonsense"), (["-b", "x"], "-b"), (["-c", "2"], "-c"),
                       (["-b", "2M", "-e", "1M"], "above"), (["--nope"], "nope"), (["-o", "xor"], "xor")):
        done = run(RINGBENCH, *args)
        assert done.returncode == 2 and word in done.stderr, (args, done)
    for args, word in ((["barrier", "-t", "f64"], "-t f64"), (["broadcast", "-o", "max"], "-o max"), (["-r", "1"], "-r 1"),
                       (["barrier", "--in-place"], "--in-place"), (["-n", "65537"], "65536"), (["--limit", "3"], "--limit 3")):
        done = run(RINGBENCH, *args)
        assert done.returncode == 2 and word in done.stderr, (args, done)
    done = run(RINGBENCH, "-n", "2", "-b", "3", "-e", "3")
    assert done.returncode == 2 and "nothing was measured" in done.stderr, done
    done = run(RINGBENCH, "-n", "2", "all", "-t", "u8", "-b", "1", "-e", "1", "-i", "1")
    assert done.returncode == 0 and "# all_gather is left out" in done.stdout and "# broadcast is" not in done.stdout, done
    done = run(RINGBENCH, "-n", "2", "-r", "2", "broadcast")
    assert done.returncode == 2 and "below the number of ranks, 2" in done.stderr, done
    for option, name in (("--transport", "pigeon"), ("--algorithm", "magic")):
        done = run(RINGBENCH, "-n", "2", option, name)
        assert done.returncode == 3 and name in done.stderr, done
    assert bench("-n", "2", "--transport", "shm", "--algorithm", "ring", "-e", "8", "-i", "1")


@test
def tools_say_help_and_version():
    for tool in (RINGBENCH, RINGRUN):
        done = run(tool, "--help")
        assert done.returncode == 0 and "xit status" in done.stdout, done
        done = run(tool, "--version")
        assert done.returncode == 0 and "Kolo" in done.stdout, done


@test
def ringrun_gives_each_rank_its_place():
    done = run(RINGRUN, "-n", "3", "sh", "-c", "echo $KOLO_RANK/$KOLO_NRANKS ${#KOLO_ID}")
    assert sorted(done.stdout.splitlines()) == [f"{r}/3 256" for r in range(3)], done


@test
def ringrun_tags_lines():
    done = run(RINGRUN, "-n", "3", "--tag", "sh", "-c",
               "echo one; echo two >&2; printf 'no newline'; sleep 0.2; printf ' yet'")
    assert sorted(done.stdout.splitlines()) == sorted(
        f"[{r}] {text}" for r in range(3) for text in ("one", "no newline yet")), done
    assert sorted(done.stderr.splitlines()) == [f"[{r}] two" for r in range(3)], done


@test
def ringrun_gives_stdin_to_rank_0():
    done = run(RINGRUN, "-n", "2", "--tag", "cat", input="hello\n")
    assert done.stdout == "[0] hello\n" and done.returncode == 0, done


@test
def ringrun_returns_the_failing_ranks_code():
    done = run(RINGRUN, "-n", "3", "sh", "-c", '[ $KOLO_RANK = 1 ] && exit 42; sleep 60')
    assert done.returncode == 42 and "rank 1 returned 42" in done.stderr, done
    done = run(RINGRUN, "-n", "3", "sh", "-c", '[ $KOLO_RANK = 2 ] && kill -9 $$; sleep 60')
    assert done.returncode == 128 + 9 and "rank 2 was killed by signal 9" in done.stderr, done
    assert run(RINGRUN, "-n", "2", "true").returncode == 0
    assert run(RINGRUN, "-n", "2", "/nonexistent").returncode == 127
    assert run(RINGRUN, "-n", "2", "/etc/passwd").returncode == 126
    for bad in (["-n", "0", "true"], ["-n", "x", "true"], ["-n", "2"], ["-n", "2", "--bind", "x", "true"]):
        assert run(RINGRUN, *bad).returncode == 125, bad


@test
def ringrun_binds_ranks_to_cores():
    show = (sys.executable, "-c", "import os; os.write(1, f'{sorted(os.sched_getaffinity(0))}\\n'.encode())")
    def bound(*options):
        done = run(RINGRUN, *options, *show)
        assert done.returncode == 0, done
        return sorted(json.loads(line) for line in done.stdout.splitlines())
    everywhere = sorted(os.sched_getaffinity(0))
    unbound = bound("-n", "2", "--bind", "none")
    assert unbound == [everywhere] * 2, unbound
    (cores,) = bound("-n", "1")  # one thread of each core, which ranks share
    for n in sorted({1, 2, 3, len(cores), len(cores) + 1}):
        shares = bound("-n", str(n))
        if n > len(cores):
            assert shares == [everywhere] * n, shares
            continue
        assert sorted(sum(shares, [])) == cores, (cores, shares)
        assert {len(share) for share in shares} <= {len(cores) // n, -(-len(cores) // n)}, (cores, shares)
        ones = bound("-n", str(n), "--bind", "core")
        assert {len(one) for one in ones} == {1} and len(set(sum(ones, []))) == n and set(sum(ones, [])) <= set(cores), ones


@test
def tools_notice_that_output_can_not_be_written():
    with open("/dev/full", "w") as full:
        for command in ([RINGBENCH, "-n", "2", "-e", "8", "-i", "1"], [RINGBENCH, "-n", "2", "-e", "8", "-i", "1", "--json", "-"]):
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
            assert done.returncode == 3 and "could not be written" in done.stderr, done
        done = subprocess.run([RINGRUN, "-n", "1", "--tag", "echo", "hi"], stdout=full, stderr=subprocess.PIPE, text=True,
                              timeout=60)
        assert done.returncode == 125 and "No space" in done.stderr, done


@test
def ringrun_survives_a_reader_that_stalls_or_leaves():
    job = start_marked("stalled", RINGRUN, "-n", "2", "--tag", "yes")
    time.sleep(0.5)
    job.terminate()
    wait_for(lambda: not processes_with("stalled"), 10, "left after SIGTERM")
    job.communicate(timeout=10)
    job = start_marked("stalled", RINGRUN, "-n", "2", "--tag", "yes")
    time.sleep(0.5)
    job.kill()
    wait_for(lambda: not processes_with("stalled"), 10, "left after SIGKILL")
    job.communicate(timeout=10)
    job = start_marked("stalled", RINGRUN, "-n", "2", "--tag", "yes")
    assert job.stdout.readline() in ("[0] y\n", "[1] y\n")
    job.stdout.close()
    wait_for(lambda: not processes_with("stalled"), 10, "left after the reader")
    job.stderr.close()
    job.wait(timeout=10)


def processes_with(mark):
    """Ids of the processes whose environment has the mark."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                if f"T_MARK={mark}\0".encode() in f.read() and int(pid) != os.getpid():
                    found.append(int(pid))
        except OSError:
            pass
    return found


def start_marked(mark, *args):
    return subprocess.Popen(args, env=dict(os.environ, T_MARK=mark), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True)


def wait_for(condition, seconds, what):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)


@test
def ringrun_passes_signals_on():
    for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        job = start_marked("signals", RINGRUN, "-n", "2", "--tag", "sh", "-c",
                           f"trap 'echo got it; exit 5' {int(sig)}; echo ready; while :; do sleep 0.05; done")
        ready = [job.stdout.readline() for _ in range(2)]
        assert all("ready" in line for line in ready), ready
        job.send_signal(sig)
        out, err = job.communicate(timeout=20)
        assert out.count("got it") == 2 and job.returncode == 5, (out, err, job.returncode)


@test
def ringrun_leaves_no_process_behind():
    # Ranks that leave a background process, also one in a session of its own, and ringrun ended in every way.
    script = "setsid sleep 100 & sleep 100 & echo started; wait"
    for how in ("rank ends", "kill -9 of ringrun", "kill -9 of the keeper", "SIGTERM"):
        mark = "left" + how.replace(" ", "").replace("-", "")
        body = "setsid sleep 100 & echo started" if how == "rank ends" else script
        job = start_marked(mark, RINGRUN, "-n", "2", "sh", "-c", body)
        for _ in range(2):
            assert job.stdout.readline() == "started\n"
        if how == "kill -9 of ringrun":
            job.kill()
        elif how == "kill -9 of the keeper":
            with open(f"/proc/{job.pid}/task/{job.pid}/children") as f:
                os.kill(int(f.read().split()[0]), signal.SIGKILL)
        elif how == "SIGTERM":
            job.terminate()
        wait_for(lambda: not processes_with(mark), 10, f"{how}: {processes_with(mark)} are left")
        job.wait(timeout=10)
        job.stdout.close()
        job.stderr.close()


@test
def sixty_four_ranks_run_and_leave_nothing():
    before = set(os.listdir("/dev/shm"))
    begin = time.monotonic()
    rows = bench("-n", "64", "-b", "1M", "-e", "1M", "-i", "1", "-w", "0", "--in-place", timeout=300)
    assert rows[0]["wrong"] == 0 and rows[0]["traffic_ok"] and rows[0]["ranks"] == 64
    print(f"# 64 ranks took {time.monotonic() - begin:.1f} s")
    job = start_marked("sixtyfour", RINGRUN, "-n", "64", RINGBENCH, "-b", "1M", "-e", "1M", "-i", "100000")
    time.sleep(1.5)
    job.kill()
    wait_for(lambda: not processes_with("sixtyfour"), 10, "ranks are left")
    job.communicate(timeout=10)
    assert set(os.listdir("/dev/shm")) == before


@test
def a_killed_rank_is_reported_by_ringbench():
    job = start_marked("killed", RINGRUN, "-n", "3", RINGBENCH, "-b", "4", "-e", "4M", "-f", "1048576",
                       "-i", "20000")
    while job.stdout.readline().startswith("#"):  # until the row of 4 bytes: all have joined
        pass
    victim = next(p for p in processes_with("killed")
                  if b"KOLO_RANK=1\0" in open(f"/proc/{p}/environ", "rb").read())
    os.kill(victim, signal.SIGKILL)
    _, err = job.communicate(timeout=30)
    assert job.returncode == 128 + 9, job.returncode
    assert err.count(f"rank 1 (pid {victim} on") == 2 and "died" in err, err


if __name__ == "__main__":
    main()
