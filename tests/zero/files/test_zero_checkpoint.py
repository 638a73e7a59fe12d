"""Checkpoints from outside: who writes is killed at any moment, and the files are read by others."""
import json
import os
import random
import shutil
import struct
import subprocess
import tempfile
import time

from tap import B, SLOW, Skip, finish, main, run, test

PROGRAM = f"{B}/tests/zero_checkpoint"
KILLS = int(os.environ.get("T_KILLS", 10 if SLOW else 100))


def start(job, nranks, *args):
    env = {k: v for k, v in os.environ.items() if not k.startswith("KOLO_")}
    env.update(KOLO_JOB=f"checkpoint-{os.getpid()}-{job}", KOLO_NRANKS=str(nranks), KOLO_TIMEOUT="3")
    return [subprocess.Popen([PROGRAM, *map(str, args)], env=dict(env, KOLO_RANK=str(r)), text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE) for r in range(nranks)]


def numbers(out, word):
    return [int(line.split()[1]) for line in out.splitlines() if line.startswith(word)]


def together(job, nranks, *args):
    results = finish(start(job, nranks, *args))
    assert all(code == 0 for code, _, _ in results), results
    return results[0][1]


@test
def whoever_is_killed_while_saving_leaves_the_last_complete_checkpoint():
    """All ranks, or one of them while the others go on; at random moments. What was reported as saved is there."""
    draw = random.Random(7)
    with tempfile.TemporaryDirectory() as folder:
        saved = 0
        for job in range(KILLS):
            nranks, stage = draw.choice([1, 2, 3]), draw.choice([0, 1, 2, 3])
            ranks = start(job, nranks, folder, 200000, "bf16", stage, 100000)
            time.sleep(draw.uniform(0.01, 0.25 if not SLOW else 1.5))
            victims = ranks if draw.random() < 0.5 else [draw.choice(ranks)]
            for p in victims:
                p.kill()
            results = finish(ranks)
            out = results[0][1]
            for p, (code, _, err) in zip(ranks, results):
                told = code == 1 and "rank" in err  # as a victim may, too, when those before it are gone
                assert code == -9 if p is victims[0] else told or code == -9 and p in victims, (victims, results)
            for step in numbers(out, "loaded"):
                assert step >= saved, (step, saved, results)
            saved = max([saved, *numbers(out, "saved")])
        last = numbers(together("last", 2, folder, 200000, "bf16", 1, 0), "loaded")
        assert last and last[0] >= saved > 0, (last, saved)
        print(f"# {KILLS} kills, {saved} checkpoints")


DTYPES = {"F32": ("f", 4), "F16": ("e", 2), "BF16": (None, 2)}


def read_strictly(path):
    """By the format's text: the header is JSON, the tensors follow each other without a gap up to the file's end."""
    with open(path, "rb") as f:
        whole = f.read()
    (length,) = struct.unpack("<Q", whole[:8])
    header = json.loads(whole[8:8 + length].decode())
    assert whole[8:9] == b"{"
    metadata = header.pop("__metadata__")
    assert all(isinstance(v, str) for v in metadata.values())
    data, at, tensors = whole[8 + length:], 0, {}
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        code, size = DTYPES[entry["dtype"]]
        begin, end = entry["data_offsets"]
        n = 1
        for d in entry["shape"]:
            n *= d
        assert begin == at and end == begin + n * size, (name, entry, at)
        at = end
        raw = data[begin:end]
        if code:
            tensors[name] = struct.unpack(f"<{n}{code}", raw)
        else:
            tensors[name] = [struct.unpack("<f", b"\0\0" + raw[2 * i:2 * i + 2])[0] for i in range(n)]
    assert at == len(data)
    return metadata, tensors


SIZES = {"embedding": 5003, 'layer "0"': 3335, "d\u00e9j\u00e0": 1669, "scalar": 1}


@test
def weights_are_safetensors_of_any_type():
    for dtype in ["f32", "f16", "bf16"]:
        with tempfile.TemporaryDirectory() as folder:
            together(f"export-{dtype}", 3, folder, 10007, dtype, 3, 3, f"{folder}/model.safetensors")
            assert sorted(os.listdir(folder)) == ["model.safetensors", "step-000000002", "step-000000003"]
            for path in [f"{folder}/model.safetensors", f"{folder}/step-000000003/weights.safetensors"]:
                metadata, tensors = read_strictly(path)
                assert metadata["step"] == "3", metadata
                assert {k: len(v) for k, v in tensors.items()} == SIZES, tensors.keys()
                assert all(x == -3 for v in tensors.values() for x in v)


@test
def the_safetensors_package_reads_them():
    try:
        from safetensors import safe_open
    except ImportError:
        raise Skip("Python's package safetensors is not installed")
    with tempfile.TemporaryDirectory() as folder:
        together("package", 2, folder, 10007, "f32", 2, 2, f"{folder}/model.safetensors")
        for path in [f"{folder}/model.safetensors", f"{folder}/step-000000002/moment1.safetensors"]:
            with safe_open(path, framework="numpy") as f:
                assert {k: f.get_tensor(k).size for k in f.keys()} == SIZES
                assert f.get_tensor("scalar").shape == ()
                assert path.endswith("moment1.safetensors") or (f.get_tensor("embedding") == -2).all()


@test
def a_directory_that_cannot_be_written_is_named():
    with tempfile.TemporaryDirectory() as folder:
        blocked = f"{folder}/file"
        with open(blocked, "w"):
            pass
        results = finish(start("blocked", 2, f"{folder}/new", 1000, "f32", 1, 1))
        assert all(code == 0 for code, _, _ in results), results
        shutil.move(f"{folder}/new/step-000000001", f"{folder}/kept")
        results = finish(start("named", 2, f"{blocked}", 1000, "f32", 1, 1))
        assert all(code == 1 and f"{blocked}: opening" in err and "Not a directory" in err for code, _, err in results), results


main()
