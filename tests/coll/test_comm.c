/* Communicators: making, splitting, asking, ending; arguments that are wrong; the environment. */
#include "tests/lib/t.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fenv.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Making ---------------------------------------------------------------------------------- */

/* A sum over the communicator that only comes out right when everyone is in it. */
static void check_works(struct kolo_comm *c)
{
	int n = kolo_comm_nranks(c), x = 1 << kolo_comm_rank(c);

	CHECK(kolo_all_reduce(c, &x, &x, 1, KOLO_I32, KOLO_SUM, NULL) == 0);
	CHECK(x == (1 << n) - 1);
}

static void knows_itself(struct t_rank *r)
{
	struct kolo_comm *c = t_comm(r);

	CHECK(kolo_comm_rank(c) == r->rank && kolo_comm_nranks(c) == r->nranks);
	CHECK(kolo_comm_local_ranks(c) == r->nranks && kolo_comm_status(c) == 0);
	check_works(c);
	kolo_comm_destroy(c);
}

static void processes_and_threads_join(void **state)
{
	(void)state;
	for (int n = 1; n <= 5; n++) {
		t_processes(n, knows_itself, NULL);
		t_threads(n, knows_itself, NULL);
	}
}

static void many_at_once(struct t_rank *r)
{
	struct kolo_comm *first = t_comm(r), *more[20];

	for (int i = 0; i < 20; i++)
		CHECK(kolo_comm_split(first, 0, 0, &more[i]) == 0);
	for (int i = 0; i < 20; i++)
		check_works(more[i]);
	for (int i = 0; i < 20; i += 2)
		kolo_comm_destroy(more[i]);
	for (int i = 1; i < 20; i += 2)
		check_works(more[i]);
	for (int i = 1; i < 20; i += 2)
		kolo_comm_destroy(more[i]);
	check_works(first);
	kolo_comm_destroy(first);
}

static void a_process_may_have_many_communicators(void **state)
{
	(void)state;
	t_processes(3, many_at_once, NULL);
	t_threads(2, many_at_once, NULL);
}

static int open_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	CHECK(d != NULL);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void leaves_nothing(struct t_rank *r)
{
	struct kolo_comm *first = t_comm(r), *c;
	int before = open_descriptors();

	for (int i = 0; i < 10; i++) {
		CHECK(kolo_comm_split(first, 0, 0, &c) == 0);
		check_works(c);
		kolo_comm_destroy(c);
	}
	CHECK(open_descriptors() == before);
	kolo_comm_destroy(first);
}

static void descriptors_are_given_back(void **state)
{
	(void)state;
	t_processes(3, leaves_nothing, NULL);
}

/* Bytes of shared memory that this process maps, and of heap that it has. */
static size_t mapped_by_kolo(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	unsigned long begin, end;
	char line[512];
	size_t sum = 0;

	CHECK(f != NULL);
	while (fgets(line, sizeof(line), f))
		if (strstr(line, "memfd:kolo") && sscanf(line, "%lx-%lx", &begin, &end) == 2)
			sum += end - begin;
	fclose(f);
	return sum;
}

static void expects_times(struct t_rank *r)
{
	static const char *const made_of_messages[] = { "barrier", "all_to_all", "gather",
							"scatter", "send_recv" };
	struct kolo_comm *c = t_comm_with(r, (struct kolo_comm_attr){ 0 });
	struct kolo_algorithm row;
	int rows = 0;

	for (; kolo_algorithm_get(c, rows, &row) == 0; rows++) {
		double first = kolo_algorithm_time(c, &row, row.min_bytes);
		bool has = true;

		for (size_t k = 0; k < ARRAY_LEN(made_of_messages); k++)
			has = has && strcmp(row.collective, made_of_messages[k]) != 0;
		CHECK(has ? first > 0 : first < 0);
		CHECK(!has || kolo_algorithm_time(c, &row, row.min_bytes + (1 << 20)) > first);
	}
	CHECK(rows > 0);
	row.name = "magic";
	CHECK(kolo_algorithm_time(c, &row, 8) < 0);
	row = (struct kolo_algorithm){ .collective = "all_reduce",
				       .name = "grid",
				       .memory = "any" };
	CHECK(kolo_algorithm_time(c, &row, 8) < 0); /* there are no groups */
	CHECK(kolo_algorithm_time(c, NULL, 8) < 0);
	kolo_comm_destroy(c);
}

static void longer_vectors_are_expected_to_take_longer(void **state)
{
	(void)state;
	t_processes(3, expects_times, NULL);
}

static void takes_little(struct t_rank *r)
{
	struct kolo_comm *c = t_comm_with(r, (struct kolo_comm_attr){ 0 });
	struct kolo_stats s;

	CHECK(kolo_comm_stats(c, &s) == 0);
	CHECK(s.memory_bytes <= KOLO_DEFAULT_MEMORY);
	/* Mapped are the own slots, next's slots, and the roster. */
	CHECK(mapped_by_kolo() <= KOLO_DEFAULT_MEMORY);
	CHECK(s.memory_bytes >= s.slot_len * s.nslots);
	kolo_comm_destroy(c);
	CHECK(mapped_by_kolo() == 0);
}

static void a_communicator_takes_at_most_the_memory_stated(void **state)
{
	(void)state;
	t_processes(2, takes_little, NULL);
	t_processes(9, takes_little, NULL);
}

static void slots_are_rank_0s(struct t_rank *r)
{
	struct kolo_comm_attr attr = { .nslots = 2 + r->rank,
				       .slot_len = 4096 * (size_t)(1 + r->rank) };
	struct kolo_comm *c = t_comm_with(r, attr);
	struct kolo_stats s;

	CHECK(kolo_comm_stats(c, &s) == 0 && s.nslots == 2 && s.slot_len == 4096);
	CHECK(strcmp(s.algorithm, "best") == 0 && strcmp(s.to_next.transport, "shm") == 0);
	CHECK(s.to_next.peer == (r->rank + 1) % r->nranks);
	CHECK(s.from_prev.peer == (r->rank + r->nranks - 1) % r->nranks);
	check_works(c);
	kolo_comm_destroy(c);
}

static void what_must_be_equal_is_decided_by_rank_0(void **state)
{
	(void)state;
	t_processes(4, slots_are_rank_0s, NULL);
}

/* ---- Splitting ------------------------------------------------------------------------------- */

static void split_in_all_ways(struct t_rank *r)
{
	struct kolo_comm *c = t_comm(r), *half, *reversed, *none, *alone, *quarter;

	CHECK(kolo_comm_split(c, r->rank % 2, 0, &half) == 0);
	CHECK(kolo_comm_nranks(half) == (r->nranks + 1 - r->rank % 2) / 2 &&
	      kolo_comm_rank(half) == r->rank / 2);
	CHECK(kolo_comm_split(c, 7, -r->rank, &reversed) == 0);
	CHECK(kolo_comm_rank(reversed) == r->nranks - 1 - r->rank);
	CHECK(kolo_comm_split(c, r->rank == 1 ? KOLO_NOCOLOR : 0, 5, &none) == 0);
	CHECK((none == NULL) == (r->rank == 1));
	CHECK(kolo_comm_split(c, r->rank, 0, &alone) == 0 && kolo_comm_nranks(alone) == 1 &&
	      kolo_comm_local_ranks(alone) == 1);
	CHECK(kolo_comm_split(half, kolo_comm_rank(half) / 2, 0, &quarter) == 0);
	check_works(half);
	check_works(reversed);
	if (none)
		check_works(none);
	check_works(alone);
	check_works(quarter);
	check_works(c);
	kolo_comm_destroy(c); /* before those made from it */
	check_works(half);
	kolo_comm_destroy(half);
	kolo_comm_destroy(reversed);
	kolo_comm_destroy(none);
	kolo_comm_destroy(alone);
	kolo_comm_destroy(quarter);
}

static void split_follows_color_and_key(void **state)
{
	(void)state;
	for (int n = 2; n <= 6; n++)
		t_processes(n, split_in_all_ways, NULL);
	t_threads(4, split_in_all_ways, NULL);
}

/* ---- Copies ---------------------------------------------------------------------------------- */

static void check_alike(struct kolo_comm *a, struct kolo_comm *b)
{
	struct kolo_algorithm x, y;
	struct kolo_stats s, t;
	int k = 0;

	CHECK(kolo_comm_rank(a) == kolo_comm_rank(b) && kolo_comm_nranks(a) == kolo_comm_nranks(b));
	CHECK(strcmp(kolo_comm_order(a), kolo_comm_order(b)) == 0);
	CHECK(kolo_comm_groups(a) == kolo_comm_groups(b));
	CHECK(kolo_comm_stats(a, &s) == 0 && kolo_comm_stats(b, &t) == 0);
	CHECK(strcmp(s.to_next.stores, t.to_next.stores) == 0 && s.hop_us == t.hop_us);
	CHECK(s.slot_len == t.slot_len && s.nslots == t.nslots && t.ops == 0 && t.sent_bytes == 0);
	for (; kolo_algorithm_get(a, k, &x) == 0; k++)
		CHECK(kolo_algorithm_get(b, k, &y) == 0 && x.min_bytes == y.min_bytes &&
		      x.max_bytes == y.max_bytes && strcmp(x.name, y.name) == 0);
	CHECK(kolo_algorithm_get(b, k, &y) != 0);
}

/* Ranks that use two communicators in different orders do not wait for each other. */
static void check_independent(struct kolo_comm *a, struct kolo_comm *b)
{
	bool other = kolo_comm_rank(a) % 2;
	int x = 1, y = 1, n = kolo_comm_nranks(a);
	struct kolo_queue *q;

	CHECK(kolo_queue_create(&q) == 0);
	CHECK(kolo_all_reduce(other ? b : a, &x, &x, 1, KOLO_I32, KOLO_SUM, q) == 0);
	CHECK(kolo_all_reduce(other ? a : b, &y, &y, 1, KOLO_I32, KOLO_SUM, NULL) == 0);
	CHECK(kolo_queue_wait(q) == 0 && x == n && y == n);
	kolo_queue_destroy(q);
}

static void copy_it(struct t_rank *r)
{
	const struct kolo_comm_attr *attr = r->arg;
	bool grid = attr->order && strcmp(attr->order, "grid") == 0;
	struct kolo_comm *c, *copy, *again, *half;

	if (grid) /* never by threads, which share the environment */
		setenv("KOLO_SHAPE", "2x2", 1);
	c = t_comm_with(r, *attr);
	CHECK(kolo_comm_dup(c, &copy) == 0);
	check_alike(c, copy);
	check_works(copy);
	check_independent(c, copy);
	kolo_comm_destroy(c);
	CHECK(kolo_comm_dup(copy, &again) == 0);
	check_works(again);
	if (grid)
		unsetenv("KOLO_SHAPE");
	CHECK(kolo_comm_split_order(again, r->rank % 2, 0, "ring", &half) == 0);
	check_works(half);
	check_works(copy);
	kolo_comm_destroy(half);
	kolo_comm_destroy(again);
	kolo_comm_destroy(copy);
}

static void a_copy_is_as_the_first_and_independent(void **state)
{
	static const struct kolo_comm_attr attrs[] = {
		{ .slot_len = 4096 },   { .order = "tree" },         { .order = "grid" },
		{ .transport = "tcp" }, { .algorithm = "exchange" },
	};

	(void)state;
	for (size_t k = 0; k < ARRAY_LEN(attrs); k++)
		t_processes(4, copy_it, (void *)&attrs[k]);
	t_processes(1, copy_it, (void *)&attrs[0]);
	t_processes(3, copy_it, (void *)&attrs[0]);
	t_threads(4, copy_it, (void *)&attrs[0]);
}

/* ---- Wrong arguments ------------------------------------------------------------------------- */

static void check_refused(int rc, int code, const char *word)
{
	CHECK(rc == code);
	CHECK(strstr(kolo_last_error(), word) != NULL);
}

static void mistakes(struct t_rank *r)
{
	struct kolo_comm *c = t_comm(r), *none;
	int x[8] = { 0 }, root = r->nranks;
	enum kolo_op op, bad_op = (enum kolo_op)99;
	struct kolo_stats s;
	float f = 1;

	check_refused(kolo_all_reduce(NULL, x, x, 1, KOLO_I32, KOLO_SUM, NULL), KOLO_EINVAL,
		      "comm");
	check_refused(kolo_all_reduce(c, x, x, 1, (enum kolo_type)77, KOLO_SUM, NULL), KOLO_EINVAL,
		      "77");
	check_refused(kolo_all_reduce(c, x, x, 1, KOLO_I32, bad_op, NULL), KOLO_EINVAL, "99");
	check_refused(kolo_reduce(c, x, x, 1, KOLO_F32, KOLO_BXOR, 0, NULL), KOLO_EINVAL,
		      "kolo_reduce: f32 has no op bxor");
	check_refused(kolo_all_reduce(c, NULL, x, 1, KOLO_I32, KOLO_SUM, NULL), KOLO_EINVAL, "src");
	check_refused(kolo_all_reduce(c, x, NULL, 1, KOLO_I32, KOLO_SUM, NULL), KOLO_EINVAL, "dst");
	check_refused(kolo_all_reduce(c, x, x + 1, 2, KOLO_I32, KOLO_SUM, NULL), KOLO_EINVAL,
		      "overlap");
	check_refused(kolo_all_gather(c, x + 1, x, 2, KOLO_I32, NULL), KOLO_EINVAL, "overlap");
	check_refused(kolo_all_reduce(c, x, x, SIZE_MAX / 2, KOLO_I32, KOLO_SUM, NULL), KOLO_EINVAL,
		      "elements");
	check_refused(kolo_broadcast(c, x, x, 1, KOLO_I32, root, NULL), KOLO_EINVAL, "root");
	check_refused(kolo_reduce(c, x, x, 1, KOLO_I32, KOLO_SUM, -1, NULL), KOLO_EINVAL, "root");
	check_refused(kolo_comm_split(c, -5, 0, &none), KOLO_EINVAL, "color");
	check_refused(kolo_timeout_set(NULL, 1), KOLO_EINVAL, "comm");
	check_refused(kolo_timeout_set(c, 0), KOLO_EINVAL, "not 0");
	check_refused(kolo_timeout_set(c, 1000001), KOLO_EINVAL, "at most 1000000");
	check_refused(kolo_op_destroy(c, KOLO_SUM), KOLO_EINVAL, "op");
	check_refused(kolo_comm_dup(NULL, &none), KOLO_EINVAL, "kolo_comm_dup");
	check_refused(kolo_comm_dup(c, NULL), KOLO_EINVAL, "kolo_comm_dup");
	check_refused(kolo_comm_stats(c, NULL), KOLO_EINVAL, "out");
	CHECK(kolo_op_create_premul_sum(c, &f, KOLO_F32, &op) == 0);
	check_refused(kolo_all_reduce(c, x, x, 1, KOLO_I32, op, NULL), KOLO_EINVAL, "i32");
	CHECK(kolo_op_destroy(c, op) == 0);
	check_refused(kolo_op_destroy(c, op), KOLO_EINVAL, "op");
	check_refused(kolo_all_reduce(c, x, x, 1, KOLO_F32, op, NULL), KOLO_EINVAL, "op");
	CHECK(kolo_comm_stats(c, &s) == 0 && kolo_comm_status(c) == 0);
	check_works(c);
	kolo_comm_destroy(c);
}

static void wrong_arguments_are_refused_and_change_nothing(void **state)
{
	(void)state;
	t_processes(1, mistakes, NULL);
	t_processes(3, mistakes, NULL);
}

static void hear(void *arg, enum kolo_log_level level, const char *line)
{
	int *heard = arg;

	CHECK(level >= KOLO_LOG_ERROR && level <= KOLO_LOG_TRACE && *line && !strchr(line, '\n'));
	heard[level]++;
}

/* Each rank hears of its own. */
static void listens(struct t_rank *r)
{
	int heard[KOLO_LOG_TRACE + 1] = { 0 }, before;
	struct kolo_comm *c = t_comm_with(
		r, (struct kolo_comm_attr){
			   .log = hear, .log_arg = heard, .log_level = KOLO_LOG_TRACE });
	struct kolo_comm *half;

	CHECK(heard[KOLO_LOG_INFO] > 0 && heard[KOLO_LOG_TRACE] == 0 && heard[KOLO_LOG_ERROR] == 0);
	CHECK(kolo_barrier(c, NULL) == 0 && heard[KOLO_LOG_TRACE] == 1);
	CHECK(kolo_comm_split(c, 0, 0, &half) == 0);
	before = heard[KOLO_LOG_TRACE];
	CHECK(kolo_barrier(half, NULL) == 0 && heard[KOLO_LOG_TRACE] == before + 1);
	kolo_comm_destroy(half);
	kolo_comm_abort(c);
	CHECK(r->rank != 0 || heard[KOLO_LOG_ERROR] <= 1);
	kolo_comm_destroy(c);

	memset(heard, 0, sizeof(heard));
	CHECK(kolo_comm_create(
		      &(struct kolo_comm_attr){
			      .log = hear, .log_arg = heard, .nranks = -1, .id = &r->id },
		      &c) == KOLO_EINVAL);
	CHECK(kolo_comm_create(&(struct kolo_comm_attr){ .id = &r->id,
							 .nranks = 1,
							 .log_level = (enum kolo_log_level)9 },
			       &c) == KOLO_EINVAL);
	CHECK(strstr(kolo_last_error(), "log_level 9"));
}

static void a_callback_gets_the_log(void **state)
{
	(void)state;
	t_processes(1, listens, NULL);
	t_threads(3, listens, NULL);
}

static void wrong_attributes_are_refused(void **state)
{
	struct kolo_id id, zero = { { 0 } };
	struct kolo_comm *c;
	struct kolo_comm_attr attr = { .id = &id, .rank = 2, .nranks = 2 };

	(void)state;
	CHECK(kolo_id_create(&id) == 0);
	check_refused(kolo_comm_create(&attr, &c), KOLO_EINVAL, "rank 2 of 2");
	CHECK(c == NULL);
	attr.rank = 0;
	attr.nranks = 70000;
	check_refused(kolo_comm_create(&attr, &c), KOLO_EINVAL, "65536");
	attr.nranks = 2;
	attr.nslots = 1;
	check_refused(kolo_comm_create(&attr, &c), KOLO_EINVAL, "slots");
	attr.nslots = 0;
	attr.slot_len = 5000;
	check_refused(kolo_comm_create(&attr, &c), KOLO_EINVAL, "4096");
	attr.slot_len = 0;
	attr.reserved[0] = 1;
	check_refused(kolo_comm_create(&attr, &c), KOLO_EINVAL, "reserved");
	attr.reserved[0] = 0;
	attr.nranks = 1;
	attr.transport = "pigeon";
	check_refused(kolo_comm_create(&attr, &c), KOLO_ENOTSUP, "pigeon");
	attr.transport = NULL;
	CHECK(kolo_id_create(&id) == 0);
	attr.algorithm = "magic";
	check_refused(kolo_comm_create(&attr, &c), KOLO_ENOTSUP, "magic");
	attr.id = &zero;
	check_refused(kolo_comm_create(&attr, &c), KOLO_EINVAL, "id");
	attr.id = NULL;
	check_refused(kolo_comm_create(&attr, &c), KOLO_EINVAL, "id");
	check_refused(kolo_id_create(NULL), KOLO_EINVAL, "NULL");
	kolo_comm_destroy(NULL);
	kolo_comm_abort(NULL);
}

/* ---- What the library says of itself --------------------------------------------------------- */

static int good_value(const char *name, const char *value)
{
	struct kolo_env_info info;
	int i = 0;

	setenv(name, value, 1);
	while (kolo_env_get(i, &info) == 0 && strcmp(info.name, name) != 0)
		i++;
	CHECK(!strcmp(info.name, name) && !strcmp(info.value, value));
	unsetenv(name);
	return info.good;
}

static void values_that_would_be_refused_are_told(void **state)
{
	static const struct {
		const char *name, *good, *bad;
	} cases[] = {
		{ "KOLO_SLOTS", "64", "65" },        { "KOLO_TIMEOUT", "0", "abc" },
		{ "KOLO_SLOT_LEN", "8192", "4097" }, { "KOLO_LOG", "info", "bogus" },
		{ "KOLO_NET", "tcp", "pigeon" },     { "KOLO_LOG", "info", "info:/no/dir" },
		{ "KOLO_TRACE", "/tmp", "/no/dir" },
	};

	(void)state;
	setenv("KOLO_RANK", "0", 1);
	setenv("KOLO_NRANKS", "1", 1);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct kolo_comm *comm = NULL;

		CHECK(good_value(cases[i].name, cases[i].good) == 1);
		CHECK(good_value(cases[i].name, "") == 1);
		CHECK(good_value(cases[i].name, cases[i].bad) == 0);
		CHECK(strstr(kolo_last_error(), cases[i].bad));
		setenv(cases[i].name, cases[i].bad, 1);
		check_refused(kolo_comm_create(NULL, &comm), KOLO_EINVAL, cases[i].bad);
		unsetenv(cases[i].name);
	}
	unsetenv("KOLO_RANK");
	unsetenv("KOLO_NRANKS");
	CHECK(good_value("KOLO_ROOT", "nobody") == 1); /* only joining can tell */
}

static void every_variable_is_told(void **state)
{
	struct kolo_env_info info;
	int i;

	(void)state;
	setenv("KOLO_SLOTS", "9", 1);
	for (i = 0; kolo_env_get(i, &info) == 0; i++) {
		CHECK(strncmp(info.name, "KOLO_", 5) == 0 && info.help[0] && info.range[0]);
		CHECK(info.secret ==
		      (!strcmp(info.name, "KOLO_ID") || !strcmp(info.name, "KOLO_JOB")));
		if (strcmp(info.name, "KOLO_SLOTS") == 0)
			CHECK(!strcmp(info.value, "9") && !strcmp(info.preset, "7") &&
			      !strcmp(info.range, "2 to 64"));
		else
			CHECK(info.value == NULL);
	}
	unsetenv("KOLO_SLOTS");
	check_refused(kolo_env_get(i, &info), KOLO_EINVAL, "want 0 to");
	check_refused(kolo_env_get(-1, &info), KOLO_EINVAL, "-1");
	check_refused(kolo_env_get(0, NULL), KOLO_EINVAL, "NULL");
}

/* The part called `name`. */
static struct kolo_part_info find_part(const char *name)
{
	struct kolo_part_info part;
	int i = 0;

	do
		CHECK(kolo_part_get(i++, &part) == 0);
	while (strcmp(part.name, name) != 0);
	return part;
}

static void every_part_is_told_and_why_it_is_not_there(void **state)
{
	struct rlimit before, none;
	struct kolo_part_info part;
	int i;

	(void)state;
	for (i = 0; kolo_part_get(i, &part) == 0; i++) {
		CHECK(part.built || !part.usable);
		CHECK((part.reason[0] == 0) == (part.built && part.usable));
	}
	check_refused(kolo_part_get(i, &part), KOLO_EINVAL, "want 0 to");
	check_refused(kolo_part_get(-1, &part), KOLO_EINVAL, "-1");
	check_refused(kolo_part_get(0, NULL), KOLO_EINVAL, "NULL");
	CHECK(find_part("shm").usable && find_part("plain").usable);
	CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
	none = (struct rlimit){ .rlim_cur = 0, .rlim_max = before.rlim_max };
	CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
	part = find_part("shm");
	CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
	CHECK(part.built && !part.usable && strstr(part.reason, "files"));
}

/* ---- Environment ----------------------------------------------------------------------------- */

static void the_environment_is_checked(void **state)
{
	struct kolo_comm *c;
	struct kolo_id id;
	struct kolo_comm_attr attr = { .id = &id, .nranks = 1 };

	(void)state;
	check_refused(kolo_comm_create(NULL, &c), KOLO_EINVAL, "ringrun");
	setenv("KOLO_RANK", "0", 1);
	check_refused(kolo_comm_create(NULL, &c), KOLO_EINVAL, "KOLO_RANK=0 without KOLO_NRANKS");
	setenv("KOLO_NRANKS", "2", 1);
	setenv("KOLO_ID", "abc", 1);
	check_refused(kolo_comm_create(NULL, &c), KOLO_EINVAL, "KOLO_ID");
	setenv("KOLO_RANK", "2", 1);
	check_refused(kolo_comm_create(NULL, &c), KOLO_EINVAL, "KOLO_RANK=2");
	setenv("KOLO_NRANKS", "two", 1);
	check_refused(kolo_comm_create(NULL, &c), KOLO_EINVAL, "KOLO_NRANKS=two");
	unsetenv("KOLO_RANK");
	unsetenv("KOLO_NRANKS");
	unsetenv("KOLO_ID");
	CHECK(kolo_id_create(&id) == 0);
	setenv("KOLO_SLOTS", "1", 1);
	check_refused(kolo_comm_create(&attr, &c), KOLO_EINVAL,
		      "KOLO_SLOTS=1: want a number in [2, 64]");
	setenv("KOLO_SLOTS", "", 1);
	setenv("KOLO_TIMEOUT", "12x", 1);
	check_refused(kolo_comm_create(&attr, &c), KOLO_EINVAL, "KOLO_TIMEOUT=12x");
	setenv("KOLO_TIMEOUT", "7", 1);
	CHECK(kolo_comm_create(&attr, &c) == 0);
	kolo_comm_destroy(c);
	unsetenv("KOLO_TIMEOUT");
	unsetenv("KOLO_SLOTS");
}

static void names_and_sizes_are_known(void **state)
{
	int cpus[4] = { -1, -1, -1, -1 };

	(void)state;
	CHECK(kolo_version() ==
	      KOLO_VERSION_MAJOR * 10000 + KOLO_VERSION_MINOR * 100 + KOLO_VERSION_PATCH);
	CHECK(strcmp(kolo_type_name(KOLO_BF16), "bf16") == 0 && kolo_type_size(KOLO_F8E5M2) == 1);
	CHECK(strcmp(kolo_type_name(KOLO_U16), "u16") == 0 && kolo_type_size(KOLO_I16) == 2);
	CHECK(kolo_type_name((enum kolo_type)(KOLO_F64_I32 + 1)) == NULL &&
	      kolo_type_size((enum kolo_type) - 1) == 0);
	CHECK(strcmp(kolo_op_name(KOLO_LXOR), "lxor") == 0 &&
	      kolo_op_name((enum kolo_op)(KOLO_MAXLOC + 1)) == NULL);
	for (int code = KOLO_EOVERFLOW - 1; code <= 1; code++)
		CHECK(kolo_strerror(code)[0] != 0);
	CHECK(kolo_cores(cpus, 4) >= 1 && cpus[0] >= 0);
}

/* ---- Two threads ----------------------------------------------------------------------------- */

static void *abort_soon(void *comm)
{
	usleep(50000);
	kolo_comm_abort(comm);
	return NULL;
}

static void aborts(struct t_rank *r)
{
	struct kolo_comm *c = t_comm(r);
	pthread_t thread;
	int rc;

	check_works(c);
	if (r->rank == 1) {
		CHECK(pthread_create(&thread, NULL, abort_soon, c) == 0);
		rc = kolo_barrier(c, NULL); /* waits for rank 0, which does not come */
		pthread_join(thread, NULL);
	} else if (r->rank == 0) {
		while (kolo_comm_status(c) == 0) /* comes too late */
			usleep(1000);
		rc = kolo_barrier(c, NULL);
	} else {
		rc = kolo_barrier(c, NULL);
	}
	CHECK(rc == KOLO_EABORTED && strstr(kolo_last_error(), "rank 1") != NULL);
	CHECK(kolo_comm_status(c) == KOLO_EABORTED);
	CHECK(kolo_barrier(c, NULL) == KOLO_EABORTED);
	kolo_comm_destroy(c);
}

static void *hurry_soon(void *comm)
{
	usleep(50000);
	CHECK(kolo_timeout_set(comm, 1) == 0);
	return NULL;
}

/* Rank 0 waits for rank 1, which does not come. */
static void hurries(struct t_rank *r)
{
	struct kolo_comm *c = t_comm(r);
	int64_t began = t_now_ms();
	pthread_t thread;

	check_works(c);
	CHECK(kolo_timeout_set(c, -1) == 0);
	if (r->rank == 0) {
		CHECK(pthread_create(&thread, NULL, hurry_soon, c) == 0);
		CHECK(kolo_barrier(c, NULL) == KOLO_ETIMEDOUT);
		CHECK(t_now_ms() - began < 20000);
		pthread_join(thread, NULL);
	}
	while (kolo_comm_status(c) == 0)
		usleep(1000);
	kolo_comm_destroy(c);
}

static void a_timeout_can_be_set_while_a_rank_waits(void **state)
{
	(void)state;
	t_threads(2, hurries, NULL);
	t_processes(2, hurries, NULL);
}

static void abort_from_any_thread_makes_every_rank_return(void **state)
{
	(void)state;
	t_threads(3, aborts, NULL); /* as threads: the thread sanitizer has no threads after fork */
}

/* A rank that fails elsewhere lets the others go, and they hear why. */
static void aborts_for_a_reason(struct t_rank *r)
{
	struct kolo_comm *c = t_comm(r);

	if (r->rank == 0) {
		kolo_error_set(KOLO_ESYS, "the reactor is cold");
		kolo_comm_abort(c);
	}
	CHECK(kolo_barrier(c, NULL) == KOLO_EABORTED);
	CHECK(strstr(kolo_last_error(), "rank 0") &&
	      strstr(kolo_last_error(), "called kolo_comm_abort, after: the reactor is cold"));
	kolo_comm_destroy(c);
}

static void an_abort_has_the_error_before_it(void **state)
{
	(void)state;
	t_processes(2, aborts_for_a_reason, NULL);
	t_threads(3, aborts_for_a_reason, NULL);
}

static void aborted_while_splitting(struct t_rank *r)
{
	struct kolo_comm *c = t_comm(r), *half;
	pthread_t thread;

	if (r->rank == 1) { /* never comes */
		while (kolo_comm_status(c) == 0)
			usleep(1000);
	} else {
		CHECK(pthread_create(&thread, NULL, abort_soon, c) == 0);
		CHECK(kolo_comm_split(c, 0, 0, &half) == KOLO_EABORTED && half == NULL);
		pthread_join(thread, NULL);
	}
	kolo_comm_destroy(c);
}

static void abort_reaches_a_split(void **state)
{
	(void)state;
	t_threads(2, aborted_while_splitting, NULL);
}

/* Aborts after a random time, so that the split may be anywhere. */
static void *abort_some_time(void *comm)
{
	static _Atomic uint64_t calls;
	uint64_t seed = t_seed() + calls++;

	usleep((unsigned)(t_random(&seed) % 3000));
	kolo_comm_abort(comm);
	return NULL;
}

static void aborted_anywhere_in_a_split(struct t_rank *r)
{
	struct kolo_comm *c = t_comm(r), *half;
	pthread_t thread;
	int rc;

	if (r->rank == 1)
		CHECK(pthread_create(&thread, NULL, abort_some_time, c) == 0);
	rc = kolo_comm_split(c, 0, 0, &half);
	CHECK(rc == 0 || (rc == KOLO_EABORTED && strstr(kolo_last_error(), "rank 1")));
	if (r->rank == 1)
		pthread_join(thread, NULL);
	kolo_comm_destroy(half);
	kolo_comm_destroy(c);
}

static void an_abort_anywhere_in_a_split_is_called_so(void **state)
{
	(void)state;
	for (int k = 0; k < (t_is_long() ? 1000 : t_is_slow() ? 20 : 100); k++)
		t_threads(4, aborted_anywhere_in_a_split, NULL);
}

/* ---- Children of fork ------------------------------------------------------------------------ */

struct belongings {
	struct kolo_comm *comm;
	struct kolo_queue *queue;
	struct kolo_event *event;
	void *memory;
};

static void check_is_child(int rc)
{
	CHECK(rc == KOLO_EINVAL && strstr(kolo_last_error(), "child of fork"));
}

/* What a child of fork can't do with what its parent has. */
static void try_everything(const struct belongings *b)
{
	struct kolo_comm *c = b->comm, *half;
	struct kolo_stats stats;
	void *memory;
	int x = 1;

	check_is_child(kolo_barrier(c, NULL));
	check_is_child(kolo_all_reduce(c, &x, &x, 1, KOLO_I32, KOLO_SUM, NULL));
	check_is_child(kolo_all_reduce(c, &x, &x, 1, KOLO_I32, KOLO_SUM, b->queue));
	check_is_child(kolo_send(c, &x, 1, KOLO_I32, !kolo_comm_rank(c), NULL));
	check_is_child(kolo_gather(c, &x, &x, 0, KOLO_I32, 0, NULL));
	check_is_child(kolo_comm_split(c, 0, 0, &half));
	check_is_child(kolo_alloc(c, 1, &memory));
	check_is_child(kolo_free(c, b->memory));
	check_is_child(kolo_comm_stats(c, &stats));
	check_is_child(kolo_queue_wait(b->queue));
	check_is_child(kolo_event_record(b->event, b->queue));
	check_is_child(kolo_event_wait(b->event));
	CHECK(kolo_group_begin() == 0);
	check_is_child(kolo_send(c, &x, 1, KOLO_I32, !kolo_comm_rank(c), NULL));
	CHECK(kolo_group_end() == 0);
	kolo_comm_abort(c);
	kolo_queue_destroy(b->queue);
	kolo_comm_destroy(c);
}

static void fork_in_use(struct t_rank *r)
{
	struct belongings b = { .comm = t_comm(r) };
	int status, pid;

	CHECK(kolo_queue_create(&b.queue) == 0 && kolo_event_create(&b.event) == 0);
	CHECK(kolo_event_record(b.event, b.queue) == 0 && kolo_event_wait(b.event) == 0);
	CHECK(kolo_alloc(b.comm, 100, &b.memory) == 0);
	check_works(b.comm);
	pid = fork();
	if (pid == 0) {
		try_everything(&b);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	check_works(b.comm);
	CHECK(kolo_free(b.comm, b.memory) == 0);
	kolo_event_destroy(b.event);
	kolo_queue_destroy(b.queue);
	kolo_comm_destroy(b.comm);
}

static void a_child_of_fork_is_refused_and_disturbs_nobody(void **state)
{
	(void)state;
	t_processes(2, fork_in_use, NULL);
}

/* Leaves this process `n` more descriptors, whatever it has inherited. */
static void leave_descriptors(int n)
{
	struct rlimit limit;
	int fds[64], used = 0;

	CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = ARRAY_LEN(fds);
	CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	while (used < (int)ARRAY_LEN(fds) &&
	       (fds[used] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
		used++;
	CHECK(used >= n);
	while (n-- > 0)
		close(fds[--used]);
}

static void with_few_descriptors(struct t_rank *r)
{
	struct kolo_comm *c = NULL;
	struct kolo_comm_attr attr = {
		.id = &r->id, .rank = r->rank, .nranks = r->nranks, .timeout_s = 20
	};
	int64_t before = t_now_ms();
	int rc;

	if (r->rank == 0)
		leave_descriptors(7); /* joins, and can't connect to all the others */
	rc = kolo_comm_create(&attr, &c);
	CHECK(rc < 0 && c == NULL && t_now_ms() - before < 10000);
	CHECK(r->rank != 0 || (rc == KOLO_ESYS && strstr(kolo_last_error(), strerror(EMFILE))));
}

static void running_out_of_descriptors_says_so(void **state)
{
	(void)state;
	t_processes(8, with_few_descriptors, NULL);
}

static void with_small_files(struct t_rank *r)
{
	struct kolo_comm_attr attr = { .id = &r->id, .rank = r->rank, .nranks = 2 };
	struct rlimit small = { .rlim_cur = 512 << 10, .rlim_max = 512 << 10 };
	struct kolo_comm *c;

	CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
	CHECK(kolo_comm_create(&attr, &c) == KOLO_ESYS && strstr(kolo_last_error(), "ulimit -f"));
}

static void a_limit_for_files_is_an_error_not_a_signal(void **state)
{
	(void)state;
	t_processes(2, with_small_files, NULL);
}

/* Of two that enter at once the second is refused, and ends the wait of the first. */
static void *enter_barrier(void *comm)
{
	int rc = kolo_barrier(comm, NULL);

	if (rc == KOLO_EINVAL) {
		CHECK(strstr(kolo_last_error(), "another thread"));
		kolo_comm_abort(comm);
	}
	return (void *)(intptr_t)rc;
}

static void two_at_once(struct t_rank *r)
{
	struct kolo_comm *c = t_comm(r);
	pthread_t thread;
	void *theirs;
	intptr_t mine;

	if (r->rank == 0) {
		CHECK(pthread_create(&thread, NULL, enter_barrier, c) == 0);
		mine = (intptr_t)enter_barrier(c);
		CHECK(pthread_join(thread, &theirs) == 0);
		CHECK(mine + (intptr_t)theirs == KOLO_EINVAL + KOLO_EABORTED);
	} else {
		while (kolo_comm_status(c) == 0)
			usleep(1000);
	}
	kolo_comm_destroy(c);
}

static void two_threads_in_one_communicator_are_told_so(void **state)
{
	(void)state;
	t_threads(2, two_at_once, NULL);
}

/* ---- Floating-point exceptions --------------------------------------------------------------- */

/* Programs may want to be stopped by them (gfortran -ffpe-trap). So none may come from Kolo. */
static void trap(struct t_rank *r)
{
	struct kolo_comm_attr attr = *(const struct kolo_comm_attr *)r->arg;
	struct kolo_comm *c;

	feclearexcept(FE_ALL_EXCEPT);
	feenableexcept(FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW);
	if (attr.order && strcmp(attr.order, "grid") == 0)
		setenv("KOLO_SHAPE", "2x2", 1);
	c = t_comm_with(r, attr);
	for (size_t n = 1; n < 1 << 18; n *= 8) {
		float *x = calloc(n, sizeof(*x)), *y = malloc(n * sizeof(*y));

		CHECK(kolo_all_reduce(c, x, y, n, KOLO_F32, KOLO_AVG, NULL) == 0);
		CHECK(kolo_broadcast(c, x, y, n, KOLO_F32, 0, NULL) == 0);
		free(x);
		free(y);
	}
	kolo_comm_destroy(c);
	CHECK(!fetestexcept(FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW));
}

static void no_floating_point_exception_is_raised(void **state)
{
	static const struct kolo_comm_attr attrs[] = {
		{ 0 },
		{ .order = "tree" },
		{ .order = "grid" },
		{ .transport = "tcp" },
		{ .algorithm = "ring" },
		{ .algorithm = "direct" },
	};

	(void)state;
	for (size_t k = 0; k < ARRAY_LEN(attrs); k++)
		t_processes(4, trap, (void *)&attrs[k]);
	t_threads(3, trap, (void *)&attrs[0]);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(no_floating_point_exception_is_raised),
	cmocka_unit_test(processes_and_threads_join),
	cmocka_unit_test(a_process_may_have_many_communicators),
	cmocka_unit_test(descriptors_are_given_back),
	cmocka_unit_test(longer_vectors_are_expected_to_take_longer),
	cmocka_unit_test(a_communicator_takes_at_most_the_memory_stated),
	cmocka_unit_test(what_must_be_equal_is_decided_by_rank_0),
	cmocka_unit_test(split_follows_color_and_key),
	cmocka_unit_test(a_copy_is_as_the_first_and_independent),
	cmocka_unit_test(wrong_arguments_are_refused_and_change_nothing),
	cmocka_unit_test(a_callback_gets_the_log),
	cmocka_unit_test(wrong_attributes_are_refused),
	cmocka_unit_test(every_variable_is_told),
	cmocka_unit_test(values_that_would_be_refused_are_told),
	cmocka_unit_test(every_part_is_told_and_why_it_is_not_there),
	cmocka_unit_test(the_environment_is_checked),
	cmocka_unit_test(names_and_sizes_are_known),
	cmocka_unit_test(a_timeout_can_be_set_while_a_rank_waits),
	cmocka_unit_test(abort_from_any_thread_makes_every_rank_return),
	cmocka_unit_test(two_threads_in_one_communicator_are_told_so),
	cmocka_unit_test(abort_reaches_a_split),
	cmocka_unit_test(an_abort_has_the_error_before_it),
	cmocka_unit_test(an_abort_anywhere_in_a_split_is_called_so),
	cmocka_unit_test(a_child_of_fork_is_refused_and_disturbs_nobody),
	cmocka_unit_test(running_out_of_descriptors_says_so),
	cmocka_unit_test(a_limit_for_files_is_an_error_not_a_signal),
};

T_MAIN(tests)
