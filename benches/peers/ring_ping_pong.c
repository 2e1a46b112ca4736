/* Peer of row A4: nanoseconds of a message's round trip between cores 0 and 1 by two rings, the minimum of some blocks. */
#include "eal.h"
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_ring.h>
#include <time.h>

#define CAPACITY 256
/* The blocks that the iterations are cut into, as in benches/src/ping_pong.rs. */
#define BLOCKS 20

static struct rte_ring *there, *back;
static unsigned long rounds;

static int echo(void *unused)
{
	void *message;

	(void)unused;
	for (unsigned long i = 0; i < rounds; i++) {
		while (rte_ring_dequeue(there, &message))
			;
		while (rte_ring_enqueue(back, message))
			;
	}
	return 0;
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e9 + time.tv_nsec;
}

int main(int count, char **arguments)
{
	unsigned long block = iterations_of(count, arguments, 3, "ring_ping_pong single|multiple ITERATIONS") / BLOCKS;
	unsigned int flags = !strcmp(arguments[1], "single") ? RING_F_SP_ENQ | RING_F_SC_DEQ : 0;
	double least = 1e18;
	void *message = &least;

	start_environment("0,1");
	there = rte_ring_create("there", CAPACITY, -1, flags);
	back = rte_ring_create("back", CAPACITY, -1, flags);
	rounds = block * BLOCKS;
	if (!block || !there || !back || rte_eal_remote_launch(echo, NULL, 1))
		return 1;
	for (int i = 0; i < BLOCKS; i++) {
		double began = now();
		for (unsigned long j = 0; j < block; j++) {
			while (rte_ring_enqueue(there, message))
				;
			while (rte_ring_dequeue(back, &message))
				;
		}
		double each = (now() - began) / block;
		least = each < least ? each : least;
	}
	rte_eal_wait_lcore(1);
	printf("ns %.1f\n", least);
	return 0;
}
