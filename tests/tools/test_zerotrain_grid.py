"""zerotrain with several ranks for a replica: the losses of one rank for every grid, schedule, stage and precision; what it
counts and draws; mistakes."""
import itertools
import json
import os
import random
import re
import signal
import struct
import subprocess
import tempfile

from tap import B, SLOW, Skip, main, run, test

ZEROTRAIN, RINGRUN = f"{B}/zerotrain", f"{B}/ringrun"
LONG = "T_LONG" in os.environ
SEED = int(os.environ.get("T_SEED", "2026"))
MODEL = ["--data", "/usr/share/common-licenses/GPL-3", "--layers", "8", "--dim", "16", "--heads", "4", "--context", "8",
         "--batch", "2", "--dropout", "0.1", "--validate", "0", "--print", "1000"]
LAYERS, DIM, CONTEXT, BATCH = 8, 16, 8, 2
AXES = {"tp": [1, 2, 4], "pp": [1, 2, 4], "dp": [1, 2], "schedule": ["gpipe", "1f1b", "interleaved", "zb-h1"],
        "stage": [0, 1, 2, 3], "micro": [1, 2, 3, 8], "precision": ["fp32", "bf16"], "sequence": [False, True]}


def start(ranks, *args):
    if not os.path.exists(ZEROTRAIN):
        raise Skip("this build has no zerotrain: it lacks OpenBLAS: make deps")
    return run(RINGRUN, "-n", str(ranks), ZEROTRAIN, *MODEL, *map(str, args))


def trained(ranks, *args):
    done = start(ranks, *args)
    assert done.returncode == 0, (args, done)
    return done.stdout


def skip_if_slow():
    if SLOW:
        raise Skip("numbers, which a sanitizer does not change")


def grid(case):
    """The command's options, and its number of ranks."""
    args = ["--tp", case["tp"], "--pp", case["pp"], "--micro", case["micro"], "--schedule", case["schedule"],
            "--stage", case["stage"], "--precision", case["precision"]]
    return args + ["--sequence-parallel"] * case["sequence"], case["tp"] * case["pp"] * case["dp"]


def possible(case):
    return (case["tp"] * case["pp"] * case["dp"] <= 8 and (case["tp"] > 1 or not case["sequence"]) and
            (case["schedule"] != "interleaved" or case["micro"] % case["pp"] == 0))


def all_cases():
    return [case for values in itertools.product(*AXES.values()) if possible(case := dict(zip(AXES, values)))]


def pairs_of(case):
    return set(itertools.combinations(case.items(), 2))


def pairwise(cases):
    """Cases in which every pair of values occurs that occurs in any: of some drawn ones always that with most new pairs."""
    draw, left, chosen = random.Random(SEED), set().union(*map(pairs_of, cases)), []
    while left:
        best = max(draw.sample(cases, min(len(cases), 60)), key=lambda case: len(pairs_of(case) & left))
        if pairs_of(best) & left:
            chosen.append(best)
            left -= pairs_of(best)
    return chosen


def tensors(checkpoint):
    """Shape and bytes of each tensor in each file, whatever their order."""
    found = {}
    for name in ("weights", "moment1", "moment2"):
        with open(f"{checkpoint}/{name}.safetensors", "rb") as f:
            whole = f.read()
        (length,) = struct.unpack("<Q", whole[:8])
        header, data = json.loads(whole[8:8 + length]), whole[8 + length:]
        header.pop("__metadata__")
        found.update({(name, t): (e["shape"], data[slice(*e["data_offsets"])]) for t, e in header.items()})
    return found


def losses(folder, ranks, *args, norms=False):
    """Of each update, with all digits, and of the validation; `norms`: and the gradient's norm."""
    log = f"{folder}/log.jsonl"
    out = trained(ranks, "--log", log, *args)
    with open(log) as f:
        rows = [json.loads(line) for line in f]
    found = [(row["train_loss"], row["norm"]) if norms else row["train_loss"] for row in rows]
    os.remove(log)
    return found + re.findall(r"validation (\S+)", out)


@test
def every_grid_has_the_losses_and_norms_of_one_rank_for_each_replica():
    whole = {}
    cases = all_cases()
    chosen = cases if LONG else pairwise(cases)[:6 if SLOW else None]
    steps = 30 if LONG else 5 if SLOW else 12
    with tempfile.TemporaryDirectory() as folder:
        for case in chosen:
            key = case["dp"], case["micro"], case["precision"]
            if key not in whole:
                whole[key] = losses(folder, case["dp"], "--exact", "--steps", steps, "--micro", case["micro"],
                                    "--precision", case["precision"], norms=True)
                assert len(whole[key]) == steps + 1, whole[key]
            args, ranks = grid(case)
            found = losses(folder, ranks, "--exact", "--steps", steps, *args, norms=True)
            assert found == whole[key], (f"T_SEED={SEED}", case, found, whole[key])
    print(f"# {len(chosen)} of {len(cases)} grids, {steps} updates each")


@test
def without_exact_losses_are_close():
    with tempfile.TemporaryDirectory() as folder:
        one = [float(x) for x in losses(folder, 1, "--steps", 30)]
        for args in [["--tp", 2], ["--tp", 4], ["--tp", 2, "--sequence-parallel"], ["--tp", 2, "--pp", 2, "--micro", 1]]:
            ranks = args[1] * (2 if "--pp" in args else 1)
            found = [float(x) for x in losses(folder, ranks, "--steps", 30, *args)]
            worst = max(abs(a - b) / b for a, b in zip(found, one, strict=True))
            assert worst < 1e-5, (args, worst)
            assert args != ["--tp", 4] or found != one, "there is nothing for --exact to do"


def sent(pattern, steps, ranks, *args):
    """Bytes that rank 0 sends in so many updates, without what validation sends: figures in a report, in MB with two digits."""
    few, many = (float(re.search(pattern, trained(ranks, *args, "--report", "--steps", n))[1]) for n in (1, 1 + steps))
    return (many - few) * 1e6


def planned(ranks, *args):
    """What zeroplan says of the same model."""
    model = ["--layers", LAYERS, "--dim", DIM, "--heads", 4, "--context", CONTEXT, "--batch", BATCH]
    done = run(f"{B}/zeroplan", "-n", str(ranks), *map(str, [*model, *args]), "--stage", "1", "--json")
    assert done.returncode == 0, done
    return json.loads(done.stdout)["asked"][0]


@test
def bytes_are_those_of_the_formulas():
    skip_if_slow()
    steps, micro, e, rows = 100, 4, 4, BATCH * CONTEXT
    for tp, sequence in [(2, False), (2, True), (4, False), (4, True)]:
        found = sent(r"a ring would send (\S+) MB", steps, tp, "--tp", tp, "--micro", micro, *["--sequence-parallel"] * sequence)
        # Of a matrix: 8 for each block, 2 each for embedding and head. And the loss, 6 doubles for each row.
        want = (8 * LAYERS + 4) * rows * DIM * e + 6 * 8 * rows
        if sequence: # gradients of gains, biases and places, 2 each
            want += 2 * e * (2 * DIM * (2 * LAYERS + 1) + CONTEXT * DIM)
        assert abs(found / (steps * micro * want * (tp - 1) / tp) - 1) < 0.002, (tp, sequence, found, want)
        plan = planned(tp, "--tp", tp, "--micro", micro, *["--sequence-parallel"] * sequence)
        assert abs(plan["traffic"]["tensor_bytes"] - micro * want * (tp - 1) / tp) < 1, (tp, sequence, plan, want)
    for pp in (2, 4): # one matrix for each micro-batch, and one comes back
        found = sent(r"(?m)^  pipeline +(\S+) MB", steps, pp, "--pp", pp, "--micro", micro)
        assert abs(found - steps * micro * rows * DIM * e) < 0.011e6, (pp, found)
        assert planned(pp, "--pp", pp, "--micro", micro)["traffic"]["pipe_bytes"] in (micro * rows * DIM * e, 2 * micro * rows * DIM * e)


def megabytes(text, what):
    found = re.search(rf"(?m)^  {what} +(\S+) MB", text)
    return float(found[1]) if found else 0


@test
def memory_falls_as_the_formulas_say_and_zeroplan_knows_it():
    """Activations of a block and a token are 4 ((4 + 12 / T) h + a s / T + 4) bytes. With sequence parallelism two of the four,
    and the last four, are divided too: two stay, because a gathered input is kept for backward."""
    skip_if_slow()
    dim, heads, context, batch, layers = 64, 4, 32, 8, 8
    model = ["--layers", layers, "--dim", dim, "--heads", heads, "--context", context, "--batch", batch]

    def report(ranks, *args):
        return trained(ranks, *model, "--steps", 2, "--report", *args)

    def formula(tp, sequence, blocks):
        own = tp if sequence else 1
        return 4 * batch * context * blocks * ((2 + 2 / own + 12 / tp) * dim + heads * context / tp + 4 / own) / 1e6

    for tp, sequence in [(1, False), (2, False), (4, False), (2, True), (4, True)]:
        args = ["--tp", tp] + ["--sequence-parallel"] * sequence
        # What all blocks share does not change with their number.
        more, less = (megabytes(report(tp, "--layers", n, *args), "activations") for n in (2 * layers, layers))
        assert abs((more - less) / formula(tp, sequence, layers) - 1) < 0.05, (tp, sequence, more, less)
    for ranks, args in [(4, ["--tp", 4]), (4, ["--pp", 4, "--micro", 8]), (8, ["--pp", 2, "--tp", 2, "--micro", 4]),
                        (4, ["--pp", 2, "--tp", 2, "--micro", 4, "--sequence-parallel", "--schedule", "zb-h1"]),
                        (2, ["--pp", 2, "--micro", 4, "--schedule", "interleaved"]),
                        (2, ["--pp", 2, "--micro", 4, "--schedule", "gpipe", "--recompute", "block"]),
                        (1, ["--micro", 3, "--recompute", 3])]:
        found = report(ranks, *args, "--stage", 1)
        done = run(f"{B}/zeroplan", "-n", str(ranks), *map(str, model + args), "--stage", "1", "--json")
        assert done.returncode == 0, done
        plan = json.loads(done.stdout)["asked"][0]
        for kind in ("parameters", "gradients", "moments", "activations", "the embedding's sums"):
            want = sum(m["peak"] for m in plan["memory"] if m["kind"] == kind) / 1e6
            assert abs(megabytes(found, kind) - want) <= 0.05 * want + 0.005, (args, kind, found, want)


@test
def a_report_has_both_bubbles_and_a_timeline_every_action():
    with tempfile.TemporaryDirectory() as folder:
        for schedule, kinds in [("1f1b", "FB"), ("zb-h1", "FIW")]:
            path = f"{folder}/{schedule}.json"
            out = trained(4, "--tp", 2, "--pp", 2, "--micro", 6, "--schedule", schedule, "--steps", 3, "--report",
                          "--timeline", path)
            assert re.search(r"^  measured +\d+\.\d % of stages' time; \d+\.\d+ of the time in which they compute$", out, re.M), out
            # 1F1B: (p - 1) / (m + p - 1) and (p - 1) / m
            if schedule == "1f1b":
                assert re.search(r"^  of the schedule +14\.3 %; 0\.167$", out, re.M), out
            assert "tensor: {0 1} {2 3}\ndata: {0} {1} {2} {3}\npipe: {0 2} {1 3}\n" in out, out
            with open(path) as f:
                events = json.load(f)["traceEvents"]
            for rank in range(4):
                row = sorted((x["ts"], x["ts"] + x["dur"], x["name"]) for x in events if x["tid"] == rank)
                assert sorted(name for *_, name in row) == sorted(f"{k}{j}" for k in kinds for j in range(6)), row
                assert all(a[1] <= b[0] + 0.2 for a, b in zip(row, row[1:])), row
            # One clock: the second stage begins a micro-batch when the first has ended it.
            at = {(x["pid"], x["tid"], x["name"]): x for x in events}
            for j in range(6):
                before, after = at[0, 0, f"F{j}"], at[1, 2, f"F{j}"]
                assert before["ts"] + before["dur"] <= after["ts"] + 0.2, (before, after)


@test
def a_timeline_that_cannot_be_written_is_told_before_training():
    done = start(2, "--pp", 2, "--steps", 100000, "--timeline", "/nonexistent/x.json")
    assert done.returncode == 3 and "--timeline /nonexistent/x.json: cannot be written: No such file or directory" in done.stderr, done


@test
def a_text_is_the_same_on_every_grid():
    with tempfile.TemporaryDirectory() as folder:
        texts = {trained(ranks, "--exact", "--steps", 20, "--micro", 2, "--sample", 40, *args).split("\n\n", 1)[1]
                 for ranks, args in [(1, []), (4, ["--tp", 2, "--pp", 2]), (4, ["--tp", 4, "--sequence-parallel"]),
                                     (2, ["--pp", 2, "--schedule", "interleaved"])]}
        assert len(texts) == 1 and len(texts.pop()) > 40, texts


@test
def checkpoints_are_those_of_one_rank_and_load_on_any_grid():
    """For the same replicas and micro-batches bit for bit, also in what goes on from them; on others they load."""
    skip_if_slow()
    ways = [(2, ["--micro", 2]), (8, ["--micro", 2, "--tp", 2, "--pp", 2]),
            (8, ["--micro", 2, "--tp", 4, "--sequence-parallel", "--stage", 2]),
            (8, ["--micro", 2, "--pp", 4, "--schedule", "zb-h1", "--stage", 3])]
    with tempfile.TemporaryDirectory() as folder:
        for k, (ranks, args) in enumerate(ways[:2]):
            trained(ranks, *args, "--exact", "--steps", 10, "--save", f"{folder}/{k}")
        one, several = (tensors(f"{folder}/{k}/step-000000010") for k in range(2))
        assert one == several and len(one) == 3 * (4 + 12 * LAYERS)
        went_on = {tuple(losses(folder, ranks, *args, "--exact", "--steps", 20, "--resume", f"{folder}/{k}"))
                   for ranks, args in ways for k in range(2)}
        assert len(went_on) == 1 and len(went_on.pop()) == 11, went_on
        for ranks, args in [(1, ["--micro", 4]), (3, []), (8, ["--tp", 4])]:
            assert len(losses(folder, ranks, *args, "--steps", 12, "--resume", f"{folder}/1")) == 3


def ranks_of(launcher):
    """Process of each rank."""
    family, found = [launcher.pid], {}
    for parent in family:
        try:
            with open(f"/proc/{parent}/task/{parent}/children") as f:
                family += map(int, f.read().split())
            with open(f"/proc/{parent}/environ") as f:
                rank = re.search(r"(?:^|\0)KOLO_RANK=(\d+)", f.read())
        except OSError: # it has ended
            continue
        if rank:
            found[int(rank[1])] = parent
    return found


@test
def who_waited_for_a_rank_that_dies_says_for_what():
    for args, text in [(["--pp", 4, "--micro", 8], r"stage \d, action \d+ \(\S+\), waits for the (activation|gradient) of micro-batch \d of stage \d"),
                       (["--tp", 4], "died in|in a group|all_reduce")]:
        command = [RINGRUN, "-n", "4", ZEROTRAIN, *MODEL, "--steps", "1000000", "--print", "1", *map(str, args)]
        launcher = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for line in launcher.stdout: # it trains
            if line.startswith("step 3 "):
                break
        victim = ranks_of(launcher)[2]
        os.kill(victim, signal.SIGKILL)
        out, err = launcher.communicate(timeout=60)
        assert launcher.returncode == 137 and f"rank 2 (pid {victim}" in err and re.search(text, err), (args, err)


@test
def settings_of_a_config_hold_for_pipelines():
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/config.json"
        with open(path, "w") as f:
            json.dump({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4, "train_batch_size": 8,
                       "optimizer": {"type": "AdamW", "params": {"lr": 0.002}}}, f)
        args = ["--config", path, "--exact", "--steps", 10]
        assert losses(folder, 2, *args, "--pp", 2) == losses(folder, 1, *args, "--micro", 4)
        done = start(2, *args, "--pp", 2, "--micro", 2)
        assert done.returncode == 1 and f"--micro 2, but {path} says 4: leave --micro out" in done.stderr, done
        with open(path, "w") as f:
            json.dump({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4, "train_batch_size": 16,
                       "pipeline": {"stages": 2}, "tensor_parallel": {"autotp_size": 2},
                       "optimizer": {"type": "AdamW", "params": {"lr": 0.002}}}, f)
        found = losses(folder, 8, *args)
        assert found == losses(folder, 8, *args, "--tp", 2, "--pp", 2) and len(found) == 11, found
        for ranks, more, status, text in [
                (8, ["--tp", 4], 1, f"--tp 4, but {path} says 2: leave --tp out"), (8, ["--pp", 1], 1, f"--pp 1, but {path} says 2"),
                (6, [], 1, "makes a grid of tensor 2 x pipe 2, and there are 6 ranks"), (4, [], 1, "makes the batch 16"),
                (8, ["--heads", 1], 2, "--tp 2 must divide --heads 1")]:
            done = start(ranks, *args, *more)
            assert done.returncode == status and text in done.stderr, (ranks, more, done)
        with open(path, "w") as f:
            json.dump({"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "Lamb", "params": {"lr": 0.002}}}, f)
        done = start(2, "--config", path, "--tp", 2)
        assert done.returncode == 2 and "Lamb with --tp 2" in done.stderr, done


@test
def what_does_not_fit_is_refused_with_the_numbers():
    for ranks, args, text in [
            (2, ["--tp", 3], "--tp 3 must divide --heads 4 and the 256 values"),
            (2, ["--tp", 4], "a grid of tensor 4 x pipe 1 needs a multiple of 4 ranks, and there are 2"),
            (3, ["--pp", 2], "a grid of tensor 1 x pipe 2 needs a multiple of 2 ranks, and there are 3"),
            (1, ["--sequence-parallel"], "--sequence-parallel: needs --tp 2 or more"),
            (2, ["--tp", 2, "--sequence-parallel", "--context", 9], "--tp 2 must divide --context 9"),
            (2, ["--pp", 2, "--schedule", "interleaved", "--micro", 3], "needs a multiple of 2 micro-batches for 2 stages, and there are 3"),
            (2, ["--pp", 2, "--chunks", 2], "--chunks 2: needs --schedule interleaved"),
            (1, ["--schedule", "interleaved", "--chunks", 9], "--chunks 9: needs --pp 2 or more"),
            (2, ["--pp", 2, "--layers", 1], "--layers 1 on 2 stages of 1 part: want at least a block for each"),
            (2, ["--pp", 2, "--schedule", "late"], "must be gpipe, 1f1b, interleaved or zb-h1"),
            (2, ["--pp", 2, "--schedule", "zb-h1", "--recompute", "block"], "--schedule zb-h1 with --recompute"),
            (6, ["--tp", 6, "--heads", 6, "--dim", 24, "--exact"], "--tp 6 must divide"),
            (3, ["--exact", "--heads", 6, "--dim", 24, "--tp", 3], "--tp 3 must divide --heads 6 and the 256 values"),
            (4, ["--exact", "--heads", 2, "--tp", 4], "--tp 4 must divide --heads 2"),
            (1, ["--timeline", "x.json"], "--timeline x.json: needs --micro, --schedule or --pp")]:
        done = start(ranks, "--steps", 1, *args)
        assert done.returncode == 2 and text in done.stderr, (args, done)


main()
