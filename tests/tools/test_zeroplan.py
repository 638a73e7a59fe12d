"""zeroplan from the outside: bytes and times against the formulas of zero/README.md and tools/zeroplan/README.md, what fits, what it
measures, its options and exit codes. Writes TAP."""
import contextlib
import json
import os
import shutil
import tempfile
import xml.etree.ElementTree as ElementTree

from tap import B, SLOW, Skip, main, run, test

ZEROPLAN, ZEROCONFIG = f"{B}/zeroplan", f"{B}/zeroconfig"
P = 12 << 20 # parameters of 12 layers of 1024 x 1024
STACK = ("--parameters", str(P))
RATES = {"ring": 2e9, "copy": 3e9, "memory": 5e9, "device": 50e9, "disk": 1e9, "compute": 0.25}


def plan(*args, code=0, remark=""):
    """What zeroplan --json says."""
    done = run(ZEROPLAN, "--json", *args)
    assert done.returncode == code and remark in done.stderr and bool(remark) == bool(done.stderr), (args, done)
    return json.loads(done.stdout)


def stages(*args, code=0):
    return {one["stage"]: one for one in plan(*args, code=code)["asked"]}


def rates(**others):
    return ("--bandwidth", ",".join(f"{name}={x!r}" for name, x in {**RATES, **others}.items() if x))


def near(x, y, share=1e-9):
    return abs(x - y) <= share * max(abs(x), abs(y))


def peak(one, kind, place=None):
    return sum(m["peak"] for m in one["memory"] if m["kind"] == kind and place in (None, m["place"]))


@contextlib.contextmanager
def config(text):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        f.write(text)
        f.flush()
        yield f.name


def has_files():
    """Whether this build has liburing."""
    return "liburing" in run("ldd", ZEROPLAN).stdout


@test
def bytes_are_those_of_the_formulas():
    for precision, size in (("fp32", 4), ("bf16", 2)):
        asked = stages(*STACK, "-n", "4", "--precision", precision)
        assert sorted(asked) == [0, 1, 2, 3]
        for stage, one in asked.items():
            share = P // 4 if stage else P
            assert peak(one, "parameters") == size * (P // 4 if stage == 3 else P), one
            assert peak(one, "gradients") == size * share, one
            assert one["nvme_bytes"] == one["device_bytes"] == 0, one
            assert one["host_bytes"] == sum(m["peak"] for m in one["memory"]), one
            # Beside parameters and gradients state, buckets, and at stage 3 what is gathered.
            assert one["host_bytes"] >= peak(one, "parameters") + peak(one, "gradients") + 8 * share, one
            t, sent = one["traffic"], size * P * 3 // 4
            assert t["gradient_bytes"] == (1 if stage else 2) * sent, one
            assert t["parameter_bytes"] == {0: 0, 1: sent, 2: sent, 3: 2 * sent}[stage], one
            assert t["down_bytes"] == t["up_bytes"] == t["read_bytes"] == t["written_bytes"] == 0, one


@test
def any_number_of_micro_steps_is_planned_at_once():
    for stage in 2, 3:
        one, many = (plan(*STACK, "-n", "2", "--stage", str(stage), "--accumulation", str(n))["asked"][0]["traffic"]
                     for n in (2, 2**31 - 2))
        gathered = one["parameter_bytes"] // 2 # at stage 2 once in an update
        assert many["gradient_bytes"] == one["gradient_bytes"] * (2**30 - 1), (one, many)
        assert many["parameter_bytes"] == (gathered * (2**31 - 2) if stage == 3 else one["parameter_bytes"]), (one, many)


@test
def what_is_offloaded_is_elsewhere_and_crosses():
    common = (*STACK, "-n", "2", "--precision", "bf16", "--device-memory", "1G", "--host-memory", "1G", "--stage", "2")
    at_home, = plan(*common)["asked"]
    half, = plan(*common, "--offload-optimizer", "cpu", "--offload-ratio", "0.5")["asked"]
    files, = plan(*common, "--offload-optimizer", "nvme")["asked"]
    state = 12 * P // 2 # masters and two moments, of the own half
    assert at_home["device_bytes"] >= state and at_home["nvme_bytes"] == 0, at_home
    assert at_home["traffic"]["down_bytes"] == at_home["traffic"]["up_bytes"] == 0, at_home
    assert near(at_home["device_bytes"] - half["device_bytes"], state / 2, 0.1), (at_home, half)
    assert half["host_bytes"] >= state / 2, half
    assert half["pinned_bytes"] == sum(m["pinned"] for m in half["memory"]) > 0 == at_home["pinned_bytes"], (at_home, half)
    assert sum(m["pinned"] for m in half["memory"] if m["place"] != "host") == 0, half
    assert near(half["traffic"]["up_bytes"], 2 * P / 2 / 2, 0.01), half
    assert near(half["traffic"]["down_bytes"], 2 * P / 2 / 2, 0.01), half
    assert state <= files["nvme_bytes"] < 1.1 * state and files["host_bytes"] < state, files
    assert state <= files["traffic"]["read_bytes"] < 1.1 * state, files
    assert state <= files["traffic"]["written_bytes"] < 1.1 * state, files


@test
def the_gpt_is_that_of_zerotrain():
    done = plan("--layers", "3", "--dim", "96", "--heads", "6", "--context", "64", "--vocab", "1000")
    assert done["parameters"] == 1000 * 96 + 64 * 96 + 3 * (12 * 96 * 96 + 13 * 96) + 2 * 96, done
    assert done["tensors"] == 2 + 3 * 12 + 2 and done["model"] == "GPT of 3 blocks, 96 wide, context 64, 1000 tokens", done
    assert plan()["model"] == "GPT of 5 blocks, 128 wide, context 128, 256 tokens"


@test
def a_stack_has_as_many_parameters_as_one_says():
    for text, n, tensors, model in (
            ("12M", 12000000, 14, "13 layers of 960 x 960 and a vector of what is left"),
            (str(P), P, 12, "12 layers of 1024 x 1024"),
            ("1.5K", 1500, 13, "12 layers of 11 x 11 and a vector of what is left"),
            ("5", 5, 5, "5 layers of 1 x 1"),
            ("7B", 7000000000, 105, "104 layers of 8192 x 8192 and a vector of what is left")):
        done = plan("--parameters", text, "--host-memory", "1000G")
        assert (done["parameters"], done["tensors"], done["model"]) == (n, tensors, model), done


@test
def time_is_the_formula():
    args = (*STACK, "-n", "4", "--precision", "bf16", "--device-memory", "1G", "--host-memory", "1G", "--stage", "1",
            "--offload-optimizer", "cpu", "--offload-ratio", "0.5")
    one, = plan(*args, *rates())["asked"]
    time, t, own = one["time"], one["traffic"], P / 4
    each = 2 * 2 + 2 * 12 + 2 # a bf16 gradient twice, master and two moments both ways, the parameter
    assert time["compute"] == 0.25 and near(time["fill"], 2 * 2 * P / 50e9) and time["unpack"] == 0, time
    assert near(time["reduce"], t["gradient_bytes"] / 2e9) and near(time["gather"], t["parameter_bytes"] / 2e9), time
    assert near(time["down"], t["down_bytes"] / 3e9) and near(time["up"], t["up_bytes"] / 3e9), time
    assert near(time["update"], own / 2 * each / 5e9) and near(time["home"], own / 2 * each / 50e9), time
    passes = max(time["compute"] / 3, time["gather"]) + max(time["compute"] * 2 / 3 + time["fill"], time["reduce"], time["down"])
    assert near(time["total"], passes + max(time["update"], time["home"], time["up"])), time
    # One core for everything: nothing goes on beside anything else.
    shared, = plan(*args, *rates(cores=1.0, device=0))["asked"]
    time = shared["time"]
    assert time["home"] == 0 and near(time["update"], own * each / 5e9), time
    assert near(time["total"], sum(x for name, x in time.items() if name != "total")), time
    assert plan(*args, *rates(cores=0.5, device=0))["asked"] == [shared] # bandwidths are what is left of a core already
    # Of two the pass needs both.
    ring = t["gradient_bytes"] / (time["compute"] * 2 / 3 + time["fill"]) # as long as the model's work
    two, = plan(*args, *rates(cores=2.0, device=0, ring=ring))["asked"]
    time = two["time"]
    forward = [time["compute"] / 3, time["gather"]]
    backward = [time["compute"] * 2 / 3 + time["fill"], time["reduce"], time["down"]]
    assert sum(forward) / 2 < max(forward) and sum(backward) / 2 > max(backward), time
    assert near(time["total"], max(forward) + sum(backward) / 2 + time["update"] + time["unpack"] + time["up"]), time


@test
def tensors_that_no_bucket_holds_are_copied_twice():
    many, = plan("--parameters", "50331648", "-n", "2", "--stage", "2", *rates(device=0))["asked"] # 2048 x 2048, buckets of 2 Mi
    each = 4 * (50331648 + 50331648 / 2) / 3e9
    assert near(many["time"]["fill"], each) and near(many["time"]["unpack"], 4 * 50331648 / 3e9), many
    # Of what is away the bucket is where it comes down from.
    away = ("--device-memory", "2G", "--host-memory", "1G", "--offload-optimizer", "cpu", "--offload-ratio", "0.25")
    some, = plan("--parameters", "50331648", "-n", "2", "--stage", "2", *away, *rates(device=0))["asked"]
    assert near(some["time"]["fill"], 4 * (50331648 + 50331648 * 3 / 8) / 3e9), some
    # Without a device gradients are put into host memory even if state is in files.
    files, = plan("--parameters", "50331648", "-n", "2", "--stage", "2", "--offload-optimizer", "nvme", *rates(device=0))["asked"]
    assert near(files["time"]["fill"], each), files
    if not os.path.exists(ZEROCONFIG):
        raise Skip("this build reads no config: it lacks jansson: make deps")
    # Without a device what is to be offloaded to the host stays as it is.
    with config('{"train_batch_size": 2, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}') as path:
        stays, = plan("--parameters", "50331648", "-n", "2", "--config", path, *rates(device=0), remark="already so")["asked"]
    assert near(stays["time"]["fill"], each) and near(stays["time"]["update"], 50331648 / 2 * 32 / 5e9), stays
    # All small, of two ranks: gradients alone where they don't lie contiguously, shares of 12500 after each other in sub-groups.
    for keys, reduced, gathered in (('"stage": 2', 1, 1), ('"stage": 2, "contiguous_gradients": false', 0, 1)):
        with config(f'{{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {{{keys}}}}}') as path:
            few, = plan("--parameters", "300000", "-n", "2", "--config", path, *rates(device=0))["asked"]
        assert near(few["time"]["fill"], 4 * 300000 * (1 + reduced / 2) / 3e9), few
        assert near(few["time"]["unpack"], 4 * 300000 * gathered / 3e9), few
    for sub_group, gathered in ((1 << 19, 0), ((1 << 19) - 1, 1)): # of 1024 x 1024, of which a rank has 512 Ki
        with config(f'{{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {{"stage": 2, "sub_group_size": {sub_group}}}}}') as path:
            few, = plan(*STACK, "-n", "2", "--config", path, *rates(device=0))["asked"]
        assert near(few["time"]["unpack"], 4 * P * gathered / 3e9), few


@test
def files_and_shards_have_their_place_in_the_formula():
    args = (*STACK, "-n", "2", "--device-memory", "1G", "--host-memory", "1G", "--stage", "3")
    one, = plan(*args, "--offload-optimizer", "nvme", *rates(compute=0))["asked"]
    time, t = one["time"], one["traffic"]
    assert near(time["files"], (t["read_bytes"] + t["written_bytes"]) / 1e9) and time["compute"] == 0, time
    half = time["gather"] / 2
    assert near(time["total"], half + max(time["fill"], time["reduce"] + half, time["down"])
                + max(time["files"], time["update"], time["up"])), time
    # A gradient twice, master and moments both ways, and the parameter on its way up.
    assert near(time["update"], P / 2 * (2 * 4 + 2 * 12 + 4) / 5e9), time
    # Out of a shard at home each use takes the own part.
    assert near(time["gather"], t["parameter_bytes"] / 2e9 + 2 * 4 * P / 2 / (50e9 / 2)), time
    # With shards away what comes up does so beside the passes.
    one, = plan(*args, "--offload-optimizer", "cpu", "--offload-param", "cpu", *rates(compute=0))["asked"]
    time = one["time"]
    half, rise = time["gather"] / 2, time["up"] / 2
    assert rise > 0 and near(time["total"], max(half, rise) + max(time["fill"], time["reduce"] + half, time["down"], rise)
                             + max(time["update"], time["home"])), time
    assert near(time["gather"], t["parameter_bytes"] / 2e9), time # and from where they lie
    # Lamb's state is read and written twice, beside the update also where shards are in files.
    both = ("--optimizer", "lamb", "--offload-optimizer", "nvme", "--offload-param", "nvme")
    one, = plan(*args, *both, *rates(compute=1e4, disk=1e6))["asked"]
    time, state = one["time"], 2 * 2 * 12 * P / 2 / 1e6
    assert near(time["total"] - time["compute"] - time["fill"], state, 0.1), (state, time)


@test
def what_is_not_known_is_not_told():
    one = stages(*STACK, "-n", "2", "--bandwidth", "ring=1e9")[1]
    assert one["time"]["reduce"] > 0 and one["time"]["update"] is None and one["seconds"] is None, one
    done = run(ZEROPLAN, *STACK, "-n", "2")
    assert done.returncode == 0 and "Time of an update" not in done.stdout, done
    assert "settings fit\n  stage  optimizer" in done.stdout, done


@test
def settings_that_fit_come_fastest_first():
    args = (*STACK, "-n", "2", "--precision", "bf16", "--device-memory", "111M", "--host-memory", "1G", *rates())
    fit = plan(*args)["settings"]
    assert fit and all(one["fits"] and one["reason"] == "" and one["device_bytes"] <= 111 << 20 for one in fit), fit
    times = [one["seconds"] for one in fit]
    assert times == sorted(times), times
    all_of_them = plan(*args, "--all")["settings"]
    # Stages 0 to 2 have one place for parameters, 3 has three; optimizers at home, or two places with four ratios.
    assert len(all_of_them) == 1 + 9 + 9 + 27 and all_of_them[:len(fit)] == fit, all_of_them
    others = all_of_them[len(fit):]
    assert others and not any(one["fits"] for one in others), others
    assert all("device" in one["reason"] or "host" in one["reason"] for one in others), others
    # Without a device the host's memory is home already.
    assert len(plan(*STACK, "-n", "2", "--all", "--host-memory", "1G")["settings"]) == 1 + 5 + 5 + 10


@test
def what_does_not_fit_is_status_1_with_numbers():
    args = (*STACK, "-n", "2", "--precision", "bf16", "--device-memory", "100M", "--host-memory", "1G")
    done = run(ZEROPLAN, *args, "--stage", "1")
    assert done.returncode == 1 and not done.stderr, done
    one, = plan(*args, "--stage", "1", code=1)["asked"]
    assert not one["fits"] and f"needs {one['device_bytes'] / 2**20:.1f} MiB on the device" in one["reason"], one
    assert one["reason"] in done.stdout and "settings fit" in done.stdout, done
    assert any(line.split()[:4] == ["3", "cpu", "1", "none"] for line in done.stdout.splitlines()), done
    # Of all stages one is enough; where none fits, more is needed.
    assert run(ZEROPLAN, *args, "--offload-optimizer", "cpu").returncode == 0
    done = run(ZEROPLAN, *STACK, "--device-memory", "1M", "--host-memory", "1M")
    assert done.returncode == 1 and "0 of 46 settings fit\n  more ranks" in done.stdout, done


@test
def a_config_says_what_options_do_not():
    if not os.path.exists(ZEROCONFIG):
        raise Skip("this build reads no config: it lacks jansson: make deps")
    text = ('{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 3, "bf16": {"enabled": true}, '
            '"zero_optimization": {"stage": 2}, "optimizer": {"type": "Lion", "params": {}}}')
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        f.write(text)
        f.flush()
        done = plan(*STACK, "-n", "2", "--config", f.name)
        assert [one["stage"] for one in done["asked"]] == [2], done
        assert (done["type"], done["optimizer"], done["accumulation"]) == ("bf16", "Lion", 3), done
        done = plan(*STACK, "-n", "2", "--config", f.name, "--stage", "3", "--optimizer", "adam", "--accumulation", "1")
        assert [one["stage"] for one in done["asked"]] == [3], done
        assert (done["optimizer"], done["accumulation"]) == ("Adam", 1), done
        assert len(plan(*STACK, "--config", f.name, "--stage", "all")["asked"]) == 4
        done = run(ZEROPLAN, "--config", f.name, "--precision", "fp16")
        assert done.returncode == 2 and "--precision is f16, but" in done.stderr and "bf16" in done.stderr, done
    text = ('{"train_batch_size": 96, "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", '
            '"zero_optimization": {"stage": 3, "reduce_bucket_size": "auto", "offload_param": {"device": "cpu"}}}')
    with config(text) as path:
        already, away = "offload_param.device (line 1): already so", ("--device-memory", "1G")
        args = (*STACK, "--dim", "1024", "-n", "2", "--config", path)
        assert plan(*args, remark=already)["accumulation"] == 48
        assert plan(*args, "--batch", "16", remark=already)["accumulation"] == 3
        assert plan(*args, "--accumulation", "3", "--batch", "16", remark=already)["accumulation"] == 3
        # Without a device "cpu" is at home; there shards come up for use.
        done = plan(*args, *away, *rates())["asked"][0]
        home = plan(*args, *rates(device=0), remark=already)["asked"][0]
        assert done["time"]["up"] > 0 == home["time"]["up"] and home["time"]["gather"] > done["time"]["gather"], (home, done)
        done = run(ZEROPLAN, *STACK, "-n", "2", "--config", path)
        assert done.returncode == 2 and "hidden of the model" in done.stderr and "as --dim" in done.stderr, done
    done = run(ZEROPLAN, "--config", "/dev/stdin", input='{"train_batch_size": 2, "zero_optimization": {"stag": 2}}')
    assert done.returncode == 2 and "did you mean zero_optimization.stage?" in done.stderr, done
    assert run(ZEROPLAN, "--config", "/nowhere/at/all").returncode == 3


@contextlib.contextmanager
def listed(text):
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as f:
        f.write(text)
        f.flush()
        yield f.name


@test
def a_list_of_tensors_is_the_model():
    # The stack of --parameters, by name and shape.
    with listed("".join(f"{k} 1024x1024\n" for k in range(12))) as path:
        asked = plan("--tensors", path, "-n", "3", *rates(device=0))["asked"]
    assert asked == plan(*STACK, "-n", "3", *rates(device=0))["asked"]
    with listed("# of a GPT\nwte 50257x768\n\nh0.qkv\t768x3x768 # rows first\nh0.b 2304 frozen\nscale 1x1x1x1x1x1x1x2") as path:
        done = plan("--tensors", path, "-n", "4")
    trained = 50257 * 768 + 768 * 2304 + 2
    assert (done["parameters"], done["tensors"]) == (trained + 2304, 4), done
    at_1 = next(one for one in done["asked"] if one["stage"] == 1)
    own = -(-50257 * 768 // 4) + 768 * 576 + 1 # of the frozen one there are no moments
    assert peak(at_1, "moments") == 8 * own and peak(at_1, "parameters") == 4 * (trained + 2304), at_1


@test
def mistakes_in_a_list_are_told_with_their_line():
    for text, says in (("a 3\nb", ":2: 'b' has no shape"), ("a 3xx4", ":1: '3xx4' is not a shape"), ("a 0", ":1: '0' has no element"),
                       ("a -3", ":1: '-3' is not a shape"), ("a 1x1x1x1x1x1x1x1x1", ":1: '1x1x1x1x1x1x1x1x1' is not a shape"),
                       ("a 3 thawed", ":1: 'thawed' must be frozen"), ("a 3 frozen 4", ":1: '4' is too much"),
                       ("a 99999999999x9999999999", "more than 2^46"), ("# none\n", ": has no tensor"),
                       ("a 3\na 3", "two tensors are called 'a'")):
        with listed(text) as path:
            done = run(ZEROPLAN, "--tensors", path)
        assert done.returncode == 2 and says in done.stderr and not done.stdout, (text, done)
    assert run(ZEROPLAN, "--tensors", "/nowhere/at/all").returncode == 3
    for more in (("--parameters", "3M"), ("--layers", "3")):
        assert run(ZEROPLAN, "--tensors", "/dev/null", *more).returncode == 2


@test
def a_stage_3_that_gathers_what_it_saves_is_told():
    for prefetch, warned in (("2e7", True), ("1e6", False)):
        text = f'{{"train_batch_size": 4, "zero_optimization": {{"stage": 3, "stage3_prefetch_bucket_size": {prefetch}}}}}'
        with config(text) as path:
            asked = stages(*STACK, "-n", "4", "--config", path, "--stage", "all")
            done = run(ZEROPLAN, *STACK, "-n", "4", "--config", path, "--stage", "all")
        assert [bool(asked[k]["warning"]) for k in range(4)] == [False, False, False, warned], asked
        assert done.stdout.count("  note: stage 3 shards 36.0 MiB") == warned, done
        assert not warned or "a smaller prefetch saves memory" in asked[3]["warning"], asked[3]


@test
def what_is_measured_can_be_given():
    if SLOW:
        raise Skip("measuring takes long with sanitizers")
    with tempfile.TemporaryDirectory(dir=B) as folder:
        first = plan(*STACK, "-n", "2", "--measure", "--nvme-path", folder, "--bandwidth", "compute=0.5")
        assert os.listdir(folder) == []
    rate = first["bandwidth"]
    assert all(rate[name] > 0 for name in ("ring", "copy", "memory", "cores")), rate
    assert rate["disk"] > 0 if has_files() else rate["disk"] is None, rate
    assert rate["device"] is None and rate["compute"] == 0.5, rate
    again = plan(*STACK, "-n", "2", "--bandwidth", ",".join(f"{name}={x!r}" for name, x in rate.items() if x))
    assert again["asked"] == first["asked"], (first, again)
    # What is given is not measured, and one rank has nobody to send to.
    given = plan(*STACK, "--measure", "--bandwidth", "copy=7,memory=8,disk=9,cores=3")["bandwidth"]
    assert [given[name] for name in ("ring", "copy", "memory", "disk", "cores")] == [None, 7, 8, 9, 3], given


@test
def a_picture_has_kinds_places_and_stages():
    if not shutil.which("gnuplot"):
        raise Skip("gnuplot is missing: make deps")
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/x.svg"
        done = run(ZEROPLAN, *STACK, "-n", "2", "--precision", "bf16", "--device-memory", "150M", "--host-memory", "1G",
                   "--offload-optimizer", "nvme", "--plot", path)
        assert done.returncode == 0 and "Fits" in done.stdout, done
        texts = [t.text for t in ElementTree.parse(path).iter() if t.tag.endswith(("text", "tspan")) and t.text]
    for text in ("parameters", "gradients", "device memory", "device", "nvme", "stage 0: does not fit", "stage 1", "stage 3",
                 "MiB of a rank, at most", "12 layers of 1024 x 1024, bf16, AdamW, 2 ranks"):
        assert text in texts, (text, texts)
    done = run(ZEROPLAN, "--plot", "x.jpeg")
    assert done.returncode == 2 and "ends in .svg or .png" in done.stderr and not done.stdout, done
    done = run(ZEROPLAN, "--plot", "/nowhere/at/all.svg")
    assert done.returncode == 3 and "/nowhere/at/all.svg: opening it" in done.stderr, done


@test
def a_pipeline_waits_and_a_group_sends():
    """Bubbles by the formulas of kolo_parallel.h; seconds of the model with them."""
    for schedule, more, share, kept in [("gpipe", [], 3 / 11, 8), ("1f1b", [], 3 / 11, 4), ("zb-h1", [], 1 / 9, 4),
                                        ("interleaved", ["--chunks", "2"], 1.5 / 9.5, None)]:
        args = ["-n", "4", "--pp", "4", "--micro", "8", "--layers", "8", "--schedule", schedule, *more]
        done = run(ZEROPLAN, "--json", "--stage", "1", *args, "--bandwidth", "ring=1G,compute=2,memory=1G,copy=1G")
        assert done.returncode == 0, done
        found = json.loads(done.stdout)
        assert near(found["bubble_share"], share) and kept in (None, found["kept"]), (schedule, found)
        time = found["asked"][0]["time"]
        assert near(time["bubble"], 2 * share / (1 - share)) and time["pipe"] > 0 and time["tensor"] == 0, time
    one = json.loads(run(ZEROPLAN, "--json", "--stage", "1", "--activations", "--bandwidth", "ring=1G,compute=2").stdout)["asked"][0]
    two = json.loads(run(ZEROPLAN, "--json", "--stage", "1", "-n", "2", "--tp", "2", "--bandwidth", "ring=1G,compute=2").stdout)["asked"][0]
    assert near(two["time"]["tensor"], two["traffic"]["tensor_bytes"] / 1e9) and one["traffic"]["tensor_bytes"] == 0, two
    # A device must have room for activations, too.
    args = ["--stage", "1", "--layers", "12", "--dim", "768", "--heads", "12", "--context", "1024", "--batch", "8"]
    assert run(ZEROPLAN, *args, "--device-memory", "2G").returncode == 0
    done = run(ZEROPLAN, *args, "--device-memory", "2G", "--activations")
    assert done.returncode == 1 and "do not fit beside the engine: the device lacks" in done.stdout, done
    assert run(ZEROPLAN, *args, "--device-memory", "4G", "--recompute", "block").returncode == 0
    done = run(ZEROPLAN, *args, "--host-memory", "2G", "--activations")
    assert done.returncode == 1 and "the host lacks" in done.stdout, done
    done = run(ZEROPLAN, "-n", "2", "--layers", "4", "--dim", "1024", "--heads", "16", "--context", "16777216", "--batch", "1073741824",
               "--activations", "--json", "--stage", "0")
    assert done.returncode == 1 and json.loads(done.stdout)["asked"][0]["host_bytes"] >= 1 << 62, done
    # What micro-steps send adds up, through a pipeline or not.
    sums = [json.loads(run(ZEROPLAN, "--json", "--stage", "1", "-n", "2", "--tp", "2", *more).stdout)["asked"][0]["traffic"]["tensor_bytes"]
            for more in ([], ["--accumulation", "3"], ["--micro", "3"], ["--schedule", "gpipe", "--accumulation", "3"])]
    assert sums[1:] == [3 * sums[0]] * 3, sums
    with config('{"train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 4, "pipeline": {"stages": 2}}') as path:
        args = ["-n", "2", "--pp", "2", "--layers", "8", "--dim", "32", "--heads", "4", "--context", "32", "--json", "--stage", "1"]
        found, want = (json.loads(run(ZEROPLAN, *args, *more).stdout) for more in (["--config", path], ["--micro", "4", "--batch", "8"]))
        assert found["micro_batches"] == 4 and found["accumulation"] == 1, found
        assert found["asked"][0]["traffic"]["pipe_bytes"] == want["asked"][0]["traffic"]["pipe_bytes"] > 0, (found, want)
        assert run(ZEROPLAN, *args, "--config", path, "--micro", "3").returncode == 2
        assert run(ZEROPLAN, "-n", "2", "--config", path).returncode == 2 # it says --pp 2


@test
def mistakes_are_refused():
    for args, words in (
            (["-n", "0"], "-n 0"), (["--stage", "4"], "--stage"), (["--precision", "f64"], "must be fp32, fp16 or bf16"),
            (["--optimizer", "adamax"], "must be one of AdamW, Adam, SGD, Lion, Adagrad, Lamb"), (["--offload-param", "disk"], "must be none, cpu or nvme"),
            (["--offload-ratio", "0.5"], "needs --offload-optimizer"), (["--offload-ratio", "-1"], "from 0 to 1"),
            (["--offload-ratio", "1.5"], "from 0 to 1"), (["--offload-ratio", "nan"], "must be a number"),
            (["--offload-optimizer", "cpu"], "needs --device-memory"), (["--offload-param", "cpu"], "needs --device-memory"),
            ([*STACK, "--layers", "2"], "--layers 2: cannot be used with --parameters"), ([*STACK, "--vocab", "2"], "--vocab 2: cannot"),
            (["--parameters", "0.2"], "from 1 to 10T"),
            (["--parameters", "7X"], "from 1 to 10T"), (["--device-memory", "lots"], "a number of bytes"),
            (["--bandwidth", "ring"], "NAME=NUMBER"), (["--bandwidth", "rung=1"], "NAME=NUMBER"),
            (["--bandwidth", "ring=0"], "NAME=NUMBER"), (["--bandwidth", "device=1e12"], "needs --device-memory"),
            (["--dim", "10", "--heads", "4"], "a multiple of --heads"),
            (["--accumulation", "0"], "--accumulation 0"), (["x"], "not an option"), (["--wibble"], "zeroplan --help"),
            (["-n", "65", "--measure"], "65 ranks are more"),
            (["-n", "3", "--tp", "2"], "needs a multiple of 2 ranks, and there are 3"), ([*STACK, "--tp", "1", "--activations"], "need a GPT"),
            (["-n", "3", "--tp", "3"], "--tp 3 must divide --heads 4"), (["--sequence-parallel"], "needs a --tp of 2 or more"),
            (["-n", "2", "--pp", "2", "--chunks", "2"], "needs --schedule interleaved"), (["--schedule", "late"], "must be gpipe, 1f1b"),
            ([*STACK, "--sequence-parallel"], "need a GPT"), ([*STACK, "--schedule", "gpipe"], "need a GPT"),
            (["-n", "8", "--pp", "8"], "--layers 5 in 8 parts of a pipeline: want at least a block for each"),
            (["-n", "2", "--pp", "2", "--layers", "8", "--schedule", "interleaved", "--micro", "3"], "needs a multiple of 2 micro-batches"),
            (["--stage", "1", "--offload-param", "cpu", "--device-memory", "1G"], "offload_param")):
        done = run(ZEROPLAN, *args)
        assert done.returncode == 2 and words in done.stderr and not done.stdout, (args, done)


@test
def failures_have_a_status_of_their_own():
    if has_files():
        done = run(ZEROPLAN, "-n", "2", "--measure", "--nvme-path", "/nowhere/at/all")
        assert done.returncode == 3 and "/nowhere/at/all" in done.stderr and not done.stdout, done
        assert "No such file or directory" in done.stderr, done
    with open("/dev/full", "w") as full:
        done = run("sh", "-c", f"{ZEROPLAN} >/dev/full", stdin=full)
        assert done.returncode == 3 and "is the disk full?" in done.stderr, done
    done = run(ZEROPLAN, "--help")
    assert done.returncode == 0 and done.stdout.startswith("usage: zeroplan [OPTIONS]\n"), done
    assert run(ZEROPLAN, "--version").stdout.startswith("zeroplan (Kolo) ")


main()
