"""zerotrain's text: byte-pair encoding beside a second implementation and PyPI's tokenizers, documents as lines of JSON or ended
by a token, packed and padded, what the loss counts, and texts that end."""
import json
import os
import random
import re
import tempfile
import unicodedata

from tap import B, SLOW, Skip, main, run, test

FOLDER = tempfile.TemporaryDirectory()
GPL = "/usr/share/common-licenses/GPL-3"
SIZES = ["--layers", 2, "--dim", 32, "--heads", 2, "--context", 32, "--batch", 4, "--print", 1, "--validate", 0]


def missing(done):
    if "it lacks the library" in done.stderr:
        raise Skip("this build lacks jansson or pcre2: make deps")


def start(ranks, *args):
    if not os.path.exists(f"{B}/zerotrain"):
        raise Skip("this build has no zerotrain: it lacks OpenBLAS: make deps")
    done = run(f"{B}/ringrun", "-n", str(ranks), f"{B}/zerotrain", *map(str, args))
    missing(done)
    return done


def output(ranks, *args):
    done = start(ranks, *args)
    assert done.returncode == 0, done
    return done.stdout


def losses(out):
    return [float(x) for x in re.findall(r"^step \d+ (?:loss|validation) (\S+)", out, re.M)]


def write(name, content):
    path = f"{FOLDER.name}/{name}"
    with open(path, "wb" if isinstance(content, bytes) else "w", **({} if isinstance(content, bytes) else {"encoding": "utf-8"})) as f:
        f.write(content)
    return path


# Byte-pair encoding once more: what stands for a byte, words, and merging by looking at all pairs again and again.

def characters():
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return {b: chr(b if b in plain else next(others)) for b in range(256)}


def kind(c):
    return "space" if c.isspace() else {"L": "letter", "N": "number"}.get(unicodedata.category(c)[0], "sign")


def words(text):
    at = 0
    while at < len(text):
        ending = re.compile("'(?:[sdmt]|ll|ve|re)").match(text, at)
        if ending:
            end = ending.end()
        else:
            first = at + (text[at] == " " and at + 1 < len(text) and kind(text[at + 1]) != "space")
            end = first + 1
            while end < len(text) and kind(text[end]) == kind(text[first]):
                end += 1
            # The last space before a word goes with the word, or alone.
            if kind(text[first]) == "space" and end < len(text) and end - at > 1:
                end -= 1
        yield text[at:end]
        at = end


def encode(text, vocabulary, merges):
    stands, ranks, out = characters(), {pair: k for k, pair in reversed(list(enumerate(merges)))}, []
    for word in words(text):
        parts = [stands[b] for b in word.encode()]
        while True:
            pairs = [(ranks[pair], k) for k, pair in enumerate(zip(parts, parts[1:])) if pair in ranks]
            if not pairs:
                break
            k = min(pairs)[1]
            parts[k:k + 2] = [parts[k] + parts[k + 1]]
        out += [vocabulary[p] for p in parts]
    return out


def tokenizer(name="bpe", merges=400):
    """One that is learned from a text: the most frequent pair becomes a token."""
    folder = f"{FOLDER.name}/{name}"
    if os.path.exists(folder):
        return folder
    os.makedirs(folder)
    stands = characters()
    with open(GPL, encoding="utf-8") as f:
        text = [[stands[b] for b in word.encode()] for word in words(f.read(8000) + " Žluťoučký kůň, ёлка, 日本語 日本語 👍👍")]
    vocabulary, found = {c: k for k, c in enumerate(stands.values())}, []
    for _ in range(merges):
        counts = {}
        for word in text:
            for pair in zip(word, word[1:]):
                counts[pair] = counts.get(pair, 0) + 1
        best = max(counts, key=lambda p: (counts[p], p))
        found.append(best)
        vocabulary["".join(best)] = len(vocabulary)
        for word in text:
            k = 0
            while k + 1 < len(word):
                if (word[k], word[k + 1]) == best:
                    word[k:k + 2] = ["".join(best)]
                k += 1
    vocabulary["<|endoftext|>"] = len(vocabulary)
    write(f"{name}/vocab.json", json.dumps(vocabulary))
    write(f"{name}/merges.txt", "#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in found))
    return folder


def encoded(folder, text):
    if not os.path.exists(f"{B}/tests/zerotrain_bpe"):
        raise Skip("this build lacks OpenBLAS or jansson: make deps")
    done = run(f"{B}/tests/zerotrain_bpe", folder, input=text)
    missing(done)
    assert done.returncode == 0, done
    numbers, back = done.stdout.split("\n", 1)
    assert back == text, (text, back)
    return [int(x) for x in numbers.split()]


def texts():
    yield "I'll say it's we've they're: don't 12345 x²  \t\n\n  end  "
    yield "Žluťoučký kůň pěl ďábelské ódy; ёлка №5 日本語のテキスト 👍🏽 \u00a0\u3000 naïve café"
    with open(GPL, encoding="utf-8") as f:
        yield f.read()
    draw = random.Random(4)
    for _ in range(20 if SLOW else 200):
        yield "".join(draw.choice("ab cd'st  \n\t12,.-ßé日👍\u2003") for _ in range(draw.randrange(1, 40)))
    yield "a" * 20000


@test
def tokens_are_those_of_a_second_implementation():
    folder = tokenizer()
    with open(f"{folder}/vocab.json", encoding="utf-8") as f:
        vocabulary = json.load(f)
    with open(f"{folder}/merges.txt", encoding="utf-8") as f:
        merges = [tuple(line.split()) for line in f.read().splitlines()[1:]]
    for text in texts():
        if len(text) < 15000 or text[0] != "a":
            assert encoded(folder, text) == encode(text, vocabulary, merges), text
    assert len(encoded(folder, "a" * 20000)) > 0


@test
def tokens_are_those_of_tokenizers():
    """PyPI's, with the same files. T_BPE names another folder with both."""
    python = os.environ.get("T_PYTHON", "/usr/bin/python3")
    program = """
import json, sys
from tokenizers import Tokenizer, models, pre_tokenizers
folder = sys.argv[1]
t = Tokenizer(models.BPE.from_file(f"{folder}/vocab.json", f"{folder}/merges.txt"))
t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
print(json.dumps([t.encode(text).ids for text in json.load(sys.stdin)]))
"""
    for folder in [tokenizer(), *filter(None, [os.environ.get("T_BPE")])]:
        all_texts = list(texts())
        done = run(python, "-c", program, folder, input=json.dumps(all_texts))
        if "No module named" in done.stderr:
            raise Skip("tokenizers is not installed (pip install tokenizers; T_PYTHON names a Python that has it)")
        assert done.returncode == 0, done
        for text, want in zip(all_texts, json.loads(done.stdout), strict=True):
            assert encoded(folder, text) == want, (folder, text)


@test
def a_model_trains_on_them_and_answers_in_text():
    folder = tokenizer()
    args = [*SIZES, "--data", GPL, "--bpe", folder, "--sample", 20, "--prompt", "The licensor's Žluťoučký"]
    out = output(1, *args, "--steps", 3)
    assert re.search(r"; \d+ tokens of text, \d+ for validation", out) and "\nThe licensor's Žluťoučký" in out, out
    assert losses(output(2, *args, "--steps", 3, "--tp", 1, "--pp", 2, "--micro", 1))[0] - losses(out)[0] < 1e-6


def documents(n=60, seed=5):
    draw = random.Random(seed)
    return [{"prompt": f"{draw.randrange(100)} + {draw.randrange(100)}", "completion": f" = {draw.randrange(200)}."} if k % 3
            else {"text": "so " * draw.randrange(1, 30)} for k in range(n)]


def lines(name, docs):
    return write(name, "".join(json.dumps(d) + "\n" for d in docs))


@test
def what_is_packed_and_padded_has_the_same_loss():
    """With all documents for validation but few: a place sees its document only, so it makes no difference what else is there."""
    path = lines("docs.jsonl", documents())
    told = {}
    for way in ("packed", "padded"):
        out = output(1, *SIZES, "--data", path, "--documents", way, "--steps", 1, "--lr", "1e-9")
        told[way] = re.search(r"(\d+) documents of (\d+) tokens in (\d+) windows, (\d+) for validation", out)
        assert told[way], out
    assert told["packed"][1] == told["padded"][1] == "60" and told["packed"][2] == told["padded"][2]
    assert int(told["packed"][3]) < 60 <= int(told["padded"][3])


@test
def losses_are_those_of_any_grid_and_stage():
    path = lines("docs.jsonl", documents())
    args = [*SIZES, "--data", path, "--steps", 3, "--lr", "1e-4"]
    exact = [*args, "--micro", 2, "--exact"]
    for way in ("packed",) if SLOW else ("packed", "padded"):
        want = losses(output(1, *exact, "--documents", way))
        for ranks, grid in [(2, ["--tp", 2]), (2, ["--pp", 2]), (4, ["--tp", 2, "--pp", 2, "--sequence-parallel"])]:
            assert losses(output(ranks, *exact, "--documents", way, *grid)) == want, (way, grid)
        two = [losses(output(2, *args, "--documents", way, "--stage", stage)) for stage in (0, 3)]
        assert two[0] == two[1]
        # The mean over all tokens that count, wherever they are: two ranks with half of the samples each.
        one = losses(output(1, *args, "--documents", way, "--batch", 8))
        assert all(abs(a - b) < 1e-6 for a, b in zip(one, two[0], strict=True)), (one, two)


@test
def tokens_that_count_may_be_few_or_none():
    """Long prompts fill whole windows; in 16 bits the weight of many tokens does not overflow."""
    docs = [{"prompt": "long prompt " * 12, "completion": "x"} for _ in range(40)]
    for ranks in (1, 2):
        out = output(ranks, *SIZES, "--data", lines("long.jsonl", docs), "--batch", 1, "--steps", 12, "--documents", "padded")
        # What has nothing that counts is no update.
        assert len(losses(out)) == 13 and min(losses(out)) > 1, out
    out = output(2, *SIZES, "--data", lines("docs.jsonl", documents()), "--steps", 6, "--precision", "fp16", "--batch", 8)
    assert len(losses(out)) == 7 and out.count("skipped") < 3, out


@test
def prompts_do_not_count():
    """A model learns completions that are always the same, and no prompts, which nobody could guess."""
    draw = random.Random(1)
    docs = [{"prompt": "".join(draw.choice("abcdefghij") for _ in range(8)), "completion": "=yes"} for _ in range(80)]
    args = [*SIZES, "--steps", 60, "--lr", "0.01", "--print", 60]
    completions = losses(output(1, *args, "--data", lines("yes.jsonl", docs)))[-1]
    whole = losses(output(1, *args, "--data", lines("all.jsonl", [{"text": d["prompt"] + d["completion"]} for d in docs])))[-1]
    assert completions < 0.1 and whole > 1, (completions, whole)


@test
def a_text_ends_where_documents_end():
    docs = [{"prompt": "q", "completion": "=yes"}] * 80
    args = [*SIZES, "--steps", 60, "--lr", "0.01", "--print", 60, "--sample", 25, "--temperature", 0, "--prompt", "q", "--report"]
    for cache in ("on", "off"):
        out = output(1, *args, "--data", lines("yes.jsonl", docs), "--cache", cache)
        assert "\n\nq=yes\n" in out and re.search(r"generating .* 5 tokens,", out), out


@test
def odd_lines_are_read():
    """A mark at the beginning, empty texts and prompts, and a character that is 0."""
    path = write("odd.jsonl", "\ufeff" + '{"text": ""}\n\n{"prompt": "", "completion": "a\\u0000b"}\n' + '{"text": "hello world hello"}\n' * 9)
    out = output(1, *SIZES, "--data", path, "--steps", 1, "--documents", "padded")
    assert "11 documents of 167 tokens in 10 windows, 1 for validation" in out, out


@test
def a_byte_has_its_own_token():
    """A key that is a space is no space of the text, which stands there as another character."""
    folder = tokenizer("spaced", 30)
    text = "so it is so"
    want = encoded(folder, text)
    with open(f"{folder}/vocab.json", encoding="utf-8") as f:
        vocabulary = json.load(f)
    write("spaced/vocab.json", json.dumps({**vocabulary, " ": len(vocabulary)}))
    assert encoded(folder, text) == want


@test
def a_checkpoint_goes_on_with_the_same_documents_only():
    folder, path = f"{FOLDER.name}/saved", lines("docs.jsonl", documents())
    output(1, *SIZES, "--data", path, "--steps", 2, "--save", folder)
    other = lines("other.jsonl", [{"text": d.get("text", d.get("prompt", "") + d.get("completion", ""))} for d in documents()])
    for args in (["--data", path, "--documents", "padded"], ["--data", path, "--end-token", 1], ["--data", other]):
        done = start(1, *SIZES, *args, "--steps", 3, "--resume", folder)
        assert done.returncode == 1 and "the checkpoint is of another run" in done.stderr, (args, done)
    assert "resumed after step 2" in output(1, *SIZES, "--data", path, "--steps", 3, "--resume", folder)


@test
def documents_end_with_a_token():
    parts = [b"abc" * k for k in range(1, 40)]
    path = write("ended", b"\n".join(parts) + b"\n")
    out = output(1, *SIZES, "--data", path, "--documents", "padded", "--end-token", 10, "--steps", 1)
    want = sum(-(-len(p) // 32) for p in parts)
    assert f"39 documents of {sum(map(len, parts)) + 39} tokens in {want} windows" in out, out


@test
def mistakes_are_told():
    good, folder = lines("good.jsonl", documents()), tokenizer()
    bad = [(lines("bad.jsonl", [{"text": "a"}, {"prompt": "b"}]), [], 1, "line 2: must be {\"text\": T}, or {\"prompt\": P, \"completion\": C}"),
           (write("broken.jsonl", '{"text": "a"}\n\n{"text"\n'), [], 1, "line 3:"),
           (lines("mute.jsonl", [{"prompt": "a" * 200, "completion": "b"}]), [], 1, "no token of the windows for training counts"),
           (lines("few.jsonl", [{"text": "a"}]), [], 1, "its 1 documents fill 1 windows of --context 32"),
           (f"{FOLDER.name}/none.jsonl", [], 1, "No such file"),
           (good, ["--context-parallel", 1], 2, "--context-parallel with documents"),
           (good, ["--documents", "stacked"], 2, "must be packed or padded"),
           (GPL, ["--end-token", 3], 2, "--end-token 3: needs --documents"),
           (GPL, ["--documents", "packed", "--end-token", 300], 2, "--end-token 300: must be below --vocab 256"),
           (GPL, ["--documents", "packed", "--tokens", "--vocab", 300], 2, "--documents: needs --end-token N with --tokens"),
           (write("latin", b"caf\xe9 " * 200), ["--bpe", folder], 1, "must be UTF-8 of bytes that --bpe has, and byte 3 is not"),
           (GPL, ["--bpe", FOLDER.name], 1, "vocab.json: No such file or directory"),
           (GPL, ["--bpe", folder, "--vocab", 300], 2, "--vocab 300: --bpe"),
           (good, ["--tokens", "--vocab", 300, "--end-token", 299], 2, "--tokens with --data"),
           (lines("deaf.jsonl", [{"text": "x" * 900}, {"prompt": "p" * (32 * 700 + 5), "completion": "x"}]), [], 1,
            "no token of the windows for validation counts"),
           (f"{FOLDER.name}", ["--tokens", "--vocab", 300], 1, "must be a file of tokens"),
           (folder + "/../folder.jsonl", [], 1, "Is a directory")]
    os.makedirs(f"{FOLDER.name}/folder.jsonl", exist_ok=True)
    for path, args, status, message in bad:
        done = start(1, *SIZES, "--data", path, "--steps", 1, *args)
        assert done.returncode == status and message in done.stderr and "step 1" not in done.stdout, (path, args, done)
    broken = tokenizer("broken", 3)
    for name, content, message in [("merges.txt", "x y z\n", "line 1: must be two tokens of vocab.json"), ("vocab.json", "[]", "must be an object"),
                                   ("vocab.json", '{"a": 1, "b": 1}', "two tokens have one number"),
                                   ("vocab.json", '{"a": 70000}', "numbers of tokens must be from 0 to 65535"),
                                   ("vocab.json", '{"x": 0, "y": 1, "xy": 2}', "and byte 0 is not")]:
        write(f"broken/{name}", content)
        if "byte 0" in message:
            write("broken/merges.txt", "x y\n")
        done = start(1, *SIZES, "--data", GPL, "--bpe", broken)
        assert done.returncode == 1 and message in done.stderr, (name, content, done)


main()
