"""Ranks that find rank 0 by a name, when the name server is busy."""
import os

from cluster import cluster
from tap import B, main, test

RANK = os.path.abspath(f"{B}/tests/host_rank")
# Answers 10.77.0.1 to every question for an IPv4 address, and to others that there is none; but the first questions, as many as
# its argument says, with "server failure".
SERVER = """
import socket, sys
s, left = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), int(sys.argv[1])
s.bind(("127.0.0.1", 53))
print("up", flush=True)
while True:
    question, asker = s.recvfrom(512)
    end = question.index(b"\\0", 12) + 5
    v4, fails, left = question[end - 3] == 1, left > 0, left - 1
    head = question[:2] + (b"\\x81\\x82" if fails else b"\\x81\\x80") + b"\\0\\1" + (b"\\0\\1" if v4 and not fails else b"\\0\\0") + b"\\0" * 4
    answer = b"\\xc0\\x0c\\0\\1\\0\\1\\0\\0\\0\\1\\0\\4\\x0a\\x4d\\0\\1" if v4 and not fails else b""
    s.sendto(head + question[12:end] + answer, asker)
"""


def join_by_name(failures):
    with cluster(1) as c:
        host = c.hosts[0]
        host.write("/run/rig/resolv.conf", "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
        host.must("mount", "--bind", "/run/rig/resolv.conf", "/etc/resolv.conf")
        server = host.start("python3", "-c", SERVER, str(failures))
        assert server.stdout.readline() == "up\n", server.communicate()
        rank = host.run(RANK, "sweep", env={"KOLO_ROOT": "rank0.test:5000", "KOLO_RANK": "0", "KOLO_NRANKS": "1"})
        server.kill()
        return rank


@test
def a_name_server_that_fails_for_a_moment_is_asked_again():
    done = join_by_name(2)
    assert done.returncode == 0 and "no communicator" not in done.stdout, done


@test
def a_name_server_that_always_fails_is_named_as_the_reason():
    done = join_by_name(1000)
    assert "the name 'rank0.test' has no address: Temporary failure" in done.stdout, done


if __name__ == "__main__":
    main()
