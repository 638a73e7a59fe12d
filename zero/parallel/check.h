/* What must be true of lists, whoever made them. */
#ifndef ZERO_PARALLEL_CHECK_H
#define ZERO_PARALLEL_CHECK_H

#include "zero/parallel/lists.h"

/* Errors: KOLO_EINVAL (too many, or too few), with the numbers. */
int zero_check_sizes(const struct zero_pipeline_sizes *sizes);

/* As kolo_pipeline_check. *buffers, if it is not NULL, become the buffers of each part. */
int zero_check_lists(const struct zero_pipeline_sizes *sizes, const struct zero_list *lists,
		     int *buffers);

#endif
