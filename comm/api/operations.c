/* The public operations: each makes a struct ko_call of its arguments. kolo.h says what each one
 * does. */
#include "comm/api/dispatch.h"

/* ---- The collectives ------------------------------------------------------------------------- */

int kolo_all_reduce(struct kolo_comm *comm, const void *src, void *dst, size_t n,
		    enum kolo_type type, enum kolo_op op, struct kolo_queue *queue)
{
	const struct ko_call call = { comm, KO_ALL_REDUCE, src,   dst,  n,   type, op,
				      -1,   queue,         false, NULL, NULL };

	return ko_call_do(&call);
}

int kolo_reduce_scatter(struct kolo_comm *comm, const void *src, void *dst, size_t n,
			enum kolo_type type, enum kolo_op op, struct kolo_queue *queue)
{
	const struct ko_call call = {
		comm, KO_REDUCE_SCATTER, src, dst, n, type, op, -1, queue, false, NULL, NULL
	};

	return ko_call_do(&call);
}

int kolo_reduce_scatter_v(struct kolo_comm *comm, const void *src, void *dst, const size_t *counts,
			  enum kolo_type type, enum kolo_op op, struct kolo_queue *queue)
{
	const struct ko_call call = {
		comm, KO_REDUCE_SCATTER, src, dst, 0, type, op, -1, queue, true, counts, NULL
	};

	return ko_call_do(&call);
}

int kolo_all_gather(struct kolo_comm *comm, const void *src, void *dst, size_t n,
		    enum kolo_type type, struct kolo_queue *queue)
{
	const struct ko_call call = { comm, KO_ALL_GATHER, src,   dst,  n,   type, KOLO_SUM,
				      -1,   queue,         false, NULL, NULL };

	return ko_call_do(&call);
}

int kolo_all_gather_v(struct kolo_comm *comm, const void *src, void *dst, const size_t *counts,
		      enum kolo_type type, struct kolo_queue *queue)
{
	const struct ko_call call = { comm, KO_ALL_GATHER, src,  dst,    0,   type, KOLO_SUM,
				      -1,   queue,         true, counts, NULL };

	return ko_call_do(&call);
}

int kolo_broadcast(struct kolo_comm *comm, const void *src, void *dst, size_t n,
		   enum kolo_type type, int root, struct kolo_queue *queue)
{
	const struct ko_call call = { comm,     KO_BROADCAST, src,   dst,   n,    type,
				      KOLO_SUM, root,         queue, false, NULL, NULL };

	return ko_call_do(&call);
}

int kolo_reduce(struct kolo_comm *comm, const void *src, void *dst, size_t n, enum kolo_type type,
		enum kolo_op op, int root, struct kolo_queue *queue)
{
	const struct ko_call call = { comm, KO_REDUCE, src,   dst,   n,    type,
				      op,   root,      queue, false, NULL, NULL };

	return ko_call_do(&call);
}

int kolo_barrier(struct kolo_comm *comm, struct kolo_queue *queue)
{
	const struct ko_call call = { comm,     KO_BARRIER, NULL,  NULL,  0,    KOLO_U8,
				      KOLO_SUM, -1,         queue, false, NULL, NULL };

	return ko_call_do(&call);
}

/* ---- Between pairs of ranks ------------------------------------------------------------------ */

int kolo_all_to_all(struct kolo_comm *comm, const void *src, void *dst, size_t n,
		    enum kolo_type type, struct kolo_queue *queue)
{
	const struct ko_call call = { comm, KO_ALL_TO_ALL, src,   dst,  n,   type, KOLO_SUM,
				      -1,   queue,         false, NULL, NULL };

	return ko_call_do(&call);
}

int kolo_all_to_all_v(struct kolo_comm *comm, const void *src, const size_t *send_counts, void *dst,
		      const size_t *recv_counts, enum kolo_type type, struct kolo_queue *queue)
{
	const struct ko_call call = { comm,  KO_ALL_TO_ALL, src,         dst,
				      0,     type,          KOLO_SUM,    -1,
				      queue, true,          send_counts, recv_counts };

	return ko_call_do(&call);
}

/* Only root's counts are used. */
static const size_t *for_root(const struct kolo_comm *comm, const size_t *counts, int root)
{
	return comm && comm->rank == root ? counts : NULL;
}

int kolo_gather(struct kolo_comm *comm, const void *src, void *dst, size_t n, enum kolo_type type,
		int root, struct kolo_queue *queue)
{
	const struct ko_call call = { comm,     KO_GATHER, src,   dst,   n,    type,
				      KOLO_SUM, root,      queue, false, NULL, NULL };

	return ko_call_do(&call);
}

int kolo_gather_v(struct kolo_comm *comm, const void *src, size_t n, void *dst,
		  const size_t *counts, enum kolo_type type, int root, struct kolo_queue *queue)
{
	const struct ko_call call = { comm,
				      KO_GATHER,
				      src,
				      dst,
				      n,
				      type,
				      KOLO_SUM,
				      root,
				      queue,
				      true,
				      for_root(comm, counts, root),
				      NULL };

	return ko_call_do(&call);
}

int kolo_scatter(struct kolo_comm *comm, const void *src, void *dst, size_t n, enum kolo_type type,
		 int root, struct kolo_queue *queue)
{
	const struct ko_call call = { comm,     KO_SCATTER, src,   dst,   n,    type,
				      KOLO_SUM, root,       queue, false, NULL, NULL };

	return ko_call_do(&call);
}

int kolo_scatter_v(struct kolo_comm *comm, const void *src, const size_t *counts, void *dst,
		   size_t n, enum kolo_type type, int root, struct kolo_queue *queue)
{
	const struct ko_call call = { comm,
				      KO_SCATTER,
				      src,
				      dst,
				      n,
				      type,
				      KOLO_SUM,
				      root,
				      queue,
				      true,
				      for_root(comm, counts, root),
				      NULL };

	return ko_call_do(&call);
}

int kolo_send(struct kolo_comm *comm, const void *src, size_t n, enum kolo_type type, int peer,
	      struct kolo_queue *queue)
{
	const struct ko_call call = { comm,     KO_SEND_TO, src,   NULL,  n,    type,
				      KOLO_SUM, peer,       queue, false, NULL, NULL };

	return ko_call_do(&call);
}

int kolo_recv(struct kolo_comm *comm, void *dst, size_t n, enum kolo_type type, int peer,
	      struct kolo_queue *queue)
{
	const struct ko_call call = { comm,     KO_RECV_FROM, NULL,  dst,   n,    type,
				      KOLO_SUM, peer,         queue, false, NULL, NULL };

	return ko_call_do(&call);
}
