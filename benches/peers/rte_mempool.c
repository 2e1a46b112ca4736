/* Peer of rows A1 and A2: takes objects from an rte_mempool with a cache per core, and puts them back. */
#include "eal.h"
#include <rte_mempool.h>

#define OBJECTS 8191
#define CACHE 512

int main(int count, char **arguments)
{
	unsigned long iterations = iterations_of(count, arguments, 3, "rte_mempool one|bulk ITERATIONS");
	int bulk = !strcmp(arguments[1], "bulk");
	void *objects[BATCH];

	start_environment("0");
	struct rte_mempool *pool = rte_mempool_create("peer", OBJECTS, 64, CACHE, 0, NULL, NULL, NULL, NULL, 0, 0);
	if (!pool)
		return 1;
	if (bulk) {
		for (unsigned long i = 0; i < iterations; i++) {
			if (rte_mempool_get_bulk(pool, objects, BATCH))
				return 1;
			opaque(objects);
			rte_mempool_put_bulk(pool, objects, BATCH);
		}
	} else {
		for (unsigned long i = 0; i < iterations; i++) {
			if (rte_mempool_get(pool, objects))
				return 1;
			opaque(objects);
			rte_mempool_put(pool, objects[0]);
		}
	}
	printf("%lu iterations of %d objects, %u free at the end\n", iterations, bulk ? BATCH : 1, rte_mempool_avail_count(pool));
	return 0;
}
