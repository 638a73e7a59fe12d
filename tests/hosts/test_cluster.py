"""The hosts that cluster.py makes on one machine: they have what hosts of a cluster have, and leave nothing."""
import os
import signal
import subprocess
import sys
import tempfile
import time

from cluster import MPICH, OPENMPI, PDSH, cluster, until, where
from tap import finish, main, run, test

NAMES = ["host0", "host1", "host2", "host3"]


def check_names(done, names):
    assert done.returncode == 0 and sorted(done.stdout.split()) == names, done


@test
def each_host_reaches_each_with_ssh():
    with cluster(4) as c:
        for host in c.hosts:
            results = finish([host.start("ssh", to.name, "hostname") for to in c.hosts])
            assert results == [(0, f"{name}\n", "") for name in NAMES], results


@test
def one_host_serves_many_at_once():
    with cluster(2) as c:
        results = finish([c.hosts[0].start("ssh", "host1", "hostname") for _ in range(20)])
        assert results == [(0, "host1\n", "")] * 20, results


@test
def ssh_may_have_another_port():
    with cluster(2, port=2222) as c:
        check_names(c.hosts[0].run("ssh", "-p", "2222", "host1", "hostname"), ["host1"])
        assert c.hosts[0].run("ssh", "host1", "hostname").returncode == 255 and c.hosts[1].listening() == []


@test
def a_host_has_processes_memory_and_an_interface_of_its_own():
    with cluster(2) as c:
        one, other = c.hosts
        one.must("touch", "/dev/shm/mine", "/run/mine")
        assert one.shm() == ["mine"] and other.shm() == [] and not os.path.exists("/run/mine"), (one.shm(), other.shm())
        check_names(one.run("ls", "/sys/class/net"), ["eth0", "lo"])
        check_names(one.run("ssh", "host1", "cd && pwd && echo $HOME && ls -A"), ["/run/home"] * 2)
        seen = other.run("sh", "-c", "hostname; cat /proc/1/comm /proc/self/comm").stdout
        assert seen == "host1\nsleep\ncat\n", seen


@test
def processes_are_seen_from_outside():
    listen = "import os, socket; s = socket.create_server(('', 5000)); print(os.getpid(), flush=True); s.accept()"
    with cluster(2) as c:
        host = c.hosts[1]
        process = host.start(sys.executable, "-c", listen, env={"KOLO_RANK": "3"})
        assert int(process.stdout.readline()) < 1000 and host.find("socket") == [process.pid], host.processes()
        assert host.environ(process.pid)["KOLO_RANK"] == "3" and host.listening() == [5000], host.listening()
        far = c.hosts[0].start("ssh", "host1", "echo begun; exec sleep 60")
        assert far.stdout.readline() == "begun\n", host.processes()
        until(lambda: len(host.find("sleep 60")) == 1, 5, "no sleep")  # a process that executes has no command line for a moment
        assert c.hosts[0].listening() == [] and len(c.hosts[0].processes()) == 1, c.hosts[0].processes()
        far.kill()
        os.kill(host.find("sleep 60")[0], signal.SIGKILL)
        process.kill()
        finish([far, process])
        until(lambda: not host.processes(), 5, "something is left")


@test
def signals_reach_what_was_started():
    with cluster(1) as c:
        process = c.hosts[0].start("sh", "-c", "trap 'echo caught; exit 3' INT; echo begun; while :; do sleep 0.05; done")
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        assert finish([process]) == [(3, "caught\n", "")]
        try:
            c.hosts[0].run("sleep", "60", timeout=0.2)
            assert False, "no limit"
        except subprocess.TimeoutExpired:
            assert c.hosts[0].processes() == []


@test
def processes_without_a_parent_are_taken_in():
    with cluster(1) as c:
        host = c.hosts[0]
        def sleeps():  # those that have ended too, unless somebody has taken them in; the host's first process is one
            return host.run("sh", "-c", "cat /proc/[0-9]*/stat").stdout.count("(sleep)")

        host.must("sh", "-c", "(sleep 2 &) ; (sleep 2.1 &)", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(lambda: sleeps() == 3, 5, "no sleep")
        until(lambda: sleeps() == 1, 10, "zombies")


@test
def a_host_may_lack_a_folder():
    with cluster(2) as c, tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/here", "w"):
            pass
        check_names(c.hosts[1].run("ls", cwd=folder), ["here"])
        c.hosts[1].hide(folder)
        check_names(c.hosts[1].run("ls", folder), [])
        check_names(c.hosts[0].run("ls", folder), ["here"])


@test
def a_host_that_is_cut_off_is_reached_again_once_mended():
    ssh = ("ssh", "-o", "ConnectTimeout=2")
    with cluster(3) as c:
        def reached():
            ways = [(0, 1), (1, 0), (1, 1), (0, 2)]
            return [code for code, _, _ in finish([c.hosts[a].start(*ssh, f"host{b}", "true") for a, b in ways])]

        c.hosts[1].cut()
        cut = reached()
        c.hosts[1].mend()
        mended = reached()
        assert cut == [255, 255, 0, 0] and mended == [0] * 4, (cut, mended)


@test
def pdsh_starts_processes_on_them():
    where("pdsh")
    with cluster(4) as c:
        check_names(c.hosts[0].run(*PDSH, "-N", "-w", "host[0-3]", "hostname"), NAMES)


@test
def open_mpi_starts_processes_on_them():
    where("mpirun.openmpi")
    with cluster(3) as c:
        check_names(c.hosts[0].run(*OPENMPI, "--host", "host1:2,host2:2", "-n", "4", "hostname"), 2 * ["host1"] + 2 * ["host2"])


@test
def mpich_starts_processes_on_them():
    where("mpiexec.mpich")
    with cluster(3) as c:
        check_names(c.hosts[0].run(*MPICH, "-hosts", "host1,host2", "-n", "4", "hostname"), 2 * ["host1"] + 2 * ["host2"])


@test
def slurm_starts_processes_on_them():
    with cluster(3) as c:
        variables = c.slurm(2)
        check_names(c.hosts[0].run("srun", "-N2", "-n2", "hostname", env=variables), ["host0", "host1"])
        check_names(c.hosts[1].run("srun", "-N2", "-n6", "cat", env=variables, input="said\n"), ["said"] * 6)
        assert all(host.listening() == [] for host in c.hosts)
        until(lambda: not any(host.processes() for host in c.hosts), 5, "something is left")


def lives(pid):
    """Not so what has ended, even if its parent does not know."""
    try:
        with open(f"/proc/{pid}/cmdline") as f:
            return f.read() != ""
    except OSError:
        return False


def machine():
    """What the rig could have changed."""
    with open("/proc/self/mountinfo") as f:
        mounts = f.read()
    folders = [sorted(os.listdir(path)) for path in ("/run", "/root", "/etc/ssh")]
    return mounts, folders, [os.stat(path).st_mtime for path in ("/etc/hosts", "/etc/shadow", "/etc/ssh")], os.uname().nodename


@test
def they_leave_nothing():
    before = machine()
    with cluster(2) as c:
        for host in c.hosts:
            for _ in range(3):
                host.start("setsid", "sleep", "60")
        c.hosts[0].start("ssh", "host1", "sleep 60")
        until(lambda: len(c.hosts[1].find("sleep 60")) == 4, 5, "no sleep")
        pids = [c.switch.pid] + [pid for host in c.hosts for pid in [*host.own, *dict(host.processes())]]
    assert len(pids) > 12 and not any(map(lives, pids)), pids
    assert machine() == before, (before, machine())


@test
def they_end_when_their_maker_is_killed():
    script = ("from cluster import cluster\nimport os, signal\nwith cluster(2) as c:\n"
              "    p = c.hosts[0].start('sh', '-c', 'trap \"\" HUP INT TERM; echo begun; sleep 60')\n    p.stdout.readline()\n"
              "    print(c.switch.pid, p.pid, *[pid for host in c.hosts for pid in host.own], flush=True)\n"
              "    os.kill(os.getpid(), signal.SIGKILL)\n")
    with cluster(1):
        pass  # if that is skipped, so is this
    done = run(sys.executable, "-B", "-c", script, env={**os.environ, "PYTHONPATH": ":".join(sys.path)})
    assert done.returncode == -signal.SIGKILL and len(done.stdout.split()) == 6, done
    until(lambda: not any(map(lives, done.stdout.split())), 5, f"{done} has left something")


@test
def eight_are_made_in_time():
    began = time.monotonic()
    with cluster(8) as c:
        check_names(c.hosts[7].run("ssh", "host0", "hostname"), ["host0"])
    assert time.monotonic() - began < 15 # with everything else that runs meanwhile; 1 s alone


main()
