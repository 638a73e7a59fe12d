/* What the files of libnccl share: a communicator, the group of this thread, errors. */
#ifndef CUDA_NCCL_INSIDE_H
#define CUDA_NCCL_INSIDE_H

#include "cuda/nccl/types.h"

#include "cuda/nccl/functions.h"

#include "kolo/kolo_cuda.h"

#include <pthread.h>
#include <stdbool.h>

enum { KN_TEXT = 1024 };

/* The twin of a function, whose name begins with p. A program may define the function itself and
 * call the twin. */
#define KN_TWIN(name)                                                                              \
	extern __typeof__(name) p##name __attribute__((alias(#name), visibility("default")))

/* ---- Errors: errors.c ------------------------------------------------------------------------ */

/* Makes a text the process's last error, and the communicator's if it is not NULL. Returns
 * `result`. */
ncclResult_t kn_fail(struct ncclComm *comm, ncclResult_t result, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Makes a text the process's last error; copies that. */
void kn_tell(const char *text);
void kn_last(char out[KN_TEXT]);

/* kn_fail for what a function of kolo.h has returned; ncclSuccess if that is 0. */
ncclResult_t kn_result(struct ncclComm *comm, int rc);

/* What NCCL says where Kolo says `rc`, without any text. */
ncclResult_t kn_code(int rc);

/* ---- CUDA's contexts: context.c -------------------------------------------------------------- */

/* The context that is current on this thread, or the one that CUDA's runtime would make current,
 * and its device. */
ncclResult_t kn_context_get(void **context, int *device);

/* The context of a device that CUDA's runtime uses. */
ncclResult_t kn_context_of(int device, void **context);

/* Makes a context current on this thread. Returns the one that was. */
void *kn_context_use(void *context);

/* Reads what lies in device memory when the stream has done what it was given; blocks until then.
 * The stream's context is current. */
ncclResult_t kn_context_read(void *host, const void *from, size_t len, cudaStream_t stream);

/* ---- Queues: queue.c ------------------------------------------------------------------------- */

/* Kolo's queues for the streams that a communicator was used with. */
struct kn_queues {
	struct kn_queue {
		cudaStream_t stream;
		struct kolo_queue *queue;
	} * at;
	size_t n;
};

/* Finds or makes the queue of a stream. The context must be current if it is NULL, the default
 * stream. */
int kn_queue_of(struct kn_queues *queues, cudaStream_t stream, struct kolo_queue **out);

/* Frees all of them. */
void kn_queues_close(struct kn_queues *queues);

/* ---- Communicators: comm.c ------------------------------------------------------------------- */

enum kn_state {
	KN_MAKING, /* a thread makes it */
	KN_READY,
	KN_FINALIZED,
	KN_FAILED /* it could not be made */
};

struct ncclComm {
	struct ncclComm *next; /* in the list of all */
	struct kolo_comm *kolo;
	void *context;
	int device, rank, nranks;
	bool blocking;
	int holders;          /* of its memory, protected by the lock of the list */
	pthread_mutex_t lock; /* protects what follows */
	pthread_cond_t changed;
	enum kn_state state;
	ncclResult_t result; /* of KN_FAILED */
	bool told;           /* its failure is the process's last error */
	bool closed;         /* aborted, or destroyed */
	bool dropped;        /* that while it was being made: the thread that makes it ends it */
	bool joins;          /* kolo_comm_create works on `id` */
	struct kolo_id id;
	int calls;            /* threads that are in Kolo with it, and splits that are not over */
	unsigned begun, over; /* splits of it */
	char text[KN_TEXT];
	pthread_mutex_t turn; /* held by the thread that works with what follows */
	struct kn_queues queues;
	struct kn_factor *factors; /* ops with a factor in device memory */
	size_t nfactors;
};

/* An op whose factor is read when it is used. */
struct kn_factor {
	const void *at; /* NULL: it was destroyed */
	ncclDataType_t type;
};

/* Makes one that is not connected yet, in the list of all. NULL: no memory. */
struct ncclComm *kn_comm_new(void *context, int device, int rank, int nranks, bool blocking);

/* Holds one that is in the list of all. false: it is not there. The last to let go frees the
 * memory. */
bool kn_comm_hold(struct ncclComm *comm);
void kn_comm_let_go(struct ncclComm *comm);

/* Takes it out of the list of all. The caller holds it in place of the list. false: it is not
 * there. */
bool kn_comm_take_out(struct ncclComm *comm);

/* Closes what Kolo has of one that no thread is in, and lets go. */
void kn_comm_end(struct ncclComm *comm);

/* Ends it too if it was dropped. */
void kn_comm_set_state(struct ncclComm *comm, enum kn_state state, ncclResult_t result);

/* A split, or shrinking, begins. Returns its number. The communicator stays until all are over. */
unsigned kn_comm_begin_split(struct ncclComm *parent);

/* Ends the making of one that was dropped, as far as it waits for others. A split waits on its
 * parent, and goes on. */
void kn_comm_stop_making(struct ncclComm *comm);

/* Does a split of one that does not block go on? */
bool kn_comm_is_splitting(struct ncclComm *comm);

/* Is it one that works? `function` is for the text. After ncclSuccess the caller holds it. */
ncclResult_t kn_comm_check(struct ncclComm *comm, const char *function);

/* The thread works with the communicator, on its GPU, until kn_comm_leave. It waits for other
 * threads that do. */
ncclResult_t kn_comm_enter(struct ncclComm *comm, void **before);
void kn_comm_leave(struct ncclComm *comm, void *before);

/* What is left for the end of a group, of jobs that make communicators or end them. */
struct kn_job {
	struct kn_job *next;
	struct ncclComm *comm;   /* that is made or ended; NULL: a rank without a color */
	struct ncclComm *parent; /* that is split; NULL: none is */
	enum { KN_INIT, KN_SPLIT, KN_SHRINK, KN_DESTROY } kind;
	ncclUniqueId id;
	int color, key;
	int *left, nleft; /* of KN_SHRINK: the parent's ranks that go on; freed with the job done */
	unsigned number;  /* of the split; they are done in their order */
	bool blocking;
	bool joinable; /* `thread` does it */
	bool lost;     /* no thread does */
	pthread_t thread;
	ncclResult_t result;
};

/* Does it, on this thread. */
void kn_job_do(struct kn_job *job);

/* It can't be done: nobody may wait for it. Returns `result`. */
ncclResult_t kn_job_drop(struct kn_job *job, ncclResult_t result);

/* ---- Groups: group.c ------------------------------------------------------------------------- */

/* An operation as its caller gave it. */
struct kn_call {
	struct kn_call *next;
	enum kn_kind {
		KN_ALL_REDUCE,
		KN_REDUCE,
		KN_REDUCE_SCATTER,
		KN_BROADCAST,
		KN_ALL_GATHER,
		KN_ALL_TO_ALL,
		KN_GATHER,
		KN_SCATTER,
		KN_SEND,
		KN_RECV
	} kind;
	struct ncclComm *comm;
	const void *src;
	void *dst;
	size_t n;
	enum kolo_type type;
	enum kolo_op op;
	int root; /* or peer */
	cudaStream_t stream;
};

/* Leaves a copy to the end of the group, or does it now if there is none. The call's communicator
 * is held, and let go then. */
ncclResult_t kn_group_call(const struct kn_call *call);
ncclResult_t kn_group_job(const struct kn_job *job);

/* Ends the group of this thread without doing its jobs. */
void kn_group_cancel(void);

/* Frees an op when the group ends, or now. The communicator is held, and let go then. */
ncclResult_t kn_group_free_op(struct ncclComm *comm, enum kolo_op op);

/* ---- Environment: variables.c
 * ---------------------------------------------------------------------- */

/* Hands on what NCCL's variables ask for, once. Returns the highest level that NCCL_DEBUG wants; 0:
 * none. */
enum kolo_log_level kn_env_read(void);

/* The transport of all communicators, by name; NULL: Kolo's choice. */
const char *kn_env_transport(void);

/* Writes a line where NCCL_DEBUG says. */
void kn_log(void *arg, enum kolo_log_level level, const char *line);

#endif
