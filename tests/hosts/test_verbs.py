"""RDMA without an RDMA card: links through verbs in virtual machines (rig.py). `make check-verbs` shows what they measured."""
import os
import re
import socket
import statistics

import rig
from tap import B, SLOW, Skip, main, run, test

PROGRAMS = [os.path.abspath(f"{B}/{p}") for p in ("tests/test_links", "tests/host_rank", "ringrun", "ringbench", "tests/host_pairs", "tests/host_gpu")]

# `make check-verbs` and `make check-long` measure, too.
ROUNDS = int(os.environ.get("T_ROUNDS", "T_LONG" in os.environ))

# perftest beside ringbench, each of the two kept from the other's time. i32: the emulation is slow with floats.
BESIDE = f"""
peer() {{ # NAME COMMAND...: the client's output is the step's
	name=$1
	shift
	"$@" -d rxe0 -x 1 -F >/tmp/server 2>&1 &
	sleep 1
	step "$name" "$@" -d rxe0 -x 1 -F 10.9.0.1
	wait
}}
for k in $(seq {ROUNDS}); do
	peer bw$k ib_write_bw -b -s 1048576 -n 30
	for memory in host alloc; do
		step $memory$k ringrun -n 2 ringbench all_reduce all_gather -t i32 -b 1M -e 4M -f 4 -i 10 \\
			--transport verbs --memory $memory
	done
	peer lat$k ib_send_lat -s 8 -n 1000
	step small$k ringrun -n 2 ringbench all_reduce -b 8 -e 8 -i 500 --transport verbs
done
"""

ALONE = """
step links test_links
step rails env KOLO_VERBS_QPS=3 test_links
ip link add eth1 type dummy
ip address add 10.9.1.1/24 dev eth1
ip link set eth1 mtu 4200 up
/rig/rdma link add rxe1 type rxe netdev eth1
sleep 1
step cards env KOLO_VERBS_DEVICE=rxe0,rxe1 KOLO_VERBS_QPS=2 test_links
step striped env KOLO_VERBS_DEVICE=rxe0,rxe1 KOLO_LOG=info ringrun -n 3 host_rank sweep verbs 4
step lent ringrun -n 3 ringbench all -b 64K -e 1M -f 16 -i 3 -w 1 --transport verbs --memory alloc
for n in 2 3 4 8; do
	step sweep$n ringrun -n $n host_rank sweep verbs 4
done
step nodes ringrun -n 2 ringbench all_reduce -v -b 8 -e 1M -f 8 -i 2 -w 1
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
empty() { # others write there, too
	echo >/tmp/first
	echo >/tmp/second
}
both() {
	empty
	KOLO_RANK=$first "$@" >>/tmp/first 2>&1 &
	KOLO_RANK=$second "$@" >>/tmp/second 2>&1
	status=$?
	wait $! || status=$?
	cat /tmp/first /tmp/second
	return $status
}
step sweep both env KOLO_ORDER=ring host_rank sweep "" 4
step pairs both host_pairs all
step gpus both env KOLO_SLOT_LEN=16384 KOLO_LOG=info host_gpu same
step cards both env KOLO_SLOT_LEN=16384 KOLO_LOG=info T_CARDS=1 host_gpu same
step liars both env T_CARDS=lie host_gpu same
step miswriters both env T_CARDS=miswrite host_gpu same
step random both host_pairs random
# A rail for each of a host's two ranks, with a network and a card of its own.
ip address add 10.9.1.$((first / 2 + 1))/24 dev eth1
ip link set eth1 mtu 4200 up
/rig/rdma link add rxe1 type rxe netdev eth1
until grep -qh ffff:0a09:01 /sys/class/infiniband/rxe1/ports/1/gids/*; do # its IPv4 address has come
	sleep 0.1
done
carried() { # bytes that each card sent, and packets that came to it a second time or out of turn
	cat /sys/class/net/eth[01]/statistics/tx_bytes
	for card in rxe0 rxe1; do
		(cd /sys/class/infiniband/$card/ports/1/hw_counters && echo $(($(cat duplicate_request) + $(cat out_of_seq_request))))
	done
}
step before carried
for times in 2 8; do
	step two_rails$times both env KOLO_ORDER=grid KOLO_VERBS_DEVICE=rxe0,rxe1 ringbench all_reduce -t i32 --in-place \
		-b 2M -e 2M -i $times -w 0
	step after$times carried
done
/rig/rdma link delete rxe1
ip link set eth1 down
/rig/tc qdisc add dev eth0 root netem loss 1% delay 5ms
step lossy both env KOLO_ORDER=ring host_rank sweep "" 11
step counted /rig/tc -s qdisc show dev eth0
/rig/tc qdisc del dev eth0 root
# To this driver 7 retries are endless.
export KOLO_VERBS_RETRIES=6
# It keeps the ranks from ending for 50 s when packets are lost for good: they are not waited for.
export KOLO_ROOT=10.9.0.1:5001
wait_for() {
	until grep -q "$1" /tmp/first && grep -q "$1" /tmp/second; do
		sleep 0.1
	done
}
lose() { # COMMAND...: what happens to host b, or its link
	empty
	both host_rank loop >/dev/null &
	wait_for runs
	cut -d' ' -f1 /proc/uptime
	[ $host = a ] || "$@"
	wait_for ' at '
	cat /tmp/first /tmp/second
}
kill_second() {
	for p in $(pidof host_rank); do
		! grep -q 'KOLO_RANK=3' "/proc/$p/environ" || kill -9 "$p"
	done
	echo 'rank 3 at 0: killed' >>/tmp/second
}
step killed lose kill_second
export KOLO_ROOT=10.9.0.1:5003
step cut lose /rig/tc qdisc add dev eth0 root netem loss 100%
[ $host = a ] || /rig/tc qdisc del dev eth0 root
killall -9 host_rank
export KOLO_ROOT=10.9.0.1:5002
step down lose ip link set eth0 down
"""


def machines(scenario, *hosts):
    if SLOW:
        raise Skip("the virtual machines run what the plain flavour built")
    if "verbs   yes" not in run("make", "-s", "report").stdout:
        raise Skip("verbs are not built in (package libibverbs-dev): make deps")
    built = rig.build(PROGRAMS, {"scenario": scenario})
    running = []
    try:
        running.extend(rig.boot(built, "scenario", *host) for host in hosts)
        return [rig.steps(machine, 200) for machine in running]
    finally:
        for machine in running:
            machine.kill()


def once(function):
    """What it gave, or raised, the first time."""
    results = []

    def call():
        if not results:
            try:
                results.append((function(), None))
            except Exception as why:
                results.append((None, why))
        value, why = results[0]
        if why:
            raise why
        return value
    return call


@once
def alone():
    return machines(ALONE, ("alone", 2))[0]


@once
def pair():
    wires = [socket.socketpair() for _ in range(2)]
    return machines(PAIR, *((host, 1, *(wire[k] for wire in wires)) for k, host in enumerate("ab")))


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
    for step in ("links", "rails", "cards"):
        status, out = said(step)
        assert status == 0 and "verbs: a_stream_between_threads_arrives_whole" in out and "verbs is left out" not in out, out


@test
def results_have_the_bits_of_shared_memory():
    for n in (2, 3, 4, 8):
        status, out = said(f"sweep{n}")
        assert status == 0 and out.count("to_next verbs") == n and hashes(out) == sweep_here(n, 4), out


@test
def slots_between_nodes_are_placed_by_measurement():
    status, out = said("nodes")
    assert status == 0 and re.search("slots between NUMA nodes lie near the (sender|receiver)", out), out
    status, out = said("links")
    assert "OK ] slots_lie_near_the_end_that_was_said" in out, out


@test
def several_ports_share_the_bytes():
    status, out = said("striped")
    assert status == 0 and hashes(out) == sweep_here(3, 4), out
    assert "verbs through rxe0:1,rxe1:1" in out, out


@test
def memory_from_kolo_alloc_is_sent_from_where_it_is():
    status, out = said("lent")
    assert status == 0 and "0 wrong elements; traffic as the model says" in out and "will be copied" not in out, out


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
    found = re.search(pattern, out, re.S)
    assert status == 0 and found, out
    return float(found[1])


def over_rounds(ratio):
    """Of each round: the median, the least and the largest."""
    ratios = [ratio(k) for k in range(1, ROUNDS + 1)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


@test
def speed_is_measured_beside_perftest():
    """Not a test of speed: software emulation, and a machine that others use."""
    if not ROUNDS:
        raise Skip("make check-verbs and make check-long measure")
    line = r"# {} .*?\n +{} [^\n]*? - +([\d.]+) "
    print(f"# rounds: {ROUNDS}. Medians, least and largest", flush=True)

    def wire(k): # bytes per us each way
        return measured(f"bw{k}", r"\n 1048576 +\d+ +[\d.]+ +([\d.]+)") * 2**20 / 1e6 / 2
    for name, share in (("all_reduce", 1), ("all_gather", 0.5)): # of the size go each way
        for memory in ("host", "alloc"):
            for size in (1048576, 4194304):
                rates = over_rounds(lambda k: share * size / measured(f"{memory}{k}", line.format(name, size)) / wire(k))
                print(f"# {name} of {size} bytes, i32, 2 ranks, --memory {memory}: busbw / ib_write_bw -b: {rates}", flush=True)
    times = over_rounds(lambda k: measured(f"small{k}", line.format("all_reduce", 8)) /
                        measured(f"lat{k}", r"\n 8 +\d+ +[\d.]+ +[\d.]+ +([\d.]+)"))
    print(f"# all_reduce of 8 bytes, f32, 2 ranks: time / ib_send_lat: {times}", flush=True)


@test
def two_hosts_give_the_bits_of_one():
    results = [machine["sweep"] for machine in pair()]
    out = "".join(out for _, out in results)
    assert all(status == 0 for status, _ in results) and hashes(out) == sweep_here(4, 4), results
    assert out.count("to_next verbs") == 2 and out.count("to_next shm") == 2, out


@test
def slots_of_gpus_go_from_where_they_are_to_where_they_belong():
    for step in ("gpus", "cards"):
        results = [machine[step] for machine in pair()]
        out = "".join(out for _, out in results)
        assert all(status == 0 for status, _ in results) and out.count(": 0 wrong, traffic ok") == 4, results
        assert "will be copied" not in out and out.count("are in host memory: ") == (12 if step == "gpus" else 0), out # ring and rails


@test
def a_card_that_reads_something_else_than_the_gpu_is_found():
    for step in ("liars", "miswriters"):
        results = [machine[step] for machine in pair()]
        out = "".join(out for _, out in results)
        assert all(status == 3 for status, _ in results) and "keep cards away from GPU memory (KOLO_CUDA_DMABUF=0)" in out, results
        assert out.count("connect: ") == 4, out


@test
def messages_between_pairs_arrive():
    for step in ("pairs", "random"):
        results = [machine[step] for machine in pair()]
        assert all(status == 0 for status, _ in results) and "".join(out for _, out in results).count(": right") == 4, results


@test
def so_they_do_when_packets_are_lost_and_late():
    results = [machine["lossy"] for machine in pair()]
    assert all(status == 0 for status, _ in results), results
    assert hashes("".join(out for _, out in results)) == sweep_here(4, 11), results
    for machine in pair():
        dropped = re.search(r"dropped (\d+)", machine["counted"][1])
        assert dropped and int(dropped[1]) > 0, machine["counted"]


@test
def each_card_carries_the_half_of_its_rail():
    half = 6 * (2 << 20) // 2 # 2(K/L)(H-1)/H, of the last six operations
    hosts = []
    for machine in pair():
        assert machine["two_rails2"][0] == machine["two_rails8"][0] == 0, machine
        counts = [[int(n) for n in machine[step][1].split()] for step in ("before", "after2", "after8")]
        hosts.append([(c - b) - (b - a) for a, b, c in zip(*counts)])
    for mine, others in (hosts, reversed(hosts)):
        for sent, repeated in zip(mine[:2], others[2:]):
            print(f"# a card of a host sent {sent} bytes for {half}, {repeated} of its packets again", flush=True)
            # Where an answer is late, Soft-RoCE sends again what waits for it. Those bytes are not of the rail's share.
            again = repeated * 4200
            assert sent - min(again, 0) >= half * 0.95 and sent - max(again, 0) <= half * 1.1, (hosts, half)


def told(machine, step):
    """How its two ranks told of the failure, and how long after they had begun to run."""
    out = machine[step][1]
    began = float(re.search(r"^([\d.]+)$", out, re.M)[1])
    failures = re.findall(r"rank \d at ([\d.]+): (.*)", out)
    assert len(failures) == 2, out
    assert all(why == "killed" or ("rank " in why and " on " in why and "no error" not in why) for _, why in failures), out
    return [why for _, why in failures], max(float(at) for at, _ in failures) - began


@test
def a_killed_rank_of_another_host_is_named():
    for machine in pair():
        why, seconds = told(machine, "killed")
        assert all(w == "killed" or ("rank 3" in w and "died" in w) for w in why), why
        assert seconds < 10, (why, seconds)


@test
def a_host_that_is_heard_no_more_is_told_by_its_edge():
    a, b = pair()
    why, seconds = told(b, "cut")
    assert all("on its edge " in w and "verbs (rxe0:1)" in w and "does not answer" in w for w in why), why
    assert seconds < 15, (why, seconds) # those who are silent are noticed after 20 s
    why, seconds = told(a, "cut")
    assert seconds < 40, (why, seconds)


@test
def a_link_that_goes_down_is_told_on_all_ranks():
    for machine in pair():
        why, seconds = told(machine, "down")
        assert seconds < 40, (why, seconds)


main()
