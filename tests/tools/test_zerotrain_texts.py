"""Texts of zerotrain: the same with and without a cache and on every grid, what a full context does, how bytes are drawn,
texts between updates, mistakes."""
import array
import functools
import os
import re
import tempfile

from tap import B, SLOW, Skip, main, run, test

PROMPT = "The GNU General Public License is"
DATA = "/usr/share/common-licenses/GPL-3"
SMALL = ["--layers", 4, "--dim", 32, "--heads", 4, "--context", 64, "--batch", 4, "--steps", 40, "--print", 40,
         "--validate", 0]


def start(ranks, *args):
    if not os.path.exists(f"{B}/zerotrain"):
        raise Skip("this build has no zerotrain: it lacks OpenBLAS: make deps")
    return run(f"{B}/ringrun", "-n", str(ranks), f"{B}/zerotrain", "--data", DATA, *map(str, [*SMALL, *args]))


def output(ranks, *args):
    done = start(ranks, *args)
    assert done.returncode == 0, done
    return done.stdout


def text(ranks, *args):
    """What comes after training."""
    return output(ranks, *args).split("\n\n", 1)[1]


GREEDY = ["--exact", "--temperature", 0]
FOLDER = tempfile.TemporaryDirectory()


@functools.cache
def learnt():
    """Options of a model that was trained until its likeliest bytes are not all spaces, once for all tests."""
    args = ["--layers", 2, "--dim", 64, "--batch", 8, "--steps", 400, "--lr", "0.01", "--exact"]
    output(1, *args, "--save", FOLDER.name, "--save-every", 400)
    return [*args, "--resume", FOLDER.name, "--prompt", PROMPT, "--sample"]


@test
def a_cache_changes_no_byte_on_any_grid():
    """A thousand bytes, so that the context is full many times."""
    n = 100 if SLOW else 1000
    for drawn in ([],) if SLOW else (["--temperature", 0], []):
        want = text(1, *learnt(), n, *drawn, "--cache", "off")
        assert len(want) == len(PROMPT) + n + 1 and len({*want}) > 6, want
        grids = [(1, []), (2, ["--tp", 2]), (4, ["--tp", 4]), (4, ["--tp", 2, "--sequence-parallel", "--pp", 2])]
        for ranks, grid in grids[::3] if SLOW else grids:
            assert text(ranks, *learnt(), n, *drawn, *grid) == want, (drawn, grid)


@test
def a_full_context_begins_again_with_its_last_half():
    """So a text goes on as from a prompt of that half."""
    few = [*learnt(), 80, "--temperature", 0, "--prompt"]
    whole = text(1, *few, PROMPT)[:-1]
    assert whole.startswith(PROMPT) and len(whole) == len(PROMPT) + 80, whole
    # 64 places are full with byte number 64; before number 65 is drawn, the text begins 32 bytes back.
    again = text(1, *few, whole[65 - 32:65])
    assert again[:32 + 30] == whole[65 - 32:65 + 30], (whole, again)
    # And not as from more of it.
    other = text(1, *few, whole[65 - 48:65])
    assert other[48:48 + 30] != again[32:32 + 30], (other, again)


@test
def bytes_are_drawn_as_options_say():
    greedy, usual = text(1, *learnt(), 120, "--temperature", 0), text(1, *learnt(), 120)
    assert text(1, *learnt(), 120, "--top-k", 1) == text(1, *learnt(), 120, "--top-p", "1e-9") == greedy != usual
    assert text(1, *learnt(), 120, "--temperature", "1e-5") == greedy
    assert text(1, *learnt(), 120, "--top-k", 256) == text(1, *learnt(), 120, "--top-p", 1) == usual
    few = text(1, *learnt(), 120, "--top-k", 3)
    assert few not in (greedy, usual)
    # Hot texts have more different bytes.
    assert len({*text(1, *learnt(), 120, "--temperature", 50)}) > len({*usual}) > 3, usual
    assert text(1, *learnt(), 120, "--sample-seed", 2) != usual == text(1, *learnt(), 120, "--sample-seed", 1)


@test
def texts_grow_side_by_side():
    one = text(1, "--exact", "--sample", 100)
    several = text(2, "--exact", "--sample", 100, "--samples", 3, "--tp", 2)
    found = re.fullmatch(r"text 1:\n(.*)\n\ntext 2:\n(.*)\n\ntext 3:\n(.*)\n", several, re.S)
    assert found, several
    assert found[1] + "\n" == one and len({*found.groups()}) == 3, (one, several)


@test
def texts_between_updates_leave_training_as_it_is():
    """Losses have the same digits, and the last text is that of a run without others."""
    grids = [[], ["--tp", 2], ["--pp", 2, "--micro", 2]]
    for stage in (3,) if SLOW else range(4):
        # All of them in check-long.
        for grid in grids if "T_LONG" in os.environ else [grids[stage % 3]]:
            args = [*GREEDY, "--stage", stage, "--print", 1, "--sample", 70, *grid]
            plain, mixed = output(2, *args), output(2, *args, "--sample-every", 10)
            losses = [[x.split(" tokens/s")[0] for x in out.splitlines() if re.match(r"step \d+ ", x)] for out in (plain, mixed)]
            assert losses[0] == losses[1] and len(losses[0]) == 41, (stage, grid, losses)
            assert mixed.endswith(plain.split("\n\n", 1)[1]) and mixed.count("\n\n") >= 4, (stage, grid, mixed)


@test
def a_report_has_the_cache_by_its_formula():
    for ranks, grid, share in [(1, [], 1), (2, ["--tp", 2], 2), (2, ["--pp", 2], 2)]:
        out = output(ranks, "--sample", 50, "--samples", 2, "--report", *grid)
        found = re.search(r"^  keys and values +([\d.]+) MB", out, re.M)
        assert found and abs(float(found[1]) - 2 * 4 * 64 * 32 * 4 * 2 / share / 1e6) < 0.006, out
        assert re.search(r"^  generating +[\d.]+ s: 100 tokens, \d+ tokens/s$", out, re.M), out
    assert "keys and values" not in output(1, "--report")


def token_file(values, name="tokens"):
    with open(f"{FOLDER.name}/{name}", "wb") as f:
        array.array("H", list(values)).tofile(f)
    return f.name


@test
def tokens_of_16_bits_are_trained_on_like_bytes():
    """Bytes that are written as tokens have their losses; of more values texts are numbers, on any grid."""
    with open(DATA, "rb") as f:
        wide = token_file(f.read())
    few = ["--steps", 5, "--print", 1]
    steps = [re.findall(r"loss (\S+)", output(2, *few, *more)) for more in ([], ["--data", wide, "--tokens", "--vocab", 256])]
    assert steps[0] == steps[1] and len(steps[0]) == 5, steps
    many = token_file((i * i % 971 for i in range(20000)), "many")
    args = ["--data", many, "--tokens", "--vocab", 1000, "--exact", "--sample", 20, "--prompt", "1 4 970"]
    assert 6.8 < float(re.search(r"step 1 loss (\S+)", output(1, *args))[1]) < 7, "the logarithm of 1000"
    found = {text(ranks, *args, *grid) for ranks, grid in [(1, []), (2, ["--tp", 2]), (1, ["--cache", "off"])]}
    assert len(found) == 1, found
    numbers = [int(x) for x in found.pop().split()]
    assert numbers[:3] == [1, 4, 970] and len(numbers) == 23 and all(0 <= x < 1000 for x in numbers), numbers
    with open(token_file([1], "odd"), "ab") as f:
        f.write(b"x")
    for status, more, message in [(1, ["--vocab", 900, "--prompt", "1"], "token number 30 is 900, and --vocab 900 has those below it"),
                                  (1, ["--data", f.name], "must be a file of tokens of two bytes"),
                                  (2, ["--prompt", "1 1000"], "must be numbers below --vocab 1000"),
                                  (2, ["--prompt", "one"], "must be numbers below --vocab 1000")]:
        done = start(1, *args, *more)
        assert done.returncode == status and message in done.stderr and "step 1" not in done.stdout, (more, done)
    done = start(3, *args, "--tp", 3, "--heads", 3, "--dim", 30)
    assert done.returncode == 2 and "must divide --heads 3 and the 1000 values of a token" in done.stderr, done


@test
def mistakes_are_refused():
    for args, message in [(["--vocab", 300], "--vocab: needs --tokens"),
                          (["--tokens"], "--tokens: needs --vocab V"),
                          (["--sample-every", 5], "--sample-every: needs --sample N"),
                          (["--samples", 2], "--samples: needs --sample N"),
                          (["--prompt", "x"], "--prompt: needs --sample N"),
                          (["--sample", 5, "--prompt", ""], "--prompt : must have a token to begin with"),
                          (["--sample", 5, "--temperature", -1], "--temperature -1: must be a number from 0"),
                          (["--sample", 5, "--top-p", 0], "--top-p 0: must be a number above 0, up to 1"),
                          (["--sample", 5, "--top-p", "1.5"], "--top-p 1.5: must be a number above 0, up to 1"),
                          (["--sample", 5, "--top-k", -1], "--top-k -1: must be a number from 0"),
                          (["--sample", 5, "--samples", 0], "--samples 0: must be a number from 1"),
                          (["--sample", 5, "--cache", "maybe"], "--cache maybe: must be on or off")]:
        done = start(1, *args)
        assert done.returncode == 2 and message in done.stderr, (args, done)


main()
