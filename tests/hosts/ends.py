"""How a job on three hosts may end: what happens, where and when, drawn at random; and what must be true afterwards."""
import itertools
import os
import queue
import random
import shutil
import signal
import tempfile
import threading
import time
from dataclasses import dataclass

from cluster import MPICH, OPENMPI, cluster
from tap import B, SLOW

RINGRUN = os.path.abspath(f"{B}/ringrun")
RINGBENCH = os.path.abspath(f"{B}/ringbench")
LAUNCHERS = {"ssh": (), "pdsh": (), "slurm": (), "openmpi": ("--launcher_args", " ".join(OPENMPI[1:])),
             "mpich": ("--launcher_args", " ".join(MPICH[1:]))}
EACH = 2  # ranks of each host
TOGETHER = 4  # cases that run at a time

# What ranks do. Those of the last one may only be killed.
PROGRAMS = {"bench": (RINGBENCH, "-b", "8M", "-e", "8M", "-i", "100000"),
            "sleep": ("sh", "-c", "setsid sleep 1000 & exec sleep 1000"),
            "print": ("sh", "-c", 'setsid yes "below $RANK" & exec yes "rank $RANK"'),
            "stubborn": ("sh", "-c", 'trap "" INT TERM; while :; do sleep 1000; done')}

NO_ANSWER = "have not answered in 60 s: "

WHAT = ("rank", "agent", "above", "session", "first", "SIGINT", "SIGTERM", "cut")
WHERE = ("own", "other")  # the first ringrun's host, or another
WHEN = ("starting", "running", "printing")
NOWHERE = ("first", "SIGINT", "SIGTERM")  # is the same for both


def hostfile(folder, *slots):
    """With so many slots for each host; its name."""
    with open(f"{folder}/hosts{len(slots)}", "w") as f:
        f.write("".join(f"host{k} slots={n}\n" for k, n in enumerate(slots)))
    return f.name


def files_left(folder):
    return [name for name in os.listdir(folder) if name.startswith(".ringrun")]


def left(c, folder, ours=lambda line: True):
    """What is left of jobs: processes for which `ours` holds, shared memory, ports, files with a secret."""
    found = [f"{h.name}: {line}" for h in c.hosts for _, line in h.processes() if ours(line)]
    found += [f"{h.name}: {what}" for h in c.hosts for what in h.shm() + h.listening()]
    return found + files_left(folder)


def parent(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return int(f.read().rpartition(")")[2].split()[1])
    except OSError:  # it has just ended
        return 0


class Job:
    """A job that is started from host0. What it prints is read; only errors are kept."""

    def __init__(self, c, folder, options, command, forced=False, env=None):
        self.c, self.forced, self.errors, self.printed = c, forced, b"", 0
        self.first = c.hosts[0].start(RINGRUN, *options, *command, cwd=folder, text=False, env=env)
        self.readers = [threading.Thread(target=read) for read in (self.read_output, self.read_errors)]
        for reader in self.readers:
            reader.start()

    def read_output(self):
        while chunk := os.read(self.first.stdout.fileno(), 1 << 16):
            self.printed += len(chunk)
            time.sleep(0.002)  # ranks that print without end leave something of the processors

    def read_errors(self):
        while chunk := os.read(self.first.stderr.fileno(), 1 << 16):
            self.errors += chunk

    def keeper(self, k):
        """The agent that keeps the ranks of host k; 0: it is not there yet."""
        here = k == 0 and not self.forced
        lines = dict(self.c.hosts[k].processes())
        own = {pid for pid, line in lines.items() if line.startswith(RINGRUN) and (here or "--agent" in line)}
        return min((pid for pid in own if parent(pid) in own), default=0)  # on its own host the first ringrun has more children

    def above(self, k):
        keeper = self.keeper(k)
        return parent(keeper) if keeper else 0

    def session(self, k):
        """sshd's process that has started the agent."""
        above = self.above(k)
        return parent(above) if above else 0

    def ranks(self, k):
        """{rank: pid} of those that run the command."""
        keeper, found = self.keeper(k), {}
        for pid, _ in self.c.hosts[k].processes() if keeper else ():
            try:
                if parent(pid) == keeper:
                    found[int(self.c.hosts[k].environ(pid)["RANK"])] = pid
            except (OSError, KeyError):
                pass
        return found

    def run_all(self):
        return all(len(self.ranks(k)) == EACH for k in range(len(self.c.hosts)))

    def end(self):
        """Kills it, if it has not ended."""
        self.first.kill()
        self.first.wait()
        for reader in self.readers:
            reader.join()


# ---- Cases --------------------------------------------------------------------------------------------------------------


@dataclass
class Case:
    number: int
    what: str
    where: str
    when: str
    launcher: str
    forced: bool  # --force_multi: the first ringrun's own host has an agent that the launcher has started
    program: str
    k: int  # the host
    rank: int
    delay: float  # seconds from the moment of `when` on


def combinations():
    wheres = {what: ("own", ) if what in NOWHERE else WHERE for what in WHAT}
    return [(what, where, when) for what in WHAT for where in wheres[what] for when in WHEN]


def is_spread(drawn, cuts):
    """Is each value of each dimension there at least twice, and no more cuts?"""
    counts = [[c[i] for c in drawn].count(value) for i, values in enumerate((WHAT, WHERE, WHEN)) for value in values]
    return min(counts) >= 2 and sum(c[0] == "cut" for c in drawn) == cuts and ("cut", "own") in {c[:2] for c in drawn}


def draw(rng, n, cuts):
    """So many combinations; all of them if n is large enough."""
    all_of_them = combinations()
    if n >= len(all_of_them):
        rng.shuffle(all_of_them)
        return list(itertools.islice(itertools.cycle(all_of_them), n))
    while True:
        drawn = rng.sample(all_of_them, n)
        # Who is cut off during the start is noticed after a minute.
        if is_spread(drawn, cuts) and not any(c[0] == "cut" and c[2] == "starting" for c in drawn):
            return drawn


def make_case(rng, number, what, where, when, launchers):
    forced = where == "own" and what in ("above", "session") or rng.random() < 0.25
    program = "print" if when == "printing" else rng.choice(("bench", "bench", "sleep", "stubborn"))
    if what == "SIGTERM" and program == "stubborn":
        program = "sleep"  # ringrun leaves it to the ranks whether they end
    launcher = "ssh" if what in ("session", "cut") else rng.choice(launchers)
    k = 0 if where == "own" else rng.choice((1, 2))
    delay = rng.uniform(0, 0.4 if when == "starting" else 0.3)
    return Case(number, what, where, when, launcher, forced, program, k, EACH * k + rng.randrange(EACH), delay)


def cases(seed, n, cuts):
    rng = random.Random(seed)
    tools = {"pdsh": "pdsh", "openmpi": OPENMPI[0], "mpich": MPICH[0]}
    launchers = ["ssh"] * 3 + [name for name, tool in tools.items() if shutil.which(tool)]
    return [make_case(rng, number, *drawn, launchers) for number, drawn in enumerate(draw(rng, n, cuts))]


# ---- One case -------------------------------------------------------------------------------------------------------------


def wait_for(happened, job, seconds, what):
    end = time.monotonic() + seconds
    while not (found := happened()):
        assert job.first.poll() is None, f"ringrun has ended with {job.first.returncode} before {what}"
        assert time.monotonic() < end, f"{what}: not in {seconds} s"
        time.sleep(0.002)
    return found


def strike(case, job):
    """Makes it happen."""
    if case.what == "cut":
        job.c.hosts[case.k].cut()
    elif case.what in NOWHERE:
        job.first.send_signal({"first": signal.SIGKILL, "SIGINT": signal.SIGINT, "SIGTERM": signal.SIGTERM}[case.what])
    elif case.what == "rank":
        os.kill(wait_for(lambda: job.ranks(case.k).get(case.rank, 0), job, 10, "the rank"), signal.SIGKILL)
    else:
        find = {"agent": job.keeper, "above": job.above, "session": job.session}[case.what]
        os.kill(wait_for(lambda: find(case.k), job, 10, "the " + case.what), signal.SIGKILL)


def expected(case):
    """(exit statuses, a list of texts, one of which must be in the errors)."""
    host = f"host{case.k}"
    others = [f"host{k}" for k in range(3) if k != case.k] if case.what == "cut" and case.k == 0 else [host]
    number = {"SIGINT": signal.SIGINT, "SIGTERM": signal.SIGTERM}.get(case.what, 0)
    if case.what == "rank":
        return [137], [f"rank {case.rank} on {host} was killed by signal 9"]
    if case.what == "first":
        return [-signal.SIGKILL], [""]
    if number and case.program == "stubborn" and case.when != "starting":
        return [137], ["was killed by signal 9"]
    if number:
        return [128 + number, -number, 137], [f"by signal {number}", ""]
    places = ("the agent on ", "ranks on ", "ssh to ", NO_ANSWER)
    if case.what == "cut" and case.when == "starting" and case.program == "bench":  # a rank may be told before by its kernel
        return [125, 3], [place + name for name in others for place in (*places, "on ")]
    return [125], [place + name for name in others for place in places]


def is_ours(line):
    return not line.startswith("sshd")


def check_end(case, job, folder, began):
    """Waits until nothing is left, and looks at what the first ringrun has said."""
    cut, slow = case.what == "cut", 2 if SLOW else 1
    limit = (20 if cut else 5) * slow
    # While ssh authenticates, it has no limit of its own: then the start's counts, which is 60 s.
    last = 66 * slow if cut and case.when == "starting" else limit
    while job.first.poll() is None or (rest := left(job.c, folder, is_ours if cut else lambda line: True)):
        assert time.monotonic() < began + last, f"left after {last} s: {rest if job.first.poll() is not None else 'ringrun'}"
        time.sleep(0.02)
    took = time.monotonic() - began
    for reader in job.readers:
        reader.join()
    codes, texts = expected(case)
    errors = job.errors.decode(errors="replace")
    assert took <= limit or NO_ANSWER in errors, f"{took:.1f} s, not {limit}"
    assert job.first.returncode in codes, f"status {job.first.returncode}, not {codes}"
    assert any(text in errors for text in texts), f"none of {texts}"


def run_case(case, c, folder, env=None):
    """None, or the text of what is wrong."""
    options = ("--hostfile", hostfile(folder, *[EACH] * 3), "--launcher", case.launcher, *LAUNCHERS[case.launcher],
               *(["--force_multi"] if case.forced else []))
    job = Job(c, folder, options, PROGRAMS[case.program], case.forced, env)
    try:
        if case.when == "running":
            wait_for(job.run_all, job, 20, "all ranks run")
        if case.when == "printing":
            wait_for(lambda: job.printed > 0, job, 20, "something is printed")
        time.sleep(case.delay)
        strike(case, job)
        check_end(case, job, folder, time.monotonic())
        return None
    except AssertionError as wrong:
        return f"{case}: {wrong}; status: {job.first.poll()}; errors: {job.errors.decode(errors='replace')}"
    finally:
        job.end()


def work(waiting, wrong):
    """Takes cases until none is left, on one cluster as long as the hosts are whole."""
    while not waiting.empty():
        with cluster(3) as c, tempfile.TemporaryDirectory() as folder:
            whole = True
            while whole:
                try:
                    case = waiting.get_nowait()
                except queue.Empty:
                    return
                text = run_case(case, c, folder)
                whole = case.what != "cut" and not text
                wrong += [text] if text else []


def run_cases(chosen):
    """Returns what is wrong, a text for each case that failed."""
    waiting, wrong = queue.Queue(), []
    for case in sorted(chosen, key=lambda case: case.what != "cut"):  # these first: they take long, and only wait
        waiting.put(case)
    workers = [threading.Thread(target=work, args=(waiting, wrong)) for _ in range(TOGETHER)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return wrong
