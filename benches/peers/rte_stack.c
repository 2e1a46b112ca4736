/* Peer of row A3: an object goes from one owner to another by way of a lock-free rte_stack: push and pop. */
#include "eal.h"
#include <rte_stack.h>

int main(int count, char **arguments)
{
	unsigned long iterations = iterations_of(count, arguments, 3, "rte_stack one|bulk ITERATIONS");
	unsigned int batch = !strcmp(arguments[1], "bulk") ? BATCH : 1;
	void *objects[BATCH];

	start_environment("0");
	struct rte_stack *stack = rte_stack_create("peer", 4 * BATCH, -1, RTE_STACK_F_LF);
	if (!stack)
		return 1;
	for (unsigned long i = 0; i < 2 * BATCH; i++) {
		objects[0] = (void *)(i + 1);
		rte_stack_push(stack, objects, 1);
	}
	for (unsigned long i = 0; i < iterations; i++) {
		if (rte_stack_pop(stack, objects, batch) != batch)
			return 1;
		opaque(objects);
		if (rte_stack_push(stack, objects, batch) != batch)
			return 1;
	}
	printf("%lu iterations of %u objects, %u free at the end\n", iterations, batch, rte_stack_count(stack));
	return 0;
}
