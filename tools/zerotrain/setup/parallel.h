/* Several ranks for one replica: their grid, the tensor group, the context group, and the pipeline
 * with this rank's parts of the model. */
#ifndef TOOLS_ZEROTRAIN_SETUP_PARALLEL_H
#define TOOLS_ZEROTRAIN_SETUP_PARALLEL_H

#include "tools/zerotrain/model/model.h"
#include "tools/zerotrain/setup/options.h"

struct parallel {
	struct kolo_comm *comm; /* all ranks */
	struct kolo_grid *grid; /* NULL: each rank has a replica, and trains without a pipeline */
	struct kolo_grid_place place;
	struct kolo_tp *group;
	/* Ranks of the data axis that have parts of the same sequences; NULL: each has whole ones
	 */
	struct kolo_comm *context;
	int replicas, replica; /* of the data axis, by sequences: place.data_size / R; this one */
	int part, nparts;      /* of sequences: this rank's, of R */
	struct kolo_pipeline *pipeline; /* NULL: none */
	int micros, chunks;
	struct part *parts; /* [chunks] this rank's; without a pipeline one of all blocks */
	struct kolo_pipeline_executor *executor; /* from parallel_connect on */
};

/* What options and config say of the grid; micros: micro-batches if there is a pipeline. */
struct grid_sizes {
	int tensor, pipe, micros;
};

/* Makes everything but the executor. Collective. Returns 0, or an exit status after a message. Call
 * parallel_close in both cases. */
int parallel_open(struct kolo_comm *comm, const struct options *o, struct grid_sizes sizes,
		  struct parallel *out);

/* Makes the executor for boundary tensors of n floats. Returns an error of Kolo's. */
int parallel_connect(struct parallel *p, size_t n);
void parallel_close(struct parallel *p);

/* The communicator of ranks that have the same tensors, and other samples. */
struct kolo_comm *parallel_data(const struct parallel *p);

/* Whether this rank has the embedding, and the head. */
bool parallel_embeds(const struct parallel *p);
bool parallel_has_head(const struct parallel *p);

/* Whether this rank has a tensor. */
bool parallel_has(const struct parallel *p, const struct sizes *sizes, int tensor);

#endif
