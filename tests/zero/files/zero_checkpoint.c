/* A rank of test_zero_checkpoint.py's jobs: a model whose every parameter is minus the number of
 * updates, since Lion moves each by the sign of its gradient. Loads the newest checkpoint where
 * there is one, and writes another after each update. */
#include "kolo/kolo_zero_checkpoint.h"
#include "tests/zero/step/give.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TENSORS = 4 };

static int fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, kolo_last_error());
	return 1;
}

static struct kolo_zero *create(struct kolo_comm *comm, size_t n, enum kolo_type type, int stage)
{
	static const char *const names[TENSORS] = { "embedding", "layer \"0\"",
						    "d\xc3\xa9j\xc3\xa0", "scalar" };
	const size_t sizes[TENSORS] = { n / 2, n / 3, n - n / 2 - n / 3, 1 };
	struct kolo_zero_tensor tensors[TENSORS];
	struct kolo_zero_group group;
	struct kolo_zero_config c;
	struct kolo_zero *zero;

	kolo_zero_config_init(&c);
	kolo_zero_group_init(&group, KOLO_ZERO_LION);
	group.lr = 1;
	c.optimizer = KOLO_ZERO_LION;
	c.groups = &group;
	c.ngroups = 1;
	c.stage = stage;
	for (int i = 0; i < TENSORS; i++) {
		tensors[i] = (struct kolo_zero_tensor){ .name = names[i],
							.type = type,
							.shape = { sizes[i] } };
		tensors[i].ndims = i < TENSORS - 1;
	}
	return kolo_zero_create(comm, &c, tensors, TENSORS, &zero) == 0 ? zero : NULL;
}

static size_t size_of(size_t n, int tensor)
{
	const size_t sizes[TENSORS] = { n / 2, n / 3, n - n / 2 - n / 3, 1 };

	return sizes[tensor];
}

/* ones: of the type, as many as the largest tensor has elements. */
static int update(struct kolo_zero *zero, const void *ones)
{
	int rc = kolo_zero_forward(zero, 1);

	if (rc == 0)
		rc = kolo_zero_backward(zero, 0);
	for (int i = TENSORS; rc == 0 && i-- > 0;)
		rc = give(zero, i, ones);
	return rc == 0 ? kolo_zero_step(zero, NULL) : rc;
}

/* Whether all is of the step that the checkpoint is called after. */
static int check(struct kolo_zero *zero, size_t n, long step, float *values)
{
	for (int i = 0; i < TENSORS; i++) {
		int rc = kolo_zero_get(zero, i, values);

		if (rc < 0)
			return rc;
		for (size_t k = 0; k < size_of(n, i); k++)
			if (values[k] != -(float)step)
				return kolo_error_set(KOLO_ESYS,
						      "tensor %d has %g at %zu in step %ld", i,
						      (double)values[k], k, step);
	}
	return 0;
}

static int resume(struct kolo_zero *zero, const char *dir, size_t n, int rank, float *values)
{
	struct kolo_zero_progress p;
	long user = -1, newest;
	size_t len = sizeof(user);
	int rc = kolo_zero_newest(dir, &newest);

	/* Where nothing was ever completed there is a beginning. */
	if (rc < 0 || newest < 0)
		return rc;
	rc = kolo_zero_load(zero, dir, KOLO_ZERO_LOAD_ALL, &user, &len);
	kolo_zero_progress_get(zero, &p);
	if (rc == 0 && (len != sizeof(user) || user != p.step))
		rc = kolo_error_set(KOLO_ESYS, "the user's number is %ld in step %ld", user,
				    p.step);
	if (rc == 0)
		rc = check(zero, n, p.step, values);
	if (rc == 0 && rank == 0)
		printf("loaded %ld\n", p.step);
	return rc;
}

static int save(struct kolo_zero *zero, const char *dir, int rank)
{
	struct kolo_zero_progress p;
	int rc;

	kolo_zero_progress_get(zero, &p);
	rc = kolo_zero_save(zero, dir, 2, &p.step, sizeof(p.step));
	if (rc == 0 && rank == 0)
		printf("saved %ld\n", p.step);
	return rc;
}

static enum kolo_type type_of(const char *name)
{
	return strcmp(name, "f16") == 0    ? KOLO_F16
	       : strcmp(name, "bf16") == 0 ? KOLO_BF16
					   : KOLO_F32;
}

/* Ones of a type, and after them room for as many floats. */
static void *make_ones(size_t n, enum kolo_type type, float **values)
{
	*values = malloc(n * sizeof(float));
	void *ones = malloc(n * sizeof(float));

	for (size_t i = 0; ones && *values && i < n; i++)
		(*values)[i] = 1;
	if (ones && *values)
		kolo_cast(*values, KOLO_F32, ones, type, n, 1);
	return ones && *values ? ones : NULL;
}

int main(int argc, char **argv)
{
	struct kolo_comm *comm;
	struct kolo_zero *zero;
	enum kolo_type type;
	float *values;
	void *ones;
	size_t n;
	int rank, rc;

	if (argc < 6) {
		fprintf(stderr, "usage: %s DIR PARAMETERS TYPE STAGE UPDATES [EXPORT]\n", argv[0]);
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	n = strtoul(argv[2], NULL, 10);
	type = type_of(argv[3]);
	ones = make_ones(n, type, &values);
	if (!ones || kolo_comm_create(NULL, &comm) < 0)
		return fail("joining");
	rank = kolo_comm_rank(comm);
	zero = create(comm, n, type, atoi(argv[4]));
	if (!zero)
		return fail("creating");
	if ((rc = resume(zero, argv[1], n, rank, values)) < 0)
		return fail("loading");
	for (int i = 0; rc == 0 && i < atoi(argv[5]); i++) {
		rc = update(zero, ones);
		if (rc == 0)
			rc = save(zero, argv[1], rank);
	}
	if (rc == 0 && argc > 6)
		rc = kolo_zero_export(zero, argv[6], type);
	if (rc < 0)
		return fail("training");
	kolo_zero_destroy(zero);
	kolo_comm_destroy(comm);
	free(values);
	free(ones);
	return 0;
}
