/* See order.h. */
#include "order.h"

#include <stdlib.h>

struct ko_order *ko_order_create(void)
{
	struct ko_order *order = calloc(1, sizeof(*order));

	if (order) {
		pthread_mutex_init(&order->lock, NULL);
		pthread_cond_init(&order->moved, NULL);
	}
	return order;
}

void ko_order_destroy(struct ko_order *order)
{
	if (!order)
		return;
	pthread_mutex_lock(&order->lock); /* whoever served the last place has left */
	pthread_mutex_unlock(&order->lock);
	pthread_mutex_destroy(&order->lock);
	pthread_cond_destroy(&order->moved);
	free(order);
}

void ko_order_wait(struct ko_order *order, uint64_t place)
{
	pthread_mutex_lock(&order->lock);
	while (atomic_load_explicit(&order->served, memory_order_relaxed) < place - 1)
		pthread_cond_wait(&order->moved, &order->lock);
	pthread_mutex_unlock(&order->lock);
}

void ko_order_serve(struct ko_order *order)
{
	pthread_mutex_lock(&order->lock);
	/* Pairs with the acquire in ko_order_settle. */
	atomic_fetch_add_explicit(&order->served, 1, memory_order_release);
	pthread_cond_broadcast(&order->moved);
	pthread_mutex_unlock(&order->lock);
}
