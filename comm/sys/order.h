/* The order of a communicator's operations. The thread that uses it calls them one after the other; those that it
 * leaves to queues are done by other threads, and each waits there for its place. */
#ifndef COMM_SYS_ORDER_H
#define COMM_SYS_ORDER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct ko_order {
	pthread_mutex_t lock;
	pthread_cond_t moved;
	uint64_t issued;         /* places, from 1: those of operations in queues; the using thread's alone */
	_Atomic uint64_t served; /* of these; <= issued */
	bool in_turn; /* whoever is calling has the turn already, and makes an operation of several calls */
};

/* NULL: no memory. */
struct ko_order *ko_order_create(void);
void ko_order_destroy(struct ko_order *order);

/* Blocks until all places before this one are served, for a hundredth of a second at most. Are they? */
bool ko_order_wait(struct ko_order *order, uint64_t place);

/* The place that comes next is served. */
void ko_order_serve(struct ko_order *order);

/* On the thread that uses the communicator: is everything in queues done? */
static inline bool ko_order_is_settled(const struct ko_order *order)
{
	/* Pairs with the release in ko_order_serve: what the operation left in the communicator is seen. */
	return atomic_load_explicit(&order->served, memory_order_acquire) == order->issued;
}

/* Blocks until it is. */
static inline void ko_order_settle(struct ko_order *order)
{
	while (!ko_order_is_settled(order))
		ko_order_wait(order, order->issued + 1);
}

#endif
