/* Several copies of the library in one process, as plugins bring them: two are loaded with dlopen
 * from files of their own, a third is in this program. None may see another's state, and one that
 * is unloaded leaves nothing running. */
#include "tests/lib/t.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <libgen.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 200, N = 3000 };

/* handle is NULL for the copy in this program. */
struct copy {
	void *handle;
	__typeof__(kolo_id_create) *id_create;
	__typeof__(kolo_comm_create) *comm_create;
	__typeof__(kolo_comm_destroy) *comm_destroy;
	__typeof__(kolo_all_reduce) *all_reduce;
	__typeof__(kolo_broadcast) *broadcast;
	__typeof__(kolo_last_error) *last_error;
};

static const struct copy own = {
	.id_create = kolo_id_create,
	.comm_create = kolo_comm_create,
	.comm_destroy = kolo_comm_destroy,
	.all_reduce = kolo_all_reduce,
	.broadcast = kolo_broadcast,
	.last_error = kolo_last_error,
};

/* ---- Files and what they load ---------------------------------------------------------------- */

/* Another file with the bytes of the shared library, which lies beside the folder of this program;
 * its name goes to `path`, a template of mkstemp. */
static void make_file(char *path)
{
	char self[4096], from[5000];
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
	struct stat st;
	int in, out;

	CHECK(len > 0);
	self[len] = 0;
	snprintf(from, sizeof(from), "%s/../libkolo.so.0", dirname(self));
	in = open(from, O_RDONLY | O_CLOEXEC);
	out = mkstemp(path);
	CHECK(in >= 0 && out >= 0 && fstat(in, &st) == 0);
	CHECK(sendfile(out, in, NULL, (size_t)st.st_size) == st.st_size);
	close(in);
	close(out);
}

/* A new copy. It lives on without the name of its file. */
static struct copy load(void)
{
	static const struct {
		const char *name;
		size_t offset;
	} functions[] = {
		{ "kolo_id_create", offsetof(struct copy, id_create) },
		{ "kolo_comm_create", offsetof(struct copy, comm_create) },
		{ "kolo_comm_destroy", offsetof(struct copy, comm_destroy) },
		{ "kolo_all_reduce", offsetof(struct copy, all_reduce) },
		{ "kolo_broadcast", offsetof(struct copy, broadcast) },
		{ "kolo_last_error", offsetof(struct copy, last_error) },
	};
	char path[] = "/tmp/kolo-copy-XXXXXX";
	struct copy copy;

	make_file(path);
	copy.handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	unlink(path);
	if (!copy.handle)
		fprintf(stderr, "# %s\n", dlerror());
	CHECK(copy.handle != NULL);
	for (size_t i = 0; i < ARRAY_LEN(functions); i++) {
		void *address = dlsym(copy.handle, functions[i].name);

		CHECK(address != NULL);
		memcpy((char *)&copy + functions[i].offset, &address, sizeof(address));
	}
	return copy;
}

/* ---- Work ------------------------------------------------------------------------------------ */

static struct kolo_comm *join(const struct copy *copy, const struct kolo_id *id, int rank,
			      int nranks)
{
	struct kolo_comm_attr attr = { .id = id, .rank = rank, .nranks = nranks, .slot_len = 4096 };
	struct kolo_comm *comm = NULL;

	CHECK(copy->comm_create(&attr, &comm) == 0);
	return comm;
}

static void check_sum(const struct copy *copy, struct kolo_comm *comm, int rank, int nranks)
{
	int x[N];

	for (int i = 0; i < N; i++)
		x[i] = (rank + 1) * i;
	CHECK(copy->all_reduce(comm, x, x, N, KOLO_I32, KOLO_SUM, NULL) == 0);
	for (int i = 0; i < N; i++)
		CHECK(x[i] == nranks * (nranks + 1) / 2 * i);
}

/* A rank of two, on a thread. */
struct worker {
	const struct copy *copy;
	struct kolo_id id;
	int rank;
	pthread_t thread;
};

static void *work(void *arg)
{
	const struct worker *w = arg;
	struct kolo_comm *comm = join(w->copy, &w->id, w->rank, 2);

	for (int i = 0; i < ROUNDS; i++)
		check_sum(w->copy, comm, w->rank, 2);
	w->copy->comm_destroy(comm);
	return NULL;
}

/* Two ranks for each of n copies, all at the same time; ids[k] is where those of copy k meet. */
static void work_together(const struct copy *const *copies, const struct kolo_id *ids, int n)
{
	struct worker w[8];

	CHECK(2 * n <= (int)ARRAY_LEN(w));
	for (int i = 0; i < 2 * n; i++) {
		w[i] = (struct worker){ .copy = copies[i / 2], .id = ids[i / 2], .rank = i % 2 };
		CHECK(pthread_create(&w[i].thread, NULL, work, &w[i]) == 0);
	}
	for (int i = 0; i < 2 * n; i++)
		CHECK(pthread_join(w[i].thread, NULL) == 0);
}

static int count_entries(const char *path)
{
	DIR *dir = opendir(path);
	int n = 0;

	CHECK(dir != NULL);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static void *tell_tid(void *out)
{
	*(pid_t *)out = gettid();
	return NULL;
}

/* The threads of this process, once a first one has come and gone: with it a sanitizer starts one
 * of its own. */
static int count_threads(void)
{
	pthread_t thread;
	char task[64];
	pid_t tid;

	CHECK(pthread_create(&thread, NULL, tell_tid, &tid) == 0 &&
	      pthread_join(thread, NULL) == 0);
	snprintf(task, sizeof(task), "/proc/self/task/%d", (int)tid);
	while (access(task, F_OK) == 0)
		sched_yield();
	return count_entries("/proc/self/task");
}

/* Waits until the process has as many threads as it had: one that has done its work may still be
 * ending. */
static bool threads_return_to(int n)
{
	for (int64_t end = t_now_ms() + 10000; t_now_ms() < end;) {
		if (count_entries("/proc/self/task") <= n)
			return true;
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	}
	return false;
}

/* ---- Tests: each in a process of its own, a rank of t_processes ------------------------------ */

static void use_three_copies(struct t_rank *r)
{
	struct copy a = load(), b = load();
	const struct copy *copies[] = { &a, &b, &own };
	struct kolo_id ids[3];

	(void)r;
	CHECK(a.all_reduce != b.all_reduce && a.all_reduce != own.all_reduce);
	for (int i = 0; i < 3; i++)
		CHECK(copies[i]->id_create(&ids[i]) == 0);
	work_together(copies, ids, 3);
	CHECK(dlclose(a.handle) == 0 && dlclose(b.handle) == 0);
}

static void copies_work_at_the_same_time_on_threads(void **state)
{
	(void)state;
	t_processes(1, use_three_copies, NULL);
}

static void alternate(struct t_rank *r)
{
	struct copy a = load(), b = load();
	struct kolo_comm *by_a = join(&a, &r->id, r->rank, r->nranks), *by_b;
	struct kolo_id id;

	if (r->rank == 0)
		CHECK(b.id_create(&id) == 0);
	CHECK(a.broadcast(by_a, id.bytes, id.bytes, sizeof(id.bytes), KOLO_U8, 0, NULL) == 0);
	by_b = join(&b, &id, r->rank, r->nranks);
	for (int i = 0; i < ROUNDS; i++) {
		check_sum(&a, by_a, r->rank, r->nranks);
		check_sum(&b, by_b, r->rank, r->nranks);
	}
	a.comm_destroy(by_a);
	b.comm_destroy(by_b);
}

static void copies_take_turns_in_processes(void **state)
{
	(void)state;
	t_processes(3, alternate, NULL);
}

static void make_an_error(struct t_rank *r)
{
	struct copy a = load(), b = load();

	(void)r;
	CHECK(own.last_error()[0] == 0);
	CHECK(a.id_create(NULL) == KOLO_EINVAL);
	CHECK(strstr(a.last_error(), "out is NULL") != NULL);
	CHECK(b.last_error()[0] == 0);
	CHECK(own.last_error()[0] == 0);
	CHECK(dlclose(a.handle) == 0);
	CHECK(b.last_error()[0] == 0);
}

static void an_error_shows_in_its_own_copy_only(void **state)
{
	(void)state;
	t_processes(1, make_an_error, NULL);
}

static void use_and_unload(struct t_rank *r)
{
	int threads = count_threads(), fds = count_entries("/proc/self/fd");
	struct copy a = load();
	const struct copy *copies[] = { &a };
	struct kolo_id id;

	(void)r;
	CHECK(a.id_create(&id) == 0);
	work_together(copies, &id, 1);
	CHECK(dlclose(a.handle) == 0);
	CHECK(threads_return_to(threads));
	CHECK(count_entries("/proc/self/fd") == fds);
}

static void a_copy_that_is_unloaded_leaves_no_thread_and_no_descriptor(void **state)
{
	(void)state;
	t_processes(1, use_and_unload, NULL);
}

/* The thread that serves an id is asleep in the copy's code when that is unloaded: it must find it
 * when it wakes. */
static void unload_while_serving(struct t_rank *r)
{
	int threads = count_threads(), fds = count_entries("/proc/self/fd");
	struct copy a = load();
	const struct copy *copies[] = { &own };
	struct kolo_id id;

	(void)r;
	CHECK(a.id_create(&id) == 0);
	CHECK(dlclose(a.handle) == 0);
	work_together(copies, &id, 1);
	CHECK(threads_return_to(threads));
	CHECK(count_entries("/proc/self/fd") == fds);
}

static void an_id_is_served_after_its_copy_is_unloaded(void **state)
{
	(void)state;
	t_processes(1, unload_while_serving, NULL);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(copies_work_at_the_same_time_on_threads),
	cmocka_unit_test(copies_take_turns_in_processes),
	cmocka_unit_test(an_error_shows_in_its_own_copy_only),
	cmocka_unit_test(a_copy_that_is_unloaded_leaves_no_thread_and_no_descriptor),
	cmocka_unit_test(an_id_is_served_after_its_copy_is_unloaded),
};

T_MAIN(tests)
