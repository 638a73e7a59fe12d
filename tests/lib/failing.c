/* See failing.h. */
#include "tests/lib/failing.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>

_Thread_local long t_countdown;
_Atomic long t_others_countdown;
_Thread_local bool t_is_rank;
_Atomic long t_live;

static bool fails(void)
{
	if (t_is_rank)
		return t_countdown > 0 && --t_countdown == 0;
	return atomic_load(&t_others_countdown) > 0 &&
	       atomic_fetch_sub(&t_others_countdown, 1) == 1;
}

void *__real_calloc(size_t n, size_t len);
void *__real_realloc(void *p, size_t len);
void __real_free(void *p);
void *__real_mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset);
int __real_memfd_create(const char *name, unsigned flags);
int __real_socket(int domain, int type, int protocol);

void *__wrap_calloc(size_t n, size_t len);
void *__wrap_realloc(void *p, size_t len);
void *__wrap_mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset);
int __wrap_memfd_create(const char *name, unsigned flags);
int __wrap_socket(int domain, int type, int protocol);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
			  void *arg);

void *__wrap_malloc(size_t len)
{
	void *p = fails() ? NULL : __real_malloc(len);

	t_live += p != NULL;
	return p;
}

void *__wrap_calloc(size_t n, size_t len)
{
	void *p = fails() ? NULL : __real_calloc(n, len);

	t_live += p != NULL;
	return p;
}

void *__wrap_realloc(void *p, size_t len)
{
	void *q = fails() ? NULL : __real_realloc(p, len);

	t_live += q != NULL && p == NULL;
	return q;
}

void __wrap_free(void *p)
{
	t_live -= p != NULL;
	__real_free(p);
}

void *__wrap_mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset)
{
	if (!fails())
		return __real_mmap(at, len, prot, flags, fd, offset);
	errno = ENOMEM;
	return MAP_FAILED;
}

int __wrap_memfd_create(const char *name, unsigned flags)
{
	if (!fails())
		return __real_memfd_create(name, flags);
	errno = EMFILE;
	return -1;
}

int __wrap_socket(int domain, int type, int protocol)
{
	if (!fails())
		return __real_socket(domain, type, protocol);
	errno = EMFILE;
	return -1;
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
			  void *arg)
{
	return fails() ? EAGAIN : __real_pthread_create(thread, attr, fn, arg);
}
