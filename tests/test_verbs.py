"""RDMA without an RDMA card: links through verbs in virtual machines (rig.py). `make check-verbs` shows what they measured."""
import os
import re
import socket
import statistics
from functools import cache

import rig
from tap import B, SLOW, Skip, main, run, test

PROGRAMS = [os.path.abspath(f"{B}/{p}") for p in ("tests/test_links", "tests/host_rank", "ringrun", "ringbench")]

# perftest beside ringbench, three times, each of the two kept from the other's time.
BESIDE = """
peer() { # NAME COMMAND...: the client's output is the step's
	name=$1
	shift
	"$@" -d rxe0 -x 1 -F >/tmp/server 2>&1 &
	sleep 1
	step "$name" "$@" -d rxe0 -x 1 -F 10.9.0.1
	wait
}
for k in 1 2 3; do
	peer bw$k ib_write_bw -b -s 1048576 -n 30
	step large$k ringrun -n 2 ringbench all_reduce -t i32 -b 1M -e 4M -f 4 -i 10 --transport verbs
	peer lat$k ib_send_lat -s 8 -n 1000
	step small$k ringrun -n 2 ringbench all_reduce -b 8 -e 8 -i 500 --transport verbs
done
"""

ALONE = """
step links test_links
step rails env KOLO_VERBS_QPS=3 test_links
for n in 2 3 4 8; do
	step sweep$n ringrun -n $n host_rank sweep verbs 4
done
step unasked ringrun -n 2 ringbench barrier -i 1
step wrong_device env KOLO_VERBS_DEVICE=mlx5_7 ringrun -n 2 host_rank join verbs
step right_device env KOLO_VERBS_DEVICE=rxe0:1 ringrun -n 2 host_rank join verbs
step wrong_gid env KOLO_VERBS_GID_INDEX=200 ringrun -n 2 host_rank join verbs
step unlocked sh -c 'ulimit -l 64; exec /rig/setpriv --reuid=65534 --clear-groups ringrun -n 2 host_rank join verbs'
""" + BESIDE

# Two hosts, two ranks on each. Both run the same steps; the ranks wait for each other at their meeting point.
PAIR = """
export KOLO_ROOT=10.9.0.1:5000 KOLO_NRANKS=4 KOLO_TIMEOUT=60 KOLO_NET=verbs KOLO_VERBS_TIMEOUT=14
case $host in
a) first=0 second=1 ;;
b) first=2 second=3 ;;
esac
both() {
	KOLO_RANK=$first "$@" >/tmp/first 2>&1 &
	KOLO_RANK=$second "$@" >/tmp/second 2>&1
	status=$?
	wait $! || status=$?
	cat /tmp/first /tmp/second
	return $status
}
step sweep both host_rank sweep "" 4
/rig/tc qdisc add dev eth0 root netem loss 1% delay 5ms
step lossy both host_rank sweep "" 11
step counted /rig/tc -s qdisc show dev eth0
/rig/tc qdisc del dev eth0 root
# The kernel's driver keeps the ranks from ending for 50 s when packets are lost for good: they are not waited for.
export KOLO_ROOT=10.9.0.1:5001
wait_for() {
	until grep -q "$1" /tmp/first && grep -q "$1" /tmp/second; do
		sleep 0.1
	done
}
lose_link() {
	echo >/tmp/first
	echo >/tmp/second
	both host_rank loop &
	wait_for runs
	[ $host = a ] || ip link set eth0 down
	wait_for ' at '
	cat /tmp/first /tmp/second
}
step down lose_link
"""


def machines(scenario, *hosts):
    if SLOW:
        raise Skip("the virtual machines run what the plain flavour built")
    if "verbs   yes" not in run("make", "-s", "report").stdout:
        raise Skip("verbs are not built in (package libibverbs-dev): make deps")
    built = rig.build(PROGRAMS, {"scenario": scenario})
    running = [rig.boot(built, "scenario", *host) for host in hosts]
    try:
        return [rig.steps(machine, 200) for machine in running]
    finally:
        for machine in running:
            machine.kill()


@cache
def alone():
    return machines(ALONE, ("alone", 2))[0]


@cache
def pair():
    ends = socket.socketpair()
    return machines(PAIR, *((host, 1, end) for host, end in zip("ab", ends)))


def said(step):
    status, out = alone()[step]
    return status, out


def hashes(out):
    assert "differs" not in out, out
    return sorted(re.findall(r"hash (\w+) .*traffic ok", out))


def sweep_here(n, step):
    """What shared memory gives, on this machine."""
    here = run(PROGRAMS[2], "-n", str(n), PROGRAMS[1], "sweep", "shm", str(step))
    assert here.returncode == 0, here
    return hashes(here.stdout)


@test
def the_conformance_suite_passes_over_verbs():
    for step in ("links", "rails"):
        status, out = said(step)
        assert status == 0 and "verbs: a_stream_between_threads_arrives_whole" in out and "verbs is left out" not in out, out


@test
def results_have_the_bits_of_shared_memory():
    for n in (2, 3, 4, 8):
        status, out = said(f"sweep{n}")
        assert status == 0 and out.count("to_next verbs") == n and hashes(out) == sweep_here(n, 4), out


@test
def software_devices_are_for_those_who_ask():
    status, out = said("unasked")
    assert status == 0 and "transport shm" in out, out


@test
def wrong_settings_are_refused_with_what_there_is():
    for step, words in (("wrong_device", ("KOLO_VERBS_DEVICE=mlx5_7", "rxe0:1")), ("wrong_gid", ("GID", "200"))):
        status, out = said(step)
        assert "no communicator" in out and all(word in out for word in words), (status, out)
    assert "joined" in said("right_device")[1], said("right_device")


@test
def memory_that_may_not_be_locked_is_named():
    status, out = said("unlocked")
    assert "ulimit -l" in out, (status, out)


def measured(step, pattern):
    status, out = said(step)
    found = re.search(pattern, out)
    assert status == 0 and found, out
    return float(found[1])


@test
def speed_is_measured_beside_perftest():
    """Not a test of speed: software emulation, and a machine that others use."""
    median = statistics.median
    line = r"\n +{} .*?sum +- +([\d.]+) "
    for size, label in ((1048576, "1 MiB"), (4194304, "4 MiB")):
        ours = median(size / measured(f"large{k}", line.format(size)) for k in (1, 2, 3)) # bytes per us: MB/s
        theirs = median(measured(f"bw{k}", r"\n 1048576 +\d+ +[\d.]+ +([\d.]+)") for k in (1, 2, 3)) * 2**20 / 1e6 / 2
        print(f"# all_reduce of {label}, i32, 2 ranks: busbw {ours:.0f} MB/s; ib_write_bw -b {theirs:.0f} MB/s each way; "
              f"{ours / theirs:.2f} of it", flush=True)
    ours = median(measured(f"small{k}", line.format(8)) for k in (1, 2, 3))
    theirs = median(measured(f"lat{k}", r"\n 8 +\d+ +[\d.]+ +[\d.]+ +([\d.]+)") for k in (1, 2, 3))
    print(f"# all_reduce of 8 bytes, 2 ranks: {ours:.1f} us; ib_send_lat {theirs:.1f} us; {ours / theirs:.2f} times that", flush=True)


@test
def two_hosts_give_the_bits_of_one():
    results = [machine["sweep"] for machine in pair()]
    out = "".join(out for _, out in results)
    assert all(status == 0 for status, _ in results) and hashes(out) == sweep_here(4, 4), results
    assert out.count("to_next verbs") == 2 and out.count("to_next shm") == 2, out


@test
def so_they_do_when_packets_are_lost_and_late():
    results = [machine["lossy"] for machine in pair()]
    assert all(status == 0 for status, _ in results), results
    assert hashes("".join(out for _, out in results)) == sweep_here(4, 11), results
    for machine in pair():
        dropped = re.search(r"dropped (\d+)", machine["counted"][1])
        assert dropped and int(dropped[1]) > 0, machine["counted"]


@test
def a_link_that_goes_down_is_told_on_all_ranks():
    for machine in pair():
        status, out = machine["down"]
        failures = re.findall(r"rank (\d) at [\d.]+: (.*)", out)
        assert status == 0 and len(failures) == 2, out
        for rank, why in failures:
            assert "rank " in why and ("host" in why or " on " in why) and "no error" not in why, out


main()
