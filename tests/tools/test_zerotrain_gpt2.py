"""zerotrain's models as GPT-2 on disk: what a file says by another implementation, the same model back on any grid, training
from it, transformers in both directions, files that don't fit."""
import array
import json
import math
import os
import re
import struct
import tempfile

from tap import B, Skip, main, run, test

SMALL = ["--layers", 2, "--dim", 16, "--heads", 4, "--context", 32, "--batch", 2, "--steps", 30, "--lr", "0.01",
         "--print", 30, "--validate", 0, "--micro", 2, "--exact"]
FOLDER = tempfile.TemporaryDirectory()
GRIDS = [(1, []), (2, ["--tp", 2, "--stage", 3]), (4, ["--tp", 2, "--pp", 2])]


def data():
    path = f"{FOLDER.name}/text"
    if not os.path.exists(path):
        with open("/usr/share/common-licenses/GPL-3", "rb") as source, open(path, "wb") as f:
            f.write(source.read(6000))
    return path


def start(ranks, *args):
    if not os.path.exists(f"{B}/zerotrain"):
        raise Skip("this build has no zerotrain: it lacks OpenBLAS: make deps")
    return run(f"{B}/ringrun", "-n", str(ranks), f"{B}/zerotrain", "--data", data(), *map(str, args))


def output(ranks, *args):
    done = start(ranks, *args)
    if "it lacks the library jansson" in done.stderr:
        raise Skip("this build lacks jansson: make deps")
    assert done.returncode == 0, done
    return done.stdout


def validation(out):
    return re.search(r"^step \d+ validation (\S+)$", out, re.M)[1]


def exported(name, *args, ranks=1):
    folder = f"{FOLDER.name}/{name}"
    return folder, output(ranks, *SMALL, "--export", folder, *args)


def contents(folder):
    with open(f"{folder}/model.safetensors", "rb") as f:
        return f.read()


def tensors(folder):
    whole = contents(folder)
    (length,) = struct.unpack("<Q", whole[:8])
    entries, elements = json.loads(whole[8:8 + length]), whole[8 + length:]
    assert entries.pop("__metadata__") == {"format": "pt"}
    return {name.removeprefix("transformer."): (e["shape"], array.array("f", elements[slice(*e["data_offsets"])]))
            for name, e in entries.items()}


def write(folder, found, kind="F32"):
    """The same tensors by their older names, in another type."""
    entries, elements = {}, b""
    for name, (shape, values) in found.items():
        part = values.tobytes() if kind == "F32" else b"".join(struct.pack("<e", x) for x in values) if kind == "F16" else \
            b"".join(struct.pack("<f", x)[2:] for x in values)
        entries[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(elements), len(elements) + len(part)]}
        elements += part
    head = json.dumps(entries).encode()
    with open(f"{folder}/model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head + elements)


# GPT-2 once more, as its paper and config have it: rows are lists.

def linear(x, w, b, out):
    return [[sum(xi * w[1][i * out + o] for i, xi in enumerate(row)) + b[1][o] for o in range(out)] for row in x]


def norm(x, gain, bias):
    rows = []
    for row in x:
        mean = sum(row) / len(row)
        rstd = (sum((v - mean) ** 2 for v in row) / len(row) + 1e-5) ** -0.5
        rows.append([(v - mean) * rstd * g + b for v, g, b in zip(row, gain[1], bias[1], strict=True)])
    return rows


def attend(qkv, dim, heads):
    width, out = dim // heads, [[] for _ in qkv]
    for h in range(heads):
        parts = [[row[k * dim + h * width:k * dim + (h + 1) * width] for row in qkv] for k in range(3)]
        for t, q in enumerate(parts[0]):
            scores = [sum(a * b for a, b in zip(q, k, strict=True)) / width ** 0.5 for k in parts[1][:t + 1]]
            shares = [math.exp(s - max(scores)) for s in scores]
            out[t] += [sum(p * v[i] for p, v in zip(shares, parts[2])) / sum(shares) for i in range(width)]
    return out


def gelu(x):
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def add(x, y):
    return [[a + b for a, b in zip(r, s, strict=True)] for r, s in zip(x, y, strict=True)]


def loss_of(t, layers, dim, heads, window):
    x = [[t["wte.weight"][1][v * dim + i] + t["wpe.weight"][1][p * dim + i] for i in range(dim)] for p, v in enumerate(window[:-1])]
    for k in range(layers):
        p = {name[len(f"h.{k}."):]: v for name, v in t.items() if name.startswith(f"h.{k}.")}
        qkv = linear(norm(x, p["ln_1.weight"], p["ln_1.bias"]), p["attn.c_attn.weight"], p["attn.c_attn.bias"], 3 * dim)
        x = add(x, linear(attend(qkv, dim, heads), p["attn.c_proj.weight"], p["attn.c_proj.bias"], dim))
        wide = linear(norm(x, p["ln_2.weight"], p["ln_2.bias"]), p["mlp.c_fc.weight"], p["mlp.c_fc.bias"], 4 * dim)
        x = add(x, linear([[gelu(v) for v in row] for row in wide], p["mlp.c_proj.weight"], p["mlp.c_proj.bias"], dim))
    total = 0
    for row, right in zip(norm(x, t["ln_f.weight"], t["ln_f.bias"]), window[1:], strict=True):
        logits = [sum(a * t["wte.weight"][1][v * dim + i] for i, a in enumerate(row)) for v in range(256)]
        total += math.log(sum(math.exp(v - max(logits)) for v in logits)) + max(logits) - logits[right]
    return total / (len(window) - 1)


def windows(length, context):
    """Where the windows of a validation begin."""
    held = max(length // 10, context + 1)
    count = (held - 1) // context
    return [length - held + context * w for w in range(count)]


@test
def a_file_says_the_model():
    folder, out = exported("one")
    with open(data(), "rb") as f:
        text = f.read()
    found = [loss_of(tensors(folder), 2, 16, 4, text[s:s + 33]) for s in windows(len(text), 32)]
    assert abs(sum(found) / len(found) - float(validation(out))) < 1e-5, (found, out)


@test
def it_is_the_same_from_and_on_any_grid():
    first, out = exported("first")
    for k, (ranks, grid) in enumerate(GRIDS):
        again, told = exported(f"again{k}", *grid, ranks=ranks)
        assert contents(again) == contents(first) and validation(told) == validation(out), grid
        back = f"{FOLDER.name}/back{k}"
        told = output(ranks, "--import", first, "--steps", 0, "--batch", 2, "--micro", 2, "--exact", "--export", back, *grid)
        assert contents(back) == contents(first) and validation(told) == validation(out), (grid, told, out)


@test
def training_goes_on_from_it_at_every_stage():
    first, out = exported("begin")
    losses = set()
    for stage in range(4):
        told = output(2, "--import", first, "--steps", 40, "--lr", "0.01", "--print", 40, "--validate", 0, "--stage", stage)
        losses.add(re.search(r"^step 40 loss (\S+)", told, re.M)[1])
        assert float(validation(told)) < float(validation(out)), (told, out)
    assert len(losses) == 1, losses


@test
def older_names_and_types_of_16_bits_load():
    first, out = exported("wide")
    for kind in ("F32", "F16", "BF16"):
        folder = f"{FOLDER.name}/{kind}"
        os.makedirs(folder)
        with open(f"{first}/config.json") as source, open(f"{folder}/config.json", "w") as f:
            f.write(source.read())
        write(folder, tensors(first), kind)
        told = output(1, "--import", folder, "--steps", 0, "--exact", "--micro", 1)
        apart = abs(float(validation(told)) - float(validation(out)))
        assert apart == 0 if kind == "F32" else 0 < apart < 0.02, (kind, told, out)


@test
def files_that_do_not_fit_are_refused():
    first, _ = exported("right")
    with open(f"{first}/config.json") as f:
        right = json.load(f)
    folder = f"{FOLDER.name}/wrong"
    os.makedirs(folder)

    def refused(message, *args, status=1):
        done = start(1, "--import", folder, "--steps", 0, *args)
        if "it lacks the library jansson" in done.stderr:
            raise Skip("this build lacks jansson: make deps")
        assert done.returncode == status and message in done.stderr, (message, done)

    def config(**changes):
        with open(f"{folder}/config.json", "w") as f:
            json.dump({**right, **changes}, f)

    refused("wrong/config.json: unable to open")
    for key, value, message in [("model_type", "llama", 'must be "gpt2"'), ("activation_function", "relu", 'must be "gelu_new"'),
                                ("layer_norm_epsilon", 1e-6, "must be 1e-05"), ("n_inner", 17, "must be 4 times n_embd"),
                                ("n_layer", "two", "must be a number"), ("n_embd", 0, "must be a number"),
                                ("vocab_size", 1 << 17, "must be a number"), ("tie_word_embeddings", False, "must be true"),
                                ("scale_attn_by_inverse_layer_idx", True, "must be false")]:
        config(**{key: value})
        refused(f'"{key}": {message}')
    config(vocab_size=300)
    refused("--import: needs --tokens", status=2)
    config()
    refused("model.safetensors: No such file or directory: must be a file of safetensors")
    whole = contents(first)
    for content, message in [(b"", "must be a file of safetensors"), (b"\xff" * 40, "its header is longer than the file"),
                             (struct.pack("<Q", 4) + b"[1] " + b"x" * 8, "its header is not JSON"), (whole[:-4], "has no tensor")]:
        with open(f"{folder}/model.safetensors", "wb") as f:
            f.write(content)
        refused(message)
    found = tensors(first)
    write(folder, {name: v for name, v in found.items() if name != "h.1.ln_2.bias"})
    refused("has no tensor 'h.1.ln_2.bias' of type F32, F16 or BF16")
    write(folder, {**found, "wpe.weight": ([16, 32], found["wpe.weight"][1])})
    refused("tensor 'wpe.weight' is [16, 32], and config.json makes it [32, 16]")
    write(folder, found)
    refused(f"--layers 3: --import {folder} has 2: leave the option out", "--layers", 3, status=2)
    refused("--import with --resume", "--resume", folder, status=2)
    done = start(1, *SMALL, "--export", "/proc/nowhere")
    assert done.returncode == 3 and "step 1" not in done.stdout, done
    assert "/proc/nowhere: cannot be written: No such file or directory" in done.stderr, done


def transformers(*args, **kwargs):
    """A Python that has it: T_PYTHON, or the system's."""
    python = os.environ.get("T_PYTHON", "/usr/bin/python3")
    done = run(python, "-B", f"{os.path.dirname(__file__)}/zerotrain_transformers.py", *map(str, args), **kwargs)
    if "No module named" in done.stderr:
        raise Skip("transformers is not installed (pip install torch transformers; T_PYTHON names a Python that has it)")
    assert done.returncode == 0, done.stderr
    return done.stdout


@test
def transformers_agree_both_ways():
    """Losses of three shapes within 1e-4, greedy texts, and what is written back."""
    for k, (layers, dim, heads, context, vocab) in enumerate([(2, 32, 4, 64, 256), (3, 48, 3, 40, 1000), (1, 64, 8, 128, 256)]):
        folder, back = f"{FOLDER.name}/theirs{k}", f"{FOLDER.name}/ours{k}"
        transformers("make", folder, layers, dim, heads, context, vocab)
        with open(data(), "rb") as f:
            tokens = [x * 3 % vocab for x in f.read()] if vocab > 256 else list(f.read())
        path = f"{FOLDER.name}/tokens{k}"
        with open(path, "wb") as f:
            array.array("H" if vocab > 256 else "B", tokens).tofile(f)
        prompt = tokens[:9]
        more = ["--tokens", "--prompt", " ".join(map(str, prompt))] if vocab > 256 else ["--prompt", bytes(prompt).decode()]
        out = output(1, "--import", folder, "--data", path, "--steps", 0, "--export", back, "--sample", 20, "--temperature", 0, *more)
        starts = windows(len(tokens), context)
        for where in (folder, back):
            want = float(transformers("loss", where, *starts, input=json.dumps(tokens)))
            assert abs(float(validation(out)) - want) < 1e-4, (where, want, out)
        text = json.loads(transformers("text", folder, 20, input=json.dumps(prompt)))
        if vocab > 256:
            assert [int(x) for x in out.split("\n\n")[1].split()] == text, (out, text)


main()
