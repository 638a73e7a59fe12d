/* The order of a communicator's operations.
 *
 * One thread uses a communicator: it calls the operations one after the other. Operations that it
 * leaves to queues are done by other threads. Each of these has a place in the order, and its
 * thread waits until all places before it are served. */
#ifndef COMM_SYS_ORDER_H
#define COMM_SYS_ORDER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct ko_order {
	pthread_mutex_t lock;
	pthread_cond_t moved; /* `served` has changed */
	uint64_t issued;      /* places given, from 1; the using thread alone reads and writes it */
	_Atomic uint64_t served; /* places whose operations are over; <= issued */
	bool held; /* the calling thread holds the turn; its calls are parts of one operation */
};

/* Returns NULL if there is no memory. */
struct ko_order *ko_order_create(void);
void ko_order_destroy(struct ko_order *order);

/* Blocks until all places before this one are served, for 10 ms at most. Returns whether they
 * are. */
bool ko_order_wait(struct ko_order *order, uint64_t place);

/* The next place is served. */
void ko_order_serve(struct ko_order *order);

/* On the using thread: is everything in queues done? */
static inline bool ko_order_is_settled(const struct ko_order *order)
{
	/* Pairs with the release in ko_order_serve: this thread sees what the operation wrote. */
	return atomic_load_explicit(&order->served, memory_order_acquire) == order->issued;
}

/* On the using thread: blocks until everything in queues is done. */
static inline void ko_order_settle(struct ko_order *order)
{
	while (!ko_order_is_settled(order))
		ko_order_wait(order, order->issued + 1);
}

/* The calling thread's turn has come, and the operation that it does calls others: these don't wait
 * for the turn until ko_order_unhold. Returns whether the turn was held already. */
static inline bool ko_order_hold(struct ko_order *order)
{
	bool before = order->held;

	order->held = true;
	return before;
}

/* Ends what ko_order_hold began; `before` is what that returned. */
static inline void ko_order_unhold(struct ko_order *order, bool before)
{
	order->held = before;
}

#endif
