/* What every DPDK peer needs: the environment without hugepages, devices or files, and its arguments. */
#include <rte_eal.h>
#include <rte_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Objects of a batch, as in benches/src. */
#define BATCH 32

static inline void start_environment(const char *cores)
{
	char *arguments[] = { (char *)"peer", (char *)"--no-huge", (char *)"--no-pci", (char *)"--no-shconf", (char *)"--no-telemetry",
			      (char *)"--log-level=3", (char *)"-m", (char *)"64", (char *)"-l", (char *)cores };

	if (rte_eal_init(sizeof arguments / sizeof *arguments, arguments) < 0) {
		fprintf(stderr, "rte_eal_init: %s\n", rte_strerror(rte_errno));
		exit(1);
	}
}

/* The last argument, and in `mode` the ones before it; prints `usage` where their number is another. */
static inline unsigned long iterations_of(int count, char **arguments, int wanted, const char *usage)
{
	if (count != wanted) {
		fprintf(stderr, "usage: %s\n", usage);
		exit(2);
	}
	return strtoul(arguments[count - 1], NULL, 10);
}

/* The compiler must believe that the memory behind `objects` is read and written here. */
static inline void opaque(void *objects)
{
	__asm__ volatile("" : : "r"(objects) : "memory");
}
