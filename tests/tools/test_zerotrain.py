"""zerotrain from the outside: the same losses in every way of training, runs that are killed and resumed, what it prints, mistakes."""
import json
import os
import re
import signal
import struct
import subprocess
import tempfile
import time

from tap import B, SLOW, Skip, main, run, test

ZEROTRAIN, RINGRUN = f"{B}/zerotrain", f"{B}/ringrun"
TINY = ["--layers", "3", "--dim", "16", "--heads", "2", "--context", "24", "--batch", "2", "--dropout", "0.1",
        "--print", "1", "--validate", "3"]


def text_file(folder, n=4000):
    """Letters that follow each other by a rule, so that there is something to learn."""
    path = f"{folder}/text"
    with open(path, "w") as f:
        x = 1
        for _ in range(n):
            x = x * 1103515245 + 12345 & 0x7fffffff
            f.write("abcdefgh\n"[x // 65536 % 3 * (f.tell() % 3)])
    return path


def arguments(data, *args, n=2):
    return [RINGRUN, "-n", str(n), ZEROTRAIN, "--data", data, *TINY, *map(str, args)]


def need_zerotrain():
    if not os.path.exists(ZEROTRAIN):
        raise Skip("this build has no zerotrain: it lacks OpenBLAS: make deps")


def train(data, *args, n=2):
    need_zerotrain()
    return run(*arguments(data, *args, n=n))


def trained(*args, **kwargs):
    done = train(*args, **kwargs)
    assert done.returncode == 0, done
    return done.stdout


def losses(out):
    """What is the same from run to run, by step: losses, validations."""
    return [line.split(" tokens/s")[0] for line in out.splitlines() if line.startswith("step ")]


@test
def every_way_of_training_has_the_same_losses():
    with tempfile.TemporaryDirectory() as folder:
        data = text_file(folder)
        for precision in ["fp32", "fp16", "bf16"]:
            first = None
            ways = [[], ["--stage", 1], ["--stage", 2, "--overlap", "off"], ["--stage", 3],
                    ["--stage", 3, "--overlap", "off", "--recompute", 2], ["--recompute", "block"]]
            for way in ways if precision == "fp32" or not SLOW else ways[:4:3]:
                found = losses(trained(data, "--steps", 6, "--precision", precision, *way))
                assert len(found) == 8 and found[0].startswith("step 1 loss 5.5"), found
                first = first or found
                assert found == first, (precision, way, found, first)


@test
def so_it_has_in_the_order_of_the_tree():
    need_zerotrain()
    with tempfile.TemporaryDirectory() as folder:
        command = arguments(text_file(folder), "--steps", 6, n=3)
        found = {}
        for order in ("ring", "tree"):
            for stage in range(4):
                with open(f"{folder}/config.json", "w") as f:
                    json.dump({"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": True}, "reduction_order": order,
                               "zero_optimization": {"stage": stage}}, f)
                done = run(*command, "--config", f"{folder}/config.json")
                assert done.returncode == 0, done
                found.setdefault(order, []).append(losses(done.stdout))
        for order, of_stages in found.items():
            assert of_stages == [of_stages[0]] * 4, (order, of_stages)
        assert found["ring"] != found["tree"], found


def weights(path):
    """What is in a file of safetensors, by name, as floats."""
    with open(path, "rb") as f:
        whole = f.read()
    (length,) = struct.unpack("<Q", whole[:8])
    header, data = json.loads(whole[8:8 + length]), whole[8 + length:]
    header.pop("__metadata__")
    return {name: struct.unpack(f"<{(e['data_offsets'][1] - e['data_offsets'][0]) // 4}f", data[slice(*e["data_offsets"])])
            for name, e in header.items()}


@test
def gains_and_biases_do_not_decay():
    """The first update of Adam moves each by the learning rate, one way or the other, if nothing else pulls at it."""
    with tempfile.TemporaryDirectory() as folder:
        trained(text_file(folder), "--steps", 1, "--lr", "0.125", "--save", f"{folder}/checkpoints")
        found = weights(f"{folder}/checkpoints/step-000000001/weights.safetensors")
        gains = [x for name, values in found.items() if name.endswith("gain") for x in values]
        assert len(gains) == 7 * 16
        assert sorted(abs(abs(x - 1) - 0.125) for x in gains)[len(gains) // 2] < 1e-3, gains # the smallest gradients move less


@test
def it_learns_and_writes():
    with tempfile.TemporaryDirectory() as folder:
        out = trained(text_file(folder), "--steps", 120, "--lr", "0.01", "--sample", 60, "--print", 60, "--stage", 3)
        first, *_, last = [float(line.split()[3]) for line in out.splitlines() if " loss " in line]
        assert last < 1.5 and last < first, out
        text = out.split("\n\n", 1)[1]
        assert len(text) >= 60 and set(text) <= set("abcdefgh\n?"), out


def gradients_of(*program, **kwargs):
    done = run(*program, **kwargs)
    if "No module named 'torch" in done.stderr: # or torch.nn: the folder beside this file has the name too
        raise Skip("torch is not installed (package python3-torch)")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def compare(name, found, right, limit=1e-4):
    """The norm of the error over the norm."""
    error = sum((a - b) ** 2 for a, b in zip(found, right, strict=True)) ** 0.5 / sum(b ** 2 for b in right) ** 0.5
    assert error <= limit, (name, error)
    return error


@test
def gradients_in_float_are_those_in_double():
    need_zerotrain()
    single = gradients_of(f"{B}/tests/zerotrain_gradients")
    double = gradients_of(f"{B}/f64/tests/zerotrain_gradients")
    assert all(t["values"] == double["tensors"][name]["values"] for name, t in single["tensors"].items())
    assert abs(single["loss"] / double["loss"] - 1) < 1e-6
    worst = max(compare(name, t["gradients"], double["tensors"][name]["gradients"]) for name, t in single["tensors"].items())
    print(f"# at most {worst:.2g} apart, relative to the gradient")


@test
def gradients_are_those_of_torch():
    need_zerotrain()
    printed = run(f"{B}/tests/zerotrain_gradients").stdout
    torch = gradients_of("/usr/bin/python3", "-B", f"{os.path.dirname(__file__)}/zerotrain_torch.py", input=printed)
    double = gradients_of(f"{B}/f64/tests/zerotrain_gradients")
    exact = gradients_of(f"{B}/f64/tests/zerotrain_gradients", "2") # segments, which have other bits
    assert exact["tensors"] != double["tensors"]
    for found, limit in [(json.loads(printed), 1e-4), (double, 1e-10), (exact, 1e-10)]:
        assert abs(found["loss"] / torch["loss"] - 1) < limit, (found["loss"], torch["loss"])
        worst = max(compare(name, t["gradients"], torch["gradients"][name], limit) for name, t in found["tensors"].items())
        print(f"# at most {worst:.2g} apart, relative to the gradient")


def kill_ranks(launcher):
    """Each process of the job, by its parents."""
    family = [launcher.pid]
    for parent in family:
        try:
            with open(f"/proc/{parent}/task/{parent}/children") as f:
                family += map(int, f.read().split())
        except OSError: # it has ended
            pass
    for pid in family[1:]:
        with open(f"/proc/{pid}/comm") as f:
            if f.read().strip() == "zerotrain":
                os.kill(pid, signal.SIGKILL)


@test
def who_is_killed_goes_on_with_the_same_losses():
    # With a config the learning rate stays as it is, whatever number of steps is asked for. So the job that is killed would
    # go on for ever, however late this process is.
    with tempfile.TemporaryDirectory() as folder:
        data = text_file(folder)
        for precision, stage in [("fp32", 0)] if SLOW else [("fp32", 0), ("fp16", 2), ("bf16", 3)]:
            config = f"{folder}/{precision}.json"
            with open(config, "w") as f:
                json.dump({"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": stage},
                           **({precision: {"enabled": True}} if precision != "fp32" else {})}, f)
            options = ["--config", config, "--validate", 0]
            saved = ["--save", f"{folder}/{precision}", "--save-every", 3]
            begun = subprocess.Popen(arguments(data, *options, *saved, "--steps", 10 ** 6), stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE, text=True)
            while not begun.stdout.readline().startswith("step 8 "):
                assert begun.poll() is None, begun.communicate()
            kill_ranks(begun)
            begun.communicate(timeout=60)
            assert begun.returncode != 0
            last = max(int(n) for n in re.findall(r"\bstep-(\d+)\b", " ".join(os.listdir(f"{folder}/{precision}"))))
            out = trained(data, *options, *saved, "--resume", f"{folder}/{precision}", "--steps", last + 9)
            step = int(re.search(r"^resumed after step (\d+)$", out, re.M)[1])
            whole = losses(trained(data, *options, "--steps", last + 9))
            assert step % 3 == 0 and 6 <= step <= last and losses(out) == whole[step:], (step, out, whole)


@test
def another_number_of_ranks_goes_on_too():
    with tempfile.TemporaryDirectory() as folder:
        data = text_file(folder)
        trained(data, "--steps", 6, "--save", f"{folder}/saved")
        out = trained(data, "--steps", 9, "--resume", f"{folder}/saved", "--stage", 3, n=3)
        assert [line.split()[1] for line in out.splitlines() if " loss " in line] == ["7", "8", "9"], out
        out = trained(data, "--steps", 5, "--resume", f"{folder}/saved")
        assert "resumed after step 6: no update is left of --steps" in out and not losses(out), out


def activations(out):
    return float(re.search(r"^  activations +([0-9.]+) MB$", out, re.M)[1])


@test
def the_report_shows_what_recomputing_saves():
    with tempfile.TemporaryDirectory() as folder:
        data = text_file(folder)
        kept = trained(data, "--steps", 2, "--report", "--stage", 2, "--batch", 8)
        again = trained(data, "--steps", 2, "--report", "--stage", 2, "--batch", 8, "--recompute", "block")
        assert activations(again) < 0.75 * activations(kept), (kept, again)
        for word in ["parameters", "moments", "resident", "sent by rank 0 in 2 updates", "backward"]:
            assert word in kept, kept


def has_files(data, folder):
    """Whether this build and this system keep state in files."""
    done = train(data, "--steps", 1, "--stage", 1, "--offload-optimizer", "nvme", "--nvme-path", folder)
    if done.returncode and "uring" in done.stderr:
        print("# no files: " + done.stderr.splitlines()[0])
        return False
    assert done.returncode == 0, done
    return True


ARENA, OPTIMIZER, PARAM = ["--device", "arena:64M"], "--offload-optimizer", "--offload-param"


@test
def devices_and_offload_change_no_loss():
    with tempfile.TemporaryDirectory() as folder:
        data, files = text_file(folder), f"{folder}/files"
        os.mkdir(files)
        half = [OPTIMIZER, "cpu", "--offload-ratio", 0.5, "--overlap", "off"]
        ways = [["--stage", stage, *ARENA, *more] for stage in (1, 2, 3)
                for more in ([], [OPTIMIZER, "cpu", "--threads", 2], half)]
        ways += [["--stage", 3, *ARENA, PARAM, "cpu", *more] for more in ([], [OPTIMIZER, "cpu"])]
        ways += [["--stage", 0, "--device", "arena:64M,1G"]]
        if has_files(data, files):
            nvme = ["--nvme-path", files]
            ways += [["--stage", stage, *ARENA, *nvme, OPTIMIZER, "nvme"] for stage in (1, 2, 3)]
            ways += [["--stage", 3, *ARENA, *nvme, PARAM, "nvme", OPTIMIZER, place]
                     for place in ("none", "cpu", "nvme")]
            ways += [["--stage", 3, *nvme, PARAM, "nvme", OPTIMIZER, "nvme"]]
        for precision in ["fp32", "bf16"]:
            right = losses(trained(data, "--steps", 6, "--precision", precision))
            assert len(right) == 8, right
            for way in ways[::5] if SLOW else ways:
                found = losses(trained(data, "--steps", 6, "--precision", precision, *way))
                assert found == right, (precision, way, found, right)
        assert os.listdir(files) == []


def in_report(out, name):
    """The number of a line of the report, and what comes after it."""
    found = re.search(rf"^  {name} +([0-9.]+) MB *(.*)$", out, re.M)
    assert found, (name, out)
    return float(found[1]), found[2]


@test
def a_model_that_a_device_is_too_small_for_is_refused_and_trains_with_offload():
    with tempfile.TemporaryDirectory() as folder:
        data = text_file(folder)
        options = ["--steps", 3, "--dim", 64, "--stage", 3, "--recompute", "block"]
        away = [OPTIMIZER, "cpu", PARAM, "cpu"]
        right = trained(data, *options, *ARENA, "--report")
        whole, _ = in_report(right, "used at most")
        less, _ = in_report(trained(data, *options, *ARENA, *away, "--report"), "used at most")
        assert less < 0.9 * whole, (less, whole)
        between = ["--device", f"arena:{int((less + whole) / 2 * 1e6)}"]
        assert losses(trained(data, *options, *between, *away)) == losses(right)
        done = train(data, *options, *between)
        assert done.returncode == 3 and "setting up the engine: " in done.stderr, done
        assert " MiB too much (" in done.stderr and "offload_optimizer takes" in done.stderr, done
        done = train(data, *options, "--batch", 64, "--device", f"arena:{int(whole * 1e6)}")
        assert done.returncode == 3 and re.search(r"rank \d: activations: .*\d{4,}", done.stderr), done
        assert "use a smaller --batch" in done.stderr, done
        done = train(data, *options, "--device", "arena:200K")
        assert done.returncode == 3 and "moments" in done.stderr and " 0.2 MiB are free" in done.stderr, done


@test
def the_report_tells_where_everything_is_and_what_moved():
    with tempfile.TemporaryDirectory() as folder:
        steps = 8
        out = trained(text_file(folder), "--steps", steps, "--dim", 64, "--stage", 2, "--precision", "bf16", "--report",
                      *ARENA, OPTIMIZER, "cpu")
        parameters = int(re.search(r"^(\d+) parameters", out, re.M)[1])
        assert in_report(out, "budget")[0] == 67.11, out
        assert in_report(out, "used")[0] <= in_report(out, "used at most")[0] < 67.11, out
        for name, place in [("parameters", "device"), ("moments", "host"), ("master weights", "host"),
                            ("activations", "device"), ("tensors as floats", "device")]:
            assert in_report(out, name)[1].startswith(place), (name, out)
        # In each update gradients of a rank's part come down, and its parameters go up, 2 bytes each.
        for name in ["down to the host", "up to the device"]:
            moved = in_report(out, name)[0] * 1e6
            assert abs(moved / (steps * 2 * parameters / 2) - 1) < 0.02, (name, moved, parameters)
        assert in_report(out, "read from files")[0] == in_report(out, "written to files")[0] == 0, out
        assert re.search(r"^  of it waiting to move +[0-9.]+ s$", out, re.M), out
        assert " device" not in trained(text_file(folder), "--steps", 1, "--report"), "without one"


@test
def a_checkpoint_goes_from_one_place_to_another():
    with tempfile.TemporaryDirectory() as folder:
        data = text_file(folder)
        whole = losses(trained(data, "--steps", 8, "--validate", 0, "--precision", "bf16"))
        ways = [["--stage", 3, *ARENA, OPTIMIZER, "cpu", PARAM, "cpu"], ["--stage", 1],
                ["--stage", 2, *ARENA, OPTIMIZER, "cpu"]]
        for there, here in zip(ways, ways[1:] + ways[:1]):
            with tempfile.TemporaryDirectory() as saved:
                common = ["--validate", 0, "--precision", "bf16"]
                # The schedule is that of 8 steps; all of them are saved, and the last but one is gone on from.
                trained(data, "--steps", 8, *common, *there, "--save", saved, "--save-every", 7)
                os.rename(f"{saved}/step-000000008", f"{folder}/last")
                out = trained(data, "--steps", 8, *common, *here, "--resume", saved)
                subprocess.run(["rm", "-r", f"{folder}/last"], check=True)
                assert "resumed after step 7" in out and losses(out)[0] == whole[7], (there, here, out, whole)


@test
def a_config_says_what_is_offloaded():
    with tempfile.TemporaryDirectory() as folder:
        data, path = text_file(folder), f"{folder}/ds.json"
        with open(path, "w") as f:
            json.dump({"train_micro_batch_size_per_gpu": "auto",
                       "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "ratio": 1}}}, f)
        done = train(data, "--steps", 2, "--dim", 64, "--config", path, "--report", *ARENA)
        if done.returncode and "jansson" in done.stderr:
            raise Skip("this build reads no configs: it lacks jansson: make deps")
        assert done.returncode == 0 and "already so" not in done.stderr, done
        assert in_report(done.stdout, "moments")[1].startswith("host"), done
        # The command line counts.
        done = train(data, "--steps", 2, "--dim", 64, "--config", path, "--report", *ARENA, OPTIMIZER, "none")
        assert done.returncode == 0 and in_report(done.stdout, "moments")[1].startswith("device"), done
        done = train(data, "--steps", 2, "--config", path, "--stage", 0, *ARENA)
        assert done.returncode == 2 and "the optimizer cannot be offloaded at stage 0" in done.stderr, done
        done = train(data, "--steps", 2, "--config", path)
        assert done.returncode == 0 and "offload_optimizer.device (line 1): already so" in done.stderr, done


@test
def a_config_says_stage_precision_and_log():
    config = {"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": 2, "bf16": {"enabled": True},
              "zero_optimization": {"stage": 2}, "steps_per_print": 2,
              "optimizer": {"type": "AdamW", "params": {"lr": "auto", "weight_decay": 0.1}}}
    with tempfile.TemporaryDirectory() as folder:
        data = text_file(folder)
        with open(f"{folder}/ds.json", "w") as f:
            json.dump(config, f)
        done = train(data, "--steps", 4, "--config", f"{folder}/ds.json", "--log", f"{folder}/log.jsonl")
        if done.returncode and "jansson" in done.stderr:
            raise Skip("this build reads no configs: it lacks jansson: make deps")
        assert done.returncode == 0 and ", bf16, on 2 ranks" in done.stdout, done
        config["optimizer"]["params"]["lr"] = 0.0625
        with open(f"{folder}/fixed.json", "w") as f:
            json.dump(config, f)
        for lr, code in ("0.0625", 0), ("0.01", 1):
            other = train(data, "--steps", 1, "--config", f"{folder}/fixed.json", "--lr", lr)
            assert other.returncode == code and code == ("--lr 0.01, but" in other.stderr), other
        for most, code in (0.5, 1), ("auto", 0):
            config["optimizer"]["params"]["lr"] = "auto"
            config["scheduler"] = {"type": "WarmupLR", "params": {"warmup_max_lr": most}}
            with open(f"{folder}/fixed.json", "w") as f:
                json.dump(config, f)
            other = train(data, "--steps", 1, "--config", f"{folder}/fixed.json", "--lr", "0.01")
            assert other.returncode == code and code == ("rates of its own" in other.stderr), other
        assert "step=4 samples=32 train_loss=" in done.stdout, done
        with open(f"{folder}/log.jsonl") as f:
            rows = [json.loads(line) for line in f]
        printed = [float(line.split()[3]) for line in losses(done.stdout) if " loss " in line]
        assert [row["step"] for row in rows] == [1, 2, 3, 4], rows
        assert all(abs(row["train_loss"] - x) < 1e-8 for row, x in zip(rows, printed)), (rows, printed)
        done = train(data, "--steps", 4, "--config", f"{folder}/ds.json", "--precision", "fp16")
        assert done.returncode == 1 and "--precision is f16, but" in done.stderr, done


@test
def an_overflow_is_skipped_and_told():
    with tempfile.TemporaryDirectory() as folder:
        data = text_file(folder)
        with open(f"{folder}/ds.json", "w") as f:
            json.dump({"train_micro_batch_size_per_gpu": 2, "fp16": {"enabled": True, "initial_scale_power": 30, "hysteresis": 1}}, f)
        done = train(data, "--steps", 4, "--config", f"{folder}/ds.json")
        if done.returncode and "jansson" in done.stderr:
            raise Skip("this build reads no configs: it lacks jansson: make deps")
        assert done.returncode == 0 and done.stdout.count(" loss ") == 4, done
        assert re.search(r"^step 0 skipped: gradient of tensor '\S+' at index \d+ is .* on rank \d.*; scale 5.36871e\+08$",
                         done.stdout, re.M), done


@test
def the_curve_is_drawn():
    with tempfile.TemporaryDirectory() as folder:
        done = train(text_file(folder), "--steps", 8, "--plot", f"{folder}/loss.svg")
        if "install it (gnuplot" in done.stderr:
            raise Skip("gnuplot is missing: make deps")
        assert done.returncode == 0, done
        with open(f"{folder}/loss.svg") as f:
            picture = f.read()
        for text in ["loss (nats for each token)", "validation", "3 blocks, 16 wide, f32, 2 ranks"]:
            assert text in picture, text


# Preloaded, it makes OpenBLAS take the processor for a Prescott until it is told otherwise. With T_SLOW_BLAS it is slow after that.
OLD_BLAS = """
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
typedef char *name_fn(void);
typedef void product_fn(int, int, int, int, int, int, float, const float *, int, const float *, int, float, float *, int);
char *openblas_get_corename(void)
{
	return getenv("OPENBLAS_CORETYPE") ? ((name_fn *)dlsym(RTLD_NEXT, "openblas_get_corename"))() : "Prescott";
}
void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float f, const float *a, int la, const float *b, int lb, float g, float *c, int lc)
{
	const char *core = getenv("OPENBLAS_CORETYPE");

	if (getenv("T_SLOW_BLAS") && core && strcmp(core, "Prescott") != 0)
		usleep(20000);
	((product_fn *)dlsym(RTLD_NEXT, "cblas_sgemm"))(order, ta, tb, m, n, k, f, a, la, b, lb, g, c, lc);
}
"""


@test
def kernels_are_those_of_the_processor():
    """An OpenBLAS that does not know the processor is told, unless its own choice is faster or the user has chosen."""
    need_zerotrain()
    with open("/proc/cpuinfo") as f:
        flags = f.read().split()
    best = "SkylakeX" if "avx512vl" in flags else "Haswell" if "avx2" in flags else None
    if not best or "address" in B or "thread" in B:
        raise Skip("needs AVX2, and no sanitizer, which must be loaded first")
    env = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["cc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", f"{folder}/old.so", "-x", "c", "-"], input=OLD_BLAS, text=True, check=True)
        old = dict(env, LD_PRELOAD=f"{folder}/old.so")
        data = text_file(folder)
        call = arguments(data, "--steps", 2)
        right, told = run(*call, env=dict(env, OPENBLAS_CORETYPE=best)), run(*call, env=old)
        assert re.search(rf"^OpenBLAS takes the processor for Prescott, \d+ GFLOP/s; with its kernels for {best}: \d+$", told.stdout, re.M), told
        assert told.stdout.count("OpenBLAS") == 1 and "OpenBLAS" not in right.stdout, (told, right)
        assert losses(told.stdout) == losses(right.stdout), (told, right)
        begun = subprocess.Popen(arguments(data, "--steps", 10 ** 6), env=old, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while not begun.stdout.readline().startswith("step 1 "):
            assert begun.poll() is None, begun.communicate()
        kill_ranks(begun) # which finds them by their name
        begun.communicate(timeout=60)
        assert begun.returncode != 0
        for other in (dict(old, OPENBLAS_CORETYPE="Prescott"), dict(old, T_SLOW_BLAS="1")):
            done = run(*call, env=other)
            assert done.returncode == 0 and "OpenBLAS" not in done.stdout and len(losses(done.stdout)) == 3, done


@test
def products_of_two_libraries_have_the_same_losses():
    """To some digits, in plain training and with all that multiplies other shapes; --exact keeps its bits with either."""
    with tempfile.TemporaryDirectory() as folder:
        data = text_file(folder)
        done = train(data, "--steps", 1, "--products", "onednn")
        if "built without oneDNN" in done.stderr:
            raise Skip("this build has no oneDNN: make deps")
        ways = [[], ["--model", "llama", "--kv-heads", 1, "--recompute", "block"], ["--context-parallel", 2], ["--tp", 2, "--exact"]]
        for way in ways:
            both = [trained(data, "--steps", 6, *way, "--products", p) for p in ("openblas", "onednn")]
            assert ["by oneDNN" in out for out in both] == [False, True], both
            for one, other in zip(*map(losses, both)):
                one, other = one.split(), other.split()
                assert one[:-1] == other[:-1] and abs(float(one[-1]) - float(other[-1])) < 1e-5, (way, one, other)
        pairs = [losses(trained(data, "--steps", 6, "--exact", "--products", "onednn", "--tp", tp, n=2 * tp)) for tp in (1, 2)]
        assert pairs[0] == pairs[1], pairs


@test
def without_a_launcher_it_starts_itself():
    with tempfile.TemporaryDirectory() as folder:
        need_zerotrain()
        data = text_file(folder)
        done = run(ZEROTRAIN, "-n", "2", "--data", data, *TINY, "--steps", "3")
        assert done.returncode == 0 and losses(done.stdout) == losses(trained(data, "--steps", 3)), done


@test
def mistakes_are_told_with_what_to_do():
    with tempfile.TemporaryDirectory() as folder:
        data = text_file(folder)
        short, empty = f"{folder}/short", f"{folder}/empty"
        for path, text in [(short, "ab" * 30), (empty, "")]:
            with open(path, "w") as f:
                f.write(text)
        for status, args, told in [
                (1, ["--data", "/nowhere"], "--data /nowhere: No such file or directory: must be a file of text"),
                (1, ["--data", folder], "must be a file of text"),
                (1, ["--data", empty], "must be a file of text"),
                (1, ["--data", short], "has 60 bytes, and --context 24 needs 73"),
                (2, ["--dim", "20", "--heads", "3"], "--dim 20 must be a multiple of --heads 3"),
                (2, ["--batch", "0"], "--batch 0: must be a number from 1"),
                (2, ["--precision", "fp8"], "--precision fp8: must be fp32, fp16 or bf16"),
                (2, ["--products", "mkl"], "--products mkl: must be openblas or onednn"),
                (2, ["--overlap", "maybe"], "--overlap maybe: must be on or off"),
                (2, ["--recompute", "all"], "--recompute all: must be a number"),
                (2, ["--dropout", "1"], "--dropout 1: must be a number from 0 to less than 1"),
                (2, ["--stage", "4"], "--stage 4: must be a number from 0 to 3"),
                (2, ["--device", "arena"], "--device arena: must be arena:SIZE or arena:SIZE,BANDWIDTH, like"),
                (2, ["--device", "arena:0"], "--device arena:0: must be arena:SIZE"),
                (2, ["--device", "arena:1M,"], "--device arena:1M,: must be arena:SIZE"),
                (2, ["--device", "arena:1M,1Gb"], "--device arena:1M,1Gb: must be arena:SIZE"),
                (2, ["--device", "cuda:x"], "--device cuda: x: must be a number from 0"),
                (3, ["--device", "cuda:1000"], "--device cuda: "),
                (2, [OPTIMIZER, "disk"], "--offload-optimizer disk: must be none, cpu or nvme"),
                (2, [OPTIMIZER, "cpu", "--stage", 1], "--offload-optimizer cpu: needs --device"),
                (2, [PARAM, "cpu", "--stage", 3], "--offload-param cpu: needs --device"),
                (2, [OPTIMIZER, "nvme", "--stage", 1], "offload to nvme: needs --nvme-path DIR"),
                (2, [*ARENA, OPTIMIZER, "cpu"], "the optimizer cannot be offloaded at stage 0: use --stage 1, 2 or 3"),
                (2, [*ARENA, PARAM, "cpu", "--stage", 2], "parameters cannot be offloaded at stage 2: use --stage 3"),
                (2, ["--nvme-path", folder], "needs --offload-optimizer nvme or --offload-param nvme"),
                (2, ["--offload-ratio", "1.5"], "--offload-ratio 1.5: must be a number from 0 to 1"),
                (2, ["--offload-ratio", "0.5", "--stage", 1], "--offload-ratio 0.5: needs --offload-optimizer cpu"),
                (2, ["--threads", "0"], "--threads 0: must be a number from 1"),
                (2, ["--wibble"], "See zerotrain --help"),
                (2, ["more"], "more: not an option"),
                (2, ["--log", "log.txt"], "--log log.txt: must be a name that ends in .csv or .jsonl"),
                (2, ["--plot", "plot.gif"], "--plot plot.gif: must be a name that ends in .svg or .png"),
                (1, ["--resume", folder], "is no checkpoint and has none"),
                (1, ["--config", short], f"--config: {short}:1:")]:
            done = train(data, "--steps", 1, *args, n=1)
            assert done.returncode == status and told in done.stderr, (args, told, done)
        done = run(ZEROTRAIN)
        assert done.returncode == 2 and "--data FILE is missing" in done.stderr, done


@test
def a_checkpoint_of_another_run_is_refused():
    with tempfile.TemporaryDirectory() as folder:
        data, other = text_file(folder), f"{folder}/other"
        trained(data, "--steps", 2, "--save", f"{folder}/saved")
        with open(data) as text, open(other, "w") as f:
            f.write(text.read().replace("a", "b"))
        for args, told in [(["--dim", 32], "has shape"), (["--layers", 2], "tensor"), (["--seed", 2], "--seed 1"),
                           (["--heads", 4], "--heads 2"), (["--batch", 3], "--batch 2"), (["--data", other], "text ")]:
            done = train(data, "--steps", 4, "--resume", f"{folder}/saved", *args)
            assert done.returncode == 1 and told in done.stderr and "began with" in done.stderr, (args, done)


main()
