/* State that is not at home: masters, moments and gradients in host memory, or masters and moments in files, in units that a pass
 * reads ahead and writes behind. An update goes over it in slices, whose new values go home through staging buffers. */
#include "away.h"

#include "basics.h"
#include "disk.h"
#include "disk_bytes.h"
#include "home.h"
#include "optimizer.h"
#include "tensor.h"
#include "zero.h"

#include <stdlib.h>
#include <string.h>

/* ---- Units: a pass over state in files ------------------------------------------------------------------ */

static char *unit_buffer(const struct zero_units *u, size_t unit)
{
	return u->buffers + unit % (size_t)u->nbuffers * u->buffer_len;
}

static int unit_number(const struct zero_units *u, size_t unit)
{
	return (int)(unit % (size_t)u->nbuffers);
}

int zero_away_begin(struct kolo_zero *z)
{
	z->units.asked = 0;
	z->units.at = SIZE_MAX;
	return z->units.disk ? zero_disk_check(z->units.disk) : 0;
}

/* The open unit goes to the file. */
static int leave_unit(struct zero_units *u)
{
	size_t at = u->at;

	u->at = SIZE_MAX;
	return at == SIZE_MAX ? 0
			      : zero_disk_write(u->disk, unit_number(u, at), at * (uint64_t)u->buffer_len,
						u->buffer_len);
}

/* Opens a unit, and asks for those behind it: all buffers are in use then but one, which is being written. */
static int open_unit(struct kolo_zero *z, size_t unit)
{
	struct zero_units *u = &z->units;
	double began = zero_now();
	int rc;

	if (u->at == unit)
		return 0;
	rc = leave_unit(u);
	for (; rc == 0 && u->asked < u->nunits && u->asked < unit + (size_t)u->nbuffers - 1; u->asked++) {
		int i = unit_number(u, u->asked);

		rc = zero_disk_wait(u->disk, i);
		if (rc == 0)
			rc = zero_disk_read(u->disk, i, u->asked * (uint64_t)u->buffer_len, u->buffer_len);
	}
	if (rc == 0)
		rc = zero_disk_wait(u->disk, unit_number(u, unit));
	u->at = unit;
	z->times.transfer += zero_now() - began;
	return rc;
}

int zero_away_end(struct kolo_zero *z)
{
	struct zero_units *u = &z->units;
	double began = zero_now();
	int rc = u->disk ? leave_unit(u) : 0;

	for (int i = 0; u->disk && rc == 0 && i < u->nbuffers; i++)
		rc = zero_disk_wait(u->disk, i);
	z->times.transfer += zero_now() - began;
	return rc;
}

/* ---- Slices --------------------------------------------------------------------------------------------- */

/* Finds the state of elements from `first` on in memory; fewer than *n where a unit ends. */
static int open_slice(struct kolo_zero *z, const struct zero_tensor *t, size_t first, size_t *n,
		      struct zero_slice *out)
{
	size_t at = first - t->held.first, index = t->away.first + at, unit = z->units.unit, in_unit;
	float *floats;
	int moments, rc;

	out->grad = t->away.grad + at * kolo_type_size(t->away.grad_type);
	for (int m = 0; m < 2; m++)
		out->moment[m] = t->away.moment[m] ? t->away.moment[m] + at : NULL;
	out->master = t->away.master ? t->away.master + at : NULL;
	out->part = (struct zero_part){ first, *n };
	if (!z->units.disk)
		return 0;
	in_unit = index % unit;
	*n = out->part.n = zero_min(*n, unit - in_unit);
	if ((rc = open_unit(z, index / unit)) < 0)
		return rc;
	floats = (float *)(void *)unit_buffer(&z->units, index / unit) + in_unit;
	moments = zero_optimizer_moments(z->config.optimizer, &z->config.groups[t->group]);
	out->master = floats;
	for (int m = 0; m < moments; m++)
		out->moment[m] = floats + (size_t)(m + 1) * unit;
	return 0;
}

/* Where the new values of a slice belong, if the host can write there: shards that are away, and all where home is the host's. */
static char *values_in_reach(const struct kolo_zero *z, const struct zero_tensor *t, size_t first)
{
	bool shard_away = t->sharded && t->shard_place != ZERO_HOME;

	return z->device && !shard_away ? NULL : zero_kept_at(t, first);
}

/* One slice; values that the host can't write go home through a staging buffer. */
static int walk_slice(struct kolo_zero *z, int tensor, struct zero_slice *s, bool update, zero_slice_fn *fn,
		      void *arg)
{
	struct zero_tensor *t = &z->tensors[tensor];
	uint64_t *ticket;
	int rc;

	s->values = update ? values_in_reach(z, t, s->part.first) : NULL;
	if (!update || s->values)
		return fn(z, tensor, s, arg);
	if ((rc = zero_staging_take(z, &z->rising, true, &s->values, &ticket)) < 0 ||
	    (rc = fn(z, tensor, s, arg)) < 0)
		return rc;
	rc = zero_copy_up(z, zero_kept_at(t, s->part.first), s->values, s->part.n * kolo_type_size(t->type),
			  ticket);
	t->up = *ticket;
	return rc;
}

int zero_away_walk(struct kolo_zero *z, int tensor, struct zero_part part, bool update, zero_slice_fn *fn,
		   void *arg)
{
	int rc = 0;

	for (size_t done = 0, n; rc == 0 && done < part.n; done += n) {
		struct zero_slice slice = { .part = part };

		n = zero_min(part.n - done, z->slice);
		rc = open_slice(z, &z->tensors[tensor], part.first + done, &n, &slice);
		if (rc == 0)
			rc = walk_slice(z, tensor, &slice, update, fn, arg);
	}
	return rc;
}

/* ---- Single elements ------------------------------------------------------------------------------------ */

/* Floats of one kind of state that is in files: from `first` of all that is away on. */
static int move_units(struct kolo_zero *z, size_t first, int state, size_t n, float *out, const float *from)
{
	struct zero_units *u = &z->units;
	int rc = 0;

	for (size_t done = 0, k; rc == 0 && done < n; done += k) {
		size_t unit = (first + done) / u->unit, in_unit = (first + done) % u->unit;
		uint64_t offset = unit * (uint64_t)u->buffer_len +
				  ((uint64_t)state * u->unit + in_unit) * sizeof(float);

		k = zero_min(n - done, u->unit - in_unit);
		if (out)
			rc = zero_disk_get(u->disk, u->buffers, u->buffer_len, offset, out + done,
					   k * sizeof(float));
		else
			rc = zero_disk_put(u->disk, u->buffers, u->buffer_len, offset, from + done,
					   k * sizeof(float));
	}
	return rc;
}

/* Of those that are away in memory. */
static float *state_away(const struct zero_tensor *t, int state, size_t first)
{
	return (state == 0 ? t->away.master : t->away.moment[state - 1]) + (first - t->held.first);
}

static float *state_home(const struct zero_tensor *t, int state, size_t first)
{
	return state == 0 ? zero_master_at(t, first) : zero_moment_at(t, state - 1, first);
}

int zero_state_get(struct kolo_zero *z, const struct zero_tensor *t, int state, struct zero_part part,
		   float *out)
{
	struct zero_part away = zero_part_away(t, part), home = zero_part_home(t, part);
	int rc = 0;

	if (away.n && z->units.disk)
		rc = move_units(z, t->away.first + (away.first - t->held.first), state, away.n, out, NULL);
	else if (away.n)
		memcpy(out, state_away(t, state, away.first), away.n * sizeof(float));
	if (rc == 0 && home.n)
		rc = zero_home_get(z, out + (home.first - part.first), state_home(t, state, home.first),
				   home.n * sizeof(float));
	return rc;
}

int zero_state_put(struct kolo_zero *z, struct zero_tensor *t, int state, struct zero_part part,
		   const float *from)
{
	struct zero_part away = zero_part_away(t, part), home = zero_part_home(t, part);
	int rc = 0;

	if (away.n && z->units.disk)
		rc = move_units(z, t->away.first + (away.first - t->held.first), state, away.n, NULL, from);
	else if (away.n)
		memcpy(state_away(t, state, away.first), from, away.n * sizeof(float));
	if (rc == 0 && home.n)
		rc = zero_home_put(z, state_home(t, state, home.first), from + (home.first - part.first),
				   home.n * sizeof(float));
	return rc;
}

/* ---- Open and close ------------------------------------------------------------------------------------- */

static int open_staging(struct zero_staging *s, char *memory)
{
	s->memory = memory;
	s->tickets = calloc((size_t)s->n + 1, sizeof(*s->tickets));
	return s->tickets ? 0 : kolo_error_set(KOLO_ENOMEM, "%d staging buffers: out of memory", s->n);
}

static int open_units(struct kolo_zero *z)
{
	struct zero_units *u = &z->units;
	struct zero_disk_attr attr = {
		.dir = z->config.offload_optimizer.path,
		.what = "optimizer",
		.rank = z->rank,
		.bytes = u->nunits * (uint64_t)u->buffer_len,
		.nbuffers = u->nbuffers,
		.buffer_len = u->buffer_len,
		.block = z->config.io_block,
		.depth = z->config.io_depth,
	};

	u->buffers = zero_arena_take(&z->arenas[ZERO_AWAY][ZERO_UNITS], (size_t)u->nbuffers * u->buffer_len);
	attr.buffers = u->buffers;
	return zero_disk_open(&attr, &u->disk);
}

int zero_away_open(struct kolo_zero *z)
{
	struct zero_staging *up = &z->rising, *down = &z->falling;
	int rc = open_staging(up,
			      zero_arena_take(&z->arenas[ZERO_AWAY][ZERO_STAGING], (size_t)up->n * up->len));

	if (rc == 0)
		rc = open_staging(down, zero_arena_take(&z->arenas[ZERO_HOME][ZERO_STAGING],
							(size_t)down->n * down->len));
	return rc == 0 && z->units.nunits ? open_units(z) : rc;
}

void zero_away_close(struct kolo_zero *z)
{
	zero_disk_close(z->units.disk);
	free(z->rising.tickets);
	free(z->falling.tickets);
}
