/* See divided.h. */
#include "tests/tools/divided.h"

#include <math.h>

/* The mean over all ranks, which have equally many tokens. */
static bool average(struct kolo_comm *comm, real *x, size_t n)
{
	enum kolo_type type = sizeof(real) == sizeof(float) ? KOLO_F32 : KOLO_F64;
	int rc = kolo_all_reduce(comm, x, x, n, type, KOLO_SUM, NULL);

	for (size_t i = 0; i < n; i++)
		x[i] /= (real)kolo_comm_nranks(comm);
	return rc == 0;
}

static double square(const real *x, const real *y, size_t n)
{
	double sum = 0;

	for (size_t i = 0; i < n; i++) {
		double d = (double)x[i] - (y ? (double)y[i] : 0);

		sum += d * d;
	}
	return sum;
}

static bool compare_gradients(struct kolo_comm *comm, struct gpt *part, struct gpt *whole,
			      double *worst)
{
	double apart = 0, size = 0;

	for (int t = 0; t < whole->ntensors; t++) {
		size_t n = tensor_shape_of(&whole->sizes, t).n;

		if (!tensor_is_there(&whole->sizes, t))
			continue;
		if (!average(comm, part->gradients[t], n))
			return false;
		apart += square(part->gradients[t], whole->gradients[t], n);
		size += square(whole->gradients[t], NULL, n);
	}
	*worst = fmax(*worst, sqrt(apart / size));
	return true;
}

static bool compare(struct kolo_comm *comm, struct gpt *part, struct gpt *whole,
		    struct divided *out)
{
	for (int number = 0; number < 2; number++) {
		double loss = gpt_forward(part, number, 1);

		if (kolo_all_reduce(comm, &loss, &loss, 1, KOLO_F64, KOLO_SUM, NULL) < 0)
			return false;
		loss = loss / kolo_comm_nranks(comm) - gpt_forward(whole, number, 1);
		out->loss = fmax(out->loss, fabs(loss));
		if (!gpt_backward(part) || !gpt_backward(whole) ||
		    !compare_gradients(comm, part, whole, &out->gradient))
			return false;
	}
	return true;
}

bool divided_run(struct kolo_comm *comm, enum kind kind, enum spread spread, struct divided *out)
{
	/* Weights that are far from the first ones make the differences of rounding some hundred
	 * times larger. */
	bool near = sizeof(real) == sizeof(float);
	struct gpt *part = gpt_open_spread(comm, kind, spread, near);
	struct gpt *whole = gpt_open_spread(NULL, kind, UNSPREAD, near);
	size_t rows = (size_t)(part->sizes.batch * GPT_LONG / kolo_comm_nranks(comm));
	bool good = part->model && whole->model;

	*out = (struct divided){ 0 };
	if (good) {
		good = compare(comm, part, whole, out);
		out->memory = model_memory(part->model);
		out->whole = model_memory(whole->model);
		model_around_get(part->model, &out->around);
	}
	out->e = 2 * rows * (size_t)(part->sizes.kv_heads * GPT_WIDE / part->sizes.heads) *
		 sizeof(real);
	gpt_close(part);
	gpt_close(whole);
	return good;
}
