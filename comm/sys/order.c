/* Places in the order of operations: waiting for one (ko_order_wait) and serving it
 * (ko_order_serve). The contracts are in order.h. */
#include "comm/sys/order.h"

#include <stdlib.h>
#include <time.h>

struct ko_order *ko_order_create(void)
{
	struct ko_order *order = calloc(1, sizeof(*order));
	pthread_condattr_t monotonic;

	if (order) {
		pthread_mutex_init(&order->lock, NULL);
		pthread_condattr_init(&monotonic);
		pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
		pthread_cond_init(&order->moved, &monotonic);
		pthread_condattr_destroy(&monotonic);
	}
	return order;
}

void ko_order_destroy(struct ko_order *order)
{
	if (!order)
		return;
	/* The thread that served the last place has left ko_order_serve. */
	pthread_mutex_lock(&order->lock);
	pthread_mutex_unlock(&order->lock);
	pthread_mutex_destroy(&order->lock);
	pthread_cond_destroy(&order->moved);
	free(order);
}

bool ko_order_wait(struct ko_order *order, uint64_t place)
{
	enum { MOST_NS = 10000000, SECOND_NS = 1000000000 };
	struct timespec until;
	bool served, late = false;

	/* Pairs with the release in ko_order_serve. */
	if (atomic_load_explicit(&order->served, memory_order_acquire) >= place - 1)
		return true;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += (until.tv_nsec + MOST_NS) / SECOND_NS;
	until.tv_nsec = (until.tv_nsec + MOST_NS) % SECOND_NS;
	pthread_mutex_lock(&order->lock);
	/* Pairs with the release in ko_order_serve. */
	while (!(served =
			 atomic_load_explicit(&order->served, memory_order_acquire) >= place - 1) &&
	       !late)
		late = pthread_cond_timedwait(&order->moved, &order->lock, &until) != 0;
	pthread_mutex_unlock(&order->lock);
	return served;
}

void ko_order_serve(struct ko_order *order)
{
	pthread_mutex_lock(&order->lock);
	/* Pairs with the acquires in ko_order_is_settled and ko_order_wait. */
	atomic_fetch_add_explicit(&order->served, 1, memory_order_release);
	pthread_cond_broadcast(&order->moved);
	pthread_mutex_unlock(&order->lock);
}
