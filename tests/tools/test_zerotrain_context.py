"""zerotrain with sequences over several ranks (--context-parallel): losses of one rank on any grid and at any stage, memory,
traffic, texts, checkpoints, and what does not go together."""
import os
import re
import tempfile

from tap import B, SLOW, Skip, main, run, test

FOLDER = tempfile.TemporaryDirectory()
SIZES = ["--layers", 3, "--dim", 32, "--heads", 8, "--context", 64, "--print", 1, "--validate", 0]
TEXT = "/usr/share/common-licenses/GPL-3"


def start(ranks, *args):
    if not os.path.exists(f"{B}/zerotrain"):
        raise Skip("this build has no zerotrain: it lacks OpenBLAS: make deps")
    return run(f"{B}/ringrun", "-n", str(ranks), f"{B}/zerotrain", "--data", TEXT, *map(str, [*SIZES, *args]))


def output(ranks, *args):
    done = start(ranks, *args)
    assert done.returncode == 0, done
    return done.stdout


def losses(out):
    return [float(x) for x in re.findall(r"^step \d+ (?:loss|validation) (\S+)", out, re.M)]


def close(a, b):
    return len(a) == len(b) > 3 and all(abs(x - y) < 1e-6 for x, y in zip(a, b, strict=True))


def figure(out, name):
    return float(re.search(rf"^  {name} +(\S+) MB", out, re.M)[1])


# What Adam makes of rounding grows from update to update, so there are few.
STEPS = ["--steps", 3, "--batch", 2, "--lr", "1e-4"]


@test
def losses_are_those_of_one_rank():
    kinds = [[], ["--model", "llama", "--kv-heads", 4, "--untied"], ["--dropout", "0.2"]]
    for kind in kinds[1:2] if SLOW else kinds:
        want = losses(output(1, *STEPS, *kind))
        for ranks, by in [(1, "ring"), (2, "ring"), (2, "ulysses"), (4, "ulysses"), (8, "ring")]:
            got = losses(output(ranks, *STEPS, *kind, "--context-parallel", ranks, "--context-by", by))
            assert close(got, want), (kind, ranks, by, got, want)


@test
def they_are_on_any_grid_and_at_every_stage():
    want = losses(output(2, *STEPS, "--micro", 2))
    for ranks, more in [(4, ["--stage", 1]), (4, ["--stage", 3, "--overlap", "off"]), (8, ["--tp", 2, "--sequence-parallel"]),
                        (8, ["--pp", 2, "--stage", 2, "--recompute", 1]), (4, ["--stage", 2, "--context-by", "ulysses"])][::3 if SLOW else 1]:
        got = losses(output(ranks, *STEPS, "--micro", 2, "--context-parallel", 2, *more))
        assert close(got, want), (more, got, want)


@test
def messages_beside_products_change_no_digit():
    on, off = (losses(output(4, *STEPS, "--context-parallel", 4, "--overlap", x)) for x in ("on", "off"))
    assert on == off


@test
def memory_falls_and_traffic_is_the_formula_s():
    layers, dim, batch, context, updates = 3, 32, 2, 64, 3
    found = {}
    for n in (1, 2, 4, 8):
        out = output(n, *STEPS, "--context-parallel", n, "--report", "--validate", 0)
        found[n] = figure(out, "activations")
        if n > 1:
            e = 2 * batch * context // n * dim * 4
            # The validation at the end is forward only: the last tenth of the text in windows.
            forwards = updates + -(-((os.path.getsize(TEXT) // 10 - 1) // context) // batch)
            want = layers * e * (forwards * (n - 1) + updates * (2 * n - 1)) / 1e6
            assert abs(figure(out, "context group") - want) < 0.006, (n, out, want)
    # What does not fall: gradients of the largest tensors, and rows of one piece of attention.
    fixed = (found[8] * 8 - found[1]) / 7
    for n in (2, 4):
        assert abs(found[n] - fixed - (found[1] - fixed) / n) < 0.02, found
    assert fixed < found[1] / 10, found


@test
def texts_and_checkpoints_do_not_see_it():
    folder = f"{FOLDER.name}/saved"
    same = ["--batch", 2, "--sample", 20, "--temperature", 0]
    want = output(2, *same, "--steps", 2, "--context-parallel", 2, "--save", folder)
    for n in (1, 2, 4):
        out = output(n, *same, "--steps", 2, "--resume", folder, "--context-parallel", n)
        assert "resumed after step 2" in out and out.split("\n\n", 1)[1] == want.split("\n\n", 1)[1], (n, out, want)


@test
def a_config_counts_a_group_as_one_rank():
    path = f"{FOLDER.name}/config.json"
    with open(path, "w") as f:
        f.write('{"train_batch_size": 4, "train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}')
    done = start(4, "--config", path, "--steps", 2, "--context-parallel", 2)
    if "it lacks the library jansson" in done.stderr:
        raise Skip("this build lacks jansson: make deps")
    assert done.returncode == 0, done
    refused = start(4, "--config", path, "--steps", 2)
    assert refused.returncode == 1 and "train_batch_size" in refused.stderr, refused


@test
def what_does_not_go_together_is_refused():
    for ranks, args, message in [
            (2, ["--context-parallel", 3], "--context-parallel 3 must divide the 2 ranks that have the same weights"),
            (2, ["--context-parallel", 2, "--context", 66], "--context 66 must be a multiple of 4"),
            (2, ["--context-parallel", 2, "--exact"], "--exact with --context-parallel"),
            (2, ["--context-parallel", 2, "--sample", 3, "--cache", "off"], "--cache off with --context-parallel"),
            (2, ["--context-by", "ring"], "--context-by: needs --context-parallel R"),
            (2, ["--context-parallel", 2, "--context-by", "wheel"], "must be ring or ulysses"),
            (4, ["--context-parallel", 4, "--context-by", "ulysses", "--model", "llama", "--kv-heads", 2],
             "--context-parallel 4 must divide the 2 heads of keys that a rank has: use ring")]:
        done = start(ranks, *args)
        assert done.returncode == 2 and message in done.stderr and "step 1" not in done.stdout, (args, done)


main()
