/* Peer of row A8: a hit in UCX's registration cache, ucs_rcache_get and ucs_rcache_region_put of 4 KiB, 32 buffers in turn. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucs/memory/rcache.h>
#include <ucs/type/status.h>

#define BUFFERS 32
#define BYTES 4096

static ucs_status_t made(void *context, ucs_rcache_t *cache, void *argument, ucs_rcache_region_t *region, uint16_t flags)
{
	(void)context, (void)cache, (void)argument, (void)region, (void)flags;
	return UCS_OK;
}

static void ended(void *context, ucs_rcache_t *cache, ucs_rcache_region_t *region)
{
	(void)context, (void)cache, (void)region;
}

static void shown(void *context, ucs_rcache_t *cache, ucs_rcache_region_t *region, char *text, size_t most)
{
	(void)context, (void)cache, (void)region;
	snprintf(text, most, "peer");
}

int main(int count, char **arguments)
{
	if (count != 2) {
		fprintf(stderr, "usage: ucs_rcache ITERATIONS\n");
		return 2;
	}
	unsigned long rounds = strtoul(arguments[1], NULL, 10);
	ucs_rcache_ops_t calls = { made, ended, shown };
	/* No memory events: nothing is unmapped, and hooks of unmap are not what is counted. */
	ucs_rcache_params_t wish = { .region_struct_size = sizeof(ucs_rcache_region_t), .alignment = 64, .max_alignment = BYTES,
		.ops = &calls, .max_regions = 1000, .max_size = 1 << 30, .max_unreleased = 1 << 30 };
	char *memory = aligned_alloc(BYTES, 2 * BUFFERS * BYTES);
	ucs_rcache_region_t *region;
	ucs_rcache_t *cache;

	memset(memory, 1, 2 * BUFFERS * BYTES);
	if (ucs_rcache_create(&wish, "peer", NULL, &cache) != UCS_OK)
		return 1;
	for (unsigned long i = 0; i < rounds; i++) {
		/* Every other page, so that regions are not merged into one. */
		char *buffer = memory + i % BUFFERS * 2 * BYTES;
		if (ucs_rcache_get(cache, buffer, BYTES, PROT_READ | PROT_WRITE, NULL, &region) != UCS_OK)
			return 1;
		ucs_rcache_region_put(cache, region);
	}
	printf("%lu iterations of 1 object\n", rounds);
	ucs_rcache_destroy(cache);
	return 0;
}
