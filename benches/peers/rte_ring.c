/* Peer of row A5: sends messages through an rte_ring and receives them, on one core. */
#include "eal.h"
#include <rte_ring.h>

#define CAPACITY 256

int main(int count, char **arguments)
{
	unsigned long iterations = iterations_of(count, arguments, 4, "rte_ring single|multiple one|batch ITERATIONS");
	unsigned int flags = !strcmp(arguments[1], "single") ? RING_F_SP_ENQ | RING_F_SC_DEQ : 0;
	int batch = !strcmp(arguments[2], "batch");
	void *sent[BATCH], *received[BATCH];

	start_environment("0");
	struct rte_ring *ring = rte_ring_create("peer", CAPACITY, -1, flags);
	if (!ring)
		return 1;
	for (unsigned long i = 0; i < BATCH; i++)
		sent[i] = (void *)(i + 1);
	if (batch) {
		for (unsigned long i = 0; i < iterations; i++) {
			opaque(sent);
			if (rte_ring_enqueue_burst(ring, sent, BATCH, NULL) != BATCH)
				return 1;
			if (rte_ring_dequeue_burst(ring, received, BATCH, NULL) != BATCH)
				return 1;
			opaque(received);
		}
	} else {
		for (unsigned long i = 0; i < iterations; i++) {
			opaque(sent);
			if (rte_ring_enqueue(ring, sent[0]))
				return 1;
			if (rte_ring_dequeue(ring, received))
				return 1;
			opaque(received);
		}
	}
	printf("%lu iterations of %d objects\n", iterations, batch ? BATCH : 1);
	return 0;
}
