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

/* Waits for a message, with the processor's hint between two looks or without. */
static __rte_always_inline void *taken_from(struct rte_ring *ring, int hint)
{
	void *message;

	while (rte_ring_dequeue(ring, &message))
		if (hint)
			rte_pause();
	return message;
}

static __rte_always_inline int echo_by(int hint)
{
	for (unsigned long i = 0; i < rounds; i++) {
		void *message = taken_from(there, hint);
		while (rte_ring_enqueue(back, message))
			;
	}
	return 0;
}

static int echo(void *unused)
{
	(void)unused;
	return echo_by(0);
}

static int echo_with_hint(void *unused)
{
	(void)unused;
	return echo_by(1);
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e9 + time.tv_nsec;
}

/* Nanoseconds of a round trip of the fastest block. */
static __rte_always_inline double ping_by(unsigned long block, int hint)
{
	double least = 1e18;

	for (int i = 0; i < BLOCKS; i++) {
		double began = now();
		for (unsigned long j = 0; j < block; j++) {
			while (rte_ring_enqueue(there, &least))
				;
			taken_from(back, hint);
		}
		double each = (now() - began) / block;
		least = each < least ? each : least;
	}
	return least;
}

int main(int count, char **arguments)
{
	unsigned long block =
		iterations_of(count, arguments, 3, "ring_ping_pong single|single-pause|multiple ITERATIONS") / BLOCKS;
	unsigned int flags = strcmp(arguments[1], "multiple") ? RING_F_SP_ENQ | RING_F_SC_DEQ : 0;
	int hint = !strcmp(arguments[1], "single-pause");

	start_environment("0,1");
	there = rte_ring_create("there", CAPACITY, -1, flags);
	back = rte_ring_create("back", CAPACITY, -1, flags);
	rounds = block * BLOCKS;
	if (!block || !there || !back || rte_eal_remote_launch(hint ? echo_with_hint : echo, NULL, 1))
		return 1;
	double least = hint ? ping_by(block, 1) : ping_by(block, 0);
	rte_eal_wait_lcore(1);
	printf("ns %.1f\n", least);
	return 0;
}
