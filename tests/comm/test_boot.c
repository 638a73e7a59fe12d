/* The meeting point: strangers, ranks that contradict each other, ranks that are late or go
 * away. */
#include "tests/lib/t.h"
#include "comm/bootstrap/boot.h"
#include "comm/bootstrap/wire.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static int connect_to(const struct kolo_id *id)
{
	struct ko_boot_id layout;
	struct sockaddr_in to = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	memcpy(&layout, id, sizeof(layout));
	to.sin_port = htons(layout.port);
	inet_pton(AF_INET, layout.host, &to.sin_addr);
	CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0);
	return fd;
}

static struct ko_boot_hello hello_of(const struct kolo_id *id, int rank, int nranks)
{
	struct ko_boot_hello h = { .magic = KO_BOOT_MAGIC,
				   .version = KO_BOOT_VERSION,
				   .size = sizeof(h) };
	struct ko_boot_id layout;

	memcpy(&layout, id, sizeof(layout));
	memcpy(h.secret, layout.secret, sizeof(h.secret));
	h.entry.rank = rank;
	h.entry.nranks = nranks;
	h.entry.limits = (struct ko_limits){ .slot_len = 4096, .nslots = 4 };
	ko_place_get(&h.entry.place);
	return h;
}

/* The server speaks first. */
static int hear_greeting(int fd)
{
	struct ko_boot_greeting g;

	return recv(fd, &g, sizeof(g), MSG_WAITALL) == sizeof(g) && g.magic == KO_BOOT_MAGIC;
}

/* What the server answers to these bytes: its code, or 1 when it hangs up. */
static int say(const struct kolo_id *id, const void *bytes, size_t len)
{
	struct ko_boot_reply reply;
	int fd = connect_to(id);
	ssize_t got;

	CHECK(hear_greeting(fd));
	CHECK(send(fd, bytes, len, MSG_NOSIGNAL) == (ssize_t)len);
	got = recv(fd, &reply, sizeof(reply), MSG_WAITALL);
	close(fd);
	return got == sizeof(reply) ? reply.code : 1;
}

static void joins(struct t_rank *r)
{
	struct kolo_comm *c = t_comm(r);

	CHECK(kolo_barrier(c, NULL) == 0);
	kolo_comm_destroy(c);
}

static void strangers_come(struct t_rank *r)
{
	uint64_t seed = 5, noise[128];
	struct ko_boot_hello h;
	int silent[20];

	for (int i = 0; i < 20; i++)
		silent[i] = connect_to(&r->id); /* says nothing, and stays */
	for (int i = 0; i < 200; i++) {
		for (size_t k = 0; k < ARRAY_LEN(noise); k++)
			noise[k] = t_random(&seed);
		CHECK(say(&r->id, noise, sizeof(noise)) == 1);
	}
	h = hello_of(&r->id, 0, 3);
	h.secret[7] ^= 1;
	CHECK(say(&r->id, &h, sizeof(h)) == 1);
	h = hello_of(&r->id, 0, 3);
	h.version = 99;
	CHECK(say(&r->id, &h, sizeof(h)) == KOLO_ENOTSUP);
	h = hello_of(&r->id, 3, 3);
	CHECK(say(&r->id, &h, sizeof(h)) == 1);
	close(connect_to(&r->id));
	joins(r);
	for (int i = 0; i < 20; i++)
		close(silent[i]);
}

static void with_strangers(struct t_rank *r)
{
	if (r->rank == 0)
		strangers_come(r);
	else
		joins(r);
}

static void strangers_do_no_harm(void **state)
{
	(void)state;
	t_processes(3, with_strangers, NULL);
}

static void the_parent_that_forks_the_ranks_may_make_the_id(void **state)
{
	struct t_rank t = { .nranks = 3 };
	int pids[3];

	(void)state;
	if (t_is_slow())
		skip(); /* sanitizers' locks don't survive the fork of a process with threads */
	CHECK(kolo_id_create(&t.id) == 0);
	for (t.rank = 0; t.rank < 3; t.rank++) {
		pids[t.rank] = fork();
		CHECK(pids[t.rank] >= 0);
		if (pids[t.rank] == 0) {
			joins(&t);
			exit(0);
		}
	}
	t_wait(3, pids, -1);
}

/* The call fails soon, with this code and word. */
static void fails_soon(const struct kolo_comm_attr *attr, int code, const char *word)
{
	int64_t before = t_now_ms();
	struct kolo_comm *c;

	CHECK(kolo_comm_create(attr, &c) == code && c == NULL);
	CHECK(strstr(kolo_last_error(), word) != NULL);
	CHECK(t_now_ms() - before < 5000);
}

static void twins(struct t_rank *r)
{
	struct kolo_comm_attr attr = { .id = &r->id, .rank = 1, .nranks = 3 };

	fails_soon(&attr, KOLO_EINVAL, "two processes say they are rank 1");
}

/* The rank that contradicts nobody comes after the two that do. It hears of them, too. */
static void late_beside_twins(struct t_rank *r)
{
	struct kolo_comm_attr attr = { .id = &r->id, .rank = r->rank > 0, .nranks = 3 };

	if (r->rank == 0)
		usleep(200000);
	fails_soon(&attr, KOLO_EINVAL, "two processes say they are rank 1");
}

static void sizes_differ(struct t_rank *r)
{
	struct kolo_comm_attr attr = { .id = &r->id, .rank = r->rank, .nranks = 3 + r->rank };

	fails_soon(&attr, KOLO_EINVAL, "says the job has");
}

static void one_is_missing(struct t_rank *r)
{
	struct kolo_comm_attr attr = {
		.id = &r->id, .rank = 2 * r->rank, .nranks = 4, .timeout_s = 3
	};

	fails_soon(&attr, KOLO_ETIMEDOUT, "missing: 1, 3");
}

static void one_gives_up(struct t_rank *r)
{
	struct kolo_comm_attr attr = { .id = &r->id, .rank = r->rank, .nranks = 3 };
	struct ko_boot_hello h = hello_of(&r->id, 1, 3);
	int fd;

	if (r->rank == 0) {
		fails_soon(&attr, KOLO_EPEER, "rank 1");
		return;
	}
	fd = connect_to(&r->id);
	CHECK(send(fd, &h, sizeof(h), 0) == sizeof(h));
	usleep(300000);
	close(fd);
}

static void ranks_that_contradict_each_other_fail_at_once(void **state)
{
	(void)state;
	t_processes(2, twins, NULL);
	t_processes(3, late_beside_twins, NULL);
	t_processes(2, sizes_differ, NULL);
}

static void missing_ranks_are_named_after_the_timeout(void **state)
{
	(void)state;
	t_processes(2, one_is_missing, NULL);
}

static void a_rank_that_ends_while_joining_is_named(void **state)
{
	(void)state;
	t_processes(2, one_gives_up, NULL);
}

static void an_id_serves_once(void **state)
{
	struct kolo_id id;
	struct kolo_comm *c = NULL;
	struct kolo_comm_attr attr = { .id = &id, .nranks = 1 };

	(void)state;
	CHECK(kolo_id_create(&id) == 0 && kolo_comm_create(&attr, &c) == 0);
	kolo_comm_destroy(c);
	usleep(100000);
	fails_soon(&attr, KOLO_EUNREACH, "used already");
}

/* Rank 0 serves the point again for each communicator; a fast rank may be there before it. */
static void meets_again_and_again(struct t_rank *r)
{
	char rank[8], job[32];
	struct kolo_comm *c;

	snprintf(rank, sizeof(rank), "%d", r->rank);
	snprintf(job, sizeof(job), "test_boot %d", getppid());
	CHECK(setenv("KOLO_RANK", rank, 1) == 0 && setenv("KOLO_NRANKS", "3", 1) == 0);
	CHECK(setenv("KOLO_JOB", job, 1) == 0);
	for (int i = 0; i < 10; i++) {
		CHECK(kolo_comm_create(NULL, &c) == 0);
		CHECK(kolo_comm_rank(c) == r->rank && kolo_comm_nranks(c) == 3);
		kolo_comm_destroy(c);
	}
}

static void a_job_may_make_many_communicators(void **state)
{
	(void)state;
	t_processes(3, meets_again_and_again, NULL);
}

/* Rank 1 takes part in the rendezvous and then never connects to rank 0. */
static void dies_half_way(struct t_rank *r)
{
	struct kolo_comm_attr attr = {
		.id = &r->id, .rank = r->rank, .nranks = 2, .timeout_s = 10
	};
	struct ko_boot_hello h = hello_of(&r->id, 1, 2);
	struct ko_boot_reply reply;
	int fd;

	if (r->rank == 0) {
		fails_soon(&attr, KOLO_EPEER, "rank 1");
		return;
	}
	/* The name of a socket that nobody listens to. */
	h.entry.socket_len = 6;
	memcpy(h.entry.socket, "\0zzzzz", 6);
	fd = connect_to(&r->id);
	CHECK(hear_greeting(fd));
	CHECK(send(fd, &h, sizeof(h), 0) == sizeof(h));
	CHECK(recv(fd, &reply, sizeof(reply), MSG_WAITALL) == sizeof(reply) && reply.code == 0);
	close(fd);
}

static void a_rank_that_ends_while_connecting_is_named(void **state)
{
	(void)state;
	t_processes(2, dies_half_way, NULL);
}

/* Another program on the id's port: what it sends is not believed. */
/* One that greets as Kolo does, or with the right tag too, which everyone can hear, but not the
 * proof. */
static void serve_as_impostor(int listener, uint64_t tag)
{
	struct ko_boot_greeting greeting = { .magic = KO_BOOT_MAGIC, .tag = tag };
	struct ko_boot_reply reply = { .magic = KO_BOOT_MAGIC };
	struct ko_boot_hello hello;
	int fd = accept(listener, NULL, NULL);

	send(fd, &greeting, sizeof(greeting), 0);
	if (recv(fd, &hello, sizeof(hello), MSG_WAITALL) == sizeof(hello)) {
		send(fd, &reply, sizeof(reply), MSG_NOSIGNAL);
		memset(&hello.entry, 0xff, sizeof(hello.entry));
		send(fd, &hello.entry, sizeof(hello.entry), MSG_NOSIGNAL);
	}
	_exit(0);
}

static void meet_impostor(uint64_t its_tag)
{
	struct sockaddr_in name = { .sin_family = AF_INET,
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct kolo_comm_attr attr = { .nranks = 1 };
	int listener = socket(AF_INET, SOCK_STREAM, 0), pid, status;
	socklen_t len = sizeof(name);
	struct ko_boot_id layout = {
		.magic = KO_BOOT_ID_MAGIC, .host = "127.0.0.1", .proof = "real", .tag = 7
	};
	struct kolo_id id;

	CHECK(bind(listener, (struct sockaddr *)&name, sizeof(name)) == 0 &&
	      listen(listener, 1) == 0);
	CHECK(getsockname(listener, (struct sockaddr *)&name, &len) == 0);
	layout.port = ntohs(name.sin_port);
	memcpy(&id, &layout, sizeof(layout));
	attr.id = &id;
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0)
		serve_as_impostor(listener, its_tag);
	fails_soon(&attr, KOLO_EUNREACH, "did not make this id");
	waitpid(pid, &status, 0);
	close(listener);
}

static void an_impostor_is_not_believed(void **state)
{
	(void)state;
	meet_impostor(6);
	meet_impostor(7);
}

/* In both ways of being dead: before its parent has waited for it, and after. */
static void outlives_the_id(struct t_rank *r)
{
	struct kolo_comm_attr attr = { .rank = 0, .nranks = 2 };
	struct kolo_id id;
	int fds[2], pid, child;

	/* The maker dies; a child of it, which holds all its sockets, lives on. */
	CHECK(pipe(fds) == 0);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		CHECK(kolo_id_create(&id) == 0);
		child = fork();
		if (child == 0) {
			usleep(3000000);
			_exit(0);
		}
		CHECK(write(fds[1], &id, sizeof(id)) == sizeof(id));
		usleep(300000);
		_exit(0);
	}
	CHECK(read(fds[0], &id, sizeof(id)) == sizeof(id));
	attr.id = &id;
	if (r->rank == 1)
		waitpid(pid, NULL, 0);
	fails_soon(&attr, KOLO_EPEER, "ended before all ranks had joined");
	if (r->rank == 0)
		waitpid(pid, NULL, 0);
}

static void a_maker_that_dies_is_noticed_though_its_child_lives(void **state)
{
	(void)state;
	if (t_is_slow())
		skip(); /* as above: forks a process with a thread */
	t_processes(2, outlives_the_id, NULL);
}

/* Hosts are told apart by `machine`, whatever order their names have. */
static void a_table_s_ring_groups_the_ranks_of_a_host(void **state)
{
	static const char hosts[] = "cbabcca";
	static const int expected[] = { 0, 4, 5, 1, 3, 2, 6 };
	struct ko_entry table[ARRAY_LEN(expected)] = { 0 };
	struct ko_ring ring;

	(void)state;
	for (int r = 0; r < (int)ARRAY_LEN(table); r++) {
		table[r].rank = r;
		table[r].place.machine[0] = hosts[r];
	}
	CHECK(ko_boot_ring(table, ARRAY_LEN(table), &ring) == 0 && ring.nranks == ARRAY_LEN(table));
	for (int k = 0; k < ring.nranks; k++)
		CHECK(ring.ranks[k] == expected[k] && ko_ring_place(&ring, expected[k]) == k);
	ko_ring_free(&ring);
	CHECK(ko_boot_ring(table, 1, &ring) == 0 && !ring.ranks);
}

/* ---- At an address --------------------------------------------------------------------------- */

/* All ranks make the id. Rank 0 comes last. */
static void meet_at(struct t_rank *r)
{
	struct kolo_comm_attr attr = { .rank = r->rank, .nranks = r->nranks, .timeout_s = 20 };
	struct kolo_id id;
	struct kolo_comm *c;
	int sum;

	CHECK(kolo_id_at(r->arg, &id) == 0);
	attr.id = &id;
	for (int turn = 0; turn < 3; turn++) {
		sum = r->rank;
		usleep(r->rank == 0 ? 50000 : 0);
		CHECK(kolo_comm_create(&attr, &c) == 0);
		CHECK(kolo_all_reduce(c, &sum, &sum, 1, KOLO_I32, KOLO_SUM, NULL) == 0);
		CHECK(sum == r->nranks * (r->nranks - 1) / 2);
		kolo_comm_destroy(c);
	}
	attr.nranks++;
	attr.timeout_s = 1;
	CHECK(kolo_comm_create(&attr, &c) == KOLO_ETIMEDOUT);
}

static int free_port(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&at, len) == 0);
	CHECK(getsockname(fd, (struct sockaddr *)&at, &len) == 0);
	close(fd);
	return ntohs(at.sin_port);
}

static void ranks_meet_at_an_address_that_all_know(void **state)
{
	static const char *const wrong[] = {
		"", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:70000", "::1:50", ":50"
	};
	struct kolo_id id;
	char at[200];

	(void)state;
	snprintf(at, sizeof(at), "127.0.0.1:%d", free_port());
	t_processes(3, meet_at, at);
	for (size_t k = 0; k < ARRAY_LEN(wrong); k++)
		CHECK(kolo_id_at(wrong[k], &id) == KOLO_EINVAL &&
		      strstr(kolo_last_error(), "HOST:PORT"));
	snprintf(at, sizeof(at), "%0120d:50", 1);
	CHECK(kolo_id_at(at, &id) == KOLO_EINVAL && strstr(kolo_last_error(), "119"));
	CHECK(kolo_id_at(NULL, &id) == KOLO_EINVAL && kolo_id_at("a:1", NULL) == KOLO_EINVAL);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(ranks_meet_at_an_address_that_all_know),
	cmocka_unit_test(a_table_s_ring_groups_the_ranks_of_a_host),
	cmocka_unit_test(strangers_do_no_harm),
	cmocka_unit_test(the_parent_that_forks_the_ranks_may_make_the_id),
	cmocka_unit_test(ranks_that_contradict_each_other_fail_at_once),
	cmocka_unit_test(missing_ranks_are_named_after_the_timeout),
	cmocka_unit_test(a_rank_that_ends_while_joining_is_named),
	cmocka_unit_test(an_id_serves_once),
	cmocka_unit_test(a_job_may_make_many_communicators),
	cmocka_unit_test(an_impostor_is_not_believed),
	cmocka_unit_test(a_maker_that_dies_is_noticed_though_its_child_lives),
	cmocka_unit_test(a_rank_that_ends_while_connecting_is_named),
};

T_MAIN(tests)
